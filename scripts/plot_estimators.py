"""Draw the standard errors of a greek by every estimator that is right for the payoff."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from _command import Command, letter_panels, save, say
from _models import PRICED, Choice
from matplotlib.figure import Figure
from tqdm import tqdm

import sdesens
from sdesens import SDE, plots
from sdesens.errors import UnsupportedError
from sdesens.pricing import Barrier, Call, Digital, Payoff, Report

ESTIMATORS = (
    "pathwise", "mixed", "conditional", "one-step-survival", "bismut", "likelihood-ratio",
)  # fmt: skip
MODELS = tuple(name for name in PRICED if name != "sabr")  # its weights take minutes to record
GREEKS = ("delta", "gamma", "vega")
PAYOFFS = ("call", "digital", "barrier")
EXAMPLES = (
    "",
    "--greeks delta gamma vega --paths 100000",
    "--payoffs digital barrier --steps 12 --out out/estimators.svg",
    "--model heston --payoffs call",
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run every estimator, draw, save."""
    command = Command("plot_estimators", __doc__ or "", MODELS, EXAMPLES, "black-scholes")
    command.add_argument(
        "--payoffs", nargs="+", choices=PAYOFFS, default=PAYOFFS, help="a panel each (default all)"
    )
    command.add_count("--paths", "of a run", 2, default=20_000, quick=1000)
    command.add_count("--steps", "of a path", 1, default=6, quick=2)
    command.add_argument(
        "--greeks", nargs="+", choices=GREEKS, default=GREEKS[:2], help="a row each (delta, gamma)"
    )
    arguments, choice, model = command.read(argv)
    names = tuple(dict.fromkeys(arguments.payoffs))
    names = names[:1] if arguments.quick else names
    torch.set_num_threads(1)
    how = {"paths": arguments.paths, "steps": arguments.steps, "seed": arguments.seed}
    found: dict[str, dict[str, Report | None]] = {name: {} for name in names}
    with tqdm(total=len(names) * len(ESTIMATORS), unit="run") as bar:
        for name, estimator in product(names, ESTIMATORS):
            bar.set_description(f"{name}, {estimator}")
            what = payoff(name, choice, arguments.steps)
            found[name][estimator] = run(model, what, choice, estimator, arguments.greeks, **how)
            bar.update()
    for name, reports in found.items():
        refused = [estimator for estimator, report in reports.items() if report is None]
        say(f"{name}: not right for it are {', '.join(refused)}")
    title = f"{choice.title}, {arguments.paths} paths of {arguments.steps} steps"
    save(draw(found, choice, title, arguments.greeks), arguments.out)


def payoff(name: str, choice: Choice, steps: int) -> Payoff:
    """At the money, one year; the barrier, at nine tenths of the start, is watched at other steps.

    Watched at every step, it would leave the two weights no choice: they would be the same.
    """
    strike = choice.start[0]
    if name == "barrier":
        dates = steps if steps % 2 else steps // 2
        return Barrier(strike, 0.9 * strike, 1.0, kind="down-and-out", dates=dates)
    return {"call": Call, "digital": Digital}[name](strike, 1.0)


def run(
    model: SDE, payoff: Payoff, choice: Choice, estimator: str, greeks: Sequence[str], **how: Any
) -> Report | None:
    """Some greeks in one report; without gamma, or none, where the estimator is not right."""
    asset, sigma = choice.asset or "", (choice.vega or ("",))[0]
    parts = []
    # Apart, as every input of second derivatives has a kernel of its own to compile.
    for wrt, orders in (
        (asset, (2, 1) if "gamma" in greeks else (1,)),
        (sigma, (1,) if "vega" in greeks else ()),
    ):
        for order in orders:
            try:
                report = sdesens.greeks(
                    model, payoff, choice.start, wrt=wrt, order=order, estimator=estimator, **how
                )
            except UnsupportedError:
                continue
            parts.append(report)
            break
    if not parts:
        return None
    entries = {name: estimate for part in parts for name, estimate in part.entries.items()}
    estimators = {name: made for part in parts for name, made in part.estimators.items()}
    return replace(parts[0], entries=entries, estimators=estimators)


def draw(
    found: Mapping[str, Mapping[str, Report | None]],
    choice: Choice,
    title: str,
    greeks: Sequence[str],
) -> Figure:
    """A panel for each payoff; one legend, as an estimator has the same mark in all of them."""
    asset, sigma = choice.asset or "", (choice.vega or ("",))[0]
    unit = choice.components[0].unit
    every = {
        "delta": ("delta", asset),
        "gamma": (f"gamma (1/{unit})", (asset, asset)),
        "vega": (f"vega ({unit})", sigma),
    }
    rows = dict(every[greek] for greek in GREEKS if greek in greeks)
    with plots.style():
        figure = Figure(figsize=(7.4, 1.6 + 0.4 * len(rows)))
        panels = figure.subplots(1, len(found), squeeze=False, sharey=True)[0]
        for ax, reports in zip(panels, found.values(), strict=True):
            plots.estimator_variances(reports, of=rows, legend=ax is panels[-1], ax=ax)
        letter_panels(figure, list(found))
        figure.suptitle(title)
    return figure


if __name__ == "__main__":
    main()
