"""Motions made of others: with tangents in the state, with weights, in pairs, in sums.

Each takes a :class:`~sdesens.fused.system.Motion` and gives another, so they compose: a weight of a
weight, a pathwise derivative (by the engine) of a weighted payoff, the same in antithetic pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sdesens._parameters import along, places_of
from sdesens.fused.system import Direction, Motion

CLOCK_FLAGS = 4  # the share of the tangent that is pushed out, and the rates of the three times


@dataclass(frozen=True)
class Push:
    """What is pushed out of the tangent by moving the noise.

    Attributes:
        rows: components of the state that are brought to rest.
        channels: of the noise that is moved, as many.
    """

    rows: Sequence[int]
    channels: Sequence[int]


def differentiated(motion: Motion, inner: Sequence[Direction], push: Push | None) -> Motion:
    r"""A motion whose outputs are followed by their derivatives along ``inner``.

    The tangent :math:`Y` of the state along each inner direction is carried in the state. One step
    of the model is a map :math:`X' = Φ(X, z)` with z standard normal, and along the direction
    :math:`D = Φ_X Y + Φ_θ`. Without ``push`` the new tangent is D, and the derivative of an output
    f is :math:`f_X Y + f_θ`, right where f is smooth.

    With ``push`` the noise is moved against it: with :math:`Φ_z u = D` on the rows pushed, and the
    share λ given by a flag of the step, the noise moves by :math:`-λ u`, so that the tangent there
    is :math:`(1 - λ) D`, and what the change of the noise's law does to an expectation is made
    good by the weight

    .. math:: π' = π + λ (u · z - \operatorname{div}_z u).

    Then the derivative of E f is that of the mean of :math:`f π + f_X Y + f_θ`, exactly so for the
    discrete path, and where Y = 0 wherever f is rough, f need not be smooth. λ = 1 throughout is
    the likelihood ratio of each step; λ = 1 / (steps left) that of Bismut, Elworthy and Li.

    The flags of the motion are followed by λ and the rates of start, end and width of the step in
    the maturity.

    Source: Elworthy and Li, *Formulae for the derivatives of heat semigroups*, J. Funct. Anal. 125
    (1994); Fournié et al., *Applications of Malliavin calculus to Monte Carlo methods in finance*,
    Finance Stoch. 3 (1999); Glasserman, *Monte Carlo Methods in Financial Engineering*, 2003,
    section 7.3.
    """
    return _Differentiated(motion, inner, push).result()


class _Differentiated:
    def __init__(self, motion: Motion, inner: Sequence[Direction], push: Push | None) -> None:
        self.motion, self.inner, self.push = motion, inner, push
        self.size, self.count = motion.y.shape[1], len(inner)
        self.places = places_of(motion.model, [name for name, _ in inner])

    def result(self) -> Motion:
        """The motion."""
        motion = self.motion
        assert motion.start is not None
        with torch.no_grad():
            y = self.start(motion.y.new_zeros(0), example=motion.y)
        return replace(
            motion,
            step=self.step,
            finish=self.finish,
            y=y,
            flags=motion.flags + CLOCK_FLAGS,
            outputs=motion.outputs * (1 + self.count),
            start=self.start,
        )

    def start(self, x0: Tensor, example: Tensor | None = None) -> Tensor:
        """State, tangents and weights at the first node."""
        if example is not None:
            parts = [example, *[torch.zeros_like(example)] * self.count]
        else:
            begin = self.motion.start
            assert begin is not None
            parts = [begin(x0)]
            for name, entry in self.inner:
                unit = torch.zeros_like(x0)
                if name == "x0":
                    unit[:, entry] = 1.0
                parts.append(along(self.places, (name, entry), begin, (x0,), (unit,)))
        if self.push is not None:
            parts.append(parts[0].new_zeros(parts[0].shape[0], self.count))
        return torch.cat(parts, dim=1)

    def split(self, y: Tensor) -> tuple[Tensor, list[Tensor], Sequence[Tensor]]:
        """State, tangents and weights."""
        n = self.size
        tangents = [y[:, n * (k + 1) : n * (k + 2)] for k in range(self.count)]
        return y[:, :n], tangents, y[:, n * (1 + self.count) :].unbind(1)

    def step(self, start, end, width, y, noise, flags) -> Tensor:
        """One step of all of it."""
        state, tangents, weights = self.split(y)
        own, (share, *rates) = flags[: self.motion.flags], flags[self.motion.flags :].unbind(0)

        def move(noise: Tensor) -> Tensor:
            return self.motion.step(start, end, width, state, noise, own)

        def tangent(noise: Tensor, k: int) -> Tensor:
            name, entry = self.inner[k]
            clock = rates if name == "maturity" else [torch.zeros_like(r) for r in rates]
            return along(
                self.places,
                (name, entry),
                lambda a, b, c, y: self.motion.step(a, b, c, y, noise, own),
                (start, end, width, state),
                (*(r.to(t) for r, t in zip(clock, (start, end, width), strict=True)), tangents[k]),
            )

        def all_tangents(noise: Tensor) -> list[Tensor]:
            return [tangent(noise, k) for k in range(self.count)]

        new = [move(noise)]
        if self.push is None:
            new += all_tangents(noise)
        elif self.inner:
            moved, gains = _pushed(self.push, move, all_tangents, noise, share)
            new += moved
            new.append(torch.stack(list(weights), dim=1) + share * gains)
        return torch.cat(new, dim=1)

    def finish(self, end: Tensor, y: Tensor) -> list[Tensor]:
        """The outputs, and for each inner direction their derivatives."""
        state, tangents, weights = self.split(y)
        finish = self.motion.finish
        assert finish is not None

        def values(end: Tensor, state: Tensor) -> Tensor:
            return torch.stack(list(finish(end, state)))

        outputs = values(end, state)
        out = list(outputs.unbind(0))
        for k, (name, entry) in enumerate(self.inner):
            rate = torch.ones_like(end) if name == "maturity" else torch.zeros_like(end)
            slope = along(self.places, (name, entry), values, (end, state), (rate, tangents[k]))
            if self.push is not None:
                slope = slope + outputs * weights[k]
            out += slope.unbind(0)
        return out


def units_of(push: Push, noise: Tensor) -> list[Tensor]:
    """For each channel the direction of ``noise`` that it is."""
    units = []
    for c in push.channels:
        unit = torch.zeros_like(noise[:1])
        unit[:, c] = 1.0
        units.append(unit.expand_as(noise))
    return units


def _pushed(
    push: Push,
    move: Callable[[Tensor], Tensor],
    tangents: Callable[[Tensor], list[Tensor]],
    noise: Tensor,
    share: Tensor,
) -> tuple[list[Tensor], Tensor]:
    """Tangents after a step with the noise moved, and ``(P, N)`` gains of weights for ``share`` 1.

    Every pass through the step costs, most of all where motions nest: what the noise does to it is
    found once for all N tangents, and ``u`` comes with its own derivatives.
    """
    rows, units = list(push.rows), units_of(push, noise)

    def solved(noise: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        along = torch.stack(tangents(noise), dim=2)
        columns = torch.stack([torch.func.jvp(move, (noise,), (unit,))[1] for unit in units], dim=2)
        matrix = [[columns[:, r, k, None] for k in range(len(units))] for r in rows]
        u = torch.stack(_solve(matrix, [along[:, r] for r in rows]), dim=1)
        return u, (along, columns)

    parts = [torch.func.jvp(solved, (noise,), (unit,), has_aux=True) for unit in units]
    u, (along, columns) = parts[0][0], parts[0][-1]
    gains = torch.zeros_like(u[:, 0])
    for k, c in enumerate(push.channels):
        gains = gains + u[:, k] * noise[:, c, None] - parts[k][1][:, k]
    pushed = along - share * (columns[..., None] * u[:, None]).sum(2)
    entries = list(pushed.unbind(1))
    for r in rows:
        entries[r] = (1 - share) * along[:, r]  # exactly zero where all of it goes
    return list(torch.stack(entries, dim=1).unbind(2)), gains


def _solve(matrix: list[list[Tensor]], right: list[Tensor]) -> list[Tensor]:
    """The solution of a small linear system, by elimination in the order given."""
    matrix, right, n = [list(row) for row in matrix], list(right), len(right)
    for i in range(n):
        for j in range(i + 1, n):
            factor = matrix[j][i] / matrix[i][i]
            matrix[j] = [a - factor * b for a, b in zip(matrix[j], matrix[i], strict=True)]
            right[j] = right[j] - factor * right[i]
    out: list[Any] = [None] * n
    for i in reversed(range(n)):
        known = sum((matrix[i][j] * out[j] for j in range(i + 1, n)), torch.zeros_like(right[i]))
        out[i] = (right[i] - known) / matrix[i][i]
    return out


def antithetic(motion: Motion) -> Motion:
    """Pairs of paths on opposite noise, their outputs averaged: one sample a pair."""
    negated = replace(
        motion,
        step=lambda a, b, c, y, noise, flags: motion.step(a, b, c, y, -noise, flags),
    )
    return _side_by_side([motion, negated], _weighted_sum([0.5, 0.5]), same_flags=True)


def combined(parts: Sequence[tuple[float, Motion]]) -> Motion:
    """The weighted sum of the outputs of motions on the same noise; their flags follow on."""
    weights, motions = zip(*parts, strict=True)
    return _side_by_side(motions, _weighted_sum(weights), same_flags=False)


def joined(motions: Sequence[Motion]) -> Motion:
    """The outputs of motions on the same noise, one after the other; their flags follow on."""

    def all_of(outputs: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        return [value for values in outputs for value in values]

    out = _side_by_side(motions, all_of, same_flags=False)
    return replace(out, outputs=sum(m.outputs for m in motions))


def last_outputs(motion: Motion, count: int) -> Motion:
    """A motion without its outputs but the last ``count``."""
    finish = motion.finish
    assert finish is not None
    return replace(motion, finish=lambda end, y: list(finish(end, y))[-count:], outputs=count)


def _weighted_sum(weights: Sequence[float]) -> Callable[..., list[Tensor]]:
    def total(outputs: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        return [
            sum((w * v for w, v in zip(weights, values, strict=True)), torch.zeros_like(values[0]))
            for values in zip(*outputs, strict=True)
        ]

    return total


def _side_by_side(
    motions: Sequence[Motion], gather: Callable[..., list[Tensor]], *, same_flags: bool
) -> Motion:
    """Motions of one model advanced together, each on the noise inputs it has."""
    first, sizes = motions[0], [m.y.shape[1] for m in motions]
    counters = max((m.counters for m in motions), key=len)
    counts = [m.flags for m in motions]

    def step(start, end, width, y, noise, flags) -> Tensor:
        shares = [flags] * len(motions) if same_flags else flags.split(counts)
        return torch.cat(
            [
                m.step(start, end, width, state, noise[:, : len(m.counters)], share)
                for m, state, share in zip(motions, y.split(sizes, dim=1), shares, strict=True)
            ],
            dim=1,
        )

    def finish(end, y) -> list[Tensor]:
        states = y.split(sizes, dim=1)
        return gather([m.finish(end, x) for m, x in zip(motions, states, strict=True) if m.finish])

    def start(x0) -> Tensor:
        return torch.cat([m.start(x0) for m in motions if m.start is not None], dim=1)

    return replace(
        first,
        step=step,
        finish=finish,
        y=torch.cat([m.y for m in motions], dim=1),
        counters=counters,
        flags=first.flags if same_flags else sum(counts),
        start=start,
    )
