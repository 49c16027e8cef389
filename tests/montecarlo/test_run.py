import math
import random
from concurrent.futures import ThreadPoolExecutor
from statistics import NormalDist

import pytest
import torch

import sdesens
from sdesens import montecarlo
from sdesens.errors import UncompiledWarning
from sdesens.fused import kernel
from sdesens.fused.kernel import compile_count
from sdesens.models import GeometricBrownianMotion, Heston, LocalVolatility, OrnsteinUhlenbeck
from sdesens.montecarlo import Integral, RunningMax, RunningMin, RunningSum, Survival, ValueAt
from sdesens.montecarlo import job as job_module
from sdesens.montecarlo.front import simulation_of
from sdesens.montecarlo.job import Job
from sdesens.montecarlo.moments import merge_all

HESTON = {"rate": 0.03, "kappa": 1.5, "theta": 0.06, "xi": 0.2, "rho": -0.7}
START = [100.0, 0.06]
DATES = [0.25, 0.5, 1.0]
N = NormalDist()


def no_crossing(before, after):
    """Of the barrier 80 between two nodes, given both (Brownian bridge, frozen volatility)."""
    gap = torch.relu(before.spot - 80.0) * torch.relu(after.spot - 80.0)
    width = after.time - before.time
    return 1 - torch.exp(-2 * gap / (before.spot**2 * before.variance.abs() * width))


def functionals():
    return {
        "total": RunningSum("spot", DATES),
        "top": RunningMax("spot"),
        "bottom": RunningMin(lambda state: state.spot + 10 * state.variance, [0.0, *DATES]),
        "middle": ValueAt("spot", 0.5),
        "area": Integral("variance"),
        "alive": Survival(no_crossing),
    }


def everything(model):
    """A payoff with an output for every functional, the state, and the parameters."""

    def payoff(end):
        discount = torch.exp(-model.rate * end.time)
        return {
            "call": discount * torch.relu(end.spot - 100.0),
            "asian": discount * torch.relu(end.total / 3 - 100.0),
            "top": end.top,
            "bottom": end.bottom,
            "middle": end.middle.log(),
            "area": end.area,
            "alive": end.alive * end.spot,
            "variance": end.y[:, 1],
        }

    return payoff


def run_everything(model=None, x0=START, **changes):
    model = Heston(**HESTON) if model is None else model
    arguments = {
        "maturity": 1.0, "steps": 8, "paths": 500, "functionals": functionals(), "seed": 3,
        "dtype": torch.float64,
    }  # fmt: skip
    return montecarlo.run(model, x0, everything(model), **(arguments | changes))


def values(result):
    """Every mean by row and output."""
    return {key: result.moments.mean[k].item() for key, k in result.places.items()}


def assert_same(a, b, tolerance):
    assert values(a).keys() == values(b).keys()
    for key, value in values(a).items():
        assert abs(value - values(b)[key]) <= tolerance * (1 + abs(value)), key


def test_one_path_of_a_run_can_be_replayed_alone():
    names = ("x0", *HESTON)
    model = Heston(**HESTON)
    for dtype, tolerance in ((torch.float32, 2e-5), (torch.float64, 1e-12)):
        simulation = simulation_of(
            model, START, lambda end: {"s": end.spot, "v": end.variance}, maturity=1.0, steps=20,
            wrt=names, scheme="euler", functionals=None, dtype=dtype, options=None, names=None,
        )  # fmt: skip
        job = Job.of(simulation, seed=9, paths=20_000, shard_size=5_000)
        shard, place = divmod(12_345, 5_000)
        got = job.kernel.samples(job.shard(shard))[:, place]
        bm = sdesens.BrownianPath(0.0, 1.0, (1, 2), 20, seed=9, dtype=dtype, first_path=12_345)
        x0 = torch.tensor([START], dtype=dtype)
        alone = sdesens.sensitivities(
            model, x0, [0.0, 1.0], method="euler", dt=0.05, bm=bm, wrt=names
        )
        rows = [alone.x[-1, 0], *alone.dx0[-1, 0].T, *(alone.dparams[n][-1, 0] for n in HESTON)]
        for (row, k), value in zip(job.layout.outputs, got.tolist(), strict=True):
            right = rows[row][k].item()
            assert abs(value - right) <= tolerance * (abs(right) + rows[row].abs().max().item())


