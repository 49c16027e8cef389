"""The operator behind ``unique_map``: values gathered from distinct rows, lifted onto all rows.

Elements are rows of one entry, so that there is one rule. Let ``x`` be ``(..., F)`` with
``x = u[inverse]``, ``u`` the ``(U, F)`` distinct rows and ``V = fn(u)``, ``(U, G)``. The lift of
``V`` is ``V[inverse]`` as a function of ``x``, and its derivative in ``x`` is made of lifts again,
those of ``dV_k/du``, so that every order follows from one rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from sdesens._checks import is_transformed
from sdesens.autodiff._closures import FirstOrderOnly, reaches_other_leaf
from sdesens.autodiff._transforms import (
    SeesTransformError,
    batch_first,
    below_transforms,
    carries_derivative,
    differentiable_jvp,
    functorch_batched,
    is_dual,
)


class RowFunction:
    """``fn`` as a map from rows ``(U, F)`` to rows ``(U, G)``; ``out`` is the shape of one result.

    ``row`` is the shape in which ``fn`` wants one row, ``None`` for an elementwise ``fn``.
    """

    def __init__(self, fn: Callable[[Tensor], Tensor], row: torch.Size | None) -> None:
        self.fn, self.row, self.out = fn, row, torch.Size()

    def __call__(self, u: Tensor) -> Tensor:
        n = len(u)
        values = self.fn(u[:, 0] if self.row is None else u.reshape(n, *self.row))
        if not isinstance(values, Tensor) or not values.is_floating_point():
            got = values.dtype if isinstance(values, Tensor) else type(values).__name__
            raise TypeError(f"fn must return a tensor of floating dtype, got {got}.")
        if self.row is None and values.shape != (n,):
            raise ValueError(
                f"fn must be elementwise, and return shape ({n},) for the {n} distinct values, "
                f"got {tuple(values.shape)}. For a function of rows use dim=0."
            )
        if values.shape[:1] != (n,):
            raise ValueError(
                f"fn must return one row for each of the {n} distinct rows, shape ({n}, ...), "
                f"got {tuple(values.shape)}."
            )
        self.out = values.shape[1:]
        return values.reshape(n, self.out.numel())


def lift_rows(fn: RowFunction, x: Tensor) -> Tensor:
    """``fn(x)`` for ``x`` of shape ``(N, F)``, with ``fn`` evaluated on the distinct rows."""
    if is_transformed(x):
        found = _Found()
        inverse = _Distinct.apply(x, found)
        u = found.rows
    else:
        u, inverse = distinct_rows(x.detach())
        if len(u) == len(x):
            return fn(x)
    if not carries_derivative(x):
        return fn(u)[inverse]
    try:
        jet = Jet.of(fn, u)
    except SeesTransformError:
        return fn(x)
    # A node of its own for x, so that a backward pass can tell whether it will reach x.
    return _lift(x.view_as(x), inverse, jet)


def distinct_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows ``(U, F)`` of ``(N, F)``, in order of their bits, and the inverse ``(N,)``.

    Column by column, each time numbering the pairs of (number so far, entry): ``torch.unique`` with
    ``dim=0`` compares -0.0 and NaN as numbers, fails on rows without entries, and is slower.
    """
    inverse = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    count = min(len(x), 1)
    bits = x.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])
    for column in bits.unbind(1):
        if count == len(x):
            break
        entries, code = torch.unique(column, return_inverse=True)
        if count > 1:
            entries, code = torch.unique(inverse * len(entries) + code, return_inverse=True)
        inverse, count = code, len(entries)
        if bits.shape[1] == 1:
            return entries.view(x.dtype).unsqueeze(1), inverse
    member = torch.empty(count, dtype=torch.int64, device=x.device)
    member[inverse] = torch.arange(len(x), device=x.device)
    return x[member], inverse


class Jet:
    """``fn`` at the distinct rows ``u``: ``values``, joined to the leaf ``u`` by plain autograd.

    The graph lies below every transform of ``torch.func``, which see its values as constants.
    """

    def __init__(self, u: Tensor, values: Tensor) -> None:
        self.u, self.values = u, values

    @classmethod
    def of(cls, fn: Callable[[Tensor], Tensor], u: Tensor) -> Jet:
        """The jet of ``fn``; ``SeesTransformError`` if ``fn`` closes over a transformed tensor."""
        with below_transforms(), torch.enable_grad():
            u = u.detach().requires_grad_()
            return cls(u, fn(u))

    def derivative(self, k: int, *, again: bool) -> Jet:
        """The jet of ``dV_k/du``, shape ``(U, F)``; differentiable in ``u`` itself if ``again``."""
        with below_transforms(), torch.set_grad_enabled(again or torch.is_grad_enabled()):
            if not self.values.requires_grad:
                return Jet(self.u, torch.zeros_like(self.u))
            seed = torch.zeros_like(self.values)
            seed[:, k] = 1.0
            (gradient,) = torch.autograd.grad(
                self.values,
                self.u,
                seed,
                create_graph=torch.is_grad_enabled(),
                retain_graph=True,
                materialize_grads=True,
            )
            return Jet(self.u, gradient)

    def primal(self) -> Jet:
        """The jet without the forward-mode tangents of what ``fn`` closes over."""
        with below_transforms(), torch.enable_grad():
            if not is_dual(self.values):
                return self
            return Jet(self.u, forward_ad.unpack_dual(self.values).primal)

    def outer_values(self) -> Tensor:
        """``values`` as a function of what ``fn`` closes over; the leaf ``u`` is not for others."""
        with below_transforms():
            if is_dual(self.values) or reaches_other_leaf(self.values, self.u):
                return self.values
            return self.values.detach()


