"""Values of what pays by the asset at maturity alone, from a model's own formulas."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sdesens.pricing.formulas import forward_value
from sdesens.pricing.payoffs import Call, Digital, Forward, Put, ZeroCouponBond

Value = Callable[[], Tensor]


class Formulas(NamedTuple):
    """Of one model, each called as ``(spot, strike, maturity, rate, *numbers, dividend)``.

    Attributes:
        call, put: the vanilla options.
        above, below: one unit of cash if the asset ends above, or below, the strike.
    """

    call: Callable[..., Tensor]
    put: Callable[..., Tensor]
    above: Callable[..., Tensor]
    below: Callable[..., Tensor]


def european_value(
    payoff: Any,
    formulas: Formulas,
    spot: Tensor,
    maturity: Tensor,
    rate: Tensor,
    *numbers: Tensor,
    dividend: Tensor,
) -> Tensor | None:
    """The value of a vanilla option, digital, forward or bond at a constant rate; else None.

    Of these classes exactly: a subclass may pay something else. None as well for an option struck
    at 0 or below, whose strike has no logarithm.
    """
    kind = type(payoff)
    if kind is ZeroCouponBond:
        return torch.exp(-rate * maturity)
    if kind is Forward:
        return forward_value(spot, payoff.strike, maturity, rate, dividend)
    if kind not in (Call, Put, Digital) or payoff.strike <= 0:
        return None
    call, put, above, below = (
        partial(formula, spot, payoff.strike, maturity, rate, *numbers, dividend)
        for formula in formulas
    )
    if kind is Digital:
        return _digital(payoff, call, put, above, below)
    return call() if kind is Call else put()


def _digital(payoff: Digital, call: Value, put: Value, above: Value, below: Value) -> Tensor:
    if payoff.pays == "cash":
        return payoff.amount * (above() if payoff.option == "call" else below())
    if payoff.option == "call":  # S 1{S > K} = (S - K)^+ + K 1{S > K}
        return call() + payoff.strike * above()
    return payoff.strike * below() - put()
