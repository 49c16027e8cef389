import math

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from sdesens.autodiff import positive_sqrt


@pytest.fixture
def v():
    return torch.tensor([-0.01, 0.0, 0.04], dtype=torch.float64, requires_grad=True)


def test_the_value_is_the_root_of_the_positive_part(v):
    assert positive_sqrt(v).tolist() == [0.0, 0.0, 0.2]


def test_the_gradient_is_zero_at_and_below_zero(v):
    (gradient,) = torch.autograd.grad(positive_sqrt(v).sum(), v)
    torch.testing.assert_close(gradient, v.new_tensor([0.0, 0.0, 2.5]), rtol=1e-15, atol=0)


def test_negative_zero_and_the_least_positive_number_have_finite_gradients():
    v = torch.tensor([-0.0, 5e-324], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(positive_sqrt(v).sum(), v)
    assert gradient[0] == 0
    assert gradient[1] == 0.5 / math.sqrt(5e-324)


def test_the_second_derivative_is_finite_and_right(v):
    (first,) = torch.autograd.grad(positive_sqrt(v).sum(), v, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), v)
    torch.testing.assert_close(second, v.new_tensor([0.0, 0.0, -0.25 * 0.04**-1.5]))


def test_forward_mode_is_right_in_both_of_its_forms(v):
    tangent = torch.full_like(v, 2.0)
    expected = v.new_tensor([0.0, 0.0, 5.0])
    with forward_ad.dual_level():
        dual = positive_sqrt(forward_ad.make_dual(v.detach(), tangent))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, expected)
    torch.testing.assert_close(
        torch.func.jvp(positive_sqrt, (v.detach(),), (tangent,))[1], expected
    )


def test_vmap_of_the_gradient_is_right(v):
    gradient = torch.func.vmap(torch.func.grad(positive_sqrt))(v.detach())
    torch.testing.assert_close(gradient, v.new_tensor([0.0, 0.0, 2.5]))


def test_it_passes_torchs_own_checks_away_from_the_kink():
    v = torch.tensor([-0.3, 0.2, 1.7], dtype=torch.float64, requires_grad=True)
    assert gradcheck(positive_sqrt, v, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(positive_sqrt, v, check_fwd_over_rev=True, check_batched_grad=True)


def test_nan_and_infinity_are_handed_on():
    value = positive_sqrt(torch.tensor([math.nan, math.inf, -math.inf]))
    assert value.isnan().tolist() == [True, False, False]
    assert value[1:].tolist() == [math.inf, 0.0]


def test_the_dtype_and_the_shape_are_kept_and_empty_is_fine():
    assert positive_sqrt(torch.zeros(2, 0, 3)).shape == (2, 0, 3)
    assert positive_sqrt(torch.ones(2)).dtype == torch.float32


def test_an_integer_tensor_is_refused():
    with pytest.raises(TypeError, match="floating dtype"):
        positive_sqrt(torch.arange(3))


def test_the_two_forms_in_circulation_are_not_finite_at_zero(v):
    where = torch.where(v > 0, v.sqrt(), 0.0)
    assert torch.autograd.grad(where.nansum(), v)[0].isnan().any()
    clamp = v.clamp(min=0).sqrt()
    assert not torch.autograd.grad(clamp.sum(), v)[0].isfinite().all()
