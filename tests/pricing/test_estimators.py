"""Estimators: the motions they are made of, and that each is right whatever the grid."""

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import sdesens
from sdesens.errors import UncompiledWarning, UnsupportedError
from sdesens.fused.evaluate import drawn
from sdesens.fused.kernel import Run
from sdesens.models import (
    CEV,
    SABR,
    BlackScholes,
    Heston,
    LocalVolatility,
    MultiAssetBlackScholes,
    OrnsteinUhlenbeck,
)
from sdesens.montecarlo.job import Job
from sdesens.pricing import (
    Asian,
    Barrier,
    Basket,
    Call,
    Digital,
    Exchange,
    Forward,
    Put,
    payoff,
)
from sdesens.pricing.estimators import plan
from sdesens.pricing.estimators.motions import (
    Push,
    antithetic,
    combined,
    differentiated,
    joined,
)
from sdesens.pricing.estimators.plan import _with_shares, shares
from sdesens.pricing.estimators.pushes import push_of
from sdesens.pricing.formulas import black_call, forward_value, geometric_asian_call
from sdesens.pricing.scenario import Scenario

MODEL = BlackScholes(0.05, 0.2)
HESTON = Heston(0.03, 1.5, 0.04, 0.3, -0.7)
PAIR = MultiAssetBlackScholes(0.05, [0.2, 0.3], [0.5])
CALL = Call(100.0, 1.0)


class Smile(sdesens.SDE):
    """A local volatility that falls with the spot, and bends."""

    state, sde_type, noise_type = ("spot",), "ito", "diagonal"

    def __init__(self):
        super().__init__()
        self.rate = self.parameter(0.05)
        self.level = self.parameter(0.25)
        self.skew = self.parameter(-0.3)

    def drift(self, t, spot):
        return self.rate * spot

    def diffusion(self, t, spot):
        return (self.level + self.skew * torch.tanh(spot / 100.0 - 1.0)) * spot


class Crossed(sdesens.SDE):
    """A spot that channel 1 moves, and a factor that channel 0 moves."""

    state, sde_type, noise_type = ("spot", "factor"), "ito", "general"

    def __init__(self):
        super().__init__()
        self.rate = self.parameter(0.05)

    def drift(self, t, spot, factor):
        return self.rate * spot, 0.0

    def diffusion(self, t, spot, factor):
        return (0.0, 0.2 * spot), (0.1 * factor, 0.0)


def greeks(option, x0=(100.0,), model: Any = MODEL, *, paths=20_000, steps=1, **arguments: Any):
    return sdesens.greeks(model, option, x0, paths=paths, steps=steps, **arguments)


def scenario_of(option, x0=(100.0,), model: Any = MODEL, steps=4, scheme="auto"):
    return Scenario.of(model, option, x0, steps=steps, scheme=scheme, dtype=torch.float64)


def walk(motion, clock, x0, paths=50, seed=0):
    """States at all nodes, and the outputs ``(outputs, P)``, in plain torch."""
    times, rates = clock.times()
    none = torch.zeros(0)
    run = Run(none, times, rates, clock.flags[1:], none, paths, seed)
    states = [motion.start(x0.repeat(paths, 1))]
    with torch.no_grad():
        for k in range(clock.steps):
            noise = drawn(motion.counters, run, torch.float64, range(k, k + 1), range(paths))[0].T
            states.append(motion.step(*times[k].unbind(0), states[-1], noise, run.flags[k]))
        return states, torch.stack(list(motion.finish(times[-1, 1], states[-1])))


def assert_agree(a, b, names, relative):
    """Two reports of independent noise agree, but for 7e-6 of the time."""
    for name in names:
        x, y = a[name], b[name]
        error = math.hypot(x.stderr, y.stderr)
        assert abs(x.value - y.value) < 4.5 * error, (name, x, y)
        assert error < relative * abs(x.value), (name, x, y)


# --- motions -------------------------------------------------------------------------------------


def test_tangents_in_the_state_are_the_rows_of_the_engine():
    scenario = scenario_of(Asian(100.0, 1.0, 2), (100.0, 0.04), HESTON)
    directions = scenario.directions(("spot", "variance", "kappa", "rho", "maturity"))
    simulation = scenario.simulation()
    motion, clock = simulation.motion(), simulation.clock()
    job = Job.moving(motion, clock, scenario.problem.x0, directions, 3, 50, 50)
    rows = {row: value for (row, _), value in
            zip(job.layout.outputs, job.kernel.samples(job.shard(0)), strict=True)}  # fmt: skip
    carried = differentiated(motion, directions, None)
    _, outputs = walk(carried, _with_shares(clock, torch.zeros(5)), scenario.problem.x0, seed=3)
    assert len(outputs) == 1 + len(directions)
    for row, value in enumerate(outputs):
        torch.testing.assert_close(rows[row], value, rtol=1e-11, atol=1e-11)


