"""The report of greeks: how its numbers are asked for, and its other forms."""

import builtins
import json
import math
import sys
from typing import Any

import pytest
import torch

import sdesens
from sdesens.models import BlackScholes, MultiAssetBlackScholes, Vasicek
from sdesens.montecarlo import Estimate
from sdesens.pricing import Basket, Call, Report, ZeroCouponBond


def made(entries, groups=None, asset: Any = "spot", **changes: Any):
    """A report of given numbers, so that what is asked for can be told by its value."""
    entries = {name: Estimate(float(value), float(value) / 10) for name, value in entries.items()}
    what: dict[str, Any] = {
        "estimators": dict.fromkeys(entries, "pathwise"), "groups": groups or {}, "asset": asset,
        "model": "Model", "payoff": "Payoff()", "scheme": "exact", "steps": 4, "paths": 1000,
        "seed": 3, "antithetic": False,
    }  # fmt: skip
    return Report(entries=entries, **(what | changes))


@pytest.fixture
def one_asset():
    return made({
        (): 1, ("spot",): 2, ("sigma",): 3, ("rate",): 4, ("maturity",): 5,
        ("spot", "spot"): 6, ("spot", "sigma"): 7, ("sigma", "sigma"): 8,
    }, groups={"x0": (["spot"], (1,))})  # fmt: skip


@pytest.fixture
def two_assets():
    spots, sigma = ["spots[0]", "spots[1]"], ["sigma[0]", "sigma[1]"]
    names = [*spots, *sigma]
    second = {
        (a, b): 10 * i + j for i, a in enumerate(names) for j, b in enumerate(names) if j >= i
    }
    groups = {"x0": (spots, (2,)), "spots": (spots, (2,)), "sigma": (sigma, (2,))}
    first = {(name,): k for k, name in enumerate(names)}
    return made({(): 1, **first, **second}, groups, asset="spots")


# --- access --------------------------------------------------------------------------------------


def test_a_number_is_asked_for_by_its_name(one_asset):
    assert one_asset["price"] == Estimate(1.0, 0.1)
    assert one_asset["spot"] == Estimate(2.0, 0.2)
    assert one_asset["spot", "spot"] == Estimate(6.0, 0.6)
    assert list(one_asset) == list(one_asset.entries)


def test_the_order_in_a_pair_does_not_matter(one_asset, two_assets):
    assert one_asset["sigma", "spot"] == one_asset["spot", "sigma"] == Estimate(7.0, 0.7)
    a, b = two_assets["spots", "sigma"], two_assets["sigma", "spots"]
    assert torch.equal(a.value, b.value.T)


def test_an_input_of_several_entries_is_a_tensor_in_its_shape(one_asset, two_assets):
    assert two_assets["spots"].value.tolist() == [0.0, 1.0]
    assert two_assets["spots"].stderr.dtype == torch.float64
    assert two_assets["sigma[1]"] == Estimate(3.0, 0.3)
    assert two_assets["spots", "sigma"].value.tolist() == [[2.0, 3.0], [12.0, 13.0]]
    assert two_assets["sigma", "sigma"].value.tolist() == [[22.0, 23.0], [23.0, 33.0]]
    assert two_assets["spots[1]", "sigma"].value.tolist() == [12.0, 13.0]
    assert one_asset["x0"].value.tolist() == [2.0]
    assert two_assets["x0", "x0"].value.tolist() == [[0.0, 1.0], [1.0, 11.0]]


def test_an_unknown_name_is_refused_with_the_names_there_are(one_asset):
    with pytest.raises(ValueError, match=r"'sigma'.*got 'sgima'. Did you mean 'sigma'"):
        _ = one_asset["sgima"]
    with pytest.raises(ValueError, match="must be one of"):
        _ = one_asset["spot", "kappa"]


def test_a_second_derivative_that_was_not_asked_for_says_how_to_get_it():
    first = made({(): 1, ("spot",): 2})
    with pytest.raises(KeyError, match=r"was not computed.*order=2.*wrt"):
        _ = first["spot", "spot"]


# --- the names of the trade ----------------------------------------------------------------------


def test_the_names_of_the_trade(one_asset, two_assets):
    assert one_asset.delta == one_asset["spot"]
    assert one_asset.gamma == one_asset["spot", "spot"]
    assert one_asset.vega == one_asset["sigma"]
    assert one_asset.rho == one_asset["rate"]
    assert one_asset.theta == Estimate(-5.0, 0.5)
    assert one_asset.vanna == one_asset["spot", "sigma"]
    assert one_asset.volga == one_asset["sigma", "sigma"]
    assert torch.equal(two_assets.delta.value, two_assets["spots"].value)
    assert two_assets.gamma.value.shape == (2, 2)
    assert torch.equal(two_assets.vanna.value, two_assets["spots", "sigma"].value)


@pytest.mark.parametrize(
    ("greek", "input_"),
    [("vega", "sigma"), ("rho", "rate"), ("theta", "maturity"), ("vanna", "sigma"),
     ("volga", "sigma")],
)  # fmt: skip
def test_a_greek_the_model_does_not_have_names_its_input_and_those_there_are(greek, input_):
    report = made({(): 1, ("spot",): 2, ("kappa",): 3})
    with pytest.raises(AttributeError, match=rf"{greek} .*'{input_}'.*\['kappa', 'spot'\]"):
        getattr(report, greek)
    assert not hasattr(report, greek)


@pytest.mark.parametrize("greek", ["delta", "gamma", "vanna"])
def test_a_payoff_on_no_asset_has_no_delta(greek):
    report = made({(): 1, ("rate",): 2}, asset=None)
    with pytest.raises(AttributeError, match=f"{greek} .*'an asset'"):
        getattr(report, greek)


