"""Run the shards of a job to the end: in any order, through faults, merged in one order."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sdesens._checks import check_count
from sdesens.fused.kernel import Moments
from sdesens.montecarlo.accuracy import Found, Target
from sdesens.montecarlo.checkpoint import Checkpoint
from sdesens.montecarlo.executors import Pool, pool_maker
from sdesens.montecarlo.flight import Flight
from sdesens.montecarlo.ledger import Ledger
from sdesens.montecarlo.moments import merge
from sdesens.montecarlo.specification import Specification

_GROWTH = 4  # at most so many times the paths before accuracy is looked at again
_FIRST = 2**14  # paths before accuracy is looked at: fewer may show no variance at all

Shortfall = Callable[[Sequence[Moments]], float]
F = TypeVar("F", bound=Found)


@dataclass(frozen=True)
class Terms:
    """How a job is to be run, as a user says it, checked.

    Attributes:
        make_pool: starts what runs the shards.
        checkpoint: folder of checkpoints, None for none.
        retries: how often a shard is tried again.
    """

    make_pool: Callable[[], Pool]
    checkpoint: str | os.PathLike[str] | None
    retries: int

    @classmethod
    def of(cls, executor: Any, workers: int, checkpoint: Any, retries: int) -> Terms:
        """Check them; nothing is started or written yet."""
        check_count("workers", workers)
        check_count("retries", retries, 0)
        if checkpoint is not None and not isinstance(checkpoint, (str, os.PathLike)):
            raise TypeError(
                f"checkpoint must be the path of a folder, got {type(checkpoint).__name__}."
            )
        return cls(pool_maker(executor, workers), checkpoint, retries)

    def estimate(
        self,
        job: Specification,
        found: Callable[[Sequence[Moments]], F],
        target: Target | None,
        count: Callable[[int], object],
    ) -> F:
        """What is ``found`` in the moments of a job, up to its target; warns the caller's caller.

        ``count`` is told of the paths of every shard as it is merged.
        """
        if target is None:
            return found(self.carry_out(job, None, count))
        out = found(self.carry_out(job, lambda parts: target.shortfall(found(parts)), count))
        target.warn_if_missed(out, stacklevel=3)
        return out

    def carry_out(
        self, job: Specification, shortfall: Shortfall | None, count: Callable[[int], object]
    ) -> list[Moments]:
        """The moments of every simulation of a job."""
        folder = None if self.checkpoint is None else Checkpoint.open(self.checkpoint, job)
        ledger = Ledger(job, folder, self.retries)
        return Execution(ledger, self.make_pool(), count).moments(shortfall)


@dataclass(frozen=True)
class Execution:
    """A job being run.

    Attributes:
        ledger: of its shards.
        pool: what runs them.
        count: told of the paths of every shard as it is merged.
    """

    ledger: Ledger
    pool: Pool
    count: Callable[[int], object]

    def moments(self, shortfall: Shortfall | None) -> list[Moments]:
        """The moments of every simulation.

        ``shortfall`` tells from the moments so far how many times as many paths are needed; the run
        stops where that is 1 or less. It is asked at numbers of paths that depend on its answers
        alone, so that the result does not depend on who ran what.

        Raises:
            ShardError: if a shard fails too often.
            CheckpointError: if a shard cannot be written.
        """
        at_once = True
        try:
            out = self._all(shortfall)
            at_once = False
            return out
        finally:
            self.pool.close(at_once=at_once)

    def _all(self, shortfall: Shortfall | None) -> list[Moments]:
        job = self.ledger.specification
        total, size = job.shards, job.jobs[0].shard_size
        done, until = 0, total if shortfall is None else min(total, -(-_FIRST // size))
        merged: list[Moments | None] = [None] * len(job.jobs)
        while True:
            for piece, before in enumerate(merged):
                for part in self._parts(piece, range(done, until)):
                    self.count(part.count)
                    before = part if before is None else merge(before, part)  # noqa: PLW2901
                merged[piece] = before
                self._check_complete(piece, until, before)
            done, parts = until, [part for part in merged if part is not None]
            factor = math.inf if shortfall is None else shortfall(parts)
            if done == total or factor <= 1:
                return parts
            wanted = total if math.isinf(factor) else math.ceil(done * factor)
            until = min(total, max(done + 1, min(_GROWTH * done, wanted)))

    def _check_complete(self, piece: int, until: int, moments: Moments | None) -> None:
        """Raise unless every path of the shards before ``until`` is there, once."""
        job = self.ledger.specification.jobs[piece]
        expected = min(until * job.shard_size, job.paths)
        found = 0 if moments is None else moments.count
        if found != expected:
            raise RuntimeError(f"{found} paths of simulation {piece} were merged, not {expected}.")

    def _parts(self, piece: int, indices: range) -> Iterator[Moments]:
        """The moments of shards, in their order."""
        flight = Flight(self.ledger, self.pool, piece, iter(indices))
        try:
            yield from flight.landed()
        finally:
            flight.cancel()
