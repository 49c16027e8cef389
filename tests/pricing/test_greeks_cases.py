"""Faults reported from the field about greeks by simulation, with the right values."""

import math
from typing import Any

import pytest
import torch

import sdesens
from sdesens.errors import NotLipschitzError, UnsupportedError
from sdesens.models import (
    BlackScholes,
    GeometricBrownianMotion,
    Heston,
    MertonJumpDiffusion,
    MultiAssetBlackScholes,
)
from sdesens.pricing import (
    Asian,
    Barrier,
    Call,
    Digital,
    Exchange,
    Forward,
    Lookback,
    Put,
    payoff,
)
from sdesens.pricing.formulas import exchange_option
from sdesens.pricing.probe import check_lipschitz
from sdesens.pricing.scenario import Scenario

MODEL = BlackScholes(rate=0.05, sigma=0.2)
CALL = Call(strike=100.0, maturity=1.0)
DIGITAL = Digital(strike=110.0, maturity=1.0)
HESTON = {"rate": 0.03, "kappa": 1.5, "theta": 0.04, "xi": 0.3, "rho": -0.7}


def greeks(model, option, x0=(100.0,), paths: Any = 2000, steps: Any = 1, **arguments: Any):
    return sdesens.greeks(model, option, x0, paths=paths, steps=steps, **arguments)


@pytest.fixture(scope="module")
def call():
    return greeks(MODEL, CALL, paths=200_000, steps=2)


# --- cases 23 and 29 -----------------------------------------------------------------------------


def test_the_greeks_of_a_call_are_those_of_black_and_scholes(call, assert_close):
    right = {
        "price": 10.450583572, "spot": 0.636830651, "sigma": 37.524034692, "rate": 53.232481545,
        "dividend": -63.6830651, "maturity": 6.414028,
    }  # fmt: skip
    assert_close(call, right, 0.01)
    assert set(call.estimators.values()) == {"pathwise"}


def test_the_names_of_the_trade_are_the_derivatives(call):
    assert call.delta == call["spot"]
    assert call.vega == call["sigma"]
    assert call.rho == call["rate"]
    assert call.theta.value == -call["maturity"].value
    assert call.theta.stderr == call["maturity"].stderr


# --- case 24 -------------------------------------------------------------------------------------


def test_gamma_is_not_a_double_autodiff(assert_close):
    paths, sigma = 60_000, 0.2
    report = greeks(MODEL, CALL, paths=paths, wrt="spot", order=2, seed=5)
    assert_close(report, {("spot", "spot"): 0.018762017}, 0.01)
    assert report.estimators["spot", "spot"] == "mixed"
    assert report.gamma == report["spot", "spot"]
    # It is the pathwise derivative of the payoff times Z / (S0 sigma sqrt T), path by path.
    bm = sdesens.BrownianPath(0.0, 1.0, (paths, 1), 1, seed=5, dtype=torch.float64)
    z = bm(torch.tensor(0.0), torch.tensor(1.0))[:, 0]
    spot = 100.0 * torch.exp(0.05 - 0.5 * sigma**2 + sigma * z)
    weight = z / (100.0 * sigma)
    slope = (spot > 100.0) * spot / 100.0 - torch.relu(spot - 100.0) / 100.0
    gamma = math.exp(-0.05) * slope * weight
    assert report.gamma.value == pytest.approx(gamma.mean().item(), rel=1e-12)
    assert report.gamma.stderr == pytest.approx(gamma.std().item() / paths**0.5, rel=1e-9)


@pytest.mark.parametrize("option", [CALL, Asian(100.0, 1.0, 1), Barrier(100.0, 90.0, 1.0)])
def test_a_pathwise_gamma_of_a_kink_is_refused_with_the_reason_and_the_cure(option):
    with pytest.raises(UnsupportedError, match=r"kink.*gamma would come out as 0.*'mixed'"):
        greeks(MODEL, option, order=2, estimator="pathwise")


def test_a_pathwise_second_derivative_of_what_is_smooth_is_taken():
    report = greeks(MODEL, Forward(100.0, 1.0), order=2, wrt="rate")
    assert report.estimators["rate", "rate"] == "pathwise"
    assert report["rate", "rate"].value == pytest.approx(-100.0 * math.exp(-0.05), rel=1e-12)


# --- case 25 -------------------------------------------------------------------------------------


