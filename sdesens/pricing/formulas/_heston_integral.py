r"""What Heston's prices differ by from Black's at the expected variance ``w``.

With ``k = log(F/K)``, characteristic functions of ``log(S_T / F)`` at ``z - i/2`` and
``a = z² + 1/4``, the undiscounted call differs by

.. math:: \frac{\sqrt{FK}}{π} \int_0^∞ \Re\Bigl[e^{izk} \frac{e^{-aw/2} - φ(z - i/2)}{a}\Bigr] dz,

and ``P(S_T > K)`` by minus its derivative in K (Lewis 2000). Along ``z = (1 + i tan ω) sinh(y)/2``
the poles of ``1/a`` are gone from the real axis, and the right angle ``ω`` turns oscillation into
decay. Of three angles that one is taken along which both functions are below rounding first and
nothing grows; the interval ends there, so that one fixed rule serves days and decades.

Source: Lewis, *Option valuation under stochastic volatility* (2000); Andersen and Lake, *Robust
high-precision option pricing by Fourier transforms*, Wilmott Mag. (2019), where the
angle is chosen by the asymptotic slope; that misses small xi and |rho| = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sdesens.pricing.formulas._special import panels
from sdesens.pricing.formulas._square_root import exponents, nonzero_xi

_NODES, _WEIGHTS = panels(16, 24)
_SMALLEST_VARIANCE = 1e-14  # below it the correction is below rounding
_TAN = math.tan(math.pi / 12)
_TRIED = 1 + 1j * torch.tensor([0.0, _TAN, -_TAN], dtype=torch.float64)
_LOG_ROUNDING = -46.0
_LOG_GROWTH = 1.0
_GRID = torch.logspace(0, 10, 101, dtype=torch.float64)  # where the integrand may end


@dataclass(frozen=True)
class HestonLaw:
    """The asset at maturity; ``variance`` is the expected integral of ``v``."""

    forward: Tensor
    strike: Tensor
    maturity: Tensor
    v0: Tensor
    kappa: Tensor
    theta: Tensor
    xi: Tensor
    rho: Tensor
    variance: Tensor

    def option_correction(self) -> Tensor:
        """Of a call and of a put, undiscounted."""
        root = torch.sqrt(self.forward * self.strike)
        return -root * self._integral(lambda z: 1 / (z * z + 0.25))

    def digital_correction(self) -> Tensor:
        """Of ``P(S_T > K)``."""
        root = torch.sqrt(self.forward / self.strike)
        return root * self._integral(lambda z: 1 / (0.5 + 1j * z))

    def _integral(self, factor) -> Tensor:
        """``1/π ∫ Re[exp(izk) (φ - exp(-aw/2)) factor(z)] dz``."""
        limit = self.variance < _SMALLEST_VARIANCE
        law = self._at(limit)
        k = torch.log(self.forward / self.strike).unsqueeze(-1)
        direction, end = law.contour(k)
        y = end * _NODES
        z = 0.5 * torch.sinh(y) * direction
        heston, black = law.logarithms(z, k)
        dz = 0.5 * torch.cosh(y) * end * direction
        integrand = (torch.exp(heston) - torch.exp(black)) * factor(z) * dz
        return torch.where(limit, 0.0, (integrand.real * _WEIGHTS).sum(-1) / math.pi)

    def _at(self, limit: Tensor) -> HestonLaw:
        """The parameters with a last dimension of nodes, and harmless ones at the limit."""
        values = (self.maturity, self.v0, self.kappa, self.theta, self.xi, self.rho, self.variance)
        safe = (1.0, 0.04, 1.0, 0.04, 0.1, 0.0, 0.04)
        T, v0, kappa, theta, xi, rho, w = (
            torch.where(limit, s, v).unsqueeze(-1) for v, s in zip(values, safe, strict=True)
        )
        xi = nonzero_xi(kappa, xi)
        return HestonLaw(self.forward, self.strike, T, v0, kappa, theta, xi, rho, w)

    @torch.no_grad()
    def contour(self, k: Tensor) -> tuple[Tensor, Tensor]:
        """``1 + i tan ω`` and the last ``y`` of the shortest contour along which nothing grows."""
        tried = (_TRIED.unsqueeze(-1) * _GRID).flatten()
        size = torch.maximum(*(log.real for log in self.logarithms(tried, k)))
        size = size.unflatten(-1, (len(_TRIED), len(_GRID)))
        counts = (size > _LOG_ROUNDING).sum(-1) + len(_GRID) * (size > _LOG_GROWTH).any(-1)
        best = counts.argmin(-1, keepdim=True)
        # One step beyond the last point of the grid that counts.
        last = counts.gather(-1, best).clamp(max=len(_GRID) - 1)
        return _TRIED[best], torch.asinh(2 * _GRID[last])

    def logarithms(self, z: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Of ``exp(izk) φ(z - i/2)``, Heston's and Black's."""
        a = z * z + 0.25
        beta = self.kappa - self.rho * self.xi * (1j * z + 0.5)
        A, B = exponents(a, beta, self.kappa, self.xi, self.maturity)
        shift = 1j * z * k
        return shift + self.theta * A + self.v0 * B, shift - 0.5 * a * self.variance
