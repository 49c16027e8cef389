"""A simulation cut into shards, each a pure function of its index."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256

import torch
from torch import Tensor

from sdesens._parameters import along, places_of
from sdesens.errors import UncompiledWarning
from sdesens.fused.eager import EagerKernel
from sdesens.fused.engine import compiled
from sdesens.fused.kernel import Kernel, Moments, Run
from sdesens.fused.rules import UnrecordableError
from sdesens.fused.system import Direction, Layout, Motion, flat
from sdesens.fused.trace import RealZeros
from sdesens.montecarlo.simulation import Clock, Simulation

SHARD_SIZE = 2**16  # paths, unless said otherwise
_TRIED = 64  # paths, several vectors of any processor


@dataclass(frozen=True)
class Job:
    """A simulation ready to run, here or in another process that it is sent to.

    Attributes:
        kernel: what runs it.
        layout: where its outputs are found.
        numbers: those of the run, for the paths of no shard in particular.
        paths: number of paths in all.
        shard_size: paths in every shard but the last.
    """

    kernel: Kernel | EagerKernel
    layout: Layout
    numbers: Run
    paths: int
    shard_size: int

    @classmethod
    def of(cls, simulation: Simulation, seed: int, paths: int, shard_size: int) -> Job:
        """Record and compile ``simulation``, unless that was done before."""
        motion, clock = simulation.motion(), simulation.clock()
        x0 = simulation.problem.x0.detach()
        return cls.moving(motion, clock, x0, simulation.directions, seed, paths, shard_size)

    @classmethod
    def moving(
        cls,
        motion: Motion,
        clock: Clock,
        x0: Tensor,
        directions: Sequence[Direction],
        seed: int,
        paths: int,
        shard_size: int,
    ) -> Job:
        """The job of a motion that starts at ``x0 (1, d)``."""
        _refuse_mixing(motion)
        y, tangents = _start(motion, x0, directions)
        moving = {(r + 1, i) for r, i in tangents[:, 0].nonzero().tolist()}
        kernel, layout = _kernel(motion, directions, moving)
        rows = torch.cat([y, tangents[:, 0]])
        start = torch.stack([rows[slot] for slot in layout.slots])
        times, rates = clock.times()
        numbers = Run(
            parameters=flat(layout.places(motion.model).values()),
            times=times,
            rates=rates,
            flags=clock.flags[1:].contiguous(),
            start=start.contiguous(),
            paths=0,
            seed=seed,
        )
        return cls(kernel, layout, numbers, paths, shard_size)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.paths // self.shard_size)

    def paths_of(self, index: int) -> int:
        """Number of paths of shard ``index``."""
        return min(self.shard_size, self.paths - index * self.shard_size)

    def shard(self, index: int) -> Run:
        """The run of shard ``index``."""
        first = index * self.shard_size
        return replace(self.numbers, first_path=first, paths=self.paths_of(index))

    def run_shard(self, index: int) -> Moments:
        """The moments of shard ``index``, which depend on it alone."""
        return self.kernel.moments(self.shard(index))

    @cached_property
    def identity(self) -> str:
        """A hash of all that the moments of its shards depend on.

        Of the program and its numbers; and of what becomes of a few paths, which shows another
        processor or compiler, and stands for the program of a simulation that is not compiled.
        """
        run, kernel = self.numbers, self.kernel
        words = [run.seed, self.shard_size, kernel.dtype, list(self.layout.outputs), self.trial()]
        if isinstance(kernel, Kernel):
            words.append(kernel.digest)
        content = sha256(repr(words).encode())
        for tensor in (run.parameters, run.times, run.rates, run.flags, run.start):
            content.update(tensor.numpy().tobytes())
        return content.hexdigest()

    def trial(self) -> str:
        """A hash of the bits of a few paths, as this process makes them."""
        moments = self.kernel.moments(replace(self.numbers, paths=_TRIED))
        return sha256(
            moments.mean.numpy().tobytes() + moments.products.numpy().tobytes()
        ).hexdigest()


def _refuse_mixing(motion: Motion) -> None:
    """Raise if two paths together do not do what each does alone: only one is recorded.

    Raises:
        ValueError: if a functional or the payoff mixes paths.
    """
    two = torch.cat([motion.y, 1.1 * motion.y + 0.1])
    noise = two.new_full((2, len(motion.counters)), 0.2) * torch.tensor([[1.0], [-2.0]]).to(two)
    times = [torch.tensor(t, dtype=two.dtype) for t in (0.0, 0.5, 0.5)]
    flags = two.new_ones(motion.flags)

    def all_of(rows: slice) -> Tensor:
        y = motion.step(*times, two[rows], noise[rows], flags)
        assert motion.finish is not None
        return torch.cat([y, torch.stack(list(motion.finish(times[1].double(), y)), dim=1)], dim=1)

    with torch.no_grad(), RealZeros():  # which also cost less time than those without memory
        alone = torch.cat([all_of(slice(0, 1)), all_of(slice(1, 2))])
        tolerance = 1e3 * torch.finfo(two.dtype).eps
        if not torch.allclose(
            all_of(slice(0, 2)), alone, rtol=tolerance, atol=tolerance, equal_nan=True
        ):
            raise ValueError(
                "the payoff or a functional mixes paths: two paths together give other numbers "
                "than each alone, as with a mean over paths. Return one number a path; the mean is "
                "taken here."
            )


def _kernel(
    motion: Motion, directions: Sequence[Direction], moving: set[tuple[int, int]]
) -> tuple[Kernel | EagerKernel, Layout]:
    try:
        engine = compiled(motion, directions, moving)
    except UnrecordableError as error:
        warnings.warn(
            f"the simulation runs uncompiled: the same numbers, hundreds of times slower: of "
            f"{motion.name} or the payoff, {error}.",
            UncompiledWarning,
            stacklevel=5,
        )
        kernel = EagerKernel(motion, directions)
        return kernel, kernel.layout
    return engine.kernel, engine.layout


def _start(motion: Motion, x0: Tensor, directions: Sequence[Direction]) -> tuple[Tensor, Tensor]:
    """State ``(1, D)`` at the start and its tangents ``(R, 1, D)``."""
    begin, places = motion.start, places_of(motion.model, [name for name, _ in directions])
    assert begin is not None
    tangents = []
    with torch.no_grad():
        for name, entry in directions:
            unit = torch.zeros_like(x0)
            if name == "x0":
                unit[0, entry] = 1.0
            # The start may depend on the model: on what is watched, or a barrier.
            tangents.append(along(places, (name, entry), begin, (x0,), (unit,)))
        y = begin(x0)
    return y, torch.stack(tangents) if tangents else y.new_zeros(0, *y.shape)