def test_the_same_seed_is_common_noise():
    def price(spot, seed):
        return greeks(MODEL, CALL, (spot,), wrt=(), seed=seed)["price"].value

    # The reported .0143, and by the price's own deviation of 14.72 a path 14.72 sqrt(2 / 2000) /
    # .01 = 46.6. A standard deviation of 8 draws is off by a factor of 3 at a rate of 5e-5.
    up, down = (torch.tensor([price(s, seed) for seed in range(8)]) for s in (100.005, 99.995))
    common, other = (up - down) / 0.01, (up - down.roll(1)) / 0.01
    assert 0.0143 / 3 < common.std() < 0.0143 * 3
    assert 46.6 / 3 < other.std() < 46.6 * 3
    assert abs(common.mean() - 0.636830651) < 4.5 * 0.0143 / 8**0.5


def test_the_seed_alone_decides():
    first, again, other = (greeks(MODEL, CALL, wrt=(), seed=s) for s in (7, 7, 8))
    assert first.entries == again.entries
    assert first["price"].value != other["price"].value
    with torch.random.fork_rng():
        torch.manual_seed(3)
        assert greeks(MODEL, CALL, wrt=(), seed=7).entries == first.entries


# --- case 26 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["auto", "bismut", "likelihood-ratio", "conditional"])
def test_the_delta_of_a_digital_is_right_by_every_estimator_that_applies(estimator, assert_close):
    report = greeks(MODEL, DIGITAL, wrt="spot", estimator=estimator, paths=100_000)
    used = report.estimators["spot",]
    assert_close(report, {"spot": 0.017989113}, 0.01)
    assert used == ("bismut" if estimator == "auto" else estimator)


@pytest.mark.parametrize("estimator", ["pathwise", "mixed"])
def test_a_pathwise_derivative_of_a_jump_is_refused_with_the_reason_and_the_cure(estimator):
    with pytest.raises(UnsupportedError, match=r"it jumps.*Use estimator='auto'.*'bismut'"):
        greeks(MODEL, DIGITAL, estimator=estimator)


# --- case 27 -------------------------------------------------------------------------------------


def above_90(lipschitz):
    return payoff(lambda x: x[0] * (x[0] > 90.0), [1.0], lipschitz=lipschitz)


def test_the_boundary_term_of_a_jumping_payoff_is_there(assert_close):
    model = BlackScholes(rate=0.0, sigma=0.2)
    report = greeks(model, above_90(False), wrt="spot", paths=200_000)
    assert_close(report, {"spot": 2.373560346}, 0.01)
    assert report.estimators["spot",] == "bismut"


def test_a_jump_that_is_called_lipschitz_is_found():
    model = BlackScholes(rate=0.0, sigma=0.2)
    with pytest.raises(NotLipschitzError, match=r"moving the start .* Pass lipschitz=False"):
        greeks(model, above_90(True))


def test_a_jump_that_does_not_move_with_the_start_is_found():
    up = payoff(lambda x: (x[1] / x[0] > 1.1).to(x.dtype), [0.5, 1.0], lipschitz=True)
    with pytest.raises(NotLipschitzError, match=r"moving the model's parameters .* Pass lipschitz"):
        greeks(MODEL, up, steps=2)


def test_a_jump_is_found_where_a_correlation_cannot_be_moved_far():
    up = payoff(lambda x: (x[1] / x[0] > 1.1).to(x.dtype), [0.5, 1.0], lipschitz=True)
    with pytest.raises(NotLipschitzError, match="model's parameters"):
        greeks(Heston(**HESTON | {"rho": -0.99}), up, (100.0, 0.04), steps=2)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.relu(x[1] - x[0]),
        lambda x: x.amax(0) - x.amin(0),
        lambda x: (x[0] - x[1]).abs() ** 1.5,
        lambda x: torch.where(x[1] > 100.0, 2 * (x[1] - 100.0), x[1] - 100.0),
    ],
)
def test_what_is_lipschitz_is_not_taken_for_a_jump(fn):
    for model, x0 in ((MODEL, (100.0,)), (Heston(**HESTON), (100.0, 0.0))):
        option = payoff(fn, [0.5, 1.0], lipschitz=True)
        scenario = Scenario.of(model, option, x0, steps=2, scheme="auto", dtype=torch.float64)
        for seed in range(3):
            check_lipschitz(scenario, seed)


# --- case 28, and 21 -----------------------------------------------------------------------------


def test_without_volatility_the_derivatives_are_those_of_the_forward():
    model = BlackScholes(rate=0.05, sigma=0.0)
    for option in (CALL, Lookback(1.0, strike=100.0, dates=1)):
        report = greeks(model, option, wrt=("spot", "rate", "sigma"))
        assert report["price"].value == pytest.approx(100.0 - 100.0 * math.exp(-0.05), rel=1e-12)
        assert report.delta.value == pytest.approx(1.0, rel=1e-12)
        assert report.rho.value == pytest.approx(100.0 * math.exp(-0.05), rel=1e-12)
        # dS/dsigma = S W: the mean is 0, and it is random on each path
        assert abs(report.vega.value) < 4.5 * report.vega.stderr < 15


