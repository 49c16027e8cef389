"""Operations of torch carried out on expressions as they are run on an example.

A tensor becomes a table of expressions in its own shape. An operation that only moves entries about
(views, slices, concatenation) is carried out on that table as it is; one that computes makes new
expressions, entry by entry, sums and matrix products written out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sdesens.fused.program import Program
from sdesens.fused.rules import (
    FILLING,
    MOVING,
    RULES,
    Expressions,
    UnrecordableError,
    as_expressions,
)

# What forward mode puts for a tangent that is missing: zeros without memory, which under a dispatch
# mode torch 2.13 reads all the same in ``x - alpha y`` and others, and the process ends.
_ZEROS = torch.ops.aten._efficientzerotensor.default

MAX_NODES = 30_000  # of a program: some 15 seconds of compiling

# Overloads that do something else than the operation of their name.
_OTHERWISE = {"Tensor_mode", "Scalar_mode", "decimals", "reduce", "value_reduce"}

# Operations that move entries and put a number, and the place of that argument.
_PUT = {"constant_pad_nd": 2, "scatter": 3}

# Operations that hand a value to Python, on which what is done next may depend.
_READING = {"_local_scalar_dense", "item", "is_nonzero", "equal", "allclose", "nonzero"}

# Questions of torch to itself about two tensors, which are answered by the example.
_ASKING = {"is_same_size", "_has_same_storage_numel"}


class TooLargeError(UnrecordableError):
    """More operations than can be compiled in a reasonable time."""


def check_size(program: Program) -> None:
    """Raise :class:`TooLargeError` if a program is too large to be compiled."""
    if len(program) > MAX_NODES:
        raise TooLargeError(
            f"it takes more than {MAX_NODES} scalar operations a step, as large matrices and "
            f"derivatives in many parameters do"
        )


class RealZeros(TorchDispatchMode):
    """Gives zeros that lie in memory for those without."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        return (torch.zeros if func is _ZEROS else func)(*args, **(kwargs or {}))


class Tracer(TorchDispatchMode):
    """Runs a function on an example, and beside it on expressions.

    It sees what torch runs in the end, below every transform and decomposition, and tells the
    tensors that depend on an input by identity. What is done in place, or depends on a value, it
    refuses.
    """

    def __init__(self, program: Program, decompositions: Mapping[Any, Callable]) -> None:
        super().__init__()
        self.program, self.decompositions = program, decompositions
        # The tensor is held beside, so that no other comes to bear its identity.
        self._known: dict[int, tuple[Tensor, Expressions]] = {}
        self.reason: Exception | None = None

    def run(
        self,
        function: Callable[..., Sequence[Tensor]],
        example: Sequence[Tensor],
        inputs: Sequence[Expressions],
    ) -> list[Any]:
        """The outputs of ``function`` as expressions, or tensors that depend on no input."""
        example = [tensor.detach().clone() for tensor in example]
        for tensor, expressions in zip(example, inputs, strict=True):
            self._known[id(tensor)] = tensor, expressions
        with self:
            outputs = torch.func.functionalize(lambda *a: tuple(function(*a)))(*example)
        if self.reason is not None:
            raise self.reason
        return [self._found(out) for out in outputs]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is _ZEROS:
            return torch.zeros(*args, **kwargs)
        if self.reason is not None:
            return func(*args, **kwargs)
        found = self._found((args, kwargs))
        if not any_expression(found) or _any_meta((args, kwargs)):
            return func(*args, **kwargs)
        decompose = self.decompositions.get(func)
        with self:
            out = func.decompose(*args, **kwargs) if decompose is None else (
                decompose(*args, **kwargs))  # fmt: skip
        if out is not NotImplemented:
            return out
        out = func(*args, **kwargs)
        try:
            self._record(func, found, out)
        except Exception as error:
            # Not raised here: torch does not come back whole from under its transforms.
            self.reason = error
        return out

    def _record(self, func: Any, found: tuple[Any, Any], out: Any) -> None:
        name = func._schema.name.split("::")[1]
        if name in _ASKING:
            return
        if name in _READING:
            raise UnrecordableError(f"it reads a value ({name})")
        check_size(self.program)
        self._keep(out, applied(self.program, func, *found))

    def _found(self, value: Any) -> Any:
        """``value`` with expressions in the place of the tensors that are known."""
        if isinstance(value, Tensor):
            known = self._known.get(id(value))
            return value if known is None else known[1]
        if isinstance(value, (tuple, list)):
            return type(value)(self._found(v) for v in value)
        if isinstance(value, dict):
            return {key: self._found(v) for key, v in value.items()}
        return value

    def _keep(self, out: Any, result: Any) -> None:
        if isinstance(out, Tensor):
            if isinstance(result, Expressions):
                if result.ids.shape != out.shape:
                    raise UnrecordableError("a rule gives another shape than torch")
                self._known[id(out)] = out, result
        elif isinstance(out, (tuple, list)):
            for o, r in zip(out, result, strict=True):
                self._keep(o, r)


def _any_meta(value: Any) -> bool:
    """Whether a tensor without data is among the arguments: torch asks for a shape only."""
    if isinstance(value, Tensor):
        return value.is_meta
    if isinstance(value, (tuple, list)):
        return any(map(_any_meta, value))
    return isinstance(value, dict) and any(map(_any_meta, value.values()))


def applied(program: Program, target: Any, args: tuple, kwargs: dict) -> Any:
    """What an operation of torch gives on arguments some of which are expressions.

    Raises:
        UnrecordableError: if it is not one of scalars.
    """
    name = target._schema.name.split("::")[1]
    if not any_expression((args, kwargs)):
        return torch.zeros(args[0]) if target is _ZEROS else target(*args, **kwargs)
    if target._schema.is_mutable:
        raise UnrecordableError(f"it changes a tensor in place ({name})")
    accumulates = name == "index_put" and (True in args[3:] or kwargs.get("accumulate"))
    if target._overloadname in _OTHERWISE or accumulates:
        raise UnrecordableError(f"the operation {target.name()!r} is not one of scalars")
    if name in MOVING:
        args = _with_literal(program, name, args)
        if name in ("cat", "stack"):  # whole numbers there are entries too, no indices
            args = ([as_expressions(program, a) for a in args[0]], *args[1:])
        args, kwargs = _to_ids(program, (args, _without_options(kwargs)))
        if name in ("view", "_unsafe_view"):  # a table need not lie as its tensor did
            return Expressions(args[0].reshape(args[1]))
        return _wrap(target(*args, **kwargs))
    if name in FILLING:
        return FILLING[name](args)
    if name not in RULES:
        raise UnrecordableError(f"the operation {name!r} is not one of scalars")
    return RULES[name](program, *args, **_without_options(kwargs))


def any_expression(value: Any) -> bool:
    """Whether there are expressions in ``value``."""
    if isinstance(value, (tuple, list)):
        return any(map(any_expression, value))
    if isinstance(value, dict):
        return any(map(any_expression, value.values()))
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
