"""Heston against an independent integral, its limits, and hard parameters."""

import itertools

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from sdesens.pricing import formulas as f
from tests.pricing.formula_tools import assert_all_finite, derivative

NAMES = ("spot", "strike", "maturity", "rate", "variance", "kappa", "theta", "xi", "rho")
NAG = dict(
    zip(NAMES, (100.0, 100.0, 1.0, 0.025, 0.0175, 1.5768, 0.0398, 0.5751, -0.5711), strict=True)
)
LEWIS = dict(zip(NAMES, (100.0, 100.0, 1.0, 0.01, 0.04, 4.0, 0.25, 1.0, -0.5), strict=True))
SETS = {
    "NAG": NAG | {"dividend": 0.01},
    "Lewis": LEWIS | {"dividend": 0.02},
    "short, in the money": NAG | {"maturity": 0.1, "spot": 110.0},
    "long, out of the money": LEWIS | {"maturity": 5.0, "strike": 180.0},
    "wild": NAG | {"kappa": 0.5, "theta": 0.04, "xi": 1.0, "rho": -0.9, "strike": 90.0},
    "no mean reversion": NAG | {"kappa": 0.0, "rho": 0.0},
    "positive correlation": LEWIS | {"rho": 0.6, "strike": 120.0},
}


def probability(j, spot, strike, maturity, rate, variance, kappa, theta, xi, rho, dividend=0.0):
    """``P_1`` and ``P_2`` as Heston 1993 writes them, each by an adaptive rule."""
    u = (0.5, -0.5)[j]
    b = kappa - rho * xi if j == 0 else kappa

    def integrand(p):
        beta = b - rho * xi * 1j * p
        d = np.sqrt(beta**2 - xi**2 * (2 * u * 1j * p - p * p))
        g, decay = (beta - d) / (beta + d), np.exp(-d * maturity)
        D = (beta - d) / xi**2 * (1 - decay) / (1 - g * decay)
        C = (beta - d) * maturity - 2 * np.log((1 - g * decay) / (1 - g))
        C = kappa * theta / xi**2 * C + (rate - dividend) * 1j * p * maturity
        return (np.exp(C + D * variance + 1j * p * np.log(spot / strike)) / (1j * p)).real

    edges = (0, 1, 5, 20, 100, 400, 1600)
    parts = [
        quad(integrand, *ends, epsabs=1e-13, epsrel=1e-12, limit=300)[0]
        for ends in itertools.pairwise(edges)
    ]
    return 0.5 + sum(parts) / np.pi


def independent_call(**a):
    q = a.get("dividend", 0.0)
    asset = a["spot"] * np.exp(-q * a["maturity"]) * probability(0, **a)
    return asset - a["strike"] * np.exp(-a["rate"] * a["maturity"]) * probability(1, **a)


@pytest.mark.parametrize("a", SETS.values(), ids=SETS)
def test_call_and_digital_agree_with_an_independent_integral(a):
    assert abs(f.heston_call(**a).item() - independent_call(**a)) < 1e-9
    digital = np.exp(-a["rate"] * a["maturity"]) * probability(1, **a)
    assert abs(f.heston_digital_call(**a).item() - digital) < 1e-11


def test_the_derivative_in_theta_of_lewis_set_is_that_of_the_independent_integral():
    a, h = SETS["Lewis"], 2e-3
    differences = [
        (
            independent_call(**a | {"theta": a["theta"] + e})
            - independent_call(**a | {"theta": a["theta"] - e})
        )
        / (2 * e)
        for e in (h, 2 * h)
    ]
    extrapolated = (4 * differences[0] - differences[1]) / 3
    assert abs(derivative(f.heston_call, a, "theta") - extrapolated) < 1e-7


@pytest.mark.parametrize("a", SETS.values(), ids=SETS)
def test_call_minus_put_is_the_forward_and_the_digitals_add_up_to_a_bond(a):
    market = {k: a[k] for k in ("spot", "strike", "maturity", "rate")}
    forward = f.forward_value(**market, dividend=a.get("dividend", 0.0))
    assert abs(f.heston_call(**a) - f.heston_put(**a) - forward) < 1e-12
    bond = np.exp(-a["rate"] * a["maturity"])
    both = f.heston_digital_call(**a, cash=3.0) + f.heston_digital_put(**a, cash=3.0)
    assert abs(both.item() - 3 * bond) < 1e-13


@pytest.mark.parametrize("a", SETS.values(), ids=SETS)
def test_a_digital_is_minus_the_derivative_of_a_call_in_the_strike(a):
    digital = derivative(f.heston_digital_call, a)
    assert abs(digital + derivative(f.heston_call, a, "strike")) < 1e-11
    density = derivative(f.heston_digital_call, a, "strike")
    assert abs(density + derivative(f.heston_call, a, "strike", "strike")) < 1e-11


@pytest.mark.parametrize("rho", [-0.7, 0.0, 1.0])
@pytest.mark.parametrize("strike", [60.0, 100.0, 150.0])
def test_without_volatility_of_variance_it_is_black_at_the_mean_variance(rho, strike):
    a = SETS["NAG"] | {"rho": rho, "strike": strike, "xi": 0.0}
    fair = f.variance_swap_rate(a["maturity"], a["variance"], a["kappa"], a["theta"]).item()
    market = {k: a[k] for k in ("spot", "strike", "maturity", "rate", "dividend")}
    black = f.black_call(**market, sigma=fair**0.5).item()
    assert abs(f.heston_call(**a).item() - black) < 1e-12
    # The derivative in xi is continuous there, not an artefact of the point.
    near = derivative(f.heston_call, a | {"xi": 1e-5}, "xi")
    assert abs(derivative(f.heston_call, a, "xi") - near) < 2e-3 * max(1.0, abs(near))


