"""Draw how a path and its derivative converge with the steps, and their means with the paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from _command import Command, letter_panels, save
from _models import COMPILED, Choice
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

import sdesens
from sdesens import SDE, plots
from sdesens.montecarlo import Estimate

METHODS = ("euler", "milstein", "srk")
BATCH = 8192  # paths at once
FINER = 8  # steps of the reference for each of the finest that is drawn
ORDERS = {"strong error": (-0.5, -1.0, -1.5), "weak error": (-1.0, -2.0)}
EXAMPLES = (
    "",
    "--model gbm --methods euler milstein srk",
    "--model heston --batches 16 --levels 7",
    "--model ou --out out/ou_order.pdf",
)
Series = Mapping[str, list[Estimate]]


def main(argv: Sequence[str] | None = None) -> None:
    """Solve on coarser and coarser views of the same noise, draw, save."""
    command = Command("plot_convergence", __doc__ or "", COMPILED, EXAMPLES, "cir")
    command.add_argument(
        "--methods", nargs="+", choices=METHODS, metavar="NAME",
        help=f"of {', '.join(METHODS)} (default euler, and milstein if the noise is diagonal)",
    )  # fmt: skip
    command.add_count("--batches", f"of {BATCH} paths", 1, default=8, quick=1)
    command.add_count("--levels", "from 4 steps, doubled", 2, default=5, quick=3)
    arguments, choice, model = command.read(argv)
    methods = arguments.methods or ["euler", "milstein"][: 1 + (model.noise_type == "diagonal")]
    methods = methods[:1] if arguments.quick else methods
    batches, levels = arguments.batches, arguments.levels
    torch.set_num_threads(1)
    steps = [4 * 2**k for k in range(levels)]
    try:
        ends = solved(model, choice, tuple(dict.fromkeys(methods)), steps, batches, arguments.seed)
    except ValueError as error:  # a solver that is not for this noise
        command.error(f"argument --methods: {error}")
    title = f"{choice.title}, $T = {choice.horizon:g}$, {batches * BATCH} paths"
    save(draw(ends, choice, steps, title), arguments.out)


@dataclass(frozen=True)
class End:
    """The first component at the horizon and its derivative in its own start, ``(P,)``."""

    x: Tensor
    dx: Tensor

    def square(self) -> Iterator[Tensor]:
        """A smooth function of the end and the derivative of it, for weak errors."""
        yield self.x**2
        yield 2 * self.x * self.dx


Ends = Mapping[str, Mapping[int, End]]  # by method and number of steps, the last the reference


def solved(
    model: SDE,
    choice: Choice,
    methods: Sequence[str],
    steps: Sequence[int],
    batches: int,
    seed: int,
) -> Ends:
    """Ends of the same paths by every method and number of steps."""
    finest = FINER * steps[-1]
    start = choice.samples(BATCH)
    channels = model.g(torch.tensor(0.0).double(), start[:1]).shape[-1]
    parts: dict[str, dict[int, list[End]]] = {m: {n: [] for n in (*steps, finest)} for m in methods}
    runs = list(product(methods, range(batches), (*steps, finest)))
    for method, batch, n in tqdm(runs, desc="convergence", unit="solve"):
        bm = sdesens.BrownianPath(
            0.0, choice.horizon, (BATCH, channels), finest, seed,
            dtype=torch.float64, first_path=batch * BATCH,
            levy_area="space-time" if method == "srk" else "none",
        )  # fmt: skip
        sens = sdesens.sensitivities(
            model, start, [0.0, choice.horizon], method=method, dt=choice.horizon / n,
            bm=bm.coarsen(finest // n), engine="fused",
        )  # fmt: skip
        parts[method][n].append(End(sens.x[-1, :, 0], sens.dx0[-1, :, 0, 0]))
    return {
        method: {
            n: End(torch.cat([end.x for end in ends]), torch.cat([end.dx for end in ends]))
            for n, ends in by_steps.items()
        }
        for method, by_steps in parts.items()
    }


def strong(ends: Ends, steps: Sequence[int], letter: str) -> Series:
    """``E |X^n - X|`` over ``E |X|``, the reference in place of X; of the derivative too."""
    out: dict[str, list[Estimate]] = {}
    for method, by_steps in ends.items():
        last = by_steps[max(by_steps)]
        for name, pick in ((f"${letter}_T$", "x"), (f"$d{letter}_T/d{letter}_0$", "dx")):
            best = getattr(last, pick)
            out[f"{method}, {name}"] = [
                Estimate.of((getattr(by_steps[n], pick) - best).abs() / best.abs().mean())
                for n in steps
            ]
    return out


def weak(ends: Ends, steps: Sequence[int], letter: str) -> Series:
    """``|E f(X^n) - E f(X)|`` over ``|E f(X)|`` for the square, on the same noise."""
    out: dict[str, list[Estimate]] = {}
    for method, by_steps in ends.items():
        last = list(by_steps[max(by_steps)].square())
        for k, name in enumerate((f"${letter}_T^2$", f"$d({letter}_T^2)/d{letter}_0$")):
            found = [
                Estimate.of((list(by_steps[n].square())[k] - last[k]) / last[k].mean())
                for n in steps
            ]
            out[f"{method}, {name}"] = [Estimate(abs(e.value), e.stderr) for e in found]
    return out


def over_paths(end: End, letter: str) -> tuple[list[int], Series]:
    """The spread of means of n paths, from groups of n: what a standard error foretells."""
    sizes = [2**k for k in range(4, len(end.x).bit_length() - 3)]  # at least eight groups
    out: dict[str, list[Estimate]] = {}
    names = (f"${letter}_T^2$", f"$d({letter}_T^2)/d{letter}_0$")
    for name, samples in zip(names, end.square(), strict=True):
        spreads = []
        for n in sizes:
            means = samples[: len(samples) // n * n].view(-1, n).mean(1) / samples.mean()
            spread = means.std().item()  # of nearly normal means, so its own error is known
            spreads.append(Estimate(spread, spread / (2 * (len(means) - 1)) ** 0.5))
        out[name] = spreads
    return sizes, out


def draw(ends: Ends, choice: Choice, steps: Sequence[int], title: str) -> Figure:
    """Strong errors, weak errors, errors of means."""
    letter = choice.components[0].letter
    first = next(iter(ends.values()))
    sizes, spreads = over_paths(first[max(first)], letter)
    by_steps = {
        "strong error": strong(ends, steps, letter),
        "weak error": weak(ends, steps, letter),
    }
    with plots.style():
        figure = Figure(figsize=(7.4, 4.0))
        panels = figure.subplots(1, 3)
        for ax, (name, series) in zip(panels[:2], by_steps.items(), strict=True):
            plots.convergence(
                steps, series, slopes=nearest(ORDERS[name], steps, series), ylabel="", ax=ax
            )
        plots.convergence(
            sizes, spreads, slopes=(-0.5,), xlabel="number of paths $n$", ylabel="", ax=panels[2]
        )
        panels[0].set_ylabel("relative error")
        for ax in panels:
            legend_beneath(ax)
        letter_panels(figure, (*by_steps, "error of a mean"))
        figure.suptitle(title)
    return figure


def nearest(orders: Sequence[float], steps: Sequence[int], series: Series) -> list[float]:
    """Those of the orders there may be that are nearest to a fitted slope."""
    slopes = [plots.fitted_slope(steps, errors).value for errors in series.values()]
    found = {min(orders, key=lambda order: abs(order - slope)) for slope in slopes}
    return sorted(found, reverse=True)


def legend_beneath(ax: Axes) -> None:
    """The legend under the axes, where its long lines hide nothing."""
    legend = ax.get_legend()
    assert legend is not None
    order = [text.get_text() for text in legend.get_texts()]
    handles, labels = ax.get_legend_handles_labels()
    by_label = dict(zip(labels, handles, strict=True))
    ax.legend(
        [by_label[label] for label in order], order,
        loc="upper left", bbox_to_anchor=(-0.2, -0.2), fontsize=7.5, handlelength=2.6,
    )  # fmt: skip


if __name__ == "__main__":
    main()
