"""Dual numbers that stay fast, and rows: a batch of directions laid out as more samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

from sdesens.brownian import BaseBrownian, WrappedBrownian

_ARITHMETIC = {
    getattr(owner, name)
    for owner in (torch, Tensor)
    for name in (
        *("mul", "add", "sub", "div", "true_divide", "multiply", "subtract", "divide"),
        *("__mul__", "__rmul__", "__add__", "__radd__", "__sub__", "__rsub__"),
        *("__truediv__", "__rtruediv__"),
    )
    if hasattr(owner, name)
}


class _ZeroTangents(TorchFunctionMode):
    """Give the plain partner of a dual number in ``+ - * /`` a tangent of real zeros.

    Without it torch 2.13 fills the missing tangent by a zero tensor that goes through Python
    reference code: 60 to 300 µs an operation instead of 5 to 10.
    """

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[tuple[float, torch.dtype], Tensor] = {}
        self._parameters: dict[int, Tensor] = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func not in _ARITHMETIC or len(args) != 2:
            return func(*args, **kwargs) if kwargs else func(*args)
        a, b = args
        if _is_dual(a):
            if not _is_dual(b):
                b = self._lift(b, a)
        elif _is_dual(b):
            a = self._lift(a, b)
        return func(a, b, **(kwargs or {}))

    def _lift(self, value: Any, partner: Tensor) -> Any:
        if type(value) is nn.Parameter:
            if id(value) not in self._parameters:
                self._parameters[id(value)] = dual(value)
            return self._parameters[id(value)]
        if isinstance(value, Tensor):
            return dual(value) if value.is_floating_point() else value
        if not isinstance(value, (int, float)):
            return value
        key = (value, partner.dtype)
        if key not in self._numbers:
            self._numbers[key] = dual(
                torch.tensor(value, dtype=partner.dtype, device=partner.device)
            )
        return self._numbers[key]


def has_tangent(value: Tensor) -> bool:
    """Whether ``value`` carries a tangent."""
    return torch._VF._unpack_dual(value, level=0)[1] is not None


def _is_dual(value: Any) -> bool:
    return isinstance(value, Tensor) and has_tangent(value)


@contextmanager
def dual_numbers() -> Iterator[None]:
    """A forward-mode level in which numbers and plain tensors do not slow arithmetic down."""
    with forward_ad.dual_level(), lifted():
        yield


def lifted() -> TorchFunctionMode:
    """A context inside one forward-mode level in which dual numbers meet no plain ones."""
    return _ZeroTangents()


def dual(primal: Tensor, tangent: Tensor | None = None) -> Tensor:
    """``primal`` with ``tangent``, zeros if omitted."""
    tangent = torch.zeros_like(primal) if tangent is None else tangent
    try:
        return torch._VF._make_dual(primal, tangent, level=0)
    except RuntimeError:  # an expanded tensor, whose tangent would be laid out over itself
        return torch._VF._make_dual(primal.contiguous(), tangent, level=0)


def unpack(value: Tensor) -> tuple[Tensor, Tensor]:
    """Primal and tangent, the tangent zeros where there is none."""
    primal, tangent = forward_ad.unpack_dual(value)
    return primal, torch.zeros_like(primal) if tangent is None else tangent


class TiledNoise(WrappedBrownian):
    """``bm`` for ``rows`` copies of its batch, one below the other."""

    def __init__(self, bm: BaseBrownian, rows: int, as_dual: bool = False) -> None:
        super().__init__(bm)
        self._rows, self._as_dual = rows, as_dual

    def __call__(self, ta, tb=None, return_U=False, return_A=False):
        out = self._bm(ta, tb, return_U=return_U, return_A=return_A)
        return tuple(map(self._tile, out)) if isinstance(out, tuple) else self._tile(out)

    def _tile(self, part: Tensor | None) -> Tensor | None:
        if part is None:
            return None
        if self._rows > 1:
            part = torch.cat([part] * self._rows)
        return dual(part) if self._as_dual else part

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._rows * self._bm.shape[0], *self._bm.shape[1:])
