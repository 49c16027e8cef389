"""What must hold of greeks whatever their values: parities, homogeneity, limits, other routes."""

import math
from typing import Any

import pytest
import torch

import sdesens
from sdesens.errors import UnsupportedError
from sdesens.models import CIR, BlackScholes, Heston, MultiAssetBlackScholes, Vasicek
from sdesens.pricing import (
    Asian,
    Barrier,
    Basket,
    BestOf,
    Call,
    Digital,
    Exchange,
    Forward,
    Lookback,
    Put,
    VarianceSwap,
    WorstOf,
    ZeroCouponBond,
    closed_form_greeks,
)
from sdesens.pricing import formulas as closed

RATE, SIGMA, DIVIDEND = 0.05, 0.2, 0.01
MODEL = BlackScholes(RATE, SIGMA, DIVIDEND)
PAIR = MultiAssetBlackScholes(RATE, [0.2, 0.3], [0.5])
STATE = {"spot": 100.0, "maturity": 1.0, "rate": RATE, "sigma": SIGMA, "dividend": DIVIDEND}


def greeks(
    option, x0=(100.0,), model: Any = MODEL, paths: Any = 20_000, steps: Any = 2, **arguments: Any
):
    return sdesens.greeks(model, option, x0, paths=paths, steps=steps, **arguments)


def assert_sum(parts, whole, names, tolerance=1e-11):
    """Signed reports add up to another, on the same noise."""
    for name in names:
        total = sum(sign * report[name].value for sign, report in parts)
        right = whole[name].value
        assert abs(total - right) <= tolerance * (1 + abs(right)), name


# --- parities, path by path ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def call():
    return greeks(Call(100.0, 1.0), wrt=("spot", "rate", "sigma", "maturity", "strike"))


def test_put_call_parity(call):
    names = ("spot", "rate", "sigma", "maturity", "strike")
    put, forward = (greeks(p, wrt=names) for p in (Put(100.0, 1.0), Forward(100.0, 1.0)))
    assert_sum([(1, call), (-1, put)], forward, ("price", *names))


def test_in_and_out_are_the_vanilla_option_under_continuous_monitoring(call):
    out, knocked_in = (
        greeks(Barrier(100.0, 90.0, 1.0, kind=f"down-and-{kind}"), wrt=("spot", "sigma"))
        for kind in ("out", "in")
    )
    assert_sum([(1, out), (1, knocked_in)], call, ("price", "spot", "sigma"))


def test_in_and_out_are_the_vanilla_option_watched_at_dates(call):
    names = ("spot", "sigma", "strike", "barrier")
    out, knocked_in = (
        greeks(Barrier(100.0, 95.0, 1.0, kind=f"down-and-{kind}", dates=2), wrt=names)
        for kind in ("out", "in")
    )
    assert out.estimators["spot",] == knocked_in.estimators["spot",] == "one-step-survival"
    assert_sum([(1, out), (1, knocked_in)], call, ("price", "spot", "sigma", "strike"))
    assert abs(out["barrier"].value + knocked_in["barrier"].value) < 1e-10


def test_digital_call_and_put_are_the_discount_factor():
    names = ("spot", "rate")
    parts = [
        greeks(Digital(105.0, 1.0, option=option), wrt=names, estimator="conditional")
        for option in ("call", "put")
    ]
    whole = greeks(ZeroCouponBond(1.0), wrt=names)
    assert whole["price"].value == pytest.approx(math.exp(-RATE), rel=1e-14)
    assert_sum([(1, p) for p in parts], whole, ("price", *names))


@pytest.mark.slow
def test_best_and_worst_of_two_are_both():
    names, x0 = ("spots", "rho"), (100.0, 95.0)
    best, worst, *single = (
        greeks(p, x0, PAIR, wrt=names)
        for p in (
            BestOf(100.0, 1.0), WorstOf(100.0, 1.0),
            Basket(100.0, 1.0, [1.0, 0.0]), Basket(100.0, 1.0, [0.0, 1.0]),
        )
    )  # fmt: skip
    for name in ("price", *names):
        total = best[name].value + worst[name].value
        right = single[0][name].value + single[1][name].value
        assert torch.allclose(torch.as_tensor(total), torch.as_tensor(right), atol=1e-10), name


