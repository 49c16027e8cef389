import dataclasses

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from sdesens.montecarlo import Estimate
from sdesens.pricing import Report
from tests.plots.drawn import band, plots

SPOTS = [90.0, 100.0, 110.0]
DELTAS = [Estimate(0.4, 0.01), Estimate(0.6, 0.02), Estimate(0.8, 0.03)]
Z = 1.959963984540054


def test_a_profile_shows_values_and_their_confidence_band(ax):
    assert plots.greek_profile(SPOTS, DELTAS, ylabel="delta", ax=ax) is ax
    (line,) = ax.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), SPOTS)
    np.testing.assert_array_equal(line.get_ydata(), [0.4, 0.6, 0.8])
    low, high = band(ax.collections[0])
    np.testing.assert_allclose(low, [e.value - Z * e.stderr for e in DELTAS], rtol=1e-12)
    np.testing.assert_allclose(high, [e.value + Z * e.stderr for e in DELTAS], rtol=1e-12)
    assert ax.collections[0].get_label() == "95 % confidence"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("spot $S_0$", "delta")


def test_the_level_widens_the_band(ax):
    plots.greek_profile(SPOTS, DELTAS, level=0.99, ax=ax)
    low, high = band(ax.collections[0])
    assert (high[1] - low[1]) / 2 == pytest.approx(2.5758293 * 0.02, rel=1e-7)
    assert ax.collections[0].get_label() == "99 % confidence"


def test_an_estimate_of_tensors_is_drawn_like_one_each(ax):
    together = Estimate(torch.tensor([0.4, 0.6, 0.8]), torch.tensor([0.01, 0.02, 0.03]))
    plots.greek_profile(torch.tensor(SPOTS), together, ax=ax)
    np.testing.assert_allclose(ax.get_lines()[0].get_ydata(), [0.4, 0.6, 0.8], rtol=1e-7)


def test_the_closed_form_is_values_at_x_or_on_a_grid_of_its_own_or_a_function():
    ax = plots.greek_profile(SPOTS, DELTAS, closed_form=[0.41, 0.61, 0.81])
    known = ax.get_lines()[1]
    assert known.get_label() == "closed form"
    np.testing.assert_array_equal(known.get_ydata(), [0.41, 0.61, 0.81])
    finer = torch.linspace(90, 110, 5)
    ax = plots.greek_profile(SPOTS, DELTAS, closed_form=(finer, finer**2))
    np.testing.assert_array_equal(ax.get_lines()[1].get_data(), [finer, finer**2])
    ax = plots.greek_profile(SPOTS, DELTAS, closed_form=lambda s: torch.tensor(s) ** 2)
    x, y = ax.get_lines()[1].get_data()
    assert len(x) == 201
    assert (x[0], x[-1]) == (90.0, 110.0)
    np.testing.assert_allclose(y, x**2, rtol=1e-6)


def test_a_second_greek_on_the_axes_looks_different_and_has_one_entry_in_the_legend():
    ax = plots.greek_profile(SPOTS, DELTAS, label="pathwise", closed_form=[0.4, 0.6, 0.8])
    plots.greek_profile(SPOTS, DELTAS, label="bismut", ax=ax)
    first, _, second = ax.get_lines()
    for look in ("get_color", "get_linestyle", "get_marker"):
        assert getattr(first, look)() != getattr(second, look)()
    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    assert shown == ["95 % confidence", "pathwise", "closed form", "bismut"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": [90.0, 100.0]}, "the values of greek must have as many entries as x, 2, got 3"),
        ({"x": [90.0, 90.0, 100.0]}, r"x must increase, got x\[0\]=90 before x\[1\]=90"),
        ({"x": "abc"}, "x must be a number, numbers or a tensor, got 'abc'"),
        ({"x": [[90.0]]}, r"x must have shape \(n,\)"),
        ({"x": [90.0, float("nan"), 110.0]}, "x must be finite, got nan"),
        ({"greek": [0.4, 0.6, 0.8]}, "greek must hold an Estimate each, got float at index 0"),
        ({"greek": 0.4}, "greek must be Estimates, one for each of x, got float"),
        ({"greek": [Estimate(0.4, -1.0)] * 3}, "must not be negative, got -1.0"),
        ({"level": 95}, "level must be between 0 and 1, got 95"),
        ({"closed_form": ([90.0], [0.4, 0.5])}, r"as many entries as closed_form\[0\], 1, got 2"),
        ({"closed_form": [0.4]}, "closed_form must have as many entries as x, 3, got 1"),
    ],
)
def test_bad_arguments_of_a_profile_are_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        plots.greek_profile(**({"x": SPOTS, "greek": DELTAS} | arguments))


def report(paths=400, **stderr):
    """A report with these standard errors; ``gamma`` is the second derivative."""
    names = {"price": (), "delta": ("spot",), "vega": ("sigma",), "gamma": ("spot", "spot")}
    entries = {names[greek]: Estimate(0.5, error) for greek, error in stderr.items()}
    return Report(
        entries=entries,
        estimators=dict.fromkeys(entries, "some"),
        groups={},
        asset="spot",
        model="BlackScholes",
        payoff="Call(100)",
        scheme="exact",
        steps=1,
        paths=paths,
        seed=0,
        antithetic=False,
    )


