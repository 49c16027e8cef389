"""Values that models know, and their derivatives, against published numbers and each other."""

import math
from itertools import combinations_with_replacement

import pytest
import torch

from sdesens.errors import UnsupportedError
from sdesens.models import (
    CIR,
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
    greeks,
)
from sdesens.pricing.reference import closed_form_derivatives
from sdesens.pricing.scenario import Scenario
from tests.pricing.formula_tools import assert_printed

BASE = BlackScholes(0.05, 0.2)
HAUG = BlackScholes(0.1, 0.36, 0.1)
SPARED = BlackScholes(0.02, 0.12)
FOURNIE = BlackScholes(0.1, 0.2)
GLASSERMAN = BlackScholes(0.1, 0.25, 0.03)
NAG = Heston(0.025, 1.5768, 0.0398, 0.5751, -0.5711, 0.01)
LEWIS = Heston(0.01, 4.0, 0.25, 1.0, -0.5, 0.02)
BROADIE_KAYA = Heston(0.0319, 6.21, 0.019, 0.61, -0.7)
JUMPS = MertonJumpDiffusion(0.05, 0.2, 0.75, -0.1, 0.15)
TWO = MultiAssetBlackScholes(0.05, [0.2, 0.3], [0.5])
CALL = Call(100.0, 1.0)
DIGITAL = Digital(100.0, 1.0)


def names(text):
    """``"spot variance"`` as the key of a derivative, ``""`` as that of the price."""
    return tuple(text.split())


# Numbers of REFERENCES.md, right to all digits given; but Lewis' theta, there a finite difference.
PUBLISHED = {
    "Black-Scholes": (BASE, CALL, [100.0], {
        "": "10.450584", "spot": ".636831", "spot spot": ".018762", "sigma": "37.524035",
        "rate": "53.232482", "maturity": "6.414028", "spot sigma": "-.281430",
        "sigma sigma": "9.850059"}),
    "digital": (BASE, DIGITAL, [100.0], {
        "": ".532325", "spot": ".018762", "spot spot": "-.000328", "sigma": "-.656671",
        "rate": "1.343877"}),
    "Broadie-Glasserman 90": (GLASSERMAN, Call(100.0, 0.2), [90.0], {
        "": "1.219787", "spot": ".221918", "spot spot": ".029496", "sigma": "11.946044",
        "rate": "3.750565"}),
    "Broadie-Glasserman 100": (GLASSERMAN, Call(100.0, 0.2), [100.0], {
        "": "5.125900", "spot": ".568443", "spot spot": ".034892", "sigma": "17.445997",
        "rate": "10.343680"}),
    "Broadie-Glasserman 110": (GLASSERMAN, Call(100.0, 0.2), [110.0], {
        "": "12.327114", "spot": ".844258", "spot spot": ".018900", "sigma": "11.434747",
        "rate": "16.108254"}),
    "Fournié, call": (FOURNIE, CALL, [100.0], {
        "spot": ".725747", "spot spot": ".016661", "sigma": "33.32246"}),
    "Fournié, digital": (FOURNIE, DIGITAL, [100.0], {
        "spot": ".016661", "spot spot": "-.000500", "sigma": "-.999674"}),
    "Heston, NAG": (NAG, CALL, [100.0, 0.0175], {
        "": "6.5961", "spot": ".6616", "spot spot": ".0270", "variance": "53.0023",
        "rate": "59.5669", "theta": "60.3297", "kappa": ".8097", "xi": "-1.9804", "rho": ".3217",
        "spot variance": "-.3415", "dividend": "-66.1630", "maturity": "4.2941"}),
    "Heston, Lewis": (LEWIS, CALL, [100.0, 0.04], {
        "": "16.070154917", "spot": ".599471", "spot spot": ".009288", "variance": "10.179265",
        "kappa": ".689854", "theta": "32.560133", "xi": "-1.113171", "rho": ".949833",
        "rate": "43.87698", "dividend": "-59.94713"}),
    "Heston, Broadie-Kaya": (BROADIE_KAYA, CALL, [100.0, 0.010201], {
        "": "6.806113", "spot": ".695814", "spot spot": ".026543", "variance": "22.084147",
        "kappa": ".0739", "theta": "118.6066", "xi": "-.54363", "rho": "-.00521",
        "rate": "62.77525", "dividend": "-69.58136"}),
    "Haug, delta of a call": (HAUG, Call(100.0, 0.5), [105.0], {"spot": ".5946"}),
    "Haug, delta of a put": (HAUG, Put(100.0, 0.5), [105.0], {"spot": "-.3566"}),
    "Haug, gamma and vega": (BlackScholes(0.1, 0.3), Call(60.0, 0.75), [55.0], {
        "spot spot": ".0278", "sigma": "18.9358"}),
    "Haug, rho": (BlackScholes(0.09, 0.19), Call(75.0, 1.0), [72.0], {"rate": "38.7325"}),
    "geometric Asian": (
        BlackScholes(0.06, 0.2, 0.03), Asian(100.0, 1.0, 10, average="geometric"), [100.0],
        {"": "5.3425607", "spot": ".540954", "spot spot": ".030246", "sigma": "21.504140"}),
    "down and out, 85": (BASE, Barrier(100.0, 85.0, 1.0), [100.0], {
        "": "9.949270", "spot": ".701605", "spot spot": ".010702", "sigma": "25.469432"}),
    "down and out, 90": (BASE, Barrier(100.0, 90.0, 1.0), [100.0], {
        "": "8.665472", "spot": ".830169", "spot spot": "-.001006", "sigma": "11.281422"}),
    "lookback": (BASE, Lookback(1.0), [100.0], {
        "": "17.216802", "spot": ".172168", "sigma": "67.662187"}),
    "Margrabe": (TWO, Exchange(1.0), [100.0, 100.0], {
        "": "10.524316", "spots[0]": ".552622", "spots[1]": "-.447378",
        "spots[0] spots[0]": ".014947", "spots[1] spots[1]": ".014947",
        "spots[0] spots[1]": "-.014947", "sigma[0]": "7.473619", "sigma[1]": "29.894477",
        "rho[0]": "-8.968343"}),
    "Merton": (JUMPS, CALL, [100.0], {
        "": "12.224434", "spot": ".647901", "spot spot": ".015392", "sigma": "30.784518",
        "intensity": "2.197859"}),
    "SciMLSensitivity 693": (SPARED, Call(90.0, 1.0), [100.0], {
        "spot": ".865349", "rate": "73.8919", "sigma": "21.6733", "maturity": "2.77824",
        "strike": "-.821021"}),
}  # fmt: skip


