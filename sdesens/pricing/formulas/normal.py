r"""Undiscounted prices on a normal value (Bachelier): from its mean and standard deviation.

``X = m + s Z`` with ``Z`` standard normal. With ``d = (m - K) / s``,

.. math:: E(X - K)^+ = (m - K) Φ(d) + s φ(d), \qquad P(X > K) = Φ(d).

Recorded into compiled kernels like those of :mod:`.lognormal`: elementwise torch operations only,
no checks, float32 or float64, any shapes that broadcast, numbers beside tensors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdesens.pricing.formulas._special import density, ndtr, positive_part, step
from sdesens.pricing.formulas.lognormal import FAR, as_tensors
from sdesens.sde import Number


def normal_call(mean: Number, strike: Number, stdev: Number) -> Tensor:
    """``E(X - K)^+`` for a normal ``X``.

    Args:
        mean: mean m of ``X``, of either sign.
        strike: strike K, in units of m.
        stdev: standard deviation s of ``X``, in units of m.

    Returns:
        The dtype and the broadcast shape of the arguments.

    At ``stdev = 0``, or more than 40 standard deviations from the strike, it is the intrinsic
    value ``max(m - K, 0)``: its derivative in m is ``1{m > K}``, 1/2 at the money, and the one in
    ``stdev`` is 0. NaN stays NaN.

    Source: Bachelier, *Théorie de la spéculation*, Ann. Sci. École Norm. Sup. 17 (1900).

    Example:
        >>> from sdesens.pricing.formulas import normal_call
        >>> round(normal_call(100.0, 100.0, 20.0).item(), 6)
        7.978846
    """
    m, K, s, limit, d = _prepare(mean, strike, stdev)
    return torch.where(limit, positive_part(m - K), (m - K) * ndtr(d) + s * density(d))


def normal_put(mean: Number, strike: Number, stdev: Number) -> Tensor:
    """``E(K - X)^+`` for a normal ``X``, not through parity: small values keep their digits.

    Args, limits and source: those of :func:`normal_call`; intrinsic value ``max(K - m, 0)``.

    Example:
        >>> from sdesens.pricing.formulas import normal_put
        >>> round(normal_put(120.0, 100.0, 20.0).item(), 6)
        1.666309
    """
    m, K, s, limit, d = _prepare(mean, strike, stdev)
    return torch.where(limit, positive_part(K - m), (K - m) * ndtr(-d) + s * density(d))


def normal_digital_call(mean: Number, strike: Number, stdev: Number) -> Tensor:
    """``P(X > K)`` for a normal ``X``.

    Args, limits and source: those of :func:`normal_call`; the limit is ``1{m > K}``, 1/2 at the
    money, with derivative 0.

    Example:
        >>> from sdesens.pricing.formulas import normal_digital_call
        >>> round(normal_digital_call(110.0, 100.0, 20.0).item(), 6)
        0.691462
    """
    m, K, _, limit, d = _prepare(mean, strike, stdev)
    return torch.where(limit, step(m - K), ndtr(d))


def normal_digital_put(mean: Number, strike: Number, stdev: Number) -> Tensor:
    """``P(X < K)`` for a normal ``X``.

    Args, limits and source: those of :func:`normal_digital_call`; the limit is ``1{m < K}``.

    Example:
        >>> from sdesens.pricing.formulas import normal_digital_put
        >>> round(normal_digital_put(110.0, 100.0, 20.0).item(), 6)
        0.308538
    """
    m, K, _, limit, d = _prepare(mean, strike, stdev)
    return torch.where(limit, step(K - m), ndtr(-d))


def normal_asset_digital_call(mean: Number, strike: Number, stdev: Number) -> Tensor:
    """``E(X 1{X > K})`` for a normal ``X``.

    Args, limits and source: those of :func:`normal_call`; the limit is ``m 1{m > K}``, m/2 at the
    money, with the derivative ``1{m > K}`` in m.

    Example:
        >>> from sdesens.pricing.formulas import normal_asset_digital_call
        >>> round(normal_asset_digital_call(100.0, 100.0, 20.0).item(), 6)
        57.978846
    """
    m, K, s, limit, d = _prepare(mean, strike, stdev)
    return torch.where(limit, m * step(m - K), m * ndtr(d) + s * density(d))


def normal_asset_digital_put(mean: Number, strike: Number, stdev: Number) -> Tensor:
    """``E(X 1{X < K})`` for a normal ``X``.

    Args, limits and source: those of :func:`normal_asset_digital_call`; limit ``m 1{m < K}``.

    Example:
        >>> from sdesens.pricing.formulas import normal_asset_digital_put
        >>> round(normal_asset_digital_put(100.0, 100.0, 20.0).item(), 6)
        42.021154
    """
    m, K, s, limit, d = _prepare(mean, strike, stdev)
    return torch.where(limit, m * step(K - m), m * ndtr(-d) - s * density(d))


def _prepare(mean: Number, strike: Number, stdev: Number) -> list[Tensor]:
    """The arguments, where the limit of no deviation is taken, and ``d``, harmless there."""
    m, K, s = as_tensors(mean, strike, stdev)
    limit = (m - K).abs() >= FAR * s
    d = torch.where(limit, 0.0, m - K) / torch.where(limit, 1.0, s)
    return [m, K, s, limit, d]
