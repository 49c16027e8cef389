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
from typing import Any

import torch
from torch import Tensor

from sdesens._parameters import Places
from sdesens.errors import UnsupportedError
from sdesens.pathwise.closed_form import ClosedForms
from sdesens.pathwise.directions import Derivatives, Inputs, ParameterDirection, fits_in_rows
from sdesens.pathwise.forward import TiledNoise, dual, dual_numbers, unpack
from sdesens.pathwise.progress import Progress
from sdesens.problem import Problem
from sdesens.sde import View
from sdesens.solve import march, solver_of

Outputs = tuple[Tensor, ...]


def tangent(
    problem: Problem, inputs: Inputs, *, chunk_size: int | None, graph: bool, progress: Progress
) -> tuple[Tensor, Derivatives]:
    """Path ``(T, B, d)`` and its derivatives, ``chunk_size`` directions a solve."""
    refuse(problem)
    closed = ClosedForms.apply(problem.sde, problem.view, list(inputs.parameters))
    if closed:
        ClosedForms.verify(problem, inputs, 0, problem.x0)
    together = closed or fits_in_rows(problem)
    first = inputs.d if inputs.x0 else 0
    parameters = list(inputs.parameter_directions())
    size = chunk_size or inputs.count
    columns, path = [], None
    for start in range(0, inputs.count, size):
        stop = min(start + size, inputs.count)
        units = inputs.units[start : min(stop, first)]
        rest = parameters[max(start - first, 0) : max(stop - first, 0)]
        if closed:
            view = _closed_view(problem, units.shape[0], rest)
        else:
            view = _ForwardMode(problem, units.shape[0], rest, inputs.places, together).view()
        seeds = torch.cat([units, torch.zeros_like(inputs.units[:1]).expand(len(rest), -1, -1)])
        with torch.set_grad_enabled(graph):
            x, tangents = _solve(problem, view, seeds, graph, progress)
        path = x if path is None else path
        columns += tangents.unbind(1)
    assert path is not None
    if closed:
        ClosedForms.verify(problem, inputs, -1, path[-1])
    return path, inputs.derivatives(columns)


def refuse(problem: Problem) -> None:
    """Raise where the solver does not commute with differentiation."""
    if problem.derivative_milstein:
        raise UnsupportedError(
            f"mode 'tangent' with derivative-based milstein and {problem.view.noise_type} noise: "
            "its formula takes each diffusion entry to depend on its own component alone, which "
            "the tangent system breaks. Pass options={'grad_free': True}, or mode='vjp' or 'jvp'."
        )


def _solve(
    problem: Problem, view: View, seeds: Tensor, graph: bool, progress: Progress
) -> tuple[Tensor, Tensor]:
    """Path ``(T, B, d)`` and tangents ``(T, R, B, d)`` of the system ``view`` from ``seeds``."""
    rows, (batch, d) = seeds.shape[0], problem.x0.shape
    x0 = problem.x0 if graph else problem.x0.detach()
    start = torch.cat([x0, seeds.expand(-1, batch, d).reshape(-1, d)])
    noise = TiledNoise(progress.watch(problem.bm), 1 + rows)
    solver = solver_of(problem, view=view, bm=noise)
    out = problem.grid.at_times(y for y, _ in march(problem, solver, start))
    if not graph:
        out = out.detach()
    return out[:, :batch], out[:, batch:].unflatten(1, (rows, batch))


def _closed_view(problem: Problem, states: int, parameters: list[ParameterDirection]) -> View:
    units = [(name, unit) for name, _, unit in parameters]
    channels = problem.bm.shape[-1]
    return ClosedForms(problem.sde, problem.x0.shape[0], states, units, channels).view()


class _ForwardMode:
    """Drift and diffusion on rows by their exact forward-mode derivative at the current state.

    ``states`` directions are in x0, one more for each of ``parameters``. If the model takes a
    batch several times over, the directions in x0 go through it ``together``.
    """

    def __init__(
        self,
        problem: Problem,
        states: int,
        parameters: list[ParameterDirection],
        places: Places,
        together: bool,
    ) -> None:
        self.problem, self.parameters, self.places = problem, parameters, places
        batch, self.split = problem.x0.shape[0], states * problem.x0.shape[0]
        together = together or states == 1
        size = self.split if together else batch
        blocks = min(states, 1) if together else states
        self.blocks = [(k * size, (k + 1) * size) for k in range(blocks)]

    def view(self) -> View:
        """The rows' functions, for a solver."""
        return self.problem.view.wrapped(self._augmented)

    def _augmented(self, name: str, function: Callable) -> Callable:
        batch = self.problem.x0.shape[0]

        def augmented(t: Tensor, y: Tensor, *v: Tensor) -> Any:
            pieces = self._pieces(function, t, y[:batch], y[batch:], [u[:batch] for u in v])
            primals = [primal[:batch] for primal in pieces[0][0]]
            tangents = zip(*(tangents for _, tangents in pieces), strict=True)
            out = tuple(torch.cat([p, *ts]) for p, ts in zip(primals, tangents, strict=True))
            return out if name.startswith("f_and_g") else out[0]

        return augmented

    def _pieces(
        self, function: Callable, t: Tensor, y: Tensor, dy: Tensor, v: list[Tensor]
    ) -> list[tuple[Outputs, Outputs]]:
        """Primal and tangent outputs of every block of directions."""
        batch, pieces = y.shape[0], []
        for start, stop in self.blocks:
            copies = (stop - start) // batch if batch else 1
            with dual_numbers():
                along = dual(_tiled(y, copies), dy[start:stop])
                pieces.append(_unpacked(function(t, along, *(_tiled(u, copies) for u in v))))
        for k, (name, value, unit) in enumerate(self.parameters):
            start = self.split + k * batch
            with dual_numbers(), self.places.holding({name: dual(value, unit)}):
                along = dual(y, dy[start : start + batch])
                pieces.append(_unpacked(function(t, along, *v)))
        return pieces


def _tiled(value: Tensor, copies: int) -> Tensor:
    return value if copies == 1 else torch.cat([value] * copies)


def _unpacked(outputs: Any) -> tuple[Outputs, Outputs]:
    outputs = tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
    pairs = [unpack(out) for out in outputs]
    return tuple(p for p, _ in pairs), tuple(t for _, t in pairs)
