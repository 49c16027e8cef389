"""QuantLib's ``MCEuropeanHestonEngine``: a price, by its quadratic-exponential step."""

from __future__ import annotations

import sys

import QuantLib as ql  # noqa: N813  (as its own documentation does)
from clock import report

ROUNDS = int(sys.argv[1])
PATHS, STEPS = 8192, 100


def main() -> None:
    """Time the price."""
    today = ql.Date(1, 1, 2026)
    ql.Settings.instance().evaluationDate = today
    day = ql.Actual365Fixed()
    rate = ql.YieldTermStructureHandle(ql.FlatForward(today, 0.03, day))
    dividend = ql.YieldTermStructureHandle(ql.FlatForward(today, 0.0, day))
    spot = ql.QuoteHandle(ql.SimpleQuote(100.0))
    process = ql.HestonProcess(rate, dividend, spot, 0.04, 1.5, 0.04, 0.3, -0.7)

    def price() -> float:
        option = ql.VanillaOption(
            ql.PlainVanillaPayoff(ql.Option.Call, 100.0), ql.EuropeanExercise(today + 365)
        )
        option.setPricingEngine(
            ql.MCEuropeanHestonEngine(
                process, "PseudoRandom", timeSteps=STEPS, requiredSamples=PATHS, seed=1
            )
        )
        return option.NPV()

    values = {"value": price(), "derivatives": []}
    report("heston price", price, 1e9 / (PATHS * STEPS), ROUNDS, values)


if __name__ == "__main__":
    main()