def test_what_is_pushed_out_is_exactly_zero_at_the_dates():
    scenario = scenario_of(Barrier(100.0, 90.0, 1.0, dates=[0.5]), steps=4)
    directions = scenario.directions(("spot", "sigma", "maturity"))
    simulation = scenario.simulation()
    motion, share = simulation.motion(), shares(scenario, "bismut")
    assert share.tolist() == [0.0, 0.5, 1.0, 0.5, 1.0]
    assert shares(scenario, "likelihood-ratio").tolist() == [1.0] * 5
    weighted = differentiated(motion, directions, Push([0], [0]))
    states, _ = walk(weighted, _with_shares(simulation.clock(), share), scenario.problem.x0)
    size = motion.y.shape[1]
    for node, state in enumerate(states):
        for k in range(len(directions)):
            tangent = state[:, size * (k + 1)]  # of the spot
            if node in (2, 4):
                assert bool((tangent == 0).all()), (node, k)
            elif node in (1, 3):
                # the spot's own tangent starts anew at no date: it is gone for good
                assert bool((tangent != 0).all()) == (node == 1 or k > 0), (node, k)


def test_a_pair_on_opposite_noise_cancels_what_is_odd():
    model = OrnsteinUhlenbeck(1.3, 0.4, 0.5)
    scenario = scenario_of(Forward(0.0, 1.0), (2.0,), model)
    simulation = scenario.simulation()
    motion, clock = simulation.motion(), simulation.clock()
    _, single = walk(motion, clock, scenario.problem.x0)
    _, paired = walk(antithetic(motion), clock, scenario.problem.x0)
    mean = 0.4 + math.exp(-1.3) * 1.6
    assert single.std() > 0.1
    torch.testing.assert_close(paired, torch.full_like(paired, mean), rtol=1e-13, atol=0)


def test_sums_and_rows_of_motions_are_those_of_their_outputs_on_the_same_noise():
    options = [CALL, Asian(100.0, 1.0, 2), Barrier(100.0, 90.0, 1.0)]
    simulations = [scenario_of(option).simulation() for option in options]
    motions, clocks = [s.motion() for s in simulations], [s.clock() for s in simulations]
    x0 = scenario_of(CALL).problem.x0
    alone = torch.cat([walk(m, c, x0)[1] for m, c in zip(motions, clocks, strict=True)])
    clock = type(clocks[0])(1.0, 4, torch.cat([c.flags for c in clocks], dim=1))
    torch.testing.assert_close(walk(joined(motions), clock, x0)[1], alone, rtol=0, atol=0)
    weights = [1.0, -2.0, 0.5]
    total = walk(combined(list(zip(weights, motions, strict=True))), clock, x0)[1]
    right = (torch.tensor(weights).double()[:, None] * alone).sum(0, keepdim=True)
    torch.testing.assert_close(total, right, rtol=1e-13, atol=1e-12)


def test_a_weight_has_mean_zero_and_is_orthogonal_to_what_it_must_be():
    # Of the payoff 1 it gives 0, of S the derivative of the forward, e^(r T).
    scenario = scenario_of(Forward(0.0, 1.0), model=Smile())
    simulation = scenario.simulation({}, lambda end: end.spot)
    motion, share = simulation.motion(), shares(scenario_of(CALL, model=Smile()), "bismut")
    weighted = differentiated(motion, [("x0", 0)], Push([0], [0]))
    clock = _with_shares(simulation.clock(), share)
    states, outputs = walk(weighted, clock, scenario.problem.x0, paths=100_000)
    weight, slope = states[-1][:, -1], outputs[1]
    assert abs(weight.mean()) < 4.5 * weight.std() / 1e5**0.5
    forward = 1.0125**4 * math.exp(-0.05)  # by Euler, discounted
    assert abs(slope.mean() - forward) < 4.5 * slope.std() / 1e5**0.5 < 0.1


# --- weights, whatever the grid ------------------------------------------------------------------


