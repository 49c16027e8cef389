"""Bad arguments of greeks and of payoffs: what was expected, what came, what to do."""

# pyright: reportArgumentType=false, reportCallIssue=false

import math
from typing import Any

import pytest
import torch

import sdesens
from sdesens.errors import UnsupportedError
from sdesens.fused.kernel import compile_count
from sdesens.models import (
    CEV,
    BlackScholes,
    GeometricBrownianMotion,
    Heston,
    MertonJumpDiffusion,
    MultiAssetBlackScholes,
    Vasicek,
)
from sdesens.pricing import (
    Asian,
    Barrier,
    Basket,
    Call,
    Digital,
    Exchange,
    Lookback,
    Put,
    VarianceSwap,
    ZeroCouponBond,
    payoff,
)
from sdesens.pricing.scenario import Scenario

MODEL = BlackScholes(0.05, 0.2)
HESTON = Heston(0.03, 1.5, 0.04, 0.3, -0.7)
PAIR = MultiAssetBlackScholes(0.05, [0.2, 0.3], [0.5])
MERTON = MertonJumpDiffusion(0.05, 0.2, 0.75, -0.1, 0.15)
CALL = Call(100.0, 1.0)
NAN = math.nan


class Plain:
    """A model that torchsde takes, and no module."""

    noise_type, sde_type = "diagonal", "ito"

    def f(self, t, y):
        return y

    g = f


class PlainModule(torch.nn.Module, Plain):
    pass


@pytest.fixture(autouse=True)
def nothing_is_compiled():
    before = compile_count()
    yield
    assert compile_count() == before


def greeks(
    model: Any = MODEL,
    option: Any = CALL,
    x0: Any = (100.0,),
    paths: Any = 100,
    steps: Any = 4,
    **arguments: Any,
):
    return sdesens.greeks(model, option, x0, paths=paths, steps=steps, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wrt": "sgma"}, r"wrt must be one of \['x0', 'spot'.*got 'sgma'. Did you mean 'sigma'"),
        ({"wrt": ("spot", "kappa")}, "wrt must be one of .*got 'kappa'"),
        ({"wrt": ("x0", "spot")}, r"names 'spot' more than once: \['x0', 'spot'\]"),
        ({"wrt": (3,)}, "wrt must be one of .*got 3"),
        ({"paths": 1}, "paths must be at least 2, got 1"),
        ({"paths": 101, "antithetic": True}, "paths must be even for antithetic pairs, got 101"),
        ({"paths": 2, "antithetic": True}, "paths must be at least 4, got 2"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"order": 3}, "order must be 1 or 2, got 3"),
        ({"order": 0}, "order must be 1 or 2, got 0"),
        ({"order": True}, "order must be 1 or 2, got True"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"seed": 2**64}, "seed must be in "),
        ({"shard_size": 0}, "shard_size must be at least 1, got 0"),
        ({"workers": 0}, "workers must be at least 1, got 0"),
        ({"estimator": "bismuth"}, "estimator must be one of .*Did you mean 'bismut'"),
        ({"scheme": "eulr"}, "'eulr'. Did you mean 'euler'"),
    ],
)
def test_arguments_out_of_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        greeks(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wrt": 3}, "wrt must be a name or names, got 3"),
        ({"paths": 1e4}, r"paths must be an int, got 10000.0 \(float\)"),
        ({"steps": 2.0}, "steps must be an int, got 2.0"),
        ({"seed": 1.5}, "seed must be an int, got 1.5"),
        ({"dtype": torch.float16}, "float32 or torch.float64, got torch.float16"),
        ({"control": "call"}, "control must be a payoff .*got 'call'"),
        ({"control": [CALL, 3]}, "control must be a payoff"),
        ({"control": 3}, "control must be a payoff .*got 3"),
        ({"option": lambda x: x}, r"got function. Make one .*payoff\(fn, dates, lipschitz"),
        ({"option": Call}, "payoff must be a payoff .*got type"),
        ({"model": object()}, "model must be an SDE of sdesens .*got object"),
        ({"model": Plain()}, "model must be an SDE of sdesens .*got Plain"),
        ({"model": PlainModule()}, "components have names, got PlainModule"),
    ],
)
def test_arguments_of_the_wrong_kind(arguments, message):
    with pytest.raises(TypeError, match=message):
        greeks(**arguments)


