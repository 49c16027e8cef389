# pyright: reportCallIssue=false, reportArgumentType=false
import math

import pytest
import torch
from scipy import integrate, stats
from torch.autograd import grad, gradcheck, gradgradcheck

from sdesens.autodiff import truncated_mixture_log_normalizer as log_normalizer
from sdesens.autodiff import truncated_mixture_weights as weights

INF = math.inf


def double(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@pytest.fixture
def mixture():
    return double(-1.0, 2.0), double(0.5, 1.0), double(0.3, 0.7)


@pytest.fixture
def normal():
    return double(0.0), double(1.0), double(1.0)


def test_the_normaliser_and_its_gradient_in_the_means_are_right(mixture):
    log_z = log_normalizer(*mixture, 0.0, 1.0)
    assert log_z.exp().item() == pytest.approx(0.101949124, abs=5e-10)
    (d_mean,) = grad(log_z, mixture[0])
    torch.testing.assert_close(
        d_mean, d_mean.new_tensor([0.316964782, -1.290700949]), atol=5e-10, rtol=0
    )


def test_the_upper_tail_is_right_where_the_naive_form_gives_minus_infinity(normal):
    log_z = log_normalizer(*normal, 10.0, 11.0)
    assert log_z.item() == pytest.approx(-53.231310226, abs=5e-10)
    assert grad(log_z, normal[0])[0].item() == pytest.approx(10.098068374, abs=2e-9)
    naive = (torch.special.ndtr(double(11.0)) - torch.special.ndtr(double(10.0))).log()
    assert naive.item() == -INF


def test_the_far_tail_is_right_with_its_derivatives(normal):
    mean, std, _ = normal
    log_z = log_normalizer(*normal, 40.0, 41.0)
    expected = stats.norm.logsf(40.0) + math.log1p(
        -math.exp(stats.norm.logsf(41.0) - stats.norm.logsf(40.0))
    )
    assert log_z.item() == pytest.approx(expected, rel=1e-14)
    d_mean, d_std = grad(log_z, (mean, std), create_graph=True)
    # E[x] and E[x^2] - 1 of the cut normal, and minus its variance plus ... of the second order.
    cut = stats.truncnorm(40.0, 41.0)
    assert d_mean.item() == pytest.approx(cut.mean(), rel=1e-12)
    x = 40.0 + torch.linspace(0, 1, 200001, dtype=torch.float64)
    density = torch.exp(-(x**2 - 1600.0) / 2)
    moment = [torch.trapezoid(x**k * density, x) / torch.trapezoid(density, x) for k in (1, 2)]
    assert d_std.item() == pytest.approx(moment[1].item() - 1, rel=1e-8)
    second = grad(d_mean, mean)[0].item()
    assert second == pytest.approx((moment[1] - moment[0] ** 2 - 1).item(), rel=1e-7)


def test_the_lower_tail_mirrors_the_upper(normal):
    mean = normal[0]
    high, low = log_normalizer(*normal, 10.0, 11.0), log_normalizer(*normal, -11.0, -10.0)
    assert low.item() == high.item()
    assert grad(low, mean)[0].item() == -grad(high, mean)[0].item()


def test_the_weights_gradients_see_the_sum_over_components(mixture):
    w = weights(*mixture, 0.0, 1.0)
    found = grad(w, mixture, torch.tensor([1.0, -2.0], dtype=torch.float64))
    expected = [
        (3.4199534853241, -13.926270222029),
        (6.8229104060851, 9.9264098264895),
        (12.21320232337, -5.2342295671584),
    ]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, a.new_tensor(b), atol=1e-10, rtol=0)


def test_each_weight_differentiated_alone_is_wrong_without_an_error(mixture):
    mean, std, p = (t.detach() for t in mixture)
    z = log_normalizer(mean, std, p, 0.0, 1.0).exp()
    a, b = (0.0 - mean) / std, (1.0 - mean) / std
    phi = [torch.exp(-(t**2) / 2) / math.sqrt(2 * math.pi) for t in (a, b)]
    upstream = torch.tensor([1.0, -2.0], dtype=torch.float64)
    wrong = -upstream * p / z**2 * p * (phi[0] - phi[1]) / std / std
    torch.testing.assert_close(wrong, wrong.new_tensor([-1.8654, -17.7243]), atol=5e-5, rtol=0)


def test_the_cut_density_integrates_to_one(mixture):
    w = weights(*mixture, 0.0, 1.0).detach().numpy()
    mean, std, _ = (t.detach().numpy() for t in mixture)

    def density(x):
        return (w * stats.norm.pdf(x, mean, std)).sum()

    assert integrate.quad(density, 0.0, 1.0)[0] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [(0.0, 1.0), (-INF, 0.5), (0.5, INF), (-INF, INF), (6.0, 7.0), (0.0, 1e-3), (-9.0, 30.0)],
)
def test_every_kind_of_interval_passes_torchs_checks(lower, upper, mixture):
    for fn in (weights, log_normalizer):

        def f(mean, std, weight, fn=fn):
            return fn(mean, std, weight, lower, upper)

        assert gradcheck(f, mixture, check_forward_ad=True, check_batched_grad=True, rtol=1e-4)
        assert gradgradcheck(f, mixture, check_batched_grad=True, rtol=1e-3, atol=1e-4)