@pytest.fixture(scope="module")
def smile():
    """By Euler in four steps, far from any limit."""
    return {
        name: greeks(Asian(100.0, 1.0, 2), model=Smile(), steps=4, paths=100_000, estimator=name,
                     wrt=("spot", "skew"), seed=seed)
        for seed, name in enumerate(("pathwise", "bismut", "likelihood-ratio"))
    }  # fmt: skip


@pytest.mark.parametrize("name", ["bismut", "likelihood-ratio"])
def test_weights_have_no_bias_on_a_coarse_grid(smile, name):
    assert smile[name].estimators["spot",] == name
    assert_agree(smile["pathwise"], smile[name], ("price", "spot"), 0.06)
    a, b = smile["pathwise"]["skew"], smile[name]["skew"]
    assert abs(a.value - b.value) < 4.5 * math.hypot(a.stderr, b.stderr)


def test_a_weight_that_is_spread_has_less_variance(smile):
    assert smile["bismut"].delta.stderr < smile["likelihood-ratio"].delta.stderr


@pytest.mark.slow
def test_weights_of_correlated_assets_have_no_bias():
    basket, names = Basket(100.0, 1.0, [0.6, 0.5]), ("spots[0]", "rho")
    a = greeks(basket, (100.0, 80.0), PAIR, paths=100_000, wrt=names, estimator="pathwise")
    b = greeks(basket, (100.0, 80.0), PAIR, paths=300_000, wrt=names, estimator="bismut", seed=1)
    assert_agree(a, b, ("price", "spots[0]", "rho[0]"), 0.2)


def test_weights_find_the_channel_that_moves_the_asset():
    # Elimination would divide by what channel 0 does to the spot, here nothing.
    option = Digital(110.0, 1.0)
    assert push_of(scenario_of(option, (100.0, 1.0), Crossed())) == Push([0, 1], [1, 0])
    assert push_of(scenario_of(option, (100.0, 0.2), SABR(1.0, 0.3, 0.0))) == Push([0, 1], [1, 0])
    assert push_of(scenario_of(Exchange(1.0), (100.0, 80.0), PAIR)) == Push([0, 1], [0, 1])
    euler = scenario_of(option, (100.0, 0.04), HESTON, steps=1, scheme="euler")
    assert push_of(euler) == Push([0, 1], [0, 1])


def test_a_path_that_is_absorbed_has_no_weight_but_an_expectation_over_the_last_step():
    model, option, steps = CEV(0.0, 2.0, 0.5), Digital(1.0, 1.0), 4
    with pytest.raises(UnsupportedError, match=r"absorbed.*scheme='euler' with .*'conditional'"):
        greeks(option, (1.0,), model, steps=steps)
    with pytest.raises(UnsupportedError, match="no weight: on some paths"):
        greeks(Call(1.0, 1.0), (1.0,), model, steps=steps, estimator="bismut")

    noise = torch.randn(steps, 500_000, generator=torch.Generator().manual_seed(1)).double()

    def paid(x: float):
        spot = torch.full_like(noise[0], x)
        for z in noise:
            spot = spot + 2.0 * spot.relu().sqrt() * z / math.sqrt(steps)
        return (spot > 1.0).double()

    bump = (paid(1.05) - paid(0.95)) / 0.1
    report = greeks(option, (1.0,), model, steps=steps, wrt="spot", scheme="euler")
    error = math.hypot(report.delta.stderr, bump.std().item() / math.sqrt(bump.numel()))
    assert report.estimators["spot",] == "conditional"
    assert abs(report.delta.value - bump.mean()) < 4.5 * error < 0.1 * report.delta.value


def test_weights_of_nothing_leave_the_price():
    report = greeks(Digital(100.0, 1.0), wrt=(), estimator="bismut")
    assert list(report) == [()]


@pytest.mark.slow
def test_weights_of_another_channel_have_no_bias():
    report = greeks(Digital(110.0, 1.0), (100.0, 1.0), Crossed(), wrt="spot")
    right = greeks(Digital(110.0, 1.0), scheme="euler", wrt="spot", estimator="conditional")
    assert report.estimators["spot",] == "bismut"
    assert abs(report.delta.value - right.delta.value) < 4.5 * report.delta.stderr
    assert report.delta.stderr < 0.03 * report.delta.value


