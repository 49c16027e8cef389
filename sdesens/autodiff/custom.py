"""Differentiable operators from code that autograd cannot trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sdesens._checks import is_transformed
from sdesens.autodiff._rules import Rule, as_tuple, call_rule, to_tensor, transpose_rule
from sdesens.autodiff._transforms import (
    differentiable_jvp,
    functorch_batched,
    is_dual,
    loop_over_batch,
)
from sdesens.errors import UnsupportedError


def custom_gradient(
    forward: Callable[..., Any],
    *,
    vjp: Rule | None = None,
    jvp: Rule | None = None,
    nondifferentiable: Sequence[int] = (),
) -> Operator:
    r"""A differentiable operator from any code and its hand-written derivative.

    ``forward(*inputs)`` gets detached copies of the input tensors and returns a tensor, a NumPy
    array or a number, or a tuple of these. The derivative is given as one of, or both,

    - ``vjp(*inputs, *outputs, *grad_outputs)``: the gradient of each input, ``None`` where there
      is none. ``grad_outputs`` holds one tensor for each differentiable output.
    - ``jvp(*inputs, *outputs, *tangents)``: the tangent of each output, ``None`` where there is
      none. ``tangents`` holds one tensor for each floating input, zero where none was given.

    Of two rules one is enough: what is missing is derived by differentiating the one that is
    there, since it is linear in its last arguments. Written in torch operations (or with other
    operators made here) on the inputs *and outputs they are given*, rules have derivatives of every
    order, in reverse and forward mode, under ``is_grads_batched`` and under ``torch.func``. A rule
    that leaves torch, by NumPy, ``detach``, ``item`` or ``no_grad``, gives first derivatives,
    looped under a batched backward pass; a second one, or the mode without its rule, is refused.
    ``torch.func.vmap`` loops over ``forward``.

    Wrong in circulation: an ``autograd.Function`` that keeps an intermediate on its ``ctx`` and
    uses it in ``backward``. To the second derivative it is a constant: for the square of the root
    of ``x^3 + x = a`` at ``a = 2``, silently +.125 for -.0625. For the same reason a rule must
    not read what ``forward`` left in a closure: return it as an output.

    Args:
        forward: the function; code of any kind. It must not close over a tensor that requires grad.
        vjp: the product with the transposed Jacobian.
        jvp: the product with the Jacobian.
        nondifferentiable: indices of floating outputs to be treated as constants. Integer and
            boolean outputs always are; integer inputs have no gradient.

    Returns:
        A callable of tensors. Outputs are tensors on the device of the first input; NumPy and
        Python floats are brought to the promoted dtype of the floating inputs, tensors keep theirs.
        Gradients have shape and dtype of their inputs.

    Raises:
        ValueError: neither rule is given; or, when called, a rule returns a wrong number or shape.
        TypeError: an input is not a tensor, or ``forward`` returns something that cannot be one.
        UnsupportedError: ``forward`` closes over a tensor that requires grad; or a derivative is
            asked for that a rule which leaves torch cannot give. The message names the cure.

    Example:
        The root ``x`` of ``x^3 + x = a``, found outside of torch:

        >>> import numpy as np, torch
        >>> def newton(a):
        ...     x, a = np.ones(a.shape), a.numpy()
        ...     for _ in range(50):
        ...         x = x - (x**3 + x - a) / (3 * x**2 + 1)
        ...     return x
        >>> root = custom_gradient(newton, vjp=lambda a, x, grad: grad / (3 * x**2 + 1))
        >>> a = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
        >>> (first,) = torch.autograd.grad(root(a) ** 2, a, create_graph=True)
        >>> (second,) = torch.autograd.grad(first, a)
        >>> first.item(), second.item()
        (0.5, -0.0625)
    """
    if vjp is None and jvp is None:
        raise ValueError(
            "custom_gradient needs vjp= or jvp=, got neither. For a function without a "
            "derivative call it under torch.no_grad()."
        )
    return Operator(forward, vjp, jvp, frozenset(nondifferentiable))


@dataclass(frozen=True)
class Operator:
    """What :func:`~sdesens.autodiff.custom_gradient` returns: call it with tensors."""

    forward: Callable[..., Any]
    vjp: Rule | None
    jvp: Rule | None
    nondifferentiable: frozenset[int]

    def __call__(self, *inputs: Tensor) -> Any:
        for index, tensor in enumerate(inputs):
            if not isinstance(tensor, Tensor):
                raise TypeError(
                    f"input {index} must be a torch.Tensor, got {type(tensor).__name__}. "
                    f"Bind other arguments with functools.partial."
                )
        if not inputs:
            raise TypeError("a custom_gradient operator needs at least one input tensor, got none.")
        call = _Call(self, torch.is_grad_enabled())
        outputs = _Apply.apply(call, *inputs)
        return outputs[0] if call.single else outputs

    def _is_differentiable(self, index: int, output: Tensor) -> bool:
        return output.is_floating_point() and index not in self.nondifferentiable


@dataclass
class _Call:
    """One call of an operator: what has to outlive its ``forward`` beside the tensors."""

    operator: Operator
    recording: bool
    single: bool = field(default=False)

    def evaluate(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        copies = [tensor.detach().clone() for tensor in inputs]
        # Gradients are enabled so that a closed-over tensor gives itself away.
        with torch.set_grad_enabled(self.recording):
            results = self.operator.forward(*copies)
        self.single = not isinstance(results, (tuple, list))
        like = _promoted(inputs)
        outputs = []
        for index, result in enumerate(as_tuple(results)):
            output = to_tensor(f"output {index} of forward", result, like)
            if output.requires_grad or is_transformed(output) or is_dual(output):
                raise UnsupportedError(
                    f"output {index} of forward depends on a tensor outside of its inputs that "
                    f"carries a derivative, which would be lost. Pass that tensor as an input."
                )
            outputs.append(output.detach())
        return tuple(outputs)


def _promoted(inputs: Sequence[Tensor]) -> Tensor:
    """An empty tensor on the inputs' device, in the promoted dtype of the floating ones."""
    dtypes = [tensor.dtype for tensor in inputs if tensor.is_floating_point()]
    dtype = dtypes[0] if dtypes else torch.get_default_dtype()
    for other in dtypes[1:]:
        dtype = torch.promote_types(dtype, other)
    return torch.empty(0, dtype=dtype, device=inputs[0].device)


