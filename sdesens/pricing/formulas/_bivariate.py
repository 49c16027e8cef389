"""The bivariate normal distribution function, differentiable in every argument."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdesens.pricing.formulas._special import ndtr, panels, positive_part

_NODES, _WEIGHTS = panels(6, 32)


def bivariate_ndtr(h: Tensor, k: Tensor, rho: Tensor) -> Tensor:
    r"""``P(X < h, Y < k)`` for standard normal ``X`` and ``Y`` of correlation ``rho``.

    .. math:: Φ(h) Φ(k) + \frac{±1}{2π} \int_{\arccos |ρ|}^{π/2}
        \exp\Bigl(-\frac{(h ∓ k)^2}{2 \sin^2 φ} ∓ \frac{h k}{1 + \cos φ}\Bigr) dφ,

    with the sign of ``rho``, by Gauss-Legendre in ``log φ``: near ``|rho| = 1`` the integrand
    changes over ``φ`` of the order of ``h ∓ k``, whatever that is. At ``rho = ±1`` it is
    the limit, whose derivative in ``rho`` is taken as 0.

    Source: Drezner and Wesolowsky, *On the computation of the bivariate normal integral*, J. Stat.
    Comput. Simul. 35 (1990), in the form of Genz, Stat. Comput. 14 (2004).
    """
    sign = torch.where(rho < 0, -torch.ones_like(rho), 1.0)
    edge = rho * sign >= 1
    lower = torch.log(torch.acos(torch.where(edge, 0.0, rho * sign)))
    width = (math.log(math.pi / 2) - lower).unsqueeze(-1)
    phi = torch.exp(lower.unsqueeze(-1) + width * _NODES)
    h_, k_, s_ = h.unsqueeze(-1), k.unsqueeze(-1), sign.unsqueeze(-1)
    exponent = -0.5 * ((h_ - s_ * k_) / torch.sin(phi)) ** 2 - s_ * h_ * k_ / (1 + torch.cos(phi))
    integral = (torch.exp(exponent) * phi * _WEIGHTS * width).sum(-1)
    inside = ndtr(h) * ndtr(k) + sign * integral / (2 * math.pi)
    # Y = X or Y = -X: the mass below both, or between -k and h.
    at_edge = torch.where(rho > 0, ndtr(torch.minimum(h, k)), positive_part(ndtr(h) - ndtr(-k)))
    return torch.where(edge, at_edge, inside)
