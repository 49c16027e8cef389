import os
import re
import runpy
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sdesens
from sdesens.models import Heston
from sdesens.pricing import Call
from tests.montecarlo.faulty import listening

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "greeks_cluster.py"
READY = {"scheduler": "Scheduler at", "worker": "Registered to"}


def commands(text, port):
    """The two lines that start a cluster, on another port."""
    lines = re.findall(r"^ *(dask .*)$", text.replace("\\\n", " "), re.M)
    return [shlex.split(line.replace("8786", str(port)))[1:] for line in lines]


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.parametrize("place", [ROOT / "README.md", SCRIPT])
def test_the_commands_as_printed_make_a_cluster_of_this_machine(place, port, tmp_path, capsys):
    pytest.importorskip("distributed")
    started = []
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        for command in commands(place.read_text(), port):
            log = tmp_path / command[0]
            with log.open("w") as file:
                words = [sys.executable, "-m", "dask", *command]
                started.append(subprocess.Popen(words, stderr=file, env=environment))
            deadline = time.monotonic() + 60
            while READY[command[0]] not in log.read_text():
                assert time.monotonic() < deadline and started[-1].poll() is None
                time.sleep(0.1)
        assert len(started) == 2
        run = runpy.run_path(str(SCRIPT))["main"]
        address = f"tcp://127.0.0.1:{port}"
        arguments = ["--paths", "3000", "--steps", "3", "--checkpoint", str(tmp_path / "kept")]
        assert run([address, *arguments]) == 0
        pids = [process.pid for process in started]
        assert listening(pids) == {"127.0.0.1"}
        model = Heston(0.03, kappa=1.5, theta=0.04, xi=0.3, rho=-0.7)
        right = sdesens.greeks(model, Call(100.0, 1.0), [100.0, 0.04], paths=3000, steps=3)
        assert repr(right) in capsys.readouterr().out
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30)


def test_a_bad_argument_is_one_line(capsys):
    run = runpy.run_path(str(SCRIPT))["main"]
    assert run(["elsewhere"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("greeks_cluster.py: executor must be one of") and error.count("\n") == 1
