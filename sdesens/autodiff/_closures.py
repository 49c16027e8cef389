"""What ``fn`` closes over, when its graph starts from an inner leaf that stands for ``x``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sdesens.errors import UnsupportedError


def reaches_other_leaf(values: Tensor, inner: Tensor) -> bool:
    """Whether the graph of ``values`` ends in a leaf other than ``inner``."""
    seen: set[Any] = set()
    stack = [values.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and leaf is not inner:
            return True
        stack.extend(parent for parent, _ in node.next_functions)
    return False


class FirstOrderOnly(torch.autograd.Function):
    """The identity on the gradient of what ``fn`` closes over; its derivative in ``x`` is refused.

    That gradient reaches the closed-over tensors through the graph from the inner leaf, where a
    second derivative would end, instead of going on to ``x``, and count as zero.
    """

    @staticmethod
    def forward(gradient: Tensor, x: Tensor, message: str) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.x_node, ctx.message = inputs[1].grad_fn, inputs[2]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if ctx.x_node is None or torch._C._will_engine_execute_node(ctx.x_node):
            raise UnsupportedError(ctx.message)
        return grads[0], None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        if tangents[1] is not None:
            raise UnsupportedError(ctx.message)
        return tangents[0].view_as(tangents[0])

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        gradient, x, message = args
        if in_dims[1] is not None:
            x = x.select(in_dims[1], 0)
        return FirstOrderOnly.apply(gradient, x, message), in_dims[0]
