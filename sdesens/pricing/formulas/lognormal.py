r"""Undiscounted prices on a lognormal value: from its mean and total standard deviation.

``X = F exp(s Z - s²/2)`` with ``Z`` standard normal. With ``d1 = log(F/K) / s + s/2`` and
``d2 = d1 - s``,

.. math:: E(X - K)^+ = F Φ(d_1) - K Φ(d_2), \qquad P(X > K) = Φ(d_2).

These functions are recorded into compiled kernels: elementwise torch operations only, no checks,
float32 or float64, any shapes that broadcast, numbers beside tensors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdesens.pricing.formulas._special import ndtr, positive_part, step
from sdesens.sde import Number

FAR = 40.0  # standard deviations beyond which a normal tail is 0 in float64


def lognormal_call(forward: Number, strike: Number, stdev: Number) -> Tensor:
    """``E(X - K)^+`` for a lognormal ``X``.

    Args:
        forward: mean F of ``X``.
        strike: strike K, in units of F.
        stdev: standard deviation s of ``log X``, that is ``sigma sqrt(T)``.

    Returns:
        The dtype and the broadcast shape of the arguments.

    At ``stdev = 0``, or more than 40 standard deviations from the strike, or where forward or
    strike is not positive, it is the intrinsic value ``max(F - K, 0)``: its derivative in F is
    ``1{F > K}``, 1/2 at the money, and the one in ``stdev`` is 0. NaN stays NaN.

    Source: Black, *The pricing of commodity contracts*, J. Financ. Econ. 3 (1976).

    Example:
        >>> from sdesens.pricing.formulas import lognormal_call
        >>> round(lognormal_call(100.0, 100.0, 0.2).item(), 6)
        7.965567
    """
    F, K, s, limit = _prepare(forward, strike, stdev)
    d1, d2 = _d1_d2(F, K, s, limit)
    return torch.where(limit, positive_part(F - K), F * ndtr(d1) - K * ndtr(d2))


def lognormal_put(forward: Number, strike: Number, stdev: Number) -> Tensor:
    """``E(K - X)^+`` for a lognormal ``X``, not through parity: small values keep their digits.

    Args, limits and source: those of :func:`lognormal_call`; intrinsic value ``max(K - F, 0)``.

    Example:
        >>> from sdesens.pricing.formulas import lognormal_put
        >>> round(lognormal_put(120.0, 100.0, 0.2).item(), 6)
        2.147299
    """
    F, K, s, limit = _prepare(forward, strike, stdev)
    d1, d2 = _d1_d2(F, K, s, limit)
    return torch.where(limit, positive_part(K - F), K * ndtr(-d2) - F * ndtr(-d1))


def lognormal_digital_call(forward: Number, strike: Number, stdev: Number) -> Tensor:
    """``P(X > K)`` for a lognormal ``X``.

    Args, limits and source: those of :func:`lognormal_call`; the limit is ``1{F > K}``, 1/2 at the
    money, with derivative 0.

    Example:
        >>> from sdesens.pricing.formulas import lognormal_digital_call
        >>> round(lognormal_digital_call(100.0, 100.0, 0.2).item(), 6)
        0.460172
    """
    F, K, s, limit = _prepare(forward, strike, stdev)
    _, d2 = _d1_d2(F, K, s, limit)
    return torch.where(limit, step(F - K), ndtr(d2))


def lognormal_digital_put(forward: Number, strike: Number, stdev: Number) -> Tensor:
    """``P(X < K)`` for a lognormal ``X``.

    Args, limits and source: those of :func:`lognormal_digital_call`; the limit is ``1{F < K}``.

    Example:
        >>> from sdesens.pricing.formulas import lognormal_digital_put
        >>> round(lognormal_digital_put(100.0, 100.0, 0.2).item(), 6)
        0.539828
    """
    F, K, s, limit = _prepare(forward, strike, stdev)
    _, d2 = _d1_d2(F, K, s, limit)
    return torch.where(limit, step(K - F), ndtr(-d2))


def lognormal_asset_digital_call(forward: Number, strike: Number, stdev: Number) -> Tensor:
    """``E(X 1{X > K})`` for a lognormal ``X``.

    Args, limits and source: those of :func:`lognormal_call`; the limit is ``F 1{F > K}``, F/2 at
    the money, with the derivative ``1{F > K}`` in F.

    Example:
        >>> from sdesens.pricing.formulas import lognormal_asset_digital_call
        >>> round(lognormal_asset_digital_call(100.0, 100.0, 0.2).item(), 6)
        53.982784
    """
    F, K, s, limit = _prepare(forward, strike, stdev)
    d1, _ = _d1_d2(F, K, s, limit)
    return torch.where(limit, F * step(F - K), F * ndtr(d1))


def lognormal_asset_digital_put(forward: Number, strike: Number, stdev: Number) -> Tensor:
    """``E(X 1{X < K})`` for a lognormal ``X``.

    Args, limits and source: those of :func:`lognormal_asset_digital_call`; limit ``F 1{F < K}``.

    Example:
        >>> from sdesens.pricing.formulas import lognormal_asset_digital_put
        >>> round(lognormal_asset_digital_put(100.0, 100.0, 0.2).item(), 6)
        46.017216
    """
    F, K, s, limit = _prepare(forward, strike, stdev)
    d1, _ = _d1_d2(F, K, s, limit)
    return torch.where(limit, F * step(K - F), F * ndtr(-d1))


def as_tensors(*values: Number) -> list[Tensor]:
    """Numbers as tensors like the first tensor among ``values``; float64 if there is none."""
    like = next((v for v in values if isinstance(v, Tensor)), torch.zeros((), dtype=torch.float64))
    return [v if isinstance(v, Tensor) else torch.full_like(like, v) for v in values]


def _prepare(forward: Number, strike: Number, stdev: Number) -> list[Tensor]:
    """The arguments, and where the limit of no deviation is taken."""
    F, K, s = as_tensors(forward, strike, stdev)
    # No derivative passes through a comparison, so the NaN of this logarithm does no harm; written
    # as `>=`, a NaN of the arguments is not taken for a limit.
    far = torch.log(F / K).abs() >= s * (FAR + 0.5 * s.abs())
    return [F, K, s, far | (F <= 0) | (K <= 0)]


def _d1_d2(F: Tensor, K: Tensor, s: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    """``d1`` and ``d2``; at a limit those of harmless arguments, so that no NaN comes back."""
    F, K, s = (torch.where(limit, 1.0, v) for v in (F, K, s))
    log_moneyness = torch.log(F / K) / s
    return log_moneyness + 0.5 * s, log_moneyness - 0.5 * s
