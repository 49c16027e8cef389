"""Greeks with their errors: against a variable, and estimator beside estimator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from sdesens.montecarlo.estimates import Estimate
from sdesens.plots._inputs import Array, estimates, vector
from sdesens.plots._style import BLACK, drawing_on, series
from sdesens.pricing.report import Name, Report, in_words, name_of

Key = str | tuple[str, str]
_ROUNDING = 1e-12  # of a value: a standard error below it is 0 but for rounding


def greek_profile(
    x: Any,
    greek: Estimate | Sequence[Estimate],
    *,
    closed_form: Any = None,
    level: float = 0.95,
    label: str = "estimate",
    xlabel: str = "spot $S_0$",
    ylabel: str = "greek",
    ax: Axes | None = None,
) -> Axes:
    r"""A greek against spot, time or another variable, with its confidence band.

    Called again on the same ``ax`` it adds a greek to compare, in the next colour.

    Args:
        x: ``(n,)`` increasing values of the variable.
        greek: an :class:`~sdesens.montecarlo.Estimate` each, or one of ``(n,)`` tensors.
        closed_form: the greek where it is known: ``(n,)`` values at ``x``; or a pair of ``(k,)``
            values of the variable and the greek at these; or a function of one value, then drawn
            on a finer grid.
        level: of the band, pointwise, by the normal law.
        label: of the greek, in the legend.
        xlabel, ylabel: labels, where units belong.
        ax: axes to draw on; without it those of a new figure in the style of this package.

    Returns:
        The axes.

    Raises:
        ValueError, TypeError: if lengths differ, a number is not finite, or ``x`` does not
            increase.

    Example:
        >>> from sdesens import plots
        >>> from sdesens.montecarlo import Estimate
        >>> deltas = [Estimate(0.42, 0.01), Estimate(0.64, 0.01), Estimate(0.80, 0.02)]
        >>> ax = plots.greek_profile([90.0, 100.0, 110.0], deltas, ylabel="delta",
        ...                          closed_form=[0.43, 0.637, 0.796])
        >>> ax.get_xlabel(), ax.get_ylabel()
        ('spot $S_0$', 'delta')
    """
    at = vector("x", x)
    if (np.diff(at) <= 0).any():
        k = int(np.flatnonzero(np.diff(at) <= 0)[0])
        raise ValueError(f"x must increase, got x[{k}]={at[k]:g} before x[{k + 1}]={at[k + 1]:g}.")
    value, stderr = estimates("greek", greek, len(at), "x")
    low, high = Estimate(value, stderr).interval(level)
    known = None if closed_form is None else _curve(closed_form, at)
    with drawing_on(ax) as axes:
        number = sum(1 for line in axes.get_lines() if line.get_gid() == "greek")
        kind = series(number)
        band = f"{100 * level:g} % confidence"
        axes.fill_between(
            at, low, high,
            color=kind["color"], alpha=0.25, lw=0, label="_" if number else band,
        )  # fmt: skip
        axes.plot(at, value, label=label, gid="greek", **kind)
        if known is not None:
            axes.plot(*known, color=BLACK, lw=0.9, ls="--", label="closed form", zorder=2.5)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.legend()
    return axes


def _curve(closed_form: Any, at: Array) -> tuple[Array, Array]:
    if isinstance(closed_form, tuple) and len(closed_form) == 2 and np.ndim(closed_form[0]):
        own = vector("closed_form[0]", closed_form[0])
        return own, vector("closed_form[1]", closed_form[1], len(own), "closed_form[0]")
    if not callable(closed_form):
        return at, vector("closed_form", closed_form, len(at), "x")
    function: Callable[[float], Any] = closed_form
    fine = np.linspace(at[0], at[-1], 201)
    return fine, vector("the values of closed_form", [float(function(float(u))) for u in fine])


def estimator_variances(
    reports: Mapping[str, Report | None],
    *,
    of: Sequence[Key] | Mapping[str, Key] | None = None,
    per_path: bool = False,
    xlabel: str | None = None,
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    r"""Standard errors of the same numbers by several estimators, side by side on a log scale.

    Args:
        reports: what :func:`~sdesens.greeks` returned, by the name of the estimator; all of one
            model and payoff. None for an estimator that was refused: it keeps its mark, so that
            panels of several payoffs use the same.
        of: which numbers, by their keys in a report (``"spot"``, ``("spot", "spot")``), or a dict
            of keys by label, ``{"gamma": ("spot", "spot")}``; by default all single numbers. A
            report without a number, as its estimator was refused for it, has no mark there; an
            estimate without error is marked 0 at the left edge.
        per_path: draw ``stderr * sqrt(paths)``, the standard deviation of one path's estimate,
            which compares runs of different length.
        xlabel: label; by default what is drawn.
        legend: whether there is one; of several panels one may do.
        ax: axes to draw on; without it those of a new figure in the style of this package.

    Returns:
        The axes, a row for each number, the first on top, and a mark for each estimator.

    Raises:
        ValueError, TypeError: if the reports are of different models or payoffs, or, without
            ``per_path``, of different numbers of paths; if no report has a number.

    Example:
        >>> import sdesens
        >>> from sdesens import plots
        >>> from sdesens.models import BlackScholes
        >>> from sdesens.pricing import Digital
        >>> reports = {name: sdesens.greeks(BlackScholes(0.05, 0.2), Digital(100.0, 1.0), [100.0],
        ...                                 paths=1000, steps=1, estimator=name, wrt="spot")
        ...            for name in ("bismut", "conditional")}
        >>> ax = plots.estimator_variances(reports, of={"delta": "spot"})
        >>> ax.get_xscale(), [label.get_text() for label in ax.get_yticklabels()]
        ('log', ['delta'])
    """
    checked = _check_reports(reports, per_path)
    rows = _rows(checked, of)
    drawn: list[float] = []
    with drawing_on(ax) as axes:
        for k, estimator in enumerate(reports):
            report = checked.get(estimator)
            scale = report.paths**0.5 if report and per_path else 1.0
            # Marks of one row are a little apart, or those of equal errors would hide each other.
            shift = 0.12 * (k - (len(reports) - 1) / 2)
            found = {row + shift: _stderr(report, name) for row, name in enumerate(rows.values())}
            there = {place: scale * error for place, error in found.items() if error}
            marks: dict[str, Any] = series(k) | {"linestyle": "none"}
            axes.plot(list(there.values()), list(there), label=estimator, **marks)
            drawn += there.values()
            for place in (place for place, error in found.items() if error == 0):
                _mark_zero(axes, place, marks["color"])
        _span_decades(axes, drawn)
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_ylim(len(rows) - 0.5, -0.5)
        for row in range(1, len(rows)):
            axes.axhline(row - 0.5, color="0.88", lw=0.5, ls="-", zorder=0.5)
        what = "standard deviation of one path's estimate" if per_path else "standard error"
        axes.set_xlabel(what if xlabel is None else xlabel)
        axes.tick_params(axis="y", length=0)
        if legend:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))  # beside: it hides no mark
    return axes


def _span_decades(axes: Axes, drawn: Sequence[float]) -> None:
    """A log scale from a power of ten to another, so that two at least are labelled."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(numticks=6))
    axes.xaxis.set_minor_formatter(NullFormatter())
    if drawn:
        low, high = np.floor(np.log10(min(drawn))), np.ceil(np.log10(max(drawn)))
        ends = [(10.0**low, 0.0), (10.0 ** max(high, low + 1), 0.0)]
        axes.update_datalim(ends, updatey=False)
        axes.autoscale_view(scaley=False)


