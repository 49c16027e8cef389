# pyright: reportAttributeAccessIssue=false
import pytest
import torch
from torch.autograd.gradcheck import GradcheckError, gradcheck

from sdesens.autodiff import check_gradient, custom_gradient

ALL = ("reverse", "batched", "forward", "second")


def square(vjp):
    return custom_gradient(lambda x: x.numpy() ** 2, vjp=vjp)


def test_a_right_operator_passes_every_check():
    report = check_gradient(square(lambda x, y, g: 2 * x * g), torch.tensor([0.5, -2.0]))
    assert report.passed == ALL
    assert report.refused == {}


def test_a_wrong_first_derivative_is_found():
    with pytest.raises(GradcheckError):
        check_gradient(square(lambda x, y, g: 3 * x * g), torch.tensor([0.5, -2.0]))


def test_a_wrong_second_derivative_is_found():
    kept = {}

    def forward(x):
        kept["x"] = x.clone()
        return x.numpy() ** 2

    op = custom_gradient(forward, vjp=lambda x, y, g: 2 * kept["x"] * g)
    x = torch.tensor([0.5, -2.0])
    assert check_gradient(op, x, order=1).passed == ALL[:3]
    with pytest.raises(GradcheckError):
        check_gradient(op, x)


def test_a_refusal_is_listed_with_its_reason():
    report = check_gradient(
        square(lambda x, y, g: 2 * x.numpy() * g.numpy()), torch.tensor([0.5, -2.0])
    )
    assert report.passed == ("reverse", "batched")
    assert set(report.refused) == {"forward", "second"}
    assert "needs jvp=" in report.refused["forward"]


def test_float32_inputs_are_checked_in_float64():
    x = torch.tensor([4.0], requires_grad=True)
    root = custom_gradient(lambda x: x.sqrt(), vjp=lambda x, y, g: g / (2 * y))
    with pytest.warns(UserWarning, match="double precision"), pytest.raises(GradcheckError):
        gradcheck(root, x)
    assert check_gradient(root, x).passed == ALL


def test_an_operator_that_computes_in_float32_is_refused():
    op = custom_gradient(lambda x: x.float() ** 2, vjp=lambda x, y, g: 2 * x * g)
    with pytest.raises(TypeError, match=r"output 0 is torch.float32: differences"):
        check_gradient(op, torch.tensor([1.0]))


def test_any_function_can_be_checked_and_integers_are_not_perturbed():
    assert check_gradient(lambda x, n: x**n, torch.tensor([2.0]), torch.tensor([3])).passed == ALL


def test_nothing_to_check_is_an_error():
    with pytest.raises(ValueError, match="floating input"):
        check_gradient(torch.abs, torch.tensor([1]))
    with pytest.raises(ValueError, match="floating output"):
        check_gradient(lambda x: x > 0, torch.tensor([1.0]))
    with pytest.raises(ValueError, match="order must be 1 or 2"):
        check_gradient(torch.sin, torch.tensor([1.0]), order=3)


def test_the_report_is_frozen():
    report = check_gradient(torch.sin, torch.tensor([1.0]))
    with pytest.raises(AttributeError):
        report.passed = ()
