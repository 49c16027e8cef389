"""A simulation: what is simulated and what is computed from it, as one motion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from sdesens._checks import did_you_mean
from sdesens.fused.engine import own_step, solver_step
from sdesens.fused.noise import noise_form
from sdesens.fused.system import Direction, Motion
from sdesens.montecarlo.functionals import Functional
from sdesens.problem import Problem
from sdesens.sde import SDE

Payoff = Callable[[Any], Tensor | Mapping[str, Tensor]]


class State(SimpleNamespace):
    """A state under the names of its components, with ``time`` and ``y (P, d)``."""

    def __getattr__(self, name: str) -> Any:
        there = sorted(vars(self))
        raise AttributeError(
            f"the state has no {name!r}; it has {there}.{did_you_mean(name, there)}"
        )


@dataclass(frozen=True)
class Simulation:
    """A model on a grid, with functionals and a payoff; all checked.

    Attributes:
        problem: the model and its solver, for a single path.
        maturity: end of the grid, which starts at 0.
        steps: number of steps.
        scheme: solver of torchsde, or one of the model's own.
        payoff: function of the state at the end.
        functionals: by name.
        directions: what is differentiated in.
    """

    problem: Problem
    maturity: float
    steps: int
    scheme: str
    payoff: Payoff
    functionals: Mapping[str, Functional]
    directions: Sequence[Direction]

    def motion(self) -> Motion:
        """The step and the end of the simulation, for the fused engine."""
        problem = self.problem
        if isinstance(problem.sde, SDE) and self.scheme in problem.sde.schemes:
            advance, y, counters = own_step(problem, self.scheme)
        else:
            area = problem.bm.levy_area_approximation
            form = noise_form(problem.method, problem.bm.shape[1], area, True)
            advance, y = solver_step(problem, form)
            counters = form.counters
        size = y.shape[1]
        functionals = list(self.functionals.values())

        def step(start, end, width, y, noise, flags):
            state, values = y[:, :size], y[:, size:]
            after = advance(start, end, width, state, noise, flags)
            if not functionals:
                return after
            here, there = self.state(start, state), self.state(end, after)
            updated = [
                f.update(values[:, k], here, there, flags[k]) for k, f in enumerate(functionals)
            ]
            return torch.cat([after, torch.stack(updated, dim=1)], dim=1)

        def finish(end, y):
            return self.outputs(end, y[:, :size], y[:, size:])

        begin = torch.zeros((), dtype=y.dtype)
        extra = [f.start(self.state(begin, y), begin).expand(1) for f in functionals]
        whole = torch.cat([y, torch.stack(extra, dim=1)], dim=1) if extra else y
        count = len(self.output_names())
        return Motion(step, finish, problem.sde, whole.detach(), counters, len(functionals), count)

    def state(self, time: Tensor, y: Tensor, **more: Tensor) -> State:
        """The state under the names of its components; ``y (P, d)`` and ``time`` as they are."""
        sde, d = self.problem.sde, self.problem.x0.shape[1]
        y = y[:, :d]
        named = dict(zip(sde.state, sde.components(y), strict=True)) if isinstance(sde, SDE) else {}
        return State(**{"time": time, "y": y, **named, **more})

    def outputs(self, end: Tensor, y: Tensor, values: Tensor) -> list[Tensor]:
        """What the payoff gives, one ``(P,)`` an output."""
        named = dict(zip(self.functionals, values.unbind(1), strict=True))
        out = _by_name(self.payoff(self.state(end, y, **named)))
        return [value.expand(y.shape[0]) for value in out.values()]

    def output_names(self) -> list[str]:
        """Names of the payoff's outputs; the payoff is run once, on two copies of the start.

        Raises:
            ValueError: if it does not return one number a path.
        """
        x0 = self.problem.x0.detach().expand(2, -1)
        values = dict.fromkeys(self.functionals, x0[:, 0])
        end = torch.tensor(self.maturity, dtype=torch.float64)
        with torch.no_grad():
            out = _by_name(self.payoff(self.state(end, x0, **values)))
        for name, value in out.items():
            if not isinstance(value, Tensor) or value.shape != (2,):
                came = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise ValueError(
                    f"the payoff must return one number a path, shape (P,), or a dict of such; "
                    f"output {name!r} of two paths is {came}."
                )
        if not out:
            raise ValueError("the payoff must return at least one output, got an empty dict.")
        return list(out)

    def flags(self) -> Tensor:
        """``(steps + 1, F)``: 1 where a node is a date of a functional."""
        table = torch.zeros(self.steps + 1, len(self.functionals), dtype=torch.float64)
        for k, functional in enumerate(self.functionals.values()):
            if functional.dates is None:
                table[1:, k] = 1.0
            else:
                for date in functional.dates:
                    table[round(date / self.maturity * self.steps), k] = 1.0
        return table


def _by_name(out: Tensor | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """What a payoff returned, a single output under the name ``"value"``."""
    return out if isinstance(out, Mapping) else {"value": out}
