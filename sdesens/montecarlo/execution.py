"""Run the shards of a job to the end: in any order, through faults, merged in one order."""

from __future__ import annotations

import math
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any

from sdesens._checks import check_count
from sdesens.errors import CheckpointError, ShardError, WorkerMismatchError
from sdesens.fused.kernel import Moments
from sdesens.montecarlo.checkpoint import Checkpoint
from sdesens.montecarlo.executors import Pool, Task, pool_maker
from sdesens.montecarlo.moments import merge
from sdesens.montecarlo.specification import Specification

_AHEAD = 4  # shards finished out of order that are held, in widths of the pool
_GROWTH = 4  # at most so many times the paths before accuracy is looked at again
_FIRST = 2**14  # paths before accuracy is looked at: fewer may show no variance at all
_PAUSE = 0.1  # seconds before a file is tried again, doubled each time

Shortfall = Callable[[Sequence[Moments]], float]


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

    def carry_out(
        self, job: Specification, shortfall: Shortfall | None, count: Callable[[int], object]
    ) -> list[Moments]:
        """Run a job on these terms."""
        folder = None if self.checkpoint is None else Checkpoint.open(self.checkpoint, job)
        return Execution(job, self.make_pool(), self.retries, folder, count).moments(shortfall)


@dataclass
class Execution:
    """A job being run.

    Attributes:
        specification: the job.
        pool: what runs its shards.
        retries: how often a shard is tried again.
        checkpoint: where finished shards are kept, if anywhere.
        count: told of the paths of every shard as it is merged.
    """

    specification: Specification
    pool: Pool
    retries: int = 2
    checkpoint: Checkpoint | None = None
    count: Callable[[int], object] = lambda paths: None
    kept: int = field(default=0, init=False)

    def moments(self, shortfall: Shortfall | None = None) -> list[Moments]:
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
        total = self.specification.shards
        size = self.specification.jobs[0].shard_size
        done, until = 0, total if shortfall is None else min(total, -(-_FIRST // size))
        merged: list[Moments | None] = [None] * len(self.specification.jobs)
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
        job = self.specification.jobs[piece]
        expected = min(until * job.shard_size, job.paths)
        found = 0 if moments is None else moments.count
        if found != expected:
            raise RuntimeError(f"{found} paths of simulation {piece} were merged, not {expected}.")

    def _parts(self, piece: int, indices: range) -> Iterator[Moments]:
        """The moments of shards, in their order."""
        flight = _Flight(self, piece, iter(indices))
        try:
            yield from flight.landed()
        finally:
            flight.cancel()

    # --- what is on disk -------------------------------------------------------------------------

    def read(self, piece: int, index: int) -> Moments | None:
        """A shard of an earlier run."""
        if self.checkpoint is None:
            return None
        found = self.checkpoint.read(piece, index, self.specification.jobs[piece].paths_of(index))
        self.kept += found is not None
        return found

    def keep(self, piece: int, index: int, moments: Moments) -> None:
        """Write a shard to disk, trying again if that fails."""
        if self.checkpoint is None:
            return
        for attempt in range(self.retries + 1):
            try:
                self.checkpoint.write(piece, index, moments)
                self.kept += 1
                return
            except OSError as error:
                if attempt == self.retries:
                    raise CheckpointError(
                        f"{self.name(piece, index)} was computed but cannot be written to "
                        f"{self.checkpoint.folder}: {error}. {self._rest()} Make room and run "
                        f"again: only what is missing is computed."
                    ) from error
                time.sleep(_PAUSE * 2**attempt)

    def name(self, piece: int, index: int) -> str:
        """A shard in words."""
        jobs = self.specification.jobs
        of = f" of simulation {piece} of {len(jobs)}" if len(jobs) > 1 else ""
        return f"shard {index} of {jobs[piece].shards}{of}"

    def failed(self, piece: int, index: int, attempts: int, error: BaseException) -> ShardError:
        """The error of a shard that failed for good."""
        return ShardError(
            f"{self.name(piece, index)} failed {attempts} times, the last time by "
            f"{type(error).__name__}: {error}. {self._rest()}",
            piece=piece,
            shard=index,
            attempts=attempts,
        )

    def broken(self, piece: int, lost: Sequence[int], error: BaseException) -> ShardError:
        """The error of an executor whose processes are gone."""
        first, *others = sorted(lost)
        beside = f" or beside it ({others})" if others else ""
        return ShardError(
            f"a process of the executor died by {self.name(piece, first)}{beside}, and it starts "
            f"no other: {error} {self._rest()} Give workers=, which starts new ones, or a new "
            f"executor.",
            piece=piece,
            shard=first,
            attempts=1,
        )

    def _rest(self) -> str:
        if self.checkpoint is None:
            return "The other shards are lost; checkpoint= keeps them."
        return f"{self.kept} finished shards are kept in {self.checkpoint.folder}."


class _Flight:
    """Shards of one simulation under way.

    A worker that dies may take along shards that others were working on. All of them are tried
    again one at a time, so that the one which kills is found, and named.
    """

    def __init__(self, run: Execution, piece: int, ahead: Iterator[int]) -> None:
        self.run, self.pool, self.piece, self.ahead = run, run.pool, piece, ahead
        self.task = Task(run.specification.jobs[piece])
        self.running: dict[Future, int] = {}
        self.suspects: list[int] = []
        self.waiting: deque[int] = deque()  # not yet given on, in order
        self.ready: dict[int, Moments] = {}
        self.attempts: Counter[int] = Counter()
        self.all_begun = False
        self.on_trial: int | None = None  # the suspect that runs, alone

    def landed(self) -> Iterator[Moments]:
        """Finished shards, in order."""
        while True:
            if self.suspects and not self.running:
                self.on_trial = self.suspects.pop(0)
                self._start(self.on_trial)
            elif not self.suspects and self.on_trial is None:
                self._fill()
            while self.waiting and self.waiting[0] in self.ready:
                yield self.ready.pop(self.waiting.popleft())
            if self.running:
                self._settle(wait(self.running, return_when=FIRST_COMPLETED).done)
            elif not self.waiting and self.all_begun:
                return

    def cancel(self) -> None:
        """Call off what has not begun."""
        for future in self.running:
            future.cancel()

    def _fill(self) -> None:
        room = _AHEAD * self.pool.width - len(self.waiting)
        while room > 0 and len(self.running) < self.pool.width:
            index = next(self.ahead, None)
            if index is None:
                self.all_begun = True
                return
            room -= 1
            self.waiting.append(index)
            found = self.run.read(self.piece, index)
            if found is None:
                self._start(index)
            else:
                self.ready[index] = found

    def _start(self, index: int) -> None:
        try:
            future = self.pool.submit(self.task, index)
        except Exception as error:
            if not self.pool.is_crash(error):
                raise
            self._crashed([index], error)
        else:
            self.running[future] = index

    def _settle(self, finished: set[Future]) -> None:
        for future in finished:
            index = self.running.pop(future, None)
            if index is None:
                continue  # went down with another
            if index == self.on_trial:
                self.on_trial = None
            try:
                moments = self.pool.result(future)
            except WorkerMismatchError:
                raise
            except Exception as error:
                if self.pool.is_crash(error):
                    self._crashed([index], error)
                else:
                    self._failed(index, error)
                    self._start(index)
            else:
                self.run.keep(self.piece, index, moments)
                self.ready[index] = moments

    def _crashed(self, lost: list[int], error: BaseException) -> None:
        """A worker died: find out by which shard."""
        was_alone = not self.running
        if self.pool.breaks_whole:
            lost += self._salvaged()
            if not self.pool.restart():
                raise self.run.broken(self.piece, lost, error) from error
        if was_alone:
            self._failed(lost[0], error)
        self.suspects = sorted({*self.suspects, *lost})

    def _salvaged(self) -> list[int]:
        """Keep what had finished before the crash; the shards that had not."""
        lost = []
        for future, index in self.running.items():
            try:
                moments = self.pool.result(future)
            except Exception:
                lost.append(index)
            else:
                self.run.keep(self.piece, index, moments)
                self.ready[index] = moments
        self.running.clear()
        return lost

    def _failed(self, index: int, error: BaseException) -> None:
        self.attempts[index] += 1
        if self.attempts[index] > self.run.retries:
            self._finish()
            raise self.run.failed(self.piece, index, self.attempts[index], error) from error

    def _finish(self) -> None:
        """Keep what is under way, if it goes well."""
        for future in [future for future in self.running if not future.cancel()]:
            index = self.running.pop(future)
            try:
                moments = self.pool.result(future)
            except Exception:
                continue
            self.run.keep(self.piece, index, moments)
