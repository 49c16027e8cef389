"""Draw delta, gamma and vega against spot with confidence bands, and what is known of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from _command import Command, letter_panels, save, say
from _models import PRICED, Choice
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tqdm import tqdm

import sdesens
from sdesens import SDE, plots
from sdesens.errors import UnsupportedError
from sdesens.montecarlo import Estimate
from sdesens.pricing import Call, Digital, Payoff, Put, closed_form_greeks
from sdesens.pricing.report import Name

PAYOFFS = {"call": Call, "put": Put, "digital": Digital}
EXAMPLES = (
    "",
    "--model heston --payoff call --paths 20000",
    "--payoff digital --out out/digital.pdf",
    "--model sabr --points 9 --quick",
)
FINER = 4  # points of a closed form for each that is simulated
Profile = Mapping[str, list[Estimate]]  # delta, gamma, vega, at every spot


def main(argv: Sequence[str] | None = None) -> None:
    """Simulate at every spot, draw, save."""
    command = Command("plot_greeks", __doc__ or "", PRICED, EXAMPLES, "black-scholes")
    command.add_argument("--payoff", choices=PAYOFFS, default="call",
        help="default call; a digital of sabr takes minutes",
    )  # fmt: skip
    command.add_count("--paths", "at a spot", 2, default=4000, quick=1000)
    command.add_count("--steps", "of a path", 1, default=20, quick=4)
    command.add_count("--points", "spots", 2, default=15, quick=4)
    arguments, choice, model = command.read(argv)
    points, paths, steps = arguments.points, arguments.paths, arguments.steps
    torch.set_num_threads(1)
    strike = choice.start[0]
    payoff = PAYOFFS[arguments.payoff](strike, 1.0)
    spots = torch.linspace(0.7 * strike, 1.3 * strike, points, dtype=torch.float64).tolist()
    profile = simulated(model, payoff, choice, spots, paths, steps, arguments.seed)
    known = in_closed_form(model, payoff, choice, between(spots))
    if known is None:
        say(f"{choice.title} has no closed form for this {arguments.payoff}")
    contract = f"{arguments.payoff} of strike {strike:g} and one year"
    title = f"{choice.title}, {contract}, {paths} paths a spot"
    save(draw(profile, known, choice, spots, title), arguments.out)


def names(choice: Choice) -> dict[str, Name]:
    """The greeks by their names in a report."""
    asset, vega = choice.asset or "", choice.vega or ("", "")
    return {"delta": (asset,), "gamma": (asset, asset), "vega": (vega[0],)}


def simulated(
    model: SDE,
    payoff: Payoff,
    choice: Choice,
    spots: Sequence[float],
    paths: int,
    steps: int,
    seed: int,
) -> Profile:
    """Estimates at every spot, each on noise of its own, so that errors are independent."""
    found: dict[str, list[Estimate]] = {greek: [] for greek in names(choice)}
    for k, spot in enumerate(tqdm(spots, desc="greeks", unit="spot")):
        start = [spot, *choice.start[1:]]
        how: dict[str, Any] = {"paths": paths, "steps": steps, "seed": seed + k}
        # Of vega no second derivative is asked for: each has a kernel of its own to compile.
        first = sdesens.greeks(model, payoff, start, wrt=names(choice)["vega"], **how)
        second = sdesens.greeks(model, payoff, start, wrt=choice.asset or "", order=2, **how)
        for greek, name in names(choice).items():
            found[greek].append((first if greek == "vega" else second).entries[name])
    return found


def between(spots: Sequence[float]) -> list[float]:
    """The spots and three more between each two, for a curve that is smooth."""
    fine = torch.linspace(spots[0], spots[-1], FINER * (len(spots) - 1) + 1, dtype=torch.float64)
    return fine.tolist()


def in_closed_form(
    model: SDE, payoff: Payoff, choice: Choice, spots: Sequence[float]
) -> Mapping[str, list[float]] | None:
    """The same numbers, exactly, where the model knows them."""
    wrt = (choice.asset or "", *names(choice)["vega"])
    try:
        values = [
            closed_form_greeks(model, payoff, [s, *choice.start[1:]], wrt=wrt, order=2)
            for s in tqdm(spots, desc="closed form", unit="spot", leave=False)
        ]
    except UnsupportedError:
        return None
    return {greek: [each[name] for each in values] for greek, name in names(choice).items()}


def draw(
    profile: Profile,
    known: Mapping[str, list[float]] | None,
    choice: Choice,
    spots: Sequence[float],
    title: str,
) -> Figure:
    """A panel for each greek; below, where they are known, the errors in standard errors."""
    asset, vega = choice.components[0], (choice.vega or ("", ""))[1]
    labels = {
        "delta": f"$dV / d{asset.letter}_0$",
        "gamma": f"$d^2V / d{asset.letter}_0^2$ (1/{asset.unit})",
        "vega": f"$dV / d{vega}$ ({asset.unit})",
    }
    xlabel = f"{asset.name} ${asset.letter}_0$ ({asset.unit})"
    with plots.style():
        figure = Figure(figsize=(7.4, 4.2 if known else 2.8))
        panels = figure.subplots(
            2 if known else 1, 3, squeeze=False, sharex=True,
            height_ratios=(2.4, 1) if known else None,
        )  # fmt: skip
        for k, (greek, estimates) in enumerate(profile.items()):
            above, below = panels[0, k], panels[-1, k]
            curve = (between(spots), known[greek]) if known else None
            plots.greek_profile(
                spots, estimates, closed_form=curve, xlabel="", ylabel=labels[greek], ax=above
            )
            if k:
                above.get_legend().remove()
            if known:
                errors = zip(estimates, known[greek][::FINER], strict=True)
                deviations(below, spots, [(e.value - v) / e.stderr for e, v in errors])
            below.set_xlabel(xlabel)
        letter_panels(figure, list(profile))
        figure.suptitle(title)
    return figure


def deviations(ax: Axes, spots: Sequence[float], off: Sequence[float]) -> None:
    """Errors in standard errors, of which one in twenty lies outside the band."""
    ax.axhspan(-1.96, 1.96, color="0.9", lw=0)
    ax.axhline(0.0, color="black", lw=0.9, ls="--")
    ax.plot(spots, off, "o", color=plots.PALETTE[0])
    reach = max(3.0, *(abs(z) for z in off))
    ax.set_ylim(-1.1 * reach, 1.1 * reach)
    ax.set_ylabel("error / std. error")


if __name__ == "__main__":
    main()
