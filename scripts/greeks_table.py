"""Greeks by simulation beside published numbers: value, standard error, deviation.

Runs ``sdesens.greeks`` for every case of a list and prints a table in markdown. A row's deviation
is counted in its standard errors from the closed form, which is checked to have all the digits of
the published number; beyond 3.5 it is marked, and explained in a note.

    python scripts/greeks_table.py --quick                     # a minute: 20,000 paths each
    python scripts/greeks_table.py --only heston               # cases whose name has this in it
    python scripts/greeks_table.py --out docs/greeks.md        # the page, as it stands there
    python scripts/greeks_table.py --paths 100000 --only 'out' # so many paths for each run
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

import sdesens
from sdesens.models import BlackScholes, Heston, MertonJumpDiffusion, MultiAssetBlackScholes
from sdesens.montecarlo import Estimate
from sdesens.pricing import Asian, Barrier, Call, Digital, Exchange, Lookback, Payoff, Put
from sdesens.pricing.reference import closed_form_derivatives
from sdesens.pricing.report import Name
from sdesens.pricing.scenario import Scenario

LIMIT = 3.5  # in a table of a hundred rows a right number passes it once in 20 tables
QUICK = 20_000


@dataclass(frozen=True)
class Run:
    """One call of ``greeks``: which derivatives, and of how many paths."""

    wrt: Sequence[str]
    paths: int
    order: int = 1


@dataclass(frozen=True)
class Case:
    """A model and a payoff with published numbers.

    Attributes:
        published: by inputs, ``""`` the price, ``"spot sigma"`` a second derivative,
            ``"-maturity"`` minus a derivative; as printed where they were published.
        runs: each number is taken from the run that knows it best.
        notes: what is to be said of a row.
    """

    name: str
    model: sdesens.SDE
    payoff: Payoff
    x0: Sequence[float]
    published: Mapping[str, str]
    runs: Sequence[Run]
    steps: int = 1
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    case: str
    quantity: str
    estimator: str
    estimate: Estimate
    published: str
    deviation: float
    seconds: float
    note: str


M = 1_000_000
BASE = BlackScholes(rate=0.05, sigma=0.2)
FOURNIE = BlackScholes(rate=0.1, sigma=0.2)


def _broadie_glasserman(spot: float, numbers: Sequence[str]) -> Case:
    names = ("", "spot", "spot spot", "sigma", "rate")
    return Case(
        f"Broadie-Glasserman, S = {spot:g}",
        BlackScholes(rate=0.1, sigma=0.25, dividend=0.03), Call(100.0, 0.2), [spot],
        dict(zip(names, numbers, strict=True)),
        [Run(("spot", "sigma", "rate"), 4 * M), Run(("spot",), 16 * M, order=2)],
    )  # fmt: skip


def _heston(
    name: str,
    model: Heston,
    variance: float,
    numbers: Mapping[str, str],
    *runs: Run,
    notes: Mapping[str, str] | None = None,
) -> Case:
    everything = ("x0", "rate", "kappa", "theta", "xi", "rho", "dividend", "maturity")
    start, runs = [100.0, variance], (Run(everything, 2 * M), *runs)
    return Case(name, model, Call(100.0, 1.0), start, numbers, runs, steps=50, notes=notes or {})


CASES = (
    Case(
        "Black-Scholes, call", BASE, Call(100.0, 1.0), [100.0],
        {"": "10.450584", "spot": ".636831", "spot spot": ".018762", "sigma": "37.524035",
         "rate": "53.232482", "-maturity": "-6.414028", "spot sigma": "-.281430",
         "sigma sigma": "9.850059"},
        [Run(("spot", "sigma", "rate", "maturity"), 4 * M), Run(("spot", "sigma"), 16 * M, 2),
         Run(("sigma",), 128 * M, 2)],
    ),
    Case(
        "Black-Scholes, digital", BASE, Digital(100.0, 1.0), [100.0],
        {"": ".532325", "spot": ".018762", "spot spot": "-.000328", "sigma": "-.656671",
         "rate": "1.343877"},
        [Run(("spot", "sigma", "rate"), 16 * M), Run(("spot",), 16 * M, 2)],
    ),
    _broadie_glasserman(90.0, ("1.219787", ".221918", ".029496", "11.946044", "3.750565")),
    _broadie_glasserman(100.0, ("5.125900", ".568443", ".034892", "17.445997", "10.343680")),
    _broadie_glasserman(110.0, ("12.327114", ".844258", ".018900", "11.434747", "16.108254")),
    Case(
        "Fournié et al., call", FOURNIE, Call(100.0, 1.0), [100.0],
        {"spot": ".725747", "spot spot": ".016661", "sigma": "33.32246"},
        [Run(("spot", "sigma"), 4 * M), Run(("spot",), 16 * M, 2)],
    ),
    Case(
        "Fournié et al., digital", FOURNIE, Digital(100.0, 1.0), [100.0],
        {"spot": ".016661", "spot spot": "-.000500", "sigma": "-.999674"},
        [Run(("spot", "sigma"), 16 * M), Run(("spot",), 16 * M, 2)],
    ),
    _heston(
        "Heston, NAG", Heston(0.025, 1.5768, 0.0398, 0.5751, -0.5711, 0.01), 0.0175,
        {"": "6.5961", "spot": ".6616", "spot spot": ".0270", "variance": "53.0023",
         "rate": "59.5669", "theta": "60.3297", "kappa": ".8097", "xi": "-1.9804", "rho": ".3217",
         "spot variance": "-.3415", "dividend": "-66.1630", "-maturity": "-4.2941"},
        Run(("rho",), 8 * M), Run(("spot", "variance"), 2 * M, 2),
    ),
    _heston(
        "Heston, Lewis", Heston(0.01, 4.0, 0.25, 1.0, -0.5, 0.02), 0.04,
        {"": "16.070154917", "spot": ".599471", "spot spot": ".009288", "variance": "10.179265",
         "kappa": ".689854", "theta": "32.560133", "xi": "-1.113171", "rho": ".949833",
         "rate": "43.87698", "dividend": "-59.94713"},
        Run(("rho",), 32 * M), Run(("xi",), 6 * M), Run(("spot",), M // 2, 2),
        notes={"": "bias of the scheme: -0.0044 ± 0.0008 with 25 steps, -0.0019 ± 0.0005 with 50"},
    ),
    _heston(
        "Heston, Broadie-Kaya", Heston(0.0319, 6.21, 0.019, 0.61, -0.7), 0.010201,
        {"": "6.806113", "spot": ".695814", "spot spot": ".026543", "variance": "22.084147",
         "kappa": ".0739", "theta": "118.6066", "xi": "-.54363", "rho": "-.00521",
         "rate": "62.77525", "dividend": "-69.58136"},
        Run(("rho", "xi"), 8 * M), Run(("spot",), M // 2, 2),
        notes={
            "": "bias of the scheme: -0.003 ± 0.001 with 25 steps, -0.0015 ± 0.0005 with 50",
            "rho": "bias of the scheme: +0.010 ± 0.002 with 25 steps, about +0.005 with 50, not "
                   "seen (-0.003 ± 0.003) with 100",
        },
    ),
    Case(
        "Haug, delta of a call", BlackScholes(0.1, 0.36, 0.1), Call(100.0, 0.5), [105.0],
        {"spot": ".5946"}, [Run(("spot",), 4 * M)],
    ),
    Case(
        "Haug, delta of a put", BlackScholes(0.1, 0.36, 0.1), Put(100.0, 0.5), [105.0],
        {"spot": "-.3566"}, [Run(("spot",), 4 * M)],
    ),
    Case(
        "Haug, gamma and vega", BlackScholes(0.1, 0.3), Call(60.0, 0.75), [55.0],
        {"spot spot": ".0278", "sigma": "18.9358"},
        [Run(("sigma",), 4 * M), Run(("spot",), 16 * M, 2)],
    ),
    Case(
        "Haug, rho", BlackScholes(0.09, 0.19), Call(75.0, 1.0), [72.0],
        {"rate": "38.7325"}, [Run(("rate",), 4 * M)],
    ),
    Case(
        "Geometric Asian, 10 fixings", BlackScholes(0.06, 0.2, 0.03),
        Asian(100.0, 1.0, 10, average="geometric"), [100.0],
        {"": "5.3425607", "spot": ".540954", "spot spot": ".030246", "sigma": "21.504140"},
        [Run(("spot", "sigma"), 4 * M), Run(("spot",), 8 * M, 2)], steps=10,
    ),
    Case(
        "Down-and-out call, H = 85", BASE, Barrier(100.0, 85.0, 1.0), [100.0],
        {"": "9.949270", "spot": ".701605", "spot spot": ".010702", "sigma": "25.469432"},
        [Run(("spot", "sigma"), 4 * M), Run(("spot",), 16 * M, 2)],
    ),
    Case(
        "Down-and-out call, H = 90", BASE, Barrier(100.0, 90.0, 1.0), [100.0],
        {"": "8.665472", "spot": ".830169", "spot spot": "-.001006", "sigma": "11.281422"},
        [Run(("spot", "sigma"), 8 * M), Run(("spot",), 128 * M, 2)],
    ),
    Case(
        "Lookback call, floating strike", BASE, Lookback(1.0), [100.0],
        {"": "17.216802", "spot": ".172168", "sigma": "67.662187"},
        [Run(("spot", "sigma"), 4 * M)],
    ),
    Case(
        "Margrabe", MultiAssetBlackScholes(0.05, [0.2, 0.3], [0.5]), Exchange(1.0), [100.0, 100.0],
        {"": "10.524316", "spots[0]": ".552622", "spots[1]": "-.447378",
         "spots[0] spots[0]": ".014947", "spots[1] spots[1]": ".014947",
         "spots[0] spots[1]": "-.014947", "sigma[0]": "7.473619", "sigma[1]": "29.894477",
         "rho[0]": "-8.968343"},
        [Run(("x0", "sigma", "rho"), 32 * M), Run(("x0",), 16 * M, 2)],
    ),
    Case(
        "Merton", MertonJumpDiffusion(0.05, 0.2, 0.75, -0.1, 0.15), Call(100.0, 1.0), [100.0],
        {"": "12.224434", "spot": ".647901", "spot spot": ".015392", "sigma": "30.784518",
         "intensity": "2.197859"},
        [Run(("spot", "sigma", "intensity"), 8 * M), Run(("spot",), 2 * M, 2)],
    ),
    Case(
        "SciMLSensitivity, issue 693", BlackScholes(0.02, 0.12), Call(90.0, 1.0), [100.0],
        {"spot": ".865349", "rate": "73.8919", "sigma": "21.6733", "maturity": "2.77824",
         "strike": "-.821021"},
        [Run(("spot", "rate", "sigma", "maturity", "strike"), 8 * M)],
    ),
)  # fmt: skip


# --- computing -----------------------------------------------------------------------------------


def rows_of(case: Case, paths: int | None) -> list[Row]:
    """The table's rows of a case, with ``paths`` in place of its own numbers of paths if given."""
    exact = closed_form(case)
    begin = time.perf_counter()
    found: dict[Name, tuple[Estimate, str]] = {}
    for run in case.runs:
        report = sdesens.greeks(
            case.model, case.payoff, case.x0, paths=paths or run.paths, steps=case.steps,
            wrt=run.wrt, order=run.order, antithetic=True, seed=CASES.index(case),
        )  # fmt: skip
        for name, estimate in report.entries.items():
            if name not in found or estimate.stderr < found[name][0].stderr:
                found[name] = estimate, report.estimators[name]
    seconds = time.perf_counter() - begin
    rows = []
    for text, published in case.published.items():
        name, sign = tuple(text.lstrip("-").split()), -1.0 if text.startswith("-") else 1.0
        estimate, estimator = found[name]
        estimate = Estimate(sign * estimate.value, estimate.stderr)
        check_published(f"{case.name}, {quantity(text)}", sign * exact[name], published)
        deviation = (estimate.value - sign * exact[name]) / (estimate.stderr or math.inf)
        note = case.notes.get(text, "")
        rows.append(
            Row(case.name, quantity(text), estimator, estimate, published, deviation, seconds, note)
        )
    return rows


