"""torchsde: ``sdeint`` by Euler and one backward pass through it, in the project's environment.

What was fastest of several: torchsde's own ``BrownianInterval``, a ``f_and_g_prod``, which spares
the matrices of general noise, and many paths at a time. The backward pass keeps every step, so that
there are 50 only; the time of a path-step is the same for 25 or 200.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torchsde
from jobs import DELTA, GBM, GBM_MU, GBM_SIGMA, HESTON, SEVEN, STRIKE, Size, asked, measure, report
from torch import Tensor, nn


class GeometricBrownianMotion(nn.Module):
    """``dX = mu X dt + sigma X dW``."""

    sde_type, noise_type = "ito", "diagonal"

    def f_and_g_prod(self, t: Tensor, y: Tensor, dw: Tensor) -> tuple[Tensor, Tensor]:
        """Drift, and diffusion times increment."""
        return GBM_MU * y, GBM_SIGMA * y * dw


class Heston(nn.Module):
    """Spot and variance on two independent Brownian motions."""

    sde_type, noise_type = "ito", "general"

    def __init__(self, at: tuple[Tensor, ...]) -> None:
        super().__init__()
        _, _, self.r, self.kappa, self.theta, self.xi, self.rho = at
        self.rest = (1 - self.rho**2).sqrt()

    def f_and_g_prod(self, t: Tensor, y: Tensor, dw: Tensor) -> tuple[Tensor, Tensor]:
        """Drift, and diffusion times increments; the inner ``where`` keeps the slope finite."""
        s, v = y.unbind(1)
        dw1, dw2 = dw.unbind(1)
        positive = v > 0
        root = torch.where(positive, torch.where(positive, v, 1.0).sqrt(), 0.0)
        noise = self.xi * root * (self.rho * dw1 + self.rest * dw2)
        drift = torch.stack((self.r * s, self.kappa * (self.theta - v)), 1)
        return drift, torch.stack((root * s * dw1, noise), 1)


def spot(sde: nn.Module, start: tuple[Tensor, ...], channels: int, seed: int, size: Size) -> Tensor:
    """The first component at the horizon."""
    dt = 1 / size.steps
    shape = (size.paths, channels)
    bm = torchsde.BrownianInterval(0.0, 1.0, size=shape, dtype=torch.float32, entropy=seed, dt=dt)
    y0 = torch.stack([x.expand(size.paths) for x in start], 1)
    path = torchsde.sdeint(sde, y0, torch.tensor([0.0, 1.0]), bm=bm, method="euler", dt=dt)
    assert isinstance(path, Tensor)
    return path[-1, :, 0]


def gbm_price(at: tuple[Tensor, ...], seed: int, size: Size) -> Tensor:
    """Price of a call on geometric Brownian motion."""
    payoff = (spot(GeometricBrownianMotion(), at, 1, seed, size) - STRIKE).clamp(min=0)
    return torch.tensor(-GBM_MU).exp() * payoff.mean()


def heston_price(at: tuple[Tensor, ...], seed: int, size: Size) -> Tensor:
    """Price of a call in the Heston model."""
    payoff = (spot(Heston(at), at[:2], 2, seed, size) - STRIKE).clamp(min=0)
    return (-at[2]).exp() * payoff.mean()


def backward(
    price: Callable[[tuple[Tensor, ...], int, Size], Tensor], at: dict[str, float], size: Size
) -> Callable[[int], list[Tensor]]:
    """What is timed: the price and one backward pass to all parameters."""

    def run(seed: int) -> list[Tensor]:
        point = tuple(torch.tensor(x, requires_grad=True) for x in at.values())
        value = price(point, seed, size)
        return [value.detach(), *torch.autograd.grad(value, point)]

    return run


def main() -> None:
    """The one row of the job."""
    torch.set_num_threads(1)
    size = asked()
    size = replace(size, steps=50)
    if size.job == "gbm":
        run, what = backward(gbm_price, GBM, size), DELTA
    else:
        run, what = backward(heston_price, HESTON, size), SEVEN
    report([measure("torchsde, autograd", what, run, size)], ["torch", "torchsde"])


if __name__ == "__main__":
    main()