@pytest.mark.parametrize(
    ("model", "wrt", "message"),
    [
        (MODEL, "vega", r"got 'vega'. vega is the derivative in 'sigma': wrt='sigma'; .*\.vega\."),
        (MODEL, "theta", "theta is minus the derivative in 'maturity': wrt='maturity'"),
        (MODEL, ("gamma",), "the second derivative in 'spot': wrt='spot', order=2"),
        (MODEL, "vanna", r"in 'spot' and 'sigma': wrt=\('spot', 'sigma'\), order=2"),
        (HESTON, "vega", r"in 'sigma', which is no input here; the inputs: \['x0', 'spot'"),
    ],
)
def test_a_greek_by_its_name_of_the_trade_is_told_its_input(model, wrt, message):
    with pytest.raises(ValueError, match=message):
        greeks(model, x0=[100.0, 0.04] if model is HESTON else [100.0], wrt=wrt)


@pytest.mark.parametrize(
    ("model", "option", "x0", "message"),
    [
        (MODEL, CALL, [100.0, 1.0], r"x0 must have shape \(B, 1\) for .*'spot'.*got \(1, 2\)"),
        (MODEL, CALL, 100.0, r"x0 must have shape \(d,\).*got \(\)"),
        (MODEL, CALL, [[100.0]], r"x0 must have shape \(d,\).*got \(1, 1\)"),
        (MODEL, CALL, [NAN], "x0 must be finite, got nan at index"),
        (MODEL, CALL, [-100.0], "x0 must start 'spot' above 0, got -100"),
        (MODEL, CALL, [0.0], "x0 must start 'spot' above 0, got 0"),
        (HESTON, CALL, [100.0], r"x0 must have shape \(B, 2\)"),
        (HESTON, CALL, [-1.0, 0.04], "x0 must start 'spot' above 0, got -1"),
        (HESTON, CALL, [100.0, -0.04], "x0 must start 'variance' at 0 or above, got -0.04"),
        (PAIR, Exchange(1.0), [100.0, -1.0], r"x0 must start 'spots\[1\]' above 0, got -1"),
        (CEV(0.05, 2.0, 0.5), CALL, [-1.0], "x0 must start 'spot' at 0 or above, got -1"),
        (PAIR, Exchange(1.0), [100.0], r"x0 must have shape \(B, 2\)"),
        (MERTON, CALL, 100.0, r"x0 must have shape \(d,\)"),
        (MERTON, CALL, [100.0, 1.0, 1.0], r"x0 must have shape \(B, 2\)"),
    ],
)
def test_a_wrong_start(model, option, x0, message):
    with pytest.raises(ValueError, match=message):
        greeks(model, option, x0)