def known(model, payoff, x0, wrt: str | list[str] = "all", order=2):
    """``closed_form_greeks``, on a grid that has the dates of the payoff."""
    steps = 10 if getattr(payoff, "dates", None) else 1
    scenario = Scenario.of(model, payoff, x0, steps=steps, scheme="auto", dtype=torch.float64)
    found = closed_form_derivatives(scenario, order, scenario.directions(wrt))
    return {tuple(scenario.label(d) for d in key): value for key, value in found.items()}


@pytest.mark.parametrize("case", PUBLISHED)
def test_values_and_derivatives_are_the_published_ones(case):
    model, payoff, x0, numbers = PUBLISHED[case]
    inputs = list(dict.fromkeys(name.partition("[")[0] for key in numbers for name in names(key)))
    order = 2 if any(len(names(key)) == 2 for key in numbers) else 1
    found = known(model, payoff, x0, inputs, order)
    for key, text in numbers.items():
        assert_printed(found[names(key)], text)


@pytest.mark.parametrize("case", ["Black-Scholes", "Heston, NAG", "Merton", "Margrabe"])
def test_closed_form_greeks_names_all_derivatives_and_restores_the_model(case):
    model, payoff, x0, numbers = PUBLISHED[case]
    before = {**dict(model.named_parameters()), **dict(payoff.named_parameters())}
    found = closed_form_greeks(model, payoff, x0, order=2)
    after = {**dict(model.named_parameters()), **dict(payoff.named_parameters())}
    assert all(after[name] is value for name, value in before.items())
    assert all(value.grad is None for value in after.values())
    assert {names(key) for key in numbers} <= set(found)
    inputs = [key[0] for key in found if len(key) == 1]
    pairs = set(combinations_with_replacement(inputs, 2))
    assert {key for key in found if len(key) == 2} == pairs
    assert all(math.isfinite(value) for value in found.values())


# --- all that is known is differentiable in all its numbers --------------------------------------

