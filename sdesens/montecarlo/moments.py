"""Means and covariances that add up from shards."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from sdesens.fused.kernel import Moments


def merge(a: Moments, b: Moments) -> Moments:
    """The moments of both sets of paths together.

    Source: Chan, Golub and LeVeque, *Updating formulae and a pairwise algorithm for computing
    sample variances*, COMPSTAT 1982.
    """
    count = a.count + b.count
    step = b.mean - a.mean
    mean = a.mean + step * (b.count / count)
    outer = step[:, None] * step[None, :]
    return Moments(count, mean, a.products + b.products + outer * (a.count * b.count / count))


def merge_all(parts: Iterable[Moments]) -> Moments:
    """The moments of all parts, merged in their order.

    The bits then do not depend on who made the parts, or when.
    """
    total = None
    for part in parts:
        total = part if total is None else merge(total, part)
    if total is None:
        raise ValueError("there is nothing to merge.")
    return total


def standard_error(moments: Moments) -> Tensor:
    """Of the means, ``(K,)``."""
    n = moments.count
    return (moments.products.diagonal().clamp(min=0) / (n - 1) / n).sqrt()


def raise_if_not_finite(moments: Moments) -> None:
    """Raise :class:`ArithmeticError` if a mean or a variance is not finite."""
    if not bool(torch.isfinite(moments.mean).all() and torch.isfinite(moments.products).all()):
        raise ArithmeticError(
            "a mean or a variance is not finite: some path or derivative is not. Run its paths by "
            "sensitivities(), which names the first time and sample; use more steps, or check "
            "roots and logarithms at zero."
        )
