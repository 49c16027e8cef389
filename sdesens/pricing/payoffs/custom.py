"""The user's own function of the path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sdesens._checks import check_float, check_floats
from sdesens.montecarlo.functionals import Functional, ValueAt
from sdesens.pricing.payoffs.base import Asset, Dates, Payoff, before, check_dates


class CustomPayoff(Payoff):
    """What :func:`~sdesens.pricing.payoff` returns."""

    assets = "any"

    def __init__(
        self,
        fn: Callable[[Tensor], Tensor],
        dates: Sequence[float],
        maturity: float,
        lipschitz: bool,
        of: str | None,
    ) -> None:
        super().__init__(maturity, of)
        self.fn, self.jumps = fn, not lipschitz
        self.dates = check_dates("dates", dates, self.maturity)

    @property
    def rough(self) -> Sequence[float]:
        return self.dates

    @property
    def watched(self) -> Sequence[float]:
        return before(self.dates, self.maturity)

    def functionals(self, asset: Asset) -> dict[str, Functional]:
        return {
            f"value_{k}_{i}": ValueAt(_entry(asset, i), date)
            for k, date in enumerate(self.watched)
            for i in range(asset.size or 1)
        }

    def cash(self, end: Any) -> Tensor:
        rows = []
        last = end.asset if end.asset.dim() == 2 else end.asset[None]
        for k in range(len(self.watched)):
            columns = [getattr(end, f"value_{k}_{i}") for i in range(last.shape[0])]
            rows.append(torch.stack(columns))
        if len(self.watched) < len(self.dates):
            rows.append(last)
        path = torch.stack(rows)  # (T, n, P)
        out = self.fn(path if end.asset.dim() == 2 else path[:, 0])
        if not isinstance(out, Tensor) or out.shape != path.shape[-1:]:
            came = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise ValueError(
                f"the function of payoff() must return one number a path, shape "
                f"{tuple(path.shape[-1:])}, got {came}."
            )
        return out


def _entry(asset: Asset, i: int) -> Callable[[Any], Tensor]:
    def of(state: Any) -> Tensor:
        value = getattr(state, asset.name)
        return value if asset.size is None else value[i]

    return of


def payoff(
    fn: Callable[[Tensor], Tensor],
    dates: Dates,
    *,
    lipschitz: bool,
    maturity: float | None = None,
    of: str | None = None,
) -> CustomPayoff:
    """A payoff from a function of the asset's values at some dates.

    Args:
        fn: takes the values ``(T, P)`` at the T dates of P paths, ``(T, n, P)`` for a block of n
            assets, and returns the amounts paid ``(P,)``. Written in torch, one path without regard
            to the others.
        dates: increasing, above 0; or their number, equally spaced up to ``maturity``.
        lipschitz: whether the amount changes continuously with the values, at a bounded rate. False
            for anything with a jump (``x > k``, ``torch.where`` of two values that differ there).
            A payoff that is called Lipschitz and is not would have wrong pathwise derivatives:
            :func:`sdesens.greeks` compares them with bumps on common noise first, and raises.
        maturity: when it is paid; the last date by default.
        of: the component it is written on; see :class:`Payoff`.

    Returns:
        A payoff for :func:`sdesens.greeks`.

    Raises:
        ValueError: for dates that are not increasing, or lie after maturity.
        TypeError: if ``fn`` is not callable, or ``lipschitz`` no bool.

    Example:
        >>> import torch, sdesens
        >>> from sdesens.models import BlackScholes
        >>> from sdesens.pricing import payoff
        >>> spread = payoff(lambda x: torch.relu(x[1] - x[0]), [0.5, 1.0], lipschitz=True)
        >>> model = BlackScholes(rate=0.05, sigma=0.2)
        >>> report = sdesens.greeks(model, spread, [100.0], paths=10_000, steps=2)
        >>> report["price"].stderr < 0.1
        True
    """
    if not callable(fn):
        raise TypeError(f"fn must be a function of the values, got {type(fn).__name__}.")
    if not isinstance(lipschitz, bool):
        raise TypeError(f"lipschitz must be True or False, got {lipschitz!r}.")
    if isinstance(dates, int):
        if maturity is None:
            raise ValueError("dates is a number of dates, so maturity must be given too.")
        dates = check_dates("dates", dates, check_float("maturity", maturity))
    dates = check_floats("dates", dates)
    if maturity is None:
        maturity = max(dates, default=0.0)
    return CustomPayoff(fn, dates, maturity, lipschitz, of)
