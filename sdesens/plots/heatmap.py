"""A map of what a path depends on, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import CenteredNorm, LogNorm, Normalize, SymLogNorm
from torch import Tensor, nn

from sdesens._checks import check_choice
from sdesens.pathwise.result import Sensitivities
from sdesens.plots._inputs import TIME, Array, array, check_index, check_sensitivities, symbol
from sdesens.plots._style import begin_on_time, drawing_on

MEASURES = ("rms", "mean")
SCALES = ("auto", "linear", "log")
_MOST_LABELS = 24
_LOG_FROM = 10  # largest row over smallest one, from which "auto" takes a log scale
_DECADES = 1e3  # largest over smallest number that a log scale of colours tells apart
_HATCHED_BELOW = 0.45  # of the map of signed means, whose middle is 0.5


def sensitivity_heatmap(
    sens: Sensitivities,
    parameters: nn.Module | Mapping[str, Any] | None = None,
    *,
    out: int = 0,
    wrt: Sequence[str] | None = None,
    measure: str = "rms",
    scale: str = "auto",
    xlabel: str = TIME,
    unit: str = "",
    ax: Axes | None = None,
) -> Axes:
    r"""Derivatives of ``X_t`` in all inputs by time, each times its input, so that rows compare.

    A row holds ``p dX_t/dp``, in units of X: a hundredth of it is the effect of one percent of p.
    ``x0`` is multiplied by each sample's own start.

    Args:
        sens: a result with derivatives ``(T, B, d, *shape)``; every entry of an input is a row.
        parameters: the model, or values by name in the shapes of the inputs, or other sizes of a
            move, such as ``{"rate": 0.01}``. Without it derivatives in parameters are drawn as they
            are, and rows of different units do not compare.
        out: which of the ``d`` components is differentiated.
        wrt: names of the inputs, from above; all that were computed by default.
        measure: over the samples, ``"rms"`` (the root of the mean square) or ``"mean"``, in which
            what is negative is hatched, so that the sign can be read in grey.
        scale: of the colours, ``"linear"``, ``"log"`` over the three decades up to the largest, or
            ``"auto"``: linear for means, else log if the largest entries of two rows are more
            than a decade apart.
        xlabel: label of the axis of time.
        unit: of X, shown at the colour bar.
        ax: axes to draw on; without it those of a new figure in the style of this package.

    Returns:
        The axes; the colour bar is the ``colorbar`` of its first collection, the mesh.

    Raises:
        ValueError, TypeError: if an argument is not as above; if an input is 0, times which every
            derivative is 0.

    Example:
        >>> import torch, sdesens
        >>> from sdesens import plots
        >>> from sdesens.models import CIR
        >>> cir, x0 = CIR(1.5, 0.04, 0.2), torch.full((20, 1), 0.05, dtype=torch.float64)
        >>> sens = sdesens.sensitivities(cir, x0, [0.0, 0.5, 1.0], wrt=("x0", "kappa", "xi"),
        ...                              method="euler", dt=0.1, seed=0)
        >>> ax = plots.sensitivity_heatmap(sens, cir)
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['$x_0$', '$\\kappa$', '$\\xi$']
    """
    sens = check_sensitivities("sens", sens)
    check_choice("measure", measure, MEASURES)
    check_choice("scale", scale, SCALES)
    out = check_index("out", out, sens.x.shape[2], "components")
    values = _values(parameters)
    rows: dict[str, list[Array]] = {}
    for name in _check_wrt(wrt, sens):
        entries = sens.derivatives()[name][:, :, out]
        moved = entries.reshape(*entries.shape[:2], -1) * _size(name, values, sens)
        summed = moved.mean(1) if measure == "mean" else moved.square().mean(1).sqrt()
        rows[name] = list(array(summed).T)
    drawn = np.array([row for entries in rows.values() for row in entries])
    ts = array(sens.ts)
    with drawing_on(ax, height=max(3.2, 0.7 + 0.09 * len(drawn))) as axes:
        norm = _norm(drawn, measure, scale)
        mesh = _draw(axes, ts, drawn, norm)
        hatched = measure == "mean" and _hatch_negative(axes, ts, drawn, norm)
        begin_on_time(axes, ts, xlabel, "")
        _label_rows(axes, rows, sens)
        extend = "min" if isinstance(norm, LogNorm) else "neither"
        slender = max(15.0, 8 * axes.bbox.height / axes.figure.dpi)
        bar = axes.figure.colorbar(mesh, ax=axes, extend=extend, aspect=slender)
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        label = _of(sens, out, measure, values is not None) + (f" ({unit})" if unit else "")
        bar.set_label(label + (", hatched: negative" if hatched else ""))
    return axes


def _norm(drawn: Array, measure: str, scale: str) -> Normalize:
    """From numbers to colours: up to the largest size, signed means with 0 in the middle."""
    sizes = np.abs(drawn).max(axis=1)
    largest = float(sizes.max()) or 1.0
    smallest = largest / _DECADES
    if measure == "mean":  # on a log scale a row that is 0 on average would be all noise
        symmetric = SymLogNorm(smallest, vmin=-largest, vmax=largest)
        return symmetric if scale == "log" else CenteredNorm(0, largest)
    log = scale == "log" or (scale == "auto" and sizes.min() * _LOG_FROM < largest)
    return LogNorm(smallest, largest, clip=True) if log else Normalize(0, largest)


def _draw(axes: Axes, ts: Array, drawn: Array, norm: Normalize) -> QuadMesh:
    """Cells around the times; the sequential map for sizes, one with a middle for signed means."""
    signed = not isinstance(norm, LogNorm) and norm.vmin != 0
    mesh = axes.pcolormesh(
        ts,
        np.arange(len(drawn)),
        drawn,
        shading="nearest",
        cmap="coolwarm" if signed else "cividis",
        norm=norm,
        rasterized=True,
    )
    axes.set_ylim(len(drawn) - 0.5, -0.5)
    axes.spines[:].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return mesh


def _hatch_negative(axes: Axes, ts: Array, drawn: Array, norm: Normalize) -> bool:
    """Hatch cells that are negative and not so near to 0 that they are white; whether any is."""
    edges = np.concatenate([ts[:1], (ts[1:] + ts[:-1]) / 2, ts[-1:]])
    hatched = np.asarray(norm(drawn)) < _HATCHED_BELOW
    for row, cells in enumerate(hatched):
        turns = np.flatnonzero(np.diff(np.concatenate([[False], cells, [False]]).astype(int)))
        starts, stops = edges[turns[::2]], edges[turns[1::2]]
        look: dict[str, Any] = {"color": "none", "ec": "0.1", "hatch": "////", "lw": 0}
        axes.barh([row] * len(starts), stops - starts, 1.0, left=starts, **look)
    return bool(hatched.any())


def _label_rows(axes: Axes, rows: Mapping[str, list[Array]], sens: Sensitivities) -> None:
    """A label a row, or, of many rows, one an input."""
    shapes = {name: tuple(sens.derivatives()[name].shape[3:]) for name in rows}
    places, labels, first = [], [], 0
    each = sum(len(entries) for entries in rows.values()) <= _MOST_LABELS
    for name, entries in rows.items():
        indices = list(np.ndindex(*shapes[name])) if each else [()]
        for k, at in enumerate(indices):
            places.append(first + (k if each else (len(entries) - 1) / 2))
            labels.append(f"${_symbol(name, at, sens)}$")
        first += len(entries)
        if not each and first < sum(len(e) for e in rows.values()):
            axes.axhline(first - 0.5, color="white", lw=1.0, ls="-")
    axes.set_yticks(places, labels)


def _symbol(name: str, at: tuple[int, ...], sens: Sensitivities) -> str:
    return "x_0" if name == "x0" and not at else symbol(name, at, sens.x.shape[2])


def _of(sens: Sensitivities, out: int, measure: str, scaled: bool) -> str:
    state = "X_t" if sens.x.shape[2] == 1 else f"X_t^{{({out})}}"
    what = rf"$p\, d{state} / dp$" if scaled else f"$d{state} / dp$, not scaled"
    return f"{measure} of {what}"


def _check_wrt(wrt: Any, sens: Sensitivities) -> list[str]:
    known = sens.derivatives()
    names = list(known if wrt is None else [wrt] if isinstance(wrt, str) else wrt)
    if not names:
        raise ValueError("wrt must name at least one input, got none.")
    return [check_choice("an input of wrt", name, known) for name in names]


def _values(parameters: Any) -> dict[str, Any] | None:
    if parameters is None:
        return None
    if isinstance(parameters, nn.Module):
        return dict(parameters.named_parameters())
    if isinstance(parameters, Mapping):
        return dict(parameters)
    raise TypeError(
        f"parameters must be the model or a dict of values by name, got "
        f"{type(parameters).__name__}. Of a model that is no torch module use a dict."
    )


def _size(name: str, values: dict[str, Any] | None, sens: Sensitivities) -> Tensor | float:
    """What a derivative in the input is multiplied by, ``(entries,)`` or ``(B, entries)``."""
    if values is None:
        return 1.0
    if name in values:
        size = torch.as_tensor(values[name]).detach().to(sens.x)
        shape = tuple(sens.derivatives()[name].shape[3:])
        if size.dim() and tuple(size.shape) != shape:
            raise ValueError(
                f"parameters[{name!r}] must be a number or have shape {shape}, got "
                f"{tuple(size.shape)}."
            )
        size = size.expand(shape).reshape(-1)
    elif name == "x0":
        size = sens.x[0].detach()
    else:
        check_choice("an input of parameters", name, values)
        raise AssertionError
    zero = (size == 0) if size.dim() == 1 else (size == 0).all(0)
    if bool(zero.any()):
        raise ValueError(
            f"{name!r} is 0, and so is every derivative times it: its row would say nothing. Give "
            f"a size of its own, parameters=dict(model.named_parameters()) | "
            f"{{{name!r}: 0.01}}, or leave it out of wrt."
        )
    return size
