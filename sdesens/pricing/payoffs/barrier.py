"""Barrier options: knocked in or out, from above or below, watched at dates or all the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sdesens._checks import check_choice
from sdesens.montecarlo.bridges import Alive, BridgeSurvival, OneStepSurvival
from sdesens.montecarlo.functionals import Functional
from sdesens.pricing.laws import Law
from sdesens.pricing.payoffs.base import (
    Asset,
    Dates,
    Payoff,
    before,
    check_dates,
    check_option,
    vanilla,
    vanilla_expected,
)
from sdesens.pricing.payoffs.vanilla import Call, Put

KINDS = ("down-and-out", "down-and-in", "up-and-out", "up-and-in")


class Barrier(Payoff):
    """A call or put that comes to life, or dies, when the asset meets a barrier.

    Args:
        strike: K.
        barrier: H.
        maturity: T, years.
        kind: ``"down-and-out"``, ``"down-and-in"``, ``"up-and-out"`` or ``"up-and-in"``.
        option: ``"call"`` or ``"put"``.
        dates: when the asset is watched, in ``(0, T]``, or a number of equally spaced dates; it is
            out where it stands at the barrier or beyond. None watches it all the time: a path then
            counts by its probability of not having met the barrier between the nodes, that of a
            Brownian bridge, exact for Black-Scholes whatever the number of steps.
        of: the component it is written on; see :class:`Payoff`.

    Watched at dates it jumps; its derivatives are those of one-step survival. Watched all the time
    it is Lipschitz: at the barrier a path has no chance of not having met it.

    Example:
        >>> from sdesens.pricing import Barrier
        >>> Barrier(strike=100.0, barrier=90.0, maturity=1.0)
        Barrier(strike=100, barrier=90, maturity=1, kind='down-and-out', option='call')
    """

    def __init__(
        self,
        strike: float,
        barrier: float,
        maturity: float,
        *,
        kind: str = "down-and-out",
        option: str = "call",
        dates: Dates | None = None,
        of: str | None = None,
    ) -> None:
        super().__init__(maturity, of)
        self.kind = check_choice("kind", kind, KINDS)
        self.option = check_option(option)
        self.dates = None if dates is None else check_dates("dates", dates, self.maturity)
        self.strike = self.number("strike", strike)
        self.barrier = self.number("barrier", barrier, positive=True)
        if self.knocks_in and self.dates is not None:
            # In and out together are the vanilla option: how it is computed under survival.
            self.whole = (Call if option == "call" else Put)(strike, maturity, of)
            self.out = Barrier(
                strike, barrier, maturity, kind=kind.replace("in", "out"), option=option,
                dates=self.dates, of=of,
            )  # fmt: skip
            self.whole.strike = self.out.strike = self.strike
            self.out.barrier = self.barrier

    @property
    def above(self) -> bool:
        """Whether the asset lives above the barrier."""
        return self.kind.startswith("down")

    @property
    def knocks_in(self) -> bool:
        """Whether meeting the barrier brings it to life."""
        return self.kind.endswith("in")

    @property
    def jumps(self) -> bool:  # type: ignore[override]
        return self.dates is not None

    @property
    def rough(self) -> Sequence[float]:
        return (*(self.watched or ()), self.maturity)  # of the option there is a kink at the end

    @property
    def watched(self) -> Sequence[float] | None:
        return None if self.dates is None else before(self.dates, self.maturity)

    def level(self) -> Tensor:
        """The barrier."""
        return self.barrier

    def functionals(self, asset: Asset) -> dict[str, Functional]:
        if self.dates is None:
            return {"alive": BridgeSurvival(asset.name, self.level, self.above)}
        return {"alive": Alive(asset.name, self.level, self.above, self.dates)}

    def surviving(self, asset: Asset) -> dict[str, Functional]:
        """What is gathered in place of ``functionals`` under one-step survival."""
        assert self.dates is not None
        return {"alive": OneStepSurvival(asset.name, self.level, self.above, self.dates)}

    def cash(self, end: Any) -> Tensor:
        alive = 1 - end.alive if self.knocks_in else end.alive
        return alive * vanilla(self.option, end.asset, self.strike)

    def expected(self, end: Any, law: Law) -> Tensor | None:
        if self.dates is None or self.knocks_in:
            return None
        if len(self.watched or ()) == len(self.dates):  # none is left at maturity
            return end.alive * vanilla_expected(self.option, law, self.strike)
        return end.alive * self._expected_alive(law)

    def _expected_alive(self, law: Law) -> Tensor:
        """The amount on average over the law, nothing beyond the barrier."""
        K, H = self.strike, self.barrier

        def paid_above(level: Tensor) -> Tensor:  # E (X - K) 1{X > level}
            return law.mean_above(level) - K * law.above(level)

        match self.above, self.option:
            case True, "call":
                return paid_above(torch.maximum(K, H))
            case True, _:
                return paid_above(torch.maximum(K, H)) - paid_above(H)
            case False, "call":
                return paid_above(torch.minimum(K, H)) - paid_above(H)
        return K - law.mean + paid_above(torch.minimum(K, H))
