"""The square-root process of Cox, Ingersoll and Ross."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sdesens.autodiff import positive_sqrt
from sdesens.models._functions import check_number, reversion_tangent
from sdesens.models._quadratic_exponential import QuadraticExponential
from sdesens.pricing.formulas import cir_bond
from sdesens.pricing.payoffs import ZeroCouponBond
from sdesens.sde import SDE, Number


class CIR(SDE):
    r"""``dr = kappa (theta - r) dt + xi sqrt(r) dW``: a short rate, or variance, that stays at 0 or
    above.

    Args:
        kappa: speed of mean reversion, 1 / year, at least 0.
        theta: level the rate reverts to, at least 0.
        xi: volatility, root of the rate per root of a year, at least 0.

    Schemes: ``"qe"``, the quadratic-exponential step of Andersen (2008), which has the exact mean
    and variance of the transition whatever the step, stays at 0 or above, and is differentiated as
    it stands. Its map from a normal number to the rate is not continuous where it passes from one
    form to the other, which the derivative does not see; the two forms have the same mean, and the
    error that this leaves is below what millions of paths resolve.

    By Euler the root is that of ``max(r, 0)`` with derivative 0 at and below zero, and the
    derivative of one step is like ``1 / sqrt(r)`` near zero: where ``4 kappa theta < xi²`` its
    variance over paths is infinite. Use ``"qe"``.

    Raises:
        ValueError: if a parameter is not one finite number, or is negative.

    Facts: ``E[r_t] = theta + exp(-kappa t) (r_0 - theta)`` and ``E[dr_t/dr_0] = exp(-kappa t)``,
    for ``"qe"`` too; the variance is ``xi² B (r_0 exp(-kappa t) + kappa theta B / 2)`` with
    ``B = (1 - exp(-kappa t)) / kappa``.

    Closed forms: zero-coupon bonds.

    Source: Cox, Ingersoll and Ross, *A theory of the term structure of interest rates*,
    Econometrica 53 (1985).

    Example:
        >>> import math
        >>> from sdesens import montecarlo
        >>> from sdesens.models import CIR
        >>> result = montecarlo.run(CIR(0.5, 0.03, 0.1), [0.02], lambda end: end.rate,
        ...                         maturity=2.0, steps=4, paths=10_000, scheme="qe", wrt="rate")
        >>> derivative = result["value", "rate"]
        >>> abs(derivative.value - math.exp(-1)) < 4 * derivative.stderr
        True
    """

    state = ("rate",)
    sde_type, noise_type = "ito", "diagonal"
    schemes = ("qe",)
    starts: Mapping[str, str] = {"rate": "nonnegative"}
    conditionally_normal: Mapping[str, tuple[str, int]] = {"euler": ("rate", 0)}

    def __init__(self, kappa: Number, theta: Number, xi: Number) -> None:
        super().__init__()
        self.kappa = self.parameter(kappa)
        self.theta = self.parameter(theta)
        self.xi = self.parameter(xi)
        for name, value in self.named_parameters():
            check_number(name, value, 0)

    def drift(self, t: Tensor, rate: Tensor) -> Tensor:
        """``kappa (theta - r)``."""
        return self.kappa * (self.theta - rate)

    def diffusion(self, t: Tensor, rate: Tensor) -> Tensor:
        """``xi sqrt(max(r, 0))``."""
        return self.xi * positive_sqrt(rate)

    def step_qe(self, t: Tensor, dt: Tensor, normals: Tensor, rate: Tensor) -> Tensor:
        """The quadratic-exponential step."""
        return QuadraticExponential(self.kappa, self.theta, self.xi, dt, normals[0], rate).value

    def drift_tangent(
        self,
        t: Tensor,
        rate: Tensor,
        drate: Tensor,
        *,
        kappa: Tensor | None = None,
        theta: Tensor | None = None,
        xi: Tensor | None = None,
    ) -> Tensor:
        """``-kappa dr + dkappa (theta - r) + kappa dtheta``."""
        return reversion_tangent(self.kappa, self.theta, rate, drate, kappa, theta)

    def diffusion_tangent(
        self,
        t: Tensor,
        rate: Tensor,
        drate: Tensor,
        *,
        kappa: Tensor | None = None,
        theta: Tensor | None = None,
        xi: Tensor | None = None,
    ) -> Tensor:
        """``xi dr / (2 sqrt(r)) + dxi sqrt(r)``, 0 where ``r <= 0``."""
        root = positive_sqrt(rate)
        out = self.xi * (0.5 * drate / root).where(rate > 0, 0.0)
        return out if xi is None else out + xi * root

    def closed_form(self, payoff: Any, x0: Tensor, maturity: Tensor) -> Tensor | None:
        """Of a zero-coupon bond."""
        if type(payoff) is not ZeroCouponBond:
            return None
        return cir_bond(x0[0], self.kappa, self.theta, self.xi, maturity)
