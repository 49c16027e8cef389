"""The jobs that every program of ``bench_peers`` does, and how it times and reports itself.

All share their constants, so that all compute the same numbers; the horizon is one year.

- ``gbm``: ``dX = mu X dt + sigma X dW`` by Euler, discounted call price and delta.
- ``heston``: Euler with ``sqrt(max(v, 0))``, discounted call price and its seven derivatives.
- ``ou``: one path of ``dX = -X dt + dW`` by Euler and ``dX_t/dx0`` at every time.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

STRIKE = 100.0
GBM = {"X0": 100.0}  # what is differentiated
GBM_MU, GBM_SIGMA = 0.05, 0.2  # mu discounts, too
# 2 kappa theta is well above xi², so that v stays off 0 and every derivative has a variance.
HESTON = {"S0": 100.0, "v0": 0.05, "r": 0.03, "kappa": 2.0, "theta": 0.04, "xi": 0.25, "rho": -0.7}
OU_X0 = 0.3

PRICE, DELTA, SEVEN, PATH = "price", "price, delta", "price, 7 derivatives", "X_t, dX_t/dx0"


@dataclass(frozen=True)
class Size:
    """How much of a job one run does, and how many runs are timed."""

    job: str
    paths: int
    steps: int
    block: int  # paths that are stepped together, by a program to which it matters
    runs: int
    seed: int


@dataclass
class Row:
    """A measurement: the fastest run, and what each run computed.

    ``values`` is ``[price, derivatives...]`` a run, or all of ``X_t`` and then all of its
    derivatives for ``ou``. ``compile`` is what the first call takes longer than the fastest.
    """

    job: str
    what: str
    who: str
    dtype: str
    scheme: str
    paths: int
    steps: int
    seconds: float
    compile: float
    values: list[list[float]]


def asked() -> Size:
    """The size that the parent put on the command line."""
    return Size(**json.loads(sys.argv[1]))


def measure(
    who: str,
    what: str,
    run: Callable[[int], Sequence[Any]],
    size: Size,
    dtype: str = "float32",
    scheme: str = "Euler",
) -> Row:
    """Time ``run(seed)``, which returns arrays when they are there, on as many seeds as asked.

    No two rows share seeds, so that their estimates are independent.
    """
    first = 1000 * size.seed + 100_000 * (zlib.crc32(f"{who}, {what}".encode()) % 10_000)
    seconds, values = [], []
    for k in range(size.runs + 1):
        start = time.perf_counter()
        arrays = run(first + k)
        seconds.append(time.perf_counter() - start)
        values.append([float(x) for array in arrays for x in np.ravel(array)])
    fastest = min(seconds[1:])
    warm_up = max(seconds[0] - fastest, 0.0)
    shape = (size.paths, size.steps)
    return Row(size.job, what, who, dtype, scheme, *shape, fastest, warm_up, values[1:])


def report(rows: list[Row], packages: Sequence[str], reference: Sequence[float] = ()) -> None:
    """Print the program's one line."""
    versions = {name: version(name) for name in packages}
    line = {"rows": [asdict(row) for row in rows], "versions": versions, "reference": reference}
    print(json.dumps(line))