@pytest.mark.parametrize(
    ("model", "option", "x0", "message"),
    [
        (MODEL, Call(100.0, 1.0, of="spto"), [100.0], r"of must be one of \['spot'\], got 'spto'"),
        (MERTON, Call(1.0, 1.0, of="likelihood"), [100.0], r"of must be one of \['spot'\]"),
        (
            PAIR,
            CALL,
            [100.0, 90.0],
            "Call is written on one asset, but 'spots' .*a block of 2.*Basket.*payoff",
        ),
        (
            GeometricBrownianMotion(torch.tensor([0.1, 0.1]), 0.2),
            CALL,
            [1.0, 1.0],
            "on one asset.*block of 2",
        ),
        (MODEL, Exchange(1.0), [100.0], "block of several assets, but 'spot' .*plain component"),
        (PAIR, Basket(100.0, 1.0, [1.0]), [100.0, 90.0], "each of the 2 assets .*got 1"),
        (PAIR, Exchange(1.0, receive=2), [100.0, 90.0], "below the number 2 of assets.*2 and 1"),
        (MODEL, Asian(100.0, 1.0, 3), [100.0], "0.333333.*not on the grid of 4 steps.*is 0.25"),
        (MODEL, Asian(100.0, 1.0, [0.5, 0.5000000001]), [100.0], "same node of the grid"),
        (MODEL, Barrier(100.0, 90.0, 1.0, dates=[0.3]), [100.0], "0.3, which is not on the grid"),
        (HESTON, Call(100.0, 1.0, of="Variance"), [1.0, 1.0], "Did you mean 'variance'"),
    ],
)
def test_a_payoff_that_does_not_fit_the_model(model, option, x0, message):
    with pytest.raises(ValueError, match=message):
        greeks(model, option, x0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"estimator": "one-step-survival"}, "barrier options watched at dates, got Call"),
        ({"option": Lookback(1.0), "estimator": "conditional"}, "not known in closed form.*'auto'"),
        ({"option": ZeroCouponBond(1.0), "estimator": "conditional"}, "is written on no asset"),
        ({"option": Lookback(1.0), "order": 2}, "not smooth in the start, which no noise moves"),
        ({"option": Lookback(1.0), "estimator": "bismut"}, "not smooth in the start"),
        (
            {"option": Digital(100.0, 1.0), "estimator": "bismut", "wrt": "strike"},
            "'strike' is a number of the contract.*Leave it out of wrt, or use .*'conditional'",
        ),
        (
            {"model": PAIR, "option": Basket(100.0, 1.0, [0.5, 0.5]), "x0": [100.0, 90.0],
             "order": 2, "wrt": "weights"},
            "second derivative in a number of the contract",
        ),
        (
            {"model": HESTON, "x0": [100.0, 0.04], "scheme": "euler", "estimator": "conditional"},
            "Heston does not say of its scheme 'euler' in which channel",
        ),
        (
            {"model": HESTON, "x0": [100.0, 0.04], "control": CALL},
            "without discretisation bias.*scheme is 'qe'",
        ),
        ({"control": Put(100.0, 2.0)}, r"control must have the payoff's maturity 1, got 2"),
        ({"scheme": "euler", "control": CALL}, "the scheme is 'euler'"),
    ],
)  # fmt: skip
def test_an_estimator_that_does_not_fit_the_payoff(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        greeks(**arguments)
    assert isinstance(caught.value, UnsupportedError) or "maturity" in message


def test_a_continuous_barrier_needs_the_law_of_a_step():
    with pytest.raises(ValueError, match=r"law of a step.*scheme 'euler'. Watch it at dates="):
        greeks(HESTON, Barrier(100.0, 90.0, 1.0), [100.0, 0.04], scheme="euler")


def test_a_parameter_that_is_not_finite():
    model = BlackScholes(0.05, 0.2)
    with torch.no_grad():
        model.sigma.fill_(NAN)
    with pytest.raises(ValueError, match="the parameter 'sigma' must be finite, got nan"):
        greeks(model)


def test_a_parameter_with_the_name_of_another_input():
    class Own(BlackScholes):
        def __init__(self):
            super().__init__(0.05, 0.2)
            self.strike = self.parameter(100.0)

    with pytest.raises(ValueError, match=r"'strike' names two inputs.*Rename"):
        greeks(Own())


# --- payoffs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Call(NAN, 1.0), "strike must be finite, got nan"),
        (lambda: Call(math.inf, 1.0), "strike must be finite, got inf"),
        (lambda: Call([1.0, 2.0], 1.0), r"strike must be a number, got shape \(2,\)"),
        (lambda: Call(100.0, 0.0), "maturity must be positive and finite, got 0"),
        (lambda: Call(100.0, -1.0), "maturity must be positive and finite, got -1"),
        (lambda: Call(100.0, NAN), "maturity must be positive and finite, got nan"),
        (lambda: ZeroCouponBond(math.inf), "maturity must be positive and finite, got inf"),
        (lambda: Digital(100.0, 1.0, pays="csh"), "pays must be one of .*Did you mean 'cash'"),
        (lambda: Digital(100.0, 1.0, cash=NAN), "cash must be finite, got nan"),
        (lambda: Asian(100.0, 1.0, 4, average="mean"), "average must be one of .*got 'mean'"),
        (lambda: Asian(100.0, 1.0, 4, option="cal"), "option must be one of .*Did you mean 'call'"),
        (lambda: Asian(100.0, 1.0, []), "dates must hold at least one date"),
        (lambda: Asian(100.0, 1.0, 0), "dates must be at least 1, got 0"),
        (lambda: Asian(100.0, 1.0, [0.5, 0.25]), r"dates\[1\]=0.25 after 0.5"),
        (lambda: Asian(100.0, 1.0, [0.0, 0.5]), r"above 0, got dates\[0\]=0"),
        (lambda: Asian(100.0, 1.0, [0.5, NAN]), r"got dates\[1\]=nan after 0.5"),
        (lambda: VarianceSwap(0.04, 1.0, [0.5, 1.5]), "not lie after the maturity 1, got 1.5"),
        (lambda: Barrier(100.0, 0.0, 1.0), "barrier must be positive and finite, got 0"),
        (lambda: Barrier(100.0, 90.0, 1.0, kind="up-out"), "kind must be one of .*got 'up-out'"),
        (lambda: Lookback(1.0, dates=[2.0]), "not lie after the maturity"),
        (lambda: Basket(100.0, 1.0, [[1.0]]), "weights must be finite numbers, one an asset"),
        (lambda: Basket(100.0, 1.0, [NAN]), "weights must be finite numbers, one an asset"),
        (lambda: Exchange(1.0, receive=1), "numbers of two assets, got 1 and 1"),
        (lambda: Exchange(1.0, receive=-1), "numbers of two assets, got -1 and 1"),
        (lambda: payoff(lambda x: x[0], 3, lipschitz=True), "maturity must be given too"),
        (lambda: payoff(lambda x: x[0], [], lipschitz=True), "maturity must be positive"),
        (lambda: payoff(lambda x: x[0], [1.0], lipschitz=True, maturity=0.5), "after the maturity"),
    ],
)
def test_numbers_of_a_contract_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Asian(100.0, 1.0, 4.0), "dates must be dates or the number of them.*got 4.0"),
        (lambda: Asian(100.0, 1.0, True), "dates must be dates or the number of them.*got True"),
        (lambda: payoff(3, [1.0], lipschitz=True), "fn must be a function .*got int"),
        (lambda: payoff(lambda x: x[0], [1.0], lipschitz=1), "must be True or False, got 1"),
        (lambda: payoff(lambda x: x[0], [1.0]), "lipschitz"),
        (lambda: Call(100.0, 1.0, strik=3.0), "strik"),
        (lambda: Asian(100.0, 1.0, [0.5, "1y"]), r"dates\[1\] must be a number, .*got '1y'"),
        (lambda: payoff(max, ["1y"], lipschitz=True), r"dates\[0\] must be a number, .*got '1y'"),
        (lambda: Call("100", 1.0), "strike must be a number, .*got '100'"),
        (lambda: Call(100.0, "1y"), "maturity must be a number, .*got '1y'"),
        (lambda: Basket(100.0, 1.0, ["a"]), "weights must be a number, numbers .*got"),
        (lambda: BlackScholes(0.05, None), "parameter must be a number, .*got None"),
    ],
)
def test_numbers_of_a_contract_of_the_wrong_kind(make, message):
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x: x, r"one number a path, shape \(2,\), got \(1, 2\)"),
        (lambda x: x.mean(), r"one number a path.*got \(\)"),
        (lambda x: 3.0, "one number a path.*got float"),
    ],
)
def test_a_function_that_does_not_return_one_number_a_path(fn, message):
    with pytest.raises(ValueError, match=message):
        greeks(option=payoff(fn, [1.0], lipschitz=True))


def test_a_function_that_mixes_paths():
    spread = payoff(lambda x: x[0] - x[0].mean(), [1.0], lipschitz=True)
    with pytest.raises(ValueError, match="mixes paths"):
        greeks(option=spread)


def test_a_call_on_a_short_rate_needs_no_name():
    # The only component there is.
    scenario = Scenario.of(
        Vasicek(0.5, 0.03, 0.01), CALL, [0.02], steps=2, scheme="auto", dtype=torch.float64
    )
    assert scenario.asset is not None and scenario.asset.name == "rate"
