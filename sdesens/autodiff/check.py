"""Holding a derivative against differences, in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from sdesens._checks import check_count
from sdesens.errors import UnsupportedError


@dataclass(frozen=True)
class GradientReport:
    """What :func:`check_gradient` found: no derivative in it is wrong.

    Attributes:
        passed: of ``"reverse"``, ``"batched"``, ``"forward"``, ``"second"``, those that agree with
            differences.
        refused: the others, which the operator refuses by name, with its message.
    """

    passed: tuple[str, ...]
    refused: dict[str, str] = field(default_factory=dict)


def check_gradient(
    op: Callable[..., Any],
    *inputs: Tensor,
    order: int = 2,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
) -> GradientReport:
    """Hold the derivatives of ``op`` at ``inputs`` against central differences in float64.

    First derivatives are checked in reverse mode, in reverse mode under ``is_grads_batched``, and
    in forward mode; with ``order=2`` the second derivatives too, by differences of the first ones.
    A derivative that is refused with an ``UnsupportedError`` is listed, not failed.

    Wrong in circulation: ``torch.autograd.gradcheck`` on float32 inputs. Its differences are
    rounding (.2384 for a derivative of .25), so that right gradients fail and tolerances are then
    widened until wrong ones pass. Here floating inputs are brought to float64 first, and an ``op``
    that computes in float32 all the same is refused.

    Args:
        op: from :func:`~sdesens.autodiff.custom_gradient`, or any function of tensors.
        inputs: where to check; use points away from kinks. Only floating ones are perturbed.
        order: 1 or 2.
        eps: step of the differences.
        atol: absolute tolerance.
        rtol: relative tolerance.

    Returns:
        Which checks passed, and which were refused.

    Raises:
        torch.autograd.gradcheck.GradcheckError: a derivative disagrees with the differences.
        TypeError: ``op`` gives another dtype than float64 for float64 inputs.
        ValueError: ``order`` is neither 1 nor 2; or there is no floating input or output.

    Example:
        >>> import numpy as np, torch
        >>> from sdesens.autodiff import custom_gradient
        >>> exp = custom_gradient(lambda x: np.exp(x.numpy()), vjp=lambda x, y, grad: grad * y)
        >>> check_gradient(exp, torch.tensor([0.5, 1.0])).passed
        ('reverse', 'batched', 'forward', 'second')
    """
    if check_count("order", order) > 2:
        raise ValueError(f"order must be 1 or 2, got {order}.")
    points = [
        x.detach().double().requires_grad_() if x.is_floating_point() else x.detach()
        for x in inputs
    ]
    _check_precision(op, points)
    tolerances: dict[str, Any] = {"eps": eps, "atol": atol, "rtol": rtol}
    checks: dict[str, Callable[[], Any]] = {
        "reverse": lambda: gradcheck(op, points, **tolerances),
        "batched": lambda: gradcheck(op, points, check_batched_grad=True, **tolerances),
        "forward": lambda: gradcheck(
            op, points, check_forward_ad=True, check_backward_ad=False, **tolerances
        ),
        "second": lambda: gradgradcheck(op, points, **tolerances),
    }
    passed, refused = [], {}
    for name, check in checks.items():
        if name == "second" and order == 1:
            continue
        try:
            check()
            passed.append(name)
        except UnsupportedError as error:
            refused[name] = str(error)
    return GradientReport(tuple(passed), refused)


def _check_precision(op: Callable[..., Any], points: list[Tensor]) -> None:
    """Raise unless ``op`` computes in float64 what it is asked in float64."""
    if not any(x.is_floating_point() for x in points):
        raise ValueError("check_gradient needs at least one floating input, got none.")
    outputs = op(*points)
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    floating = [y for y in outputs if y.is_floating_point()]
    if not floating:
        raise ValueError("op has no floating output, so there is no derivative to check.")
    for index, y in enumerate(floating):
        if y.dtype != torch.float64:
            raise TypeError(
                f"op must compute in float64 when its inputs are float64, but output {index} is "
                f"{y.dtype}: differences in that precision are rounding. Keep the inputs' dtype."
            )