@pytest.mark.parametrize(
    "estimator", [pytest.param("bismut", marks=pytest.mark.slow), "conditional"]
)
def test_the_gamma_of_a_digital(estimator, assert_close):
    report = greeks(Digital(100.0, 1.0), wrt="spot", order=2, estimator=estimator, paths=400_000)
    assert report.estimators["spot", "spot"] == {"bismut": "bismut, twice"}.get(
        estimator, estimator
    )
    right = {"price": 0.532325, "spot": 0.018762, ("spot", "spot"): -0.000328}
    for name, value in right.items():
        found = report[name]
        assert abs(found.value - value) < 4.5 * found.stderr + 6e-7, name  # published digits
        assert found.stderr < 0.05 * abs(value), name


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["bismut", "likelihood-ratio"])
def test_a_weight_taken_twice_in_a_mixture(estimator):
    # Torch's zeros without memory ended the process here.
    heston = {"model": HESTON, "x0": (100.0, 0.04), "wrt": "spot", "order": 2}
    right = greeks(Call(100.0, 1.0), **heston)
    found = greeks(Call(100.0, 1.0), **heston, paths=200_000, seed=1, estimator=estimator)
    assert right.estimators["spot", "spot"] == "conditional"
    assert_agree(right, found, ("price", "spot", ("spot", "spot")), 0.05)


@pytest.mark.slow
def test_the_gammas_of_an_exchange_option():
    report = greeks(Exchange(1.0), (100.0, 100.0), PAIR, wrt="spots", order=2, paths=200_000)
    right = torch.tensor([[0.014947, -0.014947], [-0.014947, 0.014947]])
    assert ((report.gamma.value - right).abs() < 4.5 * report.gamma.stderr).all()
    assert (report.gamma.stderr < 0.02 * 0.0149).all()


# --- pairs, controls -----------------------------------------------------------------------------


@pytest.mark.parametrize("paired", [False, True])
def test_the_standard_error_is_that_of_repeated_runs(paired):
    # 400 shards of 100 samples: the spread of their means is within 15% of what each expects
    # (4.3 deviations of a standard deviation of 400 normal numbers).
    scenario = scenario_of(CALL, steps=1)
    (piece,) = plan(scenario, "auto", 1, scenario.directions(("spot", "sigma")))
    motion = antithetic(piece.motion) if paired else piece.motion
    job = Job.moving(motion, piece.clock, scenario.problem.x0, piece.directions, 0, 40_000, 100)
    parts = [job.run_shard(k) for k in range(job.shards)]
    means = torch.stack([part.mean for part in parts])
    expected = torch.stack([part.products.diagonal() / 99 / 100 for part in parts]).mean(0)
    assert ((means.var(0) / expected).sqrt() - 1).abs().max() < 0.15
    whole = greeks(CALL, paths=80_000 if paired else 40_000, wrt=("spot", "sigma"), shard_size=100,
                   antithetic=paired)  # fmt: skip
    rows = [job.layout.outputs.index(at) for at in ((0, 0), (1, 0), (2, 0))]
    for row, name in zip(rows, ("price", "spot", "sigma"), strict=True):
        assert whole[name].stderr == pytest.approx((expected[row] / 400).sqrt().item(), rel=0.02)
        assert whole[name].value == pytest.approx(means[:, row].mean().item(), rel=1e-12)


def test_pairs_help_what_is_monotone(assert_close):
    plain = greeks(CALL, paths=20_000, wrt="spot")
    pairs = greeks(CALL, paths=20_000, wrt="spot", antithetic=True)
    assert_close(pairs, {"price": 10.450583572, "spot": 0.636830651}, 0.01)
    assert pairs["price"].stderr < 0.8 * plain["price"].stderr
    assert pairs.paths == plain.paths == 20_000


def test_pairs_and_weights_compose(assert_close):
    report = greeks(Digital(110.0, 1.0), paths=100_000, wrt="spot", antithetic=True)
    assert_close(report, {"spot": 0.017989113}, 0.01)


class Known(BlackScholes):
    """With the closed forms that a control needs."""

    def closed_form(self, payoff, x0, maturity):
        state = maturity, self.rate
        if type(payoff) is Call:
            return black_call(x0[0], payoff.strike, *state, self.sigma, self.dividend)
        if type(payoff) is Forward:
            return forward_value(x0[0], payoff.strike, *state, self.dividend)
        return None


