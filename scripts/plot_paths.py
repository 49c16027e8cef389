"""Draw paths of a model, the fans of their derivatives, and what they depend on when."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from _command import Command, letter_panels, save
from _models import SOLVED, Choice
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import sdesens
from sdesens import SDE, Sensitivities, plots

EXAMPLES = (
    "",
    "--model cir --paths 5000 --out out/cir.pdf",
    "--model heston --parameter rho --steps 200",
    "--quick",
)


def main(argv: Sequence[str] | None = None) -> None:
    """Solve, draw, save."""
    command = Command("plot_paths", __doc__ or "", SOLVED, EXAMPLES, "heston")
    command.add_count("--paths", "samples", 2, default=4000, quick=200)
    command.add_count("--steps", "Euler steps", 2, default=100, quick=20)
    command.add_parameter("c")
    arguments, choice, model = command.read(argv)
    shown = command.parameter(arguments, choice)
    paths, steps = arguments.paths, arguments.steps
    torch.set_num_threads(1)
    sens = sdesens.sensitivities(
        model,
        choice.samples(paths),
        torch.linspace(0, choice.horizon, steps + 1, dtype=torch.float64),
        wrt=("x0", *choice.parameters),
        method="euler",
        dt=choice.horizon / steps,
        seed=arguments.seed,
        progress=True,
    )
    save(draw(sens, choice, model, shown), arguments.out)


def draw(sens: Sensitivities, choice: Choice, model: SDE, shown: str) -> Figure:
    """Four panels: paths, two fans of derivatives, the map."""
    first = choice.components[0]
    with plots.style():
        figure = Figure(figsize=(7.4, 5.4))
        (paths, start), (parameter, chart) = figure.subplots(2, 2)
        plots.path_fan(sens, xlabel=choice.time, ylabel=first.label, ax=paths)
        start_label = choice.derivative("x0")
        plots.tangent_fan(
            sens, entry=0, xlabel=choice.time, ylabel=start_label, legend=False, ax=start
        )
        entry = choice.entry(shown, sens.dparams[shown].shape[3:])
        plots.tangent_fan(
            sens,
            wrt=shown,
            entry=entry,
            xlabel=choice.time,
            ylabel=choice.derivative(shown),
            legend=False,
            ax=parameter,
        )
        plots.sensitivity_heatmap(sens, model, xlabel=choice.time, ax=chart)
        in_letters(chart, choice)
        titles = (
            f"{choice.title}, paths",
            f"derivative in ${choice.letters('x0')[0]}$",
            f"derivative in ${choice.letters(shown)[0]}$",
            "each input $p$ times derivative",
        )
        letter_panels(figure, titles)
    return figure


def in_letters(chart: Axes, choice: Choice) -> None:
    """The map in the model's letters: the state's, and its rows', unless there are many of one."""
    first = choice.components[0]
    bar = chart.collections[0].colorbar
    if bar is not None:
        bar.set_label(rf"rms of $p\, d{first.letter}_t / dp$" + first.in_unit)
    letters = [letter for wrt in ("x0", *choice.parameters) for letter in choice.letters(wrt)]
    if len(chart.get_yticks()) == len(letters):
        chart.set_yticks(chart.get_yticks(), [f"${letter}$" for letter in letters])


if __name__ == "__main__":
    main()
