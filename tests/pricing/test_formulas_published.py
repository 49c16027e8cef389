"""Published prices and greeks, and the closed form's own digits where a table rounds them.

Each row: a formula, its arguments, and value and derivatives by the names they are taken in, one
after the other; ``theta`` in time is ``-dP/dT``.
"""

import pytest

from sdesens.pricing import formulas as f
from tests.pricing.formula_tools import assert_printed, derivative

BASE = {"spot": 100.0, "strike": 100.0, "maturity": 1.0, "rate": 0.05, "sigma": 0.2}
PRICE = ()
DELTA, GAMMA = ("spot",), ("spot", "spot")
VEGA, RHO, THETA = ("sigma",), ("rate",), ("-maturity",)
VANNA, VOLGA = ("spot", "sigma"), ("sigma", "sigma")


def glasserman(spot):
    """The setting of Broadie and Glasserman 1996."""
    rest = {"strike": 100.0, "maturity": 0.2, "rate": 0.1, "sigma": 0.25, "dividend": 0.03}
    return {"spot": spot} | rest


def haug(spot, strike, maturity, rate, sigma, dividend):
    names = ("spot", "strike", "maturity", "rate", "sigma", "dividend")
    return dict(zip(names, (spot, strike, maturity, rate, sigma, dividend), strict=True))


def heston(rate, dividend, variance, kappa, theta, xi, rho):
    model = {"variance": variance, "kappa": kappa, "theta": theta, "xi": xi, "rho": rho}
    market = {"spot": 100.0, "strike": 100.0, "maturity": 1.0, "rate": rate, "dividend": dividend}
    return market | model


MERTON = BASE | {"intensity": 0.75, "jump_mean": -0.1, "jump_std": 0.15}
MARGRABE = {
    "spot1": 100.0,
    "spot2": 100.0,
    "maturity": 1.0,
    "sigma1": 0.2,
    "sigma2": 0.3,
    "rho": 0.5,
}
ASIAN = {
    "spot": 100.0,
    "strike": 100.0,
    "dates": [0.1 * i for i in range(1, 11)],
    "rate": 0.06,
    "sigma": 0.2,
    "dividend": 0.03,
}
FOURNIE = {"spot": 100.0, "strike": 100.0, "maturity": 1.0, "rate": 0.1, "sigma": 0.2}
SCIML = {"spot": 100.0, "strike": 90.0, "maturity": 1.0, "rate": 0.02, "sigma": 0.12}
LOOKBACK = {k: v for k, v in BASE.items() if k != "strike"}