def test_without_volatility_a_digital_is_constant_but_at_its_strike():
    report = greeks(BlackScholes(0.05, 0.0), DIGITAL, wrt=("spot", "sigma"))
    assert report.estimators["spot",] == "conditional"
    assert report["price"].value == report.delta.value == report.vega.value == 0.0
    report = greeks(BlackScholes(0.05, 0.0), Digital(100.0, 1.0), wrt=("spot", "sigma"))
    assert report["price"].value == pytest.approx(math.exp(-0.05), rel=1e-12)
    assert report.delta.value == 0.0


def test_at_the_money_at_expiry_the_derivative_of_the_kink_is_zero():
    for option in (CALL, Put(100.0, 1.0)):
        report = greeks(BlackScholes(0.0, 0.0), option, wrt=("spot", "sigma", "rate"))
        for name in ("price", "spot", "sigma", "rate"):
            assert report[name].value == 0.0


def test_at_the_money_at_expiry_the_conditional_derivative_is_the_half():
    # of lognormal_call: the mean of the derivatives on both sides
    report = greeks(BlackScholes(0.0, 0.0), CALL, estimator="conditional", wrt=("spot", "rate"))
    assert (report.delta.value, report.rho.value) == (0.5, 50.0)


def test_no_weight_is_made_without_volatility():
    for estimator in ("bismut", "likelihood-ratio"):
        with pytest.raises(UnsupportedError, match=r"noise does not move.*Use estimator='auto'"):
            greeks(BlackScholes(0.05, 0.0), DIGITAL, estimator=estimator)


def test_a_variance_of_zero_at_the_start_is_a_value_like_others():
    report = greeks(Heston(**HESTON), CALL, (100.0, 0.0), steps=2, wrt=("x0", "rho"))
    for name in report:
        assert all(math.isfinite(v) for v in (report.entries[name].value,
                                              report.entries[name].stderr))  # fmt: skip
    assert 0.6 < report.delta.value < 0.8


@pytest.mark.parametrize(
    ("model", "x0"),
    [
        (Heston(**HESTON | {"rho": 1.0}), (100.0, 0.04)),
        (Heston(**HESTON | {"rho": -1.0}), (100.0, 0.04)),
        (MertonJumpDiffusion(0.05, 0.0, 0.75, -0.1, 0.15), (100.0,)),
    ],
)
def test_no_expectation_is_taken_over_a_channel_that_moves_nothing(model, x0):
    # Taken nevertheless it would leave the jump in, and a delta of 0.
    for option in (DIGITAL, Barrier(100.0, 90.0, 1.0, dates=2)):
        with pytest.raises(UnsupportedError, match="does not move the asset"):
            greeks(model, option, x0, steps=2, wrt="spot")
        with pytest.raises(UnsupportedError, match="does not move the asset"):
            greeks(model, option, x0, steps=2, wrt="spot", estimator="conditional")
    with pytest.raises(UnsupportedError, match="does not move the asset"):
        greeks(model, CALL, x0, steps=2, wrt="spot", order=2)


def test_a_call_has_its_pathwise_delta_at_a_correlation_of_one():
    report = greeks(Heston(**HESTON | {"rho": 1.0}), CALL, (100.0, 0.04), steps=2, wrt="spot")
    assert report.estimators["spot",] == "pathwise"
    assert 0.4 < report.delta.value < 0.6


@pytest.mark.parametrize("rho", [1.0, -1.0])
def test_the_derivative_in_a_singular_correlation_is_refused_by_name(rho):
    pair = MultiAssetBlackScholes(0.05, [0.2, 0.3], [rho])
    for model, option, x0 in (
        (pair, Exchange(1.0), (100.0, 100.0)),
        (Heston(**HESTON | {"rho": rho}), CALL, (100.0, 0.04)),
    ):
        with pytest.raises(UnsupportedError, match=r"derivative in 'rho'.*Leave it out: wrt="):
            greeks(model, option, x0)
    report = greeks(pair, Exchange(1.0), (100.0, 100.0), paths=20_000, wrt=("spots", "sigma"))
    right = exchange_option(100.0, 100.0, 1.0, 0.2, 0.3, rho).item()
    assert abs(report["price"].value - right) < 4.5 * report["price"].stderr < 0.05 * right


def test_what_is_not_finite_is_named():
    class Rooted(GeometricBrownianMotion):
        def drift(self, t, x):
            return self.mu * x + (1 - self.sigma / self.sigma.detach()).sqrt()

    model = Rooted(0.05, 0.2)
    with pytest.raises(ArithmeticError, match=r"\['sigma'\] by 'pathwise': not finite.*Leave them"):
        greeks(model, Call(100.0, 1.0), scheme="euler", wrt=("x", "sigma"))
