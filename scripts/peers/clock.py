"""Timing for the programs of the peers: one core, compiled before the clock starts."""

from __future__ import annotations

import json
import time


def report(name: str, call, scale: float, rounds: int, values: dict) -> None:
    """Print the best of ``rounds`` times of ``call``, times ``scale``, as one line of JSON."""
    begin = time.perf_counter()
    call()
    first = time.perf_counter() - begin
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    print(json.dumps({"name": name, "best": best * scale, "first": first, **values}), flush=True)
