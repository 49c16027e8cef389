"""The jump diffusion: the law of its jumps, and derivatives in their intensity.

Seeds are fixed. A comparison fails beyond 4 standard errors, which one in 16,000 does by chance.
"""

import math
from statistics import NormalDist

import pytest
import scipy.stats
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from sdesens import SDE, montecarlo
from sdesens._parameters import replaced
from sdesens.errors import UnsupportedError
from sdesens.models import BlackScholes, MertonJumpDiffusion
from sdesens.models.merton import poisson_count
from tests.models.zoo import MODELS, Inputs, assert_mean, assert_variance, draw, number, step, walk

BASE = {"rate": 0.05, "sigma": 0.2, "intensity": 0.75, "jump_mean": -0.1, "jump_std": 0.15}


def bs_call(S, K, r, sigma, T):
    N = NormalDist().cdf
    d1 = (math.log(S / K) + (r + sigma**2 / 2) * T) / (sigma * math.sqrt(T))
    return S * N(d1) - K * math.exp(-r * T) * N(d1 - sigma * math.sqrt(T))


def merton_call(S=100.0, T=1.0, rate=0.05, sigma=0.2, intensity=0.75, jump_mean=-0.1,
                jump_std=0.15):  # fmt: skip
    """The mean of Black-Scholes prices over the number of jumps."""
    k = math.expm1(jump_mean + jump_std**2 / 2)
    total = 0.0
    for n in range(60):
        r = rate - intensity * k + n * (jump_mean + jump_std**2 / 2) / T
        vol = math.sqrt(sigma**2 + n * jump_std**2 / T)
        weight = math.exp(-intensity * T) * (intensity * T) ** n / math.factorial(n)
        total += weight * math.exp((r - rate) * T) * bs_call(S, 100.0, r, vol, T)
    return total


def test_the_closed_form_is_the_published_number():
    assert abs(merton_call() - 12.224434) < 1e-6


def test_price_and_every_derivative_are_those_of_the_closed_form():
    model = MertonJumpDiffusion(**BASE)

    def call(end):
        value = torch.exp(-model.rate * end.time) * torch.relu(end.spot - 100.0)
        return {"call": end.likelihood * value, "forgotten": value, "one": end.likelihood}

    result = montecarlo.run(
        model, [100.0, 1.0], call, maturity=1.0, steps=2, paths=200_000, scheme="exact", seed=3,
    )  # fmt: skip
    right = {"spot": 0.647901, "sigma": 30.784518, "intensity": 2.197859}  # published
    for name in ("rate", "jump_mean", "jump_std"):
        up, down = (merton_call(**{name: BASE[name] + h}) for h in (1e-5, -1e-5))
        right[name] = (up - down) / 2e-5
    right["maturity"] = (merton_call(T=1 + 1e-5) - merton_call(T=1 - 1e-5)) / 2e-5
    assert abs(result["call"].value - 12.224434) < 4 * result["call"].stderr
    for name, value in right.items():
        found = result["call", name]
        assert abs(found.value - value) < 4 * found.stderr < 0.1 * abs(value), name
    assert result["one"].value == 1.0 and result["one"].stderr == 0.0
    assert abs(result["one", "intensity"].value) < 4 * result["one", "intensity"].stderr
    # What the path alone says of the intensity is wrong, and far from it.
    forgotten = result["forgotten", "intensity"]
    assert abs(forgotten.value - right["intensity"]) > 20 * forgotten.stderr


def test_the_likelihood_has_the_derivatives_of_the_probability_over_it():
    model = MertonJumpDiffusion(**BASE)
    z = draw(model, "exact", 3, 500, seed=1)
    inputs = Inputs(model, "exact", [100.0, 1.0], z)
    rate, T = inputs.labels.index("intensity"), inputs.labels.index("maturity")
    n = torch.stack([poisson_count(number(0.25), row[1]) for row in z]).sum(0)
    assert n.max() > 2
    assert (inputs(inputs.at)[:, 1] == 1).all()
    in_rate, in_time = n / 0.75 - 1, n - 0.75
    right = {
        (rate,): in_rate,
        (T,): in_time,
        (rate, rate): in_rate**2 - n / 0.75**2,
        (rate, T): in_rate * in_time - 1,
        (T, T): in_time**2 - n,
    }
    for key, value in right.items():
        found = inputs.along(key[0], inputs.at) if len(key) == 1 else inputs.twice(key[0], key[1])
        assert (found[:, 1] - value).abs().max() < 1e-12
    rest = set(range(len(inputs.labels))) - {rate, T, 1}
    assert not any(inputs.along(k, inputs.at)[:, 1].any() for k in rest)


def test_the_likelihood_has_these_derivatives_in_reverse_mode_too():
    model = MertonJumpDiffusion(**BASE)
    inputs = Inputs(model, "exact", [100.0, 1.0], draw(model, "exact", 2, 50))
    at = inputs.at.clone().requires_grad_(True)
    k = inputs.labels.index("intensity")
    (first,) = torch.autograd.grad(inputs(at)[:, 1].sum(), at, create_graph=True)
    (second,) = torch.autograd.grad(first[k], at)
    assert abs(first[k] - inputs.along(k, inputs.at)[:, 1].sum()) < 1e-10
    assert abs(second[k] - inputs.twice(k, k)[:, 1].sum()) < 1e-10


