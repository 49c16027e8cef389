"""Where shards are run: here, in threads, in processes, or by the engine of a cluster."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from functools import cached_property
from importlib import import_module
from typing import Any

from sdesens._checks import did_you_mean
from sdesens.fused.kernel import Moments
from sdesens.montecarlo.job import Job
from sdesens.montecarlo.worker import Packed, begin_worker, call, received, run_packed

NAMES = ("serial", "threads", "processes", "dask", "ray")
_IDLE = 60  # seconds after which idle processes end


class Task:
    """A simulation to run shards of, packed when it first has to leave the process."""

    def __init__(self, job: Job) -> None:
        self.job = job

    @cached_property
    def packed(self) -> Packed:
        """The job as bytes."""
        return Packed.of(self.job)


class Pool(ABC):
    """What runs shards.

    Attributes:
        width: how many shards are kept in flight, so that no worker waits.
        breaks_whole: whether a crash of one worker takes all shards in flight along.
    """

    width: int = 1
    breaks_whole = True

    @abstractmethod
    def submit(self, task: Task, index: int) -> Future:
        """Start a shard."""

    def result(self, future: Future) -> Moments:
        """What came of it; raises what it raised."""
        return future.result()

    def is_crash(self, error: BaseException) -> bool:
        """Whether a worker died, as against a shard that raised."""
        return isinstance(error, BrokenExecutor)

    def restart(self) -> bool:
        """Make it work again after a crash that broke the whole; whether that can be done."""
        return False

    def close(self, *, at_once: bool) -> None:  # noqa: B027  (most have nothing to release)
        """Release what was made for this run; ``at_once``: without waiting for what runs."""


class Serial(Pool):
    """One shard after the other, here."""

    def submit(self, task: Task, index: int) -> Future:
        future: Future = Future()
        try:
            future.set_result(task.job.run_shard(index))
        except Exception as error:
            future.set_exception(error)
        return future


class Threads(Pool):
    """Threads of this process, its own or those of an executor."""

    def __init__(self, workers: int, executor: ThreadPoolExecutor | None = None) -> None:
        self._is_own = executor is None
        self._executor = executor or ThreadPoolExecutor(workers)
        self.width = 2 * (workers if self._is_own else self._executor._max_workers)

    def submit(self, task: Task, index: int) -> Future:
        return self._executor.submit(task.job.run_shard, index)

    def close(self, *, at_once: bool) -> None:
        if self._is_own:
            self._executor.shutdown(wait=not at_once, cancel_futures=True)


class Remote(Pool):
    """An executor whose workers need not share memory with this process."""

    def __init__(
        self, executor: Executor, workers: int, then: Callable[[], object] = lambda: None
    ) -> None:
        self._executor, self._then = executor, then
        self.width = 2 * workers

    def submit(self, task: Task, index: int) -> Future:
        return self._executor.submit(run_packed, task.packed, index)

    def result(self, future: Future) -> Moments:
        return received(future.result())

    def close(self, *, at_once: bool) -> None:
        self._then()


class Processes(Remote):
    """Processes by loky, which are kept a minute for the next run."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        super().__init__(self._started(), workers)

    def _started(self) -> Executor:
        from loky import get_reusable_executor  # noqa: PLC0415  (not needed by runs that stay)

        return get_reusable_executor(
            max_workers=self._workers,
            timeout=_IDLE,
            initializer=begin_worker,
            env={"OMP_NUM_THREADS": "1"},
        )

    def restart(self) -> bool:
        self._executor = self._started()  # another one: a broken one is not used again
        return True

    def close(self, *, at_once: bool) -> None:
        if at_once:
            self._executor.shutdown(wait=True, kill_workers=True)  # type: ignore[call-arg]


class Dask(Remote):
    """The workers of a Dask client. Dask restarts those that die."""

    breaks_whole = False

    def __init__(self, client: Any, then: Callable[[], object] = lambda: None) -> None:
        # A shard that is tried again is another task: never the remembered failure.
        executor = client.get_executor(pure=False)
        super().__init__(executor, max(1, sum(client.ncores().values())), then)

    def is_crash(self, error: BaseException) -> bool:
        killed = extra("distributed", "dask").KilledWorker
        return isinstance(error, killed) or super().is_crash(error)


