"""What executors cost, and what two workers bring: the same job, interleaved, minima.

    python scripts/bench_executors.py --rounds 3

Shards of about a second. One worker is held against a plain loop over the shards in this process,
two against one of the same kind.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from loky import ProcessPoolExecutor

from sdesens.models import Heston
from sdesens.montecarlo.execution import Terms
from sdesens.montecarlo.moments import merge_all
from sdesens.montecarlo.specification import Specification
from sdesens.pricing import Call
from sdesens.pricing.scenario import Scenario
from sdesens.pricing.valuation import Valuation

SHARDS, STEPS = 8, 100
Runs = dict[tuple[str, int], Callable[[], object]]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shard-size", type=int, default=2**17)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    job = job_of(arguments.shard_size)
    print(
        f"Heston, price and 8 derivatives, {SHARDS} shards of {arguments.shard_size:,} paths, "
        f"{STEPS} steps; minima of {arguments.rounds} interleaved rounds\n"
        f"{'':24}{'workers':>8}{'seconds':>9}{'to the loop':>13}{'1 to 2':>8}"
    )
    for group in (this_machine, dask, ray):  # an engine that waits takes time of the others
        with ExitStack() as stack:
            runs: Runs = {("loop over the shards", 1): lambda: loop(job), **group(job, stack)}
            show(timed(runs, arguments.rounds))


def job_of(shard_size: int) -> Specification:
    """The job, recorded and compiled."""
    model, payoff = Heston(0.03, 1.5, 0.04, 0.3, -0.7), Call(100.0, 1.0)
    kind: dict[str, Any] = {"steps": STEPS, "scheme": "auto", "dtype": torch.float64}
    scenario = Scenario.of(model, payoff, [100.0, 0.04], **kind)
    valuation = Valuation.of(scenario, "all", 1, "auto", (), antithetic=False, seed=0)
    return valuation.job(SHARDS * shard_size, shard_size)


def loop(job: Specification) -> object:
    """All shards, one after the other, and nothing else."""
    return merge_all(job.run_shard(0, index) for index in range(job.shards))


def carry_out(job: Specification, executor: Any, workers: int = 1, checkpoint: Any = None) -> None:
    """The job as ``greeks`` runs it."""
    Terms.of(executor, workers, checkpoint, 2).carry_out(job, None, lambda paths: None)


def this_machine(job: Specification, stack: ExitStack) -> Runs:
    """Serial, with and without a checkpoint, threads and processes."""

    def on_disk() -> None:
        with tempfile.TemporaryDirectory() as folder:
            carry_out(job, "serial", checkpoint=folder)

    runs: Runs = {
        ("serial", 1): lambda: carry_out(job, "serial"),
        ("serial, checkpoint", 1): on_disk,
    }
    for n in (1, 2):
        runs["threads", n] = lambda n=n: carry_out(job, "threads", n)
        # A pool for each number: the one that is kept between runs would be resized every time.
        pool = stack.enter_context(ProcessPoolExecutor(n))
        runs["processes", n] = lambda pool=pool: carry_out(job, pool)
    return runs


def dask(job: Specification, stack: ExitStack) -> Runs:
    """Dask clusters on this machine."""
    import distributed  # noqa: PLC0415

    runs: Runs = {}
    for n in (1, 2):
        cluster = distributed.LocalCluster(
            n_workers=n,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )
        stack.enter_context(cluster)
        client = stack.enter_context(distributed.Client(cluster, set_as_default=False))
        runs["dask", n] = lambda client=client: carry_out(job, client)
    return runs


def ray(job: Specification, stack: ExitStack) -> Runs:
    """A Ray cluster on this machine; there is one a process."""
    import ray  # noqa: PLC0415

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    stack.callback(ray.shutdown)
    return {("ray", 2): lambda: carry_out(job, "ray")}


def timed(runs: Runs, rounds: int) -> dict[tuple[str, int], float]:
    """The shortest time of each."""
    best = dict.fromkeys(runs, float("inf"))
    for turn in range(rounds + 1):
        for key, run in runs.items():
            begin = time.perf_counter()
            run()
            if turn:  # the first starts workers and compiles
                best[key] = min(best[key], time.perf_counter() - begin)
    return best


def show(best: dict[tuple[str, int], float]) -> None:
    """Print rows of the table."""
    plain = next(iter(best.values()))
    for (name, workers), seconds in best.items():
        gain = f"{best[name, 1] / seconds:8.2f}" if workers == 2 and (name, 1) in best else ""
        print(f"{name:24}{workers:8}{seconds:9.2f}{seconds / plain:13.3f}{gain}", flush=True)


if __name__ == "__main__":
    main()
