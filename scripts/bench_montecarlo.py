"""Time the fused Monte Carlo engine: nanoseconds a path-step, compile time, threads, memory.

One thread unless a row says otherwise, minima of interleaved rounds, ratios within this run. The
floor is the kernel that only draws its normal numbers and adds them up.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from sdesens.models import GeometricBrownianMotion, Heston
from sdesens.montecarlo.front import simulation_of
from sdesens.montecarlo.job import Job
from sdesens.sde import SDE

STEPS, SHARD = 100, 2**16
SEVEN = ("spot", "variance", "rate", "kappa", "theta", "xi", "rho")


class Noise(SDE):
    """``X`` adds up standard normal numbers: the least that a simulation can do."""

    sde_type, noise_type = "ito", "additive"
    schemes = ("sum",)

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.state = {"x": channels}

    def drift(self, t, x):
        """None."""
        return 0.0 * x

    def diffusion(self, t, x):
        """One channel a component."""
        return torch.eye(self.dim, dtype=x.dtype).unsqueeze(-1)

    def step_sum(self, t, dt, normals, x):
        """``X + Z``."""
        return x + normals


@dataclass(frozen=True)
class Row:
    """A simulation to time: its name, and its job in a dtype."""

    name: str
    job: Callable[[torch.dtype], Job]


def job(
    sde: SDE, x0: list[float], payoff, wrt=(), scheme: str = "euler", dtype=torch.float32
) -> Job:
    """A job of ``STEPS`` steps up to time 1, of one shard."""
    simulation = simulation_of(
        sde, x0, payoff, maturity=1.0, steps=STEPS, wrt=wrt, scheme=scheme, functionals=None,
        dtype=dtype, options=None, names=None,
    )  # fmt: skip
    return Job.of(simulation, seed=1, paths=SHARD, shard_size=SHARD)


def noise_job(channels: int, dtype: torch.dtype) -> Job:
    return job(
        Noise(channels), [0.0] * channels, lambda end: end.y.sum(1), scheme="sum", dtype=dtype
    )


def gbm_job(wrt: tuple[str, ...], dtype: torch.dtype) -> Job:
    gbm = GeometricBrownianMotion(mu=0.05, sigma=0.2)
    return job(gbm, [100.0], lambda end: torch.relu(end.x - 100.0), wrt, dtype=dtype)


def heston_job(wrt: tuple[str, ...], dtype: torch.dtype) -> Job:
    heston = Heston(rate=0.03, kappa=1.5, theta=0.04, xi=0.3, rho=-0.7)

    def call(end):
        return torch.exp(-heston.rate * end.time) * torch.relu(end.spot - 100.0)

    return job(heston, [100.0, 0.04], call, wrt, dtype=dtype)


ROWS = (
    Row("noise only, 1 channel", lambda dtype: noise_job(1, dtype)),
    Row("GBM, price", lambda dtype: gbm_job((), dtype)),
    Row("GBM, price and delta", lambda dtype: gbm_job(("x",), dtype)),
    Row("noise only, 2 channels", lambda dtype: noise_job(2, dtype)),
    Row("Heston, price", lambda dtype: heston_job((), dtype)),
    Row("Heston, price and 7 derivatives", lambda dtype: heston_job(SEVEN, dtype)),
)


def nanoseconds(jobs: list[Job], rounds: int) -> list[float]:
    """The best time a path-step of each job, over interleaved rounds."""
    best = [float("inf")] * len(jobs)
    for _ in range(rounds):
        for k, one in enumerate(jobs):
            begin = time.perf_counter()
            one.run_shard(0)
            best[k] = min(best[k], time.perf_counter() - begin)
    return [1e9 * seconds / (SHARD * STEPS) for seconds in best]


def threads_ratio(one: Job, rounds: int) -> float:
    """How many times faster two threads finish four shards."""

    def run(workers: int) -> float:
        begin = time.perf_counter()
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(lambda _: one.run_shard(0), range(4 * workers)))
        return (time.perf_counter() - begin) / workers

    best = {1: float("inf"), 2: float("inf")}
    for _ in range(rounds):
        best = {workers: min(seconds, run(workers)) for workers, seconds in best.items()}
    return best[1] / best[2]


def uncompiled(rounds: int) -> float:
    """Nanoseconds a path-step of Heston with seven derivatives, operation by operation in torch."""
    one = heston_job(SEVEN, torch.float32)
    one.kernel.is_compiled = False  # as where there is no compiler
    return nanoseconds([one], rounds)[0]


PROBE = """
import resource, sys, time
begin = time.perf_counter()
import torch
from sdesens import montecarlo
from sdesens.models import Heston
imported = time.perf_counter()
heston = Heston(0.03, 1.5, 0.04, 0.3, -0.7)
payoff = lambda end: torch.exp(-heston.rate * end.time) * torch.relu(end.spot - 100.0)
torch.set_num_threads(1)
montecarlo.run(heston, [100.0, 0.04], payoff, maturity=1.0, steps=int(sys.argv[2]),
               paths=int(float(sys.argv[1])), wrt=("x0", "rate", "kappa", "theta", "xi", "rho"))
print(time.perf_counter() - imported, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def probe(paths: float, cache: str, steps: int = 10) -> tuple[float, float]:
    """Seconds of a first call in a fresh process, and its peak memory in MiB."""
    out = subprocess.run(
        [sys.executable, "-c", PROBE, str(paths), str(steps)],
        env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache},
        check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    return float(out[0]), float(out[1])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds (default 15)")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(
        f"torch {torch.__version__}, {platform.processor() or platform.machine()}, one thread, "
        f"{SHARD} paths, {STEPS} steps, ns a path-step, minima of {rounds} rounds\n"
    )
    single = [row.job(torch.float32) for row in ROWS]
    double = [row.job(torch.float64) for row in ROWS]
    times = nanoseconds([*single, *double], rounds)
    print(f"{'':34}{'float32':>9}{'float64':>9}{'ratio':>7}{'to noise':>10}{'to price':>10}")
    for k, row in enumerate(ROWS):
        a, b = times[k], times[k + len(ROWS)]
        noise, price = (times[0], times[1]) if k < 3 else (times[3], times[4])
        print(f"{row.name:34}{a:9.2f}{b:9.2f}{b / a:7.2f}{a / noise:10.2f}{a / price:10.2f}")
    slow = uncompiled(max(1, rounds // 5))
    times_slower = f"{slow:.0f} ns, {slow / times[5]:.0f} times slower"
    print(f"\nuncompiled, Heston with 7 derivatives: {times_slower}")
    print(f"two threads, the same: {threads_ratio(single[5], rounds):.2f} times one")
    with tempfile.TemporaryDirectory() as cache:
        cold, _ = probe(1e5, cache)
        warm, _ = probe(1e5, cache)
        _, million = probe(1e6, cache)
        _, ten = probe(1e7, cache)
    print(f"first call, Heston with 7 derivatives: {cold:.1f} s; later process: {warm:.1f} s")
    print(f"peak memory: {million:.0f} MiB at 1e6 paths, {ten:.0f} MiB at 1e7")


if __name__ == "__main__":
    main()
