"""Jobs whose shards do what the workers of long jobs do: die, raise, wait."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from sdesens.fused.kernel import Moments
from sdesens.montecarlo.execution import Terms
from sdesens.montecarlo.moments import merge_all
from sdesens.montecarlo.specification import Specification


@dataclass(frozen=True)
class FaultyJob:
    """A job whose moments are numbers made of the shard's index.

    ``faults`` gives for a shard what happens, ``"die"`` or ``"raise"``, and how many times; in
    ``log``, a folder, every call leaves a file, so that processes know of one another.
    """

    log: Path
    paths: int = 1000
    shard_size: int = 100
    faults: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    seconds: float = 0.0
    salt: int = 0

    @property
    def identity(self) -> str:
        return f"faulty {self.salt} {self.shard_size}"

    @property
    def shards(self) -> int:
        return -(-self.paths // self.shard_size)

    def trial(self) -> str:
        return "the same bits"

    def paths_of(self, index: int) -> int:
        return min(self.shard_size, self.paths - index * self.shard_size)

    def run_shard(self, index: int) -> Moments:
        self.note(f"call-{index}")
        what, times = self.faults.get(index, ("", 0))
        if times and len(list(self.log.glob(f"{what}-{index}.*"))) < times:
            self.note(f"{what}-{index}")
            if what == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError("the shard's own trouble")
        time.sleep(self.seconds)
        made = torch.Generator().manual_seed(1000 * self.salt + index)
        mean = torch.randn(2, generator=made, dtype=torch.float64)
        return Moments(self.paths_of(index), mean, torch.outer(mean, mean).abs() + torch.eye(2))

    def note(self, event: str) -> None:
        self.log.mkdir(exist_ok=True)
        (self.log / f"{event}.{os.getpid()}.{time.monotonic_ns()}").touch()

    def calls(self) -> list[int]:
        """The shards that were begun so far, by anybody."""
        return sorted(int(p.name.split(".")[0][5:]) for p in self.log.glob("call-*"))

    def undisturbed(self) -> Moments:
        """What should come out."""
        quiet = FaultyJob(self.log.with_name("quiet"), self.paths, self.shard_size, salt=self.salt)
        return merge_all(map(quiet.run_shard, range(self.shards)))


def carried_out(job: Any, count: Callable[[int], object] = lambda n: None, **terms: Any) -> Moments:
    """Run a job as ``greeks`` would."""
    settings = {"executor": None, "workers": 1, "checkpoint": None, "retries": 2} | terms
    (moments,) = Terms.of(**settings).carry_out(Specification({}, [job]), None, count)
    return moments


def assert_same_bits(got: Moments, right: Moments) -> None:
    assert got.count == right.count
    assert torch.equal(got.mean, right.mean) and torch.equal(got.products, right.products)


class Reordered(Executor):
    """Runs what it holds in an order of its own, on a thread."""

    def __init__(self, order: str) -> None:
        self.order, self.held, self.done = order, [], []
        self.lock, self.random = threading.Condition(), random.Random(3)
        threading.Thread(target=self._work, daemon=True).start()

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        future: Future = Future()
        with self.lock:
            self.held.append((future, fn, args))
            self.lock.notify()
        return future

    def _work(self) -> None:
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self.held)
            time.sleep(0.01)  # until several are held
            with self.lock:
                at = {"first": 0, "last": -1}.get(self.order)
                at = self.random.randrange(len(self.held)) if at is None else at
                future, fn, args = self.held.pop(at)
            if future.set_running_or_notify_cancel():
                self.done.append(args[-1])
                try:
                    future.set_result(fn(*args))
                except Exception as error:
                    future.set_exception(error)


def listening(pids: Sequence[int]) -> set[str]:
    """Addresses on which processes listen."""
    import psutil  # noqa: PLC0415

    found = set()
    for pid in pids:
        for connection in psutil.Process(pid).net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                found.add(connection.laddr[0])
    return found
