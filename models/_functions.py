"""What several models are written with, in plain torch, and smooth where a textbook divides by 0.

Nothing here branches on a value, so it is recorded and compiled with the model that calls it; the
branch of a ``where`` that is not taken gets a harmless argument, since it is differentiated too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_TERMS = 12  # of the series, whose remainder at 0.1 is below 1e-20


def check_number(name: str, value: Tensor, low: float = -math.inf, high: float = math.inf) -> None:
    """Raise unless ``value`` is a single number in ``[low, high]``."""
    if value.dim():
        raise ValueError(f"{name} must be a number, got shape {tuple(value.shape)}.")
    check_range(name, value, low, high)


def check_range(name: str, value: Tensor, low: float = -math.inf, high: float = math.inf) -> None:
    """Raise unless every entry of ``value`` is finite and in ``[low, high]``."""
    for entry in value.detach().flatten().tolist():
        if not (low <= entry <= high and math.isfinite(entry)):
            range_ = f"in [{low:g}, {high:g}]" if high < math.inf else f"at least {low:g}"
            raise ValueError(
                f"{name} must be {range_ if low > -math.inf else 'finite'}, got {entry}."
            )


def decay(kappa: Tensor, dt: Tensor) -> Tensor:
    """``(1 - exp(-kappa dt)) / kappa``, the integral of ``exp(-kappa s)``; ``dt`` at kappa = 0."""
    x = kappa * dt
    small = x.abs() < 0.1
    series = torch.ones_like(x)
    for k in range(_TERMS, 1, -1):
        series = 1 - x / k * series
    away = x.masked_fill(small, 1.0)
    return dt * torch.where(small, series, -torch.expm1(-away) / away)


def gaussian_step(
    kappa: Tensor, mean: Tensor, sigma: Tensor, dt: Tensor, z: Tensor, x: Tensor
) -> Tensor:
    """The transition of ``dX = kappa (mean - X) dt + sigma dW`` over ``dt`` with the normal z."""
    return mean + torch.exp(-kappa * dt) * (x - mean) + sigma * decay(2 * kappa, dt).sqrt() * z


def positive_power(x: Tensor, exponent: Tensor) -> Tensor:
    """``x ** exponent`` where ``x > 0``; elsewhere 0, with derivatives 0."""
    floored = x <= 0
    return torch.exp(exponent * x.masked_fill(floored, 1.0).log()).masked_fill(floored, 0.0)


def normal_tail(z: Tensor) -> Tensor:
    """The probability that a standard normal number exceeds ``z``, exact far out too."""
    return 0.5 * torch.erfc(math.sqrt(0.5) * z)


def carry_tangent(
    carry: Tensor, spot: Tensor, dspot: Tensor, drate: Tensor | None, ddividend: Tensor | None
) -> Tensor:
    """The derivative of the drift ``(r - q) S``: ``(r - q) dS + (dr - dq) S``."""
    out = carry * dspot
    if drate is not None:
        out = out + drate * spot
    return out if ddividend is None else out - ddividend * spot


def reversion_tangent(
    kappa: Tensor,
    mean: Tensor,
    x: Tensor,
    dx: Tensor,
    dkappa: Tensor | None,
    dmean: Tensor | None,
) -> Tensor:
    """That of ``kappa (mean - X)``: ``-kappa dX + dkappa (mean - X) + kappa dmean``."""
    out = -kappa * dx
    if dkappa is not None:
        out = out + dkappa * (mean - x)
    return out if dmean is None else out + kappa * dmean
