"""Kill a job at random instants, again and again, and hold its bits against an undisturbed run.

    python scripts/torture_resume.py --kills 50

The job (Heston, price and all first derivatives) runs in a process of its own, on workers or by
itself. It is killed with SIGKILL, its workers die along or, half of the time, one of them is killed
alone. Then it is started again, on the same checkpoint folder.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

JOB = """
import json, sys
import sdesens
from sdesens.models import Heston
from sdesens.pricing import Call
folder, workers, shards = sys.argv[1] or None, int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
report = sdesens.greeks(
    Heston(0.03, 1.5, 0.04, 0.3, -0.7), Call(100.0, 1.0), [100.0, 0.04], paths=shards * 2**14 - 5,
    steps=100, shard_size=2**14, workers=workers, checkpoint=folder, retries=5)
print(json.dumps({str(k): [e.value.hex(), e.stderr.hex()] for k, e in report.entries.items()}))
"""


def main(argv: list[str] | None = None) -> int:
    """Run the torture; the exit status is 1 if a bit differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50, help="of the job or a worker (50)")
    parser.add_argument("--workers", type=int, default=2, help="processes of the job (2)")
    parser.add_argument("--shards", type=int, default=400, help="shards of the job (400)")
    parser.add_argument("--seed", type=int, default=0, help="of the instants (0)")
    arguments = parser.parse_args(argv)
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as undisturbed, tempfile.TemporaryDirectory() as tortured:
        begin = time.perf_counter()
        right = finished(start(undisturbed, arguments.workers, arguments.shards))
        print(f"undisturbed: {time.perf_counter() - begin:.1f} s, {count(undisturbed)} shards kept")
        runs = kills = 0
        while kills < arguments.kills:
            process = start(tortured, arguments.workers, arguments.shards)
            runs += 1
            kills += torture(process, tortured, chance, arguments.kills - kills)
            if process.poll() == 0:  # finished before it was killed: take shards away
                forget(tortured, chance)
            print(f"run {runs}: {kills} kills, {count(tortured)} shards kept", flush=True)
        found = finished(start(tortured, arguments.workers, arguments.shards))
        left = [path.name for path in Path(tortured).rglob(".*.tmp")]
    same = found == right
    print(f"{kills} kills in {runs} runs, {len(left)} files left aside; the bits are ", end="")
    print("those of the undisturbed run" if same else f"OTHERS: {found} and {right}")
    return 0 if same else 1


def start(folder: str, workers: int, shards: int) -> subprocess.Popen[str]:
    """The job, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", JOB, folder, str(workers), str(shards)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def finished(process: subprocess.Popen[str]) -> dict[str, list[str]]:
    """The bits of a job's result."""
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"the job failed with status {process.returncode}")
    return json.loads(out.splitlines()[-1])


def torture(process: subprocess.Popen[str], folder: str, chance: random.Random, most: int) -> int:
    """Kill workers, and in the end the job; how many kills there were."""
    kills, before = 0, count(folder)
    while kills < most and process.poll() is None:
        # Once shards come, at any instant of them: computed, written aside, renamed, or merged.
        while count(folder) == before and process.poll() is None:
            time.sleep(0.001)
        time.sleep(chance.expovariate(5.0))
        family = children(process.pid)
        workers = [child for child in family if "loky" in " ".join(cmdline(child))]
        if process.poll() is not None:
            break
        if workers and chance.random() < 0.5:
            chance.choice(workers).kill()
            kills, before = kills + 1, count(folder)
            continue
        process.send_signal(signal.SIGKILL)
        for child in family:
            if child.is_running():
                child.kill()
        process.wait()
        kills += 1
    return kills


def children(pid: int) -> list[psutil.Process]:
    """Of a process, at any depth."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def cmdline(process: psutil.Process) -> list[str]:
    """The command of a process, nothing if it is gone."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def count(folder: str) -> int:
    """Shards on disk."""
    return len(list(Path(folder).glob("*/*-*.json")))


def forget(folder: str, chance: random.Random) -> None:
    """Remove half of the shards."""
    for path in Path(folder).glob("*/*-*.json"):
        if chance.random() < 0.5:
            path.unlink()


if __name__ == "__main__":
    sys.exit(main())
