import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import cloudpickle
import pytest

from sdesens.errors import CheckpointError, ShardError
from sdesens.montecarlo.checkpoint import Checkpoint
from tests.montecarlo import faulty
from tests.montecarlo.faulty import FaultyJob, assert_same_bits, carried_out

cloudpickle.register_pickle_by_value(faulty)

ROOT = Path(__file__).parents[2]


def kept(folder):
    return sorted(int(path.stem.split("-")[1]) for path in folder.glob("*/*-*.json"))


# --- shards that raise ---------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["serial", "threads", "processes"])
def test_a_shard_that_raises_is_tried_again(tmp_path, executor):
    job = FaultyJob(tmp_path / "log", faults={3: ("raise", 2), 7: ("raise", 1)})
    assert_same_bits(carried_out(job, executor=executor, workers=2), job.undisturbed())
    assert [job.calls().count(index) for index in (2, 3, 7)] == [1, 3, 2]


@pytest.mark.parametrize("executor", ["serial", "threads", "processes"])
def test_a_shard_that_always_raises_is_named_and_the_rest_is_kept(tmp_path, executor):
    job = FaultyJob(tmp_path / "log", faults={3: ("raise", 99)})
    folder = tmp_path / "kept"
    with pytest.raises(
        ShardError, match=r"^shard 3 of 10 failed 3 times, .* OSError: the shard's own trouble"
    ) as caught:
        carried_out(job, executor=executor, workers=2, checkpoint=folder)
    assert (caught.value.piece, caught.value.shard, caught.value.attempts) == (0, 3, 3)
    assert job.calls().count(3) == 3
    assert {0, 1, 2} <= set(kept(folder))
    assert f"{len(kept(folder))} finished shards are kept in {folder}" in str(caught.value)
    before = kept(folder)
    mended = FaultyJob(tmp_path / "log2")
    assert_same_bits(carried_out(mended, checkpoint=folder), job.undisturbed())
    assert mended.calls() == [index for index in range(10) if index not in before]


def test_no_retries_means_one_try(tmp_path):
    job = FaultyJob(tmp_path / "log", faults={0: ("raise", 1)})
    with pytest.raises(ShardError, match=r"failed 1 times.*are lost; checkpoint= keeps them"):
        carried_out(job, retries=0)
    assert job.calls() == [0]


# --- workers that die ----------------------------------------------------------------------------


def test_a_worker_killed_in_a_shard_costs_nothing_but_time(tmp_path):
    job = FaultyJob(tmp_path / "log", faults={2: ("die", 1), 8: ("die", 2)}, seconds=0.02)
    assert_same_bits(carried_out(job, workers=2), job.undisturbed())


def test_a_shard_that_always_kills_its_worker_is_found_among_its_neighbours(tmp_path):
    job = FaultyJob(tmp_path / "log", faults={4: ("die", 99)}, seconds=0.02)
    folder = tmp_path / "kept"
    with pytest.raises(ShardError, match=r"^shard 4 of 10 failed 3 times") as caught:
        carried_out(job, workers=2, checkpoint=folder)
    assert caught.value.shard == 4
    assert {0, 1, 2, 3} <= set(kept(folder)) and 4 not in kept(folder)
    mended = FaultyJob(tmp_path / "log2")
    assert_same_bits(carried_out(mended, checkpoint=folder), job.undisturbed())


def test_a_pool_of_the_users_own_that_breaks_is_an_error(tmp_path):
    job = FaultyJob(tmp_path / "log", faults={1: ("die", 1)})
    with (
        ProcessPoolExecutor(1) as pool,
        pytest.raises(ShardError, match=r"a process of the executor died .* Give workers="),
    ):
        carried_out(job, executor=pool)


