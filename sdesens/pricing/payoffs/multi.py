"""Payoffs of several assets at maturity: a block component such as ``{"spots": n}``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sdesens._checks import numbers
from sdesens.pricing.payoffs.base import Payoff, check_option, positive_part, vanilla


class _OnSeveral(Payoff):
    assets = "several"

    def __init__(
        self, strike: float, maturity: float, *, option: str = "call", of: str | None = None
    ) -> None:
        super().__init__(maturity, of)
        self.option = check_option(option)
        self.strike = self.number("strike", strike)

    def value(self, assets: Tensor) -> Tensor:
        """What the option is on, ``(P,)``, from the assets ``(n, P)``."""
        raise NotImplementedError

    def cash(self, end: Any) -> Tensor:
        return vanilla(self.option, self.value(end.asset), self.strike)


class Basket(_OnSeveral):
    """A call or put on a weighted sum of assets.

    Args:
        strike: K.
        maturity: T, years.
        weights: one number an asset, ``(n,)``.
        option: ``"call"`` or ``"put"``.
        of: the block component it is written on; see :class:`Payoff`.

    Example:
        >>> from sdesens.pricing import Basket
        >>> Basket(strike=100.0, maturity=1.0, weights=[0.5, 0.5]).weights.tolist()
        [0.5, 0.5]
    """

    def __init__(
        self,
        strike: float,
        maturity: float,
        weights: Sequence[float],
        *,
        option: str = "call",
        of: str | None = None,
    ) -> None:
        super().__init__(strike, maturity, option=option, of=of)
        values = numbers("weights", weights).detach().clone()
        if values.dim() != 1 or not bool(torch.isfinite(values).all()):
            raise ValueError(f"weights must be finite numbers, one an asset, got {weights!r}.")
        self.weights = nn.Parameter(values)

    def value(self, assets: Tensor) -> Tensor:
        if assets.shape[0] != self.weights.shape[0]:
            raise ValueError(
                f"weights must have one number for each of the {assets.shape[0]} assets of the "
                f"model, got {self.weights.shape[0]}."
            )
        return (self.weights[:, None].to(assets.dtype) * assets).sum(0)


class BestOf(_OnSeveral):
    """A call or put on the largest of several assets.

    Args:
        strike: K.
        maturity: T, years.
        option: ``"call"`` or ``"put"``.
        of: the block component it is written on; see :class:`Payoff`.

    Example:
        >>> from sdesens.pricing import BestOf
        >>> BestOf(strike=100.0, maturity=1.0)
        BestOf(strike=100, maturity=1, option='call')
    """

    def value(self, assets: Tensor) -> Tensor:
        return assets.amax(0)


class WorstOf(_OnSeveral):
    """A call or put on the smallest of several assets; arguments of :class:`BestOf`.

    Example:
        >>> from sdesens.pricing import WorstOf
        >>> WorstOf(strike=100.0, maturity=1.0, option="put").option
        'put'
    """

    def value(self, assets: Tensor) -> Tensor:
        return assets.amin(0)


class Exchange(Payoff):
    """The option to exchange one asset for another, ``(S_i - S_j)^+`` (Margrabe).

    Args:
        maturity: T, years.
        receive: number i of the asset received.
        deliver: number j of the asset given for it.
        of: the block component it is written on; see :class:`Payoff`.

    Example:
        >>> from sdesens.pricing import Exchange
        >>> Exchange(maturity=1.0).receive
        0
    """

    assets = "several"

    def __init__(
        self, maturity: float, *, receive: int = 0, deliver: int = 1, of: str | None = None
    ) -> None:
        super().__init__(maturity, of)
        if receive == deliver or min(receive, deliver) < 0:
            raise ValueError(
                f"receive and deliver must be the numbers of two assets, got {receive} and "
                f"{deliver}."
            )
        self.receive, self.deliver = receive, deliver

    def cash(self, end: Any) -> Tensor:
        count = end.asset.shape[0]
        if max(self.receive, self.deliver) >= count:
            raise ValueError(
                f"receive and deliver must be below the number {count} of assets of the model, "
                f"got {self.receive} and {self.deliver}."
            )
        return positive_part(end.asset[self.receive] - end.asset[self.deliver])
