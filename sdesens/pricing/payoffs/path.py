"""Payoffs of the whole path of one asset: Asian, lookback, variance swap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sdesens._checks import check_choice
from sdesens.montecarlo.bridges import BridgeExtreme
from sdesens.montecarlo.functionals import Functional, RunningMax, RunningMin, RunningSum
from sdesens.pricing.laws import Law
from sdesens.pricing.payoffs.base import (
    Asset,
    Dates,
    Payoff,
    before,
    check_dates,
    check_option,
    positive_part,
    vanilla,
    vanilla_expected,
)


class Asian(Payoff):
    """A call or put on the average of the asset over its fixing dates.

    Args:
        strike: K.
        maturity: T, years.
        dates: fixing dates, in ``(0, T]``, or their number, equally spaced up to T.
        average: ``"arithmetic"`` or ``"geometric"``.
        option: ``"call"`` or ``"put"``.
        of: the component it is written on; see :class:`Payoff`.

    Lipschitz, with a kink where the average meets the strike.

    Example:
        >>> from sdesens.pricing import Asian
        >>> Asian(strike=100.0, maturity=1.0, dates=4).dates
        (0.25, 0.5, 0.75, 1.0)
    """

    def __init__(
        self,
        strike: float,
        maturity: float,
        dates: Dates,
        *,
        average: str = "arithmetic",
        option: str = "call",
        of: str | None = None,
    ) -> None:
        super().__init__(maturity, of)
        self.dates = check_dates("dates", dates, self.maturity)
        self.average = check_choice("average", average, ("arithmetic", "geometric"))
        self.option = check_option(option)
        self.strike = self.number("strike", strike)

    @property
    def rough(self) -> Sequence[float]:
        return self.dates

    @property
    def watched(self) -> Sequence[float]:
        return before(self.dates, self.maturity)

    def functionals(self, asset: Asset) -> dict[str, Functional]:
        def of(state: Any) -> Tensor:
            x = getattr(state, asset.name)
            return x.log() if self.average == "geometric" else x

        return {"total": RunningSum(of, self.dates)}

    def cash(self, end: Any) -> Tensor:
        mean = end.total / len(self.dates)
        mean = mean.exp() if self.average == "geometric" else mean
        return vanilla(self.option, mean, self.strike)

    def expected(self, end: Any, law: Law) -> Tensor | None:
        count = len(self.dates)
        if self.average == "geometric" or len(self.watched) == count:
            return None
        strike = count * self.strike.to(end.total) - end.total
        return vanilla_expected(self.option, law, strike) / count


class Lookback(Payoff):
    """A payoff of the maximum or minimum of the asset.

    A call with a strike pays ``(max - K)^+``, a put ``(K - min)^+``; without one the strike floats:
    a call pays ``S_T - min``, a put ``max - S_T``.

    Args:
        maturity: T, years.
        strike: K, or None for a floating strike.
        option: ``"call"`` or ``"put"``.
        dates: when the asset is watched, in ``(0, T]``, or a number of equally spaced dates. None
            watches it all the time, the start included: between the nodes its extreme is drawn from
            that of a Brownian bridge, exact for Black-Scholes whatever the number of steps.
        of: the component it is written on; see :class:`Payoff`.

    Lipschitz, but its second derivatives have terms from where the extreme moves on to another
    date: not offered.

    Example:
        >>> from sdesens.pricing import Lookback
        >>> Lookback(maturity=1.0).dates is None
        True
    """

    smooth_before = False

    def __init__(
        self,
        maturity: float,
        *,
        strike: float | None = None,
        option: str = "call",
        dates: Dates | None = None,
        of: str | None = None,
    ) -> None:
        super().__init__(maturity, of)
        self.dates = None if dates is None else check_dates("dates", dates, self.maturity)
        self.option = check_option(option)
        self.strike = None if strike is None else self.number("strike", strike)

    @property
    def rough(self) -> Sequence[float] | None:
        return self.dates

    @property
    def watched(self) -> Sequence[float] | None:
        return None if self.dates is None else before(self.dates, self.maturity)

    @property
    def watches_start(self) -> bool:
        return self.dates is None

    def functionals(self, asset: Asset) -> dict[str, Functional]:
        maximum = (self.option == "call") == (self.strike is not None)
        if self.dates is None:
            return {"extreme": BridgeExtreme(asset.name, maximum)}
        return {"extreme": (RunningMax if maximum else RunningMin)(asset.name, self.dates)}

    def cash(self, end: Any) -> Tensor:
        sign = 1.0 if self.option == "call" else -1.0
        if self.strike is None:
            return sign * (end.asset - end.extreme)
        return positive_part(sign * (end.extreme - self.strike))


class VarianceSwap(Payoff):
    """Realised variance less its strike: ``(1 / T) sum of squared log-returns - K``. Smooth.

    Args:
        strike: K, a variance a year.
        maturity: T, years.
        dates: ends of the returns, the first of which starts at time 0, or their number.
        of: the component it is written on; see :class:`Payoff`.

    Example:
        >>> from sdesens.pricing import VarianceSwap
        >>> len(VarianceSwap(strike=0.04, maturity=1.0, dates=52).dates)
        52
    """

    def __init__(
        self, strike: float, maturity: float, dates: Dates, *, of: str | None = None
    ) -> None:
        super().__init__(maturity, of)
        self.dates = check_dates("dates", dates, self.maturity)
        self.strike = self.number("strike", strike)

    @property
    def rough(self) -> Sequence[float]:
        return ()

    @property
    def watched(self) -> Sequence[float]:
        return before(self.dates, self.maturity)

    def functionals(self, asset: Asset) -> dict[str, Functional]:
        last = LastLog(asset.name, self.dates)
        return {"last_log": last, "squares": SquaredReturns(asset.name, self.dates)}

    def cash(self, end: Any) -> Tensor:
        return end.squares / end.time - self.strike


class LastLog(Functional):
    """The logarithm of the value at the last date, the start being the first."""

    def start(self, state: Any, flag: Tensor) -> Tensor:
        return self.watched(state).log()

    def update(self, value: Tensor, before: Any, after: Any, flag: Tensor) -> Tensor:
        return torch.where(flag > 0, self.watched(after).log(), value)


class SquaredReturns(Functional):
    """The sum of the squared log-returns from date to date, beside a :class:`LastLog`."""

    def start(self, state: Any, flag: Tensor) -> Tensor:
        return torch.zeros_like(self.watched(state))

    def update(self, value: Tensor, before: Any, after: Any, flag: Tensor) -> Tensor:
        return value + flag * (self.watched(after).log() - before.last_log) ** 2
