"""A simulation: what is simulated and what is computed from it, as one motion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from sdesens import _philox
from sdesens._checks import did_you_mean
from sdesens.fused.engine import own_step, solver_step
from sdesens.fused.noise import noise_form
from sdesens.fused.system import Direction, Motion
from sdesens.montecarlo.functionals import Functional
from sdesens.montecarlo.laws import Conditioning, StepLaw
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
class Clock:
    """The grid of a simulation, from 0 to the maturity in equal steps.

    Attributes:
        maturity: its end.
        steps: number of steps.
        flags: ``(steps + 1, F)``, a number for each node and flag: 1 where a node is a date.
    """

    maturity: float
    steps: int
    flags: Tensor

    def times(self) -> tuple[Tensor, Tensor]:
        """``(steps, 3)`` start, end and width of each step, and their rates in the maturity."""
        nodes = torch.arange(self.steps + 1, dtype=torch.float64) / self.steps
        rates = torch.stack([nodes[:-1], nodes[1:], nodes.diff()], dim=1)
        return rates * self.maturity, rates


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
        conditioning: whose law functionals use, if any does.
        holder: a module that holds the model and other tensors to differentiate in.
    """

    problem: Problem
    maturity: float
    steps: int
    scheme: str
    payoff: Payoff
    functionals: Mapping[str, Functional]
    directions: Sequence[Direction]
    conditioning: Conditioning | None = None
    holder: object | None = None

    def motion(self) -> Motion:
        """The step and the end of the simulation, for the fused engine."""
        advance, y, counters = self._model_step()
        size, own = y.shape[1], len(counters)
        functionals = list(self.functionals.values())
        shares = [f.normals for f in functionals]
        bridge = [_philox.word(_philox.BRIDGE, c) for c in range(sum(shares))]
        flags_at_start = self.clock().flags[0].to(y.dtype)

        def step(start, end, width, y, noise, flags):
            state, values = y[:, :size], y[:, size:]
            noise, extra = noise[:, :own], noise[:, own:].split(shares, dim=1)

            def move(noise: Tensor) -> Tensor:
                return advance(start, end, width, state, noise, flags)

            exponent = self._exponent(start, width, state)
            noise, law = self._steered(move, noise, flags, exponent)
            after = move(noise)
            if not functionals:
                return after
            so_far = dict(zip(self.functionals, values.unbind(1), strict=True))
            here = self.state(start, state, **so_far)
            updated = []
            for k, f in enumerate(functionals):
                there = self.state(end, after, law=law, normals=extra[k])
                updated.append(f.update(values[:, k], here, there, flags[k]))
            return torch.cat([after, torch.stack(updated, dim=1)], dim=1)

        def finish(end, y):
            return self.outputs(end, y[:, :size], y[:, size:])

        def start(x0):
            state = self.state(x0.new_zeros(()), x0)
            values = [
                f.start(state, flag).expand(x0.shape[0])[:, None]
                for f, flag in zip(functionals, flags_at_start, strict=True)
            ]
            return torch.cat([*[x0] * (size // x0.shape[1]), *values], dim=1)

        with torch.no_grad():
            whole = start(y[:, : self.problem.x0.shape[1]]).detach()
        return Motion(
            step,
            finish,
            self.model,
            whole,
            [*counters, *bridge],
            len(functionals),
            len(self.output_names()),
            start,
            type(self.problem.sde).__name__,
        )

    def _model_step(self) -> tuple[Callable[..., Tensor], Tensor, list[int]]:
        """The step of the model alone, an example of its state, and the counters of its noise."""
        problem = self.problem
        if isinstance(problem.sde, SDE) and self.scheme in problem.sde.schemes:
            return own_step(problem, self.scheme)
        area = problem.bm.levy_area_approximation
        form = noise_form(problem.method, problem.bm.shape[1], area, True)
        advance, y = solver_step(problem, form)
        return advance, y, list(form.counters)

    def _exponent(
        self, start: Tensor, width: Tensor, state: Tensor
    ) -> Callable[[Tensor], tuple[Tensor, Tensor]] | None:
        """What the model says of its log-return in a step, as a function of the noise."""
        sde = self.problem.sde
        method = getattr(sde, f"exponent_{self.scheme}", None)
        if method is None:
            return None
        return lambda noise: method(start, width, noise.mT, *sde.components(state))

    def _steered(
        self,
        move: Callable[[Tensor], Tensor],
        noise: Tensor,
        flags: Tensor,
        exponent: Callable[[Tensor], tuple[Tensor, Tensor]] | None,
    ) -> tuple[Tensor, StepLaw | None]:
        """The noise as the functionals want it, and the law of the step."""
        if self.conditioning is None:
            return noise, None
        law, c = self.conditioning.law(move, noise, exponent), self.conditioning.channel
        z = noise[:, c]
        for k, functional in enumerate(self.functionals.values()):
            z = functional.steer(z, law, flags[k])
        return torch.cat([noise[:, :c], z[:, None], noise[:, c + 1 :]], dim=1), law

    @property
    def model(self) -> object:
        """What holds all tensors that a derivative can be taken in."""
        return self.problem.sde if self.holder is None else self.holder

    def state(self, time: Tensor, y: Tensor, **more: Any) -> State:
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

    def clock(self) -> Clock:
        """The grid, and the dates of the functionals on it."""
        table = torch.zeros(self.steps + 1, len(self.functionals), dtype=torch.float64)
        for k, functional in enumerate(self.functionals.values()):
            if functional.dates is None:
                table[1:, k] = 1.0
            else:
                for date in functional.dates:
                    table[round(date / self.maturity * self.steps), k] = 1.0
        return Clock(self.maturity, self.steps, table)


def _by_name(out: Tensor | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """What a payoff returned, a single output under the name ``"value"``."""
    return out if isinstance(out, Mapping) else {"value": out}
