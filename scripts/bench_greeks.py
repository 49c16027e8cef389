"""Heston's price and all eight first derivatives, against the price alone by Euler steps.

Both run in the fused engine on one thread, interleaved; minima are printed, in nanoseconds for a
step of a path. The paths are fewer than a million by default: the time is linear in them.

    python scripts/bench_greeks.py
    python scripts/bench_greeks.py --paths 1000000 --rounds 3
"""

from __future__ import annotations

import argparse
import time

import torch

from sdesens.models import Heston
from sdesens.montecarlo.job import Job
from sdesens.pricing import Call
from sdesens.pricing.estimators import plan
from sdesens.pricing.scenario import Scenario

STEPS = 50
INPUTS = ("x0", "rate", "kappa", "theta", "xi", "rho", "dividend")


def job(estimator: str, scheme: str, wrt: tuple[str, ...], dtype: torch.dtype, paths: int) -> Job:
    """What ``greeks`` runs, compiled."""
    model = Heston(0.025, kappa=1.5768, theta=0.0398, xi=0.5751, rho=-0.5711, dividend=0.01)
    scenario = Scenario.of(
        model, Call(100.0, 1.0), [100.0, 0.0175], steps=STEPS, scheme=scheme, dtype=dtype
    )
    (piece,) = plan(scenario, estimator, 1, scenario.directions(wrt))
    x0 = scenario.problem.x0
    return Job.moving(piece.motion, piece.clock, x0, piece.directions, 1, paths, 2**16)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--paths", type=int, default=2**17)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    jobs = {}
    for dtype in (torch.float64, torch.float32):
        jobs[dtype, "price, Euler"] = job("pathwise", "euler", (), dtype, arguments.paths)
        jobs[dtype, "price and 8 derivatives, qe"] = job(
            "conditional", "qe", INPUTS, dtype, arguments.paths
        )
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(arguments.rounds):
        for key, each in jobs.items():
            begin = time.perf_counter()
            for index in range(each.shards):
                each.run_shard(index)
            best[key] = min(best[key], time.perf_counter() - begin)
    print(f"Heston, {arguments.paths:,} paths, {STEPS} steps, one thread, ns a path-step")
    for (dtype, name), seconds in best.items():
        ratio = seconds / best[dtype, "price, Euler"]
        cost = seconds / arguments.paths / STEPS * 1e9
        print(f"{dtype!s:15}{name:30}{cost:8.2f}{ratio:8.2f}")


if __name__ == "__main__":
    main()
