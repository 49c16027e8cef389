"""Time the three modes against one plain solve of the same SDE on the same Brownian path.

One thread, the fastest of interleaved runs; every figure is a ratio to one ``torchsde.sdeint``
without gradients. "loop" is ``autograd.grad`` once a time, the usual answer.

    python scripts/bench_modes.py [--rounds 7] [--loops]

``--loops`` also runs the loop over 1001 times, which takes more than a minute.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torchsde
from torch import Tensor, nn

import sdesens
from sdesens.models import OrnsteinUhlenbeck

MODES = ("vjp", "jvp", "tangent")


class Nonlinear(nn.Module):
    """``dX = (sin X - X) dt + (0.3 cos X + 0.5) dW``."""

    sde_type, noise_type = "ito", "diagonal"

    def f(self, t: Tensor, y: Tensor) -> Tensor:
        """Drift."""
        return torch.sin(y) - y

    def g(self, t: Tensor, y: Tensor) -> Tensor:
        """Diffusion."""
        return 0.3 * torch.cos(y) + 0.5


class FourDimensional(nn.Module):
    """A four-dimensional SDE with general noise on four channels."""

    sde_type, noise_type = "ito", "general"

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.rotation = torch.randn(4, 4, dtype=torch.float64, generator=generator) / 2
        self.mixing = torch.randn(4, 4, dtype=torch.float64, generator=generator) / 4

    def f(self, t: Tensor, y: Tensor) -> Tensor:
        """Drift."""
        return torch.tanh(y @ self.rotation) - y

    def g(self, t: Tensor, y: Tensor) -> Tensor:
        """Diffusion."""
        return torch.cos(y).unsqueeze(-1) * self.mixing


@dataclass
class Case:
    """An SDE on a grid of ``times`` times over ``[0, horizon]``, one Euler step between each."""

    name: str
    sde: Any
    times: int
    batch: int
    d: int
    channels: int
    horizon: float = 1.0

    def functions(self, loop: bool) -> dict[str, Callable[[], object]]:
        """What is timed, by name."""
        steps = self.times - 1
        ts = torch.linspace(0, self.horizon, self.times, dtype=torch.float64)
        dt = self.horizon / steps
        x0 = torch.full((self.batch, self.d), 0.3, dtype=torch.float64)
        shape = (self.batch, self.channels)
        bm = sdesens.BrownianPath(0, self.horizon, shape, steps, seed=0, dtype=torch.float64)

        def plain() -> None:
            with torch.no_grad():
                torchsde.sdeint(self.sde, x0, ts, bm=bm, method="euler", dt=dt)

        def one_by_one() -> None:
            start = x0.clone().requires_grad_()
            path: Any = torchsde.sdeint(self.sde, start, ts, bm=bm, method="euler", dt=dt)
            for x in path:
                torch.autograd.grad(x.sum(), start, retain_graph=True)

        def run(mode: str) -> Callable[[], object]:
            return lambda: sdesens.sensitivities(
                self.sde, x0, ts, mode=mode, method="euler", dt=dt, bm=bm
            )

        functions = {"plain": plain} | {mode: run(mode) for mode in MODES}
        return functions | ({"loop": one_by_one} if loop else {})


def fastest(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of the fastest of interleaved runs; what takes over 5 s runs once."""
    best = dict.fromkeys(functions, float("inf"))
    for turn in range(rounds + 1):
        for name, function in functions.items():
            if 5 < best[name] < float("inf"):
                continue
            start = time.perf_counter()
            function()
            elapsed = time.perf_counter() - start
            if turn or elapsed > 5:  # the first turn warms up
                best[name] = min(best[name], elapsed)
    return best


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="interleaved runs of each (7)")
    parser.add_argument("--loops", action="store_true", help="also the loop over 1001 times")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    cases = [
        Case("OU, T=100, B=1", OrnsteinUhlenbeck(1.0, 0.0, 1.0), 100, 1, 1, 1),
        Case("sin y - y, T=1001, B=1", Nonlinear(), 1001, 1, 1, 1),
        Case("4-d general noise, T=200, B=256", FourDimensional(), 200, 256, 4, 4),
        Case("OU, T=1600, B=1", OrnsteinUhlenbeck(1.0, 0.0, 1.0), 1600, 1, 1, 1, horizon=16.0),
    ]
    columns = (*MODES, "loop")
    print("ratios to one plain no-grad torchsde.sdeint, Euler, float64, one thread")
    print(f"{'':34}{'plain':>10}" + "".join(f"{c:>10}" for c in columns))
    seconds = {}
    for case in cases:
        loop = case.times == 100 or (arguments.loops and case.times == 1001)
        best = fastest(case.functions(loop), arguments.rounds)
        seconds[case.name] = best
        row = "".join(
            f"{best[c] / best['plain']:10.2f}" if c in best else f"{'-':>10}" for c in columns
        )
        print(f"{case.name:34}{best['plain'] * 1e3:7.1f} ms{row}", flush=True)
    short, long = seconds[cases[0].name], seconds[cases[-1].name]
    growth = "".join(f"{long[c] / short[c]:10.1f}" for c in ("plain", *MODES))
    print(f"{'time at T=1600 / time at T=100':34}{growth}")
    speed = "".join(f"{short['loop'] / short[mode]:10.0f}" for mode in MODES)
    print(f"{'loop / mode, OU, T=100':44}{speed}")


if __name__ == "__main__":
    main()
