"""The question sdesens started from, answered three ways, and a greek that autodiff gets wrong.

An Ornstein-Uhlenbeck process ``dX = -X dt + dW`` on 100 times by Euler: what is ``dX_t/dx0`` at
every one of them? ``torch.autograd.grad`` with ones as grad_outputs returns one number, summed over
the times; a loop over the times is right and slow. Then the delta of a digital option, which is 0
by the derivative of its payoff, and is not 0.

    python scripts/demo.py [--out out]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torchsde
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import sdesens
from sdesens import Sensitivities, montecarlo, plots
from sdesens.models import BlackScholes, OrnsteinUhlenbeck
from sdesens.montecarlo import Estimate
from sdesens.pricing import Digital, closed_form_greeks

TIMES = 100
DT = 1 / (TIMES - 1)
MODES = ("vjp", "jvp", "tangent")
SPOTS = tuple(float(spot) for spot in range(60, 145, 5))
DIGITAL = Digital(strike=100.0, maturity=1.0)  # pays 1 if the spot ends above the strike


def main() -> None:
    """Run the three modes and the loop, the digital; print two tables, draw the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the picture")
    out = parser.parse_args().out
    torch.set_num_threads(1)

    ou = OrnsteinUhlenbeck(kappa=1.0, mean=0.0, sigma=1.0)
    ts = torch.linspace(0, 1, TIMES, dtype=torch.float64)
    curves, seconds = fastest(ways(ou, ts))
    print(table(curves, seconds, ts))

    black_scholes = BlackScholes(rate=0.05, sigma=0.2)
    known, estimated, derived = digital_deltas(black_scholes)
    at = SPOTS.index(100.0)
    print("\ndelta of a digital option at the money, Black-Scholes, one year")
    for name, number in (
        ("closed form", f"{known[at]:.6f}"),
        ("sdesens.greeks", f"{estimated[at].value:.6f} +- {estimated[at].stderr:.6f}"),
        ("derivative of the payoff", f"{derived[at].value:.6f} +- {derived[at].stderr:.6f}"),
    ):
        print(f"{name:26}{number}")

    start = torch.zeros(4000, 1, dtype=torch.float64)
    many = sdesens.sensitivities(ou, start, ts, mode="vjp", method="euler", dt=DT, seed=0)
    out.mkdir(parents=True, exist_ok=True)
    with plots.style():
        figure = Figure(figsize=(9.6, 2.9))
        draw(figure, many, {mode: curves[mode] for mode in MODES}, known, estimated, derived)
        figure.savefig(out / "demo.png", dpi=200)
    print(f"\npicture: {out / 'demo.png'}")


def ways(model: OrnsteinUhlenbeck, ts: Tensor) -> dict[str, Callable[[], Tensor]]:
    """``dX_t/dx0`` of one path, ``(T,)``, by a loop over the times and by every mode."""
    x0 = torch.zeros(1, 1, dtype=torch.float64)
    bm = sdesens.BrownianPath(0, 1, (1, 1), TIMES - 1, seed=0, dtype=torch.float64)

    def run(mode: str) -> Callable[[], Tensor]:
        def derivative() -> Tensor:
            result = sdesens.sensitivities(model, x0, ts, mode=mode, method="euler", dt=DT, bm=bm)
            return result.dx0[:, 0, 0, 0]

        return derivative

    def loop() -> Tensor:
        start = x0.clone().requires_grad_()
        path = torchsde.sdeint(model, start, ts, bm=bm, method="euler", dt=DT)
        assert isinstance(path, Tensor)
        grads = [torch.autograd.grad(x.sum(), start, retain_graph=True)[0] for x in path]
        return torch.stack(grads)[:, 0, 0]

    return {"loop over time": loop} | {mode: run(mode) for mode in MODES}


