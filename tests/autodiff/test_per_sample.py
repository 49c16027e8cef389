# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportAssignmentType=false
import pytest
import torch
from torch import nn
from torch.autograd import forward_ad, grad, gradcheck, gradgradcheck

from sdesens.autodiff import (
    _blocks,
    custom_gradient,
    per_sample_grad,
    per_sample_jacobian,
    per_sample_param_grad,
)
from sdesens.errors import CoupledSamplesError, UnsupportedError


@pytest.fixture
def x():
    return torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64)


@pytest.fixture
def batch():
    return torch.randn(7, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def network(*middle):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), *middle, nn.Tanh(), nn.Linear(8, 1)).double()


def full_jacobian(fn, x):
    return torch.autograd.functional.jacobian(fn, x, strict=True)


def diagonal(fn, x):
    return torch.einsum("iif->if", full_jacobian(lambda x: fn(x).reshape(-1), x))


def standardise(x):
    return torch.tanh((x - x.mean(0)) / (x.var(0) + 0.1).sqrt()).sum(1)


# BatchNorm on [0, 1, 5]


def test_batch_norm_couples_samples_as_its_formula_says(x):
    x_hat = (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt()
    s = (x.var(correction=0) + 1e-5).sqrt()
    J = (torch.eye(3) - 1 / 3 - x_hat @ x_hat.T / 3) / s
    full = full_jacobian(lambda x: nn.BatchNorm1d(1, affine=False).double()(x).reshape(-1), x)[
        :, :, 0
    ]
    torch.testing.assert_close(full, J, atol=1e-5, rtol=1e-5)
    expected = J.new_tensor([0.17634678, -0.22043298, 0.04408620])
    torch.testing.assert_close(full[0], expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize("chunk_size", [None, 1, 2, 3, 10])
def test_exact_is_the_diagonal_of_the_true_jacobian(x, chunk_size):
    norm = nn.BatchNorm1d(1, affine=False).double()
    found = per_sample_grad(norm, x, coupling="exact", chunk_size=chunk_size)
    torch.testing.assert_close(found, diagonal(norm, x))
    assert found[0].item() == pytest.approx(0.17634678, abs=1e-8)


def test_frozen_takes_the_batch_statistics_as_constants(x):
    norm = nn.BatchNorm1d(1).double()
    found = per_sample_grad(norm, x, coupling="frozen")
    s = (x.var(correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(found, (1 / s).expand(3, 1))


@pytest.mark.parametrize("coupling", ["none", "exact", "frozen"])
def test_running_statistics_move_once_a_call(x, coupling):
    norm = nn.BatchNorm1d(1, affine=False).double()
    per_sample_grad(norm, x, coupling=coupling, check=coupling != "none")
    assert norm.running_mean.item() == pytest.approx(0.2)
    assert norm.running_var.item() == pytest.approx(0.9 + 0.1 * 7)
    assert norm.num_batches_tracked.item() == 1


def test_the_mean_and_variance_of_frozen_are_those_of_the_forward_pass(batch):
    net = network(nn.BatchNorm1d(8))
    seen = []
    values = net(batch)
    per_sample_grad(lambda x: seen.append(net(x)) or seen[0], batch, coupling="frozen")
    torch.testing.assert_close(seen[0], values)


def test_in_eval_mode_samples_are_not_coupled(x):
    norm = nn.BatchNorm1d(1, affine=False).double().eval()
    norm.running_mean.fill_(1.0)
    norm.running_var.fill_(4.0)
    for options in ({"check": True}, {"coupling": "exact"}, {"strategy": "vmap"}):
        found = per_sample_grad(lambda x: norm(2 * x) ** 2, x, **options)
        y = (2 * x - 1) / 4.00001**0.5
        torch.testing.assert_close(found, 2 * y * 2 / 4.00001**0.5)


# what the samples see of each other


@pytest.mark.parametrize("middle", [(), (nn.LayerNorm(8),), (nn.GroupNorm(2, 8),)])
def test_all_ways_agree_where_samples_are_not_coupled(batch, middle):
    net = network(*middle)
    expected = diagonal(net, batch)
    for options in (
        {"check": True},
        {"strategy": "vmap", "check": True},
        {"strategy": "vmap", "chunk_size": 2},
        {"coupling": "exact", "chunk_size": 3},
        {"coupling": "frozen", "check": True},
    ):
        torch.testing.assert_close(per_sample_grad(net, batch, **options), expected)


def test_exact_is_right_for_a_coupling_of_any_form(batch):
    found = per_sample_grad(standardise, batch, coupling="exact", chunk_size=2)
    torch.testing.assert_close(found, diagonal(standardise, batch))
    assert not torch.allclose(per_sample_grad(standardise, batch), found)


@pytest.mark.parametrize("strategy", ["vjp", "vmap"])
@pytest.mark.parametrize(
    "fn",
    [
        standardise,
        lambda x: x.sum(1) + 1e-9 * x.flip(0).prod(1),
        lambda x: x.cumsum(0).sin().sum(1),
        lambda x: x.sum(1) * torch.where(torch.arange(len(x)) == 2, x[0, 0], 1.0),
    ],
    ids=["statistics", "faint", "cumulative", "one pair"],
)
def test_a_coupling_is_found_on_request(batch, fn, strategy):
    with pytest.raises(CoupledSamplesError, match="fn mixes the samples of a batch"):
        per_sample_grad(fn, batch, check=True, strategy=strategy)


def test_a_coupling_that_frozen_does_not_know_is_found(batch):
    with pytest.raises(CoupledSamplesError, match="Detach these statistics"):
        per_sample_grad(standardise, batch, coupling="frozen", check=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_check_raises_no_false_alarm(dtype):
    for seed in range(20):
        x = torch.randn(65, 4, generator=torch.Generator().manual_seed(seed)).to(dtype)
        net = network(nn.LayerNorm(8)).to(dtype)
        per_sample_grad(lambda x, net=net: net(x * 100) ** 3, x, check=True)


def test_the_check_does_not_touch_the_global_generator(batch):
    net = network()
    state = torch.get_rng_state()
    per_sample_grad(net, batch, check=True)
    assert torch.equal(torch.get_rng_state(), state)


def test_exact_never_holds_more_than_a_chunk_of_gradients(batch, monkeypatch):
    sizes = []

    def pull_many(pull, cotangents):
        gradients = _blocks.torch.func.vmap(pull)(cotangents)
        sizes.append(gradients.numel())
        return gradients

    monkeypatch.setattr(_blocks, "pull_many", pull_many)
    per_sample_grad(standardise, batch, coupling="exact", chunk_size=3)
    assert sizes == [3 * 28, 3 * 28, 28]
    assert _blocks.default_chunk(torch.empty(4096, 4096)) == 1


# Dropout


def test_dropout_has_one_mask_for_values_and_gradients(batch):
    net = network(nn.Dropout(0.5))
    torch.manual_seed(0)
    found = per_sample_grad(net, batch, check=True)
    torch.manual_seed(0)
    leaf = batch.clone().requires_grad_()
    assert torch.equal(found, grad(net(leaf).sum(), leaf)[0])


def test_dropout_is_refused_by_the_strategy_that_would_draw_another_mask(batch):
    with pytest.raises(UnsupportedError, match="strategy='vjp'"):
        per_sample_grad(network(nn.Dropout(0.5)), batch, strategy="vmap")


def test_batch_norm_in_training_is_refused_by_the_strategy_that_runs_samples_alone(batch):
    for norm in (nn.BatchNorm1d(8), nn.BatchNorm1d(8, track_running_stats=False)):
        with pytest.raises(UnsupportedError, match="batches of one sample"):
            per_sample_grad(network(norm), batch, strategy="vmap")
    with pytest.raises(UnsupportedError, match="runs each sample alone"):
        per_sample_grad(network(), batch, strategy="vmap", coupling="exact")


# derivatives of the result


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"strategy": "vmap"},
        {"coupling": "exact", "chunk_size": 2},
        {"coupling": "exact", "chunk_size": 1},
    ],
)
def test_with_create_graph_the_gradient_has_its_own_gradients(options):
    x = torch.randn(3, 2, requires_grad=True, dtype=torch.float64)
    fn = standardise if "coupling" in options else lambda x: x.sin().prod(1)

    def gradient(x):
        return per_sample_grad(fn, x, create_graph=True, **options)

    assert gradcheck(gradient, x, check_batched_grad=True)
    assert gradgradcheck(gradient, x)


def test_parameters_get_gradients_of_the_gradient(batch):
    net = network()
    found = per_sample_grad(net, batch, create_graph=True)
    leaf = batch.clone().requires_grad_()
    expected = grad(net(leaf).sum(), leaf, create_graph=True)[0]
    torch.testing.assert_close(
        grad(found.pow(2).sum(), net[0].weight), grad(expected.pow(2).sum(), net[0].weight)
    )


def test_without_create_graph_nothing_is_attached_and_the_caller_is_left_alone(batch):
    leaf = batch.clone().requires_grad_()
    assert not per_sample_grad(network(), leaf).requires_grad
    assert leaf.grad is None
    per_sample_grad(network(), batch)
    assert not batch.requires_grad


def test_it_works_under_no_grad(batch):
    with torch.no_grad():
        found = per_sample_grad(network(), batch)
    torch.testing.assert_close(found, diagonal(network(), batch))


def test_forward_mode_over_it_is_right(batch):
    net, t = network(), torch.ones_like(batch)
    with forward_ad.dual_level():
        dual = per_sample_grad(net, forward_ad.make_dual(batch, t), create_graph=True)
        tangent = forward_ad.unpack_dual(dual).tangent
    _, expected = torch.func.jvp(torch.func.grad(lambda x: net(x).sum()), (batch,), (t,))
    torch.testing.assert_close(tangent, expected)


def test_it_runs_under_torch_func(batch):
    net = network()

    def of(gradient):
        return torch.func.grad(lambda x: gradient(x).pow(2).sum())(batch)

    plain = of(torch.func.grad(lambda x: net(x).sum()))
    torch.testing.assert_close(of(lambda x: per_sample_grad(net, x, create_graph=True)), plain)
    batches = torch.stack([batch, 2 * batch])
    found = torch.func.vmap(lambda x: per_sample_grad(net, x))(batches)
    torch.testing.assert_close(found[1], per_sample_grad(net, 2 * batch))


# Jacobians


@pytest.mark.parametrize(
    "options",
    [
        {"check": True},
        {"chunk_size": 2},
        {"strategy": "vmap"},
        {"coupling": "exact"},
        {"coupling": "exact", "chunk_size": 1},
        {"coupling": "frozen"},
    ],
)
def test_the_jacobian_of_several_outputs_is_that_of_each_sample_alone(options):
    x = torch.randn(5, 2, 3, dtype=torch.float64)

    def fn(x):
        return torch.stack([x.prod(2), x.sin().sum(2)], dim=2)

    expected = torch.stack([full_jacobian(lambda row: fn(row[None])[0], row) for row in x])
    found = per_sample_jacobian(fn, x, **options)
    assert found.shape == (5, 2, 2, 2, 3)
    torch.testing.assert_close(found, expected)


def test_the_exact_jacobian_is_the_diagonal_of_blocks(batch):
    def fn(x):
        return torch.stack([standardise(x), x.sum(1) * x.mean()], dim=1)

    expected = torch.einsum("ioif->iof", full_jacobian(fn, batch))
    found = per_sample_jacobian(fn, batch, coupling="exact", chunk_size=3)
    torch.testing.assert_close(found, expected)
    with pytest.raises(CoupledSamplesError):
        per_sample_jacobian(fn, batch, check=True)


def test_a_custom_operator_inside_is_served(batch):
    sine = custom_gradient(
        torch.sin, vjp=lambda x, y, g: torch.from_numpy(g.numpy() * x.cos().numpy())
    )
    found = per_sample_jacobian(sine, batch)
    torch.testing.assert_close(found, torch.diag_embed(batch.cos()))


# shapes and refusals


def test_an_empty_batch_gives_an_empty_gradient():
    for options in ({}, {"coupling": "exact"}, {"check": True}):
        assert per_sample_grad(lambda x: x.sum(1), torch.empty(0, 3), **options).shape == (0, 3)
    assert per_sample_jacobian(lambda x: x[:, :0], torch.ones(2, 3)).shape == (2, 0, 3)


def test_a_mean_reduced_loss_is_refused_and_scales_if_divided_by_hand(batch):
    with pytest.raises(ValueError, match="a mean would scale each gradient by 1/N"):
        per_sample_grad(lambda x: (x**2).mean(), batch)
    found = per_sample_grad(lambda x: (x**2).sum(1) / len(x), batch)
    torch.testing.assert_close(found, 2 * batch / 7)


def test_several_outputs_are_sent_to_the_jacobian(batch):
    with pytest.raises(ValueError, match=r"got \(7, 4\)\. For several outputs"):
        per_sample_grad(torch.sin, batch)
    with pytest.raises(ValueError, match="one row a sample"):
        per_sample_jacobian(lambda x: x.sum(0), batch)


def test_an_output_out_of_autograds_sight_is_an_error_not_zero(batch):
    with pytest.raises(ValueError, match="does not depend on x"):
        per_sample_grad(lambda x: x.detach().sum(1), batch)


def test_a_misspelt_choice_is_offered_the_right_one(batch):
    with pytest.raises(ValueError, match="Did you mean 'exact'"):
        per_sample_grad(standardise, batch, coupling="exakt")
    with pytest.raises(ValueError, match="at least 1"):
        per_sample_grad(standardise, batch, chunk_size=0)


def test_the_two_forms_in_circulation_are_shape_errors(batch):
    net = network()
    _, pull = torch.func.vjp(net, batch)
    with pytest.raises(RuntimeError):
        pull(torch.eye(7, dtype=torch.float64))
    leaf = batch.clone().requires_grad_()
    with pytest.raises(RuntimeError):
        grad(net(leaf), leaf, torch.eye(7, dtype=torch.float64))


# shared parameters


def loss_of_normed_line(norm):
    return lambda params, x: (norm(params["w"] * x) ** 2).reshape(-1)


def test_parameter_gradients_through_batch_norm_in_training_see_the_coupling(x):
    norm = nn.BatchNorm1d(1, affine=False).double()
    w = {"w": torch.tensor(2.0, dtype=torch.float64)}
    found = per_sample_param_grad(loss_of_normed_line(norm), w, x, coupling="exact")["w"]
    expected = found.new_tensor([4.5918e-7, 1.1480e-7, 1.0332e-6])
    torch.testing.assert_close(found, expected, rtol=5e-5, atol=0)
    assert norm.num_batches_tracked.item() == 1
    with pytest.raises(UnsupportedError, match="coupling='exact'"):
        per_sample_param_grad(loss_of_normed_line(norm), w, x)


@pytest.mark.parametrize("coupling", ["none", "exact"])
def test_parameter_gradients_in_eval_mode_are_those_of_each_sample_alone(x, coupling):
    norm = nn.BatchNorm1d(1, affine=False).double().eval()
    norm.running_mean.fill_(1.0)
    norm.running_var.fill_(4.0)
    w = {"w": torch.tensor(2.0, dtype=torch.float64)}
    found = per_sample_param_grad(loss_of_normed_line(norm), w, x, coupling=coupling)["w"]
    expected = found.new_tensor([0.0, 0.49999875, 22.49994375])
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-12)


def test_parameter_gradients_sum_to_the_batch_gradient_under_the_same_mask(batch):
    net = network(nn.Dropout(0.5))
    params = dict(net.named_parameters())

    def loss(params, x):
        return torch.func.functional_call(net, params, (x,)).square()

    torch.manual_seed(0)
    found = per_sample_param_grad(loss, params, batch, coupling="exact", chunk_size=3)
    torch.manual_seed(0)
    expected = grad(net(batch).square().sum(), list(params.values()))
    for a, b in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(a.sum(0), b)
    with pytest.raises(UnsupportedError, match="random"):
        per_sample_param_grad(loss, params, batch)


def test_a_mean_reduced_parameter_loss_is_refused(batch):
    with pytest.raises(ValueError, match="a mean would scale"):
        per_sample_param_grad(lambda p, x: (p["w"] * x).mean(), {"w": batch[0]}, batch)
