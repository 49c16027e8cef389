"""From a function of torch tensors to scalar expressions.

The function is run once on a single path and recorded operation by operation. A tensor then becomes
a table of expressions in its own shape. An operation that only moves entries about (views, slices,
concatenation) is carried out on that table as it is; one that computes makes new expressions, entry
by entry, sums and matrix products written out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from sdesens.fused.program import Program
from sdesens.fused.rules import (
    FILLING,
    MOVING,
    RULES,
    Expressions,
    UnrecordableError,
    as_expressions,
)

MAX_NODES = 30_000  # of a program: some 15 seconds of compiling


def record(
    function: Callable[..., Sequence[Tensor]],
    example: Sequence[Tensor],
    inputs: Sequence[Expressions],
    program: Program,
) -> list[list[int]]:
    """The outputs of ``function`` as expressions of ``inputs``, which stand for ``example``.

    Raises:
        UnrecordableError: if the function depends on a value in Python, or uses an operation that
            is not one of scalars.
    """
    try:
        graph = make_fx(
            torch.func.functionalize(lambda *a: tuple(function(*a))),
            decomposition_table=_decompositions(),
        )(*example)
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else ""
        raise UnrecordableError(
            f"it cannot be recorded ({type(error).__name__}: {first})"
        ) from error
    graph.graph.eliminate_dead_code()
    graph.recompile()
    try:
        outputs = _Recorder(graph, program).run(*inputs)
    except UnrecordableError as error:  # torch adds the whole graph to its message
        raise UnrecordableError(str(error).splitlines()[0]) from None
    except Exception as error:  # an overload whose arguments no rule takes
        first = (str(error).splitlines() or [""])[0]
        raise UnrecordableError(
            f"it cannot be written in scalars ({type(error).__name__}: {first})"
        ) from error
    return [as_expressions(program, out).tolist() for out in outputs]


def check_size(program: Program) -> None:
    """Raise :class:`UnrecordableError` if a program is too large to be compiled."""
    if len(program) > MAX_NODES:
        raise UnrecordableError(
            f"it takes more than {MAX_NODES} scalar operations a step, as large matrices and "
            f"derivatives in many parameters do"
        )


@cache
def _decompositions() -> dict:
    """How torch writes an operation in simpler ones."""
    aten = torch.ops.aten
    composite = (aten._softmax, aten._log_softmax, aten.native_layer_norm, aten.gelu, aten.elu)
    table = {**core_aten_decompositions(), **get_decompositions(composite)}
    # There is a rule for it, and torch 2.13 crashes in the jvp of its decomposition along one side.
    del table[aten.dot.default]
    return table


# Overloads that do something else than the operation of their name.
_OTHERWISE = {"Tensor_mode", "Scalar_mode", "decimals", "reduce", "value_reduce"}

# Operations that move entries and put a number, and the place of that argument.
_PUT = {"constant_pad_nd": 2, "scatter": 3}


class _Recorder(torch.fx.Interpreter):
    """Runs a recorded graph on expressions instead of tensors."""

    def __init__(self, graph: torch.fx.GraphModule, program: Program) -> None:
        super().__init__(graph, garbage_collect_values=False)
        self.program = program

    def run_node(self, n: torch.fx.Node) -> Any:
        check_size(self.program)
        return super().run_node(n)

    def call_function(self, target: Any, args: tuple, kwargs: dict) -> Any:
        if not isinstance(target, torch._ops.OpOverload):
            return target(*args, **kwargs)  # getitem and the like
        name = target._schema.name.split("::")[1]
        if not _any_expression((args, kwargs)):
            return (
                torch.zeros(args[0]) if name == "_efficientzerotensor" else target(*args, **kwargs)
            )
        if target._schema.is_mutable:
            raise UnrecordableError(f"it changes a tensor in place ({name})")
        accumulates = name == "index_put" and (True in args[3:] or kwargs.get("accumulate"))
        if target._overloadname in _OTHERWISE or accumulates:
            raise UnrecordableError(f"the operation {target.name()!r} is not one of scalars")
        if name in MOVING:
            args = _with_literal(self.program, name, args)
            if name in ("cat", "stack"):  # whole numbers there are entries too, no indices
                args = ([as_expressions(self.program, a) for a in args[0]], *args[1:])
            args, kwargs = _to_ids(self.program, (args, _without_options(kwargs)))
            if name in ("view", "_unsafe_view"):  # a table need not lie as its tensor did
                return Expressions(args[0].reshape(args[1]))
            return _wrap(target(*args, **kwargs))
        if name in FILLING:
            return FILLING[name](args)
        if name not in RULES:
            raise UnrecordableError(f"the operation {name!r} is not one of scalars")
        return RULES[name](self.program, *args, **_without_options(kwargs))


def _any_expression(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_any_expression, value))
    if isinstance(value, dict):
        return any(map(_any_expression, value.values()))
    return isinstance(value, Expressions)


def _without_options(kwargs: dict) -> dict:
    options = ("layout", "device", "pin_memory", "non_blocking", "memory_format")
    return {key: value for key, value in kwargs.items() if key not in options}


def _with_literal(program: Program, name: str, args: tuple) -> tuple:
    """``args`` with the number that is put where there was no entry as its expression."""
    place = _PUT.get(name, len(args))
    if not isinstance(args[place] if place < len(args) else None, (int, float)):
        return args
    return (*args[:place], program.number(float(args[place])), *args[place + 1 :])


def _to_ids(program: Program, value: Any) -> Any:
    """Arguments of an operation that moves entries: floating tensors as indices of expressions."""
    if isinstance(value, (tuple, list)):
        return type(value)(_to_ids(program, v) for v in value)
    if isinstance(value, dict):
        return {key: _to_ids(program, v) for key, v in value.items()}
    if isinstance(value, Tensor) and value.is_floating_point():
        return as_expressions(program, value).ids
    return value.ids if isinstance(value, Expressions) else value


def _wrap(value: Any) -> Any:
    return (
        type(value)(map(_wrap, value)) if isinstance(value, (tuple, list)) else Expressions(value)
    )