def test_the_derivatives_of_the_likelihood_are_recorded_as_they_are():
    """A recording that took ``detach`` for the tensor itself would lose the score."""
    model, z = MertonJumpDiffusion(**BASE), number([[0.3], [1.9], [0.5]])
    one, y = torch.ones((), dtype=torch.float64), number([[100.0, 1.0]])

    def likelihood(intensity):
        with replaced(model, {"intensity": intensity}):
            return step(model, "exact", number(0.5), z, y)[0, 1]

    def first(intensity):
        return torch.func.jvp(likelihood, (intensity,), (one,))[1]

    def both(intensity):
        return torch.stack(torch.func.jvp(first, (intensity,), (one,)))

    recorded = make_fx(torch.func.functionalize(both))(number(0.6))
    n = poisson_count(number(0.45), z[1]).item()
    assert n == poisson_count(number(0.3), z[1]).item() == 2
    right = [n / 0.9 - 0.5, (n / 0.9 - 0.5) ** 2 - n / 0.81]
    assert (recorded(number(0.9)) - number(right)).abs().max() < 1e-14


@pytest.mark.parametrize("mean", [1e-6, 0.02, 0.5, 1.0])
def test_the_count_is_the_inverse_of_the_poisson_distribution(mean):
    z = torch.cat([torch.linspace(-8, 6.5, 20_001), torch.tensor([-30.0, 7.0, 8.0])]).double()
    count = poisson_count(number(mean), z)
    # By the survival function, which keeps its digits in the tail: N > k where Phi(-z) < P(N > k).
    beyond = scipy.stats.poisson.sf(range(14), mean)
    right = (scipy.stats.norm.sf(z.numpy())[:, None] < beyond).sum(1)
    assert torch.equal(count, torch.from_numpy(right).double())
    assert count[0] == 0 and count[-3] == 0
    # What is left out.
    assert scipy.stats.poisson.sf(14, mean) < 4e-13


def test_the_logarithm_has_the_mean_and_variance_of_the_law_in_one_step_or_many():
    model = MertonJumpDiffusion(0.05, 0.2, 0.9, -0.1, 0.15, 0.01)
    k = math.expm1(-0.1 + 0.5 * 0.15**2)
    mean = 0.04 - 0.02 - 0.9 * k - 0.9 * 0.1
    variance = 0.04 + 0.9 * (0.1**2 + 0.15**2)
    for steps in (1, 6):
        end = walk(model, "exact", [100.0, 1.0], draw(model, "exact", steps, 100_000, seed=2))
        log = (end[:, 0] / 100).log()
        assert_mean(log, mean)
        assert_variance(log, mean, variance)
        assert_mean(end[:, 0] * math.exp(-0.04), 100.0)


def test_between_jumps_the_path_is_that_of_black_scholes():
    model, plain = MertonJumpDiffusion(0.05, 0.2, 1e-3, 0.0, 0.3), BlackScholes(0.05, 0.2)
    z = draw(model, "exact", 3, 200)
    k = math.expm1(0.5 * 0.3**2)
    quiet = torch.stack([poisson_count(number(1e-3 / 3), row[1]) for row in z]).sum(0) == 0
    a = walk(model, "exact", [100.0, 1.0], z)[quiet, 0]
    b = walk(plain, "exact", [100.0], z[:, :1])[quiet, 0]
    assert (a / b - math.exp(-1e-3 * k)).abs().max() < 1e-14


def test_more_jumps_a_step_than_are_drawn_for_are_refused_before_the_run():
    model = MertonJumpDiffusion(**(BASE | {"intensity": 5.0}))
    arguments = {"maturity": 1.0, "paths": 10, "scheme": "exact", "wrt": ()}
    with pytest.raises(ValueError, match=r"intensity \* dt must be at most 1, got 2.5.*3 times"):
        montecarlo.run(model, [100.0, 1.0], lambda end: end.spot, steps=2, **arguments)
    model.check_step(0.2)


def test_a_solver_is_refused_by_name_and_other_checks_are_kept():
    model, x0 = MODELS["merton"]
    arguments = {"maturity": 1.0, "steps": 2, "paths": 10}
    for scheme in ("euler", "milstein"):
        with pytest.raises(UnsupportedError, match=r"no drift and diffusion.*scheme='exact'"):
            montecarlo.run(model, x0, lambda end: end.spot, scheme=scheme, **arguments)
    with pytest.raises(ValueError, match=r"x0 must have shape \(B, 2\)"):
        montecarlo.run(model, [100.0], lambda end: end.spot, scheme="exact", **arguments)
    with pytest.raises(ValueError, match="x0 must be finite"):
        montecarlo.run(model, [math.nan, 1.0], lambda end: end.spot, scheme="exact", **arguments)


class Skipping(SDE):
    """Moves by two of three normals; its equation, for solvers, has one channel."""

    state, noise_type, sde_type = ("x",), "diagonal", "ito"
    schemes = ("two",)
    scheme_channels = {"two": 3}  # noqa: RUF012

    def drift(self, t, x):
        return 0.0 * x

    def diffusion(self, t, x):
        return 1.0 + 0.0 * x

    def step_two(self, t, dt, normals, x):
        assert normals.shape[0] == 3
        return x + dt.sqrt() * (normals[0] + normals[2])


def test_a_scheme_may_take_more_normals_than_the_diffusion_has_channels():
    arguments = {"maturity": 2.0, "steps": 2, "paths": 20_000, "wrt": ()}
    result = montecarlo.run(Skipping(), [0.0], lambda end: end.x**2, scheme="two", **arguments)
    assert abs(result["value"].value - 4.0) < 4 * result["value"].stderr
