"""torchsde with reverse-mode autograd through its solver."""

from __future__ import annotations

import sys

import torch
import torchsde
from clock import report

ROUNDS = int(sys.argv[1])
PATHS, STEPS = 16384, 100


class Gbm(torch.nn.Module):
    """Geometric Brownian motion."""

    noise_type, sde_type = "diagonal", "ito"

    def f(self, t, y):
        """Drift."""
        return 0.05 * y

    def g(self, t, y):
        """Diffusion."""
        return 0.2 * y


class Heston(torch.nn.Module):
    """Heston's model with theta = S0, v0, r, kappa, theta, xi, rho."""

    noise_type, sde_type = "general", "ito"

    def __init__(self, theta) -> None:
        super().__init__()
        self.theta = theta

    def f(self, t, y):
        """Drift."""
        _, _, r, kappa, level, _, _ = self.theta
        return torch.stack([r * y[:, 0], kappa * (level - y[:, 1])], 1)

    def g(self, t, y):
        """Diffusion."""
        *_, xi, rho = self.theta
        s, v = y[:, 0], y[:, 1]
        root = torch.where(v > 0, torch.where(v > 0, v, 1.0).sqrt(), 0.0)
        rest = (1 - rho**2).sqrt()
        rows = [
            torch.stack([root * s, 0 * s], 1),
            torch.stack([xi * rho * root, xi * rest * root], 1),
        ]
        return torch.stack(rows, 1)


def solve(sde, x0):
    """The state at 1 by Euler."""
    noise = torchsde.BrownianInterval(
        0.0, 1.0, (PATHS, x0.shape[1]), dt=1.0 / STEPS, entropy=1, cache_size=None
    )
    ts = torch.tensor([0.0, 1.0])
    return torchsde.sdeint(sde, x0, ts, bm=noise, method="euler", dt=1.0 / STEPS)[-1]


def gbm() -> tuple[float, list[float]]:
    """Price and delta."""
    x0 = torch.tensor(100.0, requires_grad=True)
    price = torch.relu(solve(Gbm(), x0.expand(PATHS, 1)) - 100.0).mean()
    return price.item(), [torch.autograd.grad(price, x0)[0].item()]


def heston() -> tuple[float, list[float]]:
    """Price and seven derivatives."""
    theta = torch.tensor([100.0, 0.04, 0.03, 1.5, 0.04, 0.3, -0.7], requires_grad=True)
    end = solve(Heston(theta.unbind()), theta[:2].expand(PATHS, 2))
    price = torch.exp(-theta[2]) * torch.relu(end[:, 0] - 100.0).mean()
    return price.item(), torch.autograd.grad(price, theta)[0].tolist()


def main() -> None:
    """Time both."""
    torch.set_num_threads(1)
    for name, call in (("gbm reverse", gbm), ("heston reverse", heston)):
        value, slopes = call()
        values = {"value": value, "derivatives": slopes}
        report(name, call, 1e9 / (PATHS * STEPS), ROUNDS, values)


if __name__ == "__main__":
    main()
