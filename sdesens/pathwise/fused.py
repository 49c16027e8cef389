"""The fused engine: state and all tangents advance together in one compiled pass.

The solver's step and its derivative are written as one program of scalar operations and compiled
(:mod:`sdesens.fused`); noise, state and tangents then stay in registers from step to step.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sdesens.brownian import BrownianPath
from sdesens.errors import UncompiledWarning, UnsupportedError
from sdesens.fused.engine import Engine, engine_for, fingerprint, solver_step
from sdesens.fused.kernel import Keep, Run
from sdesens.fused.noise import drawn_elsewhere, noise_form, widths
from sdesens.fused.rules import UnrecordableError
from sdesens.fused.system import Direction, Motion, flat
from sdesens.pathwise.directions import Derivatives, Inputs
from sdesens.pathwise.jvp import jvp
from sdesens.pathwise.progress import Progress
from sdesens.pathwise.tangent import tangent
from sdesens.problem import Problem


def fused(
    problem: Problem, inputs: Inputs, *, chunk_size: int | None, graph: bool, progress: Progress
) -> tuple[Tensor, Derivatives]:
    """Path ``(T, B, d)`` and its derivatives."""
    if graph:
        raise UnsupportedError(
            "engine 'fused' gives no graph, and x0 requires grad. Pass x0.detach(), or use "
            "engine='torchsde' for derivatives that can be differentiated again."
        )
    if problem.grid.steps and problem.x0.shape[0]:
        try:
            check_device(problem)
            with torch.no_grad():
                plan = FusedSolve(problem, inputs)
                out = plan.solve(plan.engine(), problem.x0.detach(), **plan.noise())
            progress.advance(problem.grid.steps)
            return out
        except UnrecordableError as error:
            warnings.warn(
                f"engine 'fused' goes through torchsde, with the same numbers but slower: of "
                f"{type(problem.sde).__name__}, {error}.",
                UncompiledWarning,
                stacklevel=2,
            )
    mode = jvp if problem.derivative_milstein else tangent
    return mode(problem, inputs, chunk_size=chunk_size, graph=False, progress=progress)


def check_device(problem: Problem) -> None:
    """Raise :class:`UnrecordableError` if the problem is not on the CPU."""
    if problem.x0.device.type != "cpu":
        raise UnrecordableError(f"x0 is on {problem.x0.device}, and kernels are for the CPU")


class FusedSolve:
    """A problem laid out for the fused engine; only start, noise and parameters may change."""

    def __init__(self, problem: Problem, inputs: Inputs) -> None:
        self.problem, self.inputs = problem, inputs
        bm, grid = problem.bm, problem.grid
        self.widths = widths(problem)
        drawn = self.widths is not None
        self.form = noise_form(problem.method, bm.shape[1], bm.levy_area_approximation, drawn=drawn)
        step, self.y = solver_step(problem, self.form)
        self.motion = Motion(step, None, problem.sde, self.y, self.form.counters)
        self.directions: list[Direction] = [("x0", j) for j in range(inputs.d) if inputs.x0]
        for name, value in inputs.parameters.items():
            self.directions += [(name, k) for k in range(value.numel())]
        nodes = grid.nodes.double().cpu()
        spans = nodes.diff() if self.widths is None else self.widths
        self.times = torch.stack([nodes[:-1], nodes[1:], spans], dim=1).contiguous()
        self.rates = torch.zeros_like(self.times)
        self.flags = self.times.new_zeros(grid.steps, 0)
        self.moving = self._moving()
        kept = range(grid.steps + 1) if grid.aligned else {*grid.after, *self._before()}
        self.keep = Keep.of(sorted(kept), grid.steps)
        place = {node: k for k, node in enumerate(self.keep.nodes)}
        self.around = torch.tensor(
            [[place[k] for k in self._before()], [place[k] for k in grid.after]]
        )
        self.weights = grid.weights.to(self.y).T[:, :, None, None].contiguous()

    def engine(self) -> Engine:
        """The engine of this problem.

        It may have been made for another model of the same description; some steps of it are
        therefore held against the solver's own.

        Raises:
            UnrecordableError: if the step cannot be written as scalar operations, or then differs.
        """
        for anew in (False, True):
            engine = engine_for(self.motion, self.directions, self.moving, self._key(), anew=anew)
            self.places = engine.layout.places(self.problem.sde)
            units = [1.0 if slot in self.moving else 0.0 for slot in engine.layout.slots]
            self._units = torch.tensor(units, dtype=self.y.dtype)[:, None]
            if self._agrees(engine):
                return engine
        raise UnrecordableError("a path alone does not do what it does in the batch")

    def solve(self, engine: Engine, x0: Tensor, **noise: Any) -> tuple[Tensor, Derivatives]:
        """Path ``(T, B, d)`` and derivatives from ``x0 (B, d)``; ``noise`` as in :class:`Run`."""
        return self._result(engine, engine.kernel.paths(self._run(engine, x0, **noise), self.keep))

    def noise(self) -> dict[str, Any]:
        """The noise of the problem's own Brownian motion."""
        bm = self.problem.bm
        if self.form.drawn:
            assert isinstance(bm, BrownianPath)
            return {"seed": bm.seed, "first_path": bm.first_path}
        return {"noise": drawn_elsewhere(bm, self.problem.grid.nodes, self.form)}

    def _before(self) -> list[int]:
        """The node before each of ``grid.after``."""
        return [max(k - 1, 0) for k in self.problem.grid.after]

    def _moving(self) -> set[tuple[int, int]]:
        """The tangents that start at one: a component by itself."""
        d, size = self.inputs.d, self.y.shape[1]
        return {
            (row, i)
            for row, (name, j) in enumerate(self.directions, 1)
            for i in range(size)
            if name == "x0" and i % d == j
        }

    def _key(self) -> tuple:
        problem = self.problem
        names = [(name, getattr(f, "__name__", "")) for name, f in problem.view.functions.items()]
        kinds = problem.view.sde_type, problem.view.noise_type
        return (*kinds, fingerprint(names), fingerprint(problem.options), self.form.what)

    def _run(self, engine: Engine, x0: Tensor, **noise: Any) -> Run:
        start = self._units.expand(-1, x0.shape[0]).clone()
        size = self.y.shape[1]  # the first slots are those of the state
        start[:size] = x0.T if size == x0.shape[1] else torch.cat([x0, x0], dim=1).T
        return Run(
            parameters=flat(self.places.values()),
            times=self.times,
            rates=self.rates,
            flags=self.flags,
            start=start,
            paths=x0.shape[0],
            **noise,
        )

    def _agrees(self, engine: Engine) -> bool:
        """Whether the first, middle and last step of the kernel are the solver's, from two states.

        One of them is off the start, where a factor of the state would not show in a start of zero.
        """
        steps = self.problem.grid.steps
        x0 = self.problem.x0.detach()[:1]
        starts = x0, 1.1 * x0 + 0.1
        places = sorted({0, steps // 2, steps - 1})
        return all(self._agrees_at(engine, x, k) for x in starts for k in places)

    def _agrees_at(self, engine: Engine, x0: Tensor, k: int) -> bool:
        size = self.y.shape[1]
        noise = self.y.new_full((1, len(self.form.counters)), 0.25)
        run = self._run(engine, x0, noise=noise[..., None])
        one = replace(
            run, times=run.times[k : k + 1], rates=run.rates[k : k + 1], flags=run.flags[k : k + 1]
        )
        got = engine.kernel.paths(one, Keep.of([1], 1))[0, :size, 0]
        times = run.times[k].to(noise.dtype).unbind(0)
        right = self.motion.step(*times, one.start[:size].T, noise, run.flags[k])[0]
        if torch.equal(got, right):
            return True
        tolerance = torch.finfo(got.dtype).eps ** 0.6
        return torch.allclose(got, right, rtol=tolerance, atol=tolerance, equal_nan=True)

    def _result(self, engine: Engine, kept: Tensor) -> tuple[Tensor, Derivatives]:
        d = self.inputs.d
        if not self.problem.grid.aligned:
            kept = (self.weights * kept[self.around]).sum(0)
        times, _, paths = kept.shape
        x = kept.new_zeros(times, paths, d)
        matrix = kept.new_zeros(times, paths, d, self.inputs.count)
        for k, (row, i) in enumerate(engine.layout.slots):
            if i < d:  # behind them stands what a solver carries beside the state
                (x[..., i] if row == 0 else matrix[..., i, row - 1]).copy_(kept[:, k])
        return x, self.inputs.split(matrix)
