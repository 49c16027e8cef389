"""Checks of the arguments of a simulation, before anything is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sdesens._checks import check_choice, check_count, check_finite, check_float, numbers
from sdesens._parameters import known_parameters
from sdesens.fused.system import Direction
from sdesens.montecarlo.functionals import Functional
from sdesens.prepare import prepare, refuse_coupling
from sdesens.problem import Problem
from sdesens.sde import SDE


def check_run(seed: int, shard_size: int) -> None:
    """Raise unless these are counts, and the seed one of 64 bits."""
    check_count("shard_size", shard_size)
    if not 0 <= check_count("seed", seed, 0) < 2**64:
        raise ValueError(f"seed must be in [0, 2**64), got {seed}.")


def problem_of(
    sde: Any,
    x0: Tensor | Sequence[float],
    maturity: float,
    steps: int,
    scheme: str,
    *,
    dtype: torch.dtype,
    options: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
) -> Problem:
    """The model with its start and its scheme, checked."""
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"dtype must be torch.float32 or torch.float64, got {dtype}.")
    x0 = _check_x0(x0, dtype)
    for name, value in known_parameters(sde).items():
        if value.device.type != "cpu":
            raise ValueError(
                f"the parameter {name!r} is on {value.device}; simulations run on the CPU. Use "
                f"model.cpu()."
            )
        check_finite(f"the parameter {name!r}", value)
    own = scheme in sde.schemes if isinstance(sde, SDE) else False
    ts = torch.tensor([0.0, maturity], dtype=torch.float64)
    problem = prepare(
        sde, x0, ts, method=None if own else scheme, dt=maturity / steps, seed=0, options=options,
        names=names,
    )  # fmt: skip
    refuse_coupling(problem)
    return problem


def check_maturity(maturity: Any) -> float:
    """The end of the paths, a positive number."""
    value = check_float("maturity", maturity)
    if not (value > 0 and value < float("inf")):
        raise ValueError(f"maturity must be positive and finite, got {maturity}.")
    return value


def _check_x0(x0: Tensor | Sequence[float], dtype: torch.dtype) -> Tensor:
    x0 = numbers("x0", x0, dtype).detach()
    if x0.dim() != 1:
        raise ValueError(
            f"x0 must have shape (d,), one start for all paths, got {tuple(x0.shape)}. A "
            f"single number is [x]."
        )
    return x0.cpu()[None]


def directions_of(sde: Any, x0: Tensor, wrt: str | Sequence[str]) -> list[Direction]:
    """Every entry of every input."""
    known = known_parameters(sde)
    components = component_names(sde, x0.shape[1])
    if wrt == "all":
        wrt = ("x0", *distinct(known), "maturity")
    wrt = (wrt,) if isinstance(wrt, str) else tuple(wrt)
    out: list[Direction] = []
    for name in wrt:
        check_choice("wrt", name, ("x0", *components, *known, "maturity"))
        if name in known and name in ("x0", *components, "maturity"):
            raise ValueError(
                f"wrt has {name!r}, which is a parameter of {type(sde).__name__} and also an input "
                f"of every simulation. Rename the parameter."
            )
        if name == "x0":
            out += [("x0", j) for j in range(x0.shape[1])]
        elif name in known:
            out += [(name, k) for k in range(known[name].numel())]
        elif name == "maturity":
            out.append((name, 0))
        else:
            out.append(("x0", components.index(name)))
    repeated = {name for name in out if out.count(name) > 1}
    if repeated:
        raise ValueError(f"wrt names {sorted(repeated)} more than once: {list(wrt)}.")
    return out


def distinct(known: Mapping[str, Tensor]) -> list[str]:
    """Names of the parameters, tied ones once."""
    seen: dict[int, str] = {}
    for name, value in known.items():
        seen.setdefault(id(value), name)
    return list(seen.values())


def component_names(sde: Any, d: int) -> list[str]:
    """Names of the entries of x0."""
    if not isinstance(sde, SDE):
        return [f"x{i}" for i in range(d)]
    if isinstance(sde.state, Mapping):
        return [f"{name}[{i}]" for name, n in sde.state.items() for i in range(n)]
    return list(sde.state)


def check_functionals(
    functionals: Mapping[str, Functional], sde: Any, x0: Tensor, maturity: float, steps: int
) -> None:
    """Raise unless the functionals have free names and dates on the grid."""
    taken = {"time", "y", "law", "normals", *component_names(sde, x0.shape[1])}
    for name, functional in functionals.items():
        if not isinstance(functional, Functional):
            raise TypeError(
                f"functionals[{name!r}] must be a Functional, got {type(functional).__name__}."
            )
        if name in taken:
            raise ValueError(f"a functional cannot be called {name!r}: the state has that name.")
        for date in functional.dates or ():
            node = date / maturity * steps
            if not 0 <= node <= steps * (1 + 1e-12) or abs(node - round(node)) > 1e-6:
                nearest = min(max(round(node), 0), steps) * maturity / steps
                raise ValueError(
                    f"functionals[{name!r}] asks for the date {date:g}, which is not on the grid "
                    f"of {steps} steps up to {maturity:g}; the nearest node is {nearest:g}. Change "
                    f"steps or the date."
                )
        found = [round(date / maturity * steps) for date in functional.dates or ()]
        if len(set(found)) < len(found):
            raise ValueError(
                f"functionals[{name!r}] has dates at the same node of the grid, "
                f"{list(functional.dates or ())}; each counts once. Name each once."
            )
