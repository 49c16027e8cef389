"""Schemes that are the transition itself, by identities that hold path by path."""

import math

import pytest
import torch

from sdesens.models import BlackScholes, MultiAssetBlackScholes, OrnsteinUhlenbeck, Vasicek
from sdesens.models._functions import decay
from tests.models.zoo import MODELS, Inputs, draw, number, walk
from tests.problems import assert_close

ALL_KAPPAS = [0.0, 1e-9, 0.049, 0.051, 1.3, -0.4, 30.0]


@pytest.mark.parametrize("name", ["black-scholes", "gbm"])
def test_a_lognormal_step_is_the_same_in_one_step_or_in_eight(name):
    model, x0 = MODELS[name]
    z = draw(model, "exact", 8, 100)
    whole = z.sum(0, keepdim=True) / math.sqrt(8)
    end = walk(model, "exact", x0, z, 1.7)
    assert_close(walk(model, "exact", x0, whole, 1.7) / end, torch.ones_like(end), 1e-13)


def test_derivatives_of_black_scholes_are_their_closed_forms_on_every_path():
    model, x0 = MODELS["black-scholes"]
    z = draw(model, "exact", 4, 100)
    inputs = Inputs(model, "exact", x0, z)
    S, W = inputs(inputs.at)[:, 0], z[:, 0].sum(0) / 2
    right = {
        "x0": S / 100.0,
        "rate": S,
        "dividend": -S,
        "sigma": S * (W - 0.2),
        "maturity": S * (0.05 - 0.01 - 0.5 * 0.2**2 + 0.5 * 0.2 * W),  # W moves as its root
    }
    for k, label in enumerate(inputs.labels):
        assert_close(inputs.along(k, inputs.at)[:, 0], right[label], 1e-11)


@pytest.mark.parametrize("kappa", ALL_KAPPAS)
@pytest.mark.parametrize("kind", [OrnsteinUhlenbeck, Vasicek])
def test_a_gaussian_step_has_the_mean_and_variance_of_the_law_however_time_is_cut(kind, kappa):
    model = kind(kappa, 0.3, 0.4)
    maturity, x0 = 0.8, 1.1
    variance = 0.16 * (maturity if kappa == 0 else -math.expm1(-1.6 * kappa) / (2 * kappa))
    mean = 0.3 + math.exp(-0.8 * kappa) * (x0 - 0.3)
    for steps in (1, 3):
        # The end is linear in the normals: its mean is at 0, its variance the sum of squares.
        units = torch.cat([torch.zeros(steps, 1, 1), torch.eye(steps).unsqueeze(1)], dim=-1)
        end = walk(model, "exact", [x0], units.double(), maturity)[:, 0]
        assert abs(end[0].item() - mean) < 1e-13
        assert abs(((end[1:] - end[0]) ** 2).sum().item() / variance - 1) < 1e-12


def test_vasicek_moves_as_the_ornstein_uhlenbeck_process_of_its_parameters():
    a, b = Vasicek(0.7, 0.03, 0.02), OrnsteinUhlenbeck(0.7, 0.03, 0.02)
    z = draw(a, "exact", 3, 50)
    for scheme in ("exact", "euler"):
        assert torch.equal(walk(a, scheme, [0.01], z), walk(b, scheme, [0.01], z))


@pytest.mark.parametrize("kappa", ALL_KAPPAS)
def test_decay_and_its_derivatives_are_smooth_through_zero(kappa):
    dt = number(0.7)

    def series(k, order):
        """``sum_n (-k)^n dt^(n+1) / (n+1)!``, differentiated term by term."""
        total = 0.0
        for n in range(order, 120):
            fall = math.prod(range(n - order + 1, n + 1))
            total += (-1) ** n * fall * k ** (n - order) * 0.7 ** (n + 1) / math.factorial(n + 1)
        return total

    one = torch.ones((), dtype=torch.float64)

    def first(k):
        return torch.func.jvp(lambda a: decay(a, dt), (k,), (one,))[1]

    k = number(kappa)
    found = [decay(k, dt), first(k), torch.func.jvp(first, (k,), (one,))[1]]
    if kappa < 5:  # where the series converges without loss
        right = [series(kappa, order) for order in range(3)]
    else:
        e = math.exp(-0.7 * kappa)
        right = [
            (1 - e) / kappa,
            0.7 * e / kappa - (1 - e) / kappa**2,
            -0.49 * e / kappa - 1.4 * e / kappa**2 + 2 * (1 - e) / kappa**3,
        ]
    for value, expected in zip(found, right, strict=True):
        assert abs(value.item() - expected) < 3e-13 * max(1.0, abs(expected))


