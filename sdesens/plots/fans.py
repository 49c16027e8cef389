"""Fans: quantiles of a path, or of its derivative, over the samples at every time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from sdesens._checks import check_choice, check_count
from sdesens.pathwise.result import Sensitivities
from sdesens.plots._inputs import TIME, Array, Entry, array, check_index, check_sensitivities
from sdesens.plots._inputs import derivative as derivative_of
from sdesens.plots._style import (
    BLACK,
    BLUE,
    GREY,
    begin_on_time,
    drawing_on,
    legend_over_data,
)

SCALES = ("auto", "linear", "log")
_LOG_FROM = 10**1.5  # largest over smallest number drawn, from which "auto" takes a log scale


def path_fan(
    sens: Sensitivities,
    *,
    component: int = 0,
    bands: Sequence[float] = (0.9, 0.5),
    paths: int = 5,
    scale: str = "linear",
    xlabel: str = TIME,
    ylabel: str | None = None,
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    r"""Quantiles of ``X_t`` over the samples, its median and mean, and some of the paths.

    Args:
        sens: a result whose ``x`` has shape ``(T, B, d)``, ``T >= 2``; of one sample (``B = 1``)
            the path alone is drawn.
        component: which of the ``d`` components.
        bands: probabilities of the central bands; 0.9 reaches from the 5 % to the 95 % quantile.
        paths: number of sample paths drawn, the first ones.
        scale: of the vertical axis, ``"linear"``, ``"log"``, or ``"auto"``: log if all samples are
            positive and what is drawn spans more than 1.5 decades.
        xlabel, ylabel: labels, where units belong; by default ``time t`` and ``X_t``.
        legend: whether there is one; of several panels one may do.
        ax: axes to draw on; without it those of a new figure in the style of this package.

    Returns:
        The axes. The figure is ``ax.figure``.

    Raises:
        ValueError, TypeError: if an argument is not as above; a log scale with numbers that are not
            positive.

    Example:
        >>> import torch, sdesens
        >>> from sdesens import plots
        >>> from sdesens.models import OrnsteinUhlenbeck
        >>> x0, ts = torch.zeros(50, 1, dtype=torch.float64), [0.0, 0.5, 1.0]
        >>> sens = sdesens.sensitivities(OrnsteinUhlenbeck(1.0, 0.0, 1.0), x0, ts, dt=0.5, seed=0)
        >>> ax = plots.path_fan(sens, ylabel="rate $X_t$ (1/year)")
        >>> ax.get_ylabel()
        'rate $X_t$ (1/year)'
    """
    sens = check_sensitivities("sens", sens)
    d = sens.x.shape[2]
    at = check_index("component", component, d, "components")
    label = "$X_t$" if d == 1 else f"$X_t^{{({at})}}$"
    values = array(sens.x[:, :, at])
    look = _Look(bands, paths, scale, xlabel, label if ylabel is None else ylabel, legend)
    return _fan(array(sens.ts), values, look, ax)


def tangent_fan(
    sens: Sensitivities,
    *,
    out: int = 0,
    wrt: str = "x0",
    entry: Entry = None,
    bands: Sequence[float] = (0.9, 0.5),
    paths: int = 5,
    scale: str = "auto",
    xlabel: str = TIME,
    ylabel: str | None = None,
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    r"""The same of a derivative, ``dX_t/dx0`` or ``dX_t/dθ``. Its mean is that of ``E[X_t]``.

    Args:
        sens: a result with the derivative: ``dx0`` has shape ``(T, B, d, d)``, that in a parameter
            ``(T, B, d, *shape)``.
        out: which of the ``d`` components is differentiated.
        wrt: ``"x0"`` or the name of a parameter.
        entry: which entry of the input, an int or a tuple of them; not needed of a single number.
        scale: ``"log"``, ``"linear"``, or ``"auto"``: log if all samples are positive and what is
            drawn spans more than 1.5 decades.
        bands, paths, xlabel, ylabel, legend, ax: as in :func:`path_fan`.

    Returns:
        The axes.

    Raises:
        ValueError, TypeError: as :func:`path_fan`; if the derivative was not computed.

    Example:
        >>> import torch, sdesens
        >>> from sdesens import plots
        >>> from sdesens.models import OrnsteinUhlenbeck
        >>> x0, ts = torch.zeros(50, 1, dtype=torch.float64), [0.0, 1.0, 2.0, 3.0, 4.0]
        >>> sens = sdesens.sensitivities(OrnsteinUhlenbeck(1.0, 0.0, 1.0), x0, ts, dt=0.1, seed=0)
        >>> ax = plots.tangent_fan(sens)
        >>> ax.get_ylabel(), ax.get_yscale()
        ('$dX_t / dx_0$', 'log')
    """
    sens = check_sensitivities("sens", sens)
    values, label = derivative_of(sens, out, wrt, entry)
    look = _Look(bands, paths, scale, xlabel, label if ylabel is None else ylabel, legend)
    return _fan(array(sens.ts), values, look, ax)


@dataclass(frozen=True)
class _Look:
    bands: Sequence[float]
    paths: int
    scale: str
    xlabel: str
    ylabel: str
    legend: bool


def _fan(ts: Array, values: Array, look: _Look, ax: Axes | None) -> Axes:
    """Bands, median, mean and samples of ``values (T, B)``; of one sample that alone."""
    several = values.shape[1] > 1
    widths = sorted((_check_band(p) for p in look.bands), reverse=True)
    count = check_count("paths", look.paths, 0)
    # NumPy's, as torch.quantile refuses more than 16 million numbers.
    edges = [np.quantile(values, [0.5 - p / 2, 0.5 + p / 2], axis=1) for p in widths if several]
    shown = values[:, :count] if several else values
    log = _is_log(check_choice("scale", look.scale, SCALES), values, [*edges, shown])
    with drawing_on(ax) as axes:
        for k, (p, (low, high)) in enumerate(zip(widths, edges, strict=several)):
            label = f"{50 - 50 * p:g}–{50 + 50 * p:g} %"
            tint = _tint(0.2 + 0.25 * k / max(1, len(widths) - 1))
            axes.fill_between(ts, low, high, color=tint, lw=0, label=label)
        if several:
            for k in range(shown.shape[1]):
                label = "_" if k else f"{shown.shape[1]} of {values.shape[1]} paths"
                axes.plot(ts, shown[:, k], color=GREY, lw=0.5, ls="-", label=label)
            axes.plot(ts, np.median(values, axis=1), color=BLUE, ls="-", label="median")
            axes.plot(ts, values.mean(axis=1), color=BLACK, ls="--", label="mean")
        else:
            axes.plot(ts, values[:, 0], color=BLUE, ls="-")
        if log:
            axes.set_yscale("log")
        begin_on_time(axes, ts, look.xlabel, look.ylabel)
        if look.legend and several:
            legend_over_data(axes)
    return axes


def _check_band(probability: float) -> float:
    if not 0 < probability < 1:
        raise ValueError(
            f"bands must hold probabilities between 0 and 1, got {probability}. 0.9 is the band "
            f"from the 5 % to the 95 % quantile."
        )
    return float(probability)


def _is_log(scale: str, values: Array, drawn: Sequence[Array]) -> bool:
    positive = bool(values.min() > 0)
    if scale == "log" and not positive:
        raise ValueError(
            f"scale 'log' needs positive numbers, and the smallest here is {values.min():g}. Use "
            f"scale='linear' or 'auto'."
        )
    if scale != "auto" or not positive:
        return scale == "log"
    parts = [part for part in drawn if part.size]
    return max(p.max() for p in parts) > _LOG_FROM * min(p.min() for p in parts) if parts else False


def _tint(depth: float) -> tuple[float, ...]:
    """Blue on white, without transparency: a legend then shows what nested bands look like."""
    return tuple(1 - depth * (1 - c) for c in to_rgb(BLUE))
