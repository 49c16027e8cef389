"""Special functions that are smooth, to rounding and in every derivative, at removable limits."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

_SQRT_HALF = math.sqrt(0.5)
_SQRT_2PI = math.sqrt(2 * math.pi)


def ndtr(x: Tensor) -> Tensor:
    """The standard normal distribution function, without cancellation in the lower tail."""
    return 0.5 * torch.erfc(x * -_SQRT_HALF)


def density(x: Tensor) -> Tensor:
    """The standard normal density."""
    return torch.exp(x * x * -0.5) / _SQRT_2PI


def exp_ndtr(a: Tensor, z: Tensor, rest: Tensor) -> Tensor:
    """``exp(a) Phi(z)`` where ``exp(a)`` may overflow; ``rest`` is ``a - z²/2``, computed apart.

    The caller has a form of ``a - z²/2`` in which its two large halves do not cancel.
    """
    below = z < 0
    lower = 0.5 * torch.special.erfcx(torch.where(below, z, -1.0) * -_SQRT_HALF)
    lower = torch.where(below, rest, 0.0).exp() * lower
    upper = torch.where(below, 0.0, a).exp() * ndtr(torch.where(below, 1.0, z))
    return torch.where(below, lower, upper)


def expm1_ratio(x: Tensor) -> Tensor:
    """``(1 - exp(-x)) / x``, 1 at 0, real or complex with a real part that is not negative."""
    small = x.abs() < 0.5
    near = torch.where(small, x, 0.0)
    series = torch.ones_like(near)
    for n in range(17, 1, -1):
        series = 1 - near / n * series
    far = torch.where(small, 1.0, x)
    return torch.where(small, series, (1 - torch.exp(-far)) / far)


def log1p_ratio(x: Tensor) -> Tensor:
    """``log(1 + x) / x``, 1 at 0, real or complex."""
    small = x.abs() < 0.5
    near = torch.where(small, x, 0.0)
    # log(1 + x) = 2 atanh(x / (2 + x)), whose series converges like 9^-n here.
    square = (near / (2 + near)) ** 2
    series = torch.full_like(near, 1 / 39)
    for n in range(37, 0, -2):
        series = 1 / n + square * series
    far = torch.where(small, 1.0, x)
    return torch.where(small, 2 / (2 + near) * series, torch.log(1 + far) / far)


def gauss_legendre(count: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of the rule of ``count`` points on ``[0, 1]``."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return torch.as_tensor((nodes + 1) / 2), torch.as_tensor(weights / 2)


def positive_part(x: Tensor) -> Tensor:
    """``max(x, 0)``, with the derivative 1/2 at 0."""
    return 0.5 * (x + x.abs())


def step(x: Tensor) -> Tensor:
    """``1{x > 0}``, 1/2 at 0; its derivative is 0."""
    return 0.5 * (1.0 + torch.sign(x))


def panels(number: int, count: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights on ``[0, 1]`` of ``number`` equal panels of ``count`` points each."""
    nodes, weights = gauss_legendre(count)
    starts = torch.arange(number, dtype=torch.float64).unsqueeze(-1)
    return ((starts + nodes) / number).flatten(), (weights / number).repeat(number)
