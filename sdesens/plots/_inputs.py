"""Results as arrays to draw, checked: what was expected, what came, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdesens._checks import check_choice, check_finite, check_int, numbers
from sdesens.montecarlo.estimates import Estimate
from sdesens.pathwise.result import Sensitivities

Array = NDArray[np.float64]
Entry = int | Sequence[int] | None
TIME = "time $t$"


def array(value: Tensor) -> Array:
    """Off its graph and device, in float64."""
    return value.detach().cpu().double().numpy()


def vector(name: str, values: Any, length: int | None = None, like: str = "") -> Array:
    """``values`` as finite numbers ``(n,)``, as many as ``like`` has if a length is given."""
    tensor = numbers(name, values)
    if tensor.dim() != 1 or not len(tensor):
        raise ValueError(f"{name} must have shape (n,), n at least 1, got {tuple(tensor.shape)}.")
    if length is not None and len(tensor) != length:
        raise ValueError(
            f"{name} must have as many entries as {like}, {length}, got {len(tensor)}."
        )
    check_finite(name, tensor)
    return array(tensor)


def estimates(name: str, values: Any, length: int, like: str) -> tuple[Array, Array]:
    """Values and standard errors ``(n,)`` of one :class:`Estimate` of ``(n,)``, or of n of them."""
    if isinstance(values, Estimate):
        parts = values.value, values.stderr
    else:
        if not isinstance(values, Iterable):
            raise TypeError(
                f"{name} must be Estimates, one for each of {like}, got {type(values).__name__}."
            )
        listed = list(values)
        for k, each in enumerate(listed):
            if not isinstance(each, Estimate):
                raise TypeError(
                    f"{name} must hold an Estimate each, got {type(each).__name__} at index {k}. "
                    f"Use report['spot'], or Estimate(value, stderr)."
                )
        parts = [e.value for e in listed], [e.stderr for e in listed]
    value = vector(f"the values of {name}", parts[0], length, like)
    stderr = vector(f"the standard errors of {name}", parts[1], length, like)
    if (stderr < 0).any():
        raise ValueError(f"the standard errors of {name} must not be negative, got {stderr.min()}.")
    return value, stderr


# --- sensitivities -------------------------------------------------------------------------------


def check_sensitivities(name: str, sens: Any) -> Sensitivities:
    """``sens`` if it is a result of :func:`sdesens.sensitivities` on at least two times."""
    if not isinstance(sens, Sensitivities):
        raise TypeError(
            f"{name} must be Sensitivities, got {type(sens).__name__}. Use what "
            f"sdesens.sensitivities(...) returns."
        )
    if len(sens.ts) < 2 or not sens.x.shape[1]:
        raise ValueError(
            f"{name} must have at least two times and one sample, got x of shape "
            f"{tuple(sens.x.shape)}."
        )
    return sens


def check_index(name: str, index: Any, size: int, what: str) -> int:
    """``index`` as an int in ``[0, size)``."""
    at = check_int(name, index)
    if not 0 <= at < size:
        raise ValueError(f"{name} must be in [0, {size}), as there are {size} {what}, got {at}.")
    return at


def derivative(sens: Sensitivities, out: Any, wrt: str, entry: Entry) -> tuple[Array, str]:
    """``dX_t^out / d wrt[entry]``, ``(T, B)``, and its label."""
    known = sens.derivatives()
    check_choice("wrt", wrt, known)
    d = sens.x.shape[2]
    out = check_index("out", out, d, "components")
    value = known[wrt][:, :, out]
    at = _entry_of(wrt, tuple(value.shape[2:]), entry)
    state = "X_t" if d == 1 else f"X_t^{{({out})}}"
    return array(value[(slice(None), slice(None), *at)]), f"$d{state} / d{symbol(wrt, at, d)}$"


def _entry_of(wrt: str, shape: tuple[int, ...], entry: Entry) -> tuple[int, ...]:
    """``entry`` as an index into the shape of an input; of a single number there is no choice."""
    if entry is None:
        if torch.Size(shape).numel() == 1:
            return (0,) * len(shape)
        raise ValueError(
            f"wrt={wrt!r} has {torch.Size(shape).numel()} entries, of shape {shape}. Name one of "
            f"them, as by entry={(0,) * len(shape) if len(shape) > 1 else 0}."
        )
    at = tuple(entry) if isinstance(entry, Sequence) else (entry,)
    if len(at) != len(shape):
        raise ValueError(f"entry must be an index into shape {shape} of {wrt!r}, got {entry!r}.")
    return tuple(check_index("entry", i, n, f"of {wrt!r}") for i, n in zip(at, shape, strict=True))


# --- letters -------------------------------------------------------------------------------------

_GREEK = frozenset((
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda",
    "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
))  # fmt: skip


def symbol(name: str, at: Sequence[int] = (), d: int = 2) -> str:
    """The letter of an input in mathtext: ``kappa`` is its Greek one, other names are upright."""
    if name == "x0":
        return "x_0" if d == 1 else f"x_0^{{({at[0]})}}"
    text = name.replace("_", r"\_").replace(".", r".\!")  # mathtext puts a space after a dot
    letter = rf"\{name}" if name in _GREEK else rf"\mathrm{{{text}}}"
    return f"{letter}_{{{','.join(map(str, at))}}}" if at else letter
