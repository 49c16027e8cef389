# pyright: reportArgumentType=false, reportCallIssue=false, reportIncompatibleMethodOverride=false
import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import erf
from torch.autograd import forward_ad, grad, gradcheck, gradgradcheck
from torch.func import hessian, jacfwd, jacrev, jvp, vmap

from sdesens.autodiff import custom_gradient
from sdesens.errors import UnsupportedError


def find_root(a):
    return np.vectorize(lambda a: brentq(lambda x: x**3 + x - a, -100.0, 100.0, xtol=1e-14))(a)


root_by_vjp = custom_gradient(find_root, vjp=lambda a, x, g: g / (3 * x**2 + 1))
root_by_jvp = custom_gradient(find_root, jvp=lambda a, x, t: t / (3 * x**2 + 1))
numpy_cube = custom_gradient(
    lambda x: x.numpy() ** 3, vjp=lambda x, y, g: g.numpy() * 3 * x.numpy() ** 2
)
either_rule = pytest.mark.parametrize("root", [root_by_vjp, root_by_jvp], ids=["vjp", "jvp"])


@pytest.fixture
def a():
    return torch.tensor([2.0, -1.0, 10.0], dtype=torch.float64, requires_grad=True)


def two(requires_grad=True):
    return torch.tensor(2.0, dtype=torch.float64, requires_grad=requires_grad)


def test_the_root_of_a_cubic_by_brentq_has_the_right_first_and_second_derivative():
    a = two()
    x = root_by_vjp(a)
    (first,) = grad(x**2, a, create_graph=True)
    (second,) = grad(first, a)
    assert x.item() == pytest.approx(1.0, abs=1e-13)
    assert first.item() == pytest.approx(0.5, abs=1e-12)
    assert second.item() == pytest.approx(-0.0625, abs=1e-12)


def test_the_roots_own_second_derivative_is_right():
    a = two()
    (first,) = grad(root_by_vjp(a), a, create_graph=True)
    assert grad(first, a)[0].item() == pytest.approx(-0.09375, abs=1e-12)


