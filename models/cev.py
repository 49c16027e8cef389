"""Constant elasticity of variance."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from sdesens.models._functions import check_number, positive_power
from sdesens.sde import SDE, Number


class CEV(SDE):
    r"""``dS = (r - q) S dt + sigma S^beta dW``, absorbed at 0.

    Args:
        rate: risk-free rate r, 1 / year.
        sigma: volatility, units of S to the power ``1 - beta`` per root of a year, at least 0. The
            lognormal volatility at S is ``sigma S^(beta - 1)``.
        beta: elasticity, in ``[0, 1]``; a parameter with a derivative. 1 is Black-Scholes, and
            ``1/2`` a square-root process. Above 1 the discounted spot is no martingale.
        dividend: dividend yield q, 1 / year.

    **At zero.** For ``beta < 1`` the spot reaches 0, and stays there. Drift and diffusion are 0 at
    and below 0, with derivative 0. A solver's step (Euler, Milstein) may land below, and the path
    then stands still where it landed, with the derivative that it had: read the spot as
    ``max(S, 0)``, as payoffs on it do. By the scheme ``"absorbed"`` the path is put on 0 itself,
    and its derivative is 0 from then on.

    Schemes: ``"absorbed"``, ``max(Euler's step, 0)``. Near 0 the derivative of one step is like
    ``S^(beta - 1)``: expect wide errors for paths that live there.

    Raises:
        ValueError: if a parameter is not one finite number or out of its range.

    Facts: for ``beta = 1`` the model is geometric Brownian motion. By every scheme the discounted
    spot is a martingale up to what the step below 0 adds.

    Source: Cox, *The constant elasticity of variance option pricing model*, 1975, reprinted in J.
    Portf. Manag. 23 (1996).

    Example:
        >>> from sdesens import montecarlo
        >>> from sdesens.models import CEV
        >>> result = montecarlo.run(CEV(0.0, 2.0, 0.5), [0.5], lambda end: end.spot, maturity=1.0,
        ...                         steps=10, paths=1000, scheme="absorbed", wrt="beta")
        >>> bool(result["value"].value > 0)
        True
    """

    state = ("spot",)
    sde_type, noise_type = "ito", "diagonal"
    schemes = ("absorbed",)
    starts: Mapping[str, str] = {"spot": "nonnegative"}
    conditionally_normal: Mapping[str, tuple[str, int]] = {"euler": ("spot", 0)}

    def __init__(self, rate: Number, sigma: Number, beta: Number, dividend: Number = 0.0) -> None:
        super().__init__()
        self.rate = self.parameter(rate)
        self.sigma = self.parameter(sigma)
        self.beta = self.parameter(beta)
        self.dividend = self.parameter(dividend)
        check_number("rate", self.rate)
        check_number("sigma", self.sigma, 0)
        check_number("beta", self.beta, 0, 1)
        check_number("dividend", self.dividend)

    def drift(self, t: Tensor, spot: Tensor) -> Tensor:
        """``(r - q) max(S, 0)``."""
        return (self.rate - self.dividend) * torch.relu(spot)

    def diffusion(self, t: Tensor, spot: Tensor) -> Tensor:
        """``sigma S^beta``, 0 where ``S <= 0``."""
        return self.sigma * positive_power(spot, self.beta)

    def step_absorbed(self, t: Tensor, dt: Tensor, normals: Tensor, spot: Tensor) -> Tensor:
        """Euler's step, put on 0 where it lands below."""
        moved = spot + self.drift(t, spot) * dt
        return torch.relu(moved + self.diffusion(t, spot) * (dt.sqrt() * normals[0]))

    def drift_tangent(
        self,
        t: Tensor,
        spot: Tensor,
        dspot: Tensor,
        *,
        rate: Tensor | None = None,
        sigma: Tensor | None = None,
        beta: Tensor | None = None,
        dividend: Tensor | None = None,
    ) -> Tensor:
        """``(r - q) dS + (dr - dq) S``, 0 where ``S <= 0``."""
        out = ((self.rate - self.dividend) * dspot).where(spot > 0, 0.0)
        if rate is not None:
            out = out + rate * torch.relu(spot)
        return out if dividend is None else out - dividend * torch.relu(spot)

    def diffusion_tangent(
        self,
        t: Tensor,
        spot: Tensor,
        dspot: Tensor,
        *,
        rate: Tensor | None = None,
        sigma: Tensor | None = None,
        beta: Tensor | None = None,
        dividend: Tensor | None = None,
    ) -> Tensor:
        """``sigma S^beta (beta dS / S + dbeta log S) + dsigma S^beta``, 0 where ``S <= 0``."""
        power, safe = positive_power(spot, self.beta), spot.masked_fill(spot <= 0, 1.0)
        out = self.sigma * power * (self.beta * dspot / safe)
        if beta is not None:
            out = out + self.sigma * power * (beta * safe.log())
        return out if sigma is None else out + sigma * power