class _Apply(torch.autograd.Function):
    """The operator as autograd sees it: inputs and outputs are saved, the rules get both."""

    @staticmethod
    def forward(call: _Call, *inputs: Tensor) -> tuple[Tensor, ...]:
        with torch._C.DisableTorchFunction():
            return call.evaluate(inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        call, *tensors = inputs
        operator = call.operator
        ctx.operator, ctx.n_inputs = operator, len(tensors)
        constant = [o for i, o in enumerate(output) if not operator._is_differentiable(i, o)]
        ctx.mark_non_differentiable(*constant)
        ctx.save_for_backward(*tensors, *output)
        ctx.save_for_forward(*tensors, *output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        saved = ctx.saved_tensors
        inputs, outputs = saved[: ctx.n_inputs], saved[ctx.n_inputs :]

        def rule(*grads: Any) -> tuple[Any, ...]:
            return _vjp(ctx.operator, inputs, outputs, grads)

        return None, *functorch_batched(rule, grads)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        with differentiable_jvp(*ctx.saved_tensors) as saved:
            inputs, outputs = saved[: ctx.n_inputs], saved[ctx.n_inputs :]

            def rule(*tangents: Any) -> tuple[Any, ...]:
                return _jvp(ctx.operator, inputs, outputs, tangents)

            return functorch_batched(rule, tangents[1:])

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        call, *inputs = args
        if info.batch_size == 0:
            raise UnsupportedError(
                "a custom_gradient operator under torch.func.vmap is called once for each entry "
                "of the batch, and the batch is empty, so that its output shapes are unknown."
            )
        return loop_over_batch(
            info.batch_size, in_dims[1:], inputs, lambda *slices: _Apply.apply(call, *slices)
        )


def _vjp(
    operator: Operator, inputs: Sequence[Tensor], outputs: Sequence[Tensor], grads: Sequence[Any]
) -> tuple[Any, ...]:
    """Gradients of the inputs."""
    fixed = [*inputs, *outputs]
    grads = [
        g
        for i, (g, o) in enumerate(zip(grads, outputs, strict=True))
        if operator._is_differentiable(i, o)
    ]
    if operator.vjp is not None:
        return call_rule("vjp", operator.vjp, [*fixed, *grads], inputs, "input")
    assert operator.jvp is not None
    directions = [x for x in inputs if x.is_floating_point()]
    found = iter(
        transpose_rule("jvp", operator.jvp, fixed, outputs, "output", directions, vector=grads)
    )
    return tuple(next(found) if x.is_floating_point() else None for x in inputs)


def _jvp(
    operator: Operator, inputs: Sequence[Tensor], outputs: Sequence[Tensor], tangents: Sequence[Any]
) -> tuple[Any, ...]:
    """Tangents of the outputs."""
    fixed = [*inputs, *outputs]
    directions = [
        torch.zeros_like(x) if t is None else t
        for x, t in zip(inputs, tangents, strict=True)
        if x.is_floating_point()
    ]
    differentiable = [operator._is_differentiable(i, o) for i, o in enumerate(outputs)]
    if operator.jvp is not None:
        results = call_rule("jvp", operator.jvp, [*fixed, *directions], outputs, "output")
        return tuple(
            None if not is_diff else torch.zeros_like(o) if t is None else t
            for t, o, is_diff in zip(results, outputs, differentiable, strict=True)
        )
    assert operator.vjp is not None
    grads = [o for o, is_diff in zip(outputs, differentiable, strict=True) if is_diff]
    found = iter(
        transpose_rule("vjp", operator.vjp, fixed, inputs, "input", grads, vector=directions)
    )
    return tuple(next(found) if is_diff else None for is_diff in differentiable)
