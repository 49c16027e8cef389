"""The quadratic-exponential step of Andersen for a square-root variance."""

from __future__ import annotations

import torch
from torch import Tensor

from sdesens.autodiff import positive_sqrt
from sdesens.models._functions import decay, normal_tail

SWITCH = 1.5  # of psi, as in the paper


class QuadraticExponential:
    r"""One step of ``dv = kappa (theta - v) dt + xi sqrt(v) dW`` that has the exact mean m and
    variance s² of the transition.

    With ``psi = s² / m²`` the new variance is a square for ``psi <= 1.5``, and otherwise 0 with
    probability p and exponential above, found from the normal number z by its distribution:

    .. math::

        v' = a (b + z)^2 \qquad \text{or} \qquad
        v' = \tfrac1β \Bigl(\log\frac{1 - p}{Φ(-z)}\Bigr)^+

    a and b are written in ``spread = s / xi``, so that nothing is divided by xi, and with
    ``B = 2 - psi + sqrt(4 - 2 psi)`` for ``b² = B / psi``: all is smooth at ``xi = 0`` and at
    ``v = 0`` (unless nothing pulls it off: there it stays, with derivative 0).

    Attributes:
        value: v', at least 0.
        quadratic: whether it is the square.
        centre, slope, curve: ``a b²``, ``a b / xi`` and ``a / xi²`` of the square.
        scale, above: ``1 / β`` and ``1 - p`` of the exponential.

    Source: Andersen, *Simple and efficient simulation of the Heston stochastic volatility model*,
    J. Comput. Finance 11 (2008), sections 3.2 and 4.
    """

    def __init__(
        self, kappa: Tensor, theta: Tensor, xi: Tensor, dt: Tensor, z: Tensor, v: Tensor
    ) -> None:
        kept, pull = torch.exp(-kappa * dt), decay(kappa, dt)
        m = v * kept + kappa * theta * pull
        spread2 = v * (kept * pull) + 0.5 * kappa * theta * pull**2
        stuck = m <= 0
        m = m.masked_fill(stuck, 1.0)
        ratio = spread2 / m
        psi = xi**2 * ratio / m
        self.quadratic = psi <= SWITCH

        low = psi.masked_fill(~self.quadratic, 1.0)
        B = 2 - low + (4 - 2 * low).sqrt()
        whole, root = low + B, B.sqrt()
        spread = positive_sqrt(spread2)
        self.centre = (m * B / whole).masked_fill(stuck, 0.0)
        self.slope = spread * root / whole
        self.curve = ratio / whole
        square = m / whole * (root + xi * spread / m * z) ** 2

        high = psi.masked_fill(self.quadratic, 2.0)
        self.scale = 0.5 * m * (high + 1)
        self.above = 2 / (high + 1)
        exponential = self.scale * torch.relu(torch.log(self.above / normal_tail(z)))

        self.value = torch.where(self.quadratic, square, exponential).masked_fill(stuck, 0.0)
