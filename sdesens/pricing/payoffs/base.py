"""What a payoff is: a function of the path of an asset that says how smooth it is, and when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sdesens._checks import check_choice, check_float, check_floats
from sdesens.montecarlo.functionals import Functional
from sdesens.pricing.laws import Law

OPTIONS = ("call", "put")
Dates = int | Sequence[float]


class Asset(NamedTuple):
    """The component of a model's state that a payoff is written on.

    Attributes:
        name: of the component.
        size: how many assets it holds; None for a plain component.
    """

    name: str
    size: int | None


class Payoff(nn.Module):
    """An amount paid at ``maturity``, a function of the path of an asset, not discounted.

    A subclass says what it gathers along the path (``functionals``), what it pays (``cash``), how
    smooth that is (``jumps``, ``rough``), and, where it can, what it pays on average once the law
    of the asset at maturity is known (``expected``).

    Args:
        maturity: when it is paid, years from now.
        of: the component of the state it is written on; by default ``"spot"``, ``"spots"``,
            ``"forward"``, or the only component there is.

    Attributes:
        jumps: whether the amount jumps somewhere as a function of the path.
        rough: dates at which the amount is not smooth in the value of the asset; None for all
            nodes of the grid. At these dates no weight may leave the path moved.
        smooth_before: whether all that was gathered before the last date, and ``expected`` of it,
            is twice differentiable.
        assets: ``"one"`` or ``"several"``, whether it is written on a plain component or a block of
            assets; ``"any"``; None if on none.
        described: attributes shown when it is printed.
    """

    jumps = False
    smooth_before = True
    assets: str | None = "one"
    described: Sequence[str] = ("kind", "pays", "average", "option")

    def __init__(self, maturity: float, of: str | None = None) -> None:
        super().__init__()
        self.maturity = check_float("maturity", maturity)
        if not 0 < self.maturity < math.inf:
            raise ValueError(f"maturity must be positive and finite, got {maturity}.")
        self.of = of

    @property
    def rough(self) -> Sequence[float] | None:
        return (self.maturity,)

    @property
    def is_smooth(self) -> bool:
        """Whether the amount is twice differentiable along the path."""
        return self.rough is not None and not self.rough and self.smooth_before

    @property
    def watched(self) -> Sequence[float] | None:
        """Dates before maturity at which the asset matters; None for all nodes of the grid."""
        return ()

    @property
    def watches_start(self) -> bool:
        """Whether the amount is not smooth in where the path starts."""
        return False

    def functionals(self, asset: Asset) -> dict[str, Functional]:
        """What is gathered along the path of ``asset``, by name."""
        return {}

    def cash(self, end: Any) -> Tensor:
        """The amount, ``(P,)``: ``end.asset`` is the asset at maturity, functionals by name."""
        raise NotImplementedError

    def expected(self, end: Any, law: Law) -> Tensor | None:
        """The amount on average over ``law``, of the asset at maturity; None if not known.

        ``end`` has the functionals as they were before the last date.
        """
        return None

    def number(self, name: str, value: Any, *, positive: bool = False) -> nn.Parameter:
        """``value`` as a parameter, checked: a number of the contract that has a derivative."""
        checked = check_float(name, value)
        if not math.isfinite(checked) or (positive and checked <= 0):
            what = "positive and finite" if positive else "finite"
            raise ValueError(f"{name} must be {what}, got {checked}.")
        return nn.Parameter(torch.tensor(checked, dtype=torch.float64))

    def __repr__(self) -> str:
        own = self.named_parameters(recurse=False)
        parts = [f"{n}={p.item():g}" if not p.dim() else f"{n}={p.tolist()}" for n, p in own]
        parts.append(f"maturity={self.maturity:g}")
        parts += [f"{n}={getattr(self, n)!r}" for n in self.described if hasattr(self, n)]
        dates = getattr(self, "dates", ())
        if dates:
            parts.append(f"dates={len(dates)}")
        return f"{type(self).__name__}({', '.join(parts)})"


def check_option(option: str) -> str:
    """``option`` if it is a call or a put."""
    return check_choice("option", option, OPTIONS)


def check_dates(name: str, dates: Dates, maturity: float) -> tuple[float, ...]:
    """Increasing dates in ``(0, maturity]``; a count stands for so many equal intervals."""
    if isinstance(dates, int) and not isinstance(dates, bool):
        if dates < 1:
            raise ValueError(f"{name} must be at least 1, got {dates}.")
        return tuple(maturity * (k + 1) / dates for k in range(dates))
    if isinstance(dates, bool) or not isinstance(dates, Iterable):
        raise TypeError(f"{name} must be dates or the number of them, an int, got {dates!r}.")
    out = check_floats(name, dates)
    if not out:
        raise ValueError(f"{name} must hold at least one date, got none.")
    for k, t in enumerate(out):
        before = out[k - 1] if k else 0.0
        if not before < t:
            raise ValueError(
                f"{name} must increase strictly from above 0, got {name}[{k}]={t:g} after "
                f"{before:g}."
            )
    if not out[-1] <= maturity * (1 + 1e-12):
        raise ValueError(f"{name} must not lie after the maturity {maturity:g}, got {out[-1]:g}.")
    return out


def before(dates: Sequence[float], maturity: float) -> tuple[float, ...]:
    """The dates that lie before the maturity."""
    return tuple(t for t in dates if t < maturity * (1 - 1e-12))


def positive_part(x: Tensor) -> Tensor:
    """``max(x, 0)``, with derivative 0 where x is 0."""
    return torch.relu(x)


def vanilla(option: str, x: Tensor, strike: Tensor) -> Tensor:
    """The amount of a call or a put on ``x``."""
    return positive_part(x - strike if option == "call" else strike - x)


def vanilla_expected(option: str, law: Law, strike: Tensor) -> Tensor:
    """Its expectation."""
    return law.call(strike) if option == "call" else law.put(strike)
