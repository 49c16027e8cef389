"""Time prices and their derivatives against JAX, diffrax, QuantLib and torchsde on one core.

Each peer is a program in ``scripts/peers``, whose docstring says what was fastest there. All run on
the same core with one thread, taking turns, and the fastest run of each counts, compilation apart.
Every price and derivative is held against a reference and against everyone else's: programs that
compute different things are not compared.

    python scripts/bench_peers.py [--rounds 5] [--runs 5] [--jobs gbm heston ou] [--python PATH]

The peers live in ``.venv-peers``, made on first use, unless ``--python`` names an interpreter that
has them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from peers.jobs import (
    DELTA,
    GBM,
    GBM_MU,
    GBM_SIGMA,
    HESTON,
    OU_X0,
    PATH,
    PRICE,
    SEVEN,
    STRIKE,
    Row,
    Size,
    measure,
)

from sdesens import SDE, Sensitivities, fuse, sensitivities
from sdesens.models import GeometricBrownianMotion, Heston, OrnsteinUhlenbeck
from sdesens.montecarlo.front import simulation_of
from sdesens.montecarlo.job import Job
from sdesens.montecarlo.simulation import Payoff

ROOT = Path(__file__).resolve().parent.parent
PINNED = ("diffrax==0.7.2", "jax[cpu]==0.10.2", "QuantLib==1.44")
PROGRAMS = {
    "gbm": ("jax_scan", "diffrax_jit", "torchsde_autograd"),
    "heston": ("jax_scan", "diffrax_jit", "torchsde_autograd", "quantlib_mc"),
    "ou": ("jax_scan", "diffrax_jit"),
}
PARAMETERS = {"gbm": GBM, "heston": HESTON}  # what the price is differentiated in
OURS = "sdesens"  # how the rows that the others are compared with begin
ONE_THREAD = {
    "JAX_PLATFORMS": "cpu",
    "MKL_NUM_THREADS": "1",
    "NPROC": "1",
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}
STANDARD_ERRORS = 5.0  # that two estimates of one number may be apart
# Euler is of weak order one: its bias in the elasticity (p / V) dV/dp may be this, over the number
# of steps. A tenth was measured, for theta.
BIAS = 0.25


def simulated(
    size: Size, what: str, model: SDE, x0: list[float], payoff: Payoff, wrt: Sequence[str]
) -> Row:
    """Our row of a simulation, made ready before the clock starts, as a jitted function is."""
    simulation = simulation_of(
        model, x0, payoff, maturity=1.0, steps=size.steps, wrt=wrt, scheme="euler",
        functionals=None, dtype=torch.float32, options=None, names=None,
    )  # fmt: skip
    job = Job.of(simulation, seed=0, paths=size.paths, shard_size=size.paths)

    def run(seed: int) -> list[torch.Tensor]:
        again = replace(job, numbers=replace(job.numbers, seed=seed))
        return [again.run_shard(0).mean]

    return measure(f"{OURS}, fused", what, run, size)


def ours_gbm(size: Size) -> list[Row]:
    """Our rows of ``gbm``: ``price`` and ``price, delta``."""
    gbm = GeometricBrownianMotion(mu=GBM_MU, sigma=GBM_SIGMA)

    def call(end: Any) -> torch.Tensor:
        return torch.exp(-gbm.mu * end.time) * torch.relu(end.x - STRIKE)

    x0 = list(GBM.values())
    return [
        simulated(size, what, gbm, x0, call, wrt) for what, wrt in ((PRICE, ()), (DELTA, ("x",)))
    ]


def ours_heston(size: Size) -> list[Row]:
    """Our rows of ``heston``: ``price`` and ``price, 7 derivatives``."""
    s0, v0, rate, kappa, theta, xi, rho = HESTON.values()
    heston = Heston(rate, kappa, theta, xi, rho)

    def call(end: Any) -> torch.Tensor:
        return torch.exp(-heston.rate * end.time) * torch.relu(end.spot - STRIKE)

    seven = ("spot", "variance", "rate", "kappa", "theta", "xi", "rho")
    return [
        simulated(size, what, heston, [s0, v0], call, wrt)
        for what, wrt in ((PRICE, ()), (SEVEN, seven))
    ]


def ours_ou(size: Size) -> list[Row]:
    """Our rows of ``ou``: prepared by ``fuse``, and with all checks at every call."""
    ou = OrnsteinUhlenbeck(kappa=1.0, mean=0.0, sigma=1.0)
    x0 = torch.full((1, 1), OU_X0, dtype=torch.float64)
    ts = torch.linspace(0, 1, size.steps + 1, dtype=torch.float64)
    arguments: dict[str, Any] = {"method": "euler", "dt": 1.0 / size.steps}
    prepared = fuse(ou, x0, ts, **arguments)

    def whole(seed: int) -> Sensitivities:
        return sensitivities(ou, x0, ts, seed=seed, engine="fused", **arguments)

    def arrays(call: Callable[..., Sensitivities]) -> Callable[[int], list[torch.Tensor]]:
        def run(seed: int) -> list[torch.Tensor]:
            sens = call(seed)
            return [sens.x, sens.dx0]

        return run

    return [
        measure(
            f"{OURS}, fuse", PATH, arrays(lambda seed: prepared(x0, seed=seed)), size, "float64"
        ),
        measure(f"{OURS}, all checks", PATH, arrays(whole), size, "float64"),
    ]


@dataclass
class Results:
    """What all programs measured, the rounds together."""

    rows: dict[tuple[str, str, str], Row] = field(default_factory=dict)
    references: dict[str, list[float]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        """Keep the faster of two rounds and the values of both."""
        known = self.rows.setdefault((row.job, row.what, row.who), row)
        if known is not row:
            known.seconds = min(known.seconds, row.seconds)
            known.compile = min(known.compile, row.compile)
            known.values += row.values

    def of(self, job: str) -> list[Row]:
        """The rows of a job; each group that does the same together, ours first."""
        rows = [row for row in self.rows.values() if row.job == job]
        groups = list(dict.fromkeys(row.what for row in rows))
        return sorted(rows, key=lambda r: (groups.index(r.what), not r.who.startswith(OURS)))


def peers_python(given: str | None) -> str:
    """The interpreter that has the peers, in an environment made here if there is none yet."""
    if given is not None:
        return given
    home = ROOT / ".venv-peers"
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = home / "installed.txt"
    if not done.exists() or done.read_text() != " ".join(PINNED):
        venv.create(home, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PINNED], check=True)
        done.write_text(" ".join(PINNED))
    return str(python)


def pin(core: int | None) -> str:
    """Bind this process and all that it starts to one core, the last by default; say which."""
    if not hasattr(os, "sched_setaffinity"):
        return "not pinned to a core"
    core = max(os.sched_getaffinity(0)) if core is None else core
    os.sched_setaffinity(0, {core})
    return f"pinned to core {core}"


def run_program(name: str, python: str, size: Size, results: Results) -> None:
    """Run one peer's program and add what it prints on its last line."""
    command = [python, ROOT / "scripts" / "peers" / f"{name}.py", json.dumps(asdict(size))]
    environment = os.environ | ONE_THREAD
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    printed = json.loads(done.stdout.splitlines()[-1])
    for row in printed["rows"]:
        results.add(Row(**row))
    results.versions |= printed["versions"]
    if printed["reference"]:
        results.references[size.job] = printed["reference"]