# --- other forms ---------------------------------------------------------------------------------


def test_an_interval_is_that_of_the_normal_law(one_asset, two_assets):
    low, high = one_asset.interval("spot")
    assert (low, high) == (pytest.approx(2 - 1.959964 * 0.2), pytest.approx(2 + 1.959964 * 0.2))
    low, high = one_asset.interval(("sigma", "spot"), level=0.6826894921370859)
    assert (low, high) == (pytest.approx(6.3), pytest.approx(7.7))
    low, high = two_assets.interval("spots")
    assert low.shape == high.shape == (2,)
    for level in (0.0, 1.0, -1.0, 95.0, math.nan):
        with pytest.raises(ValueError, match=f"level must be between 0 and 1, got {level}"):
            one_asset.interval("spot", level=level)


def test_to_dict_is_fit_for_json(one_asset):
    out = json.loads(json.dumps(one_asset.to_dict()))
    assert out["values"]["price"] == {"value": 1.0, "stderr": 0.1, "estimator": "pathwise"}
    assert out["values"]["spot, sigma"]["value"] == 7.0
    assert len(out["values"]) == len(one_asset.entries)
    assert (out["model"], out["steps"], out["paths"], out["seed"]) == ("Model", 4, 1000, 3)
    assert out["antithetic"] is False


def test_to_pandas_without_pandas_says_what_to_do(one_asset, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "pandas":
            raise ImportError("no pandas")
        return real(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install pandas. to_dict gives the same"):
        one_asset.to_pandas()


def test_to_pandas_has_a_row_for_each_number(one_asset, monkeypatch):
    class Pandas:
        @staticmethod
        def DataFrame(rows, index):
            return dict(zip(index, rows, strict=True))

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    frame = one_asset.to_pandas()
    assert list(frame)[:3] == ["price", "spot", "sigma"]
    row = frame["spot, sigma"]
    assert (row["value"], row["stderr"], row["estimator"]) == (7.0, 0.7, "pathwise")
    assert row["low"] == pytest.approx(7 - 1.959964 * 0.7)
    assert row["high"] == pytest.approx(7 + 1.959964 * 0.7)


def test_it_prints_as_a_table(one_asset):
    head, columns, *rows = str(one_asset).splitlines()
    assert head == "Payoff() under Model, scheme exact, steps 4, 1,000 paths, seed 3"
    assert columns.split() == ["value", "stderr", "estimator"]
    assert rows[0].split() == ["price", "1", "0.1", "pathwise"]
    assert rows[1].split() == ["d/d", "spot", "2", "0.2", "pathwise"]
    assert rows[6].split() == ["d²/d", "spot", "d", "sigma", "7", "0.7", "pathwise"]
    assert len({line.index("pathwise") for line in rows}) == 1
    assert len(rows) == len(one_asset.entries)


def test_it_prints_pairs():
    report = made({(): 1}, antithetic=True)
    assert "1,000 paths in 500 antithetic pairs" in str(report)


# --- those that greeks makes ---------------------------------------------------------------------


def test_the_report_of_one_asset():
    report = sdesens.greeks(BlackScholes(0.05, 0.2), Call(100.0, 1.0), [100.0], paths=500, steps=1)
    assert [name for name in report if name] == [
        ("spot",), ("rate",), ("sigma",), ("dividend",), ("maturity",),
    ]  # fmt: skip
    assert report["x0"].value.tolist() == [report["spot"].value]
    assert (report.scheme, report.steps, report.paths, report.seed) == ("exact", 1, 500, 0)
    assert report.model == "BlackScholes" and report.payoff.startswith("Call(strike=100")
    json.dumps(report.to_dict())


def test_the_report_of_two_assets():
    model = MultiAssetBlackScholes(0.05, [0.2, 0.3], [0.5], [0.01, 0.02])
    basket = Basket(100.0, 1.0, [0.5, 0.5])
    report = sdesens.greeks(model, basket, [100.0, 90.0], paths=500, steps=1,
                            wrt=("spots", "sigma", "rho", "dividend", "weights"))  # fmt: skip
    for name, shape in (("spots", 2), ("x0", 2), ("sigma", 2), ("rho", 1), ("dividend", 2),
                        ("weights", 2)):  # fmt: skip
        assert report[name].value.shape == (shape,), name
        for k in range(shape):
            label = f"{'spots' if name == 'x0' else name}[{k}]"
            assert report[name].value[k] == report[label].value, label
    assert torch.equal(report.delta.value, report["spots"].value)
    assert torch.equal(report.vega.value, report["sigma"].value)
    with pytest.raises(AttributeError, match="rho is the derivative in 'rate'"):
        _ = report.rho


def test_a_part_of_a_group_is_no_group():
    model = MultiAssetBlackScholes(0.05, [0.2, 0.3], [0.5])
    report = sdesens.greeks(model, Basket(100.0, 1.0, [0.5, 0.5]), [100.0, 90.0], paths=500,
                            steps=1, wrt="spots[1]")  # fmt: skip
    assert report["spots[1]"].value > 0
    with pytest.raises(ValueError, match="must be one of"):
        _ = report["spots"]


def test_the_report_of_a_bond():
    report = sdesens.greeks(
        Vasicek(0.5, 0.03, 0.01), ZeroCouponBond(1.0), [0.02], paths=500, steps=4, wrt="rate"
    )
    assert report.asset is None
    assert report.rho == report["rate"]
    with pytest.raises(AttributeError, match="delta"):
        _ = report.delta
