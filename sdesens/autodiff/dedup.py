"""An expensive function evaluated once for each distinct value, with the right gradients."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from sdesens._checks import check_tensor
from sdesens.autodiff._rows import Jet, RowFunction, distinct_rows, lift_rows, weigh


def unique_map(fn: Callable[[Tensor], Tensor], x: Tensor, *, dim: int | None = None) -> Tensor:
    r"""``fn(x)``, with ``fn`` evaluated once for each distinct element, or row, of ``x``.

    ``fn`` is called once, on the distinct values alone, and differentiated there. With ``u`` the
    distinct values and ``x = u[inverse]``, the gradient of an element is its own upstream times
    ``fn'(u)[inverse]``. Every order of derivative in ``x``, reverse and forward mode,
    ``is_grads_batched`` and ``torch.func`` are right, and so are the gradients of tensors that
    ``fn`` closes over. Under ``vmap`` the whole batch is deduplicated together; where ``fn`` closes
    over a tensor that a ``torch.func`` transform acts on, this is plain ``fn(x)``.

    Two elements are the same if their bits are. So ``-0.0`` and ``0.0`` are two values (``1/x``
    tells them apart), equal NaNs are one, and no element ever gets the value of another.

    With ``dim=0`` and ``g`` outputs a row, the derivative costs ``g`` pullbacks of the distinct
    rows: it saves time where ``g`` times their number is below ``len(x)``. Where nothing repeats,
    this is ``fn(x)`` and the cost of a sort.

    Wrong in circulation: ``fn(x[first])[inverse]``, with ``first`` a representative of each value,
    puts the gradient of all equal elements on that one: for ``sum(w x^2)`` at ``x = [2, 1, 2]``,
    ``w = [1, 10, 100]`` it gives ``[404, 20, 0]`` for ``[4, 20, 400]``. A ``bincount`` of the
    upstream gives every member the sum of its group.

    Args:
        fn: with ``dim=None`` elementwise, ``(U,) -> (U,)``; with ``dim=0`` row by row,
            ``(U, *row) -> (U, *out)``. What it gives for an element or row must depend on that one
            alone. Anything autograd can trace, or a
            :func:`~sdesens.autodiff.custom_gradient` operator.
        x: float32 or float64; any shape for ``dim=None``, ``(N, *row)`` for ``dim=0``. For an
            elementwise map of an empty ``x``, ``fn`` is not called.
        dim: ``None`` or 0.

    Returns:
        The shape of ``x`` for ``dim=None``, ``(N, *out)`` for ``dim=0``; dtype as ``fn`` gives it.

    Raises:
        TypeError: ``x`` is not a floating tensor, or ``fn`` does not return one.
        ValueError: ``dim`` is neither ``None`` nor 0, ``x`` has no rows, or ``fn`` returns a shape
            that does not belong to its input.
        UnsupportedError: in a backward pass through the gradient of a tensor that ``fn`` closes
            over, when it would reach ``x``; the other order, ``x`` first, is available.

    Example:
        >>> import torch
        >>> x = torch.tensor([2.0, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
        >>> w = torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64)
        >>> y = unique_map(lambda u: u**2, x)
        >>> torch.autograd.grad((w * y).sum(), x)
        (tensor([  4.,  20., 400.], dtype=torch.float64),)
    """
    check_tensor("x", x)
    _check_dim("x", dim, x)
    if dim is None and x.numel() == 0:
        return x.exp()  # as empty, and with as many derivatives, as any function of x
    lead = x.shape if dim is None else x.shape[:1]
    rows = x.reshape(-1, 1) if dim is None else x.reshape(len(x), x.shape[1:].numel())
    row_fn = RowFunction(fn, None if dim is None else x.shape[1:])
    return lift_rows(row_fn, rows).reshape(lead + row_fn.out)


def distinct(x: Tensor, *, dim: int | None = None) -> tuple[Tensor, Tensor]:
    """The distinct elements or rows of ``x``, and where each element of ``x`` is among them.

    Like ``torch.unique(return_inverse=True)``, except that elements are the same if their bits are
    (``-0.0`` and ``0.0`` are two values, equal NaNs one) and that rows without entries, and no
    rows, are fine. Positive values come in increasing order. Neither result has a derivative.

    Args:
        x: any shape for ``dim=None``, ``(N, *row)`` for ``dim=0``; floating dtype.
        dim: ``None`` for elements, 0 for rows.

    Returns:
        ``(U,)`` and ``x.shape``, or ``(U, *row)`` and ``(N,)``: ``values[inverse]`` equals ``x``.

    Raises:
        TypeError: ``x`` is not a floating tensor.
        ValueError: ``dim`` is neither ``None`` nor 0, or ``x`` has no rows.

    Example:
        >>> import torch
        >>> values, inverse = distinct(torch.tensor([[2.0, 3.0], [1.0, 1.0], [2.0, 3.0]]), dim=0)
        >>> inverse
        tensor([1, 0, 1])
    """
    check_tensor("x", x)
    _check_dim("x", dim, x)
    x = x.detach()
    lead = x.shape if dim is None else x.shape[:1]
    row = x.shape[len(lead) :]
    values, inverse = distinct_rows(x.reshape(lead.numel(), row.numel()))
    return values.reshape(len(values), *row), inverse.reshape(lead)


def unique_vjp(
    fn: Callable[[Tensor], Tensor],
    unique: Tensor,
    inverse: Tensor,
    upstream: Tensor,
    *,
    dim: int | None = None,
) -> Tensor:
    """The gradient of ``fn(unique)[inverse]`` for each element, given the one upstream of it.

    The first derivative of :func:`unique_map` without a custom Function, for use in a hand-written
    backward pass: ``upstream * fn'(unique)[inverse]``, with ``fn'`` evaluated on the distinct
    values once. It is linear in ``upstream`` and differentiable in that alone.

    Wrong in circulation: ``index_add`` or ``bincount`` of ``upstream`` over ``inverse``, gathered
    back, which gives each element the sum of its group.

    Args:
        fn: as in :func:`unique_map`.
        unique: the distinct values, ``(U,)``, or ``(U, *row)`` for ``dim=0``.
        inverse: index into ``unique`` of each element, any shape, or ``(N,)`` for ``dim=0``.
        upstream: the gradient at the output: the shape of ``inverse``, or ``(N, *out)``.
        dim: ``None`` or 0.

    Returns:
        The shape of ``inverse``, or ``(N, *row)``; the dtype of ``unique``.

    Raises:
        TypeError: ``unique`` or ``upstream`` is not a floating tensor.
        ValueError: ``upstream`` does not have the shape of the output.

    Example:
        >>> import torch
        >>> values, inverse = distinct(torch.tensor([2.0, 1.0, 2.0]))
        >>> unique_vjp(torch.square, values, inverse, torch.tensor([1.0, 10.0, 100.0]))
        tensor([  4.,  20., 400.])
    """
    check_tensor("unique", unique)
    check_tensor("upstream", upstream)
    _check_dim("unique", dim, unique)
    row = None if dim is None else unique.shape[1:]
    row_fn = RowFunction(fn, row)
    points = unique.detach().reshape(len(unique), -1 if row is None else row.numel())
    jet = Jet.of(row_fn, points)
    if upstream.shape != inverse.shape + row_fn.out:
        raise ValueError(
            f"upstream must have the shape of the output, {tuple(inverse.shape + row_fn.out)}, "
            f"got {tuple(upstream.shape)}."
        )
    gradient = weigh(
        upstream.reshape(*inverse.shape, row_fn.out.numel()),
        lambda k: jet.derivative(k, again=False).values.detach()[inverse],
        like=points[inverse],
    )
    return gradient.reshape(inverse.shape + (() if row is None else row))


def _check_dim(name: str, dim: int | None, x: Tensor) -> None:
    if dim not in (None, 0) or isinstance(dim, bool):
        raise ValueError(
            f"dim must be None (elements) or 0 (rows), got {dim!r}. "
            f"Bring the dimension to the front with movedim."
        )
    if dim == 0 and x.dim() == 0:
        raise ValueError(f"{name} must have rows for dim=0, shape (N, ...), got shape ().")
