"""The question sdesens started from, answered three ways, with a table and a picture.

An Ornstein-Uhlenbeck process ``dX = -X dt + dW`` on 100 times by Euler: what is ``dX_t/dx0`` at
every one of them? ``torch.autograd.grad`` with ones as grad_outputs returns one number, summed over
the times; a loop over the times is right and slow.

    python scripts/demo.py [--out out]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
import torchsde
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import sdesens
from sdesens.models import OrnsteinUhlenbeck

TIMES = 100
MODES = ("vjp", "jvp", "tangent")
# Okabe and Ito's palette: told apart by colour-blind readers, and by lightness in grey.
COLOURS = {"vjp": "#0072B2", "jvp": "#E69F00", "tangent": "#009E73"}


def main() -> None:
    """Run the three modes and the loop, print the table, draw the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the picture")
    out = parser.parse_args().out
    torch.set_num_threads(1)

    model = OrnsteinUhlenbeck(kappa=1.0, mean=0.0, sigma=1.0)
    x0 = torch.zeros(1, 1, dtype=torch.float64)
    ts = torch.linspace(0, 1, TIMES, dtype=torch.float64)
    dt = 1 / (TIMES - 1)
    bm = sdesens.BrownianPath(0, 1, (1, 1), TIMES - 1, seed=0, dtype=torch.float64)

    def run(mode: str) -> Callable[[], Tensor]:
        def derivative() -> Tensor:
            result = sdesens.sensitivities(model, x0, ts, mode=mode, method="euler", dt=dt, bm=bm)
            return result.dx0[:, 0, 0, 0]

        return derivative

    def loop() -> Tensor:
        start = x0.clone().requires_grad_()
        path = torchsde.sdeint(model, start, ts, bm=bm, method="euler", dt=dt)
        assert isinstance(path, Tensor)
        grads = [torch.autograd.grad(x.sum(), start, retain_graph=True)[0] for x in path]
        return torch.stack(grads)[:, 0, 0]

    curves, seconds = fastest({"loop over time": loop} | {mode: run(mode) for mode in MODES})
    print(table(curves, seconds, ts, dt))
    picture = draw(model, {mode: curves[mode] for mode in MODES}, ts, dt)
    out.mkdir(parents=True, exist_ok=True)
    picture.savefig(out / "ou_sensitivities.png", dpi=200)
    print(f"\npicture: {out / 'ou_sensitivities.png'}")


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


def table(curves: dict[str, Tensor], seconds: dict[str, float], ts: Tensor, dt: float) -> str:
    """Error against the exact derivative of the Euler scheme and of the SDE, time, speed-up."""
    scheme = (1 - dt) ** torch.arange(TIMES, dtype=torch.float64)
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


def draw(
    model: OrnsteinUhlenbeck, curves: dict[str, Tensor], ts: Tensor, dt: float, paths: int = 4000
) -> Figure:
    """Paths with a quantile fan above, the derivative by three modes on the exact curve below."""
    x0 = torch.zeros(paths, 1, dtype=torch.float64)
    x = sdesens.sensitivities(model, x0, ts, mode="vjp", method="euler", dt=dt, seed=0).x[..., 0]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 5.6), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.15, 1))
        _fan(above, ts, x)
        _derivatives(below, ts, curves)
    return figure


STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "legend.frameon": False,
}


def _fan(ax: Axes, ts: Tensor, x: Tensor) -> None:
    """Quantile bands of ``x (T, B)``, a few paths and the mean."""
    levels = (0.05, 0.25, 0.75, 0.95)
    q05, q25, q75, q95 = x.quantile(torch.tensor(levels, dtype=x.dtype), dim=1)
    ax.fill_between(ts, q05, q95, color="#0072B2", alpha=0.15, lw=0, label="5–95 %")
    ax.fill_between(ts, q25, q75, color="#0072B2", alpha=0.30, lw=0, label="25–75 %")
    for k in range(6):
        ax.plot(ts, x[:, k], color="0.35", lw=0.6, label="paths" if k == 0 else None)
    ax.plot(ts, x.mean(1), color="#0072B2", lw=1.5, label="mean")
    ax.set_ylabel("$X_t$")
    ax.set_title(f"(a)  $dX = -X\\,dt + dW$, Euler, {x.shape[1]} paths from $x_0 = 0$")
    ax.legend(loc="upper left", ncols=4, columnspacing=1.0, handlelength=1.4)
    ax.set_ylim(-2.0, 2.3)


def _derivatives(ax: Axes, ts: Tensor, curves: dict[str, Tensor]) -> None:
    """The modes as interleaved markers on the exact curve."""
    ax.plot(ts, torch.exp(-ts), color="black", lw=1.0, label="exact, $e^{-t}$", zorder=1)
    markers = {"vjp": "o", "jvp": "s", "tangent": "^"}
    for k, (mode, curve) in enumerate(curves.items()):
        every = slice(3 * k, None, 9)
        ax.plot(
            ts[every],
            curve[every],
            markers[mode],
            ms=5,
            color=COLOURS[mode],
            mec="white",
            mew=0.5,
            clip_on=False,
            label=mode,
        )
    ax.set_xlabel("time $t$")
    ax.set_ylabel("$dX_t / dx_0$")
    ax.set_title("(b)  pathwise derivative by three modes")
    ax.set_xlim(0, 1)
    ax.legend(loc="upper right")


if __name__ == "__main__":
    main()