def test_black_scholes_within_four_standard_errors():
    # Ten estimates, each beyond 4.5 standard errors with rate 7e-6.
    gbm = GeometricBrownianMotion(0.05, 0.2)

    def call(end):
        return torch.exp(-gbm.mu * end.time) * torch.relu(end.x - 100.0)

    right = {
        "x": 0.636830651, "mu": 53.232481545, "sigma": 37.524034692, "maturity": 6.414028,
    }  # fmt: skip
    arguments = {"maturity": 1.0, "steps": 2, "scheme": "exact", "paths": 200_000}
    for dtype in (torch.float32, torch.float64):
        result = montecarlo.run(gbm, [100.0], call, dtype=dtype, **arguments)
        price = result["value"]
        assert abs(price.value - 10.450583572) < 4.5 * price.stderr
        for name, value in right.items():
            estimate = result["value", name]
            assert abs(estimate.value - value) < 4.5 * estimate.stderr < 0.03 * value


def test_the_exact_scheme_of_ornstein_uhlenbeck_has_no_bias():
    ou = OrnsteinUhlenbeck(1.3, 0.4, 0.5)
    result = montecarlo.run(
        ou, [2.0], lambda end: {"x": end.x, "square": end.x**2}, maturity=1.0, steps=3,
        paths=100_000, scheme="exact", dtype=torch.float64,
    )  # fmt: skip
    decay = math.exp(-1.3)
    mean, variance = 0.4 + decay * 1.6, 0.25 * (1 - decay**2) / 2.6
    for name, value in (("x", mean), ("square", variance + mean**2)):
        assert abs(result[name].value - value) < 4.5 * result[name].stderr
    assert abs(result["x", "x"].value - decay) < 1e-12
    assert result["x", "x"].stderr < 1e-12


def test_every_derivative_is_that_of_a_bump_on_the_same_noise():
    exact = run_everything()

    def bumped(name, h):
        x0, parameters, maturity = list(START), dict(HESTON), 1.0
        dates = functionals()
        if name == "spot":
            x0[0] += h
        elif name == "variance":
            x0[1] += h
        elif name == "maturity":
            maturity += h
            for functional in dates.values():
                if functional.dates is not None:
                    functional.dates = tuple(t * maturity for t in functional.dates)
        elif name == "dividend":
            parameters["dividend"] = h
        else:
            parameters[name] += h
        return run_everything(
            Heston(**parameters), x0, maturity=maturity, functionals=dates, wrt=()
        )

    for name in ("spot", "variance", *HESTON, "dividend", "maturity"):
        h = 1e-5 if name != "spot" else 1e-3
        up, down = bumped(name, h), bumped(name, -h)
        for output in exact.outputs:
            central = (up[output].value - down[output].value) / (2 * h)
            got = exact[output, name].value
            assert abs(got - central) < 2e-4 * (1 + abs(central)), (name, output)


def test_what_is_watched_at_the_first_node_may_depend_on_parameters():
    gbm = GeometricBrownianMotion(0.05, 0.2)
    functionals = {"a": RunningSum(lambda state: gbm.sigma**2 * state.x, [0.0, 1.0])}
    result = montecarlo.run(
        gbm, [100.0], lambda end: end.a / gbm.sigma**2 - end.x, maturity=1.0, steps=4, paths=50,
        dtype=torch.float64, functionals=functionals,
    )  # fmt: skip
    assert abs(result["value"].value - 100) < 1e-10  # X_0
    assert abs(result["value", "sigma"].value) < 1e-9


def test_functionals_are_what_they_say_of_the_path():
    model, paths = Heston(**HESTON), 500
    bm = sdesens.BrownianPath(0.0, 1.0, (paths, 2), 8, seed=3, dtype=torch.float64)
    x0 = torch.tensor([START], dtype=torch.float64).expand(paths, 2)
    ts = torch.linspace(0, 1, 9, dtype=torch.float64)
    x = sdesens.sensitivities(model, x0, ts, method="euler", dt=0.125, bm=bm).x
    spot, variance = x.unbind(-1)
    discount = math.exp(-0.03)
    gap = (spot - 80).clamp(min=0)
    alive = 1 - torch.exp(-2 * gap[:-1] * gap[1:] / (spot[:-1] ** 2 * variance[:-1].abs() * 0.125))
    right = {
        "call": discount * (spot[-1] - 100).clamp(min=0),
        "asian": discount * (spot[[2, 4, 8]].mean(0) - 100).clamp(min=0),
        "top": spot[1:].amax(0),
        "bottom": (spot + 10 * variance)[[0, 2, 4, 8]].amin(0),
        "middle": spot[4].log(),
        "area": 0.125 * (variance[:-1] + variance[1:]).sum(0) / 2,
        "alive": alive.prod(0) * spot[-1],
        "variance": variance[-1],
    }
    result = run_everything(model)
    for name, samples in right.items():
        assert abs(result[name].value - samples.mean().item()) < 1e-10 * (1 + abs(samples).max())
        error = (samples.std() / math.sqrt(paths)).item()
        assert abs(result[name].stderr - error) < 1e-9 * (1 + error)