def weigh(upstream: Tensor, derivative: Callable[[int], Tensor], *, like: Tensor) -> Tensor:
    """``sum_k upstream[..., k] * derivative(k)``, shaped like ``like``: a row's own gradient."""
    total = torch.zeros_like(like)
    for k in range(upstream.shape[-1]):
        term = upstream[..., k : k + 1] * derivative(k)
        total = (term if k == 0 else total + term).to(like.dtype)
    return total


def _lift(x: Tensor, inverse: Tensor, jet: Jet) -> Tensor:
    """``jet.values[inverse]`` as a function of ``x`` and of what the values depend on."""
    if not carries_derivative(x):
        return jet.outer_values()[inverse]
    return _Lift.apply(x, inverse, jet.outer_values(), jet)


MIXED_REFUSED = (
    "unique_map: the derivative in x of a gradient that was taken in a tensor which fn closes over "
    "is not available. Differentiate in x first and in that tensor second, or make that tensor a "
    "column of x and use dim=0."
)


class _Lift(torch.autograd.Function):
    """``values[inverse]``; its derivative in ``x`` is the lift of the derivative of the values."""

    @staticmethod
    def forward(x: Tensor, inverse: Tensor, values: Tensor, jet: Jet) -> Tensor:
        return values[inverse]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, inverse, values, ctx.jet = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, inverse, values)
        ctx.save_for_forward(x, inverse, values)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if grads[0] is None:
            return None, None, None, None
        x, inverse, values = ctx.saved_tensors
        jet, (wants_x, _, wants_values, _) = ctx.jet, ctx.needs_input_grad
        again = carries_derivative(x)

        def rule(upstream: Tensor) -> tuple[Any, ...]:
            gx = gv = None
            if wants_x:
                gx = weigh(
                    upstream, lambda k: _lift(x, inverse, jet.derivative(k, again=again)), like=x
                )
            if wants_values:
                rows = upstream.reshape(-1, upstream.shape[-1])
                gv = torch.zeros_like(values).index_add(0, inverse.reshape(-1), rows)
                gv = FirstOrderOnly.apply(gv, x, MIXED_REFUSED) if again else gv
            return gx, gv

        gx, gv = functorch_batched(rule, grads)
        return gx, None, gv, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        with differentiable_jvp(*ctx.saved_tensors) as (x, inverse, _):
            jet, again = ctx.jet, carries_derivative(x)

            def column(k: int) -> Tensor:
                return _lift(x, inverse, jet.derivative(k, again=again).primal())

            columns = [] if tangents[0] is None else [column(k) for k in range(jet.values.shape[1])]

            def rule(tx: Tensor | None, tv: Tensor | None) -> tuple[Any]:
                total = None if tv is None else _lift(x, inverse, Jet(jet.u, tv))
                if tx is not None:
                    by_x = torch.stack([(lifted * tx).sum(-1) for lifted in columns], dim=-1)
                    total = by_x if total is None else by_x + total
                return (total,)

            return functorch_batched(rule, (tangents[0], tangents[2]))[0]

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        x, inverse, values, jet = args
        x, inverse = (
            batch_first(t, dim, info.batch_size)
            for t, dim in zip((x, inverse), in_dims[:2], strict=True)
        )
        return _Lift.apply(x, inverse, values, jet), 0


class _Found:
    """The distinct rows, handed out from beneath the transforms."""

    rows: Tensor


class _Distinct(torch.autograd.Function):
    """The inverse of :func:`distinct_rows` under ``torch.func``; the rows are put into ``found``.

    A batch of vmap is deduplicated as a whole.
    """

    @staticmethod
    def forward(x: Tensor, found: _Found) -> Tensor:
        u, inverse = distinct_rows(x.detach())
        found.rows = u
        return inverse

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        x, found = batch_first(args[0], in_dims[0], info.batch_size), args[1]
        inverse = _Distinct.apply(x.reshape(-1, x.shape[-1]), found)
        return inverse.reshape(x.shape[:-1]), 0