def test_the_bounds_have_gradients_too(mixture):
    mean, std, p = (t.detach() for t in mixture)

    def f(lower, upper):
        return log_normalizer(mean, std, p, lower, upper)

    bounds = (double(0.0, 5.0, -20.0), double(1.0, 8.0, -19.5))
    assert gradcheck(f, bounds, check_forward_ad=True)
    lower = double(0.0, 5.0)
    assert grad(f(lower, INF).sum(), lower)[0].isfinite().all()


def test_no_bounds_leave_the_sum_of_the_weights(mixture):
    log_z = log_normalizer(*mixture, -INF, INF)
    assert log_z.item() == pytest.approx(0.0, abs=1e-15)
    d_mean, d_std, d_weight = grad(log_z, mixture, materialize_grads=True)
    assert d_mean.tolist() == [0.0, 0.0]
    assert d_std.tolist() == [0.0, 0.0]
    assert d_weight.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("std", [1e-6, 1e-3, 1e3, 1e8])
def test_tiny_and_huge_deviations_are_right(std):
    mean, std_, weight = double(0.3), double(std), double(1.0)
    log_z = log_normalizer(mean, std_, weight, 0.0, 1.0)
    d_mean, d_std = grad(log_z, (mean, std_))
    if std < 1:
        assert log_z.item() == pytest.approx(0.0, abs=1e-15)
        assert d_mean.item() == pytest.approx(0.0, abs=1e-12)
        return
    # The density is flat: log Z = -log std + ..., d log Z / d mean = (E[x] - mean) / std^2.
    assert log_z.item() == pytest.approx(-math.log(std * math.sqrt(2 * math.pi)), abs=1e-6)
    assert d_mean.item() == pytest.approx(0.2 / std**2, rel=1e-6)
    assert d_std.item() == pytest.approx(-1 / std, rel=1e-6)


def test_the_two_rules_join_without_a_step():
    mean, weight = double(0.0), double(1.0)
    for middle in (0.0, 3.0, 39.0):
        values = [
            log_normalizer(mean, double(1.0), weight, middle - half, middle + half).item()
            for half in (0.5 - 1e-13, 0.5 + 1e-13)
        ]
        assert values[1] == pytest.approx(values[0], rel=1e-12, abs=1e-11)


def test_a_weight_of_zero_has_its_derivative(mixture):
    mean, std, _ = mixture
    p = double(0.0, 1.0)
    log_z = log_normalizer(mean, std, p, 0.0, 1.0)
    masses = stats.norm.cdf(1.0, [-1, 2], [0.5, 1]) - stats.norm.cdf(0.0, [-1, 2], [0.5, 1])
    expected = torch.from_numpy(masses / masses[1])
    torch.testing.assert_close(grad(log_z, p)[0], expected)


def test_batches_broadcast_and_equal_their_entries(mixture):
    mean = torch.stack([mixture[0], mixture[0] + 1]).detach()
    lower = torch.tensor([[-1.0], [0.0], [-INF]], dtype=torch.float64)
    found = weights(mean, mixture[1], mixture[2], lower, 1.0)
    assert found.shape == (3, 2, 2)
    for i in range(3):
        for j in range(2):
            one = weights(mean[j], mixture[1], mixture[2], lower[i, 0], 1.0)
            torch.testing.assert_close(found[i, j], one)


def test_vmap_of_hessian_equals_the_loop(mixture):
    _, std, p = (t.detach() for t in mixture)
    means = torch.tensor([[-1.0, 2.0], [0.5, 30.0]], dtype=torch.float64)

    def f(mean):
        return log_normalizer(mean, std, p, 0.0, 1.0)

    found = torch.func.vmap(torch.func.hessian(f))(means)
    expected = [torch.autograd.functional.hessian(f, mean) for mean in means]
    torch.testing.assert_close(found, torch.stack(expected))
    torch.testing.assert_close(
        torch.func.vmap(lambda mean: weights(mean, std, p, -INF, 1.0))(means),
        weights(means, std, p, -INF, 1.0),
    )


def test_float32_stays_float32_and_is_right_to_its_rounding(mixture):
    single = [t.detach().float() for t in mixture]
    for bounds in ((0.0, 1.0), (-INF, 0.0), (8.0, 9.0)):
        found = log_normalizer(*single, *bounds)
        assert found.dtype == torch.float32
        assert found.item() == pytest.approx(log_normalizer(*mixture, *bounds).item(), rel=1e-5)


def test_weights_beyond_the_largest_number_are_refused_with_the_cure(normal):
    with pytest.raises(OverflowError, match="truncated_mixture_log_normalizer"):
        weights(*normal, 40.0, 41.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"std": double(0.5, 0.0)}, r"std must be positive, got 0.0 at index \[1\]"),
        ({"weight": double(-0.1, 1.0)}, r"weight must not be negative, got -0.1 at index \[0\]"),
        ({"weight": double(0.0, 0.0)}, "weight must have a positive sum"),
        ({"mean": double(0.0, math.nan)}, r"mean must be finite, got nan at index \[1\]"),
        ({"upper": 0.0}, r"lower must be below upper, got lower - upper = 0.0"),
        ({"lower": math.nan}, "lower must be below upper"),
        ({"std": torch.tensor(1.0)}, "components last"),
    ],
)
def test_an_argument_out_of_range_is_refused_by_index(mixture, change, message):
    mean, std, weight = mixture
    arguments = {"mean": mean, "std": std, "weight": weight, "lower": 0.0, "upper": 1.0}
    with pytest.raises(ValueError, match=message):
        weights(**(arguments | change))
