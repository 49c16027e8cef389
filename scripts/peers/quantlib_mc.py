"""QuantLib: ``MCEuropeanHestonEngine``, price alone, in double precision (it has no other).

Full truncation is the fastest of its schemes: Euler for ``v`` as here, and for ``log S``. The
semi-analytical engine gives the reference for everyone's prices and derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence

import QuantLib as ql  # pyright: ignore[reportMissingImports]  # noqa: N813
from jobs import HESTON, PRICE, STRIKE, Row, Size, asked, measure, report

TODAY = ql.Date(1, 1, 2025)
DAYS = ql.Actual365Fixed()


def process(at: Sequence[float]) -> ql.HestonProcess:
    """The Heston process at ``(S0, v0, r, kappa, theta, xi, rho)``."""
    s0, v0, r, kappa, theta, xi, rho = at
    rate, dividend = (
        ql.YieldTermStructureHandle(ql.FlatForward(TODAY, rate, DAYS)) for rate in (r, 0.0)
    )
    spot = ql.QuoteHandle(ql.SimpleQuote(s0))
    scheme = ql.HestonProcess.FullTruncation
    return ql.HestonProcess(rate, dividend, spot, v0, kappa, theta, xi, rho, scheme)


def price(engine: ql.PricingEngine) -> float:
    """Price of the call by an engine."""
    ql.Settings.instance().evaluationDate = TODAY
    payoff = ql.PlainVanillaPayoff(ql.Option.Call, STRIKE)
    option = ql.VanillaOption(payoff, ql.EuropeanExercise(TODAY + 365))
    option.setPricingEngine(engine)
    return option.NPV()


def exact_price(at: Sequence[float]) -> float:
    """Semi-analytical price."""
    return price(ql.AnalyticHestonEngine(ql.HestonModel(process(at)), 1e-12, 100_000))


def reference() -> list[float]:
    """The price and its derivatives by central differences."""
    point = list(HESTON.values())

    def slope(k: int) -> float:
        up, down = (
            exact_price([*point[:k], point[k] * factor, *point[k + 1 :]])
            for factor in (1.0001, 0.9999)
        )
        return (up - down) / (0.0002 * point[k])

    return [exact_price(point), *map(slope, range(len(point)))]


def heston(size: Size) -> list[Row]:
    """The row of ``heston``."""

    def run(seed: int) -> list[float]:
        engine = ql.MCEuropeanHestonEngine(
            process(list(HESTON.values())),
            "pseudorandom",
            timeSteps=size.steps,
            requiredSamples=size.paths,
            seed=seed + 1,  # 0 would be the clock
        )
        return [price(engine)]

    return [measure("QuantLib", PRICE, run, size, "float64", "full truncation")]


if __name__ == "__main__":
    report(heston(asked()), ["QuantLib"], reference())
