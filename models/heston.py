"""The stochastic volatility model of Heston."""

from __future__ import annotations

from torch import Tensor

from sdesens.autodiff import positive_sqrt
from sdesens.sde import SDE, Number


class Heston(SDE):
    r"""Spot with square-root variance, two correlated Brownian motions.

    .. math::

        dS &= (r - q) S dt + \sqrt{v} S dW_1 \\
        dv &= κ (θ - v) dt + ξ \sqrt{v} dW_2, \qquad d⟨W_1, W_2⟩ = ρ dt

    Args:
        rate: risk-free rate r, 1 / year.
        kappa: speed of mean reversion of the variance, 1 / year.
        theta: long-run variance.
        xi: volatility of variance.
        rho: correlation, in ``[-1, 1]``; a parameter with a derivative, for which ``|rho| < 1``.
        dividend: dividend yield q, 1 / year.

    The root is that of ``max(v, 0)`` with derivative 0 at and below zero. Discretised by Euler the
    derivative of one step near ``v = 0`` is like ``1 / sqrt(v)``, and its variance over paths is
    infinite when ``4 kappa theta < xi²``: exact for the discrete path, useless in an average.

    Facts: ``dS_t/dS_0 = S_t / S_0`` and ``dv_t/dS_0 = 0``, for Euler too.

    Source: Heston, *A closed-form solution for options with stochastic volatility*, Rev. Financ.
    Stud. 6 (1993).

    Example:
        >>> from sdesens.models import Heston
        >>> Heston(rate=0.03, kappa=1.5, theta=0.04, xi=0.3, rho=-0.7).state
        ('spot', 'variance')
    """

    state = ("spot", "variance")
    sde_type, noise_type = "ito", "general"

    def __init__(
        self,
        rate: Number,
        kappa: Number,
        theta: Number,
        xi: Number,
        rho: Number,
        dividend: Number = 0.0,
    ) -> None:
        super().__init__()
        self.rate = self.parameter(rate)
        self.kappa = self.parameter(kappa)
        self.theta = self.parameter(theta)
        self.xi = self.parameter(xi)
        self.rho = self.parameter(rho)
        self.dividend = self.parameter(dividend)
        if not -1 <= float(self.rho.detach()) <= 1:
            raise ValueError(f"rho must be in [-1, 1], got {self.rho.item()}.")

    def drift(self, t: Tensor, spot: Tensor, variance: Tensor):
        """``(r - q) S``, ``kappa (theta - v)``."""
        return (self.rate - self.dividend) * spot, self.kappa * (self.theta - variance)

    def diffusion(self, t: Tensor, spot: Tensor, variance: Tensor):
        """Rows of spot and variance on two independent Brownian motions."""
        root = positive_sqrt(variance)
        rest = (1 - self.rho**2).sqrt()
        return (root * spot, 0.0), (self.xi * self.rho * root, self.xi * rest * root)

    def drift_tangent(
        self,
        t: Tensor,
        spot: Tensor,
        variance: Tensor,
        dspot: Tensor,
        dvariance: Tensor,
        *,
        rate: Tensor | None = None,
        kappa: Tensor | None = None,
        theta: Tensor | None = None,
        xi: Tensor | None = None,
        rho: Tensor | None = None,
        dividend: Tensor | None = None,
    ):
        """The drift's derivative: ``(r - q) dS + (dr - dq) S`` and alike for the variance."""
        out_spot = (self.rate - self.dividend) * dspot
        out_variance = -self.kappa * dvariance
        if rate is not None:
            out_spot = out_spot + rate * spot
        if dividend is not None:
            out_spot = out_spot - dividend * spot
        if kappa is not None:
            out_variance = out_variance + kappa * (self.theta - variance)
        if theta is not None:
            out_variance = out_variance + self.kappa * theta
        return out_spot, out_variance

    def diffusion_tangent(
        self,
        t: Tensor,
        spot: Tensor,
        variance: Tensor,
        dspot: Tensor,
        dvariance: Tensor,
        *,
        rate: Tensor | None = None,
        kappa: Tensor | None = None,
        theta: Tensor | None = None,
        xi: Tensor | None = None,
        rho: Tensor | None = None,
        dividend: Tensor | None = None,
    ):
        """The diffusion's derivative, with ``d sqrt(v) = dv / (2 sqrt(v))``, 0 where ``v <= 0``."""
        root = positive_sqrt(variance)
        droot = (0.5 * dvariance / root).where(variance > 0, 0.0)
        rest = (1 - self.rho**2).sqrt()
        first, second = self.xi * self.rho * droot, self.xi * rest * droot
        if xi is not None:
            first, second = first + xi * self.rho * root, second + xi * rest * root
        if rho is not None:
            first, second = (
                first + self.xi * rho * root,
                second - self.xi * self.rho / rest * rho * root,
            )
        return (droot * spot + root * dspot, 0.0), (first, second)
