"""From a function of torch tensors to scalar expressions.

The function is run once on a single path and recorded operation by operation, see
:mod:`~sdesens.fused.trace`.
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
from sdesens.fused.rules import Expressions, UnrecordableError, as_expressions
from sdesens.fused.trace import RealZeros, TooLargeError, Tracer, applied, check_size


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
        outputs = Tracer(program, _decompositions()).run(function, example, inputs)
    except TooLargeError:
        raise
    except Exception:  # an operation in place, a value asked for: by the long way, or refused there
        outputs = _by_graph(function, example, inputs, program)
    return [as_expressions(program, out).tolist() for out in outputs]


def _by_graph(
    function: Callable[..., Sequence[Tensor]],
    example: Sequence[Tensor],
    inputs: Sequence[Expressions],
    program: Program,
) -> Sequence[Any]:
    """The same by a graph in which no operation is in place; tens of times slower."""
    try:
        with RealZeros():
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
        return _Recorder(graph, program).run(*inputs)
    except UnrecordableError as error:  # torch adds the whole graph to its message
        raise UnrecordableError(str(error).splitlines()[0]) from None
    except Exception as error:  # an overload whose arguments no rule takes
        first = (str(error).splitlines() or [""])[0]
        raise UnrecordableError(
            f"it cannot be written in scalars ({type(error).__name__}: {first})"
        ) from error


@cache
def _decompositions() -> dict:
    """How torch writes an operation in simpler ones."""
    aten = torch.ops.aten
    composite = (aten._softmax, aten._log_softmax, aten.native_layer_norm, aten.gelu, aten.elu)
    return {**core_aten_decompositions(), **get_decompositions(composite)}


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
        return applied(self.program, target, args, kwargs)