def test_without_recording_the_numbers_are_the_same(monkeypatch):
    compiled = run_everything()

    def refuse(*arguments):
        raise job_module.UnrecordableError("for this test")

    monkeypatch.setattr(job_module, "compiled", refuse)
    with pytest.warns(UncompiledWarning, match="for this test"):
        assert_same(run_everything(), compiled, 1e-11)
    with pytest.warns(
        UncompiledWarning, match="for this test"
    ):  # no thread sees another's tangents
        assert_same(run_everything(workers=2, shard_size=100), compiled, 1e-11)


def test_without_a_compiler_the_numbers_are_the_same(monkeypatch):
    compiled = run_everything()
    monkeypatch.setattr(kernel, "_libraries", {})
    monkeypatch.setattr(kernel, "_load", lambda code: None)
    assert_same(run_everything(), compiled, 1e-11)


def test_a_missing_compiler_is_one_warning(monkeypatch, tmp_path):
    from torch._inductor.codecache import CppCodeCache  # noqa: PLC0415

    def fail(*arguments, **options):
        raise RuntimeError("no g++ here")

    monkeypatch.setattr(kernel, "_libraries", {})
    monkeypatch.setattr(CppCodeCache, "load", fail)
    with pytest.warns(UncompiledWarning, match=r"times slower.*no g\+\+ here"):
        run_everything()
    run_everything(seed=4)


def test_a_model_that_reads_scipy_runs_uncompiled():
    spots = torch.linspace(50, 200, 31)
    vols = torch.full((4, 31), 0.2)
    model = LocalVolatility(0.03, [0.0, 0.5, 1.0, 2.0], spots, vols)
    flat = GeometricBrownianMotion(0.03, 0.2)
    arguments = {"maturity": 1.0, "steps": 2, "paths": 100, "dtype": torch.float64}
    with pytest.warns(UncompiledWarning, match="LocalVolatility"):
        got = montecarlo.run(model, [100.0], lambda end: end.spot, wrt="x0", **arguments)
    right = montecarlo.run(flat, [100.0], lambda end: end.x, wrt="x0", **arguments)
    assert_same(got, right, 1e-6)


def test_workers_and_executors_do_not_change_a_bit():
    arguments = {"paths": 5_000, "shard_size": 700}
    one = run_everything(**arguments)
    with ThreadPoolExecutor(3) as pool:
        others = [
            run_everything(workers=2, **arguments),
            run_everything(executor=pool, **arguments),
        ]
    for other in others:
        assert torch.equal(other.moments.mean, one.moments.mean)
        assert torch.equal(other.moments.products, one.moments.products)


def test_shards_may_be_run_in_any_order():
    gbm = GeometricBrownianMotion(0.05, 0.2)
    simulation = simulation_of(
        gbm, [100.0], lambda end: end.x, maturity=1.0, steps=4, wrt="all", scheme="euler",
        functionals=None, dtype=torch.float32, options=None, names=None,
    )  # fmt: skip
    job = Job.of(simulation, seed=1, paths=10_000, shard_size=999)
    order = list(range(job.shards))
    random.Random(0).shuffle(order)
    parts = {index: job.run_shard(index) for index in order}
    merged = merge_all(parts[index] for index in range(job.shards))
    again = merge_all(map(job.run_shard, range(job.shards)))
    assert torch.equal(merged.mean, again.mean) and torch.equal(merged.products, again.products)


def test_confidence_intervals_cover():
    # Of 40 intervals of 95 %, fewer than 31 cover with rate 2e-5.
    gbm = GeometricBrownianMotion(0.05, 0.2)
    covered = 0
    for seed in range(40):
        result = montecarlo.run(
            gbm, [100.0], lambda end: end.x, maturity=1.0, steps=1, paths=2_000, scheme="exact",
            seed=seed, wrt="sigma",
        )["value", "sigma"]  # fmt: skip
        covered += abs(result.value) < N.inv_cdf(0.975) * result.stderr  # E X_T has no vega
    assert covered >= 31


def test_estimates_are_found_by_name():
    result = run_everything(wrt=("x0", "kappa", "maturity"))
    assert result.outputs[:2] == ["call", "asian"]
    assert result["call", "x0"].value.tolist() == [
        result["call", "spot"].value, result["call", "variance"].value,
    ]  # fmt: skip
    assert "d call / d kappa" in repr(result) and "±" in str(result["call"])
    with pytest.raises(ValueError, match="an output must be one of"):
        result["cal"]
    with pytest.raises(ValueError, match="an input must be one of"):
        result["call", "theta"]


