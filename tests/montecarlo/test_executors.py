import contextlib
import os
import pickle
import socket
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import cloudpickle
import pytest
import torch

import sdesens
from sdesens import montecarlo
from sdesens.errors import UncompiledWarning, WorkerMismatchError
from sdesens.fused import kernel
from sdesens.models import Heston
from sdesens.montecarlo import executors
from sdesens.montecarlo.execution import Terms
from sdesens.montecarlo.worker import Packed, run_packed
from sdesens.pricing import Call
from sdesens.pricing.scenario import Scenario
from sdesens.pricing.valuation import Valuation
from tests.montecarlo import faulty
from tests.montecarlo.faulty import FaultyJob, Reordered, assert_same_bits, carried_out

cloudpickle.register_pickle_by_value(faulty)

MODEL = Heston(0.03, 1.5, 0.04, 0.3, -0.7)
PAYOFF = Call(100.0, 1.0)


def greeks(**terms):
    arguments = {"paths": 5_000, "steps": 4, "shard_size": 512, "wrt": ("spot", "kappa")} | terms
    return sdesens.greeks(MODEL, PAYOFF, [100.0, 0.04], **arguments)


def job():
    scenario = Scenario.of(
        MODEL, PAYOFF, [100.0, 0.04], steps=4, scheme="auto", dtype=torch.float64
    )
    valuation = Valuation.of(scenario, "spot", 1, "auto", (), antithetic=False, seed=1)
    return valuation.job(2_000, 512)


@pytest.fixture(scope="module")
def alone():
    return greeks().entries


# --- the same bits -------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("executor", ["serial", "threads", "processes"])
def test_executors_of_one_machine_give_the_bits_of_one_worker(alone, executor, workers):
    assert greeks(executor=executor, workers=workers).entries == alone


@pytest.mark.parametrize("order", ["first", "last", "any"])
@pytest.mark.parametrize("resumed", [False, True])
def test_the_order_of_the_shards_does_not_matter(alone, order, resumed, tmp_path):
    executor = Reordered(order)
    if resumed:
        greeks(paths=2_048, checkpoint=tmp_path)
    assert greeks(executor=executor, workers=3, checkpoint=tmp_path).entries == alone
    run = executor.done
    assert sorted(run) == list(range(4 * resumed, 10))
    assert (run == sorted(run)) == (order == "first")


def test_executors_of_the_users_own_are_used_and_left_open(alone):
    with ThreadPoolExecutor(2) as threads:
        assert greeks(executor=threads).entries == alone
        assert threads.submit(int).result() == 0
    with ProcessPoolExecutor(2) as processes:
        assert greeks(executor=processes).entries == alone
        assert processes.submit(int).result() == 0


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_dask_gives_the_same_bits(alone, workers, tmp_path):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = [os.getpid(), *client.run(os.getpid).values()]
        assert faulty.listening(pids) == {"127.0.0.1"}
        assert greeks(executor=client).entries == alone
        assert greeks(executor=client.get_executor(pure=False)).entries == alone
        greeks(paths=2_000, checkpoint=tmp_path)
        address = cluster.scheduler_address
        assert greeks(executor=address, checkpoint=tmp_path).entries == alone


def test_a_dask_cluster_made_for_a_run_is_reached_from_this_machine_only(alone, monkeypatch):
    distributed = pytest.importorskip("distributed")
    made = []

    class Watched(distributed.LocalCluster):
        def close(self, *args, **kwargs):
            if not made:
                made.append(faulty.listening([os.getpid()]))
            return super().close(*args, **kwargs)

    monkeypatch.setattr(distributed, "LocalCluster", Watched)
    assert greeks(executor="dask", workers=1).entries == alone
    assert made == [{"127.0.0.1"}]


