"""A stepper run operation by operation in torch: slower, the same numbers, on any device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sdesens import _philox
from sdesens.fused.operations import OPERATIONS
from sdesens.fused.program import Level, Program

if TYPE_CHECKING:
    from sdesens.fused.emit import Stepper
    from sdesens.fused.kernel import Run

_BLOCK = 2**14  # paths at a time
_CONSTANTS = {"zero": 0.0, "one": 1.0, "minus_one": -1.0}

Values = dict[int, Tensor]


def evaluate(
    stepper: Stepper, numbers: Tensor, run: Run, dtype: torch.dtype, keep: list[int]
) -> tuple[Tensor, Tensor]:
    """Slots at the nodes ``keep`` ``(len(keep), slots, paths)``, and outputs ``(K, paths)``."""
    blocks = [
        _Block(stepper, numbers, run, dtype, range(begin, min(begin + _BLOCK, run.paths))).run(keep)
        for begin in range(0, run.paths, _BLOCK)
    ]
    kept, outputs = zip(*blocks, strict=True)
    return torch.cat(kept, dim=-1), torch.cat(outputs, dim=-1)


def evaluate_expressions(
    program: Program, outputs: Sequence[int], inputs: Mapping[str, Tensor]
) -> Tensor:
    """The values of expressions, ``(len(outputs),)``, in float64."""
    inputs = {"number": torch.tensor(program.numbers, dtype=torch.float64), **inputs}
    constants = _constants(torch.float64)
    values = _extended(program, program.needed(outputs), Level.PATH, constants, inputs)
    return torch.stack([values[e].double() for e in outputs])


def _constants(dtype: torch.dtype) -> Values:
    """The expressions every program starts with; a choice between two has their dtype."""
    return {k: torch.tensor(v, dtype=dtype) for k, v in enumerate(_CONSTANTS.values())}


def _extended(
    program: Program,
    needed: Iterable[int],
    level: Level,
    values: Values,
    inputs: Mapping[str, Tensor],
) -> Values:
    """``values`` with the needed expressions up to ``level`` added."""
    for e in sorted(needed):
        node = program.nodes[e]
        if e in values or node.level > level:
            continue
        if node.op in OPERATIONS:
            values[e] = OPERATIONS[node.op].torch(*(values[a] for a in node.args))
        else:
            values[e] = inputs[node.op][node.args[0]]
    return values


class _Block:
    """The paths ``paths`` of a run."""

    def __init__(
        self, stepper: Stepper, numbers: Tensor, run: Run, dtype: torch.dtype, paths: range
    ) -> None:
        self.stepper, self.run_, self.dtype, self.paths = stepper, run, dtype, paths
        self.program = stepper.program
        self.shared = _constants(dtype)
        self.inputs = {"number": numbers, "parameter": run.parameters}

    def run(self, keep: list[int]) -> tuple[Tensor, Tensor]:
        """Kept slots ``(len(keep), slots, P)`` and outputs ``(K, P)`` of these paths."""
        run, stepper = self.run_, self.stepper
        size = len(self.paths)
        start = run.start[:, self.paths.start : self.paths.stop] if run.start.dim() == 2 else (
            run.start[:, None].expand(-1, size)
        )  # fmt: skip
        state = start.to(self.dtype)
        needed = self.program.needed(stepper.step)
        end = self.program.needed(stepper.outputs)
        shared = self._evaluate({*needed, *end}, Level.RUN, dict(self.shared), self.inputs)
        kept = {0: state} if 0 in keep else {}
        steps = run.times.shape[0]
        span = _philox.LANES[self.dtype]
        noise = torch.empty(0)
        for k in range(steps):
            if k % span == 0:
                ahead = range(k, min(k + span, steps))
                noise = drawn(stepper.counters, run, self.dtype, ahead, self.paths)
            inputs = {
                "time": run.times[k],
                "time_tangent": run.rates[k],
                "flag": run.flags[k],
                "noise": noise[k % span],
                "state": state,
            }
            now = self._evaluate(needed, Level.PATH, dict(shared), inputs)
            state = self._stacked([now[e] for e in stepper.step], size)
            if k + 1 in keep:
                kept[k + 1] = state
        inputs = {"time": run.times[-1], "time_tangent": run.rates[-1], "state": state}
        last = self._evaluate(end, Level.PATH, dict(shared), inputs)
        outputs = self._stacked([last[e] for e in stepper.outputs], size)
        slots = torch.stack([kept[k] for k in keep]) if keep else state.new_zeros(0, *state.shape)
        return slots, outputs

    def _evaluate(
        self, needed: Iterable[int], level: Level, values: Values, inputs: Mapping[str, Tensor]
    ) -> Values:
        return _extended(self.program, needed, level, values, inputs)

    def _stacked(self, values: list[Tensor], size: int) -> Tensor:
        rows = [v.to(self.dtype).expand(size) for v in values]
        return torch.stack(rows) if rows else torch.zeros(0, size, dtype=self.dtype)


def drawn(
    counters: Sequence[int], run: Run, dtype: torch.dtype, steps: range, paths: range
) -> Tensor:
    """The noise of these steps and paths of a run, ``(steps, channels, P)``."""
    if run.noise is not None:
        return run.noise[steps.start : steps.stop, :, paths.start : paths.stop]
    shifted = range(run.first_path + paths.start, run.first_path + paths.stop)
    streams = [word >> _philox.CHANNEL_BITS for word in counters]
    parts = [
        _philox.normals(run.seed, shifted, steps, streams.count(s), stream=s, dtype=dtype)
        for s in dict.fromkeys(streams)
    ]
    if not parts:
        return torch.zeros(len(steps), 0, len(paths), dtype=dtype)
    return torch.cat(parts, dim=-1).mT
