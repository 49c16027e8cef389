"""A batch function whose backward pass keeps the samples apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from sdesens._checks import check_count, check_tensor, is_transformed
from sdesens.autodiff._blocks import own_gradients
from sdesens.autodiff._closures import FirstOrderOnly, reaches_other_leaf
from sdesens.autodiff._transforms import (
    carries_derivative,
    differentiable_jvp,
    functorch_batched,
    inside_transform,
    is_dual,
)
from sdesens.errors import UnsupportedError


def isolate_samples(
    fn: Callable[[Tensor], Tensor], *, chunk_size: int | None = None
) -> Callable[[Tensor], Tensor]:
    r"""``fn`` with the same values, in whose derivatives no sample sees another.

    With ``y_i = f_i(x_1, ..., x_N)``, the derivative of ``y_i`` is taken in ``x_i`` alone, the
    others being held: the Jacobian is the block diagonal of the true one, and so is the next. What
    ``fn`` closes over, its parameters, gets its usual gradient. ``fn`` runs once a call; the
    backward pass costs one pass a sample, ``chunk_size`` together.

    Wrong in circulation: ``fn(x[i:i+1])`` for each i, which changes the values: a batch of one has
    other statistics, and BatchNorm refuses it.

    Args:
        fn: ``(N, *row) -> (N, *out)``, with samples that may be coupled.
        chunk_size: samples a pass; by default as many as keep it below 2^18 entries.

    Returns:
        A function like ``fn``. Its first and second derivatives are right in reverse mode and in
        forward mode by ``torch.autograd.forward_ad``, the first under ``is_grads_batched`` too.

    Raises:
        TypeError: when called, ``x`` is not a floating tensor.
        ValueError: when called, the output does not have a row for each sample.
        UnsupportedError: a call under ``torch.func``; a second derivative under
            ``is_grads_batched``; a third one, or one in ``x`` of a gradient taken in a parameter.

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64, requires_grad=True)
        >>> norm = isolate_samples(torch.nn.BatchNorm1d(1, affine=False).double())
        >>> torch.autograd.grad(norm(x).sum(), x)[0].flatten()
        tensor([0.1763, 0.2755, 0.0110], dtype=torch.float64)
    """
    if chunk_size is not None:
        check_count("chunk_size", chunk_size)

    def isolated(x: Tensor) -> Tensor:
        check_tensor("x", x)
        if is_transformed(x) or inside_transform():
            raise UnsupportedError(
                "isolate_samples does not run under torch.func. Use torch.autograd.grad and "
                "torch.autograd.forward_ad, or per_sample_grad(coupling='exact')."
            )
        if not carries_derivative(x):
            return fn(x)
        inner = x.detach().requires_grad_()
        with torch.enable_grad():
            y = fn(inner)
        if x.dim() == 0 or y.shape[:1] != x.shape[:1]:
            raise ValueError(
                f"fn must map (N, ...) to (N, ...), one row a sample, got {tuple(x.shape)} and "
                f"{tuple(y.shape)}."
            )
        # A node of its own for x, so that a backward pass can tell whether it will reach x.
        return _isolate(x.view_as(x), _Batch(inner, y, chunk_size))

    return isolated


@dataclass
class _Batch:
    """``y`` as a function of the leaf ``inner``, all samples coupled as they are."""

    inner: Tensor
    y: Tensor
    chunk_size: int | None

    def pull(self, cotangent: Tensor) -> Tensor:
        if not self.y.requires_grad:
            return torch.zeros_like(self.inner)
        return torch.autograd.grad(
            self.y,
            self.inner,
            cotangent,
            create_graph=torch.is_grad_enabled(),
            retain_graph=True,
            materialize_grads=True,
        )[0]

    def own_gradients(self, upstream: Tensor, again: bool) -> Tensor:
        with torch.set_grad_enabled(again or torch.is_grad_enabled()):
            return own_gradients(self.pull, upstream, self.inner, self.chunk_size)

    def own_tangents(self, tangent: Tensor) -> Tensor:
        """``J_ii t_i``: the derivative of the own gradients, which are linear in the upstream."""
        with torch.enable_grad():
            upstream = torch.zeros_like(self.y).requires_grad_()
            own = self.own_gradients(upstream, again=True)
            return torch.autograd.grad(
                own, upstream, tangent, create_graph=True, materialize_grads=True
            )[0]

    def primal(self) -> _Batch:
        """The same without the forward-mode tangents of what ``y`` depends on beside ``inner``."""
        if not is_dual(self.y):
            return self
        with torch.enable_grad():
            return _Batch(self.inner, forward_ad.unpack_dual(self.y).primal, self.chunk_size)

    def outer(self) -> Tensor:
        """``y`` joined to what it depends on beside ``inner``."""
        attached = is_dual(self.y) or reaches_other_leaf(self.y, self.inner)
        return self.y if attached else self.y.detach()


def _isolate(x: Tensor, batch: _Batch) -> Tensor:
    return _Isolate.apply(x, batch.outer(), batch) if carries_derivative(x) else batch.outer()


BEYOND = (
    "isolate_samples: a third derivative, and the derivative in x of a gradient that was taken in "
    "a parameter of fn, are not available. Of the mixed one take that in x first."
)


class _Isolate(torch.autograd.Function):
    """``y``; its derivative in ``x`` is isolated, and made of isolated functions again."""

    @staticmethod
    def forward(x: Tensor, y: Tensor, batch: _Batch) -> Tensor:
        return y.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, _, ctx.batch = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if grads[0] is None:
            return None, None, None
        (x,), batch = ctx.saved_tensors, ctx.batch
        wants_x, wants_y, _ = ctx.needs_input_grad
        again = carries_derivative(x)

        def rule(upstream: Tensor) -> tuple[Any, ...]:
            gx = gy = None
            if wants_x:
                own = batch.own_gradients(upstream, again)
                if again and inside_transform():
                    raise UnsupportedError(
                        "isolate_samples has no second derivative under is_grads_batched. Take the "
                        "first one without create_graph, or loop over its cotangents."
                    )
                gx = _isolate(x, _Batch(batch.inner, own, batch.chunk_size)) if again else own
            if wants_y:
                gy = FirstOrderOnly.apply(upstream, x, BEYOND) if again else upstream
            return gx, gy

        return *functorch_batched(rule, grads), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        tx, ty, _ = tangents
        with differentiable_jvp(*ctx.saved_tensors) as (x,):
            batch = ctx.batch
            primal = batch.primal()

            def rule(tx: Tensor | None, ty: Tensor | None) -> tuple[Any]:
                total = ty
                if tx is not None:
                    by_x = primal.own_tangents(tx)
                    by_x = _Batch(batch.inner, by_x, None).primal().y
                    if not inside_transform():
                        by_x = _isolate(x, _Batch(batch.inner, by_x, batch.chunk_size))
                    total = by_x if ty is None else by_x + ty
                return (total,)

            return functorch_batched(rule, (tx, ty))[0]
