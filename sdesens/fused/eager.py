"""A motion run as it stands, every direction by forward mode: for what cannot be recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sdesens._parameters import along, places_of
from sdesens.fused.evaluate import drawn
from sdesens.fused.system import Direction, Layout, Motion, tensors_of

if TYPE_CHECKING:
    from sdesens.fused.kernel import Moments, Run

_BLOCK = 2**14  # paths at a time


class EagerKernel:
    """Runs a motion; the interface of :class:`~sdesens.fused.kernel.Kernel` for outputs."""

    is_compiled, seconds = False, 0.0

    def __init__(self, motion: Motion, directions: Sequence[Direction]) -> None:
        self.motion, self.directions = motion, directions
        self.dtype, size = motion.y.dtype, motion.y.shape[1]
        names, _ = tensors_of(motion.model, directions)
        self.places = places_of(motion.model, [name for name, _ in directions])
        rows = range(1 + len(directions))
        slots = [(r, i) for r in rows for i in range(size)]
        self.layout = Layout(slots, [(r, k) for r in rows for k in range(motion.outputs)], names)

    def moments(self, run: Run) -> Moments:
        """Moments of the outputs."""
        from sdesens.fused.kernel import moments_of, one_thread  # noqa: PLC0415

        # The model's tensors are exchanged while it is differentiated: one caller at a time.
        with one_thread():
            return moments_of(self.samples(run))

    def __reduce__(self) -> tuple[Any, ...]:
        return EagerKernel, (self.motion, self.directions)

    def samples(self, run: Run) -> Tensor:
        """The outputs of every path, ``(outputs, paths)``."""
        ranges = [
            range(begin, min(begin + _BLOCK, run.paths)) for begin in range(0, run.paths, _BLOCK)
        ]
        with torch.no_grad():
            return torch.cat([self._block(run, paths) for paths in ranges], dim=1)

    def _block(self, run: Run, paths: range) -> Tensor:
        rows = run.start.view(1 + len(self.directions), 1, -1)
        rows = rows.expand(-1, len(paths), -1).contiguous()
        for k in range(run.times.shape[0]):
            noise = drawn(self.motion.counters, run, self.dtype, range(k, k + 1), paths)[0].T
            times, rates = run.times[k].unbind(0), run.rates[k].unbind(0)
            flags = run.flags[k].to(self.dtype)

            def step(*arguments: Tensor, noise: Tensor = noise, flags: Tensor = flags):
                return self.motion.step(*arguments[:3], arguments[3], noise, flags)

            rows = torch.stack(self._along(step, times, rates, rows))
        end, rate = run.times[-1, 1], run.rates[-1, 1]
        finish = self.motion.finish
        assert finish is not None
        rows = self._along(
            lambda *arguments: torch.stack(list(finish(*arguments))),
            [end],
            [rate],
            rows,
        )
        return torch.cat(rows)

    def _along(self, function, times, rates, rows) -> list[Tensor]:
        """``function`` of times and state, and its derivative along every direction."""
        point = (*times, rows[0])
        out = [function(*point)]
        for direction, tangent in zip(self.directions, rows[1:], strict=True):
            still = [torch.zeros_like(t) for t in times]
            clock = rates if direction[0] == "maturity" else still
            out.append(along(self.places, direction, function, point, (*clock, tangent)))
        return out
