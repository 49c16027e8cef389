"""What the tests of ``greeks`` share."""

import pytest
import torch


def derivatives(function, **inputs):
    """The value of a closed form and its first derivatives, by autograd: ``()`` and by name."""
    leaves = {
        name: torch.tensor(value, dtype=torch.float64, requires_grad=True)
        for name, value in inputs.items()
    }
    value = function(**leaves)
    grads = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
    known = {"price": value.item()}
    return known | {
        name: 0.0 if grad is None else grad.item() for name, grad in zip(leaves, grads, strict=True)
    }


@pytest.fixture(scope="session")
def known():
    """``derivatives`` of a closed form."""
    return derivatives


@pytest.fixture(scope="session")
def assert_close():
    """Each estimate within 4.5 standard errors, passed by chance 7e-6 of the time, and those small.

    ``relative`` bounds the standard error by a share of the right value, so that the first says
    something; ``names`` leaves the others out.
    """

    def check(report, right, relative, names=None):
        for name in right if names is None else names:
            estimate, value = report[name], right[name]
            gap = abs(estimate.value - value)
            assert gap < 4.5 * estimate.stderr + 1e-9 * (1 + abs(value)), (name, estimate, value)
            assert estimate.stderr <= relative * abs(value), (name, estimate, value)

    return check