def test_entries_of_tensors_keep_their_shape():
    ou = OrnsteinUhlenbeck(torch.tensor([1.0, 2.0]), 0.0, 0.5)
    result = montecarlo.run(
        ou, [1.0, 2.0], lambda end: end.x[0] + end.x[1], maturity=1.0, steps=4, paths=100,
        dtype=torch.float64,
    )  # fmt: skip
    assert result["value", "kappa"].value.shape == (2,)
    assert result["value", "x[1]"].value == pytest.approx((1 - 2 / 4) ** 4)


GBM = GeometricBrownianMotion(0.05, 0.2)
BAD = {
    "steps must be at least 1": {"steps": 0},
    "paths must be at least 2": {"paths": 1},
    "maturity must be positive": {"maturity": 0.0},
    "maturity must be positive and finite": {"maturity": math.inf},
    "method must be one of": {"scheme": "qe"},
    "Did you mean 'sigma'": {"wrt": "sigm"},
    "more than once": {"wrt": ("x", "x0")},
    "not on the grid": {"functionals": {"a": ValueAt("x", 0.3)}},
    "nearest node is 1": {"functionals": {"a": ValueAt("x", 1.5)}},
    "dates at the same node": {"functionals": {"a": RunningSum("x", [0.5, 0.5, 1.0])}},
    "the state has that name": {"functionals": {"x": ValueAt("x", 0.5)}},
    r"x0 must have shape \(d,\)": {"x0": [[100.0]]},
    "x0 must have shape": {"x0": [100.0, 1.0]},
    "x0 must be finite": {"x0": [math.nan]},
    "one number a path": {"payoff": lambda end: end.y},
    "mixes paths": {"payoff": lambda end: end.x - end.x.mean()},
    "functional mixes paths": {"functionals": {"a": RunningSum(lambda s: s.x / s.x.sum())}},
    "at least one output": {"payoff": lambda end: {}},
    "seed must be": {"seed": 2**64},
    "shard_size must be": {"shard_size": 0},
    "parameter 'sigma' must be finite": {"sde": GeometricBrownianMotion(0.05, math.inf)},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused_before_anything_is_compiled(message):
    arguments = {
        "sde": GBM, "x0": [100.0], "payoff": lambda end: end.x, "maturity": 1.0, "steps": 4,
        "paths": 100,
    }  # fmt: skip
    before = compile_count()
    with pytest.raises(ValueError, match=message):
        montecarlo.run(**(arguments | BAD[message]))
    assert compile_count() == before


def test_wrong_types_are_refused():
    with pytest.raises(TypeError, match="dtype must be"):
        montecarlo.run(GBM, [100.0], lambda end: end.x, maturity=1, steps=4, paths=9,
                       dtype=torch.float16)  # fmt: skip
    with pytest.raises(TypeError, match="must be a Functional"):
        montecarlo.run(GBM, [100.0], lambda end: end.x, maturity=1, steps=4, paths=9,
                       functionals={"a": "spot"})  # type: ignore[arg-type]  # fmt: skip
    with pytest.raises(ValueError, match="at least one time"):
        RunningSum("spot", [])
    with pytest.raises(ValueError, match=r"must be finite times, got dates\[1\]=nan"):
        RunningSum("x", dates=[0.5, math.nan])


def test_a_misspelt_component_is_named():
    with pytest.raises(AttributeError, match=r"has no 'xx'.*'time', 'x', 'y'.*Did you mean 'x'"):
        montecarlo.run(GBM, [100.0], lambda end: end.xx, maturity=1, steps=4, paths=9)
    with pytest.raises(AttributeError, match="has no 'spot'"):
        montecarlo.run(GBM, [100.0], lambda end: end.x, maturity=1, steps=4, paths=9,
                       functionals={"a": RunningMax("spot")})  # fmt: skip


def test_a_model_on_another_device_is_refused():
    with pytest.raises(ValueError, match=r"model\.cpu\(\)"):
        montecarlo.run(GeometricBrownianMotion(0.05, 0.2).to("meta"), [100.0], lambda end: end.x,
                       maturity=1.0, steps=4, paths=9)  # fmt: skip


def test_a_mean_that_is_not_finite_is_an_error():
    with pytest.raises(ArithmeticError, match="not finite"):
        montecarlo.run(GBM, [100.0], lambda end: (end.x - 100.0).log(), maturity=1.0, steps=4,
                       paths=100)  # fmt: skip
