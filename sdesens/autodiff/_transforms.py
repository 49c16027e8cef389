"""What the operators of this room need to know about the transforms that watch them.

Functions here read the state of ``torch.func`` and of forward-mode AD; nothing else in the room
touches torch's private names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from sdesens._checks import is_transformed

_FIRST_VMAP = torch._C._dispatch_key_parse("Batched")


def inside_transform() -> bool:
    """Whether a ``torch.func`` transform or a batched backward pass is running."""
    return peek_interpreter_stack() is not None


def is_dual(tensor: Tensor) -> bool:
    """Whether ``tensor`` carries a forward-mode tangent of the running dual level."""
    if forward_ad._current_level < 0 or not tensor.is_floating_point():
        return False
    return forward_ad.unpack_dual(tensor).tangent is not None


def carries_derivative(tensor: Tensor) -> bool:
    """Whether a derivative with respect to ``tensor`` may still be asked for."""
    return (
        (torch.is_grad_enabled() and tensor.requires_grad)
        or is_transformed(tensor)
        or is_dual(tensor)
    )


@contextmanager
def differentiable_jvp(*tensors: Tensor) -> Iterator[list[Tensor]]:
    """Inside, a forward-mode rule keeps the tangents of outer levels; yields the inner primals.

    While torch calls the ``jvp`` of a custom Function it switches forward mode off, so that a
    nested ``torch.func.jvp`` silently returns zero for the second derivative. Switched on again,
    the inner tangents have to be stripped first: a tangent must not itself carry one of its level.
    """
    primals = [forward_ad.unpack_dual(t).primal for t in tensors]
    with forward_ad._set_fwd_grad_enabled(True):
        yield primals


def functorch_batched(
    rule: Callable[..., tuple[Any, ...]], vectors: Sequence[Any]
) -> tuple[Any, ...]:
    """``rule(*vectors)``, where ``vectors`` may come from ``is_grads_batched``.

    That flag still uses torch's first vmap, which knows neither ``detach`` nor the vmap rule of a
    custom Function; its batch is taken off, carried by ``torch.func.vmap``, and put back on.
    """
    batched = [v is not None and _is_first_vmap(v) for v in vectors]
    if not any(batched):
        return rule(*vectors)
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    plain = [
        torch._remove_batch_dim(v, level, 1, 0) if is_batched else v  # type: ignore[attr-defined]
        for v, is_batched in zip(vectors, batched, strict=True)
    ]
    absent: list[bool] = []

    def present_results(*vectors: Tensor) -> tuple[Tensor, ...]:
        results = rule(*vectors)
        absent[:] = [result is None for result in results]
        return tuple(result for result in results if result is not None)

    in_dims = tuple(0 if is_batched else None for is_batched in batched)
    present = iter(torch.func.vmap(present_results, in_dims=in_dims)(*plain))
    return tuple(
        None if is_absent else torch._add_batch_dim(next(present), 0, level)  # type: ignore[attr-defined]
        for is_absent in absent
    )


def _is_first_vmap(tensor: Tensor) -> bool:
    return torch._C._dispatch_keys(tensor).has(_FIRST_VMAP)


Pullback = Callable[[Tensor], Tensor]


def value_and_pullback(fn: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Pullback]:
    """``fn(x)``, and the map from a cotangent to its product with the Jacobian; one call of ``fn``.

    Outside of transforms the graph is plain autograd's, so that every ``fn`` which autograd can
    trace is served; inside it is that of ``torch.func.vjp``. The pullback can be called again and
    is differentiable when gradients are enabled as it is called.
    """
    if inside_transform():
        transformed = torch.func.vjp(fn, x)
        return transformed[0], lambda cotangent: transformed[1](cotangent)[0]
    with torch.enable_grad():
        value = fn(x)

    def pullback(cotangent: Tensor) -> Tensor:
        if not value.requires_grad:
            return torch.zeros_like(x)
        (gradient,) = torch.autograd.grad(
            value,
            x,
            cotangent,
            create_graph=torch.is_grad_enabled(),
            retain_graph=True,
            materialize_grads=True,
        )
        return gradient

    return value, pullback


class SeesTransformError(Exception):
    """Code run below the transforms met a tensor that belongs to one of them."""


class _WatchTransformed(TorchFunctionMode):
    """Raise when a tensor of a transform is used; below it, it would pass as a constant."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor) and is_transformed(leaf):
                raise SeesTransformError
        return func(*args, **(kwargs or {}))


@contextmanager
def below_transforms() -> Iterator[None]:
    """Run in plain autograd, beneath every running transform of ``torch.func``."""
    if not inside_transform():
        yield
        return
    with temporarily_clear_interpreter_stack(), _WatchTransformed():
        yield


def unbatch(tensor: Any, dim: int | None, index: int) -> Any:
    """Slice ``index`` of a value that vmap batches along ``dim``."""
    return tensor if dim is None else tensor.select(dim, index)


def batch_first(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """``tensor`` with the dimension that vmap batches moved to the front, or expanded there."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def loop_over_batch(
    size: int, in_dims: Sequence[Any], args: Sequence[Any], call: Callable[..., tuple[Any, ...]]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The rule of vmap for code that cannot be batched: call it for each slice, stack the results.

    Each call goes through the levels below the vmap, so derivatives follow by themselves.
    """
    calls = [
        call(*(unbatch(arg, dim, index) for arg, dim in zip(args, in_dims, strict=True)))
        for index in range(size)
    ]
    outputs = tuple(
        None if parts[0] is None else torch.stack(parts) for parts in zip(*calls, strict=True)
    )
    return outputs, tuple(None if output is None else 0 for output in outputs)
