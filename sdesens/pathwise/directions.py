"""The inputs of a derivative, their unit directions, and the layout of what comes out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from sdesens._parameters import Places
from sdesens.problem import Problem

Derivatives = dict[str, Tensor]
ParameterDirection = tuple[str, Tensor, Tensor]  # name, value, unit tangent


@dataclass(frozen=True)
class Inputs:
    """What is differentiated in: x0 or not, and parameters by name.

    Attributes:
        d: state dimension.
        x0: whether x0 is among the inputs.
        parameters: the parameter tensors by name, in the order asked for.
        units: ``(d, 1, d)`` unit directions of x0.
        places: where the model holds the parameters.
    """

    d: int
    x0: bool
    parameters: dict[str, Tensor]
    units: Tensor
    places: Places

    @classmethod
    def of(cls, problem: Problem, x0: bool, parameters: dict[str, Tensor]) -> Inputs:
        """Inputs of ``problem``."""
        d = problem.x0.shape[1]
        units = torch.eye(d, dtype=problem.x0.dtype, device=problem.x0.device)[:, None, :]
        return cls(d, x0, parameters, units, Places(problem.sde, tuple(parameters)))

    @property
    def entries(self) -> int:
        """Number of parameter entries."""
        return sum(p.numel() for p in self.parameters.values())

    @property
    def count(self) -> int:
        """Number of directions."""
        return self.entries + (self.d if self.x0 else 0)

    def x0_chunks(self, chunk_size: int | None, rows_fit: bool) -> Iterator[tuple[int, int]]:
        """Ranges of x0 directions that are solved together."""
        if self.x0:
            size = (chunk_size or self.d) if rows_fit else 1
            for start in range(0, self.d, size):
                yield start, min(start + size, self.d)

    def parameter_directions(self) -> Iterator[ParameterDirection]:
        """Name, value and unit tangent of every parameter entry."""
        for name, value in self.parameters.items():
            for k in range(value.numel()):
                direction = torch.zeros_like(value, requires_grad=False)
                direction.view(-1)[k] = 1.0
                yield name, value, direction

    def derivatives(self, columns: list[Tensor]) -> Derivatives:
        """Name every column ``(T, B, d)``, one a direction, x0 first; shapes as in the result."""
        return self.split(torch.stack(columns, dim=-1))

    def split(self, matrix: Tensor) -> Derivatives:
        """Split ``(T, B, d, directions)`` into ``x0`` and parameters."""
        out, start = {}, 0
        if self.x0:
            out["x0"], start = matrix[..., : self.d], self.d
        for name, value in self.parameters.items():
            part = matrix[..., start : start + value.numel()]
            out[name] = part.reshape(*matrix.shape[:-1], *value.shape)
            start += value.numel()
        return out


def fits_in_rows(problem: Problem) -> bool:
    """Whether the model takes a batch laid out several times, one copy below the other.

    A drift that closes over one number a sample, a tensor ``(B, 1)``, does not, nor one that takes
    a mean over the batch, even of a single sample.
    """
    x0, view, t = problem.x0.detach(), problem.view, problem.ts[0]
    if x0.shape[1] == 1:
        return True  # one direction: nothing is laid out twice
    # Another copy below, not the same: a mean over the batch would not show in equal ones.
    other = x0 + 0.5 * (1 + x0.abs())
    with torch.no_grad():
        parts = (view.f(t, x0), view.g(t, x0)), (view.f(t, other), view.g(t, other))
        both = torch.cat([x0, other])
        try:
            double = view.f(t, both), view.g(t, both)
        except (RuntimeError, ValueError, IndexError):
            return False
    return all(
        d.shape[0] == both.shape[0]
        and torch.allclose(d, torch.cat(part), rtol=1e-5, atol=1e-6, equal_nan=True)
        for d, part in zip(double, zip(*parts, strict=True), strict=True)
    )