def fastest(
    functions: dict[str, Callable[[], Tensor]], rounds: int = 5
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Results, and the fastest of ``rounds`` interleaved runs of each after one to warm up."""
    results = {name: function() for name, function in functions.items()}
    seconds = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return results, seconds


def table(curves: dict[str, Tensor], seconds: dict[str, float], ts: Tensor) -> str:
    """Error against the exact derivative of the Euler scheme and of the SDE, time, speed-up."""
    scheme = (1 - DT) ** torch.arange(TIMES, dtype=torch.float64)
    lines = [
        f"dX_t/dx0 of dX = -X dt + dW, {TIMES} times, Euler, dt = 1/{TIMES - 1}, one thread",
        f"{'':16}{'max error against':>36}",
        f"{'':16}{'(1-dt)^k':>18}{'exp(-t)':>18}{'time':>12}{'speed-up':>12}",
    ]
    for name, curve in curves.items():
        errors = [(curve - exact).abs().max().item() for exact in (scheme, torch.exp(-ts))]
        speed = seconds["loop over time"] / seconds[name]
        lines.append(
            f"{name:16}{errors[0]:18.1e}{errors[1]:18.1e}"
            f"{seconds[name] * 1e3:9.1f} ms{speed:11.0f}x"
        )
    return "\n".join(lines)


def digital_deltas(
    model: BlackScholes,
) -> tuple[list[float], list[Estimate], list[Estimate]]:
    """Deltas at every spot: in closed form, by ``greeks``, and by the payoff's own derivative."""

    def payoff(end: Any) -> Tensor:
        return torch.exp(-model.rate * end.time) * (end.spot > DIGITAL.strike)

    known, estimated, derived = [], [], []
    for k, spot in enumerate(SPOTS):
        known.append(closed_form_greeks(model, DIGITAL, [spot], wrt="spot")["spot",])
        how = {"wrt": "spot", "paths": 20_000, "steps": 1, "seed": k}
        estimated.append(sdesens.greeks(model, DIGITAL, [spot], **how)["spot"])
        derived.append(montecarlo.run(model, [spot], payoff, maturity=1.0, **how)["value", "spot"])
    return known, estimated, derived


def draw(
    figure: Figure,
    many: Sensitivities,
    curves: dict[str, Tensor],
    known: Sequence[float],
    estimated: Sequence[Estimate],
    derived: Sequence[Estimate],
) -> None:
    """Paths; the derivative by three modes on the exact curve; the digital's delta."""
    paths, derivative, delta = figure.subplots(1, 3)
    plots.path_fan(many, legend=False, ax=paths)
    paths.set_ylim(-1.6, 2.4)
    paths.legend(loc="upper left", ncols=2, columnspacing=1.2, handlelength=1.8)
    paths.set_title("(a)  $dX = -X\\,dt + dW$, Euler steps")
    modes_on_the_exact_curve(derivative, many.ts, curves)
    derivative.set_title("(b)  pathwise derivative, three modes")
    plots.greek_profile(
        SPOTS, estimated, closed_form=known, label="sdesens.greeks", ylabel="delta", ax=delta
    )
    plots.greek_profile(SPOTS, derived, label="payoff's derivative", ylabel="delta", ax=delta)
    delta.set_ylim(-0.001, 0.032)
    delta.legend(loc="upper right")
    delta.set_title("(c)  delta of a digital option")


def modes_on_the_exact_curve(ax: Axes, ts: Tensor, curves: dict[str, Tensor]) -> None:
    """Markers that take turns, as the modes lie on each other."""
    ax.plot(ts, torch.exp(-ts), color="black", lw=1.0, ls="-", label="exact, $e^{-t}$", zorder=1)
    markers = ("o", "s", "^")
    for k, (mode, curve) in enumerate(curves.items()):
        every = slice(3 * k, None, 9)
        look = {"color": plots.PALETTE[k], "mec": "white", "mew": 0.5, "clip_on": False}
        ax.plot(ts[every], curve[every], markers[k], ms=5, label=mode, **look)
    ax.set_xlabel("time $t$")
    ax.set_ylabel("$dX_t / dx_0$")
    ax.set_xlim(0, 1)
    ax.legend(loc="upper right")


if __name__ == "__main__":
    main()