def _mark_zero(axes: Axes, place: float, color: str) -> None:
    """An estimate without error is off every log scale: at the left edge, and it says so."""
    axes.annotate(
        r"$\leftarrow 0$", (0.0, place), xycoords=("axes fraction", "data"), xytext=(2, 0),
        textcoords="offset points", va="center", color=color,
    )  # fmt: skip


def _check_reports(reports: Any, per_path: bool) -> dict[str, Report]:
    if not isinstance(reports, Mapping) or not reports:
        raise TypeError(f"reports must be a dict of Report by estimator, got {reports!r}.")
    for name, report in reports.items():
        if not isinstance(report, Report | None):
            raise TypeError(
                f"reports[{name!r}] must be a Report, as sdesens.greeks returns, got "
                f"{type(report).__name__}."
            )
    checked = {name: report for name, report in reports.items() if report is not None}
    if not checked:
        raise ValueError(f"reports must hold at least one Report, got None for {list(reports)}.")
    fields = ("model", "payoff") if per_path else ("model", "payoff", "paths")
    for field in fields:
        found = {name: getattr(report, field) for name, report in checked.items()}
        if len(set(found.values())) > 1:
            cure = " Use per_path=True." if field == "paths" else " Draw each on axes of its own."
            raise ValueError(f"reports must be of one {field.rstrip('s')}, got {found}.{cure}")
    return checked


def _rows(reports: Mapping[str, Report], of: Any) -> dict[str, Name]:
    """Names by label, each in at least one report."""
    every = dict.fromkeys(name for report in reports.values() for name in report)
    if of is None:
        rows = {in_words(name): name for name in every}
    elif isinstance(of, Mapping):
        rows = {label: name_of(key) for label, key in of.items()}
    else:
        names = [name_of(key) for key in ([of] if isinstance(of, str) else of)]
        rows = {in_words(name): name for name in names}
    for name in rows.values():
        if all(_stderr(report, name) is None for report in reports.values()):
            known = [in_words(there) for there in every]
            raise ValueError(f"no report has {in_words(name)!r}; there are {known}.")
    return rows


def _stderr(report: Report | None, name: Name) -> float | None:
    """The standard error of a single number; None if the report does not have it."""
    entry = report and report.entry(name)
    if entry is None:
        return None
    return entry.stderr if entry.stderr > _ROUNDING * abs(entry.value) else 0.0