def closed_form(case: Case) -> dict[Name, float]:
    """Value and derivatives to all digits."""
    scenario = Scenario.of(
        case.model, case.payoff, case.x0, steps=case.steps, scheme="auto", dtype=torch.float64
    )
    out: dict[Name, float] = {}
    for run in case.runs:
        found = closed_form_derivatives(scenario, run.order, scenario.directions(run.wrt))
        out |= {tuple(scenario.label(d) for d in key): value for key, value in found.items()}
    return out


def check_published(what: str, exact: float, published: str) -> None:
    """Raise unless ``exact`` rounds to the published number."""
    half = 0.5 * 10.0 ** -len(published.partition(".")[2])
    if abs(exact - float(published)) > half * (1 + 1e-6):
        raise ValueError(f"{what}: the closed form is {exact:.9g}, published is {published}.")


# --- printing ------------------------------------------------------------------------------------


def quantity(text: str) -> str:
    """The name of a derivative, as it is read."""
    names = text.lstrip("-").split()
    name = {0: "price", 1: f"d/d{''.join(names)}", 2: f"d²/{' '.join('d' + n for n in names)}"}
    return ("-" if text.startswith("-") else "") + name[len(names)]


HEADER = (
    "quantity", "estimator", "value", "standard error", "published", "deviation", "relative error",
    "note",
)  # fmt: skip


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Lines of markdown: a heading and a table for each case."""
    for name in dict.fromkeys(row.case for row in rows):
        of_case = [row for row in rows if row.case == name]
        yield from ("", f"## {name}", "", f"{of_case[0].seconds:.0f} s.", "")
        yield f"| {' | '.join(HEADER)} |"
        yield "|---|---|--:|--:|--:|--:|--:|---|"
        for row in of_case:
            yield f"| {' | '.join(cells(row))} |"


def cells(row: Row) -> list[str]:
    """A row as text: digits as far as the standard error has two."""
    value, error = row.estimate.value, row.estimate.stderr
    decimals = max(0, 1 - math.floor(math.log10(error))) if error > 0 else 6
    deviation = f"{row.deviation:+.1f}"
    if abs(row.deviation) > LIMIT:
        deviation = f"**{deviation}**"
    relative = f"{abs(error / value):.2%}" if value else ""
    return [
        row.quantity, row.estimator, f"{value:.{decimals}f}", f"{error:.{decimals}f}",
        row.published, deviation, relative, row.note,
    ]  # fmt: skip


INTRO = """\
# Greeks beside published numbers

