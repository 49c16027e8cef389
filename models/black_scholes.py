"""The model of Black and Scholes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sdesens.models._european import Formulas, european_value
from sdesens.models._functions import carry_tangent, check_number
from sdesens.pricing import formulas
from sdesens.pricing.payoffs import Asian, Barrier, Lookback, VarianceSwap
from sdesens.sde import SDE, Number

_EUROPEAN = Formulas(
    formulas.black_call, formulas.black_put, formulas.cash_digital_call, formulas.cash_digital_put
)


class BlackScholes(SDE):
    r"""``dS = (r - q) S dt + sigma S dW``: a spot of constant volatility.

    Args:
        rate: risk-free rate r, 1 / year.
        sigma: volatility per root of a year, at least 0.
        dividend: dividend yield q, 1 / year.

    Schemes: ``"exact"``, the lognormal transition, without discretisation error.

    Raises:
        ValueError: if a parameter is not one finite number, or ``sigma`` is negative.

    Facts: ``dS_t/dS_0 = S_t / S_0``, ``dS_t/dr = t S_t = -dS_t/dq`` and
    ``dS_t/dsigma = S_t (W_t - sigma t)``, of which Euler has the first.

    Closed forms: calls, puts, forwards, digitals; Asian options on the geometric average; barrier
    and lookback options watched all the time; variance swaps.

    Source: Black and Scholes, *The pricing of options and corporate liabilities*, J. Polit. Econ.
    81 (1973).

    Example:
        >>> import torch
        >>> from sdesens import montecarlo
        >>> from sdesens.models import BlackScholes
        >>> model = BlackScholes(rate=0.05, sigma=0.2)
        >>> result = montecarlo.run(model, [100.0], lambda end: torch.exp(-0.05 * end.time)
        ...                         * end.spot, maturity=1.0, steps=1, paths=10_000,
        ...                         scheme="exact", wrt="spot")
        >>> abs(result["value"].value - 100.0) < 4 * result["value"].stderr
        True
    """

    state = ("spot",)
    sde_type, noise_type = "ito", "diagonal"
    schemes = ("exact",)
    starts: Mapping[str, str] = {"spot": "positive"}
    conditionally_lognormal: Mapping[str, tuple[str, int]] = {"exact": ("spot", 0)}
    conditionally_normal: Mapping[str, tuple[str, int]] = {"euler": ("spot", 0)}

    def __init__(self, rate: Number, sigma: Number, dividend: Number = 0.0) -> None:
        super().__init__()
        self.rate = self.parameter(rate)
        self.sigma = self.parameter(sigma)
        self.dividend = self.parameter(dividend)
        check_number("rate", self.rate)
        check_number("sigma", self.sigma, 0)
        check_number("dividend", self.dividend)

    def drift(self, t: Tensor, spot: Tensor) -> Tensor:
        """``(r - q) S``."""
        return (self.rate - self.dividend) * spot

    def diffusion(self, t: Tensor, spot: Tensor) -> Tensor:
        """``sigma S``."""
        return self.sigma * spot

    def step_exact(self, t: Tensor, dt: Tensor, normals: Tensor, spot: Tensor) -> Tensor:
        """``S exp((r - q - sigma²/2) dt + sigma sqrt(dt) Z)``."""
        growth = (self.rate - self.dividend - 0.5 * self.sigma**2) * dt
        return spot * torch.exp(growth + self.sigma * dt.sqrt() * normals[0])

    def drift_tangent(
        self,
        t: Tensor,
        spot: Tensor,
        dspot: Tensor,
        *,
        rate: Tensor | None = None,
        sigma: Tensor | None = None,
        dividend: Tensor | None = None,
    ) -> Tensor:
        """``(r - q) dS + (dr - dq) S``."""
        carry = self.rate - self.dividend
        return carry_tangent(carry, spot, dspot, rate, dividend)

    def diffusion_tangent(
        self,
        t: Tensor,
        spot: Tensor,
        dspot: Tensor,
        *,
        rate: Tensor | None = None,
        sigma: Tensor | None = None,
        dividend: Tensor | None = None,
    ) -> Tensor:
        """``sigma dS + dsigma S``."""
        out = self.sigma * dspot
        return out if sigma is None else out + sigma * spot

    def closed_form(self, payoff: Any, x0: Tensor, maturity: Tensor) -> Tensor | None:
        """Of European payoffs, geometric averages, extremes watched all the time, variance."""
        if payoff.of not in (None, "spot"):
            return None
        if type(payoff) is VarianceSwap:
            return self._variance_swap(payoff, maturity)
        market = (maturity, self.rate, self.sigma)
        if type(payoff) in (Asian, Barrier, Lookback):
            return self._on_path(payoff, x0[0], *market)
        return european_value(payoff, _EUROPEAN, x0[0], *market, dividend=self.dividend)

    def _on_path(
        self, payoff: Asian | Barrier | Lookback, S: Tensor, T: Tensor, r: Tensor, sigma: Tensor
    ) -> Tensor | None:
        K, q, is_call = payoff.strike, self.dividend, payoff.option == "call"
        if K is not None and K <= 0:
            return None
        if isinstance(payoff, Asian):
            if payoff.average != "geometric":
                return None
            asian = formulas.geometric_asian_call if is_call else formulas.geometric_asian_put
            return asian(S, payoff.strike, _dates(payoff, T), r, sigma, q, T)
        if payoff.dates is not None:
            return None
        if isinstance(payoff, Barrier):
            ways = {"kind": payoff.kind, "option": payoff.option}
            return formulas.barrier_option(S, payoff.strike, payoff.barrier, T, r, sigma, q, **ways)
        name = f"{'floating' if K is None else 'fixed'}_lookback_{payoff.option}"
        return getattr(formulas, name)(S, *([] if K is None else [K]), T, r, sigma, q)

    def _variance_swap(self, payoff: VarianceSwap, maturity: Tensor) -> Tensor:
        """A log-return over ``dt`` has mean ``m dt`` and variance ``sigma² dt``."""
        dates = _dates(payoff, maturity)
        dt = dates.diff(prepend=torch.zeros_like(dates[:1]))
        m = self.rate - self.dividend - 0.5 * self.sigma**2
        squares = (self.sigma**2 * dt + (m * dt) ** 2).sum()
        return torch.exp(-self.rate * maturity) * (squares / maturity - payoff.strike)


def _dates(payoff: Asian | VarianceSwap, maturity: Tensor) -> Tensor:
    """The dates of ``payoff``, moved along with its maturity."""
    shares = torch.tensor(payoff.dates, dtype=torch.float64) / payoff.maturity
    return shares.clamp(max=1.0) * maturity
