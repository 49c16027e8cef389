"""Errors against the number of steps or paths, and the slope they fall with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from sdesens.montecarlo.estimates import Estimate
from sdesens.plots._inputs import Array, estimates, vector
from sdesens.plots._style import GREY, drawing_on, series

_DASHES = (":", "--", "-.", "-")


class Slope(NamedTuple):
    """A straight line ``log error = log scale + value log n``.

    Attributes:
        value: the slope.
        stderr: its standard error; NaN where errors come without theirs.
        scale: the error at ``n = 1`` on the line.
    """

    value: float
    stderr: float
    scale: float


def fitted_slope(n: Any, errors: Any) -> Slope:
    r"""The slope of ``log errors`` on ``log n`` by least squares.

    Errors given as estimates are weighted by ``(value / stderr)²``, so that those lost in the noise
    do not bend the line. The standard error of the slope takes them as independent; of errors on
    one Brownian path, which rise and fall together, it is too wide.

    Args:
        n: ``(k,)`` positive and distinct numbers of steps or paths, at least two.
        errors: ``(k,)`` positive numbers, or an :class:`~sdesens.montecarlo.Estimate` each.

    Example:
        >>> from sdesens import plots
        >>> round(plots.fitted_slope([10, 100, 1000], [0.5, 0.05, 0.005]).value, 12)
        -1.0
    """
    at = _check_n(n)
    return _fit(at, *_check_errors("errors", errors, len(at)))


def convergence(
    n: Any,
    errors: Any,
    *,
    slopes: Sequence[float] = (),
    level: float = 0.95,
    fit: bool = True,
    xlabel: str = "number of steps $n$",
    ylabel: str = "error",
    ax: Axes | None = None,
) -> Axes:
    r"""Errors against steps or paths on two log scales, with reference slopes.

    Args:
        n: ``(k,)`` positive, increasing numbers of steps or paths.
        errors: ``(k,)`` positive numbers, or an :class:`~sdesens.montecarlo.Estimate` each, which
            gets an error bar; or a dict of such by name. Pass the absolute value of a signed error.
        slopes: reference lines ``n^slope`` in grey, each just below the series whose slope is
            nearest.
        level: of the error bars, by the normal law.
        fit: say the fitted slope of each series in the legend (see :func:`fitted_slope`).
        xlabel, ylabel: labels, where units belong.
        ax: axes to draw on; without it those of a new figure in the style of this package.

    Returns:
        The axes.

    Raises:
        ValueError, TypeError: if lengths differ, or a number is not positive.

    Example:
        >>> from sdesens import plots
        >>> ax = plots.convergence([8, 16, 32], {"Euler": [0.2, 0.14, 0.1]}, slopes=(-0.5,))
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['Euler, slope −0.50', '$n^{-1/2}$']
    """
    at = _check_n(n)
    named = errors if isinstance(errors, Mapping) else {"error": errors}
    if not named:
        raise ValueError("errors must hold at least one series, got none.")
    checked = {
        name: _check_errors(f"errors[{name!r}]" if named is errors else "errors", each, len(at))
        for name, each in named.items()
    }
    _, width = Estimate(0.0, 1.0).interval(level)  # in standard errors
    references = vector("slopes", slopes) if len(slopes) else []
    fits = {name: _fit(at, *pair) for name, pair in checked.items()}
    with drawing_on(ax) as axes:
        handles: list[Any] = []
        for k, (name, (value, stderr)) in enumerate(checked.items()):
            label = f"{name}, slope {_signed(fits[name])}" if fit else name
            bars = None if np.isnan(stderr).all() else width * stderr
            kind = series(k)
            handles.append(axes.errorbar(at, value, bars, label=label, elinewidth=0.8, **kind))
        axes.set_xscale("log")
        axes.set_yscale("log", nonpositive="clip")
        _keep_to_the_values(axes, [value for value, _ in checked.values()])
        for k, slope in enumerate(references):
            below = min(checked, key=lambda name: abs(fits[name].value - slope))
            scale = 0.6 * (checked[below][0] / at**slope).min()
            dash = _DASHES[k % len(_DASHES)]
            label = _power(float(slope))
            line = {"color": GREY, "lw": 0.8, "ls": dash, "zorder": 1.5}
            handles += axes.plot(at, scale * at**slope, label=label, **line)
        _tick_at(axes, at)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.legend(handles=handles)
    return axes


def _check_n(n: Any) -> Array:
    at = vector("n", n)
    if len(at) < 2 or (at <= 0).any() or (np.diff(at) <= 0).any():
        raise ValueError(f"n must be at least two positive, increasing numbers, got {at.tolist()}.")
    return at


def _check_errors(name: str, errors: Any, length: int) -> tuple[Array, Array]:
    """Values, and standard errors or NaN."""
    several = isinstance(errors, Sequence) and any(isinstance(e, Estimate) for e in errors)
    if several or isinstance(errors, Estimate):
        value, stderr = estimates(name, errors, length, "n")
    else:
        value = vector(name, errors, length, "n")
        stderr = np.full_like(value, np.nan)
    if (value <= 0).any():
        k = int(np.flatnonzero(value <= 0)[0])
        raise ValueError(
            f"{name} must be positive on a log scale, got {value[k]:g} at index {k}. Take abs() of "
            f"signed errors, and leave out those that are 0."
        )
    return value, stderr


def _fit(at: Array, value: Array, stderr: Array) -> Slope:
    x, y = np.log(at), np.log(value)
    weighted = bool((stderr > 0).all())  # False for NaN
    weight = (value / stderr) ** 2 if weighted else np.ones_like(y)
    centre = np.average(x, weights=weight)
    spread = (weight * (x - centre) ** 2).sum()
    slope = (weight * (x - centre) * y).sum() / spread
    scale = np.exp(np.average(y, weights=weight) - slope * centre)
    return Slope(float(slope), float(spread**-0.5) if weighted else float("nan"), float(scale))


def _signed(slope: Slope) -> str:
    """The slope, to the first digit of its error, though with two decimals or three."""
    known = slope.stderr > 0  # False for NaN
    decimals = min(3, max(2, math.ceil(-math.log10(slope.stderr)))) if known else 2
    text = f"{slope.value:.{decimals}f}".replace("-", "−")
    return f"{text} ± {slope.stderr:.{decimals}f}" if known else text


def _power(slope: float) -> str:
    exact = Fraction(slope).limit_denominator(12)
    text = str(exact) if abs(exact - slope) < 1e-9 else f"{slope:g}"
    return f"$n^{{{text}}}$"


def _keep_to_the_values(axes: Axes, values: Sequence[Array]) -> None:
    """An error bar that reaches to 0 must not stretch a log axis down to it."""
    low = min(value.min() for value in values)
    bottom, top = axes.get_ylim()
    if bottom < low / 10:
        axes.set_ylim(low / 10, top)


def _tick_at(axes: Axes, at: Array) -> None:
    """A few numbers of steps are ticks themselves, rather than powers of ten between them."""
    if len(at) <= 9 and at[-1] < 1e4:
        axes.xaxis.set_major_locator(FixedLocator(list(at)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