def marks(ax):
    """Marks by estimator: row to standard error."""
    out = {}
    for line in ax.get_lines():
        if not line.get_label().startswith("_"):
            rows = np.round(line.get_ydata()).astype(int)
            out[line.get_label()] = dict(zip(rows.tolist(), line.get_xdata(), strict=True))
    return out


def test_standard_errors_stand_in_rows_by_number_with_a_mark_by_estimator(ax):
    reports = {"pathwise": report(delta=0.01), "bismut": report(delta=0.1, gamma=0.2)}
    of = {"delta": "spot", "gamma": ("spot", "spot")}
    assert plots.estimator_variances(reports, of=of, ax=ax) is ax
    assert marks(ax) == {"pathwise": {0: 0.01}, "bismut": {0: 0.1, 1: 0.2}}
    assert [text.get_text() for text in ax.get_yticklabels()] == ["delta", "gamma"]
    assert ax.get_xscale() == "log"
    assert ax.get_ylim() == (1.5, -0.5)  # the first on top
    assert ax.get_xlabel() == "standard error"
    first, second = (line for line in ax.get_lines() if not line.get_label().startswith("_"))
    assert first.get_marker() != second.get_marker()
    assert first.get_color() != second.get_color()


def test_by_default_every_number_of_every_report_has_a_row():
    ax = plots.estimator_variances({"a": report(price=1.0, delta=0.1), "b": report(gamma=0.2)})
    rows = [text.get_text() for text in ax.get_yticklabels()]
    assert rows == ["price", "d/d spot", "d²/d spot d spot"]


def test_an_estimator_that_was_refused_keeps_its_mark_and_place():
    of = {"delta": "spot"}
    full = plots.estimator_variances({"a": report(delta=0.1), "b": report(delta=0.2)}, of=of)
    ax = plots.estimator_variances({"a": None, "b": report(delta=0.2)}, of=of)
    assert marks(ax) == {"a": {}, "b": {0: 0.2}}
    for before, after in zip(full.get_lines(), ax.get_lines(), strict=True):
        assert before.get_marker() == after.get_marker()
        assert before.get_color() == after.get_color()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    alone = plots.estimator_variances({"a": report(delta=0.1)}, legend=False)
    assert alone.get_legend() is None


def test_the_scale_reaches_from_a_power_of_ten_to_another():
    ax = plots.estimator_variances({"a": report(delta=0.02), "b": report(delta=0.03)})
    low, high = ax.get_xlim()
    assert low < 0.01
    assert high > 0.1


def test_runs_of_different_length_compare_by_path():
    reports = {"a": report(delta=0.1), "b": report(paths=1600, delta=0.1)}
    with pytest.raises(ValueError, match=r"one path, got .*Use per_path=True"):
        plots.estimator_variances(reports)
    ax = plots.estimator_variances(reports, per_path=True)
    assert marks(ax) == {"a": {0: 2.0}, "b": {0: 4.0}}
    assert ax.get_xlabel() == "standard deviation of one path's estimate"


def test_an_estimate_without_error_is_marked_at_the_edge():
    ax = plots.estimator_variances({"a": report(delta=1e-17), "b": report(delta=0.1)})
    assert marks(ax) == {"a": {}, "b": {0: 0.1}}
    (text,) = ax.texts
    assert "0" in text.get_text()
    assert text.get_color() == ax.get_lines()[0].get_color()


def test_an_order_of_names_does_not_matter():
    entries = {("sigma", "spot"): Estimate(1.0, 0.5)}
    mixed = dataclasses.replace(report(), entries=entries)
    ax = plots.estimator_variances({"a": mixed}, of=[("spot", "sigma")])
    assert marks(ax) == {"a": {0: 0.5}}


def test_bad_reports_are_refused():
    one = report(delta=0.1)
    with pytest.raises(ValueError, match=r"no report has 'd/d vol'; there are \['d/d spot'\]"):
        plots.estimator_variances({"a": one}, of="vol")
    other = dataclasses.replace(one, payoff="Put(100)")
    with pytest.raises(ValueError, match=r"one payoff, got .*Draw each on axes of its own"):
        plots.estimator_variances({"a": one, "b": other})
    with pytest.raises(TypeError, match=r"reports\['a'\] must be a Report, .* got Estimate"):
        plots.estimator_variances({"a": one["spot"]})
    with pytest.raises(ValueError, match=r"at least one Report, got None for \['a'\]"):
        plots.estimator_variances({"a": None})
    with pytest.raises(TypeError, match="reports must be a dict of Report by estimator"):
        plots.estimator_variances(one)
    with pytest.raises(TypeError, match="ax must be matplotlib Axes, got Figure"):
        plots.estimator_variances({"a": one}, ax=Figure())
