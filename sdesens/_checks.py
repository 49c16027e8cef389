"""Checks of arguments: each says what was expected, what came, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor


def check_tensor(name: str, value: Any, shape: str | None = None, cure: str = "") -> Tensor:
    """``value`` as a tensor of floating dtype with as many dimensions as ``shape`` has names."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} must be a torch.Tensor, got {type(value).__name__}. "
            f"{cure or f'Use torch.as_tensor({name}).'}"
        )
    if not value.is_floating_point():
        raise TypeError(
            f"{name} must have a floating dtype, got {value.dtype}. Use {name}.double() or "
            f"{name}.float()."
        )
    if shape is not None and value.dim() != len(shape.strip("()").split(",")):
        raise ValueError(
            f"{name} must have shape {shape}, got {tuple(value.shape)}. {cure}".rstrip()
        )
    return value


def numbers(name: str, value: Any, dtype: torch.dtype = torch.float64) -> Tensor:
    """``value``, a number or a nesting of them, as a tensor; what is none of these is refused."""
    try:
        return torch.as_tensor(value, dtype=dtype)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"{name} must be a number, numbers or a tensor, got {value!r} ({type(value).__name__})."
        ) from None


def check_float(name: str, value: Any) -> float:
    """``value`` as a float; several numbers, or what is none, are refused."""
    tensor = numbers(name, value)
    if tensor.dim():
        raise ValueError(f"{name} must be a number, got shape {tuple(tensor.shape)}.")
    return float(tensor)


def check_floats(name: str, values: Iterable[Any]) -> tuple[float, ...]:
    """``values`` as floats; the first that is none is named by its index."""
    return tuple(check_float(f"{name}[{k}]", value) for k, value in enumerate(values))


def check_finite(name: str, value: Tensor) -> None:
    """Raise if an entry of ``value`` is NaN or infinite, naming the first."""
    bad = ~torch.isfinite(value.detach())
    if bool(bad.any()):
        index = tuple(bad.nonzero()[0].tolist())
        raise ValueError(
            f"{name} must be finite, got {value[index].item()} at index {list(index)} "
            f"({int(bad.sum())} non-finite entries). Remove or mend these samples."
        )


def check_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """``value`` if it is one of ``choices``; otherwise an error that offers the nearest one."""
    choices = tuple(choices)
    if isinstance(value, str) and value in choices:
        return value
    raise ValueError(
        f"{name} must be one of {list(choices)}, got {value!r}.{did_you_mean(value, choices)}"
    )


def did_you_mean(value: Any, choices: Sequence[str]) -> str:
    """A clause that offers the nearest choice, or nothing."""
    near = difflib.get_close_matches(str(value), choices, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def check_int(name: str, value: Any) -> int:
    """``value`` as an int; bool and float are refused."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, got {value!r} ({type(value).__name__}).")
    return value.__index__()


def check_count(name: str, value: Any, minimum: int = 1) -> int:
    """``value`` as an int of at least ``minimum``; bool and float are refused."""
    count = check_int(name, value)
    if count < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {count}.")
    return count


def is_transformed(value: Tensor) -> bool:
    """Whether ``value`` is seen from inside ``torch.func.vmap``, ``grad`` or ``jvp``."""
    return torch._C._functorch.is_functorch_wrapped_tensor(value)  # pyright: ignore
