"""Time the fused engine beside its peers: JAX, diffrax, QuantLib, torchsde.

Every program runs by itself, pinned to one core, several times in turn; a row is the best of its
runs. JAX, diffrax and QuantLib come from an environment of their own, made on first use. Prices and
derivatives must agree before a time is shown.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENT = HERE.parent / ".venv-peers"
PINNED = ("diffrax==0.7.2", "jax[cpu]==0.10.2", "QuantLib==1.44")
PROGRAMS = ("jax_scan", "diffrax_jit", "quantlib_mc")  # run in the environment of the peers
OURS = ("ours", "torchsde_autograd")

# Title, unit, our row, and the rows of the others: program and name.
TABLES = (
    (
        "GBM, price and delta, float32, ns a path-step",
        ("ours", "gbm"),
        (
            ("jax_scan", "gbm jvp"),
            ("jax_scan", "gbm reverse"),
            ("diffrax_jit", "gbm jvp"),
            ("torchsde_autograd", "gbm reverse"),
        ),
    ),
    (
        "Heston, price and seven derivatives, float32, ns a path-step",
        ("ours", "heston"),
        (
            ("jax_scan", "heston jvp"),
            ("jax_scan", "heston reverse"),
            ("diffrax_jit", "heston jvp"),
            ("torchsde_autograd", "heston reverse"),
            ("ours", "heston price"),
            ("jax_scan", "heston price"),
            ("quantlib_mc", "heston price"),
        ),
    ),
    (
        "OU, 100 times, one path, every dX_t/dx0, float64, microseconds a call",
        ("ours", "ou"),
        (
            ("ours", "ou, all checks"),
            ("jax_scan", "ou jvp"),
            ("diffrax_jit", "ou jvp, unsafe path"),
            ("diffrax_jit", "ou jvp, virtual tree"),
        ),
    ),
)


def python_of_peers() -> Path:
    """The interpreter of the peers' environment, made if it is not there."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        print(f"making {ENVIRONMENT.name} ...", flush=True)
        venv.create(ENVIRONMENT, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PINNED], check=True)
    return python


def run(program: str, python: Path | str, core: int, rounds: int) -> Iterable[dict]:
    """The lines a program prints, run on one core."""
    out = subprocess.run(
        [python, HERE / "peers" / f"{program}.py", str(rounds)],
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    return [json.loads(line) for line in out.stdout.splitlines()]


def check(rows: dict, ours: tuple[str, str], others: Iterable[tuple[str, str]]) -> None:
    """Refuse to compare programs that compute different things.

    The tolerance is that of the Monte Carlo error, which is large for derivatives through the
    variance: Euler's tangent has heavy tails near a variance of zero.
    """
    mine = rows[ours]
    for other in others:
        theirs = rows[other]
        pairs = [(mine["value"], theirs["value"])]
        pairs += list(zip(mine["derivatives"], theirs["derivatives"], strict=False))
        for a, b in pairs:
            if abs(a - b) > 0.06 * max(abs(a), abs(b)) + 1.0:
                raise SystemExit(f"{ours} and {other} disagree: {mine} {theirs}")


def main() -> None:
    """Run all programs in turn and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, help="interpreter with the peers installed")
    parser.add_argument("--turns", type=int, default=3, help="turns of every program (default 3)")
    parser.add_argument("--rounds", type=int, default=5, help="timings a turn (default 5)")
    arguments = parser.parse_args()
    peers = arguments.python or python_of_peers()
    core = min(os.sched_getaffinity(0))
    rows: dict[tuple[str, str], dict] = {}
    for _ in range(arguments.turns):
        for program in (*OURS, *PROGRAMS):
            python = sys.executable if program in OURS else peers
            for row in run(program, python, core, arguments.rounds):
                key = program, row["name"]
                if key not in rows or row["best"] < rows[key]["best"]:
                    rows[key] = row
    print(f"one core, one thread, {arguments.turns} turns of {arguments.rounds} timings; {PINNED}")
    for title, ours, others in TABLES:
        check(rows, ours, others)
        print(f"\n{title}\n{'':40}{'time':>10}{'to ours':>10}")
        for key in (ours, *others):
            best = rows[key]["best"]
            name = f"{key[0]}: {key[1]}"
            print(f"{name:40}{best:10.2f}{best / rows[ours]['best']:10.1f}")


if __name__ == "__main__":
    main()
