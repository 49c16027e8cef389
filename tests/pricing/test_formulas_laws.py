"""Parities, limits and independent integrals of the discounted formulas."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad, solve_ivp
from scipy.stats import norm

from sdesens.pricing import formulas as f
from sdesens.pricing.formulas._bivariate import bivariate_ndtr
from tests.pricing.formula_tools import assert_all_finite, derivative

MARKET = {"spot": 100.0, "strike": 105.0, "maturity": 0.7, "rate": 0.04, "sigma": 0.3}
CARRY = MARKET | {"dividend": 0.06}
JUMPS = {"intensity": 0.75, "jump_mean": -0.1, "jump_std": 0.15}
PAIR = {
    "spot1": 100.0,
    "spot2": 95.0,
    "strike": 102.0,
    "maturity": 0.8,
    "rate": 0.03,
    "sigma1": 0.2,
    "sigma2": 0.35,
    "rho": -0.4,
    "dividend1": 0.01,
    "dividend2": 0.05,
}
KINDS = ("down-and-out", "down-and-in", "up-and-out", "up-and-in")


def value(function, **arguments):
    return function(**arguments).item()


def forward(**a):
    return value(f.forward_value, **{k: v for k, v in a.items() if k != "sigma"})


def test_call_minus_put_is_the_forward_in_every_model():
    right = forward(**CARRY)
    assert abs(value(f.black_call, **CARRY) - value(f.black_put, **CARRY) - right) < 1e-12
    a = CARRY | JUMPS
    assert abs(value(f.merton_call, **a) - value(f.merton_put, **a) - right) < 1e-12
    a = {k: v for k, v in CARRY.items() if k != "maturity"} | {"dates": [0.2, 0.5, 0.7]}
    both = value(f.geometric_asian_call, **a) - value(f.geometric_asian_put, **a)
    mean = value(f.geometric_asian_call, **a | {"strike": 1e-9})
    assert abs(both - (mean - (105.0 - 1e-9) * math.exp(-0.04 * 0.7))) < 1e-11


def test_digitals_are_slopes_in_the_strike_and_make_up_the_call():
    for call, digital, more in (
        (f.black_call, f.cash_digital_call, {}),
        (f.merton_call, f.merton_digital_call, JUMPS),
    ):
        a = CARRY | more
        assert abs(value(digital, **a) + derivative(call, a, "strike")) < 1e-13
    for put, digital, more in (
        (f.black_put, f.cash_digital_put, {}),
        (f.merton_put, f.merton_digital_put, JUMPS),
    ):
        a = CARRY | more
        assert abs(value(digital, **a) - derivative(put, a, "strike")) < 1e-13
    whole = value(f.asset_digital_call, **CARRY) - 105.0 * value(f.cash_digital_call, **CARRY)
    assert abs(whole - value(f.black_call, **CARRY)) < 1e-12
    whole = value(f.cash_digital_put, **CARRY, cash=105.0) - value(f.asset_digital_put, **CARRY)
    assert abs(whole - value(f.black_put, **CARRY)) < 1e-12


@pytest.mark.parametrize("sigma", [1e-3, 0.05, 0.3, 3.0])
@pytest.mark.parametrize("strike", [80.0, 90.0, 100.0, 120.0])
@pytest.mark.parametrize("option", ["call", "put"])
@pytest.mark.parametrize(
    ("side", "barrier"),
    [("down", 70.0), ("down", 90.0), ("down", 99.0), ("up", 101.0), ("up", 110.0), ("up", 130.0)],
)
def test_knock_out_and_knock_in_make_up_the_vanilla(side, barrier, option, strike, sigma):
    a = CARRY | {"strike": strike, "sigma": sigma}
    out, into = (
        value(f.barrier_option, **a, barrier=barrier, kind=f"{side}-and-{end}", option=option)
        for end in ("out", "in")
    )
    vanilla = value(f.black_call if option == "call" else f.black_put, **a)
    assert out >= -1e-12 and into >= -1e-12
    assert abs(out + into - vanilla) < 1e-11


@pytest.mark.parametrize("strike", [85.0, 100.0, 125.0])
@pytest.mark.parametrize("option", ["call", "put"])
@pytest.mark.parametrize(("side", "barrier"), [("down", 90.0), ("up", 115.0)])
def test_a_knock_out_is_its_payoff_against_the_density_of_the_killed_motion(
    side, barrier, option, strike
):
    S, T, r, q, sigma = 100.0, 0.7, 0.04, 0.06, 0.3
    m, s, h = (r - q - sigma**2 / 2) * T, sigma * T**0.5, math.log(barrier / S)

    def integrand(x):
        image = math.exp(2 * m * h / s**2) * norm.pdf(x, 2 * h + m, s)
        gain = S * math.exp(x) - strike
        return max(gain if option == "call" else -gain, 0.0) * (norm.pdf(x, m, s) - image)

    edges = sorted({h, math.log(strike / S), 5.0 if side == "down" else -5.0, m})
    edges = [x for x in edges if (x >= h if side == "down" else x <= h)]
    total = sum(quad(integrand, *e, epsabs=1e-12)[0] for e in itertools.pairwise(edges))
    a = CARRY | {"strike": strike, "barrier": barrier}
    price = value(f.barrier_option, **a, kind=f"{side}-and-out", option=option)
    assert abs(price - math.exp(-r * T) * total) < 1e-9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", ["call", "put"])
def test_a_barrier_that_is_touched_already_leaves_nothing_or_the_vanilla(kind, option):
    barrier = 100.0 if kind.startswith("down") else 95.0
    vanilla = value(f.black_call if option == "call" else f.black_put, **CARRY)
    price = value(f.barrier_option, **CARRY, barrier=barrier, kind=kind, option=option)
    assert abs(price - (0.0 if kind.endswith("out") else vanilla)) < 1e-12


def test_a_barrier_without_volatility_is_touched_by_the_forward_or_not():
    a = MARKET | {"sigma": 0.0, "strike": 90.0, "rate": 0.1}
    rising = value(f.black_call, **a)
    assert value(f.barrier_option, **a, barrier=95.0) == rising
    assert value(f.barrier_option, **a, barrier=105.0, kind="up-and-out") == 0.0
    assert value(f.barrier_option, **a, barrier=105.0, kind="up-and-in") == rising
    assert abs(value(f.barrier_option, **a | {"sigma": 1e-4}, barrier=95.0) - rising) < 1e-11


def extreme(sign, spot, strike, maturity, rate, sigma, dividend):
    """A fixed lookback from the distribution function of the extreme of a Brownian motion."""
    m, s = (rate - dividend - sigma**2 / 2) * maturity, sigma * maturity**0.5

    def tail(y):  # P(max > y) for sign = 1, P(min < y) for -1
        image = math.exp(2 * m * y / s**2) * norm.cdf(-sign * (y + m) / s)
        return spot * math.exp(y) * (norm.cdf(sign * (m - y) / s) + image)

    k = math.log(strike / spot)
    start = max(k, 0.0) if sign > 0 else min(k, 0.0)
    beyond = abs(quad(tail, start, start + sign * (abs(m) + 12 * s), epsabs=1e-12)[0])
    return math.exp(-rate * maturity) * (max(sign * (spot - strike), 0.0) + beyond)


@pytest.mark.parametrize("strike", [80.0, 100.0, 130.0])
@pytest.mark.parametrize("dividend", [0.0, 0.04, 0.1, 0.04 + 1e-9])
def test_lookbacks_agree_with_the_law_of_the_extreme(strike, dividend):
    a = MARKET | {"strike": strike, "dividend": dividend}
    assert abs(value(f.fixed_lookback_call, **a) - extreme(1, **a)) < 1e-9
    assert abs(value(f.fixed_lookback_put, **a) - extreme(-1, **a)) < 1e-9


def test_lookbacks_are_smooth_where_rate_and_dividend_meet():
    a = {"spot": 100.0, "maturity": 0.7, "rate": 0.04, "sigma": 0.3}
    for formula in (f.floating_lookback_call, f.floating_lookback_put):
        for names in ((), ("dividend",), ("dividend", "dividend"), ("sigma", "dividend")):
            at = [derivative(formula, a | {"dividend": 0.04 + e}, *names) for e in (-1e-6, 0, 1e-6)]
            assert abs(at[0] + at[2] - 2 * at[1]) < 1e-8 * max(1.0, abs(at[1]))
            assert abs(at[2] - at[0]) < 1e-3 * max(1.0, abs(at[1]))


def test_floating_and_fixed_lookbacks_differ_by_the_forward():
    a = {k: v for k, v in CARRY.items() if k != "strike"}
    at_spot = CARRY | {"strike": 100.0}
    carry = forward(**at_spot)
    call, put = value(f.floating_lookback_call, **a), value(f.floating_lookback_put, **a)
    assert abs(call - carry - value(f.fixed_lookback_put, **at_spot)) < 1e-12
    assert abs(put + carry - value(f.fixed_lookback_call, **at_spot)) < 1e-12


def test_a_geometric_average_of_one_date_is_the_vanilla():
    a = {k: v for k, v in CARRY.items() if k != "maturity"}
    single = value(f.geometric_asian_call, **a, dates=[0.7])
    assert abs(single - value(f.black_call, **CARRY)) < 1e-12
    late = value(f.geometric_asian_call, **a, dates=[0.7], maturity=1.7)
    assert abs(late - single * math.exp(-0.04)) < 1e-12


def test_averages_have_the_moments_of_simulated_fixings():
    dates = torch.tensor([0.2, 0.5, 1.0], dtype=torch.float64)
    mean, second = f.arithmetic_average_moments(100.0, dates, 0.05, 0.4, 0.02)
    generator = torch.Generator().manual_seed(3)
    steps = torch.diff(dates, prepend=torch.zeros(1, dtype=torch.float64)).sqrt()
    normal = torch.randn(400_000, 3, generator=generator, dtype=torch.float64)
    paths = 100 * torch.exp((0.03 - 0.08) * dates + 0.4 * (normal * steps).cumsum(1))
    average, geometric = paths.mean(1), paths.log().mean(1).exp()
    put = math.exp(-0.05) * (100 - geometric).clamp(min=0)
    right = f.geometric_asian_put(100.0, 100.0, dates, 0.05, 0.4, 0.02)
    for sample, exact in ((average, mean), (average**2, second), (put, right)):
        error = sample.std() / len(sample) ** 0.5
        assert abs(sample.mean() - exact) < 4.5 * error  # one false alarm in 100,000


def test_best_and_worst_make_up_both_calls():
    both = value(f.best_of_call, **PAIR) + value(f.worst_of_call, **PAIR)
    rest = {"strike": 102.0, "maturity": 0.8, "rate": 0.03}
    one = value(f.black_call, spot=100.0, sigma=0.2, dividend=0.01, **rest)
    two = value(f.black_call, spot=95.0, sigma=0.35, dividend=0.05, **rest)
    assert abs(both - one - two) < 1e-12


@pytest.mark.parametrize("rho", [-0.99, -0.4, 0.0, 0.7, 0.999])
def test_best_and_worst_agree_with_an_integral_over_the_first_asset(rho):
    K, T, r = 102.0, 0.8, 0.03
    a = PAIR | {"rho": rho}

    def conditional(z):
        first = 100.0 * math.exp((r - 0.01 - 0.02) * T + 0.2 * T**0.5 * z)
        s = 0.35 * math.sqrt(T * (1 - rho**2))
        second = 95.0 * math.exp((r - 0.05) * T + 0.35 * rho * T**0.5 * z)
        second *= math.exp(-0.5 * 0.35**2 * rho**2 * T)

        def call(k):
            d = math.log(second / k) / s
            return second * norm.cdf(d + s / 2) - k * norm.cdf(d - s / 2)

        cap = max(first, K)
        best = cap - K + call(cap)
        return best, (call(K) - call(first) if first > K else 0.0)

    edge = (math.log(K / 100.0) - (r - 0.03) * T) / (0.2 * T**0.5)
    for k, formula in enumerate((f.best_of_call, f.worst_of_call)):
        total = sum(
            quad(lambda z, k=k: conditional(z)[k] * norm.pdf(z), *e, epsabs=1e-12, limit=200)[0]
            for e in itertools.pairwise(sorted({-10, -2, -1, 0, edge, 1, 2, 10}))
        )
        assert abs(value(formula, **a) - math.exp(-r * T) * total) < 1e-9


@pytest.mark.parametrize("rho", [-1.0, -0.9999999, -0.6, 0.0, 0.3, 0.95, 0.9999999, 1.0])
def test_the_bivariate_normal_has_its_known_values(rho):
    def cdf(h, k):
        arguments = (torch.tensor(v, dtype=torch.float64) for v in (h, k, rho))
        return bivariate_ndtr(*arguments).item()

    assert abs(cdf(0.0, 0.0) - (0.25 + math.asin(rho) / (2 * math.pi))) < 1e-14
    for h, k in ((0.3, -0.8), (-1.2, -1.2), (2.0, 0.1)):
        # P(X < h) = P(X < h, Y < k) + P(X < h, -Y < -k), the second of correlation -rho.
        other = bivariate_ndtr(*(torch.tensor(v, dtype=torch.float64) for v in (h, -k, -rho)))
        assert abs(cdf(h, k) + other.item() - norm.cdf(h)) < 1e-14
        if abs(rho) == 1:
            right = norm.cdf(min(h, k)) if rho > 0 else max(norm.cdf(h) - norm.cdf(-k), 0.0)
            assert abs(cdf(h, k) - right) < 1e-15


def test_the_derivatives_of_the_bivariate_normal_are_its_density_and_conditional_law():
    h, k, rho = (
        torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.4, -0.7, 0.98)
    )
    root = math.sqrt(1 - 0.98**2)
    dh, drho = torch.autograd.grad(bivariate_ndtr(h, k, rho), (h, rho))
    conditional = (-0.7 - 0.98 * 0.4) / root
    assert abs(dh.item() - norm.pdf(0.4) * norm.cdf(conditional)) < 1e-13
    assert abs(drho.item() - norm.pdf(0.4) * norm.pdf(conditional) / root) < 1e-12


def test_the_exchange_option_is_the_worst_of_with_no_strike():
    a = {k: v for k, v in PAIR.items() if k not in ("strike", "rate")}
    worst = value(f.worst_of_call, **PAIR | {"strike": 1e-9})
    second_asset = 100.0 * math.exp(-0.01 * 0.8)
    assert abs(second_asset - value(f.exchange_option, **a) - worst) < 1e-8


@pytest.mark.parametrize("rho", [-1.0, 1.0])
def test_fully_correlated_assets_have_the_value_of_one_normal(rho):
    a = PAIR | {"rho": rho}
    z, T = np.linspace(-10, 10, 200_001), 0.8
    one = 100 * np.exp((0.02 - 0.02) * T + 0.2 * T**0.5 * z)
    two = 95 * np.exp((-0.02 - 0.35**2 / 2) * T + 0.35 * rho * T**0.5 * z)
    best = np.maximum(np.maximum(one, two) - 102, 0) @ norm.pdf(z) * (z[1] - z[0])
    assert abs(value(f.best_of_call, **a) - math.exp(-0.03 * T) * best) < 1e-6
    near = value(f.best_of_call, **PAIR | {"rho": rho * (1 - 1e-12)})
    assert abs(value(f.best_of_call, **a) - near) < 1e-5


def test_without_jumps_merton_is_black_and_the_derivative_is_that_of_one_jump():
    a = CARRY | JUMPS | {"intensity": 0.0}
    assert abs(value(f.merton_call, **a) - value(f.black_call, **CARRY)) < 1e-13
    # dP/dlambda = T (E P(S e^J) - P(S) - (E e^J - 1) S dP/dS)
    S, T = 100.0, 0.7
    jumped = quad(
        lambda j: (
            value(f.black_call, **CARRY | {"spot": S * math.exp(j)}) * norm.pdf(j, -0.1, 0.15)
        ),
        -1.6,
        1.4,
        epsabs=1e-11,
    )[0]
    drift = math.expm1(-0.1 + 0.15**2 / 2) * S * derivative(f.black_call, CARRY, "spot")
    right = T * (jumped - value(f.black_call, **CARRY) - drift)
    assert abs(derivative(f.merton_call, a, "intensity") - right) < 1e-9


def test_jumps_without_size_change_nothing_and_many_small_ones_are_a_diffusion():
    a = CARRY | {"intensity": 3.0, "jump_mean": 0.0, "jump_std": 0.0}
    assert abs(value(f.merton_call, **a) - value(f.black_call, **CARRY)) < 1e-12
    a = CARRY | {"intensity": 500.0, "jump_mean": 0.0, "jump_std": 1e-3}
    both = value(f.black_call, **CARRY | {"sigma": math.sqrt(0.3**2 + 500e-6)})
    assert abs(value(f.merton_call, **a) - both) < 1e-5


@pytest.mark.parametrize(
    "a",
    [
        (0.03, 0.5, 0.05, 0.1, 5.0),
        (0.03, 0.0, 0.05, 0.1, 5.0),
        (0.03, 0.5, 0.05, 0.0, 5.0),
        (0.03, 0.0, 0.05, 0.0, 5.0),
        (0.03, 3.0, 0.05, 1.0, 30.0),
        (0.03, 1e-7, 0.05, 1e-5, 5.0),
    ],
)
def test_bonds_agree_with_their_differential_equations(a):
    r, kappa, mean, sigma, T = a

    def vasicek(_, y):  # B and the logarithm of the rest
        return [1 - kappa * y[0], -kappa * mean * y[0] + 0.5 * sigma**2 * y[0] ** 2]

    def cir(_, y):
        return [1 - kappa * y[0] - 0.5 * sigma**2 * y[0] ** 2, -kappa * mean * y[0]]

    for formula, field in ((f.vasicek_bond, vasicek), (f.cir_bond, cir)):
        B, A = solve_ivp(field, (0, T), [0, 0], rtol=1e-12, atol=1e-14, method="DOP853").y[:, -1]
        assert abs(formula(*a).item() / math.exp(A - r * B) - 1) < 1e-11


@pytest.mark.parametrize("option", [f.black_call, f.black_put])
@pytest.mark.parametrize("change", [{"sigma": 0.0}, {"maturity": 0.0}, {"sigma": 1e-9}])
def test_without_risk_a_price_is_intrinsic(option, change):
    a = CARRY | change
    sign = 1 if option is f.black_call else -1
    for spot in (50.0, 300.0):
        moved = a | {"spot": spot}
        assert abs(value(option, **moved) - max(sign * forward(**moved), 0.0)) < 1e-12


def test_far_from_the_money_a_call_is_nothing_or_the_forward():
    for strike in (1e-3, 1e7):
        a = CARRY | {"strike": strike}
        assert abs(value(f.black_call, **a) - max(forward(**a), 0.0)) < 1e-12


AT_THE_MONEY = {"spot": 100.0, "strike": 100.0, "maturity": 1.0, "rate": 0.0, "sigma": 0.2}
NO_STRIKE = {k: v for k, v in AT_THE_MONEY.items() if k != "strike"}
ASIAN = {k: v for k, v in AT_THE_MONEY.items() if k != "maturity"} | {"dates": [0.0, 0.5]}
EVEN = {**PAIR, "spot2": 100.0, "strike": 100.0, "rate": 0.01, "dividend2": 0.01}
EXCHANGE = {k: v for k, v in EVEN.items() if k not in ("strike", "rate")}
BOND = {"rate": 0.03, "kappa": 0.5, "maturity": 2.0}
DEGENERATE = [
    *((g, AT_THE_MONEY | c) for g in (f.black_call, f.black_put, f.cash_digital_call)
      for c in ({"sigma": 0.0}, {"maturity": 0.0}, {"sigma": 1e-8})),
    *((f.barrier_option, AT_THE_MONEY | {"barrier": 90.0} | c)
      for c in ({"sigma": 0.0}, {"maturity": 0.0}, {"barrier": 100.0}, {"sigma": 1e-8},
                {"sigma": 1e-3, "rate": -0.05}, {"sigma": 50.0}, {"kind": "up-and-in"},
                {"barrier": 110.0, "kind": "up-and-out", "option": "put"})),
    *((g, AT_THE_MONEY | c) for g in (f.fixed_lookback_call, f.fixed_lookback_put)
      for c in ({}, {"sigma": 0.0}, {"maturity": 0.0}, {"sigma": 1e-8}, {"strike": 90.0})),
    *((g, NO_STRIKE | c) for g in (f.floating_lookback_call, f.floating_lookback_put)
      for c in ({}, {"sigma": 0.0}, {"maturity": 0.0})),
    *((f.geometric_asian_call, ASIAN | c) for c in ({"sigma": 0.0}, {"dates": [0.0]})),
    *((g, EVEN | c) for g in (f.best_of_call, f.worst_of_call)
      for c in ({"rho": 1.0}, {"rho": -1.0}, {"rho": 0.0}, {"sigma1": 0.0}, {"maturity": 0.0},
                {"rho": 1.0, "sigma1": 0.35}, {"sigma1": 0.0, "sigma2": 0.0})),
    *((f.exchange_option, EXCHANGE | c) for c in ({"rho": 1.0, "sigma1": 0.35}, {"maturity": 0.0})),
    *((g, AT_THE_MONEY | JUMPS | c) for g in (f.merton_call, f.merton_digital_put)
      for c in ({"intensity": 0.0}, {"sigma": 0.0}, {"maturity": 0.0}, {"jump_std": 0.0})),
    *((f.vasicek_bond, BOND | {"mean": 0.04, "sigma": 0.01} | c)
      for c in ({"kappa": 0.0}, {"sigma": 0.0}, {"maturity": 0.0})),
    *((f.cir_bond, BOND | {"theta": 0.04, "xi": 0.1} | c)
      for c in ({"kappa": 0.0}, {"xi": 0.0}, {"maturity": 0.0}, {"kappa": 0.0, "xi": 0.0})),
]  # fmt: skip


@pytest.mark.parametrize(("formula", "arguments"), DEGENERATE)
def test_degenerate_inputs_have_finite_derivatives_up_to_the_second(formula, arguments):
    assert_all_finite(formula, arguments)
