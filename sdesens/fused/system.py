"""State and tangents as one program: a model's step, differentiated along every direction.

The derivative of the step along an open direction is recorded once, by forward mode. For each
direction that is asked for, the tangents of the inputs are put in: zeros and ones for most. What
comes to zero by that, and stays zero from step to step, is left out of the state (``dv/dS0`` of
Heston's variance, say), so that nothing is spent on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sdesens._parameters import Places, known_parameters
from sdesens.fused.emit import Stepper
from sdesens.fused.program import ONE, TIMES, ZERO, Program
from sdesens.fused.record import record
from sdesens.fused.rules import Expressions, UnrecordableError, expressions
from sdesens.fused.trace import check_size

Direction = tuple[str, int]  # ("x0", component), (parameter, entry) or ("maturity", 0)


@dataclass(frozen=True)
class Motion:
    """What is to be advanced, as functions of tensors of a single path.

    Attributes:
        step: ``step(start, end, width, y, noise, flags) -> y`` with ``y (1, D)`` the whole state,
            ``noise (1, M)`` and ``flags (F,)``; ``width`` is the time that the noise spans.
        finish: ``finish(end, y)`` gives the outputs at the end, tensors ``(1,)``.
        model: the object whose tensors both use.
        y: an example of the state.
        counters: for each noise input the channel word of its counter.
        flags: number of flags.
        outputs: number of outputs.
        start: ``start(x0)`` gives the state at the first node from ``x0 (1, d)``.
        name: what a message calls the SDE, which ``model`` may hold beside other things.
    """

    step: Callable[..., Tensor]
    finish: Callable[..., Sequence[Tensor]] | None
    model: object
    y: Tensor
    counters: Sequence[int]
    flags: int = 0
    outputs: int = 0
    start: Callable[[Tensor], Tensor] | None = None
    name: str = ""


@dataclass(frozen=True)
class Layout:
    """Where state, tangents and outputs are found.

    Attributes:
        slots: for each slot of the state its row (0 the state, then one a direction) and component.
        outputs: for each output its row and number.
        names: the model's tensors, in the order in which they are taken.
    """

    slots: Sequence[tuple[int, int]]
    outputs: Sequence[tuple[int, int]]
    names: Sequence[str]

    def places(self, model: object) -> Places:
        """Where a model of this description holds the tensors."""
        return Places(model, self.names)


def flat(values: Sequence[Tensor]) -> Tensor:
    """Tensors one after the other, flat, in float64."""
    parts = [value.detach().reshape(-1) for value in values]
    return torch.cat(parts).double().cpu() if parts else torch.zeros(0, dtype=torch.float64)


def assemble(
    motion: Motion, directions: Sequence[Direction], moving: set[tuple[int, int]]
) -> tuple[Stepper, Layout]:
    """State and tangents of ``motion`` along ``directions``.

    ``moving`` holds the (row, component) of the tangents that are not zero at the start.

    Raises:
        UnrecordableError: if the step cannot be written as scalar operations.
    """
    recorder = _Derivative(motion, directions)
    new, along = recorder.step()
    d = len(new)
    program = recorder.program
    alive = set(moving)
    while True:
        slot_of = {(0, i): i for i in range(d)}
        slot_of |= {key: d + k for k, key in enumerate(sorted(alive))}
        rows = []
        for r in range(1, len(directions) + 1):
            rows.append(program.substitute(along, recorder.tangents(r, slot_of)))
            check_size(program)
        grown = {(r, i) for r, row in enumerate(rows, 1) for i in range(d) if row[i] != ZERO}
        if grown <= alive:
            break
        alive |= grown
    step = [*new, *(rows[r - 1][i] for r, i in sorted(alive))]
    outputs, places = [], []
    if motion.finish is not None:
        values, slopes = recorder.finish()
        outputs, places = list(values), [(0, k) for k in range(len(values))]
        for r in range(1, len(directions) + 1):
            outputs += program.substitute(slopes, recorder.tangents(r, slot_of))
            places += [(r, k) for k in range(len(values))]
    stepper = Stepper(program, step, outputs, motion.counters, motion.flags)
    slots = [(0, i) for i in range(d)] + sorted(alive)
    return stepper, Layout(slots, places, recorder.names)


def tensors_of(model: object, directions: Sequence[Direction]) -> tuple[list[str], int]:
    """Names of the model's tensors, each once; those differentiated in lead, so many."""
    known = known_parameters(model)
    asked = list(dict.fromkeys(name for name, _ in directions if name in known))
    seen: set[int] = set()
    names = []
    for name in [*asked, *known]:
        if id(known[name]) not in seen:
            seen.add(id(known[name]))
            names.append(name)
    return names, len(asked)


