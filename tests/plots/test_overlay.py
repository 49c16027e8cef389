import dataclasses

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import sdesens
from sdesens.models import OrnsteinUhlenbeck
from tests.plots.drawn import plots


@pytest.fixture
def results(sens):
    """Three results a known distance apart."""
    moved = {"vjp": 0.0, "jvp": 1e-3, "tangent": -2e-3}
    return {
        name: dataclasses.replace(sens, mode=name, _dx0=sens.dx0 + by) for name, by in moved.items()
    }


def test_the_modes_are_above_and_their_differences_from_the_first_below(results, sens):
    above, below = plots.modes(results, out=1, entry=0, sample=4)
    shown = {line.get_label(): line.get_ydata() for line in above.get_lines()}
    assert list(shown) == ["vjp", "jvp", "tangent"]
    for name, drawn in shown.items():
        np.testing.assert_array_equal(drawn, results[name].dx0[:, 4, 1, 0])
    jvp, tangent, zero = below.get_lines()
    np.testing.assert_allclose(jvp.get_ydata(), 1e-3, atol=1e-12)
    np.testing.assert_allclose(tangent.get_ydata(), -2e-3, atol=1e-12)
    assert set(zero.get_ydata()) == {0.0}
    assert jvp.get_label() == r"jvp, at most $1.0 \times 10^{-3}$"
    assert above.get_ylabel() == "$dX_t^{(1)} / dx_0^{(0)}$"
    assert below.get_ylabel() == "minus vjp"
    assert below.get_xlabel() == "time $t$"


def test_every_mode_has_a_colour_a_line_and_a_marker_of_its_own(results):
    above, _ = plots.modes(results, entry=0)
    for look in ("get_color", "get_linestyle", "get_marker"):
        assert len({getattr(line, look)() for line in above.get_lines()}) == 3


def test_the_panels_share_time(results):
    above, below = plots.modes(results, entry=0)
    assert above.get_shared_x_axes().joined(above, below)
    assert above.get_xlim() == below.get_xlim() == (0.0, 4.0)


def test_one_axes_is_split_into_two_in_its_own_room(results):
    figure = Figure()
    left, right = figure.subplots(1, 2)
    before = right.get_position()
    above, below = plots.modes(results, entry=0, ax=right)
    assert above is right
    assert figure.axes == [left, right, below]
    upper, lower = above.get_position(), below.get_position()
    assert lower.y1 < upper.y0
    assert (upper.x0, upper.x1) == (lower.x0, lower.x1) == (before.x0, before.x1)
    assert upper.y1 == pytest.approx(before.y1)
    assert lower.y0 == pytest.approx(before.y0)


def test_two_axes_are_used_as_they_are(results):
    pair = Figure().subplots(2, 1)
    assert plots.modes(results, entry=0, ax=pair) == tuple(pair)
    assert plots.modes(results, wrt="kappa", ax=tuple(pair)) == tuple(pair)


def test_the_modes_of_a_real_model_come_from_a_comparison():
    x0 = torch.zeros(2, 1, dtype=torch.float64)
    ou = OrnsteinUhlenbeck(1.0, 0.0, 1.0)
    found = sdesens.compare_modes(ou, x0, [0.0, 0.5, 1.0], dt=0.25, method="euler", seed=0)
    above, below = plots.modes(found)
    for line in above.get_lines():
        np.testing.assert_allclose(line.get_ydata(), [1.0, 0.75**2, 0.75**4], atol=1e-14)
    assert max(np.abs(line.get_ydata()).max() for line in below.get_lines()) < 1e-14


def test_results_that_cannot_be_compared_are_refused(results, make):
    first = results["vjp"]
    with pytest.raises(ValueError, match=r"at least two to compare, got \['vjp'\]"):
        plots.modes({"vjp": first}, entry=0)
    with pytest.raises(TypeError, match="results must be a dict of Sensitivities by name"):
        plots.modes(first)
    with pytest.raises(TypeError, match=r"results\['b'\] must be Sensitivities, got int"):
        plots.modes({"a": first, "b": 3}, entry=0)
    with pytest.raises(ValueError, match=r"x is \(7, 200, 2\) in 'a' and \(7, 3, 2\) in 'b'"):
        plots.modes({"a": first, "b": make(samples=3)}, entry=0)
    later = dataclasses.replace(first, ts=first.ts + 1)
    with pytest.raises(ValueError, match="at other times"):
        plots.modes({"a": first, "b": later}, entry=0)
    with pytest.raises(ValueError, match="the seed is 0 in 'a' and 5 in 'b'"):
        plots.modes({"a": first, "b": make(seed=5)}, entry=0)


def test_bad_axes_and_samples_are_refused(results):
    with pytest.raises(ValueError, match=r"sample must be in \[0, 200\)"):
        plots.modes(results, entry=0, sample=200)
    with pytest.raises(ValueError, match="ax must be one or two axes, got 3"):
        plots.modes(results, entry=0, ax=Figure().subplots(1, 3))
    with pytest.raises(ValueError, match=r"ax must be of a grid.*Give a pair"):
        plots.modes(results, entry=0, ax=Figure().add_axes((0.1, 0.1, 0.5, 0.5)))
