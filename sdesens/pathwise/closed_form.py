"""State and tangents advanced by component, from the closed-form tangents of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from sdesens.pathwise.directions import Inputs
from sdesens.pathwise.forward import dual, dual_numbers, unpack
from sdesens.problem import Problem
from sdesens.sde import SDE, View, fill

Components = list[Tensor]
Direction = tuple[int, dict[str, Tensor]]  # block of rows, tangents of parameters


class ClosedForms:
    """Drift and diffusion on rows: the state, then one block of rows a direction.

    The first ``states`` directions are in x0 and go through the model's formulas together, behind
    a leading axis; each of ``parameters`` (unit tangents by name) goes alone.
    """

    def __init__(
        self,
        sde: SDE,
        batch: int,
        states: int,
        parameters: Sequence[tuple[str, Tensor]],
        channels: int,
    ) -> None:
        self.sde, self.batch, self.states, self.channels = sde, batch, states, channels
        self.parameters: list[Direction] = [
            (1 + states + k, {name: unit}) for k, (name, unit) in enumerate(parameters)
        ]
        forms: Any = sde
        self._drift_tangent: Callable = forms.drift_tangent
        self._diffusion_tangent: Callable = forms.diffusion_tangent
        self.rows = 1 + states + len(self.parameters)
        # One component, one direction: the bookkeeping of several would cost more than the step.
        self._scalar = sde.sizes == (None,) and self.rows == 2 and states == 1
        self._diffusion = self._entries if sde.noise_type == "diagonal" else self._rows

    @staticmethod
    def apply(sde: Any, view: View, parameters: Sequence[str]) -> bool:
        """Whether ``view`` is the component form of a model whose closed forms cover these."""
        own = isinstance(sde, SDE) and type(sde).f is SDE.f and type(sde).g is SDE.g
        return own and view.functions["f"] == sde.f and sde.has_closed_form_tangent(parameters)

    @staticmethod
    def verify(problem: Problem, inputs: Inputs, at: int, y: Tensor) -> None:
        """Hold the closed forms at ``y``, the state at ``ts[at]``, against forward mode.

        Once for a model at its start (``at`` 0) and once at the end of a path (-1), as an error may
        show at one of them alone.

        Raises:
            ValueError: if they differ: a wrong formula, or one inherited by a model that changed
                its drift or diffusion.
        """
        sde, names = problem.sde, tuple(inputs.parameters)
        done: set = sde.__dict__.setdefault("_verified_tangents", set())
        if (at, names) in done:
            return
        t, y = problem.ts[at], y.detach()
        dy = _some_direction(y)
        along = {name: _some_direction(p.detach()) for name, p in inputs.parameters.items()}
        with torch.no_grad():
            channels = problem.bm.shape[-1]
            formulas = sde.f_tangent(t, y, dy, **along), sde.g_tangent(t, y, dy, channels, **along)
            with dual_numbers():
                duals = {n: dual(p.detach(), along[n]) for n, p in inputs.parameters.items()}
                with inputs.places.holding(duals):
                    exact = [
                        unpack(out)[1] for out in (sde.f(t, dual(y, dy)), sde.g(t, dual(y, dy)))
                    ]
        tolerance = {torch.float64: 1e-8, torch.float32: 1e-3}[y.dtype]
        where = "ts[-1]" if at else "x0"
        for name, found, right in zip(("drift", "diffusion"), formulas, exact, strict=True):
            scale = right.abs().max().item() if right.numel() else 0.0
            difference = (found - right).abs().max().item() if right.numel() else 0.0
            if not difference <= tolerance * max(scale, 1.0) and bool(torch.isfinite(right).all()):
                raise ValueError(
                    f"{type(sde).__name__}.{name}_tangent is not the derivative of {name}: at "
                    f"{where} it is off by {difference:.1e}, of {scale:.1e}. Mend it, or set "
                    f"{name}_tangent = None in the class to have the derivative taken for you."
                )
        done.add((at, names))

    def view(self) -> View:
        """The rows' drift and diffusion, for a solver."""
        functions = {"f": self.f, "g": self.g, "f_and_g": self.f_and_g}
        return View(functions, self.sde.noise_type, self.sde.sde_type)

    def f(self, t: Tensor, y: Tensor) -> Tensor:
        """Drift of state and tangents, ``(rows * B, d)``."""
        rows = self._split(y)
        return self._entries(self.sde.drift, self._drift_tangent, t, rows)

    def g(self, t: Tensor, y: Tensor) -> Tensor:
        """Diffusion of state and tangents, ``(rows * B, d)`` or ``(rows * B, d, m)``."""
        return self._diffusion(self.sde.diffusion, self._diffusion_tangent, t, self._split(y))

    def f_and_g(self, t: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Both."""
        rows = self._split(y)
        return (
            self._entries(self.sde.drift, self._drift_tangent, t, rows),
            self._diffusion(self.sde.diffusion, self._diffusion_tangent, t, rows),
        )

    def _split(self, y: Tensor) -> list[Components]:
        """For each block of rows its components, the state first."""
        rows, batch = self.rows, self.batch
        parts = [c.view(*c.shape[:-1], rows, batch).unbind(-2) for c in self.sde.components(y)]
        return [list(block) for block in zip(*parts, strict=True)]

    def _directions(self, rows: list[Components]) -> Iterator[tuple[Components, dict[str, Tensor]]]:
        """Tangents and parameter tangents of each call of a formula."""
        if self.states == 1:
            yield rows[1], {}
        elif self.states:
            blocks = rows[1 : 1 + self.states]
            yield [torch.stack(parts) for parts in zip(*blocks, strict=True)], {}
        for block, tangents in self.parameters:
            yield rows[block], tangents

    def _entries(
        self, function: Callable, formula: Callable, t: Tensor, rows: list[Components]
    ) -> Tensor:
        """One entry a component: every direction's beside the state's, along the paths."""
        state = rows[0]
        if self._scalar:
            x, dx = state[0], rows[1][0]
            entry, tangent = function(t, x), formula(t, x, dx)
            return torch.cat((_filled_one(entry, x), _filled_one(tangent, dx))).unsqueeze(-1)
        parts = [self._filled(function(t, *state), state)]
        for along, tangents in self._directions(rows):
            entries = self._filled(formula(t, *state, *along, **tangents), along)
            if along[0].dim() > state[0].dim():
                entries = [e.movedim(0, -2).flatten(-2) for e in entries]
            parts.append(entries)
        return self.sde.stack([torch.cat(part, dim=-1) for part in zip(*parts, strict=True)])

    def _filled(self, entries: Any, like: Components) -> Components:
        entries = self.sde.per_component(entries, "entry")
        return [fill(e, c.shape, c) for e, c in zip(entries, like, strict=True)]

    def _rows(
        self, function: Callable, formula: Callable, t: Tensor, rows: list[Components]
    ) -> Tensor:
        """One row of channels a component: every direction's below the state's."""
        state, join, m = rows[0], self.sde.join_rows, self.channels
        parts = [join(function(t, *state), state, m)]
        for along, tangents in self._directions(rows):
            out = join(formula(t, *state, *along, **tangents), along, m)
            parts.append(out if along[0].dim() == state[0].dim() else out.flatten(0, 1))
        return torch.cat(parts)


def _filled_one(entry: Any, like: Tensor) -> Tensor:
    if isinstance(entry, (tuple, list)):
        (entry,) = entry
    return fill(entry, like.shape, like)


def _some_direction(value: Tensor) -> Tensor:
    """Entries of different sizes and signs, so that no two errors cancel."""
    k = torch.arange(value.numel(), dtype=value.dtype, device=value.device)
    return torch.cos(1.0 + 2.0 * k).reshape(value.shape)
