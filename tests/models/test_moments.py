"""Schemes against the exact mean and variance of their laws.

Seeds are fixed. A comparison fails beyond 4 standard errors, which one in 16,000 does by chance.
"""

import math

import pytest
import scipy.stats
import torch

from sdesens.models import CEV, CIR, SABR
from tests.models.zoo import MODELS, Inputs, assert_mean, assert_variance, draw, walk

PATHS = 100_000


@pytest.mark.parametrize(
    "parameters", [(1.5, 0.04, 0.3), (0.5, 0.04, 1.0), (0.0, 0.04, 0.3)],
    ids=["feller", "4 kappa theta < xi²", "kappa = 0"],
)  # fmt: skip
@pytest.mark.parametrize("steps", [1, 5])
def test_the_quadratic_exponential_step_has_the_moments_of_the_law(parameters, steps):
    kappa, theta, xi = parameters
    model, r0, t = CIR(*parameters), 0.05, 1.3
    end = walk(model, "qe", [r0], draw(model, "qe", steps, PATHS, seed=1), t)[:, 0]
    kept = math.exp(-kappa * t)
    pull = t if kappa == 0 else (1 - kept) / kappa
    mean = theta + kept * (r0 - theta)
    assert (end >= 0).all()
    assert_mean(end, mean)
    assert_variance(end, mean, xi**2 * pull * (r0 * kept + kappa * theta * pull / 2))


@pytest.mark.parametrize("name", ["cir", "cir, hard"])
@pytest.mark.parametrize("steps", [1, 5])
def test_the_mean_derivative_of_the_square_root_process_decays_exponentially(name, steps):
    model, x0 = MODELS[name]
    inputs = Inputs(model, "qe", x0, draw(model, "qe", steps, PATHS, seed=2))
    kappa, theta = (1.5, 0.04) if name == "cir" else (0.5, 0.04)
    assert_mean(inputs.along(0, inputs.at)[:, 0], math.exp(-kappa))
    assert_mean(inputs.along(inputs.labels.index("theta"), inputs.at)[:, 0], -math.expm1(-kappa))
    slope = math.exp(-kappa) * (theta - x0[0])
    assert_mean(inputs.along(inputs.labels.index("kappa"), inputs.at)[:, 0], slope)
    assert_mean(inputs.along(inputs.labels.index("xi"), inputs.at)[:, 0], 0.0)
    assert_mean(inputs.along(inputs.labels.index("maturity"), inputs.at)[:, 0], kappa * slope)


def test_started_at_zero_the_square_root_process_leaves_it_and_has_finite_derivatives():
    for xi in (0.1, 1.0):
        model = CIR(0.5, 0.04, xi)
        inputs = Inputs(model, "qe", [0.0], draw(model, "qe", 1, PATHS, seed=3))
        end = inputs(inputs.at)[:, 0]
        assert_mean(end, 0.04 * -math.expm1(-0.5))
        for k in range(len(inputs.labels)):
            assert inputs.along(k, inputs.at).isfinite().all()
        assert_mean(inputs.along(0, inputs.at)[:, 0], math.exp(-0.5))


def test_without_volatility_the_square_root_process_is_its_mean():
    model = CIR(0.5, 0.04, 0.0)
    end = walk(model, "qe", [0.09], draw(model, "qe", 3, 10))
    right = 0.04 + math.exp(-0.5) * 0.05
    assert (end - right).abs().max() < 1e-15


def test_the_volatility_of_sabr_has_the_moments_of_its_law_and_moves_with_the_forward():
    model, steps = SABR(0.0, 0.8, -0.6), 4
    z = draw(model, "absorbed", steps, PATHS, seed=4)
    F, alpha = walk(model, "absorbed", [100.0, 0.3], z).unbind(1)
    assert_mean(alpha, 0.3)
    assert_variance(alpha, 0.3, 0.09 * math.expm1(0.64))
    assert_mean(F, 100.0)
    assert_variance(F, 100.0, 0.09 / steps * sum(math.exp(0.64 * k / steps) for k in range(steps)))
    assert_mean((F - 100.0) * (alpha / 0.3).log(), -0.6 * 0.8 * 0.3)  # d<F, log a> = rho nu a dt


