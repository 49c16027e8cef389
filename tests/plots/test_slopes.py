import math

import numpy as np
import pytest
import torch

from sdesens.montecarlo import Estimate
from tests.plots.drawn import plots

STEPS = [4, 8, 16, 32]
HALF = [0.3 * n**-0.5 for n in STEPS]
ONE = [0.2 / n for n in STEPS]


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def bars(container):
    """Lower and upper end of each error bar."""
    return np.array([segment[:, 1] for segment in container[2][0].get_segments()])


def test_errors_are_drawn_on_two_log_scales_with_their_slopes(ax):
    assert plots.convergence(STEPS, {"Euler": HALF, "Milstein": ONE}, ax=ax) is ax
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    euler, milstein = (container[0] for container in ax.containers)
    np.testing.assert_array_equal(euler.get_data(), [STEPS, HALF])
    np.testing.assert_array_equal(milstein.get_data(), [STEPS, ONE])
    assert legend(ax) == ["Euler, slope −0.50", "Milstein, slope −1.00"]
    assert euler.get_marker() != milstein.get_marker()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("number of steps $n$", "error")


def test_estimates_have_error_bars(ax):
    plots.convergence(STEPS, [Estimate(e, e / 10) for e in HALF], ax=ax)
    (container,) = ax.containers
    ends = np.array(HALF)[:, None] * (1 + 0.1959963984540054 * np.array([-1.0, 1.0]))
    np.testing.assert_allclose(bars(container), ends, rtol=1e-12)
    assert legend(ax) == ["error, slope −0.50 ± 0.06"]  # 0.1 over the spread of log n


def test_a_slope_that_is_known_well_has_more_digits(ax):
    plots.convergence(STEPS, [Estimate(e, e / 1000) for e in HALF], ax=ax)
    assert legend(ax) == ["error, slope −0.500 ± 0.001"]


def test_numbers_without_errors_have_no_bars(ax):
    plots.convergence(STEPS, torch.tensor(HALF), ax=ax)
    assert not ax.containers[0].has_yerr


def test_a_reference_lies_below_the_series_of_the_nearest_slope(ax):
    plots.convergence(STEPS, {"Euler": HALF, "Milstein": ONE}, slopes=(-0.5, -1.0, -0.95), ax=ax)
    half, one, odd = (line for line in ax.get_lines() if line.get_label().startswith("$n"))
    np.testing.assert_allclose(half.get_ydata(), 0.6 * np.array(HALF), rtol=1e-12)
    np.testing.assert_allclose(one.get_ydata(), 0.6 * np.array(ONE), rtol=1e-12)
    assert (odd.get_ydata() <= 0.6 * np.array(ONE) * (1 + 1e-12)).all()
    assert legend(ax)[2:] == ["$n^{-1/2}$", "$n^{-1}$", "$n^{-0.95}$"]
    assert half.get_linestyle() != one.get_linestyle()


def test_numbers_of_steps_are_the_ticks_as_long_as_they_are_few(ax):
    plots.convergence(STEPS, HALF, ax=ax)
    ax.figure.canvas.draw()
    assert [text.get_text() for text in ax.get_xticklabels()] == ["4", "8", "16", "32"]


def test_a_bar_that_reaches_below_0_does_not_stretch_the_axis(ax):
    errors = [Estimate(0.1, 0.001), Estimate(0.05, 0.001), Estimate(0.01, 0.05)]
    plots.convergence([1, 2, 4], errors, ax=ax)
    low, high = ax.get_ylim()
    assert 0.001 <= low < 0.01
    assert high > 0.1


def test_the_legend_may_leave_out_the_slopes(ax):
    plots.convergence(STEPS, {"Euler": HALF}, fit=False, ax=ax)
    assert legend(ax) == ["Euler"]


def test_the_slope_is_that_of_least_squares():
    slope = plots.fitted_slope(STEPS, [0.5, 0.2, 0.11, 0.06])
    expected, constant = np.polyfit(np.log(STEPS), np.log([0.5, 0.2, 0.11, 0.06]), 1)
    assert slope.value == pytest.approx(expected, abs=1e-12)
    assert slope.scale == pytest.approx(math.exp(constant), rel=1e-12)
    assert math.isnan(slope.stderr)


def test_what_is_lost_in_noise_does_not_bend_the_slope():
    errors = [Estimate(e, e / 100) for e in HALF]
    errors[-1] = Estimate(10 * HALF[-1], 20 * HALF[-1])
    weighted = plots.fitted_slope(STEPS, errors)
    assert weighted.value == pytest.approx(-0.5, abs=0.01)
    plain = plots.fitted_slope(STEPS, [e.value for e in errors])
    assert plain.value > 0


def test_the_error_of_the_slope_is_that_of_its_estimates():
    """From 400 noisy lines: the deviations in standard errors have variance 1, ± 4 sigma."""
    generator = np.random.default_rng(0)
    deviations = []
    for _ in range(400):
        noisy = [Estimate(e * (1 + 0.02 * generator.standard_normal()), 0.02 * e) for e in HALF]
        slope = plots.fitted_slope(STEPS, noisy)
        deviations.append((slope.value + 0.5) / slope.stderr)
    assert abs(np.square(deviations).mean() - 1) < 4 * (2 / 400) ** 0.5


@pytest.mark.parametrize(
    ("n", "errors", "message"),
    [
        (STEPS, [0.1, 0.0, 0.1, 0.1], r"errors must be positive .* got 0 at index 1. Take abs\(\)"),
        (STEPS, {"a": [-0.1] * 4}, r"errors\['a'\] must be positive on a log scale, got -0.1"),
        (STEPS, [0.1], "errors must have as many entries as n, 4, got 1"),
        (STEPS, {}, "errors must hold at least one series"),
        (STEPS, 0.1, "errors must have shape"),
        (STEPS, [Estimate(0.1, 0.1), 0.1, 0.1, 0.1], "errors must hold an Estimate each, got floa"),
        ([4], [0.1], "n must be at least two positive, increasing numbers, got"),
        ([8, 4], [0.1, 0.2], r"increasing numbers, got \[8.0, 4.0\]"),
        ([0, 4], [0.1, 0.2], "n must be at least two positive"),
    ],
)
def test_bad_numbers_are_refused(n, errors, message):
    with pytest.raises((ValueError, TypeError), match=message):
        plots.convergence(n, errors)


def test_a_bad_level_is_refused():
    with pytest.raises(ValueError, match="level must be between 0 and 1, got 1"):
        plots.convergence(STEPS, HALF, level=1.0)
