import dataclasses
import warnings

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from tests.plots.drawn import band, plots


def lines(ax):
    return {line.get_label(): line for line in ax.get_lines()}


def test_a_fan_shows_the_quantiles_of_the_component(sens, ax):
    plots.path_fan(sens, component=1, bands=(0.5, 0.9), ax=ax)
    x = sens.x[:, :, 1]
    outer, inner = ax.collections  # the widest first, so that it lies beneath
    for drawn, levels in ((outer, (0.05, 0.95)), (inner, (0.25, 0.75))):
        edges = x.quantile(torch.tensor(levels, dtype=x.dtype), dim=1)
        for drawn_edge, edge in zip(band(drawn), edges, strict=True):
            np.testing.assert_allclose(drawn_edge, edge.numpy(), rtol=0, atol=1e-12)
    assert [c.get_label() for c in ax.collections] == ["5–95 %", "25–75 %"]


def test_a_fan_shows_median_mean_and_the_first_paths_against_the_times(sens, ax):
    plots.path_fan(sens, component=1, paths=3, ax=ax)
    x = sens.x[:, :, 1]
    named = lines(ax)
    np.testing.assert_allclose(named["median"].get_ydata(), x.quantile(0.5, dim=1), atol=1e-12)
    np.testing.assert_allclose(named["mean"].get_ydata(), x.mean(dim=1), atol=1e-12)
    paths = [line for label, line in named.items() if label not in ("median", "mean")]
    assert paths[0].get_label() == "3 of 200 paths"
    drawn = [line.get_ydata() for line in ax.get_lines()[:3]]
    np.testing.assert_array_equal(np.array(drawn), x[:, :3].T)
    for line in ax.get_lines():
        np.testing.assert_array_equal(line.get_xdata(), sens.ts)
    assert ax.get_xlim() == (0.0, 4.0)
    assert len(ax.get_lines()) == 5


def test_labels_name_the_component_and_may_be_given(sens, make):
    assert plots.path_fan(sens, component=1).get_ylabel() == "$X_t^{(1)}$"
    assert plots.path_fan(make(d=1)).get_ylabel() == "$X_t$"
    ax = plots.path_fan(sens, xlabel="time (years)", ylabel="spot (EUR)")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time (years)", "spot (EUR)")
    assert plots.path_fan(sens, ylabel="").get_ylabel() == ""


def test_there_is_no_legend_if_none_is_wanted(sens):
    assert plots.path_fan(sens, legend=False).get_legend() is None
    assert plots.tangent_fan(sens, wrt="kappa", legend=False).get_legend() is None


def test_one_sample_is_a_line_without_bands(make, ax):
    sens = make(samples=1)
    plots.path_fan(sens, ax=ax)
    (line,) = ax.get_lines()
    np.testing.assert_array_equal(line.get_ydata(), sens.x[:, 0, 0])
    assert not ax.collections
    assert ax.get_legend() is None


def test_the_legend_lies_above_everything_that_is_drawn(sens):
    ax = plots.path_fan(sens)
    ax.figure.canvas.draw()
    box = ax.get_legend().get_window_extent().transformed(ax.transData.inverted())
    top = max(line.get_ydata().max() for line in ax.get_lines())
    assert box.y0 >= max(top, *(band(c)[1].max() for c in ax.collections))


def test_what_is_drawn_later_still_moves_the_limits(sens, ax):
    plots.path_fan(sens, ax=ax)
    ax.plot([0, 4], [1000, 1000])
    assert ax.get_ylim()[1] > 1000


def test_results_on_a_graph_and_in_float32_are_drawn(sens, ax):
    x = sens.x.float().requires_grad_()
    plots.path_fan(dataclasses.replace(sens, x=x), ax=ax)
    np.testing.assert_array_equal(ax.get_lines()[0].get_ydata(), x[:, 0, 0].detach().double())