class RayExecutor(Executor):
    """The Ray cluster of this process, as an executor.

    Ray must have been started or connected to, by ``ray.init()``: what it listens on, and who may
    reach it, is decided there and not here.

    Args:
        resources: of a task, as in ``ray.remote``: ``{"num_cpus": 1}``.

    Raises:
        ImportError: if Ray is not installed.
        RuntimeError: if it is not running.
    """

    def __init__(self, **resources: Any) -> None:
        self._ray = extra("ray", "ray")
        if not self._ray.is_initialized():
            raise RuntimeError(
                "Ray is not running in this process. Call ray.init() before, with the address of a "
                "cluster or without one."
            )
        # A task whose worker died is tried again by the run itself, which counts.
        self._call = self._ray.remote(**{"num_cpus": 1, "max_retries": 0, **resources})(call)
        self._stored: dict[int, tuple[Any, Any]] = {}  # what many tasks take is sent once

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Run ``fn(*args)`` on a worker of the cluster."""
        if kwargs:
            raise TypeError(f"keyword arguments are not passed on, got {sorted(kwargs)}.")
        reference = self._call.remote(fn, *map(self._sent, args))
        future: Future = reference.future()
        future.add_done_callback(
            lambda done: self._ray.cancel(reference) if done.cancelled() else None
        )
        return future

    def _sent(self, value: Any) -> Any:
        if not isinstance(value, Packed):
            return value
        if id(value) not in self._stored:  # the value is kept: its id cannot pass to another
            self._stored[id(value)] = value, self._ray.put(value)
        return self._stored[id(value)][1]

    @property
    def workers(self) -> int:
        """Number of processors of the cluster."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Forget what was sent. Ray itself goes on."""
        self._stored.clear()


class Ray(Remote):
    """A Ray cluster, which restarts workers that die."""

    breaks_whole = False

    def __init__(self, executor: RayExecutor, then: Callable[[], object] = lambda: None) -> None:
        super().__init__(executor, executor.workers, then)

    def is_crash(self, error: BaseException) -> bool:
        errors = extra("ray.exceptions", "ray")
        died = (errors.WorkerCrashedError, errors.NodeDiedError, errors.ObjectLostError)
        return isinstance(error, died) or super().is_crash(error)


def pool_maker(executor: Any, workers: int) -> Callable[[], Pool]:
    """What makes the pool of ``executor=`` and ``workers=``; it is checked now and starts later.

    Raises:
        ValueError, TypeError: if they name none.
        ImportError: if the package of an engine is not installed.
    """
    if executor is None:
        executor = "serial" if workers == 1 else "processes"
    if isinstance(executor, str):
        return _named(executor, workers)
    if isinstance(executor, ThreadPoolExecutor):
        return lambda: Threads(workers, executor)
    if isinstance(executor, RayExecutor):
        return lambda: Ray(executor)
    if isinstance(executor, Executor):
        known = getattr(executor, "_max_workers", None) or os.cpu_count() or 1
        return lambda: Remote(executor, workers if workers > 1 else known)
    if hasattr(executor, "get_executor") and hasattr(executor, "ncores"):
        return lambda: Dask(executor)
    raise TypeError(
        f"executor must be one of {list(NAMES)}, the address of a Dask scheduler, a "
        f"concurrent.futures.Executor, a dask.distributed.Client or a RayExecutor, got "
        f"{type(executor).__name__}."
    )


def _named(name: str, workers: int) -> Callable[[], Pool]:
    match name:
        case "serial":
            return Serial
        case "threads":
            return lambda: Threads(workers)
        case "processes":
            return lambda: Processes(workers)
        case "dask":
            distributed = extra("distributed", "dask")
            return lambda: _local_dask(distributed, workers)
        case "ray":
            executor = RayExecutor()
            return lambda: Ray(executor, executor.shutdown)
    if "://" in name:
        distributed = extra("distributed", "dask")
        return lambda: _connected(distributed.Client(name, set_as_default=False))
    raise ValueError(
        f"executor must be one of {list(NAMES)} or the address of a Dask scheduler "
        f"('tcp://host:8786'), got {name!r}.{did_you_mean(name, NAMES)}"
    )


def _connected(client: Any) -> Dask:
    return Dask(client, client.close)


def _local_dask(distributed: Any, workers: int) -> Dask:
    """A Dask cluster for this run, which only this machine can reach."""
    cluster = distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=None,  # no dashboard; the scheduler still serves HTTP, by default at 8787
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
    )
    client = distributed.Client(cluster, set_as_default=False)

    def close() -> None:
        client.close()
        cluster.close()

    return Dask(client, close)


def extra(module: str, name: str) -> Any:
    """A module that comes with an extra.

    Raises:
        ImportError: if it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"this executor needs {module.partition('.')[0]}, which is not installed: "
            f"pip install 'sdesens[{name}]'."
        ) from error
