"""Derivatives by autograd, first and second order, against differences; and under torch.func."""

import pytest
import torch

from sdesens.pricing import formulas as f
from tests.pricing.formula_tools import central, derivative

MARKET = {
    "spot": 103.0,
    "strike": 98.0,
    "maturity": 0.7,
    "rate": 0.04,
    "sigma": 0.3,
    "dividend": 0.015,
}
NO_STRIKE = {k: v for k, v in MARKET.items() if k != "strike"}
NO_SIGMA = {k: v for k, v in MARKET.items() if k != "sigma"}
ASIAN = {k: v for k, v in MARKET.items() if k != "maturity"} | {"dates": [0.2, 0.5, 0.7]}
JUMPS = MARKET | {"intensity": 0.8, "jump_mean": -0.1, "jump_std": 0.2}
ASSETS = {
    "spot1": 103.0,
    "spot2": 97.0,
    "maturity": 0.7,
    "sigma1": 0.3,
    "sigma2": 0.2,
    "rho": 0.4,
    "dividend1": 0.01,
    "dividend2": 0.03,
}
PAIR = ASSETS | {"strike": 99.0, "rate": 0.04}
HESTON = NO_SIGMA | {"variance": 0.05, "kappa": 1.3, "theta": 0.06, "xi": 0.7, "rho": -0.6}
BARRIERS = [
    (f"{side}-and-{end}", option, barrier)
    for side, barrier in (("down", 88.0), ("up", 121.0))
    for end in ("out", "in")
    for option in ("call", "put")
]
FORMULAS = {
    **{
        g.__name__: (g, MARKET)
        for g in (
            f.black_call,
            f.black_put,
            f.cash_digital_call,
            f.cash_digital_put,
            f.asset_digital_call,
            f.asset_digital_put,
            f.fixed_lookback_call,
            f.fixed_lookback_put,
        )
    },
    "forward_value": (f.forward_value, NO_SIGMA),
    "floating_lookback_call": (f.floating_lookback_call, NO_STRIKE),
    "floating_lookback_put": (f.floating_lookback_put, NO_STRIKE),
    "lookback, no carry": (f.fixed_lookback_call, MARKET | {"dividend": 0.04, "strike": 110.0}),
    "geometric_asian_call": (f.geometric_asian_call, ASIAN),
    "geometric_asian_put": (f.geometric_asian_put, ASIAN | {"maturity": 0.9}),
    **{
        f"{kind} {option}": (
            f.barrier_option,
            MARKET | {"barrier": barrier, "kind": kind, "option": option},
        )
        for kind, option, barrier in BARRIERS
    },
    "exchange_option": (f.exchange_option, ASSETS),
    "best_of_call": (f.best_of_call, PAIR),
    "worst_of_call": (f.worst_of_call, PAIR),
    "worst_of_call, close": (f.worst_of_call, PAIR | {"rho": 0.99}),
    **{
        g.__name__: (g, JUMPS)
        for g in (f.merton_call, f.merton_put, f.merton_digital_call, f.merton_digital_put)
    },
    **{
        g.__name__: (g, HESTON)
        for g in (f.heston_call, f.heston_put, f.heston_digital_call, f.heston_digital_put)
    },
    "variance_swap_rate": (
        f.variance_swap_rate,
        {k: HESTON[k] for k in ("maturity", "variance", "kappa", "theta")},
    ),
    "vasicek_bond": (
        f.vasicek_bond,
        {"rate": 0.03, "kappa": 0.6, "mean": 0.05, "sigma": 0.02, "maturity": 4.0},
    ),
    "cir_bond": (
        f.cir_bond,
        {"rate": 0.03, "kappa": 0.6, "theta": 0.05, "xi": 0.15, "maturity": 4.0},
    ),
}
CASES = [
    pytest.param(function, arguments, name, id=f"{formula}: {name}")
    for formula, (function, arguments) in FORMULAS.items()
    for name, value in arguments.items()
    if isinstance(value, float)
]


@pytest.mark.parametrize(("function", "arguments", "name"), CASES)
def test_first_and_second_derivatives_are_the_limits_of_differences(function, arguments, name):
    first = derivative(function, arguments, name)
    assert abs(first - central(function, arguments, name)) < 2e-7 * max(1.0, abs(first))
    lead = "spot" if "spot" in arguments else next(iter(arguments))
    if function in (f.floating_lookback_call, f.floating_lookback_put, f.forward_value):
        lead = "maturity"  # linear in the spot: nothing to differentiate again
    second = derivative(function, arguments, lead, name)
    difference = central(function, arguments, lead, name)
    assert abs(second - difference) < 2e-7 * max(1.0, abs(second), abs(first))


@pytest.mark.parametrize("name", ["black_call", "down-and-in put", "worst_of_call", "merton_call"])
def test_gradgradcheck_holds_in_every_argument_at_once(name):
    function, arguments = FORMULAS[name]
    numbers = {k: v for k, v in arguments.items() if isinstance(v, float)}
    rest = {k: v for k, v in arguments.items() if not isinstance(v, float)}
    # In units of their own, so that one step fits all.
    ones = tuple(torch.ones((), dtype=torch.float64, requires_grad=True) for _ in numbers)

    def price(*factors):
        scaled = {k: v * x for (k, v), x in zip(numbers.items(), factors, strict=True)}
        return function(**scaled, **rest)

    assert torch.autograd.gradgradcheck(price, ones, eps=1e-5, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("name", FORMULAS)
def test_forward_mode_and_vmap_agree_with_reverse_mode(name):
    function, arguments = FORMULAS[name]
    lead = next(k for k, v in arguments.items() if isinstance(v, float))
    points = torch.tensor([0.97, 1.0, 1.02], dtype=torch.float64) * arguments[lead]

    def price(x):
        return function(**arguments | {lead: x})

    def slope(x):
        return torch.func.jvp(price, (x,), (torch.ones_like(x),))[1]

    forward = torch.func.vmap(slope)(points)
    reverse = [derivative(function, arguments | {lead: x}, lead) for x in points.tolist()]
    right = torch.tensor(reverse, dtype=torch.float64)
    assert torch.allclose(forward, right, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", FORMULAS)
def test_arguments_broadcast_and_the_result_is_float64(name):
    function, arguments = FORMULAS[name]
    names = [k for k, v in arguments.items() if isinstance(v, float)]
    # Every argument in turn the only one with dimensions, then two of float32 and float64.
    for one in names:
        values = torch.tensor([0.99, 1.0, 1.01], dtype=torch.float64) * arguments[one]
        row = function(**arguments | {one: values})
        assert row.shape == (3,) and row.dtype == torch.float64
        single = function(**arguments | {one: values[2].item()})
        assert abs(row[2] - single) < 1e-12 * max(1.0, abs(single.item()))
    rows = torch.tensor([[0.97], [1.03]]) * arguments[names[0]]
    columns = torch.tensor([0.99, 1.0, 1.01], dtype=torch.float64) * arguments[names[1]]
    table = function(**arguments | {names[0]: rows, names[1]: columns})
    assert table.shape == (2, 3) and table.dtype == torch.float64
    single = function(**arguments | {names[0]: rows[1, 0].item(), names[1]: columns[2].item()})
    assert abs(table[1, 2] - single) < 1e-12 * max(1.0, abs(single.item()))
