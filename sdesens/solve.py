"""The one place that calls torchsde: its ``sdeint``, its solvers' steps, what they can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
import torchsde
from torch import Tensor
from torchsde._core import base_sde, methods

from sdesens.brownian import BaseBrownian, WrappedBrownian
from sdesens.problem import Problem
from sdesens.sde import View

METHODS = (
    "euler",
    "milstein",
    "srk",
    "euler_heun",
    "heun",
    "midpoint",
    "log_ode",
    "reversible_heun",
)


def methods_for(sde_type: str, noise_type: str) -> list[str]:
    """The methods that solve SDEs of this type with noise of this type."""
    found = [(name, methods.select(name, sde_type)) for name in METHODS]
    return [n for n, s in found if s.sde_type == sde_type and noise_type in s.noise_types]


def levy_areas_for(method: str, sde_type: str) -> tuple[str, ...]:
    """The Lévy areas one of which the method needs of a Brownian motion."""
    return tuple(methods.select(method, sde_type).levy_area_approximations)


def integrate(
    problem: Problem,
    *,
    view: View | None = None,
    x0: Tensor | None = None,
    ts: Tensor | None = None,
    dt: Tensor | None = None,
    bm: BaseBrownian | None = None,
) -> Tensor:
    """The path by ``torchsde.sdeint``, ``(T, batch, d)``; any part may be given in another form."""
    path = torchsde.sdeint(
        problem.view if view is None else view,
        problem.x0 if x0 is None else x0,
        problem.ts if ts is None else ts,
        bm=problem.bm if bm is None else bm,
        method=problem.method,
        dt=problem.dt if dt is None else dt,
        options=problem.options,
    )
    assert isinstance(path, Tensor)
    return path


def solver_of(
    problem: Problem,
    *,
    view: View | None = None,
    bm: BaseBrownian | None = None,
    functional: bool = False,
) -> Any:
    """The solver object of torchsde, of which ``step(t0, t1, y0, extra) -> (y1, extra)`` is used.

    ``functional`` has the derivatives inside a step (Milstein, log-ODE) taken by ``torch.func``,
    so that the step can be put under ``vmap``.
    """
    solver = methods.select(problem.method, problem.view.sde_type)
    wrapper = _FunctionalSDE if functional else base_sde.ForwardSDE
    return solver(
        sde=wrapper(problem.view if view is None else view),
        bm=problem.bm if bm is None else bm,
        dt=problem.dt,
        adaptive=False,
        rtol=0.0,
        atol=0.0,
        dt_min=0.0,
        options=dict(problem.options),
    )


def march(problem: Problem, solver: Any, x0: Tensor) -> Iterator[tuple[Tensor, Any]]:
    """State and extra solver state at every node, bit for bit as in ``torchsde.sdeint``.

    The steps are those of torchsde's loop, which also works out at every step where it is and
    interpolates there; with the grid known beforehand that half of its time is saved.
    """
    nodes = problem.grid.nodes.unbind(0)
    y, extra = x0, solver.init_extra_solver_state(nodes[0], x0)
    yield y, extra
    for t0, t1 in pairwise(nodes):
        y, extra = solver.step(t0, t1, y, extra)
        yield y, extra


class StepMap:
    """One step of the solver as a function of the whole state that it carries from step to step.

    The state ``(B, D)`` is that of the path, and behind it for ``reversible_heun`` its second state
    z, of which the f and g that the solver carries are functions.
    """

    def __init__(self, problem: Problem) -> None:
        self.copies = 2 if problem.method == "reversible_heun" else 1
        self._noise = _ReplayedNoise(problem.bm)
        self._solver = solver_of(problem, bm=self._noise, functional=True)

    def pack(self, y: Tensor, extra: Any) -> Tensor:
        """The whole state of a solver that is at ``y`` with its extra state."""
        return y if self.copies == 1 else torch.cat([y, extra[2]], dim=-1)

    def __call__(self, t0: Tensor, t1: Tensor, state: Tensor, noise: Sequence[Tensor]) -> Tensor:
        """One step from ``state``; ``noise`` is what the solver asks of a Brownian motion."""
        y, extra = state, ()
        if self.copies == 2:
            y, z = state.chunk(2, dim=-1)
            extra = (*self._solver.sde.f_and_g(t0, z), z)
        self._noise.current = tuple(noise)
        try:
            return self.pack(*self._solver.step(t0, t1, y, extra))
        finally:
            self._noise.current = ()  # what a transform made must not outlive it


class _ReplayedNoise(WrappedBrownian):
    """Answers any query with ``current``."""

    current: tuple[Tensor, ...] = ()

    def __call__(self, ta, tb=None, return_U=False, return_A=False):
        return self.current if return_U or return_A else self.current[0]


class _FunctionalSDE(base_sde.ForwardSDE):
    """torchsde's solver-side SDE, with its inner derivatives taken by ``torch.func``."""

    def g_prod_and_gdg_prod_default(self, t, y, v1, v2):
        g, pull_back = torch.func.vjp(lambda z: self.g(t, z), y)[:2]
        return self.prod(g, v1), pull_back(g * v2.unsqueeze(-2))[0]

    def g_prod_and_gdg_prod_diagonal(self, t, y, v1, v2):
        g, pull_back = torch.func.vjp(lambda z: self.g(t, z), y)[:2]
        return self.prod(g, v1), pull_back(g * v2)[0]

    def dg_ga_jvp_column_sum_v1(self, t, y, a):
        ga = torch.bmm(self.g(t, y), a)
        columns = [
            torch.func.jvp(lambda z, k=k: self.g(t, z)[..., k], (y,), (ga[..., k],))[1]
            for k in range(ga.shape[-1])
        ]
        return torch.stack(columns).sum(0)