def test_a_dask_cluster_made_for_a_run_does_not_mind_another(alone):
    pytest.importorskip("distributed")
    with socket.socket() as dashboard:
        with contextlib.suppress(OSError):  # if there is one, it does as well
            dashboard.bind(("127.0.0.1", 8787))
            dashboard.listen()
        assert greeks(executor="dask", workers=1).entries == alone


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_ray_gives_the_same_bits(alone, workers, tmp_path):
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        assert greeks(executor="ray").entries == alone
        greeks(paths=2_000, checkpoint=tmp_path)
        executor = montecarlo.RayExecutor()
        assert executor.workers == workers
        assert greeks(executor=executor, checkpoint=tmp_path).entries == alone
    finally:
        ray.shutdown()


def test_a_model_that_is_not_compiled_runs_in_processes_too():
    def payoff(end):
        return 2 * end.spot if bool((end.spot > 0).all()) else end.spot  # looks at values

    def run(**terms):
        with pytest.warns(UncompiledWarning):
            found = montecarlo.run(
                MODEL, [100.0, 0.04], payoff, maturity=1.0, steps=2, paths=501, wrt="x0",
                shard_size=100, **terms,
            )  # fmt: skip
        return found.moments

    alone = run()
    assert_same_bits(run(workers=2), alone)
    assert_same_bits(run(executor="threads", workers=2), alone)


# --- the specification ---------------------------------------------------------------------------


def test_a_specification_is_small_and_runs_where_it_is_sent():
    spec = job()
    sent = pickle.dumps(spec)
    assert len(sent) < 300_000
    again = pickle.loads(sent)
    assert again.digest == spec.digest
    for index in range(spec.shards):
        assert_same_bits(again.run_shard(0, index), spec.run_shard(0, index))


def test_a_specification_prints_what_is_run():
    text = repr(job())
    for part in (
        "Heston",
        "kappa = 1.5",
        "Call",
        "qe",
        "float64",
        "shard_size",
        sdesens.__version__,
    ):
        assert part in text


def test_the_digest_is_of_what_the_numbers_depend_on():
    spec = job()
    (one,) = spec.jobs
    more = replace(spec, jobs=[replace(one, paths=9_999)])
    assert more.digest == spec.digest
    seeded = replace(one, numbers=replace(one.numbers, seed=2))
    for other in (replace(one, shard_size=513), seeded):
        assert replace(spec, jobs=[other]).digest != spec.digest
    assert replace(spec, about={**spec.about, "versions": {}}).digest != spec.digest


# --- workers that would give other numbers -------------------------------------------------------


def test_a_worker_of_another_version_is_refused():
    packed = replace(Packed.of(job().jobs[0]), key="x", versions={"sdesens": "0.0"})
    with pytest.raises(WorkerMismatchError, match=r"its driver \{'sdesens': '0.0'\}"):
        run_packed(packed, 0)


def test_a_worker_with_other_bits_is_refused():
    packed = replace(Packed.of(job().jobs[0]), key="y", trial="other")
    with pytest.raises(WorkerMismatchError, match="does not give the bits of its driver"):
        run_packed(packed, 0)


def test_a_worker_without_a_compiler_is_refused(monkeypatch):
    sent = pickle.dumps(job().jobs[0])
    monkeypatch.setattr(kernel, "_libraries", {})
    monkeypatch.setattr(kernel, "_load", lambda code: None)
    with pytest.raises(WorkerMismatchError, match="cannot compile"):
        pickle.loads(sent)


def test_a_worker_follows_a_driver_without_a_compiler(monkeypatch):
    spec = job()
    with monkeypatch.context() as patched:
        patched.setattr(kernel, "_libraries", {})
        patched.setattr(kernel, "_load", lambda code: None)
        uncompiled = job()
    again = pickle.loads(pickle.dumps(uncompiled))
    assert not again.jobs[0].kernel.is_compiled and spec.jobs[0].kernel.is_compiled
    assert_same_bits(again.run_shard(0, 1), uncompiled.run_shard(0, 1))


def test_a_mismatch_is_told_at_once(tmp_path):
    class Other(FaultyJob):
        def run_shard(self, index):
            self.note(f"call-{index}")
            raise WorkerMismatchError("another worker")

    one = Other(tmp_path / "log")
    with pytest.raises(WorkerMismatchError):
        carried_out(one)
    assert one.calls() == [0]