DATED = [0.2, 0.7, 1.0]
KNOWN = [
    (GLASSERMAN, payoff, [97.0])
    for payoff in (
        Call(100.0, 1.0),
        Put(100.0, 1.0),
        Forward(100.0, 1.0),
        ZeroCouponBond(1.0),
        *(Digital(100.0, 1.0, pays=pays, option=option, cash=2.0)
          for pays in ("cash", "asset") for option in ("call", "put")),
        *(Barrier(100.0, level, 1.0, kind=f"{side}-and-{way}", option=option)
          for side, level in (("down", 90.0), ("up", 115.0)) for way in ("in", "out")
          for option in ("call", "put")),
        *(Lookback(1.0, strike=strike, option=option)
          for strike in (None, 105.0, 92.0) for option in ("call", "put")),
        *(Asian(100.0, 1.0, DATED, average="geometric", option=option)
          for option in ("call", "put")),
        VarianceSwap(0.04, 1.0, DATED),
    )
]  # fmt: skip
KNOWN += [
    (model, payoff, x0)
    for model, x0 in ((LEWIS, [97.0, 0.05]), (JUMPS, [97.0]))
    for payoff in (
        Call(100.0, 1.0),
        Put(100.0, 1.0),
        Forward(100.0, 1.0),
        ZeroCouponBond(1.0),
        *(Digital(100.0, 1.0, pays=pays, option=option, cash=2.0)
          for pays in ("cash", "asset") for option in ("call", "put")),
    )
]  # fmt: skip
THREE = MultiAssetBlackScholes(0.05, [0.2, 0.3, 0.4], [0.5, 0.1, -0.2], [0.01, 0.02, 0.03])
KNOWN += [
    (THREE, Exchange(1.0, receive=2, deliver=1), [97.0, 100.0, 103.0]),
    (TWO, BestOf(100.0, 1.0), [97.0, 103.0]),
    (TWO, WorstOf(100.0, 1.0), [97.0, 103.0]),
    (Vasicek(0.5, 0.05, 0.01), ZeroCouponBond(2.0), [0.03]),
    (CIR(0.5, 0.05, 0.1), ZeroCouponBond(2.0), [0.03]),
]


def value_of_all(model, payoff, x0):
    """The closed form as a function of the start, the maturity and all parameters."""
    owners = [(m, n, p) for m in (model, payoff) for n, p in m.named_parameters()]

    def value(start, maturity, *numbers):
        try:
            for (owner, name, _), number in zip(owners, numbers, strict=True):
                owner._parameters[name] = number
            return model.closed_form(payoff, start, maturity)
        finally:
            for owner, name, parameter in owners:
                owner._parameters[name] = parameter

    start = torch.tensor(x0, dtype=torch.float64)
    maturity = torch.tensor(payoff.maturity, dtype=torch.float64)
    numbers = [p.detach().clone() for _, _, p in owners]
    return value, [x.requires_grad_() for x in (start, maturity, *numbers)]


@pytest.mark.parametrize(
    ("model", "payoff", "x0"), KNOWN, ids=[f"{type(m).__name__}-{p}" for m, p, _ in KNOWN]
)
def test_first_derivatives_in_all_inputs_are_those_of_differences(model, payoff, x0):
    value, inputs = value_of_all(model, payoff, x0)
    assert value(*inputs).dtype == torch.float64
    assert value(*inputs).dim() == 0
    torch.autograd.gradcheck(value, inputs, eps=1e-5, atol=2e-5, rtol=1e-5)


def test_dates_move_along_with_the_maturity():
    start, later = torch.tensor([97.0]).double(), torch.tensor(1.3).double()
    for make in (
        lambda T: Asian(100.0, T, [0.2 * T, T], average="geometric"),
        lambda T: VarianceSwap(0.04, T, [0.2 * T, T]),
    ):
        moved, there = (GLASSERMAN.closed_form(make(T), start, later) for T in (1.0, 1.3))
        assert moved is not None and there is not None
        assert torch.allclose(moved, there, rtol=1e-12)


@pytest.mark.parametrize(
    ("model", "payoff", "x0", "steps"),
    [
        (GLASSERMAN, VarianceSwap(0.04, 1.0, [0.2, 0.7, 1.0]), [97.0], 10),
        (GLASSERMAN, Digital(100.0, 1.0, pays="asset", option="put"), [97.0], 1),
        (JUMPS, Digital(100.0, 1.0, pays="asset"), [97.0], 1),
        (THREE, Exchange(1.0, receive=2, deliver=1), [97.0, 100.0, 103.0], 1),
        (TWO, WorstOf(100.0, 1.0), [97.0, 103.0], 1),
    ],
)
def test_values_are_those_of_a_simulation(model, payoff, x0, steps):
    # 4.5 standard errors of an exact scheme: a false alarm in 1 of 150,000 numbers.
    found = known(model, payoff, x0, "x0", 1)
    report = greeks(model, payoff, x0, paths=100_000, steps=steps, wrt="x0")
    for name, estimate in report.entries.items():
        assert abs(estimate.value - found[name]) < 4.5 * estimate.stderr + 1e-12, name


