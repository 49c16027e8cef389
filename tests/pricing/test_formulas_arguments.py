"""Arguments that are refused, and what the message says."""

import math
from typing import Any

import pytest
import torch

from sdesens.pricing import formulas as f

MARKET: dict[str, Any] = {
    "spot": 100.0,
    "strike": 100.0,
    "maturity": 1.0,
    "rate": 0.05,
    "sigma": 0.2,
}
BARRIER: dict[str, Any] = MARKET | {"barrier": 90.0}
ASIAN: dict[str, Any] = {k: v for k, v in MARKET.items() if k != "maturity"} | {"dates": [0.5, 1.0]}
NO_STRIKE = {k: v for k, v in MARKET.items() if k != "strike"}
JUMPS: dict[str, Any] = MARKET | {"intensity": 1.0, "jump_mean": -0.1, "jump_std": 0.1}
ASSETS = {
    "spot1": 100.0,
    "spot2": 100.0,
    "maturity": 1.0,
    "sigma1": 0.2,
    "sigma2": 0.3,
    "rho": 0.5,
}
PAIR: dict[str, Any] = ASSETS | {"strike": 100.0, "rate": 0.05}
HESTON: dict[str, Any] = {k: v for k, v in MARKET.items() if k != "sigma"} | {
    "variance": 0.04,
    "kappa": 1.0,
    "theta": 0.04,
    "xi": 0.5,
    "rho": -0.5,
}
VASICEK = {"rate": 0.03, "kappa": 0.5, "mean": 0.05, "sigma": 0.01, "maturity": 5.0}
CIR = {"rate": 0.03, "kappa": 0.5, "theta": 0.05, "xi": 0.1, "maturity": 5.0}
FORMULAS = [
    *((g, MARKET, ("spot", "strike"), ("maturity", "sigma")) for g in (
        f.black_call, f.black_put, f.cash_digital_call, f.cash_digital_put, f.asset_digital_call,
        f.asset_digital_put, f.fixed_lookback_call, f.fixed_lookback_put)),
    *((g, NO_STRIKE, ("spot",), ("maturity", "sigma"))
      for g in (f.floating_lookback_call, f.floating_lookback_put)),
    (f.barrier_option, BARRIER, ("spot", "strike", "barrier"), ("maturity", "sigma")),
    *((g, ASIAN, ("spot", "strike"), ("sigma",))
      for g in (f.geometric_asian_call, f.geometric_asian_put)),
    (f.exchange_option, ASSETS, ("spot1", "spot2"), ("maturity", "sigma1", "sigma2")),
    *((g, PAIR, ("spot1", "spot2", "strike"), ("maturity", "sigma1", "sigma2"))
      for g in (f.best_of_call, f.worst_of_call)),
    *((g, JUMPS, ("spot", "strike"), ("maturity", "sigma", "intensity", "jump_std")) for g in (
        f.merton_call, f.merton_put, f.merton_digital_call, f.merton_digital_put)),
    *((g, HESTON, ("spot", "strike"), ("maturity", "variance", "kappa", "theta", "xi")) for g in (
        f.heston_call, f.heston_put, f.heston_digital_call, f.heston_digital_put)),
    (f.vasicek_bond, VASICEK, (), ("kappa", "sigma", "maturity")),
    (f.cir_bond, CIR, (), ("rate", "kappa", "theta", "xi", "maturity")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("formula", "arguments", "positive", "not_negative"),
    FORMULAS,
    ids=[g.__name__ for g, *_ in FORMULAS],
)
def test_a_value_out_of_range_is_named_with_what_was_expected(
    formula, arguments, positive, not_negative
):
    for name in positive:
        for bad in (0.0, -1.0):
            with pytest.raises(ValueError, match=f"{name} must be positive, got {bad}"):
                formula(**arguments | {name: bad})
    for name in not_negative:
        with pytest.raises(ValueError, match=f"{name} must be zero or positive, got -0.1"):
            formula(**arguments | {name: -0.1})
    for name, value in arguments.items():
        if isinstance(value, float):
            with pytest.raises(ValueError, match=f"{name} must be finite, got nan"):
                formula(**arguments | {name: math.nan})


@pytest.mark.parametrize(
    ("formula", "arguments"), [(f.exchange_option, ASSETS), (f.worst_of_call, PAIR),
                               (f.heston_call, HESTON)],
)  # fmt: skip
def test_a_correlation_beyond_one_is_refused(formula, arguments):
    with pytest.raises(ValueError, match=r"rho must be in \[-1, 1\], got 1.5"):
        formula(**arguments | {"rho": 1.5})


def test_the_entry_of_a_tensor_that_is_bad_is_named():
    sigma = torch.tensor([0.2, -0.3, 0.1])
    with pytest.raises(ValueError, match=r"sigma must be zero or positive, got -0.3.* \[1\]"):
        f.black_call(**MARKET | {"sigma": sigma})


def test_what_is_no_number_is_refused():
    with pytest.raises(TypeError, match="spot must be a number or a tensor, got '100'"):
        f.black_call(**MARKET | {"spot": "100"})  # pyright: ignore


def test_an_unknown_kind_lists_the_choices_and_offers_the_nearest():
    with pytest.raises(ValueError, match=r"down-and-in.*'up-and-in'.*Did you mean 'down-and-out'"):
        f.barrier_option(**BARRIER, kind="down-out")
    with pytest.raises(ValueError, match=r"option must be one of \['call', 'put'\], got 'Call'"):
        f.barrier_option(**BARRIER, option="Call")


def test_dates_that_are_none_or_after_the_payment_are_refused():
    with pytest.raises(ValueError, match=r"dates must have shape \(n,\) with n > 0, got \(0,\)"):
        f.geometric_asian_call(100.0, 100.0, [], 0.05, 0.2)
    with pytest.raises(ValueError, match=r"dates must be zero or positive, got -0.5 at index"):
        f.geometric_asian_call(100.0, 100.0, [1.0, -0.5], 0.05, 0.2)
    with pytest.raises(ValueError, match=r"maturity must not be before the last of the dates, 1.0"):
        f.geometric_asian_call(**ASIAN, maturity=0.9)


def test_more_jumps_than_the_series_takes_are_refused():
    with pytest.raises(ValueError, match=r"mean number of jumps.* must be at most 400.0, got 500"):
        f.merton_call(**JUMPS | {"intensity": 500.0})