def test_a_basket_of_one_asset_is_its_call(known, assert_close):
    model = MultiAssetBlackScholes(RATE, [0.2, 0.3], [0.5])
    report = greeks(Basket(100.0, 1.0, [1.0, 0.0]), (100.0, 95.0), model, paths=100_000, steps=1,
                    wrt=("spots", "sigma", "rho"))  # fmt: skip
    right = known(
        lambda spot, sigma: closed.black_call(spot, 100.0, 1.0, RATE, sigma), spot=100.0, sigma=0.2
    )
    right = {"price": right["price"], "spots[0]": right["spot"], "sigma[0]": right["sigma"]}
    assert_close(report, right, 0.02)
    for name in ("spots[1]", "sigma[1]", "rho[0]"):
        assert report[name].value == report[name].stderr == 0.0


# --- homogeneity ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "names", "estimator"),
    [
        (Digital(105.0, 1.0, pays="asset"), ("strike",), "conditional"),
        (Asian(100.0, 1.0, 2, average="geometric"), ("strike",), "auto"),
        (Barrier(100.0, 90.0, 1.0), ("strike", "barrier"), "auto"),
        (Barrier(100.0, 120.0, 1.0, kind="up-and-out", dates=2), ("strike", "barrier"), "auto"),
        (Lookback(1.0), (), "auto"),
        (Lookback(1.0, strike=100.0, dates=2), ("strike",), "auto"),
    ],
)
def test_a_price_in_money_is_homogeneous_in_all_prices(option, names, estimator):
    # By Euler: S dP/dS + K dP/dK + H dP/dH = P, path by path.
    report = greeks(option, wrt=("spot", *names), estimator=estimator, paths=2000)
    total = 100.0 * report["spot"].value
    total += sum(getattr(option, name).item() * report[name].value for name in names)
    assert total == pytest.approx(report["price"].value, rel=1e-10)
    assert report["price"].value > 1.0


def test_a_cash_digital_is_homogeneous_of_degree_zero():
    report = greeks(Digital(105.0, 1.0), wrt=("spot", "strike"), estimator="conditional")
    total = 100.0 * report["spot"].value + 105.0 * report["strike"].value
    assert abs(total) < 1e-12 < report["spot"].value


# --- limits --------------------------------------------------------------------------------------


def test_limits_of_a_call():
    def near(spot=100.0, sigma=SIGMA, maturity=1.0):
        model = BlackScholes(RATE, sigma)
        return greeks(Call(100.0, maturity), (spot,), model, wrt=("spot", "sigma"), paths=20_000)

    calm = near(sigma=1e-6)
    assert calm["price"].value == pytest.approx(100.0 - 100.0 * math.exp(-RATE), abs=1e-5)
    assert calm.delta.value == pytest.approx(1.0, abs=1e-7)
    soon = near(spot=110.0, maturity=1e-6)
    assert soon["price"].value == pytest.approx(10.0, abs=4.5 * soon["price"].stderr + 1e-5)
    assert soon.delta.value == pytest.approx(1.0, abs=1e-5)
    soon = near(spot=90.0, maturity=1e-6)
    assert soon["price"].value == soon.delta.value == soon.vega.value == 0.0
    deep = near(spot=1e4)
    assert abs(deep.delta.value - 1.0) < 4.5 * deep.delta.stderr < 0.01
    assert abs(deep.vega.value) < 4.5 * deep.vega.stderr
    far = near(spot=1.0)
    assert far["price"].value == far["price"].stderr == far.delta.value == 0.0


def test_a_barrier_out_of_reach_is_none(call):
    for option in (Barrier(100.0, 1e-3, 1.0), Barrier(100.0, 1e-3, 1.0, dates=2)):
        report = greeks(option, wrt=("spot", "sigma"))
        for name in ("price", "spot", "sigma"):
            assert report[name].value == pytest.approx(call[name].value, rel=1e-10)


def test_a_spot_beyond_a_continuous_barrier_has_met_it():
    report = greeks(Barrier(100.0, 90.0, 1.0), (85.0,), wrt=("spot", "sigma"))
    assert report["price"].value == report.delta.value == report.vega.value == 0.0


# --- barriers watched at dates -------------------------------------------------------------------


