# pyright: reportOptionalMemberAccess=false
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad, grad, gradcheck, gradgradcheck
from torch.func import hessian, jacfwd, jacrev, jvp, vmap

from sdesens.autodiff import custom_gradient, distinct, unique_map, unique_vjp
from sdesens.errors import UnsupportedError


class Counting:
    """A function that remembers how many values each of its calls was given."""

    def __init__(self, fn):
        self.fn, self.calls = fn, []

    def __call__(self, u):
        self.calls.append(len(u))
        return self.fn(u)


def wave(u):
    return torch.sin(u) * u**2


def rows_to_three(u):
    return torch.stack([u[:, 0] ** 2 * u[:, 1], u.prod(1).sin(), u.sum(1) ** 3], dim=1)


cube = custom_gradient(lambda x: x.numpy() ** 3, vjp=lambda x, y, g: g * 3 * x**2)

x_elements = torch.tensor([2.0, 1.0, 2.0, 2.0], dtype=torch.float64)
x_rows = torch.tensor([[2.0, 3.0], [1.0, 1.0], [2.0, 3.0]], dtype=torch.float64)
every_fn = pytest.mark.parametrize(
    ("fn", "dim", "x"),
    [(wave, None, x_elements), (cube, None, x_elements), (rows_to_three, 0, x_rows)],
    ids=["elements", "custom", "rows"],
)


@pytest.fixture
def x():
    return torch.tensor([2.0, 1.0, 2.0], dtype=torch.float64, requires_grad=True)


@pytest.fixture
def w():
    return torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64)


# values and first derivatives


def test_each_element_gets_its_own_gradient_and_second_derivative(x, w):
    square = Counting(lambda u: u**2)
    (first,) = grad((w * unique_map(square, x)).sum(), x, create_graph=True)
    assert first.tolist() == [4.0, 20.0, 400.0]
    assert grad(first.sum(), x)[0].tolist() == [2.0, 20.0, 200.0]
    assert square.calls == [2]


def test_a_representative_of_each_group_takes_the_whole_gradient(x, w):
    inverse, first = torch.tensor([1, 0, 1]), torch.tensor([1, 0])
    (wrong,) = grad((w * (x[first] ** 2)[inverse]).sum(), x)
    assert wrong.tolist() == [404.0, 20.0, 0.0]


def test_the_derivative_too_is_evaluated_on_the_distinct_values_only():
    sizes = []

    def vjp(u, y, g):
        sizes.append(len(u))
        return g * 2 * u

    square = custom_gradient(lambda u: u**2, vjp=vjp)
    x = torch.randint(0, 5, (1000,)).double().requires_grad_()
    grad(unique_map(square, x).sum(), x)
    assert sizes == [5]


@every_fn
def test_it_passes_torchs_checks_to_second_order(fn, dim, x):
    x = x.clone().requires_grad_()

    def f(x):
        return unique_map(fn, x, dim=dim)

    assert gradcheck(
        f, x, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
    )
    assert gradgradcheck(f, x, check_fwd_over_rev=True, check_batched_grad=True)


@every_fn
@pytest.mark.parametrize("inner", [jacfwd, jacrev])
@pytest.mark.parametrize("outer", [jacfwd, jacrev])
def test_nested_transforms_equal_those_of_plain_evaluation(fn, dim, x, outer, inner):
    def of(f):
        return outer(inner(lambda x: f(x).cos().sum()))(x)

    torch.testing.assert_close(of(lambda x: unique_map(fn, x, dim=dim)), of(fn))


@every_fn
def test_the_third_derivative_equals_that_of_plain_evaluation(fn, dim, x):
    def of(f):
        return jacfwd(jacrev(jacfwd(lambda x: f(x).cos().sum())))(x)

    torch.testing.assert_close(of(lambda x: unique_map(fn, x, dim=dim)), of(fn))


@every_fn
def test_vmap_and_its_gradients_equal_those_of_plain_evaluation(fn, dim, x):
    batch = torch.stack([x, x + 1, x]).requires_grad_()

    def of(f):
        (first,) = grad(vmap(f)(batch).pow(2).sum(), batch, create_graph=True)
        second = grad(first.pow(2).sum(), batch)[0]
        inside = vmap(hessian(lambda x: f(x).cos().sum()))(batch.detach())
        return first.detach(), second, inside

    torch.testing.assert_close(of(lambda x: unique_map(fn, x, dim=dim)), of(fn))


def test_vmap_deduplicates_the_whole_batch():
    fn = Counting(wave)
    vmap(lambda x: unique_map(fn, x))(torch.ones(4, 5))
    assert fn.calls == [1]


@every_fn
def test_a_batched_second_derivative_equals_that_of_plain_evaluation(fn, dim, x):
    x = x.clone().requires_grad_()
    eye = torch.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape)

    def of(f):
        (first,) = grad(f(x).cos().sum(), x, create_graph=True)
        return grad(first, x, eye, is_grads_batched=True)[0]

    torch.testing.assert_close(of(lambda x: unique_map(fn, x, dim=dim)), of(fn))


