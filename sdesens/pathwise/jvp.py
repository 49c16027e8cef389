"""Forward mode through ``torchsde.sdeint``: one direction for each input."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from sdesens._parameters import Places
from sdesens.pathwise.directions import Derivatives, Inputs, fits_in_rows
from sdesens.pathwise.forward import TiledNoise, dual, has_tangent, lifted, unpack
from sdesens.pathwise.progress import Progress
from sdesens.problem import Problem
from sdesens.sde import View
from sdesens.solve import integrate

_PIECE = 8  # steps


def jvp(
    problem: Problem, inputs: Inputs, *, chunk_size: int | None, graph: bool, progress: Progress
) -> tuple[Tensor, Derivatives]:
    """Path ``(T, B, d)`` and its derivatives by dual numbers.

    Directions of x0 are more rows of the batch, ``chunk_size`` at a time; a parameter is shared by
    all rows, so each of its entries takes a solve of its own.
    """
    columns, path = [], None
    for start, stop in inputs.x0_chunks(chunk_size, fits_in_rows(problem)):
        seeds = inputs.units[start:stop]
        x, tangent = _solve(problem, seeds, nullcontext, graph, progress)
        path = x if path is None else path
        columns += tangent.unbind(1)
    for name, value, direction in inputs.parameter_directions():
        seeds = torch.zeros_like(inputs.units[:1])
        hold = partial(_holding, inputs.places, name, value, direction)
        x, tangent = _solve(problem, seeds, hold, graph, progress)
        path = x if path is None else path
        columns += tangent.unbind(1)
    assert path is not None
    return path, inputs.derivatives(columns)


def _solve(
    problem: Problem,
    seeds: Tensor,
    hold: Callable[[], AbstractContextManager],
    graph: bool,
    progress: Progress,
) -> tuple[Tensor, Tensor]:
    """One solve: path ``(T, B, d)`` and tangents ``(T, rows, B, d)`` from ``seeds``.

    ``hold`` is entered inside the forward-mode level, to put dual parameters in their places.
    """
    rows, (batch, d) = seeds.shape[0], problem.x0.shape
    # torchsde differentiates the diffusion itself in Milstein and log-ODE steps, through
    # y.detach() unless y requires grad: then a tangent would be lost without a word.
    inner = problem.derivative_milstein or problem.method == "log_ode"
    # Euler steps hold no number that meets the state, so duals of times and step serve the solver
    # and only the model needs numbers lifted; elsewhere the whole solve runs under it.
    only_model = problem.method == "euler"
    with (
        torch.set_grad_enabled(graph or inner),
        forward_ad.dual_level(),
        nullcontext() if only_model else lifted(),
    ):
        x0 = problem.x0 if graph else problem.x0.detach()
        x0 = x0.repeat(rows, 1) if rows > 1 else x0.clone()
        if inner and not graph:
            x0.requires_grad_(True)
        x0 = dual(x0, seeds.expand(rows, batch, d).reshape(rows * batch, d))
        noise = TiledNoise(progress.watch(problem.bm), rows, as_dual=True)
        view = problem.view.wrapped(_lifted_function if only_model else _with_tangents)
        times = {"ts": dual(problem.ts), "dt": dual(problem.ts.new_tensor(problem.dt))}
        with hold():
            if inner and not graph:
                out = _in_pieces(problem, view, x0, noise)
            else:
                steps = times if only_model else {}
                out = integrate(problem, view=view, x0=x0, bm=noise, **steps)
        path, tangent = unpack(out)
    if not graph:
        path, tangent = path.detach(), tangent.detach()
    return path[:, :batch], tangent.unflatten(1, (rows, batch))


def _holding(places: Places, name: str, value: Tensor, direction: Tensor) -> AbstractContextManager:
    return places.holding({name: dual(value, direction)})


def _in_pieces(problem: Problem, view: View, x0: Tensor, noise: TiledNoise) -> Tensor:
    """The solve a few steps at a time, where the graph of the solver's own derivatives ends.

    log_ode walks the whole graph behind it at every step: a cost of the square of the steps.
    """
    nodes, states = problem.grid.nodes, [x0[None]]
    for start in range(0, problem.grid.steps, _PIECE):
        primal, tangent = unpack(states[-1][-1])
        y = dual(primal.detach().requires_grad_(), tangent.detach())
        piece = integrate(problem, view=view, x0=y, ts=nodes[start : start + _PIECE + 1], bm=noise)
        primal, tangent = unpack(piece[1:])
        states.append(dual(primal.detach(), tangent.detach()))
    return problem.grid.at_times(torch.cat(states).unbind(0))


def _with_tangents(name: str, function: Callable) -> Callable:
    """The function with a zero tangent on every output that lacks one (a constant diffusion)."""

    def wrapped(t: Tensor, y: Tensor, *v: Tensor) -> Any:
        out = function(t, y, *v)
        return tuple(map(_filled, out)) if isinstance(out, tuple) else _filled(out)

    return wrapped


def _lifted_function(name: str, function: Callable) -> Callable:
    inner, context = _with_tangents(name, function), lifted()

    def wrapped(*args: Tensor) -> Any:
        with context:
            return inner(*args)

    return wrapped


def _filled(value: Tensor) -> Tensor:
    return value if has_tangent(value) else dual(value)
