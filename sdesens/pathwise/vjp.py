r"""Reverse mode: batched VJPs of the solver's steps, chained along time.

The path is solved once, without a graph. Every step ``x_{k+1} = Φ_k(x_k; θ)`` is then taken again
from the recorded state, all steps at once under ``vmap``, and one batched VJP with an identity of
the state dimension as grad_outputs (:func:`~sdesens.autodiff.per_sample_jacobian`) gives

.. math:: A_k = ∂Φ_k/∂x, \quad B_k = ∂Φ_k/∂θ,

from which ``J_{k+1} = A_k J_k + B_k``. An identity over all times through one long graph would give
the same numbers at a cost that grows with the square of the number of times.

Parameters are shared by the samples, so their VJP is taken sample by sample: each gets its own copy
in ``vmap``. A model that cannot be put under ``vmap`` (control flow on the time, a tensor with one
entry a sample) falls back to one step at a time, and to an identity over samples. Whatever way is
taken, its steps must land on the recorded path, or it is not used.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

from sdesens.autodiff import per_sample_jacobian
from sdesens.brownian import BaseBrownian, WrappedBrownian
from sdesens.errors import UnsupportedError
from sdesens.pathwise.directions import Derivatives, Inputs
from sdesens.pathwise.progress import Progress
from sdesens.problem import Problem
from sdesens.solve import StepMap, march, solver_of

_CHUNK_NUMBERS = 2**22  # numbers in the step Jacobians held at once, unless chunk_size is given


def vjp(
    problem: Problem, inputs: Inputs, *, chunk_size: int | None, graph: bool, progress: Progress
) -> tuple[Tensor, Derivatives]:
    """Path ``(T, B, d)`` and its derivatives, linearised ``chunk_size`` steps at a time."""
    with torch.set_grad_enabled(graph):
        steps = _Steps(problem, graph, progress)
        chain = _chain(problem, inputs, steps, chunk_size, graph)
    return problem.grid.at_times(steps.path), inputs.split(chain)


def _chain(
    problem: Problem, inputs: Inputs, steps: _Steps, chunk_size: int | None, graph: bool
) -> Tensor:
    """``(T, B, d, directions)``: the product of the step Jacobians, interpolated at ``ts``."""
    (batch, d), size, grid = problem.x0.shape, steps.states.shape[-1], problem.grid
    first = d if inputs.x0 else 0
    state = problem.x0.new_zeros(batch, size, inputs.count)
    if first:
        for block in range(size // d):  # an extra solver state starts as a copy of x0
            state[:, block * d : (block + 1) * d, :d] = torch.eye(d, dtype=state.dtype)
    if chunk_size is None:
        per_step = max(1, batch * size * (size + inputs.entries))
        chunk_size = max(1, _CHUNK_NUMBERS // per_step)
    linearise = _Linearisation(steps, inputs, graph)
    chunks = range(0, grid.steps, chunk_size)
    jacobians = (linearise(k, min(k + chunk_size, grid.steps)) for k in chunks)
    if size == 1 and not inputs.parameters:
        numbers = torch.cat([state[None], *jacobians]).cumprod(0)
        return grid.at_times(numbers.unbind(0))
    at_nodes = [state[:, :d]]
    for jacobian in itertools.chain.from_iterable(jacobians):
        if inputs.parameters:
            forcing = torch.nn.functional.pad(jacobian[..., size:], (first, 0))
            state = torch.baddbmm(forcing, jacobian[..., :size], state)
        else:
            state = jacobian @ state
        at_nodes.append(state if size == d else state[:, :d])
    return grid.at_times(at_nodes)


class _Steps:
    """The recorded path: states at all nodes, the noise of every step, and the step itself.

    ``states`` is ``(N + 1, B, D)``, the whole state that the solver carries; the path is its
    first ``d`` entries.
    """

    def __init__(self, problem: Problem, graph: bool, progress: Progress) -> None:
        self.step = StepMap(problem)
        noise = _RecordedNoise(progress.watch(problem.bm))
        solver = solver_of(problem, bm=noise)
        x0 = problem.x0 if graph else problem.x0.detach()
        self.states = torch.stack([self.step.pack(*at) for at in march(problem, solver, x0)])
        self.path = self.states[..., : x0.shape[1]]
        self.noise = noise.stacked()
        # Under vmap a time is no longer a scalar that any device takes.
        self.times = problem.grid.nodes.to(x0.device)

    def part(self, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
        """Start and end times, states and noise of the steps ``start`` to ``stop``."""
        times, noise = self.times[start : stop + 1], [w[start:stop] for w in self.noise]
        return times[:-1], times[1:], self.states[start:stop], noise


class _Linearisation:
    """Step Jacobians ``(K, B, D, D + entries)`` in state and parameters, per-sample.

    A "sample" of :func:`~sdesens.autodiff.per_sample_jacobian` is whatever shares nothing with
    the others: without parameters a step and a path; with them a step and a path that have their
    own copy of the parameters, or, where paths cannot be told apart, a whole step.
    """

    def __init__(self, steps: _Steps, inputs: Inputs, graph: bool) -> None:
        self.steps, self.inputs, self.graph = steps, inputs, graph
        self.batch, self.size = steps.states.shape[1:]
        dtypes = [p.dtype for p in inputs.parameters.values()]
        self.dtype = max([steps.states.dtype, *dtypes], key=lambda d: torch.finfo(d).bits)
        self._ways: list[Callable] = [self._steps_together, self._step_by_step]
        if inputs.parameters:
            self._ways.insert(0, self._steps_and_paths_together)

    def __call__(self, start: int, stop: int) -> Tensor:
        expected = self.steps.states[start + 1 : stop + 1]
        while len(self._ways) > 1:
            # Whatever vmap or the model objects to here, the next way shows or does without.
            with suppress(Exception):
                out, jacobian = self._ways[0](start, stop)
                if _lands_on(out, expected):
                    return jacobian.to(out.dtype)
            self._ways.pop(0)
        out, jacobian = self._ways[0](start, stop)
        if not _lands_on(out, expected):
            raise UnsupportedError(
                "mode 'vjp': a step taken again from the same state with the same noise lands "
                "elsewhere, so drift or diffusion is not a function of (t, y): it draws random "
                "numbers (Dropout in training mode) or keeps a memory. Use model.eval()."
            )
        return jacobian.to(out.dtype)

    def _steps_and_paths_together(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        t0, t1, states, noise = self.steps.part(start, stop)
        t0, t1 = t0.repeat_interleave(self.batch), t1.repeat_interleave(self.batch)
        noise = [w.flatten(0, 1).unsqueeze(1) for w in noise]

        def advance(z: Tensor) -> Tensor:
            return torch.func.vmap(self._step)(t0, t1, z.unsqueeze(1), *noise).squeeze(1)

        out, jacobian = self._jacobian(advance, self._with_parameters(states.flatten(0, 1)))
        shape = (stop - start, self.batch)
        return out.unflatten(0, shape), jacobian.unflatten(0, shape)

    def _steps_together(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        t0, t1, states, noise = self.steps.part(start, stop)
        shape = (stop - start, self.batch)
        if not self.inputs.parameters:

            def advance(z: Tensor) -> Tensor:
                step = torch.func.vmap(self.steps.step, in_dims=(0, 0, 0, [0] * len(noise)))
                return step(t0, t1, z.unflatten(0, shape), noise).flatten(0, 1)

            out, jacobian = self._jacobian(advance, states.flatten(0, 1))
            return out.unflatten(0, shape), jacobian.unflatten(0, shape)

        def advance_all(z: Tensor) -> Tensor:
            return torch.func.vmap(self._step)(t0, t1, z.unsqueeze(1), *noise).flatten(1)

        return self._blocks(*self._jacobian(advance_all, self._with_parameters(states.flatten(1))))

    def _step_by_step(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        pieces = []
        for k in range(start, stop):
            t0, t1, states, noise = self.steps.part(k, k + 1)
            if self.inputs.parameters:

                def advance(z: Tensor, t0=t0, t1=t1, noise=noise) -> Tensor:
                    return self._step(t0[0], t1[0], z, *(w[0] for w in noise)).flatten()[None]

                z = self._with_parameters(states.flatten(1))
                pieces.append(self._blocks(*self._jacobian(advance, z, one_by_one=True)))
            else:

                def advance(z: Tensor, t0=t0, t1=t1, noise=noise) -> Tensor:
                    return self.steps.step(t0[0], t1[0], z, [w[0] for w in noise])

                out, jacobian = self._jacobian(advance, states[0], one_by_one=True)
                pieces.append((out[None], jacobian[None]))
        outs, jacobians = zip(*pieces, strict=True)
        return torch.cat(outs), torch.cat(jacobians)

    def _step(self, t0: Tensor, t1: Tensor, z: Tensor, *noise: Tensor) -> Tensor:
        """A step from ``z (1, states + entries)``, states and parameters side by side."""
        paths = noise[0].shape[0]
        y = z[0, : paths * self.size].reshape(paths, self.size).to(self.steps.states.dtype)
        start, held = paths * self.size, {}
        for name, value in self.inputs.parameters.items():
            part = z[0, start : start + value.numel()]
            held[name] = part.reshape(value.shape).to(value.dtype)
            start += value.numel()
        with self.inputs.places.holding(held):
            return self.steps.step(t0, t1, y, noise)

    def _with_parameters(self, states: Tensor) -> Tensor:
        """``states (N, ...)`` and beside each a copy of all parameters, in one dtype."""
        values = self.inputs.parameters.values()
        flat = [p if self.graph else p.detach() for p in values]
        flat = torch.cat([p.reshape(-1).to(self.dtype) for p in flat])
        return torch.cat([states.to(self.dtype), flat.expand(len(states), -1)], dim=1)

    def _jacobian(
        self, advance: Callable[[Tensor], Tensor], z: Tensor, one_by_one: bool = False
    ) -> tuple[Tensor, Tensor]:
        """``advance(z)``, from one call, and its per-sample Jacobian."""
        kept: list[Tensor] = []

        def keep(z: Tensor) -> Tensor:
            kept.append(advance(z))
            return kept[0]

        chunk = 1 if one_by_one else None  # a backward pass that cannot be batched is run alone
        jacobian = per_sample_jacobian(keep, z, create_graph=self.graph, chunk_size=chunk)
        return kept[0].detach(), jacobian

    def _blocks(self, out: Tensor, jacobian: Tensor) -> tuple[Tensor, Tensor]:
        """Of whole steps ``(K, B * D, B * D + entries)`` what a path has to do with itself."""
        shape, states = (self.batch, self.size), self.batch * self.size
        rows = jacobian.unflatten(1, shape)
        own = rows[..., :states].unflatten(-1, shape).diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2)
        return out.unflatten(1, shape), torch.cat([own, rows[..., states:]], dim=-1)


def _lands_on(out: Tensor, expected: Tensor) -> bool:
    return torch.allclose(out, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


class _RecordedNoise(WrappedBrownian):
    """``bm``, keeping what it answered."""

    def __init__(self, bm: BaseBrownian) -> None:
        super().__init__(bm)
        self._answers: list[tuple[Tensor, ...]] = []

    def __call__(self, ta, tb=None, return_U=False, return_A=False):
        out = self._bm(ta, tb, return_U=return_U, return_A=return_A)
        self._answers.append(out if isinstance(out, tuple) else (out,))
        return out

    def stacked(self) -> list[Tensor]:
        """Each part of the answers, ``(N, B, ...)``."""
        return [torch.stack(part) for part in zip(*self._answers, strict=True)]
