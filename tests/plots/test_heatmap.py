import dataclasses

import numpy as np
import pytest
import torch
from matplotlib.colors import LogNorm
from matplotlib.mathtext import MathTextParser
from torch import nn

from tests.plots.drawn import plots

SIZES = {"kappa": 2.0, "mix": torch.arange(1.0, 7.0, dtype=torch.float64).reshape(2, 3)}


def cells(ax):
    return ax.collections[0].get_array()


def labels(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def test_a_row_is_the_root_mean_square_times_the_size_of_the_input(sens):
    ax = plots.sensitivity_heatmap(sens, SIZES, out=1, wrt=("kappa", "mix"))
    drawn = cells(ax)
    assert drawn.shape == (7, 7)  # kappa and six entries, seven times
    np.testing.assert_allclose(
        drawn[0], 2.0 * sens.dparams["kappa"][..., 1].square().mean(1).sqrt(), rtol=1e-12
    )
    np.testing.assert_allclose(
        drawn[6], 6.0 * sens.dparams["mix"][:, :, 1, 1, 2].square().mean(1).sqrt(), rtol=1e-12
    )
    assert labels(ax)[0] == r"$\kappa$"
    assert labels(ax)[6] == r"$\mathrm{mix}_{1,2}$"


def test_the_start_is_scaled_by_each_samples_own(sens):
    ax = plots.sensitivity_heatmap(sens, SIZES, wrt="x0")
    row = (sens.x[0, :, 1] * sens.dx0[:, :, 0, 1]).square().mean(1).sqrt()
    np.testing.assert_allclose(cells(ax)[1], row, rtol=1e-12)
    assert labels(ax) == ["$x_0^{(0)}$", "$x_0^{(1)}$"]


def test_means_are_signed_around_white_and_hatched_below(sens):
    ts = sens.ts
    kappa = (ts - 1.0)[:, None, None].expand_as(sens.dparams["kappa"])
    sens = dataclasses.replace(sens, dparams={"kappa": kappa})
    ax = plots.sensitivity_heatmap(sens, {"kappa": 1.0}, wrt="kappa", measure="mean")
    np.testing.assert_allclose(cells(ax)[0], ts - 1, atol=1e-12)
    norm = ax.collections[0].norm
    assert (norm.vmin, norm.vmax) == (-3.0, 3.0)
    (hatched,) = ax.patches
    middle = (ts[1:] + ts[:-1]) / 2
    last = int((ts - 1 < -0.3).nonzero()[-1])
    assert hatched.get_hatch()
    assert hatched.get_x() == 0.0
    assert hatched.get_x() + hatched.get_width() == pytest.approx(middle[last].item())
    assert ax.collections[0].colorbar.ax.get_ylabel().endswith("hatched: negative")


def test_the_colours_are_logarithmic_where_rows_are_far_apart(sens):
    near = plots.sensitivity_heatmap(sens, {"kappa": 1.0, "mix": 1.0}, wrt=("kappa", "mix"))
    assert not isinstance(near.collections[0].norm, LogNorm)
    far = {"kappa": 100.0, "mix": 1.0}
    ax = plots.sensitivity_heatmap(sens, far, wrt=("kappa", "mix"))
    norm = ax.collections[0].norm
    assert isinstance(norm, LogNorm)
    assert norm.vmax == pytest.approx(cells(ax).max())
    assert norm.vmin == pytest.approx(cells(ax).max() / 1000)
    linear = plots.sensitivity_heatmap(sens, far, wrt=("kappa", "mix"), scale="linear")
    assert not isinstance(linear.collections[0].norm, LogNorm)


def test_without_sizes_derivatives_are_as_they_are_and_it_says_so(sens):
    ax = plots.sensitivity_heatmap(sens, wrt="kappa", unit="EUR")
    np.testing.assert_allclose(
        cells(ax)[0], sens.dparams["kappa"][..., 0].square().mean(1).sqrt(), rtol=1e-12
    )
    assert ax.collections[0].colorbar.ax.get_ylabel().endswith("not scaled (EUR)")


def test_the_model_gives_the_sizes(sens):
    model = nn.Module()
    model.kappa = nn.Parameter(torch.tensor(3.0))
    ax = plots.sensitivity_heatmap(sens, model, wrt="kappa")
    expected = 3 * sens.dparams["kappa"][..., 0].square().mean(1).sqrt()
    np.testing.assert_allclose(cells(ax)[0], expected, rtol=1e-12)


def test_many_rows_have_one_label_an_input(sens):
    many = torch.ones(7, 200, 2, 30, dtype=torch.float64)
    sens = dataclasses.replace(sens, dparams={"weight": many, "bias": many[..., :2]})
    ax = plots.sensitivity_heatmap(sens)
    assert labels(ax) == ["$x_0$", r"$\mathrm{weight}$", r"$\mathrm{bias}$"]
    assert list(ax.get_yticks()) == [0.5, 16.5, 32.5]
    assert cells(ax).shape == (34, 7)
    assert ax.figure.get_figheight() > 3.2


def test_the_name_of_a_weight_of_a_module_is_written_without_gaps(sens):
    name = "drift.0.weight"
    sens = dataclasses.replace(sens, dparams={name: sens.dparams["kappa"]})
    (label,) = labels(plots.sensitivity_heatmap(sens, wrt=name))
    drawn, plain = (MathTextParser("path").parse(text).width for text in (label, name))
    assert drawn == pytest.approx(plain, abs=1)


def test_the_axes_given_are_used(sens, ax):
    assert plots.sensitivity_heatmap(sens, SIZES, wrt="kappa", ax=ax) is ax
    assert ax.get_xlim() == (0.0, 4.0)
    assert ax.get_ylim() == (0.5, -0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"parameters": {"kappa": 0.0}}, "'kappa' is 0, and so is every derivative times it"),
        ({"parameters": {"kapa": 1.0}}, r"one of \['kapa'\], got 'kappa'"),
        ({"parameters": {"kappa": torch.ones(2)}}, r"must be a number or have shape \(\), got \(2"),
        ({"parameters": [1.0]}, "parameters must be the model or a dict of values by name, got li"),
        ({"measure": "median"}, "measure must be one of"),
        ({"scale": "lin"}, "scale must be one of .*Did you mean 'linear'"),
        ({"wrt": ()}, "wrt must name at least one input"),
        ({"wrt": "kapa"}, "Did you mean 'kappa'"),
        ({"out": 2}, "out must be in"),
    ],
)
def test_bad_arguments_are_refused(sens, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        plots.sensitivity_heatmap(sens, **({"wrt": "kappa"} | arguments))