def brute_force(kind, option, dates, barrier, spot=100.0, strike=100.0, paths=400_000):
    """Mean and standard error of a discrete barrier option, by plain torch on other noise."""
    generator = torch.Generator().manual_seed(1234)
    alive, x, now = torch.ones(paths, dtype=torch.bool), torch.full((paths,), spot).double(), 0.0
    for date in sorted({*dates, 1.0}):
        z = torch.randn(paths, generator=generator, dtype=torch.float64)
        h = date - now
        x = x * torch.exp((RATE - DIVIDEND - SIGMA**2 / 2) * h + SIGMA * h**0.5 * z)
        now = date
        if date in dates:
            alive &= x > barrier if kind.startswith("down") else x < barrier
    paid = torch.relu(x - strike if option == "call" else strike - x) * math.exp(-RATE)
    paid = paid * (alive if kind.endswith("out") else ~alive)
    return paid.mean().item(), paid.std().item() / paths**0.5


@pytest.mark.parametrize(
    ("kind", "option", "dates", "barrier"),
    [
        ("down-and-out", "call", (0.25, 0.5, 0.75, 1.0), 95.0),
        ("up-and-out", "put", (0.5, 1.0), 105.0),
        ("down-and-out", "put", (0.5, 1.0), 80.0),
        ("down-and-in", "call", (0.5, 0.75), 95.0),
        ("up-and-in", "put", (0.25,), 105.0),
    ],
)
def test_one_step_survival_has_the_price_of_a_plain_simulation(kind, option, dates, barrier):
    right, error = brute_force(kind, option, dates, barrier)
    contract = Barrier(100.0, barrier, 1.0, kind=kind, option=option, dates=dates)
    report = greeks(contract, steps=4, paths=100_000, wrt=())
    assert report.estimators[()] == "one-step-survival"
    found = report["price"]
    assert abs(found.value - right) < 4.5 * math.hypot(error, found.stderr)
    assert math.hypot(error, found.stderr) < 0.02 * right


@pytest.mark.parametrize(
    ("kind", "barrier", "names"),
    [
        pytest.param("down-and-out", 95.0, ("spot",), marks=pytest.mark.slow),
        ("up-and-out", 120.0, ("spot", "sigma")),
    ],
)
def test_one_step_survival_and_weights_agree(kind, barrier, names):
    contract = Barrier(100.0, barrier, 1.0, kind=kind, dates=(0.5, 1.0))
    steered = greeks(contract, paths=100_000, wrt=names)
    weighted = greeks(contract, paths=100_000, wrt=names, estimator="bismut", seed=1)
    for name in ("price", *names):
        a, b = steered[name], weighted[name]
        assert abs(a.value - b.value) < 4.5 * math.hypot(a.stderr, b.stderr), name
        assert a.stderr < b.stderr, name
    assert weighted.delta.stderr < 0.02


@pytest.mark.slow
def test_gamma_by_one_step_survival_is_that_of_a_bump_on_the_same_noise():
    # The expectation over the steps after the last date leaves no kink, so the same paths give
    # the difference of their deltas to the square of the bump.
    contract = Barrier(100.0, 95.0, 1.0, dates=(0.5, 1.0))

    def at(spot):
        return greeks(contract, (spot,), wrt="spot", order=2, paths=2000)

    middle, up, down = at(100.0), at(100.01), at(99.99)
    gamma = (up.delta.value - down.delta.value) / 0.02
    assert middle.gamma.value == pytest.approx(gamma, rel=1e-5)
    assert middle.delta.value == pytest.approx((up["price"].value - down["price"].value) / 0.02,
                                               rel=1e-6)  # fmt: skip


def test_a_barrier_option_is_rough_at_maturity_whenever_it_is_watched():
    # Its kink is there: a weight that moved the path at maturity would miss it at order 2.
    assert list(Barrier(100.0, 90.0, 1.0, dates=[0.5]).rough) == [0.5, 1.0]
    assert list(Barrier(100.0, 90.0, 1.0, dates=[0.5, 1.0]).rough) == [0.5, 1.0]
    assert list(Barrier(100.0, 90.0, 1.0).rough) == [1.0]


# --- watched all the time ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "option", "barrier"),
    [("up-and-out", "call", 130.0), ("up-and-in", "put", 110.0)],
)
def test_a_continuous_barrier_has_its_closed_form_with_one_step_and_with_four(
    kind, option, barrier, known, assert_close
):
    right = known(
        lambda spot, sigma, barrier: closed.barrier_option(
            spot, 100.0, barrier, 1.0, RATE, sigma, DIVIDEND, kind=kind, option=option
        ),
        spot=100.0, sigma=SIGMA, barrier=barrier,
    )  # fmt: skip
    contract = Barrier(100.0, barrier, 1.0, kind=kind, option=option)
    for steps in (1, 4):
        report = greeks(contract, paths=100_000, steps=steps, wrt=("spot", "sigma", "barrier"))
        assert_close(report, right, 0.1)


