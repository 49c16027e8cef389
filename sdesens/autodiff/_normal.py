"""The logarithm of the mass of a normal distribution in an interval, with derivatives."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

# Gauss-Legendre on [-1, 1]; with 24 nodes exp(20 x) is integrated to rounding.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def log_normal_mass(mean: Tensor, std: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """``log(Phi((upper - mean) / std) - Phi((lower - mean) / std))``, elementwise.

    Two rules, each a composition of smooth functions of what does not cancel in it: a quadrature
    around the middle where the interval is narrow, a ratio of tails where it is wide. An argument
    of the rule not taken is replaced by a harmless one, so that no NaN comes back through it.
    """
    unbounded_below, unbounded_above = lower.isneginf(), upper.isposinf()
    bounded = ~(unbounded_below | unbounded_above)
    half = torch.where(bounded, (upper - lower) / 2, 1.0) / std
    middle = (torch.where(bounded, lower + (upper - lower) / 2, 0.0) - mean) / std
    narrow = bounded & (half <= 0.5) & (half * middle.abs() <= 20.0)

    quadrature = _by_quadrature(torch.where(narrow, middle, 0.0), torch.where(narrow, half, 0.5))

    a = (torch.where(unbounded_below, 0.0, lower) - mean) / std
    b = (torch.where(unbounded_above, 0.0, upper) - mean) / std
    # Reflected, if need be, into the upper half, where the tail beyond `near` is the larger one.
    reflect = torch.where(bounded, middle < 0, unbounded_below & ~unbounded_above)
    near, far = torch.where(reflect, -b, a), torch.where(reflect, -a, b)
    no_near = torch.where(reflect, unbounded_above, unbounded_below)
    no_far = torch.where(reflect, unbounded_below, unbounded_above)
    tails = _by_tails(
        torch.where(narrow | no_near, 0.0, near), torch.where(narrow | no_far, 1.0, far), no_far
    )
    return torch.where(narrow, quadrature, torch.where(no_near, 0.0, tails))


def _by_quadrature(middle: Tensor, half: Tensor) -> Tensor:
    """The integral of the density over ``middle +- half``, relative to the density at middle."""
    nodes = torch.as_tensor(_NODES, dtype=middle.dtype, device=middle.device)
    weights = torch.as_tensor(_WEIGHTS, dtype=middle.dtype, device=middle.device)
    s = half.unsqueeze(-1) * nodes
    exponent = -s * (middle.unsqueeze(-1) + s / 2)
    integral = (weights * exponent.exp()).sum(-1) * half
    return integral.log() - middle * middle / 2 - _LOG_SQRT_2PI


def _by_tails(near: Tensor, far: Tensor, no_far: Tensor) -> Tensor:
    """``log(Phi(-near) - Phi(-far))``; where ``no_far``, the second term is none."""
    log_near = log_ndtr(-near)
    ratio = torch.exp(log_ndtr(-far) - log_near)
    return log_near + torch.log1p(-torch.where(no_far, 0.0, ratio))


def log_ndtr(x: Tensor) -> Tensor:
    """``log Phi(x)``, twice differentiable on both sides and under vmap.

    The second derivative of torch's own is NaN far above zero, and it has no batching rule.
    """
    above = x > 0
    upper = torch.log1p(-0.5 * torch.erfc(torch.where(above, x, 1.0) * math.sqrt(0.5)))
    below = torch.where(above, -1.0, x)
    lower = torch.log(0.5 * torch.special.erfcx(below * -math.sqrt(0.5))) - 0.5 * below * below
    return torch.where(above, upper, lower)
