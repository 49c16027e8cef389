"""The scalar operations of a program: what each is in C++ and in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        cpp: the C++ expression of its arguments, which are numbers or vectors.
        torch: the same on tensors.
        is_condition: whether the result is true or false.
    """

    cpp: str
    torch: Callable[..., Any]
    is_condition: bool = False


# Functions named v... are defined in kernel.h for numbers and for vectors.
OPERATIONS = {
    "add": Operation("({0} + {1})", torch.add),
    "sub": Operation("({0} - {1})", torch.sub),
    "mul": Operation("({0} * {1})", torch.mul),
    "div": Operation("({0} / {1})", torch.div),
    "neg": Operation("(-{0})", torch.neg),
    "max": Operation("vmax({0}, {1})", torch.maximum),
    "min": Operation("vmin({0}, {1})", torch.minimum),
    "pow": Operation("vpow({0}, {1})", torch.pow),
    "atan2": Operation("vatan2({0}, {1})", torch.atan2),
    "fmod": Operation("vfmod({0}, {1})", torch.fmod),
    "ndtri": Operation("vndtri({0})", torch.special.ndtri),
    **{
        name: Operation(f"v{name}({{0}})", getattr(torch, name))
        for name in (
            *("abs", "sqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "asin", "acos"),
            *("atan", "sinh", "cosh", "tanh", "erf", "erfc", "lgamma", "floor", "ceil"),
            *("round", "trunc"),
        )
    },
    "lt": Operation("({0} < {1})", torch.lt, True),
    "le": Operation("({0} <= {1})", torch.le, True),
    "gt": Operation("({0} > {1})", torch.gt, True),
    "ge": Operation("({0} >= {1})", torch.ge, True),
    "eq": Operation("({0} == {1})", torch.eq, True),
    "ne": Operation("({0} != {1})", torch.ne, True),
    "and": Operation("({0} & {1})", torch.logical_and, True),
    "or": Operation("({0} | {1})", torch.logical_or, True),
    "xor": Operation("({0} ^ {1})", torch.logical_xor, True),
    "not": Operation("(!{0})", torch.logical_not, True),
    "where": Operation("({0} ? {1} : {2})", torch.where),
    "where_condition": Operation("(({0} & {1}) | (!{0} & {2}))", torch.where, True),
}