# --- edges ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("spot", [90.0, 85.0])
@pytest.mark.parametrize("option", ["call", "put"])
def test_a_barrier_already_met_gives_nothing_or_the_vanilla_option(spot, option):
    out = known(BASE, Barrier(100.0, 90.0, 1.0, option=option), [spot])
    assert set(out.values()) == {0.0}
    knocked_in = known(BASE, Barrier(100.0, 90.0, 1.0, kind="down-and-in", option=option), [spot])
    vanilla = known(BASE, (Call if option == "call" else Put)(100.0, 1.0), [spot])
    for name, expected in vanilla.items():
        assert knocked_in[name] == pytest.approx(expected, abs=1e-9), name


def test_in_and_out_make_the_vanilla_option():
    for kind, level in (("down", 90.0), ("up", 115.0)):
        parts = [known(BASE, Barrier(100.0, level, 1.0, kind=f"{kind}-and-{way}"), [100.0])
                 for way in ("in", "out")]  # fmt: skip
        for name, whole in known(BASE, CALL, [100.0]).items():
            assert parts[0][name] + parts[1][name] == pytest.approx(whole, abs=1e-9), name


@pytest.mark.parametrize(
    ("model", "payoff", "x0"),
    [
        (BASE, Lookback(1.0, strike=100.0), [100.0]),
        (BASE, Lookback(1.0, strike=80.0), [100.0]),
        (BASE, Lookback(1.0, strike=120.0, option="put"), [100.0]),
        (BlackScholes(0.05, 0.2, 0.05), Lookback(1.0), [100.0]),
        (BlackScholes(0.05, 0.0), CALL, [100.0]),
        (BlackScholes(0.05, 0.0), Barrier(100.0, 90.0, 1.0), [100.0]),
        (Heston(0.05, 1.0, 0.04, 0.0, 0.0), CALL, [100.0, 0.04]),
        (Heston(0.05, 1.0, 0.04, 0.5, -0.5), CALL, [100.0, 0.0]),
        (Vasicek(0.0, 0.05, 0.0), ZeroCouponBond(1.0), [0.03]),
        (CIR(0.5, 0.05, 0.0), ZeroCouponBond(1.0), [0.0]),
        (TWO, Exchange(1.0), [1e-3, 100.0]),
    ],
    ids=lambda value: str(value) if not isinstance(value, list) else "",
)
def test_limits_have_finite_derivatives(model, payoff, x0):
    assert all(math.isfinite(value) for value in known(model, payoff, x0).values())


class Doubled(Call):
    """A call that pays twice: no longer the call that is known."""

    def cash(self, end):
        return 2 * super().cash(end)


@pytest.mark.parametrize(
    ("model", "payoff", "x0"),
    [
        (BASE, Asian(100.0, 1.0, 1), [100.0]),
        (BASE, Barrier(100.0, 90.0, 1.0, dates=1), [100.0]),
        (BASE, Lookback(1.0, dates=1), [100.0]),
        (BASE, Call(-5.0, 1.0), [100.0]),
        (BASE, Doubled(100.0, 1.0), [100.0]),
        (NAG, Lookback(1.0), [100.0, 0.04]),
        (NAG, Call(0.04, 1.0, of="variance"), [100.0, 0.04]),
        (JUMPS, Lookback(1.0, dates=1), [100.0]),
        (TWO, Basket(100.0, 1.0, [0.5, 0.5]), [100.0, 100.0]),
        (TWO, BestOf(100.0, 1.0, option="put"), [100.0, 100.0]),
        (THREE, BestOf(100.0, 1.0), [100.0, 100.0, 100.0]),
        (Vasicek(0.5, 0.05, 0.01), Call(0.03, 1.0), [0.03]),
        (Vasicek(-0.5, 0.05, 0.01), ZeroCouponBond(1.0), [0.03]),
        (CIR(0.5, 0.05, 0.1), Call(0.03, 1.0), [0.03]),
        (GeometricBrownianMotion(0.05, 0.2), CALL, [100.0]),
    ],
    ids=lambda value: str(value) if not isinstance(value, list) else "",
)
def test_what_is_not_known_is_refused_by_name(model, payoff, x0):
    with pytest.raises(UnsupportedError, match=f"{type(model).__name__} has no closed form for"):
        closed_form_greeks(model, payoff, x0)


def test_dates_and_jumps_need_no_grid():
    asian = Asian(100.0, 1.0, dates=10, average="geometric")
    model = BlackScholes(rate=0.06, sigma=0.2, dividend=0.03)
    assert abs(closed_form_greeks(model, asian, [100.0])[()] - 5.3425607) < 5e-8
    merton = MertonJumpDiffusion(0.05, 0.2, intensity=0.75, jump_mean=-0.1, jump_std=0.15)
    assert closed_form_greeks(merton, Call(100.0, 2.0), [100.0])[()] > 12.224434