@pytest.mark.parametrize(
    ("strike", "option", "formula"),
    [
        (None, "call", closed.floating_lookback_call),
        (105.0, "put", closed.fixed_lookback_put),
    ],
)
def test_a_continuous_lookback_has_its_closed_form_with_one_step_and_with_four(
    strike, option, formula, known, assert_close
):
    fixed = () if strike is None else (strike,)
    right = known(
        lambda spot, sigma: formula(spot, *fixed, 1.0, RATE, sigma, DIVIDEND),
        spot=100.0, sigma=SIGMA,
    )  # fmt: skip
    contract = Lookback(1.0, strike=strike, option=option)
    for steps in (1, 4):
        report = greeks(contract, paths=50_000, steps=steps, wrt=("spot", "sigma"))
        assert_close(report, right, 0.05)


def test_the_bridge_has_the_variance_of_all_channels():
    # Without volatility of variance this is Black-Scholes, most of it on the channel of v.
    model = Heston(RATE, 1.5, SIGMA**2, 1e-9, -0.9, DIVIDEND)
    right = closed.barrier_option(100.0, 100.0, 90.0, 1.0, RATE, SIGMA, DIVIDEND).item()
    report = greeks(Barrier(100.0, 90.0, 1.0), (100.0, SIGMA**2), model, steps=1, paths=100_000,
                    wrt=())  # fmt: skip
    assert abs(report["price"].value - right) < 4.5 * report["price"].stderr < 0.03 * right


# --- other routes --------------------------------------------------------------------------------


def test_an_asian_option_has_the_price_and_the_bumps_of_a_plain_simulation():
    dates, paths = (0.25, 0.5, 1.0), 200_000

    def brute(spot=100.0, sigma=SIGMA):
        generator = torch.Generator().manual_seed(77)
        x, total, now = torch.full((paths,), spot).double(), torch.zeros(paths).double(), 0.0
        for date in dates:
            z, h = torch.randn(paths, generator=generator, dtype=torch.float64), date - now
            x = x * torch.exp((RATE - DIVIDEND - sigma**2 / 2) * h + sigma * h**0.5 * z)
            total, now = total + x, date
        return torch.relu(total / 3 - 100.0) * math.exp(-RATE)

    rows = {
        "price": brute(),
        "spot": (brute(100.1) - brute(99.9)) / 0.2,
        "sigma": (brute(sigma=SIGMA + 1e-4) - brute(sigma=SIGMA - 1e-4)) / 2e-4,
    }
    report = greeks(Asian(100.0, 1.0, dates), steps=4, paths=100_000, wrt=("spot", "sigma"))
    for name, row in rows.items():
        right, error = row.mean().item(), row.std().item() / paths**0.5
        gap = abs(report[name].value - right)
        assert gap < 4.5 * math.hypot(error, report[name].stderr), name
        assert report[name].stderr < 0.02 * right, name


def test_a_variance_swap_has_its_expectation(known, assert_close):
    # Each squared return has the mean sigma^2 h + (r - q - sigma^2 / 2)^2 h^2.
    dates = 4
    right = known(
        lambda sigma, rate: torch.exp(-rate)
        * (sigma**2 + (rate - DIVIDEND - 0.5 * sigma**2) ** 2 / dates - 0.03),
        sigma=SIGMA, rate=RATE,
    )  # fmt: skip
    swap = VarianceSwap(0.03, 1.0, dates)
    report = greeks(swap, steps=4, paths=200_000, wrt=("spot", "sigma", "rate"))
    assert_close(report, right, 0.05, ("price", "sigma"))
    assert abs(report.rho.value - right["rate"]) < 4.5 * report.rho.stderr
    assert abs(report.delta.value) < 1e-15