def run_ours(ours: Callable[[Size], list[Row]], size: Size, results: Results) -> None:
    """Add our rows of a job, if it has any."""
    try:
        rows = ours(size)
    except NotImplementedError:
        return
    for row in rows:
        results.add(row)


def size_of(job: str, arguments: argparse.Namespace, turn: int) -> Size:
    """The size of a job; the blocks are those that suit JAX best."""
    if job == "ou":
        return Size(job, 1, 99, 1, 40 * arguments.runs, turn)
    block = math.gcd({"gbm": 16384, "heston": 8192}[job], arguments.paths)
    return Size(job, arguments.paths, 100, block, arguments.runs, turn)


def black_scholes() -> list[float]:
    """Price and delta of the call of ``gbm``, without Euler's error."""
    x0, normal = GBM["X0"], statistics.NormalDist()
    d1 = (math.log(x0 / STRIKE) + GBM_MU + GBM_SIGMA**2 / 2) / GBM_SIGMA
    delta = normal.cdf(d1)
    return [x0 * delta - STRIKE * math.exp(-GBM_MU) * normal.cdf(d1 - GBM_SIGMA), delta]


@dataclass
class Estimate:
    """A price or derivative by one row, with its standard error."""

    row: Row
    mean: float
    error: float


def estimates(rows: list[Row], k: int) -> list[Estimate]:
    """Component ``k`` of every row that has it.

    All estimate by the same variable, so that one variance of a path serves all: the mean of what
    their runs show.
    """
    rows = [row for row in rows if len(row.values[0]) > k]
    columns = [[values[k] for values in row.values] for row in rows]
    variance = statistics.fmean(
        row.paths * statistics.variance(column) for row, column in zip(rows, columns, strict=True)
    )
    return [
        Estimate(row, statistics.fmean(column), math.sqrt(variance / (row.paths * len(column))))
        for row, column in zip(rows, columns, strict=True)
    ]


