"""The short rate of Vasicek."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sdesens.models._functions import check_number, gaussian_step, reversion_tangent
from sdesens.pricing.formulas import vasicek_bond
from sdesens.pricing.payoffs import ZeroCouponBond
from sdesens.sde import SDE, Number


class Vasicek(SDE):
    r"""``dr = kappa (mean - r) dt + sigma dW``: a Gaussian short rate.

    The equation is that of :class:`~sdesens.models.OrnsteinUhlenbeck` for a number, by its name in
    finance.

    Args:
        kappa: speed of mean reversion, 1 / year; any finite number. At 0 this is Brownian motion.
        mean: level the rate reverts to, 1 / year.
        sigma: volatility of the rate, 1 / year per root of a year, at least 0.

    Schemes: ``"exact"``, the normal transition, without discretisation error.

    Raises:
        ValueError: if a parameter is not one finite number, or ``sigma`` is negative.

    Facts: ``dr_t/dr_0 = exp(-kappa t)``, by Euler ``(1 - kappa dt)^k``; ``r_t`` is normal with mean
    ``mean + exp(-kappa t) (r_0 - mean)`` and variance ``sigma² (1 - exp(-2 kappa t)) / (2 kappa)``.

    Closed forms: zero-coupon bonds, for ``kappa`` of at least 0.

    Source: Vasicek, *An equilibrium characterization of the term structure*, J. Financ. Econ. 5
    (1977).

    Example:
        >>> from sdesens import montecarlo
        >>> from sdesens.models import Vasicek
        >>> result = montecarlo.run(Vasicek(0.5, 0.03, 0.01), [0.02], lambda end: end.rate,
        ...                         maturity=2.0, steps=1, paths=1000, scheme="exact")
        >>> round(result["value", "rate"].value, 5)  # exp(-1)
        0.36788
    """

    state = ("rate",)
    sde_type, noise_type = "ito", "diagonal"
    schemes = ("exact",)
    conditionally_normal: Mapping[str, tuple[str, int]] = {
        "exact": ("rate", 0),
        "euler": ("rate", 0),
    }

    def __init__(self, kappa: Number, mean: Number, sigma: Number) -> None:
        super().__init__()
        self.kappa = self.parameter(kappa)
        self.mean = self.parameter(mean)
        self.sigma = self.parameter(sigma)
        check_number("kappa", self.kappa)
        check_number("mean", self.mean)
        check_number("sigma", self.sigma, 0)

    def drift(self, t: Tensor, rate: Tensor) -> Tensor:
        """``kappa (mean - r)``."""
        return self.kappa * (self.mean - rate)

    def diffusion(self, t: Tensor, rate: Tensor) -> Tensor:
        """``sigma``, constant."""
        return self.sigma

    def step_exact(self, t: Tensor, dt: Tensor, normals: Tensor, rate: Tensor) -> Tensor:
        """The transition itself, for ``kappa = 0`` too."""
        return gaussian_step(self.kappa, self.mean, self.sigma, dt, normals[0], rate)

    def drift_tangent(
        self,
        t: Tensor,
        rate: Tensor,
        drate: Tensor,
        *,
        kappa: Tensor | None = None,
        mean: Tensor | None = None,
        sigma: Tensor | None = None,
    ) -> Tensor:
        """``-kappa dr + dkappa (mean - r) + kappa dmean``."""
        return reversion_tangent(self.kappa, self.mean, rate, drate, kappa, mean)

    def diffusion_tangent(
        self,
        t: Tensor,
        rate: Tensor,
        drate: Tensor,
        *,
        kappa: Tensor | None = None,
        mean: Tensor | None = None,
        sigma: Tensor | None = None,
    ) -> Tensor:
        """``dsigma``."""
        return torch.zeros_like(drate) if sigma is None else sigma + torch.zeros_like(drate)

    def closed_form(self, payoff: Any, x0: Tensor, maturity: Tensor) -> Tensor | None:
        """Of a zero-coupon bond."""
        if type(payoff) is not ZeroCouponBond or self.kappa < 0:
            return None
        return vasicek_bond(x0[0], self.kappa, self.mean, self.sigma, maturity)
