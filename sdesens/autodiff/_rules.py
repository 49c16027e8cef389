"""Calling a hand-written derivative so that it is differentiated rightly, or refused by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sdesens.autodiff._transforms import (
    carries_derivative,
    inside_transform,
    is_dual,
    loop_over_batch,
)
from sdesens.errors import UnsupportedError

Rule = Callable[..., Any]

_EXITS = {
    Tensor.numpy,
    Tensor.__array__,
    Tensor.__dlpack__,
    Tensor.item,
    Tensor.tolist,
    Tensor.detach,
    Tensor.detach_,
    Tensor.__float__,
    Tensor.__int__,
    Tensor.__index__,
    Tensor.__bool__,
    Tensor.data.__get__,  # type: ignore[attr-defined]
}


class _LeavesAutogradError(BaseException):
    """A rule took a number out of torch; not an Exception, so that no rule catches it."""


class _WatchExits(TorchFunctionMode):
    """Notice when code under it takes a value out of autograd, by NumPy, detach or no_grad."""

    def __init__(self) -> None:
        super().__init__()
        self.recording = torch.is_grad_enabled()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch._C._set_grad_enabled and self.recording and not args[0]:
            raise _LeavesAutogradError
        if func in _EXITS and (inside_transform() or args[0].requires_grad or is_dual(args[0])):
            raise _LeavesAutogradError
        return func(*args, **(kwargs or {}))


def as_tuple(outputs: Any) -> tuple[Any, ...]:
    """One output as a tuple of one."""
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def to_tensor(name: str, value: Any, like: Tensor) -> Tensor:
    """A number, an array or a tensor as a fresh tensor on the device of ``like``.

    A tensor keeps its dtype; NumPy, which computes in float64, is brought back to that of ``like``.
    """
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, (np.ndarray, np.generic, bool, int, float)):
        raise TypeError(
            f"{name} must be a tensor, a NumPy array or a number, got {type(value).__name__}."
        )
    array = np.array(value, order="C")
    tensor = torch.from_numpy(array).to(like.device)
    return tensor.to(like.dtype) if tensor.is_floating_point() else tensor


def _fit(name: str, results: Any, like: Sequence[Tensor], of: str) -> tuple[Any, ...]:
    """The results of a rule, one for each of ``like``, of its shape and dtype (or None)."""
    results = as_tuple(results)
    if len(results) != len(like):
        raise ValueError(
            f"{name} must return one entry for each of the {len(like)} {of}s "
            f"(None where there is no derivative), got {len(results)}."
        )
    fitted: list[Any] = []
    for index, (result, model) in enumerate(zip(results, like, strict=True)):
        if result is None or not model.is_floating_point():
            if result is not None:
                raise ValueError(
                    f"{name} must return None for {of} {index}, whose dtype {model.dtype} "
                    f"has no derivative, got {type(result).__name__}."
                )
            fitted.append(None)
            continue
        tensor = to_tensor(f"entry {index} of {name}", result, model)
        if tensor.shape != model.shape:
            raise ValueError(
                f"{name} must return shape {tuple(model.shape)} for {of} {index}, "
                f"got {tuple(tensor.shape)}."
            )
        fitted.append(tensor.to(model.dtype))
    return tuple(fitted)


def call_rule(
    name: str, rule: Rule, args: Sequence[Tensor], like: Sequence[Tensor], of: str
) -> tuple[Any, ...]:
    """The results of ``rule(*args)``, traced by autograd; opaque to it where the rule leaves torch.

    ``name`` is "vjp" or "jvp"; the results have the shapes of the tensors ``like``.
    """
    if not any(carries_derivative(arg) for arg in args):
        return _fit(name, rule(*(arg.detach().clone() for arg in args)), like, of)
    try:
        with _WatchExits():
            results = rule(*args)
    except _LeavesAutogradError:
        # The shapes without the batch dimensions of vmap, as the rule will see them in its loop.
        shapes = [torch.empty(m.shape, dtype=m.dtype, device="meta") for m in like]
        return _Opaque.apply((name, rule, shapes, of), *args)
    return _fit(name, results, like, of)


def transpose_rule(
    name: str,
    rule: Rule,
    args: Sequence[Tensor],
    like: Sequence[Tensor],
    of: str,
    directions: Sequence[Tensor],
    vector: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """The derivative rule that was not given, from the one that was.

    ``rule(*args, *t)`` is linear in ``t``; the other rule, applied to ``vector``, is the pullback
    of that linear map. ``directions`` are tensors of the shapes of ``t``.
    """
    if not any(carries_derivative(arg) for arg in args):
        args = [arg.detach() for arg in args]

    def linear(*t: Tensor) -> tuple[Tensor, ...]:
        with _WatchExits():
            results = _fit(name, rule(*args, *t), like, of)
        floating = [r for r, model in zip(results, like, strict=True) if model.is_floating_point()]
        return tuple(
            torch.zeros_like(v) if r is None else r for r, v in zip(floating, vector, strict=True)
        )

    missing = "jvp" if name == "vjp" else "vjp"
    mode = "forward" if name == "vjp" else "reverse"
    try:
        pullback = torch.func.vjp(linear, *(torch.zeros_like(d) for d in directions))[1]
    except _LeavesAutogradError:
        raise UnsupportedError(
            f"{mode} mode needs {missing}= here: it is derived from {name}= by differentiating "
            f"that, but this {name} leaves torch (NumPy, detach, item or no_grad). "
            f"Give {missing}= to custom_gradient, or write {name}= in torch operations."
        ) from None
    return pullback(tuple(vector))


class _Opaque(torch.autograd.Function):
    """A rule that leaves torch: its numbers are right, by a loop under vmap; no derivative."""

    @staticmethod
    def forward(call: Any, *args: Tensor) -> Any:
        name, rule, shapes, of = call
        with torch._C.DisableTorchFunction():
            copies = [arg.detach().clone() for arg in args]
        results = rule(*copies)
        like = [torch.empty_like(shape, device=args[0].device) for shape in shapes]
        return _fit(name, results, like, of)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.name = inputs[0][0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise _second_derivative_refused(ctx.name)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise _second_derivative_refused(ctx.name)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        call, *tensors = args
        return loop_over_batch(
            info.batch_size, in_dims[1:], tensors, lambda *slices: _Opaque.apply(call, *slices)
        )


def _second_derivative_refused(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"this custom_gradient has no second derivative: its {name} leaves torch (NumPy, detach, "
        f"item or no_grad), so it gives numbers that cannot be differentiated. Write {name}= in "
        f"torch operations on the inputs and outputs it is given, or call another "
        f"custom_gradient operator in it."
    )
