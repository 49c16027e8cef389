"""One style for every figure, and the axes to draw on; pyplot is never touched."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from weakref import WeakSet

import matplotlib as mpl
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

SHEET = "sdesens.plots.paper"

# Okabe and Ito's colours, the order that of the sheet.
BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK = PALETTE = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000",
)  # fmt: skip
_LINES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "0.35"
_made_here: WeakSet[Any] = WeakSet()  # figures that are drawn on in our style once more


def style() -> AbstractContextManager[None]:
    """The style sheet of this package, for figures of your own; rcParams are put back on leaving.

    Functions of :mod:`sdesens.plots` draw in it when they make the figure. On an ``ax`` of yours
    they follow the rcParams that rule, so make the figure, draw and save in this context. With
    pyplot, ``plt.style.use("sdesens.plots.paper")`` does the same for good.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from sdesens import plots
        >>> with plots.style():
        ...     left, right = Figure(figsize=(7.0, 2.8)).subplots(1, 2)
        >>> left.spines["top"].get_visible()
        False
    """
    return matplotlib.style.context(SHEET)


def series(k: int) -> dict[str, Any]:
    """Colour, line and marker of the k-th of several series: distinct in each, so also in grey."""
    return {
        "color": PALETTE[k % len(PALETTE)],
        "linestyle": _LINES[k % len(_LINES)],
        "marker": _MARKERS[k % len(_MARKERS)],
    }


@contextmanager
def drawing_on(ax: Axes | None, height: float = 3.2) -> Iterator[Axes]:
    """``ax`` as it is, or the axes of a new figure of that height in the style of this package."""
    if ax is not None:
        with rules_of(check_axes(ax)):
            yield ax
        return
    with style():
        yield new_figure(height).add_subplot()


def new_figure(height: float) -> Figure:
    """A figure without pyplot, as wide as the sheet says; inches."""
    figure = Figure(figsize=(mpl.rcParams["figure.figsize"][0], height))
    _made_here.add(figure)
    return figure


@contextmanager
def rules_of(ax: Axes) -> Iterator[None]:
    """Our style on a figure that was made here; on others the rcParams that rule."""
    if ax.get_figure(root=True) not in _made_here:
        yield
        return
    with style():
        yield


def check_axes(ax: Any) -> Axes:
    """``ax`` if it is axes to draw on."""
    if not isinstance(ax, Axes):
        raise TypeError(
            f"ax must be matplotlib Axes, got {type(ax).__name__}. Use figure.add_subplot(), or "
            f"one entry of figure.subplots(...)."
        )
    return ax


def begin_on_time(ax: Axes, ts: Any, xlabel: str, ylabel: str) -> None:
    """Labels, and the axis of time from its first to its last."""
    ax.set_xlim(ts[0], ts[-1])
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)


def legend_over_data(ax: Axes) -> None:
    """A legend in rows along the top, and room for it: it hides nothing, whatever is drawn."""
    handles, labels = ax.get_legend_handles_labels()
    font = FontProperties(size=mpl.rcParams["legend.fontsize"])  # in points, or "medium"
    em = font.get_size_in_points() / 72  # inches
    dpi = ax.get_figure(root=True).dpi  # pyright: ignore[reportOptionalMemberAccess]
    width, height = ax.bbox.width / dpi, ax.bbox.height / dpi
    longest = max(len(re.sub(r"\\[a-z]+|[${}^_]", "", label)) for label in labels)
    columns = max(1, min(len(labels), int(width / ((0.42 * longest + 3.2) * em))))
    # Rows and frame; the height is that before the layout, which takes some of it for labels.
    room = min(0.5, (1.7 * math.ceil(len(labels) / columns) + 0.8) * em / height)
    scale = ax.yaxis.get_transform()
    low, high = scale.transform(ax.get_ylim())
    top = float(scale.inverted().transform(high + (high - low) * room / (1 - room)))
    ax.update_datalim([(ax.get_xlim()[0], top)], updatex=False)
    ax.autoscale_view(scalex=False)
    ax.legend(
        handles, labels, loc="upper left", ncols=columns,
        columnspacing=1.2, handlelength=1.8, borderaxespad=0.2,
    )  # fmt: skip
