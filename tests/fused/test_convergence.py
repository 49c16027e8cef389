import math

import numpy as np
import pytest
import torch

import sdesens
from sdesens import montecarlo
from sdesens.models import GeometricBrownianMotion
from tests.problems import Field

PATHS, FINE = 1000, 1024


@pytest.mark.parametrize(
    ("sde_type", "noise_type", "method", "options", "order"),
    [
        ("ito", "diagonal", "euler", {}, 0.5),
        ("ito", "additive", "euler", {}, 1.0),
        ("ito", "diagonal", "milstein", {}, 1.0),
        ("stratonovich", "scalar", "heun", {}, 1.0),
    ],
)
def test_path_and_tangents_converge_with_the_order_of_the_scheme(
    sde_type, noise_type, method, options, order
):
    field = Field(sde_type, noise_type)
    with torch.no_grad():  # noise strong enough to dominate the error
        field.rows.mul_(3)
        field.level.fill_(1.0)
    m = Field.channels[noise_type]
    fine = sdesens.BrownianPath(0.0, 1.0, (PATHS, m), FINE, seed=1, dtype=torch.float64)
    x0 = torch.tensor([[0.3, -0.7]], dtype=torch.float64).expand(PATHS, 2)

    def end(steps):
        bm = fine if steps == FINE else fine.coarsen(FINE // steps)
        sens = sdesens.sensitivities(
            field, x0, [0.0, 1.0], method=method, options=options, dt=1.0 / steps, bm=bm,
            wrt=("x0", "level"), engine="fused",
        )  # fmt: skip
        return sens.x[-1], sens.dx0[-1], sens.dparams["level"][-1]

    right = end(FINE)
    steps = [8, 16, 32, 64]
    errors = [[(a - b).square().mean().sqrt().item() for a, b in zip(end(n), right, strict=True)]
              for n in steps]  # fmt: skip
    for name, row in zip(("x", "dx0", "dlevel"), np.array(errors).T, strict=True):
        slope = -np.polyfit(np.log2(steps), np.log2(row), 1)[0]
        assert abs(slope - order) < 0.15, (name, slope, row)


def test_the_weak_error_of_euler_falls_like_the_step():
    # E[X_1] by Euler is exactly (1 + mu / n)^n x0, and so are its derivatives.
    gbm = GeometricBrownianMotion(0.9, 0.2)
    for n in (1, 4, 16):
        result = montecarlo.run(
            gbm, [1.0], lambda end: end.x, maturity=1.0, steps=n, paths=100_000,
            dtype=torch.float64,
        )  # fmt: skip
        mean = (1 + 0.9 / n) ** n
        right = {"x": mean, "mu": mean / (1 + 0.9 / n), "maturity": 0.9 * mean / (1 + 0.9 / n)}
        assert abs(result["value"].value - mean) < 5 * result["value"].stderr < 0.05
        for name, value in right.items():
            estimate = result["value", name]
            assert abs(estimate.value - value) <= 5 * estimate.stderr + 1e-12
            assert estimate.stderr < 0.01
        assert abs(mean - math.exp(0.9)) < 1.0 / n