ROWS = {
    "Black-Scholes call": (
        f.black_call,
        BASE,
        {
            PRICE: "10.450584",
            DELTA: ".636831",
            GAMMA: ".018762",
            VEGA: "37.524035",
            RHO: "53.232482",
            THETA: "-6.414028",
            VANNA: "-.281430",
            VOLGA: "9.850059",
        },
    ),
    "cash digital": (
        f.cash_digital_call,
        BASE,
        {
            PRICE: ".532325",
            DELTA: ".018762",
            GAMMA: "-.000328",
            VEGA: "-.656671",
            RHO: "1.343877",
        },
    ),
    "Broadie-Glasserman 90": (
        f.black_call,
        glasserman(90.0),
        {
            PRICE: "1.219787",
            DELTA: ".221918",
            GAMMA: ".029496",
            VEGA: "11.946044",
            RHO: "3.750565",
        },
    ),
    "Broadie-Glasserman 100": (
        f.black_call,
        glasserman(100.0),
        {
            PRICE: "5.125900",
            DELTA: ".568443",
            GAMMA: ".034892",
            VEGA: "17.445997",
            RHO: "10.343680",
        },
    ),
    "Broadie-Glasserman 110": (
        f.black_call,
        glasserman(110.0),
        {
            PRICE: "12.327114",
            DELTA: ".844258",
            GAMMA: ".018900",
            VEGA: "11.434747",
            RHO: "16.108254",
        },
    ),
    "Fournie call": (
        f.black_call,
        FOURNIE,
        {DELTA: ".725747", GAMMA: ".016661", VEGA: "33.32246"},
    ),
    "Fournie digital": (
        f.cash_digital_call,
        FOURNIE,
        {DELTA: ".016661", GAMMA: "-.000500", VEGA: "-.999674"},
    ),
    "Haug call delta": (f.black_call, haug(105.0, 100.0, 0.5, 0.1, 0.36, 0.1), {DELTA: ".5946"}),
    "Haug put delta": (f.black_put, haug(105.0, 100.0, 0.5, 0.1, 0.36, 0.1), {DELTA: "-.3566"}),
    "Haug gamma and vega": (
        f.black_call,
        haug(55.0, 60.0, 0.75, 0.1, 0.3, 0.0),
        {GAMMA: ".0278", VEGA: "18.9358"},
    ),
    "Haug rho": (f.black_call, haug(72.0, 75.0, 1.0, 0.09, 0.19, 0.0), {RHO: "38.7325"}),
    "geometric Asian": (
        f.geometric_asian_call,
        ASIAN,
        {PRICE: "5.3425607", DELTA: ".540954", GAMMA: ".030246", VEGA: "21.504140"},
    ),
    "down-and-out 85": (
        f.barrier_option,
        BASE | {"barrier": 85.0},
        {PRICE: "9.949270", DELTA: ".701605", GAMMA: ".010702", VEGA: "25.469432"},
    ),
    "down-and-out 90": (
        f.barrier_option,
        BASE | {"barrier": 90.0},
        {PRICE: "8.665472", DELTA: ".830169", GAMMA: "-.001006", VEGA: "11.281422"},
    ),
    "floating lookback": (
        f.floating_lookback_call,
        LOOKBACK,
        {PRICE: "17.216802", DELTA: ".172168", VEGA: "67.662187"},
    ),
    "Margrabe": (
        f.exchange_option,
        MARGRABE,
        {
            PRICE: "10.524316",
            ("spot1",): ".552622",
            ("spot2",): "-.447378",
            ("spot1", "spot1"): ".014947",
            ("spot2", "spot2"): ".014947",
            ("spot1", "spot2"): "-.014947",
            ("sigma1",): "7.473619",
            ("sigma2",): "29.894477",
            ("rho",): "-8.968343",
        },
    ),
    "Merton": (
        f.merton_call,
        MERTON,
        {
            PRICE: "12.224434",
            DELTA: ".647901",
            GAMMA: ".015392",
            VEGA: "30.784518",
            ("intensity",): "2.197859",
        },
    ),
    "SciMLSensitivity 693": (
        f.black_call,
        SCIML,
        {
            DELTA: ".865349",
            RHO: "73.8919",
            VEGA: "21.6733",
            ("maturity",): "2.77824",
            ("strike",): "-.821021",
        },
    ),
    "Heston, NAG": (
        f.heston_call,
        heston(0.025, 0.01, 0.0175, 1.5768, 0.0398, 0.5751, -0.5711),
        {
            PRICE: "6.5961",
            DELTA: ".6616",
            GAMMA: ".0270",
            ("variance",): "53.0023",
            RHO: "59.5669",
            ("theta",): "60.3297",
            ("kappa",): ".8097",
            ("xi",): "-1.9804",
            ("rho",): ".3217",
            ("spot", "variance"): "-.3415",
            ("dividend",): "-66.1630",
            THETA: "-4.2941",
        },
    ),
    "Heston, Lewis": (
        f.heston_call,
        heston(0.01, 0.02, 0.04, 4.0, 0.25, 1.0, -0.5),
        {
            PRICE: "16.070154917",
            DELTA: ".599471",
            GAMMA: ".009288",
            ("variance",): "10.179265",
            ("kappa",): ".689854",
            # REFERENCES.md has 32.560132, a finite difference; see test_formulas_heston.
            ("theta",): "32.560133",
            ("xi",): "-1.113171",
            ("rho",): ".949833",
            RHO: "43.87698",
            ("dividend",): "-59.94713",
        },
    ),
    "Heston, Broadie-Kaya": (
        f.heston_call,
        heston(0.0319, 0.0, 0.010201, 6.21, 0.019, 0.61, -0.7),
        {
            PRICE: "6.806113",
            DELTA: ".695814",
            GAMMA: ".026543",
            ("variance",): "22.084147",
            ("kappa",): ".0739",
            ("theta",): "118.6066",
            ("xi",): "-.54363",
            ("rho",): "-.00521",
            RHO: "62.77525",
            ("dividend",): "-69.58136",
        },
    ),
}
CASES = [
    pytest.param(function, arguments, names, printed, id=f"{row}: {'-'.join(names) or 'price'}")
    for row, (function, arguments, values) in ROWS.items()
    for names, printed in values.items()
]


@pytest.mark.parametrize(("function", "arguments", "names", "printed"), CASES)
def test_a_published_value_is_met_to_its_last_digit(function, arguments, names, printed):
    sign = -1 if names == THETA else 1
    value = sign * derivative(function, arguments, *(name.lstrip("-") for name in names))
    assert_printed(value, printed)


def test_gamma_of_the_floating_lookback_is_zero():
    assert abs(derivative(f.floating_lookback_call, LOOKBACK, *GAMMA)) < 1e-15