@pytest.mark.parametrize(
    "change",
    [
        {"rho": 1.0},
        {"rho": -1.0},
        {"kappa": 0.0, "rho": 1.0},
        {"xi": 1e-3, "maturity": 1 / 365, "strike": 60.0},
        {"xi": 5.0, "rho": -0.9},
        {"variance": 0.0},
        {"theta": 0.0},
        {"variance": 1e-6, "theta": 1e-6, "xi": 1.0},
        {"maturity": 30.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("strike", [50.0, 100.0, 105.0, 200.0])
def test_twice_the_nodes_and_another_angle_change_nothing(monkeypatch, change, strike):
    from sdesens.pricing.formulas import _heston_integral as integral  # noqa: PLC0415
    from sdesens.pricing.formulas._special import panels  # noqa: PLC0415

    a = SETS["NAG"] | {"strike": strike} | change
    names = [(), ("variance",), ("xi",), ("spot", "spot")]
    usual = [derivative(f.heston_call, a, *n) for n in names]
    nodes, weights = panels(32, 24)
    monkeypatch.setattr(integral, "_NODES", nodes)
    monkeypatch.setattr(integral, "_WEIGHTS", weights)
    monkeypatch.setattr(integral, "_TRIED", 1 + (integral._TRIED - 1) * 1.2)
    for name, value in zip(names, usual, strict=True):
        finer = derivative(f.heston_call, a, *name)
        assert abs(value - finer) < 1e-9 * max(1.0, abs(finer)), name


def test_far_strikes_a_day_before_expiry_are_worth_nothing_or_their_intrinsic_value():
    a = SETS["NAG"] | {"maturity": 1 / 365}
    strikes = torch.tensor([20.0, 50.0, 200.0, 500.0], dtype=torch.float64)
    calls = f.heston_call(**a | {"strike": strikes})
    market = {"spot": 100.0, "maturity": 1 / 365, "rate": 0.025, "dividend": 0.01}
    intrinsic = f.forward_value(strike=strikes, **market).clamp(min=0)
    assert (calls - intrinsic).abs().max() < 1e-12


@pytest.mark.parametrize(
    "change",
    [
        {"maturity": 0.0},
        {"xi": 0.0},
        {"kappa": 0.0},
        {"kappa": 0.0, "xi": 0.0},
        {"variance": 0.0, "theta": 0.0},
        {"variance": 0.0},
        {"rho": 1.0},
        {"maturity": 1e-9},
    ],
    ids=str,
)
@pytest.mark.parametrize("formula", [f.heston_call, f.heston_digital_put])
def test_degenerate_inputs_have_finite_derivatives_up_to_the_second(formula, change):
    assert_all_finite(formula, SETS["NAG"] | change)


def test_without_time_it_is_the_intrinsic_value():
    a = SETS["NAG"] | {"maturity": 0.0, "spot": 103.0}
    assert f.heston_call(**a).item() == 3.0
    assert derivative(f.heston_call, a, "spot") == 1.0
    assert f.heston_put(**a).item() == 0.0


def test_without_mean_reversion_and_volatility_of_variance_it_is_the_limit():
    a = SETS["NAG"] | {"kappa": 0.0, "xi": 0.0}
    market = {k: a[k] for k in ("spot", "strike", "maturity", "rate", "dividend")}
    black = f.black_call(**market, sigma=a["variance"] ** 0.5).item()
    assert abs(f.heston_call(**a).item() - black) < 1e-8
    near = derivative(f.heston_call, a | {"kappa": 1e-4, "xi": 0.0}, "kappa")
    assert abs(derivative(f.heston_call, a, "kappa") - near) < 1e-2 * abs(near)


def test_parameters_broadcast_against_strikes():
    strikes = torch.linspace(80.0, 120.0, 5, dtype=torch.float64)
    xi = torch.tensor([[0.2], [0.6]], dtype=torch.float64)
    a = SETS["NAG"] | {"strike": strikes, "xi": xi}
    table = f.heston_call(**a)
    assert table.shape == (2, 5)
    single = f.heston_call(**a | {"strike": 90.0, "xi": 0.6})
    assert abs(table[1, 1] - single) < 1e-12


def test_it_can_be_mapped_and_differentiated_by_torch_func():
    a = SETS["NAG"]

    def price(spot):
        return f.heston_call(**a | {"spot": spot})

    spots = torch.tensor([90.0, 110.0], dtype=torch.float64)
    gammas = torch.func.vmap(torch.func.grad(torch.func.grad(price)))(spots)
    right = [derivative(f.heston_call, a | {"spot": s}, "spot", "spot") for s in (90.0, 110.0)]
    assert torch.allclose(gammas, torch.tensor(right, dtype=torch.float64), atol=1e-12)


def test_the_variance_swap_rate_is_the_mean_of_the_expected_variance():
    v0, kappa, theta, T = 0.09, 1.3, 0.04, 2.0
    mean = quad(lambda t: theta + (v0 - theta) * np.exp(-kappa * t), 0, T)[0] / T
    assert abs(f.variance_swap_rate(T, v0, kappa, theta).item() - mean) < 1e-14
    assert f.variance_swap_rate(T, v0, 0.0, theta).item() == v0
