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
from typing import Any

import torch

import sdesens
from sdesens.models import Heston
from sdesens.montecarlo.moments import merge_all
from sdesens.pricing import Call
from sdesens.pricing.scenario import Scenario
from sdesens.pricing.valuation import Valuation

SHARDS, STEPS = 8, 100
MODEL, PAYOFF, X0 = Heston(0.03, 1.5, 0.04, 0.3, -0.7), Call(100.0, 1.0), [100.0, 0.04]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shard-size", type=int, default=2**17)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    size = arguments.shard_size

    def greeks(**terms: Any) -> Callable[[], object]:
        return lambda: sdesens.greeks(
            MODEL, PAYOFF, X0, paths=SHARDS * size, steps=STEPS, shard_size=size, **terms
        )

    scenario = Scenario.of(MODEL, PAYOFF, X0, steps=STEPS, scheme="auto", dtype=torch.float64)

    def loop() -> None:
        valuation = Valuation.of(scenario, "all", 1, "auto", (), antithetic=False, seed=0)
        job = valuation.job(SHARDS * size, size)
        merge_all(job.run_shard(0, index) for index in range(SHARDS))

    def on_disk() -> None:
        with tempfile.TemporaryDirectory() as folder:
            greeks(checkpoint=folder)()

    runs: dict[tuple[str, int], Callable[[], object]] = {
        ("loop over the shards", 1): loop,
        ("serial", 1): greeks(),
        ("serial, checkpoint", 1): on_disk,
    }
    for workers in (1, 2):
        for name in ("threads", "processes"):
            runs[name, workers] = greeks(executor=name, workers=workers)
    with _Clusters() as clusters:
        for workers in (1, 2):
            runs["dask", workers] = greeks(executor=clusters.dask(workers))
        runs["ray", 2] = greeks(executor=clusters.ray(2))
        best = dict.fromkeys(runs, float("inf"))
        for turn in range(arguments.rounds + 1):
            for key, run in runs.items():
                begin = time.perf_counter()
                run()
                if turn:  # the first starts workers and compiles
                    best[key] = min(best[key], time.perf_counter() - begin)
    plain = best["loop over the shards", 1]
    print(f"Heston, price and 8 derivatives, {SHARDS} shards of {size:,} paths, {STEPS} steps")
    print(f"{plain / SHARDS:.2f} s a shard, minima of {arguments.rounds} interleaved rounds")
    print(f"{'':24}{'workers':>8}{'seconds':>9}{'to the loop':>13}{'1 to 2':>8}")
    for (name, workers), seconds in best.items():
        gain = f"{best[name, 1] / seconds:8.2f}" if workers == 2 and (name, 1) in best else ""
        print(f"{name:24}{workers:8}{seconds:9.2f}{seconds / plain:13.3f}{gain}")


class _Clusters:
    """Clusters on this machine."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def __enter__(self) -> _Clusters:
        return self

    def dask(self, workers: int) -> Any:
        import distributed  # noqa: PLC0415

        cluster = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,  # type: ignore[arg-type]
        )
        client = distributed.Client(cluster, set_as_default=False)
        self._open += [client, cluster]
        return client

    def ray(self, workers: int) -> str:
        import ray  # noqa: PLC0415

        ray.init(
            num_cpus=workers, include_dashboard=False, log_to_driver=False,
            logging_level=logging.ERROR,
        )  # fmt: skip
        return "ray"

    def __exit__(self, *error: object) -> None:
        import ray  # noqa: PLC0415

        for each in self._open:
            each.close()
        ray.shutdown()


if __name__ == "__main__":
    main()