def test_the_forward_of_sabr_is_a_martingale_and_its_volatility_exact_for_a_wide_step():
    model = SABR(1.0, 0.4, -0.3)
    end = walk(model, "absorbed", [1.0, 0.2], draw(model, "absorbed", 16, PATHS, seed=5))
    assert_mean(end[:, 0], 1.0)
    z = draw(model, "absorbed", 1, 10)
    right = 0.2 * torch.exp(0.4 * math.sqrt(3) * z[0, 0] - 0.08 * 3)
    assert (walk(model, "absorbed", [1.0, 0.2], z, 3.0)[:, 1] - right).abs().max() < 1e-15


def test_without_volatility_of_volatility_sabr_is_cev():
    sabr, cev = SABR(0.6, 0.0, 0.0), CEV(0.0, 0.3, 0.6)
    z = draw(sabr, "absorbed", 5, 100)
    a = walk(sabr, "absorbed", [1.1, 0.3], z)[:, 0]
    b = walk(cev, "absorbed", [1.1], z[:, 1:])[:, 0]
    assert (a - b).abs().max() < 1e-14


def test_cev_prices_are_those_of_the_noncentral_chi_square_law():
    # Schroder, Computing the constant elasticity of variance option pricing formula, 1989; r = 0.
    S, K, sigma, beta, T = 1.0, 1.1, 0.4, 0.5, 1.0
    k = 1 / (sigma**2 * (1 - beta) ** 2 * T)
    x, y = k * S ** (2 * (1 - beta)), k * K ** (2 * (1 - beta))
    law = scipy.stats.ncx2
    price = S * law.sf(y, 2 + 1 / (1 - beta), x) - K * law.cdf(x, 1 / (1 - beta), y)
    model = CEV(0.0, sigma, beta)
    end = walk(model, "absorbed", [S], draw(model, "absorbed", 64, 50_000, seed=6), T)[:, 0]
    assert_mean(torch.relu(end - K), float(price))


def test_for_beta_one_cev_is_geometric_brownian_motion_by_euler():
    cev, gbm = CEV(0.05, 0.2, 1.0), MODELS["gbm"][0]
    z = draw(cev, "absorbed", 5, 100)
    right = walk(gbm, "euler", [1.2], z)
    for scheme in ("absorbed", "euler"):
        assert (walk(cev, scheme, [1.2], z) - right).abs().max() < 1e-14


@pytest.mark.parametrize("name", ["cev", "sabr"])
def test_an_absorbed_path_stays_at_zero_and_has_no_derivative_left(name):
    model = CEV(0.05, 1.0, 0.5) if name == "cev" else SABR(0.5, 0.4, -0.3)
    x0 = [0.3] if name == "cev" else [0.3, 1.0]
    z = draw(model, "absorbed", 20, 2000, seed=7)
    inputs, half = Inputs(model, "absorbed", x0, z), walk(model, "absorbed", x0, z[:10], 0.5)
    end, absorbed = inputs(inputs.at)[:, 0], half[:, 0] == 0
    assert 100 < absorbed.sum() < 1900
    assert (end[absorbed] == 0).all()
    for k in range(len(inputs.labels)):
        slope = inputs.along(k, inputs.at)[:, 0]
        assert slope.isfinite().all() and not slope[absorbed].any()


def test_by_euler_an_absorbed_path_stands_still_where_it_landed():
    model = CEV(0.05, 1.0, 0.5)
    z = draw(model, "euler", 20, 2000, seed=7)
    half, end = walk(model, "euler", [0.3], z[:10], 0.5), walk(model, "euler", [0.3], z)
    below = half[:, 0] < 0
    assert below.any() and torch.equal(end[below], half[below])
