r"""The exponent of integrated square-root diffusions, shared by Cox-Ingersoll-Ross and Heston.

For ``dv = (kappa theta - beta v) dt + xi sqrt(v) dW``,

.. math:: E \exp\Bigl(-\frac a2 \int_0^T v_t dt\Bigr) = e^{θ A + v_0 B}, \qquad
    d = \sqrt{β^2 + a ξ^2},

also for complex ``a`` and ``beta``. Written so that nothing divides by ``xi`` or ``d``: with
``E = (1 - exp(-d T)) / d`` and ``x = -a xi² E / (2 (beta + d))``,

.. math:: B = \frac{-a E}{β E + 1 + e^{-dT}}, \qquad
    A = -\frac{κ a}{β + d} \Bigl[T - E \frac{\log(1 + x)}{x}\Bigr],

where ``1 + x`` is ``(1 - g exp(-d T)) / (1 - g)`` of the "little trap" form, whose logarithm stays
on its principal branch.

Source: Albrecher, Mayer, Schoutens and Tistaert, *The little Heston trap*, Wilmott Mag. (2007).
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdesens.pricing.formulas._special import expm1_ratio, log1p_ratio

SMALLEST_XI = 1e-8


def exponents(
    a: Tensor, beta: Tensor, kappa: Tensor, xi: Tensor, maturity: Tensor
) -> tuple[Tensor, Tensor]:
    """``A`` and ``B``; ``beta`` and ``xi`` must not both be 0."""
    d = torch.sqrt(beta**2 + a * xi**2)
    E = maturity * expm1_ratio(d * maturity)
    x = -0.5 * a * xi**2 * E / (beta + d)
    A = -kappa * a / (beta + d) * (maturity - E * log1p_ratio(x))
    B = -a * E / (beta * E + 1 + torch.exp(-d * maturity))
    return A, B


def nonzero_xi(kappa: Tensor, xi: Tensor) -> Tensor:
    """``xi``, or at ``kappa = xi = 0``, where the formula is 0/0, so little more that none sees."""
    return torch.where((kappa == 0) & (xi == 0), xi + SMALLEST_XI, xi)