class _Derivative:
    """Records functions with their derivative along an open direction."""

    def __init__(self, motion: Motion, directions: Sequence[Direction]) -> None:
        self.motion, self.directions = motion, directions
        self.program = Program()
        self.names, self.asked = tensors_of(motion.model, directions)
        known = known_parameters(motion.model)
        self.values = [known[name].detach() for name in self.names]
        self.places = Places(motion.model, self.names)
        self.in_time = any(name == "maturity" for name, _ in directions)
        offsets = [0]
        for value in self.values:
            offsets.append(offsets[-1] + value.numel())
        self.offset = dict(zip(self.names, offsets, strict=False))

    def step(self) -> tuple[list[int], list[int]]:
        """The new state and its derivative."""
        y = self.motion.y
        times = [torch.tensor(v, dtype=y.dtype) for v in (0.5, 0.75, 0.25)]
        noise = torch.full((1, len(self.motion.counters)), 0.1, dtype=y.dtype)
        flags = torch.zeros(self.motion.flags, dtype=y.dtype)

        def function(times: Sequence[Tensor], y: Tensor, rest: Sequence[Tensor]) -> list[Tensor]:
            out = self.motion.step(*times, y, *rest)
            if out.shape != y.shape:
                raise UnrecordableError(
                    f"a single path of shape {tuple(y.shape)} becomes {tuple(out.shape)}: the "
                    f"model holds numbers of other samples"
                )
            return [out]

        inputs = self._inputs("noise", noise), self._inputs("flag", flags)
        (new,), (along,) = self._record(function, times, [0, 1, 2], [noise, flags], inputs)
        return new, along

    def finish(self) -> tuple[list[int], list[int]]:
        """The outputs and their derivatives."""
        finish = self.motion.finish
        assert finish is not None
        end = torch.tensor(1.0, dtype=torch.float64)
        values, slopes = self._record(lambda times, y, _: finish(*times, y), [end], [1], [], [])
        for out in values:
            if len(out) != 1:
                raise ValueError(
                    f"an output must be one number a path, of shape (P,), got {len(out)} numbers "
                    f"for a single path."
                )
        return [out[0] for out in values], [slope[0] for slope in slopes]

    def _record(
        self,
        function: Callable[..., Sequence[Tensor]],
        times: Sequence[Tensor],
        time_inputs: Sequence[int],
        rest: Sequence[Tensor],
        rest_inputs: Sequence[Expressions],
    ) -> tuple[list[list[int]], list[list[int]]]:
        y, free = self.motion.y, self.values[: self.asked]
        fixed = self.values[self.asked :]
        clock = times if self.in_time else []
        primals = [*clock, y, *free]
        counts = len(times), len(free), len(fixed), len(rest)

        def recorded(*tensors: Tensor) -> list[Tensor]:
            parts = _split(tensors, [counts[0], 1, *counts[1:], len(primals)])
            t, (state, *_), theta, other, more, tangents = parts

            def inner(*arguments: Tensor) -> tuple[Tensor, ...]:
                now = arguments[: len(clock)] if clock else t
                state, *theta = arguments[len(clock) :]
                tensors = dict(zip(self.names, [*theta, *other], strict=True))
                with self.places.holding(tensors):
                    return tuple(function(now, state, more))

            here = [*(t if clock else []), state, *theta]
            out, slope, *_ = torch.func.jvp(inner, tuple(here), tuple(tangents))
            return [*out, *slope]

        example = [*times, y, *free, *fixed, *rest, *(torch.ones_like(p) for p in primals)]
        inputs = [
            *(expressions([self.program.input("time", k)], ()) for k in time_inputs),
            self._inputs("state", y),
            *self._parameter_inputs("parameter", self.values),
            *rest_inputs,
            *(
                expressions([self.program.input("time_tangent", k)], ())
                for k in (time_inputs if clock else [])
            ),
            self._inputs("state_tangent", y),
            *self._parameter_inputs("parameter_tangent", free),
        ]
        found = record(recorded, example, inputs, self.program)
        return found[: len(found) // 2], found[len(found) // 2 :]

    def _inputs(self, kind: str, like: Tensor) -> Expressions:
        return expressions([self.program.input(kind, k) for k in range(like.numel())], like.shape)

    def _parameter_inputs(self, kind: str, values: Sequence[Tensor]) -> list[Expressions]:
        out, start = [], 0
        for value in values:
            ids = [self.program.input(kind, start + k) for k in range(value.numel())]
            out.append(expressions(ids, value.shape))
            start += value.numel()
        return out

    def tangents(self, row: int, slot_of: dict[tuple[int, int], int]) -> dict[int, int]:
        """What the tangent inputs are along the direction of this row."""
        program, (name, entry) = self.program, self.directions[row - 1]
        out = {}
        for i in range(self.motion.y.numel()):
            slot = slot_of.get((row, i))
            tangent = ZERO if slot is None else program.input("state", slot)
            out[program.input("state_tangent", i)] = tangent
        for k in range(sum(v.numel() for v in self.values[: self.asked])):
            mine = name in self.offset and k == self.offset[name] + entry
            out[program.input("parameter_tangent", k)] = ONE if mine else ZERO
        if name != "maturity":
            for k in range(len(TIMES)):
                out[program.input("time_tangent", k)] = ZERO
        return out


def _split(values: Sequence[Tensor], counts: Sequence[int]) -> list[Sequence[Tensor]]:
    out, start = [], 0
    for count in counts:
        out.append(values[start : start + count])
        start += count
    return out
