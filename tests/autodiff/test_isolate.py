# pyright: reportOptionalMemberAccess=false
import pytest
import torch
from torch import nn
from torch.autograd import forward_ad, grad

from sdesens.autodiff import isolate_samples, per_sample_jacobian
from sdesens.errors import UnsupportedError

W = torch.tensor([[0.5, -1.0, 0.3], [0.7, 0.2, -0.4]], dtype=torch.float64)
weights = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(4, 3)


def coupled(x):
    return torch.tanh((x - x.mean(0)) / (x.var(0) + 1).sqrt()) @ W


def apart(x):
    """The definition: output i with the other samples held."""
    own = []
    for i in range(len(x)):
        held = x.detach()
        own.append(coupled(torch.cat([held[:i], x[i : i + 1], held[i + 1 :]]))[i])
    return torch.stack(own)


isolated = isolate_samples(coupled, chunk_size=3)


@pytest.fixture
def x():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 2, generator=generator, dtype=torch.float64, requires_grad=True)


def test_the_values_are_those_of_the_coupled_function(x):
    assert torch.equal(isolated(x), coupled(x))
    assert torch.equal(isolated(x.detach()), coupled(x))


def test_the_jacobian_is_the_block_diagonal_of_the_true_one(x):
    eye = torch.eye(12, dtype=x.dtype)
    (J,) = grad(isolated(x).reshape(-1), x, eye, is_grads_batched=True)
    blocks = per_sample_jacobian(coupled, x, coupling="exact")
    expected = torch.zeros(4, 3, 4, 2, dtype=x.dtype)
    for i in range(4):
        expected[i, :, i] = blocks[i]
    torch.testing.assert_close(J, expected.reshape(12, 4, 2))


def test_the_gradient_and_its_gradient_are_those_of_the_definition(x):
    def of(f):
        (first,) = grad((weights * f(x)).sin().sum(), x, create_graph=True)
        return first, grad(first.pow(2).sum(), x)[0]

    torch.testing.assert_close(of(isolated), of(apart))


def test_forward_mode_and_its_two_second_orders_are_those_of_the_definition(x):
    t = torch.linspace(-1, 1, 8, dtype=x.dtype).reshape(4, 2)

    def forward(f, x):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(f(forward_ad.make_dual(x, t))).tangent

    def forward_over_reverse(f):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x.detach(), t).requires_grad_()
            (first,) = grad((weights * f(dual)).sin().sum(), dual)
            return forward_ad.unpack_dual(first).tangent

    torch.testing.assert_close(forward(isolated, x.detach()), forward(apart, x.detach()))
    torch.testing.assert_close(forward_over_reverse(isolated), forward_over_reverse(apart))
    reverse_over_forward = [grad(forward(f, x).pow(2).sum(), x)[0] for f in (isolated, apart)]
    torch.testing.assert_close(*reverse_over_forward)


def test_parameters_get_their_usual_gradient_and_statistics_move_once(x):
    norm = nn.BatchNorm1d(2).double()
    y = isolate_samples(norm)(x)
    assert norm.num_batches_tracked.item() == 1
    found = grad((y**3).sum(), norm.weight)[0]
    torch.testing.assert_close(found, grad((norm(x) ** 3).sum(), norm.weight)[0])


def test_x_before_a_parameter_is_right_and_the_other_order_is_refused(x):
    theta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    fn = isolate_samples(lambda x: theta**2 * (x - x.mean(0)).square())
    (first,) = grad(fn(x).sum(), x, create_graph=True)
    expected = 2 * theta.detach() * (first / theta**2).detach().sum()
    torch.testing.assert_close(grad(first.sum(), theta)[0], expected)
    (first,) = grad(fn(x).sum(), theta, create_graph=True)
    with pytest.raises(UnsupportedError, match="take that in x first"):
        grad(first, x)


def test_torch_func_and_third_derivatives_are_refused_by_name(x):
    with pytest.raises(UnsupportedError, match=r"does not run under torch\.func"):
        torch.func.vmap(isolated)(x.detach()[None])
    (first,) = grad(isolated(x).sin().sum(), x, create_graph=True)
    (second,) = grad(first.pow(2).sum(), x, create_graph=True)
    with pytest.raises(UnsupportedError, match="a third derivative"):
        grad(second.pow(2).sum(), x)


def test_an_output_without_a_row_for_each_sample_is_refused(x):
    with pytest.raises(ValueError, match="one row a sample"):
        isolate_samples(lambda x: x.sum(0))(x)
    with pytest.raises(TypeError, match="floating dtype"):
        isolated(torch.arange(4))