@settings(max_examples=60, deadline=None, database=None)
@given(
    values=st.lists(st.floats(-3, 3), min_size=1, max_size=4),
    picks=st.lists(st.integers(0, 3), max_size=12),
    columns=st.sampled_from([None, 1, 2]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_on_random_repeats_it_is_plain_evaluation(values, picks, columns, dtype):
    pool = torch.tensor(values, dtype=dtype)
    x = pool[torch.tensor([p % len(values) for p in picks], dtype=torch.int64)]
    fn, dim = (wave, None) if columns is None else (lambda u: u.sin() * u.sum(1, keepdim=True), 0)
    if columns is not None:
        x = torch.stack([x, x.flip(0)], dim=1)[:, :columns]
    x = x.clone().requires_grad_()

    def of(f):
        y = f(x)
        w = torch.linspace(-1, 2, y.numel(), dtype=dtype).reshape(y.shape)
        (first,) = grad((w * y).sum(), x, create_graph=True)
        (second,) = grad(first.pow(2).sum(), x)
        tangent = jvp(f, (x.detach(),), (torch.ones_like(x),))[1]
        return y.detach(), first.detach(), second, tangent

    torch.testing.assert_close(of(lambda x: unique_map(fn, x, dim=dim)), of(fn))


# which elements are the same


def test_negative_zero_and_zero_are_two_values():
    y = unique_map(lambda u: 1 / u, torch.tensor([0.0, -0.0, 0.0]))
    assert y.tolist() == [math.inf, -math.inf, math.inf]


def test_equal_nans_are_one_value_and_infinities_are_their_own():
    fn = Counting(torch.exp)
    y = unique_map(fn, torch.tensor([math.nan, 1.0, math.nan, math.inf, -math.inf]))
    assert fn.calls == [4]
    assert y.isnan().tolist() == [True, False, True, False, False]
    assert y[3:].tolist() == [math.inf, 0.0]


def test_rows_that_differ_in_the_sign_of_zero_are_two_rows():
    y = unique_map(lambda u: 1 / u, torch.tensor([[1.0, 0.0], [1.0, -0.0], [1.0, 0.0]]), dim=0)
    assert y[:, 1].tolist() == [math.inf, -math.inf, math.inf]


def test_the_inverse_of_rows_follows_their_order():
    values, inverse = distinct(x_rows, dim=0)
    assert inverse.tolist() == [1, 0, 1]
    assert values.tolist() == [[1.0, 1.0], [2.0, 3.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distinct_gives_back_every_bit(dtype):
    x = torch.randint(-2, 3, (50, 3)).to(dtype) / 3 * torch.tensor([0.0, 1.0, -0.0], dtype=dtype)
    for dim in (None, 0):
        values, inverse = distinct(x, dim=dim)
        assert torch.equal(values[inverse].signbit(), x.signbit())
        assert torch.equal(values[inverse], x)
        again, _ = distinct(values, dim=dim)
        assert len(again) == len(values)


# shapes, dtypes and refusals


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3, 4)])
def test_any_shape_is_kept(shape):
    x = torch.zeros(shape, requires_grad=True)
    y = unique_map(lambda u: u + 1, x)
    assert y.shape == shape
    assert grad(y.sum(), x)[0].eq(1).all()


@pytest.mark.parametrize("shape", [(3, 0), (0, 2), (0, 0), (1, 2), (4, 2, 3)])
def test_rows_of_any_shape_are_kept(shape):
    x = torch.zeros(shape, requires_grad=True)
    y = unique_map(lambda u: u.flatten(1).sum(1)[:, None] + torch.ones(len(u), 5), x, dim=0)
    assert y.shape == (shape[0], 5)
    assert grad(y.sum(), x)[0].eq(5).all()


def test_a_row_function_may_give_one_number_a_row_or_none():
    x = torch.ones(3, 2, requires_grad=True)
    assert unique_map(lambda u: u.sum(1), x, dim=0).shape == (3,)
    empty = unique_map(lambda u: u[:, :0], x, dim=0)
    assert empty.shape == (3, 0)
    assert grad(empty.sum(), x)[0].eq(0).all()


def test_float32_stays_float32():
    x = torch.tensor([1.0, 1.0], requires_grad=True)
    y = unique_map(torch.exp, x)
    assert y.dtype == torch.float32
    assert grad(y.sum(), x)[0].dtype == torch.float32


def test_a_function_that_is_not_elementwise_in_shape_is_refused():
    with pytest.raises(
        ValueError, match=r"return shape \(1,\) for the 1 distinct values, got \(\)"
    ):
        unique_map(torch.sum, torch.ones(2))
    with pytest.raises(ValueError, match="one row for each of the 1 distinct rows"):
        unique_map(lambda u: u.sum(0), torch.ones(2, 3), dim=0)
    with pytest.raises(TypeError, match="floating dtype"):
        unique_map(lambda u: u > 0, torch.ones(2))


def test_another_dim_is_refused_with_the_cure():
    with pytest.raises(ValueError, match="movedim"):
        unique_map(torch.sin, torch.ones(2, 2), dim=1)
    with pytest.raises(ValueError, match="must have rows"):
        unique_map(torch.sin, torch.tensor(1.0), dim=0)


def test_a_numpy_rule_inside_is_right_once_and_refused_by_name_twice(x, w):
    square = custom_gradient(
        lambda u: u.numpy() ** 2, vjp=lambda u, y, g: 2 * u.numpy() * g.numpy()
    )
    (first,) = grad((w * unique_map(square, x)).sum(), x)
    assert first.tolist() == [4.0, 20.0, 400.0]
    with pytest.raises(UnsupportedError, match="no second derivative"):
        (first,) = grad((w * unique_map(square, x)).sum(), x, create_graph=True)
        grad(first.sum(), x)


# tensors that fn closes over


def test_gradients_of_a_closed_over_parameter_are_right_in_both_modes(x):
    theta = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)

    def f(x, theta):
        return unique_map(lambda u: torch.sin(theta * u) * u, x)

    assert gradcheck(f, (x, theta), check_forward_ad=True, check_batched_grad=True)


