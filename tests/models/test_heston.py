"""The quadratic-exponential step of Heston's model against published numbers.

Seeds are fixed. A comparison fails beyond 4 standard errors, which one in 16,000 does by chance.
"""

import math
from statistics import NormalDist

import pytest
import torch

from sdesens import montecarlo
from sdesens.models import Heston
from tests.models.zoo import Inputs, assert_mean, draw, walk

N = NormalDist()
# NAG S30NDF; Lewis 2000, in QuantLib's suite; Broadie and Kaya 2006, set 1. With call and delta.
SETS = {
    "nag": ((0.025, 1.5768, 0.0398, 0.5751, -0.5711, 0.01), 0.0175, 6.5961, 0.6616),
    "lewis": ((0.01, 4.0, 0.25, 1.0, -0.5, 0.02), 0.04, 16.070154917, 0.599471),
    "broadie-kaya": ((0.0319, 6.21, 0.019, 0.61, -0.7), 0.010201, 6.806113, 0.695814),
}


@pytest.mark.parametrize("name", SETS)
def test_price_and_delta_are_those_published(name):
    parameters, v0, price, delta = SETS[name]
    model = Heston(*parameters)

    def payoff(end):
        discount = torch.exp(-model.rate * end.time)
        return {
            "call": discount * torch.relu(end.spot - 100.0),
            "spot": discount * torch.exp(model.dividend * end.time) * end.spot,
        }

    result = montecarlo.run(
        model, [100.0, v0], payoff, maturity=1.0, steps=50, paths=200_000, scheme="qe",
        wrt="spot", seed=1,
    )  # fmt: skip
    for found, right in ((result["call"], price), (result["call", "spot"], delta),
                         (result["spot"], 100.0)):  # fmt: skip
        assert abs(found.value - right) < 4 * found.stderr < 0.03 * right


@pytest.mark.parametrize(
    ("xi", "rho", "steps"), [(0.3, -0.7, 1), (1.0, -0.9, 4), (1.0, 0.5, 4), (0.0, -0.5, 2)]
)
def test_the_discounted_spot_is_a_martingale_however_wide_the_step(xi, rho, steps):
    model = Heston(0.03, 1.5, 0.04, xi, rho, 0.01)
    end = walk(model, "qe", [100.0, 0.04], draw(model, "qe", steps, 100_000, seed=2))
    assert_mean(end[:, 0] * math.exp(-0.02), 100.0)


def test_where_no_correction_exists_the_plain_step_is_taken():
    rho, xi, kappa, theta, dt, v0 = 0.95, 3.0, 1.0, 0.01, 1.0, 8.0
    model = Heston(0.03, kappa, theta, xi, rho)
    inputs = Inputs(model, "qe", [100.0, v0], draw(model, "qe", 1, 2000))
    spot, new = inputs(inputs.at).unbind(1)
    z = inputs.z[0, 0]
    slow = 0.5 * dt * (kappa * rho / xi - 0.5)
    plain = (
        0.03 * dt - rho * kappa * theta * dt / xi + (slow - rho / xi) * v0
        + (slow + rho / xi) * new + (0.5 * dt * (1 - rho**2) * (v0 + new)).sqrt() * z
    )  # fmt: skip
    assert ((spot / 100.0).log() - plain).abs().max() < 1e-12
    for k in range(len(inputs.labels)):
        assert inputs.along(k, inputs.at).isfinite().all()


def test_without_volatility_of_variance_the_spot_is_lognormal():
    model, steps = Heston(0.03, 1.5, 0.04, 0.0, -0.7), 20
    z = draw(model, "qe", steps, 40_000, seed=3)
    spot, variance = walk(model, "qe", [100.0, 0.09], z).unbind(1)
    assert (variance - (0.04 + 0.05 * math.exp(-1.5))).abs().max() < 1e-14
    total = 0.04 + 0.05 * -math.expm1(-1.5) / 1.5  # the integral of the variance
    root = math.sqrt(total)
    d1 = (0.03 + total / 2) / root
    call = 100 * N.cdf(d1) - 100 * math.exp(-0.03) * N.cdf(d1 - root)
    assert_mean(math.exp(-0.03) * torch.relu(spot - 100.0), call)


def test_the_step_is_continuous_at_zero_volatility_of_variance():
    z = draw(Heston(0.03, 1.5, 0.04, 0.1, -0.7), "qe", 5, 1000)
    ends = [
        walk(Heston(0.03, 1.5, 0.04, xi, -0.7), "qe", [100.0, 0.09], z) for xi in (0.0, 1e-7, 1e-5)
    ]
    assert (ends[1] - ends[0]).abs().max() < 1e-4
    assert (ends[2] - ends[0]).abs().max() < 1e-2
    # The slope at 0 is that of a difference.
    inputs = Inputs(Heston(0.03, 1.5, 0.04, 0.0, -0.7), "qe", [100.0, 0.09], z)
    slope = inputs.along(inputs.labels.index("xi"), inputs.at)
    assert (slope - (ends[2] - ends[0]) / 1e-5).abs().max() < 0.05 * slope.abs().max()


@pytest.mark.parametrize("kappa", [0.0, 1.5])
@pytest.mark.parametrize("xi", [0.2, 1.0])
def test_from_zero_variance_everything_is_finite(kappa, xi):
    model = Heston(0.03, kappa, 0.04, xi, -0.7)
    inputs = Inputs(model, "qe", [100.0, 0.0], draw(model, "qe", 4, 1000, seed=4))
    assert inputs(inputs.at).isfinite().all()
    for k in range(len(inputs.labels)):
        assert inputs.along(k, inputs.at).isfinite().all()
    for j, k in ((1, 1), (2, 1), (4, 5)):
        assert inputs.twice(j, k).isfinite().all()


@pytest.mark.parametrize("rho", [-1.0, 1.0])
def test_full_correlation_has_all_derivatives_but_that_in_rho(rho):
    model = Heston(0.03, 1.5, 0.04, 0.3, rho)
    assert model.is_singular and not Heston(0.03, 1.5, 0.04, 0.3, 0.9 * rho).is_singular
    arguments = {"maturity": 1.0, "steps": 4, "paths": 1000, "scheme": "qe"}
    known = ("x0", "rate", "kappa", "theta", "xi", "dividend", "maturity")
    result = montecarlo.run(model, [100.0, 0.04], lambda end: end.spot, wrt=known, **arguments)
    for name in known:
        assert math.isfinite(torch.as_tensor(result["value", name].value).sum().item())
    with pytest.raises(ArithmeticError, match="not finite"):
        montecarlo.run(model, [100.0, 0.04], lambda end: end.spot, wrt="rho", **arguments)


@pytest.mark.parametrize("name", SETS)
def test_on_every_path_the_derivative_in_the_spot_is_the_quotient(name):
    parameters, v0, *_ = SETS[name]
    model = Heston(*parameters)
    inputs = Inputs(model, "qe", [100.0, v0], draw(model, "qe", 10, 500))
    end, slope = inputs(inputs.at), inputs.along(0, inputs.at)
    assert (slope[:, 0] - end[:, 0] / 100.0).abs().max() < 1e-12
    assert not slope[:, 1].any()
