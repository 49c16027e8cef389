r"""The tangent (first-variation) SDE, solved beside the state on the same increments.

For ``dX = f(t, X; θ) dt + g(t, X; θ) dW`` the tangent along an input is

.. math:: dJ = (f_x J + f_θ) dt + (g_x J + g_θ) dW.

State and tangents form one SDE that is handed to the same torchsde solver: a batch of
``(1 + R) B`` rows of dimension ``d``, the state first, one block of rows a direction, every block
on the same increments. A solver built from evaluations of ``f`` and ``g`` commutes with
differentiation, so this equals differentiating the solver itself, to rounding.

Source: Kunita, *Stochastic Flows and Stochastic Differential Equations*, 1990.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sdesens._parameters import replaced
from sdesens.errors import UnsupportedError
from sdesens.pathwise.directions import Derivatives, Inputs, fits_in_rows
from sdesens.pathwise.forward import TiledNoise, dual, dual_numbers, unpack
from sdesens.pathwise.progress import Progress
from sdesens.sde import SDE
from sdesens.solve import Problem, march, solver_of

Outputs = tuple[Tensor, ...]


def tangent(
    problem: Problem, inputs: Inputs, *, chunk_size: int | None, graph: bool, progress: Progress
) -> tuple[Tensor, Derivatives]:
    """Path ``(T, B, d)`` and its derivatives, ``chunk_size`` directions a solve."""
    refuse(problem)
    names = list(inputs.parameters)
    sde = problem.sde
    closed = isinstance(sde, SDE) and sde.has_closed_form_tangent(names)
    together = closed or fits_in_rows(problem)
    first = inputs.d if inputs.x0 else 0
    parameters = list(inputs.parameter_directions())
    size = chunk_size or inputs.count
    columns, path = [], None
    for start in range(0, inputs.count, size):
        stop = min(start + size, inputs.count)
        units = inputs.units[start : min(stop, first)]
        rest = parameters[max(start - first, 0) : max(stop - first, 0)]
        seeds = torch.cat([units, torch.zeros_like(inputs.units[:1]).expand(len(rest), -1, -1)])
        system = _TangentSystem(problem, units.shape[0], rest, closed, together)
        with torch.set_grad_enabled(graph):
            x, tangents = system.solve(seeds, graph, progress)
        path = x if path is None else path
        columns += tangents.unbind(1)
    assert path is not None
    return path, inputs.derivatives(columns)


def refuse(problem: Problem) -> None:
    """Raise where the solver does not commute with differentiation."""
    if problem.derivative_milstein:
        raise UnsupportedError(
            f"mode 'tangent' with derivative-based milstein and {problem.view.noise_type} noise: "
            "its formula takes each diffusion entry to depend on its own component alone, which "
            "the tangent system breaks. Pass options={'grad_free': True}, or mode='vjp' or 'jvp'."
        )


class _TangentSystem:
    """State and tangents as one torchsde object.

    ``states`` tangents start from x0 directions, one more for each of ``parameters``: name, value
    and unit tangent.
    """

    def __init__(
        self,
        problem: Problem,
        states: int,
        parameters: list[tuple[str, Tensor, Tensor]],
        closed: bool,
        together: bool,
    ) -> None:
        self.problem, self.states, self.parameters = problem, states, parameters
        self.closed, self.together = closed, together
        self.rows = states + len(parameters)

    def solve(self, seeds: Tensor, graph: bool, progress: Progress) -> tuple[Tensor, Tensor]:
        """Path ``(T, B, d)`` and tangents ``(T, rows, B, d)``."""
        batch, d = self.problem.x0.shape
        x0 = self.problem.x0 if graph else self.problem.x0.detach()
        start = torch.cat([x0, seeds.expand(-1, batch, d).reshape(-1, d)])
        noise = TiledNoise(progress.watch(self.problem.bm), 1 + self.rows)
        view = self.problem.view.wrapped(self._augmented)
        solver = solver_of(self.problem, view=view, bm=noise)
        states = (y for y, _ in march(self.problem, solver, start))
        out = self.problem.grid.at_times(states)
        if not graph:
            out = out.detach()
        return out[:, :batch], out[:, batch:].unflatten(1, (self.rows, batch))

    def _augmented(self, name: str, function: Callable) -> Callable:
        sde, batch = self.problem.sde, self.problem.x0.shape[0]
        joint = name.startswith("f_and_g")
        if self.closed and name in ("f", "g", "f_and_g"):
            f_tangent, g_tangent = sde.f_tangent, sde.g_tangent
            if self.problem.view.noise_type != "diagonal":
                g_tangent = partial(g_tangent, channels=self.problem.bm.shape[-1])
            formulas = {"f": [f_tangent], "g": [g_tangent], "f_and_g": [f_tangent, g_tangent]}
            tangents_of = partial(self._closed_form, formulas[name])
        else:
            tangents_of = self._forward_mode

        def augmented(t: Tensor, y: Tensor, *v: Tensor) -> Any:
            parts = tangents_of(function, t, y[:batch], y[batch:], *(u[:batch] for u in v))
            out = tuple(map(torch.cat, parts))
            return out if joint else out[0]

        return augmented

    def _closed_form(
        self, formulas: list[Callable], function: Callable, t: Tensor, y: Tensor, dy: Tensor
    ) -> list[list[Tensor]]:
        batch, split = y.shape[0], self.states * y.shape[0]
        parts = [[out] for out in _as_tuple(function(t, y))]
        for part, formula in zip(parts, formulas, strict=True):
            if self.states == 1:
                part.append(formula(t, y, dy[:split]))
            elif self.states:
                along = dy[:split].unflatten(0, (self.states, batch))
                part.append(formula(t, y, along).flatten(0, 1))
            for k, (parameter, _, unit) in enumerate(self.parameters):
                along = dy[split + k * batch : split + (k + 1) * batch]
                part.append(formula(t, y, along, **{parameter: unit}))
        return parts

    def _forward_mode(
        self, function: Callable, t: Tensor, y: Tensor, dy: Tensor, *v: Tensor
    ) -> list[list[Tensor]]:
        """The exact forward-mode derivative of ``function`` at the current state."""
        batch, split = y.shape[0], self.states * y.shape[0]
        pieces: list[tuple[Outputs, Outputs]] = []
        blocks = [(0, split)] if self.together and self.states else []
        if not self.together:
            blocks = [(k * batch, (k + 1) * batch) for k in range(self.states)]
        for start, stop in blocks:
            pieces.append(_directional(function, t, y, dy[start:stop], v))
        for k, (parameter, value, unit) in enumerate(self.parameters):
            along = dy[split + k * batch : split + (k + 1) * batch]
            with dual_numbers(), replaced(self.problem.sde, {parameter: dual(value, unit)}):
                pieces.append(_unpacked(function(t, dual(y, along), *v)))
        primal = [p[:batch] for p in pieces[0][0]]
        return [[p, *(piece[1][i] for piece in pieces)] for i, p in enumerate(primal)]


def _directional(function: Callable, t: Tensor, y: Tensor, dy: Tensor, v: tuple[Tensor, ...]):
    rows = dy.shape[0] // y.shape[0] if y.shape[0] else 1
    if rows > 1:
        y, v = y.repeat(rows, 1), tuple(u.repeat(rows, 1) for u in v)
    with dual_numbers():
        return _unpacked(function(t, dual(y, dy), *v))


def _unpacked(outputs: Any) -> tuple[Outputs, Outputs]:
    pairs = [unpack(out) for out in _as_tuple(outputs)]
    return tuple(p for p, _ in pairs), tuple(t for _, t in pairs)


def _as_tuple(outputs: Any) -> Outputs:
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