def test_an_exchange_option_is_margrabes(known, assert_close):
    right = known(
        lambda s0, s1, v0, v1, rho: closed.exchange_option(s0, s1, 1.0, v0, v1, rho),
        s0=100.0, s1=95.0, v0=0.2, v1=0.3, rho=0.5,
    )  # fmt: skip
    report = greeks(Exchange(1.0), (100.0, 95.0), PAIR, steps=1, paths=200_000,
                    wrt=("spots", "sigma", "rho", "rate"))  # fmt: skip
    names = ("price", "spots[0]", "spots[1]", "sigma[0]", "sigma[1]", "rho[0]")
    assert_close(report, dict(zip(names, right.values(), strict=True)), 0.1)
    assert abs(report["rate"].value) < 1e-12  # it does not depend on the rate, on no path


def test_vasiceks_bond_has_its_closed_form(known):
    # The rate has no bias, and the trapezoidal integral one of (h kappa)^2 / 12 = 1e-5 of what
    # moves it.
    def bond(rate, kappa, mean, sigma):
        b = (1 - torch.exp(-kappa)) / kappa
        a = (mean - sigma**2 / (2 * kappa**2)) * (b - 1) - sigma**2 * b**2 / (4 * kappa)
        return torch.exp(a - b * rate)

    state = {"rate": 0.02, "kappa": 0.5, "mean": 0.04, "sigma": 0.03}
    model = Vasicek(0.5, 0.04, 0.03)
    report = greeks(ZeroCouponBond(1.0), (0.02,), model, steps=50, paths=100_000, antithetic=True)
    right = known(bond, **state)
    for name, value in right.items():
        found = report[name]
        assert abs(found.value - value) < 4.5 * found.stderr + 1e-4 * abs(value), name
        assert found.stderr < 0.02 * abs(value), name


def test_the_bond_of_cox_ingersoll_and_ross_has_its_closed_form(known):
    def bond(rate, kappa, theta, xi):
        g = (kappa**2 + 2 * xi**2).sqrt()
        e = torch.expm1(g)
        b = 2 * e / ((g + kappa) * e + 2 * g)
        a = 2 * kappa * theta / xi**2 * torch.log(2 * g * torch.exp((kappa + g) / 2)
                                                  / ((g + kappa) * e + 2 * g))  # fmt: skip
        return torch.exp(a - b * rate)

    state = {"rate": 0.02, "kappa": 0.5, "theta": 0.04, "xi": 0.1}
    report = greeks(ZeroCouponBond(1.0), (0.02,), CIR(0.5, 0.04, 0.1), steps=25, paths=50_000,
                    wrt=("rate", "kappa", "theta"))  # fmt: skip
    right = known(bond, **state)
    for name in ("price", "rate", "kappa", "theta"):
        found, value = report[name], right[name]
        # trapezoidal integral of 25 steps: (h kappa)^2 / 12 = 3e-5, and the step is Andersen's
        assert abs(found.value - value) < 4.5 * found.stderr + 2e-4 * abs(value), name
        assert found.stderr < 0.02 * abs(value), name


HARD = Heston(0.025, kappa=1.5768, theta=0.0398, xi=0.5751, rho=-0.5711, dividend=0.01)


def test_a_variance_that_stands_still_on_some_paths_gives_no_survival():
    dated = Barrier(80.0, 100.0, 1.0, dates=[0.5, 1.0])
    with pytest.raises(UnsupportedError, match="variance is 0 on some paths"):
        sdesens.greeks(HARD, dated, [100.0, 0.0175], paths=100, steps=10)


def test_a_barrier_watched_at_maturity_alone_is_averaged_over_all_steps_in_a_mixture():
    last = Barrier(80.0, 100.0, 1.0, dates=[1.0])
    start = [100.0, 0.0175]
    report = sdesens.greeks(HARD, last, start, paths=100_000, steps=10, wrt=("spot",))
    assert set(report.estimators.values()) == {"conditional"}
    # (S - 80) 1{S > 100} is a call at 100 and 20 digitals.
    parts = [(Call(100.0, 1.0), 1.0), (Digital(100.0, 1.0), 20.0)]
    known = sum(w * closed_form_greeks(HARD, p, start)["spot",] for p, w in parts)
    assert abs(report.delta.value - known) < 4.5 * report.delta.stderr + 2e-3 < 0.02


def test_an_expectation_over_the_last_step_does_not_hide_a_jump_before_it():
    dated = Barrier(100.0, 85.0, 1.0, dates=4)
    with pytest.raises(UnsupportedError, match="jumps at dates before"):
        sdesens.greeks(BlackScholes(0.05, 0.2), dated, [100.0], paths=100, steps=4,
                       estimator="conditional")  # fmt: skip