def distances(
    rows: list[Row], reference: list[float], parameters: dict[str, float]
) -> Iterator[tuple[str, float]]:
    """How far estimates are apart, in standard errors, with words for the message.

    Two rows of one scheme on one grid estimate the same number; the reference has no grid, and a
    bias is allowed for.
    """
    points = {"price": 1.0} | parameters
    for k, (name, point) in enumerate(points.items()):
        found = estimates(rows, k)
        for e in found:
            bias = BIAS / e.row.steps * abs(reference[0] / point)
            apart = max(abs(e.mean - reference[k]) - bias, 0.0) / e.error
            yield f"{name} by {e.row.who}: {e.mean:.6g}, reference {reference[k]:.6g}", apart
        for a, b in combinations(found, 2):
            if (a.row.scheme, a.row.steps) == (b.row.scheme, b.row.steps):
                apart = abs(a.mean - b.mean) / math.hypot(a.error, b.error)
                yield f"{name}: {a.mean:.6g} by {a.row.who}, {b.mean:.6g} by {b.row.who}", apart


def check_prices(job: str, rows: list[Row], reference: list[float]) -> str:
    """Raise unless all prices and derivatives agree; say how well they do."""
    worst, count = 0.0, 0
    for words, apart in distances(rows, reference, PARAMETERS[job]):
        if apart > STANDARD_ERRORS:
            raise ValueError(f"{job}, {words}: {apart:.1f} standard errors apart.")
        worst, count = max(worst, apart), count + 1
    return f"{count} comparisons, the largest difference {worst:.1f} standard errors"


def check_ou(rows: list[Row]) -> str:
    """Raise unless the derivative is ``(1 - dt)^k`` and the end of the path has its law."""
    worst = 0.0
    for row in rows:
        a, n = 1 - 1 / row.steps, len(row.values)
        ends = [values[row.steps] for values in row.values]
        slopes = [values[row.steps + 1 :] for values in row.values]
        exact = [a**k for k in range(row.steps + 1)]
        off = max(abs(x - y) for one in slopes for x, y in zip(one, exact, strict=True))
        variance = sum(a ** (2 * k) for k in range(row.steps)) / row.steps
        mean_off = (statistics.fmean(ends) - OU_X0 * a**row.steps) / math.sqrt(variance / n)
        variance_off = (statistics.variance(ends) / variance - 1) / math.sqrt(2 / (n - 1))
        law_off = max(abs(mean_off), abs(variance_off))
        if off > 1e-12 or law_off > STANDARD_ERRORS:
            raise ValueError(f"ou by {row.who}: derivative off by {off:.1e}, law by {law_off:.1f}.")
        worst = max(worst, off)
    return f"the derivatives are (1 - dt)^k within {worst:.0e}"