Made by `python scripts/greeks_table.py --out docs/greeks.md`{arguments}: antithetic pairs, a
seed for each case, torch {torch} on one thread of {machine}; seconds include compilation.

The deviation is counted in standard errors, from the closed form, which has all the digits of the
published number. **Bold** beyond 3.5. Black-Scholes and Merton run without discretisation error;
Heston runs by the quadratic-exponential scheme with 50 steps, whose bias is stated where it could
be measured. The relative error is the standard error over the value.

{summary}"""


def page(rows: Sequence[Row], arguments: str) -> str:
    """The whole page."""
    worst = max(rows, key=lambda row: abs(row.deviation))
    beyond = [row for row in rows if abs(row.deviation) > LIMIT]
    spread = math.sqrt(sum(row.deviation**2 for row in rows) / len(rows))
    summary = (
        f"{len(rows)} numbers, {len(beyond)} beyond 3.5; root mean square deviation "
        f"{spread:.2f}; the largest {worst.deviation:+.1f}, {worst.quantity} of {worst.case}."
    )
    intro = INTRO.format(
        arguments=arguments, torch=torch.__version__, summary=summary,
        machine=platform.processor() or platform.machine(),
    )  # fmt: skip
    return "\n".join([intro, *table(rows), ""])


def main() -> None:
    """Run the cases asked for, print the table, write it if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--paths", type=int, help="paths of every run, even")
    parser.add_argument("--quick", action="store_true", help=f"the same as --paths {QUICK}")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--out", type=Path, help="file to write the page to")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = [case for case in CASES if options.only.lower() in case.name.lower()]
    if not cases:
        parser.error(f"no case has {options.only!r} in its name: {[case.name for case in CASES]}")
    paths = options.paths or (QUICK if options.quick else None)
    arguments = f" with {paths:,} paths a run" if paths else ""
    rows: list[Row] = []
    for k, case in enumerate(cases, 1):
        print(f"[{k}/{len(cases)}] {case.name} ...", end=" ", file=sys.stderr, flush=True)
        rows += rows_of(case, paths)
        print(f"{rows[-1].seconds:.0f} s", file=sys.stderr, flush=True)
        if options.out:  # as far as it has got
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(page(rows, arguments))
    print(page(rows, arguments))


if __name__ == "__main__":
    main()
