"""Arguments of the formulas: numbers become float64 tensors and are checked."""

from __future__ import annotations

import torch
from torch import Tensor

from sdesens._checks import is_transformed
from sdesens.sde import Number


def as_numbers(**values: Number) -> list[Tensor]:
    """``values`` in their order as finite float64 tensors, still part of the caller's graph."""
    numbers = []
    for name, value in values.items():
        if not isinstance(value, Tensor | float | int):
            raise TypeError(
                f"{name} must be a number or a tensor, got {value!r} ({type(value).__name__})."
            )
        number = torch.as_tensor(value, dtype=torch.float64)
        _check(name, number, torch.isfinite(number), "finite", "Remove or mend these entries.")
        numbers.append(number)
    return numbers


def check_positive(**values: Tensor) -> None:
    """Raise if an entry is zero or negative."""
    for name, value in values.items():
        _check(name, value, value > 0, "positive", "The logarithm of it is taken.")


def check_not_negative(**values: Tensor) -> None:
    """Raise if an entry is negative; zero is allowed."""
    for name, value in values.items():
        cure = "Years count from the valuation date." if name in ("maturity", "dates") else ""
        _check(name, value, value >= 0, "zero or positive", cure or f"Pass abs({name}) if meant.")


def check_correlation(**values: Tensor) -> None:
    """Raise if an entry is outside ``[-1, 1]``."""
    for name, value in values.items():
        _check(name, value, value.abs() <= 1, "in [-1, 1]", "It is a correlation, not a percent.")


def _check(name: str, value: Tensor, good: Tensor, expected: str, cure: str) -> None:
    """Raise unless all ``good``; under ``torch.func`` there is no value to look at."""
    if is_transformed(good) or bool(good.all()):
        return
    index = tuple((~good).nonzero()[0].tolist())
    where = f" at index {list(index)}" if index else ""
    raise ValueError(f"{name} must be {expected}, got {value[index].item()}{where}. {cure}")
