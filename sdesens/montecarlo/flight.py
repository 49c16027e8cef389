"""Shards of a simulation under way: started ahead, landed in order, tried again after faults."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait

from sdesens.errors import WorkerMismatchError
from sdesens.fused.kernel import Moments
from sdesens.montecarlo.executors import Pool, Task
from sdesens.montecarlo.ledger import Ledger

_AHEAD = 4  # shards finished out of order that are held, in widths of the pool


class Flight:
    """Shards of one simulation under way.

    A worker that dies may take along shards that others were working on. All of them are tried
    again one at a time, so that the one which kills is found, and named.
    """

    def __init__(self, ledger: Ledger, pool: Pool, piece: int, ahead: Iterator[int]) -> None:
        self.ledger, self.pool, self.piece, self.ahead = ledger, pool, piece, ahead
        self.task = Task(ledger.specification.jobs[piece])
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
            found = self.ledger.read(self.piece, index)
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
                self._land(index, moments)

    def _land(self, index: int, moments: Moments) -> None:
        self.ledger.keep(self.piece, index, moments)
        self.ready[index] = moments

    def _crashed(self, lost: list[int], error: BaseException) -> None:
        """A worker died: find out by which shard."""
        was_alone = not self.running
        if self.pool.breaks_whole:
            lost += self._salvaged()
            if not self.pool.restart():
                raise self.ledger.broken(self.piece, lost, error) from error
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
                self._land(index, moments)
        self.running.clear()
        return lost

    def _failed(self, index: int, error: BaseException) -> None:
        self.attempts[index] += 1
        if self.attempts[index] > self.ledger.retries:
            self._finish()
            raise self.ledger.failed(self.piece, index, self.attempts[index], error) from error

    def _finish(self) -> None:
        """Keep what is under way, if it goes well."""
        for future in [future for future in self.running if not future.cancel()]:
            index = self.running.pop(future)
            try:
                moments = self.pool.result(future)
            except Exception:
                continue
            self._land(index, moments)
