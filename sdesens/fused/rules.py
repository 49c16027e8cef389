"""What each operation of torch is on expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sdesens.fused.program import MINUS_ONE, ONE, ZERO, Program


class UnrecordableError(Exception):
    """A function that cannot be written as scalar expressions; the message says why."""


class Expressions:
    """A tensor of expressions: their indices in a program, in the shape of the tensor."""

    def __init__(self, ids: Tensor) -> None:
        self.ids = ids

    def tolist(self) -> list[int]:
        """The indices, flat."""
        return self.ids.flatten().tolist()


def expressions(ids: Sequence[int], shape: Sequence[int]) -> Expressions:
    """Indices laid out in ``shape``."""
    return Expressions(torch.tensor(list(ids), dtype=torch.int64).reshape(tuple(shape)))


def as_expressions(program: Program, value: Any) -> Expressions:
    """A tensor of numbers, a number or expressions, as expressions."""
    if isinstance(value, Expressions):
        return value
    value = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
    ids = [program.number(float(v)) for v in value.flatten().tolist()]
    return expressions(ids, value.shape)


# Operations that move entries about, and put zeros, whose index is 0, where there were none.
MOVING = {
    *("view", "_unsafe_view", "reshape", "permute", "t", "transpose", "expand", "unsqueeze"),
    *("squeeze", "select", "slice", "cat", "stack", "clone", "alias", "detach", "repeat", "flip"),
    *("unbind", "split", "split_with_sizes", "diagonal", "index", "index_select", "gather"),
    *("select_scatter", "slice_scatter", "select_backward", "slice_backward", "unfold"),
    *("constant_pad_nd", "triu", "tril", "view_copy", "expand_copy", "lift_fresh_copy", "roll"),
    *("diagonal_scatter", "diag_embed", "scatter", "index_put", "as_strided", "movedim"),
    *("diagonal_backward", "lift_fresh", "contiguous", "unflatten", "chunk", "broadcast_to"),
}


def _filled(args: tuple, value: int, shape: Sequence[int] | None = None) -> Expressions:
    return Expressions(torch.full(tuple(_shape(args[0]) if shape is None else shape), value))


def _shape(value: Tensor | Expressions) -> torch.Size:
    return value.ids.shape if isinstance(value, Expressions) else value.shape


FILLING = {
    "_new_zeros_with_same_feature_meta": lambda args: _filled(args, ZERO, _shape(args[1])),
    "zeros_like": lambda args: _filled(args, ZERO),
    "ones_like": lambda args: _filled(args, ONE),
    "empty_like": lambda args: _filled(args, ZERO),
    "new_zeros": lambda args: _filled(args, ZERO, args[1]),
    "new_ones": lambda args: _filled(args, ONE, args[1]),
    "new_empty": lambda args: _filled(args, ZERO, args[1]),
}


# --- operations that compute -------------------------------------------------------------------


def _each(program: Program, function: Callable[..., int], *values: Any) -> Expressions:
    """``function`` of the entries of ``values``, broadcast together."""
    tables = [as_expressions(program, v).ids for v in values]
    tables = torch.broadcast_tensors(*tables)
    columns = zip(*(table.flatten().tolist() for table in tables), strict=True)
    return expressions([function(*entries) for entries in columns], tables[0].shape)


def _elementwise(op: str) -> Callable[..., Expressions]:
    def rule(program: Program, *values: Any) -> Expressions:
        return _each(program, lambda *entries: program.apply(op, *entries), *values)

    return rule


def _compound(function: Callable[..., int]) -> Callable[..., Expressions]:
    """A rule from a function of the program and entries."""

    def rule(program: Program, *values: Any) -> Expressions:
        return _each(program, lambda *entries: function(program, *entries), *values)

    return rule


def _number(program: Program, x: int) -> int:
    """A condition as 0 or 1; a number as it is."""
    return program.apply("where", x, ONE, ZERO) if program.is_condition(x) else x


def _condition(program: Program, x: int) -> int:
    return x if program.is_condition(x) else program.apply("ne", x, ZERO)


_OF_CONDITIONS = {"add": "or", "mul": "and"}


def _arithmetic(op: str) -> Callable[..., Expressions]:
    def entry(program: Program, a: int, b: int) -> int:
        if op in _OF_CONDITIONS and program.is_condition(a) and program.is_condition(b):
            return program.apply(_OF_CONDITIONS[op], a, b)
        return program.apply(op, _number(program, a), _number(program, b))

    return _compound(entry)


def _logical(op: str) -> Callable[..., Expressions]:
    def entry(program: Program, *entries: int) -> int:
        return program.apply(op, *(_condition(program, x) for x in entries))

    return _compound(entry)


def _scaled(op: str) -> Callable[..., Expressions]:
    """``a + alpha b`` and ``a - alpha b``."""

    def rule(program: Program, a: Any, b: Any, alpha: float = 1) -> Expressions:
        if alpha != 1:
            b = _arithmetic("mul")(program, b, alpha)
        return _arithmetic(op)(program, a, b)

    return rule


def _rsub(program: Program, a: Any, b: Any, alpha: float = 1) -> Expressions:
    return _scaled("sub")(program, b, a, alpha)


def _where_entry(program: Program, c: int, a: int, b: int) -> int:
    if c in (ZERO, ONE):
        return a if c == ONE else b
    c = _condition(program, c)
    if program.is_condition(a) and program.is_condition(b):
        return program.apply("where_condition", c, a, b)
    return program.apply("where", c, _number(program, a), _number(program, b))


def _where(program: Program, c: Any, a: Any, b: Any) -> Expressions:
    return _each(program, lambda *entries: _where_entry(program, *entries), c, a, b)


def _pow(program: Program, base: Any, exponent: Any) -> Expressions:
    if isinstance(exponent, (int, float)):
        return _each(program, lambda x: _power(program, x, exponent), base)
    return _arithmetic("pow")(program, base, exponent)


def _power(program: Program, x: int, exponent: float) -> int:
    if exponent < 0 and _power_is_simple(-exponent):
        return program.apply("div", ONE, _power(program, x, -exponent))
    if not _power_is_simple(exponent):
        return program.apply("pow", x, program.number(exponent))
    if exponent == 0:
        return ONE
    whole, half = int(exponent), exponent % 1
    factors = [x] * whole + ([program.apply("sqrt", x)] if half else [])
    return reduce(lambda a, b: program.apply("mul", a, b), factors)


def _power_is_simple(exponent: float) -> bool:
    return exponent in (0, 0.5, 1, 1.5, 2, 3, 4)


def _clamp(
    program: Program, x: Any, low: Any = None, high: Any = None, **named: Any
) -> Expressions:
    low, high = named.get("min", low), named.get("max", high)
    if low is not None:
        x = _elementwise("max")(program, x, low)
    return x if high is None else _elementwise("min")(program, x, high)


def _leaky_relu(program: Program, x: Any, slope: float = 0.01) -> Expressions:
    positive = _elementwise("gt")(program, x, 0)
    return _where(program, positive, x, _arithmetic("mul")(program, x, slope))


def _sigmoid(program: Program, x: int) -> int:
    e = program.apply("exp", program.apply("neg", x))
    return program.apply("div", ONE, program.apply("add", ONE, e))


def _sign(program: Program, x: int) -> int:
    below = program.apply("where", program.apply("lt", x, ZERO), MINUS_ONE, x)
    return program.apply("where", program.apply("gt", x, ZERO), ONE, below)


def _convert(program: Program, x: Any, dtype: torch.dtype | None = None, **_: Any) -> Expressions:
    if dtype is torch.bool:
        return _each(program, lambda e: _condition(program, e), x)
    if dtype is not None and not dtype.is_floating_point:
        raise UnrecordableError(f"it turns a number into {dtype}")
    return _each(program, lambda e: _number(program, e), x)


def _full_like(program: Program, x: Expressions, value: float, **_: Any) -> Expressions:
    return _filled((x,), program.number(float(value)))


def _new_full(program: Program, _: Any, shape: Any, value: float, **__: Any) -> Expressions:
    return _filled((), program.number(float(value)), shape)


def _total(program: Program, entries: Sequence[int]) -> int:
    numbers = [_number(program, e) for e in entries]
    return reduce(lambda a, b: program.apply("add", a, b), numbers, ZERO)


def _product(program: Program, entries: Sequence[int]) -> int:
    numbers = [_number(program, e) for e in entries]
    return reduce(lambda a, b: program.apply("mul", a, b), numbers, ONE)


def _reduction(over: Callable[[Program, Sequence[int]], int]) -> Callable[..., Expressions]:
    def rule(
        program: Program, x: Expressions, dim: Any = None, keepdim: bool = False, **_: Any
    ) -> Expressions:
        ids = x.ids
        dims = [dim] if isinstance(dim, int) else list(dim or range(ids.dim()))
        dims = sorted(d % max(ids.dim(), 1) for d in dims)
        kept = [d for d in range(ids.dim()) if d not in dims]
        rows = ids.permute(*kept, *dims).reshape(*(ids.shape[d] for d in kept), -1)
        out = [over(program, row) for row in rows.reshape(-1, rows.shape[-1]).tolist()]
        shape = [1 if d in dims else n for d, n in enumerate(ids.shape)]
        return expressions(out, shape if keepdim else [ids.shape[d] for d in kept])

    return rule


def _mean(program: Program, entries: Sequence[int]) -> int:
    count = program.number(float(len(entries)))
    return program.apply("div", _total(program, entries), count)


def _var(
    program: Program,
    x: Expressions,
    dim: Any = None,
    *,
    correction: float | None = 1,
    **options: Any,
) -> Expressions:
    mean = _reduction(_mean)(program, x, dim, keepdim=True)
    deviation = _arithmetic("sub")(program, x, mean)
    total = _reduction(_total)(program, _arithmetic("mul")(program, deviation, deviation), dim,
                               **options)  # fmt: skip
    count = x.ids.numel() // max(mean.ids.numel(), 1)
    return _arithmetic("div")(
        program, total, float(count - (1 if correction is None else correction))
    )


def _var_mean(program: Program, x: Expressions, dim: Any = None, **options: Any) -> Any:
    keepdim = options.get("keepdim", False)
    return _var(program, x, dim, **options), _reduction(_mean)(program, x, dim, keepdim)


def _copy(program: Program, to: Any, source: Any, *_: Any) -> Expressions:
    shape = as_expressions(program, to).ids.shape
    return Expressions(as_expressions(program, source).ids.expand(shape))


def _extreme(op: str) -> Callable[[Program, Sequence[int]], int]:
    return lambda program, entries: reduce(
        lambda a, b: program.apply(op, a, b), [_number(program, e) for e in entries]
    )


def _cumsum(program: Program, x: Expressions, dim: int, **_: Any) -> Expressions:
    rows = x.ids.movedim(dim, -1)
    out = []
    for row in rows.reshape(-1, rows.shape[-1]).tolist():
        total = ZERO
        for entry in row:
            total = program.apply("add", total, _number(program, entry))
            out.append(total)
    return Expressions(expressions(out, rows.shape).ids.movedim(-1, dim))


def _matmul(program: Program, a: Any, b: Any) -> Expressions:
    """Matrix products, batched or not."""
    left, right = (as_expressions(program, v).ids.numpy() for v in (a, b))
    *batch, n, k = left.shape
    out = np.zeros((*batch, n, right.shape[-1]), dtype=np.int64)
    for index in np.ndindex(*batch, n, right.shape[-1]):
        *b_index, i, j = index
        pairs = zip(
            left[(*b_index, i)].tolist(), right[(*b_index, slice(None), j)].tolist(), strict=True
        )
        out[index] = _total(program, [program.apply("mul", x, y) for x, y in pairs])
    assert k == right.shape[-2]
    return Expressions(torch.from_numpy(out))


def _mv(program: Program, a: Any, b: Any) -> Expressions:
    column = Expressions(as_expressions(program, b).ids.unsqueeze(-1))
    return Expressions(_matmul(program, a, column).ids.squeeze(-1))


def _dot(program: Program, a: Any, b: Any) -> Expressions:
    row = Expressions(as_expressions(program, a).ids.unsqueeze(0))
    return Expressions(_mv(program, row, b).ids.squeeze(0))


def _addmm(program: Program, c: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    product = _arithmetic("mul")(program, _matmul(program, a, b), alpha)
    return _arithmetic("add")(program, _arithmetic("mul")(program, c, beta), product)


RULES: dict[str, Callable[..., Any]] = {
    "add": _scaled("add"),
    "sub": _scaled("sub"),
    "rsub": _rsub,
    "mul": _arithmetic("mul"),
    "div": _arithmetic("div"),
    "fmod": _arithmetic("fmod"),
    "atan2": _arithmetic("atan2"),
    "maximum": _arithmetic("max"),
    "minimum": _arithmetic("min"),
    "pow": _pow,
    "reciprocal": _compound(lambda program, x: program.apply("div", ONE, x)),
    "rsqrt": _compound(lambda program, x: program.apply("div", ONE, program.apply("sqrt", x))),
    "special_ndtri": _elementwise("ndtri"),
    "square": _compound(lambda program, x: program.apply("mul", x, x)),
    "relu": _compound(lambda program, x: program.apply("max", x, ZERO)),
    "sigmoid": _compound(_sigmoid),
    "exp2": _compound(
        lambda program, x: program.apply(
            "exp", program.apply("mul", x, program.number(math.log(2.0)))
        )
    ),
    "leaky_relu": _leaky_relu,
    "sign": _compound(_sign),
    "sgn": _compound(_sign),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": lambda program, x, high: _clamp(program, x, None, high),
    "where": _where,
    "masked_fill": lambda program, x, mask, value: _where(program, mask, value, x),
    "_to_copy": _convert,
    "isnan": _compound(lambda program, x: program.apply("ne", x, x)),
    "full_like": _full_like,
    "new_full": _new_full,
    "sum": _reduction(_total),
    "mean": _reduction(_mean),
    "var": _var,
    "var_mean": _var_mean,
    "copy": _copy,
    "prod": _reduction(_product),
    "amax": _reduction(_extreme("max")),
    "amin": _reduction(_extreme("min")),
    "cumsum": _cumsum,
    "mm": _matmul,
    "bmm": _matmul,
    "mv": _mv,
    "dot": _dot,
    "addmm": _addmm,
    **{
        name: _elementwise(name)
        for name in (
            *("neg", "abs", "sqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "asin"),
            *("acos", "atan", "sinh", "cosh", "tanh", "erf", "erfc", "lgamma", "floor"),
            *("ceil", "round", "trunc"),
        )
    },
    **{name: _arithmetic(name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    **{f"logical_{name}": _logical(name) for name in ("and", "or", "xor", "not")},
    **{f"bitwise_{name}": _logical(name) for name in ("and", "or", "xor", "not")},
}
