"""What runs in a worker: a simulation that was sent there, checked, and a shard of it."""

from __future__ import annotations

import pickle
import signal
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from typing import Any

import numpy as np
import torch

from sdesens.errors import WorkerMismatchError
from sdesens.fused.kernel import Moments
from sdesens.montecarlo.job import Job
from sdesens.montecarlo.specification import versions

_KEPT = 32


@dataclass(frozen=True)
class Packed:
    """A simulation as bytes.

    Attributes:
        key: tells it from others; a hash of the content.
        trial: what a few paths come to, see :meth:`~sdesens.montecarlo.job.Job.trial`.
        versions: of the libraries of the process that packed it.
        content: the job, pickled.
    """

    key: str
    trial: str
    versions: Mapping[str, str]
    content: bytes

    @classmethod
    def of(cls, job: Job) -> Packed:
        """Pack a job.

        Raises:
            TypeError: if it is not compiled, and holds something that cannot be pickled.
        """
        import cloudpickle  # noqa: PLC0415  (not needed by jobs that stay)

        try:
            content = cloudpickle.dumps(job)
        except Exception as error:
            raise TypeError(
                f"the simulation cannot be sent to another process: it is not compiled, and its "
                f"model or payoff cannot be pickled ({type(error).__name__}: {error}). Use "
                f"executor='threads', or hold nothing in them that belongs to a process."
            ) from error
        return cls(sha256(content).hexdigest(), job.trial(), versions(), content)

    def unpacked(self) -> Job:
        """The job in this process, made once.

        Raises:
            WorkerMismatchError: if it does not give the same bits here.
        """
        with _lock:
            if self.key not in _jobs:
                _jobs[self.key] = self._checked()
                if len(_jobs) > _KEPT:
                    _jobs.popitem(last=False)
            _jobs.move_to_end(self.key)
            return _jobs[self.key]

    def _checked(self) -> Job:
        here = versions()
        if here != dict(self.versions):
            raise WorkerMismatchError(
                f"this worker has {here}, its driver {dict(self.versions)}. Install the same "
                f"versions on both."
            )
        job = pickle.loads(self.content)
        if job.trial() != self.trial:
            raise WorkerMismatchError(
                "this worker does not give the bits of its driver on the same paths: its processor "
                "has other vector instructions, or its compiler is another. Run a job on machines "
                "of one kind, its driver too."
            )
        return job


_jobs: OrderedDict[str, Job] = OrderedDict()
_lock = Lock()

Reply = tuple[int, np.ndarray, np.ndarray]  # tensors would travel through shared memory


def run_packed(packed: Packed, index: int) -> Reply:
    """The moments of a shard, in a worker."""
    moments = packed.unpacked().run_shard(index)
    return moments.count, moments.mean.numpy(), moments.products.numpy()


def received(reply: Reply) -> Moments:
    """The moments in a reply."""
    count, mean, products = reply
    # A copy: what comes out of a message may be read only.
    return Moments(count, torch.tensor(mean), torch.tensor(products))


def begin_worker() -> None:
    """Make a process of ours a worker: Ctrl-C is the driver's, and a shard has one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def call(function: Any, *arguments: Any) -> Any:
    """``function(*arguments)``: a task of engines that name tasks by their function."""
    return function(*arguments)