def test_a_worker_of_dask_killed_in_a_shard(tmp_path):
    distributed = pytest.importorskip("distributed")
    config = pytest.importorskip("dask.config")
    once = FaultyJob(tmp_path / "once", faults={2: ("die", 1)}, seconds=0.02)
    always = FaultyJob(tmp_path / "always", faults={4: ("die", 99)}, seconds=0.02, salt=1)
    folder = tmp_path / "kept"
    with (
        config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        assert_same_bits(carried_out(once, executor=client), once.undisturbed())
        with pytest.raises(ShardError, match=r"^shard 4 of 10 failed 2 times"):
            carried_out(always, executor=client, checkpoint=folder, retries=1)
    assert {0, 1, 2, 3} <= set(kept(folder))


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")
def test_a_worker_of_ray_killed_in_a_shard(tmp_path):
    ray = pytest.importorskip("ray")
    once = FaultyJob(tmp_path / "once", faults={2: ("die", 1)}, seconds=0.02)
    always = FaultyJob(tmp_path / "always", faults={4: ("die", 99)}, seconds=0.02, salt=1)
    folder = tmp_path / "kept"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        assert_same_bits(carried_out(once, executor="ray"), once.undisturbed())
        with pytest.raises(ShardError, match=r"^shard 4 of 10 failed 2 times"):
            carried_out(always, executor="ray", checkpoint=folder, retries=1)
    finally:
        ray.shutdown()
    assert {0, 1, 2, 3} <= set(kept(folder))


# --- disks ---------------------------------------------------------------------------------------


def test_a_file_that_is_not_written_at_once_is_tried_again(tmp_path, monkeypatch):
    job, put, failures = FaultyJob(tmp_path / "log"), Checkpoint._put, []

    def failing(self, path, text):
        if path.name == "00-00000004.json" and len(failures) < 2:
            failures.append(path)
            raise OSError(28, "No space left on device")
        put(self, path, text)

    monkeypatch.setattr(Checkpoint, "_put", failing)
    folder = tmp_path / "kept"
    assert_same_bits(carried_out(job, checkpoint=folder), job.undisturbed())
    assert kept(folder) == list(range(10))
    assert job.calls() == list(range(10))


FULL = """
    import subprocess, sys
    from pathlib import Path
    from sdesens.errors import CheckpointError
    from tests.montecarlo.faulty import FaultyJob, assert_same_bits, carried_out
    log, folder = Path(sys.argv[1]), Path(sys.argv[2])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", folder], check=True)
    job = FaultyJob(log, paths=3000)
    try:
        carried_out(job, checkpoint=folder)
    except CheckpointError as error:
        print(error)
    whole = len(list(folder.glob("*/*-*.json")))
    assert 2 <= whole < 30 and not list(folder.glob("*/.*.tmp")), whole
    subprocess.run(["mount", "-o", "remount,size=1m", folder], check=True)
    again = FaultyJob(log.with_name("again"), paths=3000)
    assert_same_bits(carried_out(again, checkpoint=folder), job.undisturbed())
    assert again.calls() == list(range(whole, 30)), again.calls()
    print("resumed")
"""


def test_a_full_disk_is_one_error_and_loses_nothing(tmp_path):
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*unshare, "true"], check=False).returncode
    ):
        pytest.skip("no small file system can be mounted here")
    log, disk = tmp_path / "log", tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        [*unshare, sys.executable, "-c", textwrap.dedent(FULL), log, disk],
        capture_output=True, text=True, cwd=ROOT, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stdout
    assert "was computed but cannot be written" in done.stdout
    assert done.stdout.endswith("resumed\n")


def test_a_disk_that_stays_full_names_the_shard(tmp_path, monkeypatch):
    put = Checkpoint._put

    def full(self, path, text):
        if path.name.startswith("00-00000005"):
            raise OSError(28, "No space left on device")
        put(self, path, text)

    monkeypatch.setattr(Checkpoint, "_put", full)
    with pytest.raises(CheckpointError, match=r"shard 5 of 10 was computed .* 5 finished shards"):
        carried_out(FaultyJob(tmp_path / "log"), checkpoint=tmp_path / "kept")


# --- Ctrl-C --------------------------------------------------------------------------------------

LONG = """
    import json, sys, time
    from pathlib import Path
    import cloudpickle
    from tests.montecarlo import faulty
    cloudpickle.register_pickle_by_value(faulty)
    log, folder, executor = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    job = faulty.FaultyJob(log, paths=6000, seconds=0.1)
    faulty.carried_out(job, checkpoint=folder, executor=executor, workers=2)
"""


@pytest.mark.parametrize("executor", ["serial", "threads", "processes"])
def test_ctrl_c_returns_promptly_and_leaves_a_folder_that_goes_on(tmp_path, executor):
    log, folder = tmp_path / "log", tmp_path / "kept"
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(LONG), log, folder, executor],
        stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    while len(kept(folder)) < 5:
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers get it too
    begin = time.monotonic()
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - begin < 10
    assert errors.rstrip().endswith("KeyboardInterrupt")
    before = kept(folder)
    assert 5 <= len(before) < 60
    job = FaultyJob(tmp_path / "again", paths=6000)
    assert_same_bits(carried_out(job, checkpoint=folder), job.undisturbed())
    assert job.calls() == [index for index in range(60) if index not in before]


# --- what is held --------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["serial", "threads"])
def test_memory_does_not_grow_with_the_number_of_shards(tmp_path, executor):
    class Quick(FaultyJob):
        def note(self, event):
            pass

    def peak(shards):
        tracemalloc.start()
        carried_out(Quick(tmp_path, paths=shards, shard_size=1), executor=executor, workers=2)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(100)
    assert peak(4000) < 1.2 * peak(400) + 20_000


# --- torture -------------------------------------------------------------------------------------


def test_random_kills_do_not_change_a_bit():
    done = subprocess.run(
        [sys.executable, "scripts/torture_resume.py", "--kills", "4", "--shards", "40"],
        capture_output=True, text=True, cwd=ROOT, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the bits are those of the undisturbed run" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("4 kills in ")