@pytest.mark.parametrize(
    ("arguments", "pick", "label"),
    [
        ({"out": 1, "entry": 0}, lambda s: s.dx0[:, :, 1, 0], "$dX_t^{(1)} / dx_0^{(0)}$"),
        ({"wrt": "kappa"}, lambda s: s.dparams["kappa"][..., 0], r"$dX_t^{(0)} / d\kappa$"),
        (
            {"wrt": "mix", "entry": (1, 2), "out": 1},
            lambda s: s.dparams["mix"][:, :, 1, 1, 2],
            r"$dX_t^{(1)} / d\mathrm{mix}_{1,2}$",
        ),
    ],
)
def test_a_tangent_fan_is_of_the_derivative_that_was_named(sens, ax, arguments, pick, label):
    plots.tangent_fan(sens, ax=ax, **arguments)
    named = lines(ax)
    np.testing.assert_allclose(named["mean"].get_ydata(), pick(sens).mean(1), atol=1e-12)
    assert ax.get_ylabel() == label


def spanning(sens, decades):
    """dX_t/dx0 that falls by so many decades, the same for all samples."""
    fall = 10 ** (-decades * sens.ts / sens.ts[-1])
    return dataclasses.replace(sens, _dx0=fall[:, None, None, None].expand_as(sens.dx0))


def test_a_tangent_fan_is_logarithmic_from_a_decade_and_a_half_on(sens):
    at = {"entry": 0}
    assert plots.tangent_fan(spanning(sens, 1.4), **at).get_yscale() == "linear"
    assert plots.tangent_fan(spanning(sens, 1.6), **at).get_yscale() == "log"
    assert plots.tangent_fan(spanning(sens, 1.6), scale="linear", **at).get_yscale() == "linear"
    assert plots.tangent_fan(spanning(sens, 0.1), scale="log", **at).get_yscale() == "log"


def test_a_scale_stays_linear_where_a_sample_is_not_positive(sens):
    dx0 = spanning(sens, 3.0).dx0.clone()
    dx0[-1, 0] = 0.0
    ax = plots.tangent_fan(dataclasses.replace(sens, _dx0=dx0), entry=0)
    assert ax.get_yscale() == "linear"


def test_a_figure_of_its_own_is_drawn_without_a_warning(sens):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.tangent_fan(sens, entry=1).figure.canvas.draw()


def test_the_axes_given_are_those_that_come_back(sens):
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plots.path_fan(sens, ax=right) is right
    assert plots.tangent_fan(sens, wrt="kappa", ax=left) is left
    assert figure.axes == [left, right]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"component": 2}, r"component must be in \[0, 2\), as there are 2 components, got 2"),
        ({"component": 1.0}, "component must be an int, got 1.0"),
        ({"component": -1}, "component must be in"),
        ({"bands": (0.9, 90)}, "bands must hold probabilities between 0 and 1, got 90"),
        ({"paths": -1}, "paths must be at least 0, got -1"),
        ({"scale": "line"}, "scale must be one of .*Did you mean 'linear'"),
        ({"ax": "here"}, "ax must be matplotlib Axes, got str"),
    ],
)
def test_bad_arguments_of_a_fan_are_refused(sens, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        plots.path_fan(sens, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"wrt='x0' has 2 entries, of shape \(2,\). Name one of them, as by entry=0"),
        ({"wrt": "mix"}, r"has 6 entries, of shape \(2, 3\). Name one of them, as by entry=\(0, 0"),
        ({"wrt": "mix", "entry": 1}, r"entry must be an index into shape \(2, 3\) of 'mix', got 1"),
        ({"wrt": "mix", "entry": (2, 0)}, r"entry must be in \[0, 2\)"),
        ({"wrt": "kapa"}, "wrt must be one of .*Did you mean 'kappa'"),
        ({"out": 5, "entry": 0}, "out must be in"),
        ({"entry": 0, "scale": "log"}, "scale 'log' needs positive numbers, and the smallest here"),
    ],
)
def test_bad_arguments_of_a_tangent_fan_are_refused(sens, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        plots.tangent_fan(sens, **arguments)


def test_what_is_no_result_is_refused(sens):
    with pytest.raises(
        TypeError, match=r"sens must be Sensitivities, got Tensor. Use what sdesens"
    ):
        plots.path_fan(sens.x)
    short = dataclasses.replace(sens, ts=sens.ts[:1], x=sens.x[:1])
    with pytest.raises(ValueError, match="must have at least two times and one sample"):
        plots.path_fan(short)
