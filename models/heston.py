"""The stochastic volatility model of Heston."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sdesens.autodiff import positive_sqrt
from sdesens.models._european import Formulas, european_value
from sdesens.models._functions import carry_tangent, check_number, reversion_tangent
from sdesens.models._quadratic_exponential import QuadraticExponential
from sdesens.pricing import formulas
from sdesens.sde import SDE, Number

_EUROPEAN = Formulas(
    formulas.heston_call,
    formulas.heston_put,
    formulas.heston_digital_call,
    formulas.heston_digital_put,
)


class Heston(SDE):
    r"""Spot with square-root variance, two correlated Brownian motions.

    .. math::

        dS &= (r - q) S dt + \sqrt{v} S dW_1 \\
        dv &= κ (θ - v) dt + ξ \sqrt{v} dW_2, \qquad d⟨W_1, W_2⟩ = ρ dt

    Args:
        rate: risk-free rate r, 1 / year.
        kappa: speed of mean reversion of the variance, 1 / year, at least 0.
        theta: long-run variance, at least 0.
        xi: volatility of variance, at least 0.
        rho: correlation, in ``[-1, 1]``; a parameter with a derivative, for which ``|rho| < 1``.
        dividend: dividend yield q, 1 / year.

    Schemes: ``"qe"`` of Andersen (2008). The variance takes the quadratic-exponential step on
    channel 1 (see :class:`~sdesens.models.CIR`, also for what its derivative leaves out), and the
    spot, on the independent channel 0,

    .. math::

        S' = S \exp\bigl((r - q) dt + K_0 + K_1 v + K_2 v' + \sqrt{K_3 v + K_4 v'} Z_0\bigr)

    with the central weights ``gamma_1 = gamma_2 = 1/2`` and the ``K_0`` that makes the discounted
    spot a martingale exactly (section 4 there). Where that does not exist, which takes a step as
    wide as ``kappa dt > 0.4`` and ``rho xi dt`` near 2 or above, it is the plain
    ``K_0 = -rho kappa theta dt / xi``. What is ``0 / 0`` at ``xi = 0`` is written without the
    division, so deterministic variance is a value like others.

    **Do not average derivatives by Euler.** The root is that of ``max(v, 0)`` with derivative 0 at
    and below zero, and the derivative of one Euler step near ``v = 0`` is like ``1 / sqrt(v)``:
    its variance over paths is infinite when ``4 kappa theta < xi²``. It is exact for the discrete
    path and useless in an average. By ``"qe"`` the root of ``v + v'`` leaves a divergence of the
    variance that is logarithmic, invisible at any practical number of paths, and gone when Z_0 is
    integrated out (``conditionally_lognormal``).

    Raises:
        ValueError: if a parameter is not one finite number or out of its range.

    Facts: ``dS_t/dS_0 = S_t / S_0`` and ``dv_t/dS_0 = 0``, by every scheme.

    Closed forms: calls, puts, forwards, digitals, by an integral of the characteristic function.

    Sources: Heston, *A closed-form solution for options with stochastic volatility*, Rev. Financ.
    Stud. 6 (1993); Andersen, *Simple and efficient simulation of the Heston stochastic volatility
    model*, J. Comput. Finance 11 (2008).

    Example:
        >>> from sdesens.models import Heston
        >>> Heston(rate=0.03, kappa=1.5, theta=0.04, xi=0.3, rho=-0.7).state
        ('spot', 'variance')
    """

    state = ("spot", "variance")
    sde_type, noise_type = "ito", "general"
    schemes = ("qe",)
    starts: Mapping[str, str] = {"spot": "positive", "variance": "nonnegative"}
    conditionally_lognormal: Mapping[str, tuple[str, int]] = {"qe": ("spot", 0)}

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
        check_number("rate", self.rate)
        check_number("dividend", self.dividend)
        check_number("rho", self.rho, -1, 1)
        for name in ("kappa", "theta", "xi"):
            check_number(name, getattr(self, name), 0)

    @property
    def is_singular(self) -> bool:
        """Whether ``|rho| = 1``, where nothing has a pathwise derivative in rho."""
        return abs(self.rho.item()) == 1

    def drift(self, t: Tensor, spot: Tensor, variance: Tensor):
        """``(r - q) S``, ``kappa (theta - v)``."""
        return (self.rate - self.dividend) * spot, self.kappa * (self.theta - variance)

    def diffusion(self, t: Tensor, spot: Tensor, variance: Tensor):
        """Rows of spot and variance on two independent Brownian motions."""
        root = positive_sqrt(variance)
        rest = (1 - self.rho**2).sqrt()
        return (root * spot, 0.0), (self.xi * self.rho * root, self.xi * rest * root)

    def step_qe(self, t: Tensor, dt: Tensor, normals: Tensor, spot: Tensor, variance: Tensor):
        """Andersen's step, the martingale correction where it exists."""
        exponent, _, new = self._qe(dt, normals[1], variance)
        spread = (0.5 * dt).sqrt() * (1 - self.rho**2).sqrt() * positive_sqrt(variance + new)
        return spot * torch.exp(exponent + spread * normals[0]), new

    def exponent_qe(self, t: Tensor, dt: Tensor, normals: Tensor, spot: Tensor, variance: Tensor):
        """Mean and variance of the spot's log-return in a step, given ``v'``."""
        return self._qe(dt, normals[1], variance)[:2]

    def _qe(self, dt: Tensor, z: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and variance of the log-return given ``v'``, and ``v'``."""
        kappa, theta, xi, rho = self.kappa, self.theta, self.xi, self.rho
        step = QuadraticExponential(kappa, theta, xi, dt, z, variance)
        v, new = variance, step.value
        K3 = 0.5 * dt * (1 - rho**2)  # and K4
        # xi K2, and xi (K2 + K4 / 2), the exponent of v' in the expectation that corrects.
        k2 = rho * (1 + 0.5 * kappa * dt) - 0.25 * xi * dt
        k = k2 + 0.5 * xi * K3
        some_xi = xi.masked_fill(xi == 0, 1.0)  # where it is 0 nothing that is taken divides by it

        size = torch.where(step.quadratic, 2 * k * xi * step.curve, k / some_xi * step.scale)
        exists = size < 1
        size = size.masked_fill(~exists, 0.0)
        room = 1 - size
        # K2 v' - log E exp((K2 + K4 / 2) v'), of which the parts of order 1 / xi cancel.
        square = (
            k2 * step.slope * z * 2
            + k2 * xi * step.curve * z**2
            - 0.5 * K3 * step.centre
            - 2 * k**2 * step.curve * step.centre / room
            + 0.5 * torch.log(room)
        )
        exponential = k2 / some_xi * new - torch.log1p(step.above * size / room)
        corrected = torch.where(step.quadratic, square, exponential) - 0.5 * K3 * v
        slow = 0.5 * dt * (kappa * rho / some_xi - 0.5)
        plain = (
            (slow + rho / some_xi) * new
            + (slow - rho / some_xi) * v
            - rho * kappa * theta * dt / some_xi
        )
        exponent = torch.where(exists, corrected, plain) + (self.rate - self.dividend) * dt
        return exponent, K3 * (v + new), new

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
        carry = self.rate - self.dividend
        return (
            carry_tangent(carry, spot, dspot, rate, dividend),
            reversion_tangent(self.kappa, self.theta, variance, dvariance, kappa, theta),
        )

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

    def closed_form(self, payoff: Any, x0: Tensor, maturity: Tensor) -> Tensor | None:
        """Of European payoffs of the spot."""
        if payoff.of not in (None, "spot"):
            return None
        return european_value(
            payoff, _EUROPEAN, x0[0], maturity, self.rate, x0[1], self.kappa, self.theta, self.xi,
            self.rho, dividend=self.dividend,
        )  # fmt: skip