def processor() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def header(results: Results, pinned: str) -> str:
    """What was measured, on what, with what."""
    ours = {"python": platform.python_version(), "sdesens": version("sdesens")}
    versions = ", ".join(f"{k} {v}" for k, v in (ours | results.versions).items())
    return (
        f"{processor()}, one thread, {pinned}\n{versions}\n"
        "fastest of interleaved runs; ns a path-step, for ou µs a call"
    )


def table(results: Results, jobs: list[str]) -> str:
    """The rows, each with its ratio to the first of ours that does the same."""
    heads = f"{'dtype':>9}{'paths x steps':>16}{'time':>12}{'ratio':>8}{'compile':>10}"
    lines = [f"{'':50}{heads}"]
    for job in jobs:
        rows = results.of(job)
        ours = {r.what: unit_time(r) for r in reversed(rows) if r.who.startswith(OURS)}
        lines += [line(row, ours.get(row.what)) for row in rows]
    return "\n".join(lines)


def line(row: Row, ours: float | None) -> str:
    """One line of the table, given our time."""
    time = unit_time(row)
    unit = "µs" if row.job == "ou" else "ns"
    ratio = "-" if ours is None else f"{time / ours:.2f}"
    shape = f"{row.paths} x {row.steps}"
    return (
        f"{row.job:8}{row.what:22}{row.who:20}{row.dtype:>9}{shape:>16}"
        f"{time:>9.2f} {unit}{ratio:>8}{row.compile:>8.2f} s"
    )


def unit_time(row: Row) -> float:
    """Nanoseconds a path-step; microseconds a call for ``ou``."""
    return row.seconds * 1e6 if row.job == "ou" else row.seconds / (row.paths * row.steps) * 1e9


def check(job: str, results: Results) -> str:
    """A line that says how well the programs of a job agree; raises if they do not."""
    rows = results.of(job)
    for row in rows:
        if not all(math.isfinite(x) for values in row.values for x in values):
            raise ValueError(f"{job} by {row.who}: not a finite number.")
    if job == "ou":
        return f"ou: {check_ou(rows)}"
    reference = black_scholes() if job == "gbm" else results.references[job]
    return f"{job}: {check_prices(job, rows, reference)}"


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="turns of every program (5)")
    parser.add_argument("--runs", type=int, default=5, help="timed runs a turn, at least 2 (5)")
    parser.add_argument("--paths", type=int, default=65536, help="paths a run (65536)")
    parser.add_argument("--jobs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--python", help="an interpreter that has the peers")
    parser.add_argument("--core", type=int, help="the core that all run on (the last)")
    return parser.parse_args()


def main() -> None:
    """Run all programs in turns, check what they computed and print the table."""
    arguments = parse()
    python = peers_python(arguments.python)
    pinned = pin(arguments.core)
    torch.set_num_threads(1)
    ours = {"gbm": ours_gbm, "heston": ours_heston, "ou": ours_ou}
    results = Results()
    for turn in range(arguments.rounds):
        for job in arguments.jobs:
            size = size_of(job, arguments, turn)
            run_ours(ours[job], size, results)
            for program in PROGRAMS[job]:
                # torchsde is a dependency of ours
                interpreter = sys.executable if program == "torchsde_autograd" else python
                run_program(program, interpreter, size, results)
    print(header(results, pinned))
    print(table(results, arguments.jobs))
    for job in arguments.jobs:
        print(check(job, results))


if __name__ == "__main__":
    main()
