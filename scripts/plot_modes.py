"""Draw the derivative of one path by three modes, and their differences, which are rounding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from _command import Command, letter_panels, save
from _models import SOLVED, Choice
from matplotlib.figure import Figure

import sdesens
from sdesens import Sensitivities, plots

MODES = ("vjp", "jvp", "tangent")
EXAMPLES = (
    "",
    "--model heston --steps 400",
    "--model ou --method srk --out out/modes.svg",
    "--model cir --parameter theta",
)


def main(argv: Sequence[str] | None = None) -> None:
    """Solve by every mode, draw, save."""
    command = Command("plot_modes", __doc__ or "", SOLVED, EXAMPLES, "cir")
    command.add_count("--steps", "of the solver", 2, default=200, quick=20)
    command.add_argument("--method", default="euler", help="solver of torchsde (default euler)")
    command.add_parameter("b")
    arguments, choice, model = command.read(argv)
    shown = command.parameter(arguments, choice)
    steps = arguments.steps
    torch.set_num_threads(1)
    results = {}
    try:
        for mode in MODES:
            results[mode] = sdesens.sensitivities(
                model,
                choice.samples(1),
                torch.linspace(0, choice.horizon, steps + 1, dtype=torch.float64),
                mode=mode,
                wrt=("x0", shown),
                method=arguments.method,
                dt=choice.horizon / steps,
                seed=arguments.seed,
                progress=True,
            )
    except ValueError as error:  # a solver that there is not, or not for this noise and mode
        command.error(f"argument --method: {error}")
    save(draw(results, choice, shown), arguments.out)


def draw(results: dict[str, Sensitivities], choice: Choice, shown: str) -> Figure:
    """Two panels, each in two parts: the derivative in the start, and in a parameter."""
    entry = choice.entry(shown, results["vjp"].dparams[shown].shape[3:])
    with plots.style():
        figure = Figure(figsize=(7.4, 3.6))
        left, right = figure.subplots(1, 2)
        time = choice.time
        plots.modes(results, entry=0, ylabel=choice.derivative("x0"), xlabel=time, ax=left)
        plots.modes(
            results, wrt=shown, entry=entry, ylabel=choice.derivative(shown), xlabel=time, ax=right
        )
        inputs = (choice.letters(wrt)[0] for wrt in ("x0", shown))
        letter_panels(figure, [f"{choice.title}, derivative in ${letter}$" for letter in inputs])
    return figure


if __name__ == "__main__":
    main()