# --- several assets -----------------------------------------------------------------------------


def test_correlations_are_pairs_in_row_order_of_the_matrix():
    pairs = [0.1, 0.2, 0.3, 0.4, 0.15, 0.25]
    model = MultiAssetBlackScholes(0.0, [0.2] * 4, pairs)
    matrix = model.correlation
    assert matrix[0, 1:].tolist() == pairs[:3] and matrix[1, 2:].tolist() == pairs[3:5]
    again = MultiAssetBlackScholes(0.0, [0.2] * 4, matrix)
    assert torch.equal(again.rho, model.rho)
    torch.testing.assert_close(model.cholesky(), torch.linalg.cholesky(matrix), rtol=0, atol=1e-15)


def test_the_law_of_several_assets_is_lognormal_with_the_correlations():
    model, x0 = MODELS["assets"]
    units = torch.cat([torch.zeros(3, 1), torch.eye(3)], dim=1).double()[None]
    logs = (walk(model, "exact", x0, units, 2.0) / number(x0)).log()
    loads = logs[1:] - logs[0]
    sigma, dividend = number([0.2, 0.3, 0.4]), number([0.0, 0.01, 0.02])
    matrix = number([[1.0, 0.5, 0.1], [0.5, 1.0, -0.2], [0.1, -0.2, 1.0]])
    assert_close(loads.T @ loads, 2.0 * torch.outer(sigma, sigma) * matrix, 1e-14)
    assert_close(logs[0], 2.0 * (0.05 - dividend - sigma**2 / 2), 1e-14)


def test_without_correlation_each_asset_is_its_own_black_scholes():
    model = MultiAssetBlackScholes(0.05, [0.2, 0.3], [0.0], [0.0, 0.02])
    z = draw(model, "exact", 3, 20)
    end = walk(model, "exact", [100.0, 50.0], z)
    for i, (sigma, q, s) in enumerate([(0.2, 0.0, 100.0), (0.3, 0.02, 50.0)]):
        alone = walk(BlackScholes(0.05, sigma, q), "exact", [s], z[:, i : i + 1])
        assert_close(end[:, i], alone[:, 0], 1e-12)


SINGULAR = {
    "one": [1.0, 0.3, 0.3],
    "minus one": [-1.0, 0.3, -0.3],
    "all one": [1.0, 1.0, 1.0],
    "by rounding": [0.6, 0.8, 0.6 * 0.8 + math.sqrt((1 - 0.36) * (1 - 0.64))],
}


@pytest.mark.parametrize("pairs", SINGULAR.values(), ids=SINGULAR)
def test_a_singular_correlation_gives_finite_paths_and_derivatives_but_those_in_rho(pairs):
    model = MultiAssetBlackScholes(0.05, [0.2, 0.3, 0.4], pairs)
    assert model.is_singular
    lower = model.cholesky()
    assert_close(lower @ lower.T, model.correlation, 1e-12)
    inputs = Inputs(model, "exact", [100.0, 90.0, 80.0], draw(model, "exact", 2, 20))
    assert inputs(inputs.at).isfinite().all()
    recorded = MODELS["assets"][0]
    assert not recorded.is_singular


def test_perfectly_correlated_assets_move_as_one():
    model = MultiAssetBlackScholes(0.05, [0.2, 0.2], [1.0])
    end = walk(model, "exact", [100.0, 50.0], draw(model, "exact", 3, 20))
    assert_close(end[:, 0], 2 * end[:, 1], 1e-12)
