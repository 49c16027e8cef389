"""sdesens: the fused engine."""

from __future__ import annotations

import sys

import torch
from clock import report

import sdesens
from sdesens.models import GeometricBrownianMotion, Heston, OrnsteinUhlenbeck
from sdesens.montecarlo.front import simulation_of
from sdesens.montecarlo.job import Job

ROUNDS = int(sys.argv[1])
PATHS, STEPS = 65536, 100
SEVEN = ("spot", "variance", "rate", "kappa", "theta", "xi", "rho")


def simulation(name: str, model, x0, payoff, wrt) -> None:
    """Time one shard, compiled before."""
    job = Job.of(
        simulation_of(
            model, x0, payoff, maturity=1.0, steps=STEPS, wrt=wrt, scheme="euler",
            functionals=None, dtype=torch.float32, options=None, names=None,
        ),
        seed=1, paths=PATHS, shard_size=PATHS,
    )  # fmt: skip
    value, *slopes = job.run_shard(0).mean.tolist()
    values = {"value": value, "derivatives": slopes}
    report(name, lambda: job.run_shard(0), 1e9 / (PATHS * STEPS), ROUNDS, values)


def main() -> None:
    """Time every job."""
    torch.set_num_threads(1)
    gbm = GeometricBrownianMotion(mu=0.05, sigma=0.2)
    simulation("gbm", gbm, [100.0], lambda end: torch.relu(end.x - 100.0), ("x",))
    heston = Heston(rate=0.03, kappa=1.5, theta=0.04, xi=0.3, rho=-0.7)

    def call(end):
        return torch.exp(-heston.rate * end.time) * torch.relu(end.spot - 100.0)

    simulation("heston price", heston, [100.0, 0.04], call, ())
    simulation("heston", heston, [100.0, 0.04], call, SEVEN)
    ou = OrnsteinUhlenbeck(kappa=1.0, mean=0.0, sigma=1.0)
    x0, ts = torch.zeros(1, 1, dtype=torch.float64), torch.linspace(0, 1, 100, dtype=torch.float64)
    solve = sdesens.fuse(ou, x0, ts, method="euler", dt=1 / 99)
    values = {"value": 0.0, "derivatives": [solve(x0, seed=1).dx0[-1].item()]}
    report("ou", lambda: solve(x0, seed=1), 1e6, 50 * ROUNDS, values)

    def whole():
        return sdesens.sensitivities(ou, x0, ts, method="euler", dt=1 / 99, seed=1, engine="fused")

    report("ou, all checks", whole, 1e6, 50 * ROUNDS, values)


if __name__ == "__main__":
    main()
