"""Payoffs of the asset at maturity alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sdesens._checks import check_choice
from sdesens.pricing.laws import Law
from sdesens.pricing.payoffs.base import Payoff, check_option, vanilla, vanilla_expected


class _Vanilla(Payoff):
    option: str

    def __init__(self, strike: float, maturity: float, of: str | None = None) -> None:
        super().__init__(maturity, of)
        self.strike = self.number("strike", strike)

    def cash(self, end: Any) -> Tensor:
        return vanilla(self.option, end.asset, self.strike)

    def expected(self, end: Any, law: Law) -> Tensor:
        return vanilla_expected(self.option, law, self.strike)


class Call(_Vanilla):
    """European call, ``(S_T - K)^+``.

    Args:
        strike: K, in units of the asset.
        maturity: T, years.
        of: the component it is written on; see :class:`Payoff`.

    Lipschitz. At ``S_T = K`` the derivative is taken as 0.

    Example:
        >>> from sdesens.pricing import Call
        >>> Call(strike=100.0, maturity=1.0)
        Call(strike=100, maturity=1, option='call')
    """

    option = "call"


class Put(_Vanilla):
    """European put, ``(K - S_T)^+``; arguments of :class:`Call`.

    Example:
        >>> from sdesens.pricing import Put
        >>> Put(strike=90.0, maturity=0.5)
        Put(strike=90, maturity=0.5, option='put')
    """

    option = "put"


class Forward(Payoff):
    """Forward contract, ``S_T - K``: smooth. Arguments of :class:`Call`.

    Example:
        >>> from sdesens.pricing import Forward
        >>> Forward(strike=100.0, maturity=1.0).jumps
        False
    """

    def __init__(self, strike: float, maturity: float, of: str | None = None) -> None:
        super().__init__(maturity, of)
        self.strike = self.number("strike", strike)

    @property
    def rough(self) -> tuple[float, ...]:
        return ()

    def cash(self, end: Any) -> Tensor:
        return end.asset - self.strike

    def expected(self, end: Any, law: Law) -> Tensor:
        return law.mean - self.strike


class Digital(Payoff):
    """An amount of cash, or the asset, paid if the asset ends above the strike (below, for a put).

    Args:
        strike: K.
        maturity: T, years.
        pays: ``"cash"`` or ``"asset"``.
        option: ``"call"`` pays for ``S_T > K``, ``"put"`` for ``S_T <= K``.
        cash: amount of cash.
        of: the component it is written on; see :class:`Payoff`.

    It jumps at the strike, so no derivative of it is pathwise.

    Example:
        >>> from sdesens.pricing import Digital
        >>> Digital(strike=100.0, maturity=1.0).jumps
        True
    """

    jumps = True

    def __init__(
        self,
        strike: float,
        maturity: float,
        *,
        pays: str = "cash",
        option: str = "call",
        cash: float = 1.0,
        of: str | None = None,
    ) -> None:
        super().__init__(maturity, of)
        self.pays = check_choice("pays", pays, ("cash", "asset"))
        self.option = check_option(option)
        self.strike = self.number("strike", strike)
        self.amount = self.number("cash", cash)

    def cash(self, end: Any) -> Tensor:
        x = end.asset
        paid = x if self.pays == "asset" else self.amount.to(x).expand_as(x)
        in_the_money = x > self.strike if self.option == "call" else x <= self.strike
        return torch.where(in_the_money, paid, torch.zeros_like(x))

    def expected(self, end: Any, law: Law) -> Tensor:
        if self.pays == "cash":
            whole, above = self.amount, self.amount * law.above(self.strike)
        else:
            whole, above = law.mean, law.mean_above(self.strike)
        return above if self.option == "call" else whole - above


class ZeroCouponBond(Payoff):
    """One unit of money at maturity: its value is the mean discount factor.

    Args:
        maturity: T, years.

    Example:
        >>> from sdesens.pricing import ZeroCouponBond
        >>> ZeroCouponBond(maturity=2.0)
        ZeroCouponBond(maturity=2)
    """

    assets = None

    def __init__(self, maturity: float) -> None:
        super().__init__(maturity)

    @property
    def rough(self) -> tuple[float, ...]:
        return ()

    def cash(self, end: Any) -> Tensor:
        return torch.ones_like(end.y[:, 0])