# --- bad arguments -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "error", "message"),
    [
        ({"executor": "thread"}, ValueError, "Did you mean 'threads'"),
        ({"executor": 3}, TypeError, "a concurrent.futures.Executor, .* got int"),
        ({"retries": -1}, ValueError, "retries must be at least 0"),
        ({"checkpoint": 3}, TypeError, "checkpoint must be the path of a folder, got int"),
        ({"target_stderr": 0.0}, ValueError, "target_stderr of 'price' must be a positive number"),
        ({"target_stderr": {}}, ValueError, "target_stderr is empty"),
        ({"target_stderr": {"spott": 0.1}}, ValueError, "target_stderr .*Did you mean 'spot'"),
        ({"target_stderr": {"delta": 0.1}}, ValueError, "target_stderr .*'delta'.* key is 'spot'"),
        ({"target_stderr": {3: 0.1}}, ValueError, "target_stderr has the key 3; keys are"),
        ({"target_stderr": {("spot", "spot"): 0.1}}, KeyError, "order=2"),
    ],
)
def test_bad_terms_are_refused_before_anything_runs(terms, error, message):
    with pytest.raises(error, match=message):
        greeks(**terms)


@pytest.mark.parametrize(
    ("executor", "name"),
    [("dask", "dask"), ("ray", "ray"), ("tcp://127.0.0.1:1", "dask")],
)
def test_a_missing_package_names_the_extra(executor, name, monkeypatch):
    def missing(module):
        raise ImportError(module)

    monkeypatch.setattr(executors, "import_module", missing)
    with pytest.raises(ImportError, match=rf"pip install 'sdesens\[{name}\]'"):
        greeks(executor=executor)


def test_ray_has_to_be_running():
    pytest.importorskip("ray")
    with pytest.raises(RuntimeError, match=r"Call ray\.init\(\) before"):
        greeks(executor="ray")


def test_a_job_that_cannot_be_sent_says_what_to_use(tmp_path):
    class Held(FaultyJob):
        def __reduce__(self):
            raise TypeError("cannot pickle a lock")

    with pytest.raises(TypeError, match="Use executor='threads'"):
        carried_out(Held(tmp_path / "log"), workers=2)


# --- how many paths ------------------------------------------------------------------------------


def test_a_run_stops_where_it_is_accurate():
    goal = {"price": 0.1, "spot": 0.004}
    stopped = greeks(paths=1_000_000, shard_size=4096, target_stderr=goal)
    assert 16_384 <= stopped.paths < 60_000
    assert all(stopped[key].stderr <= value for key, value in goal.items())
    assert greeks(paths=stopped.paths, shard_size=4096).entries == stopped.entries
    again = greeks(
        paths=1_000_000, shard_size=4096, target_stderr=goal, executor="threads", workers=2
    )
    assert again.entries == stopped.entries


def test_a_target_that_is_not_reached_is_told():
    with pytest.warns(sdesens.AccuracyWarning, match=r"'price' is .* after all 5,000 paths"):
        found = greeks(target_stderr=0.01)
    assert found.paths == 5_000


def test_a_run_of_means_stops_where_it_is_accurate():
    found = montecarlo.run(
        MODEL, [100.0, 0.04], lambda end: end.spot, maturity=1.0, steps=2, paths=10**6,
        target_stderr={("value", "spot"): 1e-3}, wrt="spot",
    )  # fmt: skip
    assert found["value", "spot"].stderr <= 1e-3
    assert found.paths < 10**6


def test_a_sample_without_variance_does_not_stop_a_run(tmp_path):
    terms = Terms.of("serial", 1, None, 0)
    one = FaultyJob(tmp_path / "log", paths=40 * 2**14, shard_size=2**14)
    spec, seen = montecarlo.Specification({}, [one]), []  # type: ignore[list-item]

    def shortfall(parts):
        seen.append(parts[0].count)
        return float("inf") if len(seen) < 3 else 0.5

    (moments,) = terms.carry_out(spec, shortfall, lambda paths: None)
    assert [count // 2**14 for count in seen] == [1, 4, 16]
    assert moments.count == seen[-1]
