"""The square root of the positive part, with a derivative that is finite at and below zero."""

from __future__ import annotations

from torch import Tensor

from sdesens._checks import check_tensor


def positive_sqrt(v: Tensor) -> Tensor:
    r"""``sqrt(max(v, 0))``, whose derivative is 0 for ``v <= 0`` and ``1 / (2 sqrt(v))`` above.

    A square-root variance that an Euler step has carried to zero or below diffuses no more, and a
    small bump of it changes nothing; that is the derivative taken here. Made of plain torch
    operations, it has every order of derivative in reverse and forward mode and under
    ``torch.func``; none is NaN, and none is infinite unless the true value overflows the dtype.

    Wrong in circulation: ``torch.where(v > 0, v.sqrt(), 0.)`` has the derivative NaN at and below
    zero, since the branch not taken is differentiated too (0 times inf); ``v.clamp(min=0).sqrt()``
    has inf at zero, and NaN below it in forward mode.

    Args:
        v: any shape, floating dtype.

    Returns:
        Of the shape, dtype and device of ``v``. NaN stays NaN, ``inf`` stays ``inf``.

    Raises:
        TypeError: ``v`` is not a floating tensor.

    Example:
        >>> import torch
        >>> v = torch.tensor([-0.01, 0.0, 0.04], dtype=torch.float64, requires_grad=True)
        >>> (gradient,) = torch.autograd.grad(positive_sqrt(v).sum(), v)
        >>> gradient
        tensor([0.0000, 0.0000, 2.5000], dtype=torch.float64)
    """
    check_tensor("v", v)
    # `v <= 0` rather than `~(v > 0)`, so that NaN is handed on rather than turned into 0. The
    # filling before the root keeps the infinite slope at zero out of the graph.
    floored = v <= 0
    return v.masked_fill(floored, 1.0).sqrt().masked_fill(floored, 0.0)