def test_the_mixed_derivative_is_right_with_x_first(x, w):
    theta = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    (first,) = grad((w * unique_map(lambda u: theta * u**2, x)).sum(), x, create_graph=True)
    assert grad(first[2], theta)[0].item() == 400.0


def test_the_mixed_derivative_with_the_parameter_first_is_refused_not_zero(x):
    theta = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    y = unique_map(lambda u: theta**2 * u**2, x)
    (first,) = grad(y.sum(), theta, create_graph=True)
    assert grad(first, theta, retain_graph=True)[0].item() == 18.0
    with pytest.raises(UnsupportedError, match="Differentiate in x first"):
        grad(first, x)


@pytest.mark.parametrize("inner", [jacfwd, jacrev])
@pytest.mark.parametrize("outer", [jacfwd, jacrev])
def test_under_transforms_every_mixed_derivative_is_right(x, outer, inner):
    theta = torch.tensor(1.5, dtype=torch.float64)

    def of(evaluate):
        def f(x, theta):
            return evaluate(lambda u: torch.sin(theta * u) * u, x).cos().sum()

        return outer(inner(f, argnums=(0, 1)), argnums=(0, 1))(x.detach(), theta)

    torch.testing.assert_close(of(unique_map), of(lambda fn, x: fn(x)))


def test_a_dual_parameter_and_a_tracked_x_give_the_mixed_derivative(x):
    theta = torch.tensor(1.5, dtype=torch.float64)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(theta, torch.ones_like(theta))
        tangent = forward_ad.unpack_dual(unique_map(lambda u: dual**2 * u**2, x)).tangent
    torch.testing.assert_close(grad(tangent.sum(), x)[0], 2 * 1.5 * 2 * x.detach())


def test_a_vmapped_parameter_is_right():
    x, thetas = torch.tensor([2.0, 1.0, 2.0]), torch.tensor([1.0, 3.0])
    found = vmap(lambda theta: unique_map(lambda u: theta * u, x))(thetas)
    torch.testing.assert_close(found, thetas[:, None] * x)


# the plain function


def test_the_plain_function_maps_an_upstream_gradient_through_the_inverse(w):
    values, inverse = distinct(torch.tensor([2.0, 1.0, 2.0], dtype=torch.float64))
    square = Counting(lambda u: u**2)
    assert unique_vjp(square, values, inverse, w).tolist() == [4.0, 20.0, 400.0]
    assert square.calls == [2]


def test_the_plain_function_on_rows_equals_the_gradient_of_plain_evaluation():
    x = x_rows.clone().requires_grad_()
    upstream = torch.randn(3, 3, dtype=torch.float64)
    found = unique_vjp(rows_to_three, *distinct(x, dim=0), upstream, dim=0)
    torch.testing.assert_close(found, grad(rows_to_three(x), x, upstream)[0])


def test_the_plain_function_refuses_an_upstream_of_another_shape():
    values, inverse = distinct(torch.tensor([2.0, 1.0, 2.0]))
    with pytest.raises(ValueError, match=r"upstream must have the shape of the output, \(3,\)"):
        unique_vjp(torch.square, values, inverse, torch.ones(2))


def test_bincount_of_the_upstream_gives_each_member_the_sum_of_its_group(w):
    inverse, slope = torch.tensor([1, 0, 1]), torch.tensor([2.0, 4.0], dtype=torch.float64)
    wrong = (torch.bincount(inverse, weights=w) * slope)[inverse]
    assert wrong.tolist() == [404.0, 20.0, 404.0]
