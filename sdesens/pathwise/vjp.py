r"""Reverse mode: batched VJPs of the solver's steps, chained along time.

The path is solved once, without a graph. Every step ``x_{k+1} = Φ_k(x_k; θ)`` is then taken again
from the recorded state, all steps at once under ``vmap``, and one call of
``torch.autograd.grad(..., is_grads_batched=True)`` with an identity of the state dimension gives

.. math:: A_k = ∂Φ_k/∂x, \quad B_k = ∂Φ_k/∂θ,

from which ``J_{k+1} = A_k J_k + B_k``. An identity over all times through one long graph would give
the same numbers at a cost that grows with the square of the number of times.

Parameters are shared by the samples, so their VJP is taken sample by sample: each gets its own copy
in ``vmap``. A model that cannot be put under ``vmap`` (control flow on the time, a tensor with one
entry a sample) falls back to one step at a time, and to an identity over samples. Whatever way is
taken, its steps must land on the recorded path, or it is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sdesens.brownian import BaseBrownian, WrappedBrownian
from sdesens.errors import UnsupportedError
from sdesens.pathwise.directions import Derivatives, Inputs
from sdesens.pathwise.progress import Progress
from sdesens.solve import Problem, march, solver_of

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
    at_nodes = [state[:, :d]]
    for start in range(0, grid.steps, chunk_size):
        A, B = linearise(start, min(start + chunk_size, grid.steps))
        for k in range(A.shape[0]):
            state = A[k] @ state
            if B is not None:
                # A parameter may be float64 beside a float32 state.
                state = state + torch.nn.functional.pad(B[k].to(state.dtype), (first, 0))
            at_nodes.append(state[:, :d])
    return grid.at_times(at_nodes)


class _Steps:
    """The recorded path: states at all nodes, the noise of every step, and the step itself.

    ``states`` is ``(N + 1, B, D)``: the path, and behind it what else the solver carries from step
    to step (``reversible_heun``: its second state z).
    """

    def __init__(self, problem: Problem, graph: bool, progress: Progress) -> None:
        self.problem, self.times = problem, problem.grid.nodes
        self._two_states = problem.method == "reversible_heun"
        noise = _RecordedNoise(progress.watch(problem.bm))
        solver = solver_of(problem, bm=noise)
        x0 = problem.x0 if graph else problem.x0.detach()
        self.states = torch.stack([self._pack(*at) for at in march(problem, solver, x0)])
        self.noise = noise.stacked()
        self._replay = _ReplayedNoise(problem.bm)
        self._solver = solver_of(problem, bm=self._replay, functional=True)

    @property
    def path(self) -> Tensor:
        """The path at all nodes, ``(N + 1, B, d)``."""
        return self.states[..., : self.problem.x0.shape[1]]

    def __call__(self, t0: Tensor, t1: Tensor, state: Tensor, noise: Sequence[Tensor]) -> Tensor:
        """One step from ``state``, ``(B, D)`` to ``(B, D)``."""
        self._replay.current = tuple(noise)
        y, extra = state, ()
        if self._two_states:
            y, z = state.chunk(2, dim=-1)
            extra = (*self._solver.sde.f_and_g(t0, z), z)
        return self._pack(*self._solver.step(t0, t1, y, extra))

    def _pack(self, y: Tensor, extra: Any) -> Tensor:
        # The solver's f and g in extra are functions of z, so y and z are the whole state.
        return torch.cat([y, extra[2]], dim=-1) if self._two_states else y


class _Linearisation:
    """Step Jacobians ``A (K, B, D, D)``, ``B (K, B, D, entries)``, by the first way that works."""

    def __init__(self, steps: _Steps, inputs: Inputs, graph: bool) -> None:
        self.steps, self.inputs, self.graph = steps, inputs, graph
        self._ways: list[Callable] = [self._all_steps, self._step_by_step]
        if inputs.parameters:
            self._ways.insert(0, self._all_steps_and_samples)

    def __call__(self, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        expected = self.steps.states[start + 1 : stop + 1]
        if expected.shape[1] == 0:  # no samples, which neither vmap nor autograd takes
            return expected.new_zeros(*expected.shape, expected.shape[-1]), None
        while len(self._ways) > 1:
            try:
                out, A, B = self._ways[0](start, stop)
                if _lands_on(out, expected):
                    return A, B
            except Exception:
                # Whatever vmap or the model objects to here, the next way shows or does without.
                pass
            self._ways.pop(0)
        out, A, B = self._ways[0](start, stop)
        if not _lands_on(out, expected):
            raise UnsupportedError(
                "mode 'vjp': a step taken again from the same state with the same noise lands "
                "elsewhere, so drift or diffusion is not a function of (t, y): it draws random "
                "numbers (Dropout in training mode) or keeps a memory. Use model.eval()."
            )
        return A, B

    def _all_steps_and_samples(self, start: int, stop: int):
        """``vmap`` over steps and samples, with a copy of the parameters for each."""
        steps, values = self.steps, self.inputs.parameters
        K, batch, size = steps.states[start:stop].shape
        count = K * batch
        y = self._leaf(steps.states[start:stop].reshape(count, 1, size))
        theta = {
            n: self._leaf(p if self.graph else p.detach(), (count, *p.shape))
            for n, p in values.items()
        }
        t0, t1 = (t.repeat_interleave(batch) for t in self._times(start, stop))
        noise = [w[start:stop].reshape(count, 1, *w.shape[2:]) for w in steps.noise]

        def step(t0, t1, y, theta, *noise):
            with self.inputs.places.holding(theta):
                return steps(t0, t1, y, noise)

        with torch.enable_grad():
            out = torch.func.vmap(step)(t0, t1, y, theta, *noise)
            grads = self._vjp(out, [y, *theta.values()], 1)
        A = grads[0].reshape(size, K, batch, size).permute(1, 2, 0, 3)
        B = [g.reshape(size, K, batch, -1).permute(1, 2, 0, 3) for g in grads[1:]]
        return out.reshape(K, batch, size), A, torch.cat(B, dim=-1).to(out.dtype)

    def _all_steps(self, start: int, stop: int):
        """``vmap`` over steps; with parameters, an identity over the samples as well."""
        steps, values = self.steps, self.inputs.parameters
        K = stop - start
        y = self._leaf(steps.states[start:stop])
        theta = {
            n: self._leaf(p if self.graph else p.detach(), (K, *p.shape)) for n, p in values.items()
        }

        def step(t0, t1, y, theta, *noise):
            with self.inputs.places.holding(theta):
                return steps(t0, t1, y, noise)

        noise = [w[start:stop] for w in steps.noise]
        with torch.enable_grad():
            out = torch.func.vmap(step)(*self._times(start, stop), y, theta, *noise)
            return out, *self._jacobians(out, y, list(theta.values()))

    def _step_by_step(self, start: int, stop: int):
        """One step after the other, without ``vmap``."""
        steps, values, pieces = self.steps, self.inputs.parameters, []
        for k in range(start, stop):
            y = self._leaf(steps.states[k : k + 1])
            theta = {
                n: self._leaf(p if self.graph else p.detach(), (1, *p.shape))
                for n, p in values.items()
            }
            t0, t1 = self._times(k, k + 1)
            with (
                torch.enable_grad(),
                self.inputs.places.holding({n: p[0] for n, p in theta.items()}),
            ):
                out = steps(t0[0], t1[0], y[0], [w[k] for w in steps.noise])[None]
                pieces.append((out, *self._jacobians(out, y, list(theta.values()))))
        out, A, B = zip(*pieces, strict=True)
        return torch.cat(out), torch.cat(A), torch.cat(B) if values else None

    def _jacobians(self, out: Tensor, y: Tensor, theta: list[Tensor]):
        """``A`` and ``B`` of steps ``(K, B, D)`` whose samples share the parameters."""
        K, batch, size = out.shape
        if not theta:
            (grad,) = self._vjp(out, [y], 1)
            return grad.permute(1, 2, 0, 3), None
        grads = self._vjp(out, [y, *theta], batch)
        # (B, D, K, B, D): the samples are independent, so only the diagonal is kept.
        A = grads[0].reshape(batch, size, K, batch, size).diagonal(dim1=0, dim2=3)
        B = [g.reshape(batch, size, K, -1).permute(2, 0, 1, 3) for g in grads[1:]]
        return A.permute(1, 3, 0, 2), torch.cat(B, dim=-1).to(out.dtype)

    def _vjp(self, out: Tensor, inputs: list[Tensor], samples: int) -> list[Tensor]:
        """Gradients of ``out (K, B, D)``, the identity over ``D`` or ``samples * D`` leading."""
        K, batch, size = out.shape
        identity = torch.eye(samples * size, dtype=out.dtype, device=out.device)
        identity = identity.reshape(samples * size, 1, samples, size)
        cotangents = identity.expand(-1, K, batch, size)
        arguments: dict[str, Any] = {"create_graph": self.graph, "allow_unused": True}
        try:
            grads = torch.autograd.grad(
                out, inputs, cotangents, is_grads_batched=True, retain_graph=True, **arguments
            )
        except RuntimeError:  # a custom backward that cannot be batched
            rows = [
                torch.autograd.grad(out, inputs, c, retain_graph=True, **arguments)
                for c in cotangents
            ]
            grads = [
                None if column[0] is None else torch.stack(column)
                for column in zip(*rows, strict=True)
            ]
        return [
            x.new_zeros(samples * size, *x.shape) if g is None else g
            for x, g in zip(inputs, grads, strict=True)
        ]

    def _leaf(self, value: Tensor, shape: Sequence[int] | None = None) -> Tensor:
        value = value if shape is None else value.expand(*shape)
        return value if self.graph and value.requires_grad else value.detach().requires_grad_()

    def _times(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        # Under vmap a time is no longer a scalar that any device takes.
        times = self.steps.times[start : stop + 1].to(self.steps.states.device)
        return times[:-1], times[1:]


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


class _ReplayedNoise(WrappedBrownian):
    """Answers any query with ``current``."""

    current: tuple[Tensor, ...] = ()

    def __call__(self, ta, tb=None, return_U=False, return_A=False):
        return self.current if return_U or return_A else self.current[0]