def test_controls_take_away_error_and_no_more(known, assert_close):
    model, names = Known(0.05, 0.2), ("spot", "sigma")
    asian = Asian(100.0, 1.0, 4, average="geometric")
    right = known(
        lambda spot, sigma: geometric_asian_call(spot, 100.0, asian.dates, 0.05, sigma),
        spot=100.0,
        sigma=0.2,
    )
    arguments = {"steps": 4, "paths": 50_000, "wrt": names}
    plain = greeks(asian, model=model, **arguments)
    controlled = greeks(asian, model=model, control=(CALL, Forward(100.0, 1.0)), **arguments)
    assert_close(controlled, right, 0.02)
    for name in ("price", *names):
        assert controlled[name].stderr < 0.75 * plain[name].stderr, name
        gap = abs(controlled[name].value - plain[name].value)
        assert gap < 4.5 * plain[name].stderr, name


def test_a_control_of_itself_leaves_nothing():
    report = greeks(CALL, model=Known(0.05, 0.2), control=CALL, wrt=("spot", "rate"))
    assert report["price"].value == pytest.approx(10.450583572, rel=1e-9)
    assert report.delta.value == pytest.approx(0.636830651, rel=1e-8)
    assert report["price"].stderr < 1e-6 and report.rho.stderr < 1e-5


def test_a_control_of_unknown_value_is_refused():
    with pytest.raises(UnsupportedError, match="Known has no closed form for Put"):
        greeks(CALL, model=Known(0.05, 0.2), control=Put(100.0, 1.0))
    with pytest.raises(UnsupportedError, match=r"wrt must not have numbers of the payoff"):
        greeks(CALL, model=Known(0.05, 0.2), control=CALL, wrt="strike")


# --- how it is run -------------------------------------------------------------------------------


def test_the_bits_do_not_depend_on_who_runs_the_shards():
    arguments = {"paths": 5000, "wrt": ("spot", "sigma"), "shard_size": 512}
    alone = greeks(CALL, **arguments)
    assert greeks(CALL, workers=2, **arguments).entries == alone.entries
    with ThreadPoolExecutor(3) as pool:
        assert greeks(CALL, executor=pool, **arguments).entries == alone.entries
    other = greeks(CALL, **arguments | {"shard_size": 5000})
    for name, estimate in alone.entries.items():
        assert other.entries[name].value == pytest.approx(estimate.value, rel=1e-12)
        assert other.entries[name].stderr == pytest.approx(estimate.stderr, rel=1e-10)


@pytest.mark.parametrize(
    ("option", "right"),
    [
        (CALL, {"price": 10.450583572, "spot": 0.636830651}),
        (Digital(110.0, 1.0), {"spot": 0.017989113}),
    ],
)
def test_float32_is_right_too(option, right, assert_close):
    # Its normal numbers are others, of fewer bits, so not path by path.
    assert_close(greeks(option, paths=100_000, wrt="spot", dtype=torch.float32), right, 0.01)


def test_a_payoff_that_cannot_be_compiled_has_the_same_numbers():
    compiled = payoff(lambda x: torch.relu(x.amax(0) - 100.0), [0.5, 1.0], lipschitz=True)
    sorting = payoff(lambda x: torch.relu(x.sort(dim=0).values[-1] - 100.0), [0.5, 1.0],
                     lipschitz=True)  # fmt: skip
    right = greeks(compiled, steps=2, paths=500, wrt=("spot", "sigma"))
    with pytest.warns(UncompiledWarning, match="runs uncompiled: the same numbers"):
        found = greeks(sorting, steps=2, paths=500, wrt=("spot", "sigma"))
    for name, estimate in right.entries.items():
        assert found.entries[name].value == pytest.approx(estimate.value, rel=1e-12)
        assert found.entries[name].stderr == pytest.approx(estimate.stderr, rel=1e-10)


@pytest.mark.parametrize(
    "option", [CALL, pytest.param(Digital(100.0, 1.0), marks=pytest.mark.slow)]
)
def test_a_flat_surface_of_scipy_is_black_and_scholes(option):
    pytest.importorskip("scipy")
    spots = torch.linspace(1.0, 1000.0, 8)
    surface = LocalVolatility(0.05, [0.0, 0.5, 1.0, 2.0], spots, torch.full((4, 8), 0.2))
    names = "spot"
    right = greeks(option, steps=2, paths=500, wrt=names, scheme="euler")
    with pytest.warns(UncompiledWarning, match="of LocalVolatility or the payoff"):
        found = greeks(option, model=surface, steps=2, paths=500, wrt=names, scheme="euler")
    assert found.estimators == right.estimators
    for name, estimate in right.entries.items():
        assert found.entries[name].value == pytest.approx(estimate.value, rel=1e-6)
