"""The modes of one derivative on top of each other, and what is left between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sdesens.pathwise.compare import ModeComparison
from sdesens.pathwise.result import Sensitivities
from sdesens.plots._inputs import TIME, Entry, array, check_index, check_sensitivities, derivative
from sdesens.plots._style import (
    BLACK,
    begin_on_time,
    check_axes,
    legend_over_data,
    new_figure,
    rules_of,
    series,
    style,
)

Pair = tuple[Axes, Axes]
_HEIGHTS = (1.6, 1)  # of the panels


def modes(
    results: Mapping[str, Sensitivities] | ModeComparison,
    *,
    out: int = 0,
    wrt: str = "x0",
    entry: Entry = None,
    sample: int = 0,
    xlabel: str = TIME,
    ylabel: str | None = None,
    ax: Axes | Pair | None = None,
) -> Pair:
    r"""One derivative by every mode, above; each minus the first, signed, below.

    Args:
        results: at least two by name, on one Brownian path, or what :func:`~sdesens.compare_modes`
            returns. The first is the one that is subtracted.
        out, wrt, entry: which derivative, as in :func:`tangent_fan`.
        sample: of which sample.
        xlabel, ylabel: labels; by default ``time t`` and the derivative.
        ax: a pair of axes; or one, whose room is then shared: it becomes the upper panel and the
            lower one is added beneath. Without it a new figure is made.

    Returns:
        The upper axes and the lower ones, which share the axis of time.

    Raises:
        ValueError, TypeError: if there are fewer than two results, or they differ in times, shape
            or seed; if an argument is not as above.

    Example:
        >>> import torch, sdesens
        >>> from sdesens import plots
        >>> from sdesens.models import OrnsteinUhlenbeck
        >>> ou, x0 = OrnsteinUhlenbeck(1.0, 0.0, 1.0), torch.zeros(1, 1, dtype=torch.float64)
        >>> found = sdesens.compare_modes(ou, x0, [0.0, 0.5, 1.0], dt=0.1, seed=0)
        >>> above, below = plots.modes(found)
        >>> [line.get_label() for line in above.get_lines()]
        ['vjp', 'jvp', 'tangent']
    """
    checked = _check_results(results)
    first, some = next(iter(checked.items()))
    sample = check_index("sample", sample, some.x.shape[1], "samples")
    _, label = derivative(some, out, wrt, entry)
    curves = {
        name: derivative(result, out, wrt, entry)[0][:, sample] for name, result in checked.items()
    }
    ts = array(some.ts)
    with _panels(ax) as (above, below):
        gap = max(1, len(ts) // 10)  # markers take turns, as lines that agree hide each other
        for k, (name, curve) in enumerate(curves.items()):
            every = (k * gap // len(curves), gap)
            kind: dict[str, Any] = series(k) | {"markevery": every}
            width = 0.9 + 1.1 * (len(curves) - 1 - k)
            above.plot(ts, curve, label=name, lw=width, **kind)
            if k:
                difference = curve - curves[first]
                largest = f"{name}, at most {_power_of_ten(np.abs(difference).max())}"
                below.plot(ts, difference, label=largest, lw=0.9, **kind)
        below.axhline(0.0, color=BLACK, lw=0.5, ls="-", zorder=0.5)
        begin_on_time(above, ts, "", label if ylabel is None else ylabel)
        begin_on_time(below, ts, xlabel, f"minus {first}")
        above.tick_params(labelbottom=False)
        legend_over_data(above)
        legend_over_data(below)
    return above, below


def _power_of_ten(size: float) -> str:
    digits, exponent = f"{size:.1e}".split("e")
    return rf"${digits} \times 10^{{{int(exponent)}}}$" if size else "0"


def _check_results(results: Any) -> dict[str, Sensitivities]:
    found = results.results if isinstance(results, ModeComparison) else results
    if not isinstance(found, Mapping):
        raise TypeError(
            f"results must be a dict of Sensitivities by name, or a ModeComparison, got "
            f"{type(found).__name__}."
        )
    if len(found) < 2:
        raise ValueError(f"results must hold at least two to compare, got {list(found)}.")
    checked = {name: check_sensitivities(f"results[{name!r}]", r) for name, r in found.items()}
    first, some = next(iter(checked.items()))
    for name, result in checked.items():
        if result.x.shape != some.x.shape or bool((result.ts.cpu() != some.ts.cpu()).any()):
            raise ValueError(
                f"results must be on the same times, samples and components: x is "
                f"{tuple(some.x.shape)} in {first!r} and {tuple(result.x.shape)} in {name!r}"
                f"{'' if result.x.shape != some.x.shape else ', at other times'}."
            )
        if None not in (result.seed, some.seed) and result.seed != some.seed:
            raise ValueError(
                f"results must be on one Brownian path: the seed is {some.seed} in {first!r} and "
                f"{result.seed} in {name!r}. Give all one seed= or one bm=."
            )
    return checked


@contextmanager
def _panels(ax: Any) -> Iterator[Pair]:
    """An upper panel and a lower one that shares its axis of time."""
    if ax is None:
        with style():
            figure = new_figure(4.2)
            above, below = figure.subplots(2, 1, sharex=True, height_ratios=_HEIGHTS)
            yield above, below
        return
    several = isinstance(ax, (tuple, list, np.ndarray))
    if several and len(ax) != 2:
        raise ValueError(f"ax must be one or two axes, got {len(ax)}.")
    above, below = (check_axes(ax[0]), check_axes(ax[1])) if several else _split(check_axes(ax))
    if not above.get_shared_x_axes().joined(above, below):
        below.sharex(above)
    with rules_of(above):
        yield above, below


def _split(ax: Axes) -> Pair:
    """``ax``, made lower, and new axes beneath."""
    room, figure = ax.get_subplotspec(), ax.get_figure()
    if room is None or figure is None:
        raise ValueError(
            "ax must be of a grid, as from figure.subplots(), to be split in two. Give a pair of "
            "axes instead."
        )
    upper, lower = room.subgridspec(2, 1, height_ratios=_HEIGHTS, hspace=0.08)
    ax.set_subplotspec(upper)
    return ax, figure.add_subplot(lower)