def test_an_intermediate_kept_on_ctx_gives_a_wrong_second_derivative_without_an_error():
    class Kept(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.x = torch.as_tensor(find_root(a.detach()))
            return ctx.x**2

        @staticmethod
        def backward(ctx, g):
            return g * 2 * ctx.x / (3 * ctx.x**2 + 1)

    a = two()
    (first,) = grad(Kept.apply(a) * a, a, create_graph=True)
    assert grad(first, a)[0].item() != pytest.approx(2 * 0.5 + 2 * -0.0625)


@either_rule
def test_one_rule_gives_both_modes_to_second_order(root, a):
    assert gradcheck(root, a, check_forward_ad=True, check_batched_grad=True)
    assert gradcheck(root, a, check_forward_ad=True, check_batched_forward_grad=True)
    assert gradgradcheck(root, a, check_fwd_over_rev=True, check_batched_grad=True)


@either_rule
@pytest.mark.parametrize("outer", [jacfwd, jacrev])
@pytest.mark.parametrize("inner", [jacfwd, jacrev])
def test_nested_transforms_give_the_second_derivative(root, outer, inner, a):
    a = a.detach()
    x = root(a)
    expected = torch.diag(-6 * x / (3 * x**2 + 1) ** 3)
    found = outer(inner(lambda a: root(a).sum()))(a)
    torch.testing.assert_close(found, expected)


@either_rule
def test_reverse_over_a_dual_level_gives_the_second_derivative(root):
    a = two()
    with forward_ad.dual_level():
        dual = root(forward_ad.make_dual(a, torch.ones_like(a)))
        tangent = forward_ad.unpack_dual(dual).tangent
    assert grad(tangent, a)[0].item() == pytest.approx(-0.09375, abs=1e-12)


@either_rule
def test_vmap_loops_and_its_derivatives_follow(root, a):
    torch.testing.assert_close(vmap(root)(a), root(a))
    found = vmap(hessian(root))(a.detach())
    x = root(a.detach())
    torch.testing.assert_close(found, -6 * x / (3 * x**2 + 1) ** 3)


def test_vmap_over_an_empty_batch_is_refused():
    with pytest.raises(UnsupportedError, match="batch is empty"):
        vmap(root_by_vjp)(torch.empty(0, 2))


def test_a_numpy_backward_under_is_grads_batched_equals_the_loop(a):
    y = numpy_cube(a)
    eye = torch.eye(3, dtype=torch.float64)
    (batched,) = grad(y, a, eye, is_grads_batched=True, retain_graph=True)
    looped = torch.stack([grad(y, a, row, retain_graph=True)[0] for row in eye])
    assert torch.equal(batched, looped)
    torch.testing.assert_close(batched, torch.diag(3 * a.detach() ** 2))


def test_a_numpy_backward_works_under_vmap_of_grad(a):
    found = vmap(torch.func.grad(numpy_cube))(a.detach())
    torch.testing.assert_close(found, 3 * a.detach() ** 2)


@pytest.mark.parametrize(
    "vjp",
    [
        lambda x, y, g: g.numpy() * 3 * x.numpy() ** 2,
        lambda x, y, g: g * torch.from_numpy(3 * x.detach().numpy() ** 2),
        lambda x, y, g: g * 3 * x.detach() ** 2,
        lambda x, y, g: g * 3 * x.data**2,
        lambda x, y, g: g * torch.tensor([3 * float(x_i) ** 2 for x_i in x]),
        lambda x, y, g: _square_without_grad(x) * 3 * g,
    ],
    ids=["numpy", "detach-numpy", "detach", "data", "float", "no_grad"],
)
def test_a_rule_that_leaves_torch_is_right_once_and_refused_twice(vjp, a):
    cube = custom_gradient(lambda x: x.numpy() ** 3, vjp=vjp)
    torch.set_default_dtype(torch.float64)
    (first,) = grad(cube(a).sum(), a, create_graph=True)
    torch.testing.assert_close(first.detach(), 3 * a.detach() ** 2)
    with pytest.raises(UnsupportedError, match="no second derivative: its vjp leaves torch"):
        grad(first.sum(), a)


def _square_without_grad(x):
    with torch.no_grad():
        return x**2


def test_a_numpy_vjp_without_a_jvp_is_refused_in_forward_mode_by_name(a):
    with pytest.raises(UnsupportedError, match="forward mode needs jvp="):
        jvp(numpy_cube, (a.detach(),), (torch.ones_like(a),))


def test_a_numpy_jvp_without_a_vjp_is_refused_in_reverse_mode_by_name(a):
    cube = custom_gradient(
        lambda x: x.numpy() ** 3, jvp=lambda x, y, t: t.numpy() * 3 * x.numpy() ** 2
    )
    found = jvp(cube, (a.detach(),), (torch.ones_like(a),))[1]
    torch.testing.assert_close(found, 3 * a.detach() ** 2)
    with pytest.raises(UnsupportedError, match="reverse mode needs vjp="):
        grad(cube(a).sum(), a)


def test_forward_over_reverse_of_a_numpy_rule_is_refused_not_zero(a):
    with pytest.raises(UnsupportedError, match="forward mode needs jvp="):
        jvp(torch.func.grad(lambda x: numpy_cube(x).sum()), (a.detach(),), (torch.ones_like(a),))


def test_the_rule_of_a_rule_may_be_another_operator(a):
    cosine = custom_gradient(lambda x: np.cos(x.numpy()), vjp=lambda x, y, g: -g * sine(x))
    sine = custom_gradient(lambda x: np.sin(x.numpy()), vjp=lambda x, y, g: g * cosine(x))
    assert gradcheck(sine, a, check_forward_ad=True)
    assert gradgradcheck(sine, a, check_fwd_over_rev=True, check_batched_grad=True)


# several inputs and outputs

polar = custom_gradient(
    lambda x, y: (np.hypot(x.numpy(), y.numpy()), np.arctan2(y.numpy(), x.numpy())),
    vjp=lambda x, y, r, phi, gr, gphi: (
        gr * x / r - gphi * y / r**2,
        gr * y / r + gphi * x / r**2,
    ),
)


def test_several_inputs_and_outputs_are_right_to_second_order():
    x = torch.tensor([1.0, -0.5], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0.3, 2.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(polar, (x, y), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(polar, (x, y), check_fwd_over_rev=True, check_batched_grad=True)


def test_several_tangents_in_a_jvp_rule_are_right():
    product = custom_gradient(
        lambda x, y: x * y, jvp=lambda x, y, z, tx, ty: tx * y + x * ty, vjp=None
    )
    x, y = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert gradcheck(product, (x, y), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(product, (x, y), check_fwd_over_rev=True)


def test_an_integer_input_has_no_gradient_and_none_is_no_gradient():
    power = custom_gradient(
        lambda x, n, unused: x.numpy() ** n.numpy(),
        vjp=lambda x, n, unused, y, g: (g * n * x ** (n - 1), None, None),
    )
    x, unused = two(), two()
    y = power(x, torch.tensor(3), unused)
    gx, gu = grad(y, (x, unused), allow_unused=True)
    assert gx.item() == 12.0
    assert gu is None
    tangent = jvp(
        lambda x: power(x, torch.tensor(3), x), (x.detach(),), (torch.tensor(1.0).double(),)
    )
    assert tangent[1].item() == 12.0


def test_integer_outputs_and_declared_ones_are_constants():
    op = custom_gradient(
        lambda x: (x.numpy() ** 2, np.floor(x.numpy()), x.numpy().astype(np.int64)),
        vjp=lambda x, y, low, n, g: 2 * x * g,
        nondifferentiable=[1],
    )
    x = torch.tensor([1.5, 2.5], dtype=torch.float64, requires_grad=True)
    y, low, n = op(x)
    assert y.requires_grad and not low.requires_grad and not n.requires_grad
    assert n.dtype == torch.int64
    torch.testing.assert_close(grad(y.sum(), x)[0], 2 * x.detach())
    found = jvp(lambda x: op(x)[0], (x.detach(),), (torch.ones_like(x),))[1]
    torch.testing.assert_close(found, 2 * x.detach())


# what comes in and goes out


def test_float32_stays_float32_though_numpy_computes_in_float64():
    a = torch.tensor([2.0], requires_grad=True)
    x = root_by_vjp(a)
    assert x.dtype == torch.float32
    assert grad(x.sum(), a)[0].dtype == torch.float32


def test_editing_the_array_in_forward_does_not_reach_the_callers_tensor():
    def doubled(x):
        array = x.numpy()
        array *= 2
        return array

    x = torch.ones(2)
    assert custom_gradient(doubled, vjp=lambda x, y, g: 2 * g)(x).tolist() == [2.0, 2.0]
    assert x.tolist() == [1.0, 1.0]


def test_a_closed_over_parameter_is_refused_since_its_gradient_would_be_lost(a):
    scale = two()
    op = custom_gradient(lambda x: x * scale, vjp=lambda x, y, g: g * 2)
    with pytest.raises(UnsupportedError, match="Pass that tensor as an input"):
        op(a)
    with torch.no_grad():
        assert op(a).tolist() == [4.0, -2.0, 20.0]


@pytest.mark.parametrize(
    ("vjp", "message"),
    [
        (lambda x, y, g: g.sum(), r"must return shape \(3,\) for input 0, got \(\)"),
        (lambda x, y, g: (g, g), "one entry for each of the 1 inputs"),
        (lambda x, y, g: "gradient", "got str"),
    ],
)
def test_a_rule_that_returns_the_wrong_thing_is_told_so(vjp, message, a):
    op = custom_gradient(lambda x: x.numpy() ** 2, vjp=vjp)
    with pytest.raises((ValueError, TypeError), match=message):
        grad(op(a).sum(), a)


def test_an_operator_without_a_rule_is_refused():
    with pytest.raises(ValueError, match="vjp= or jvp="):
        custom_gradient(torch.sin)


def test_an_input_that_is_not_a_tensor_is_refused():
    with pytest.raises(TypeError, match=r"input 0 must be a torch\.Tensor, got float"):
        root_by_vjp(2.0)
    with pytest.raises(TypeError, match="at least one input"):
        root_by_vjp()


def test_an_empty_tensor_is_fine():
    x = torch.empty(0, 3, requires_grad=True)
    y = numpy_cube(x)
    assert y.shape == (0, 3)
    assert grad(y.sum(), x)[0].shape == (0, 3)


def test_erf_by_scipy_follows_the_tangent_recursion_of_an_euler_scheme():
    drift = custom_gradient(
        lambda x: -erf(x.numpy()),
        jvp=lambda x, y, t: -2 / math.sqrt(math.pi) * torch.exp(-(x**2)) * t,
    )

    def path(x, dt=0.1):
        for _ in range(5):
            x = x + dt * drift(x)
        return x

    x0 = torch.tensor([0.3, -1.0], dtype=torch.float64)
    x, J = x0, torch.ones_like(x0)
    for _ in range(5):
        J = J * (1 - 0.1 * 2 / math.sqrt(math.pi) * torch.exp(-(x**2)))
        x = x + 0.1 * drift(x)
    torch.testing.assert_close(jvp(path, (x0,), (torch.ones_like(x0),))[1], J)
    torch.testing.assert_close(torch.func.grad(lambda x: path(x).sum())(x0), J)
