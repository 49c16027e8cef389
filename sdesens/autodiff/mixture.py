"""A Gaussian mixture cut to an interval: its normaliser and its weights, stable in the tails."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdesens._checks import check_tensor, is_transformed
from sdesens.autodiff._normal import log_normal_mass


def truncated_mixture_weights(
    mean: Tensor, std: Tensor, weight: Tensor, lower: Tensor | float, upper: Tensor | float
) -> Tensor:
    r"""``w_k = p_k / Z``: what the weights of a mixture become when it is cut to an interval.

    With ``Z = sum_k p_k (Phi((upper - mean_k) / std_k) - Phi((lower - mean_k) / std_k))``, the
    density of the cut mixture is ``sum_k w_k N(x; mean_k, std_k)`` on the interval. As ``Z``
    couples the components, each weight depends on the parameters of all. Made of torch operations:
    every order of derivative, reverse and forward mode, and ``torch.func``.

    Wrong in circulation: the derivative of each weight by its own component alone, which forgets
    the sum over components; at weights (.3, .7), means (-1, 2), deviations (.5, 1) on [0, 1] and
    upstream (1, -2) it gives ``d/dmean = (-1.8654, -17.7243)`` for ``(3.4200, -13.9262)``.

    Args:
        mean: ``(..., K)``, components last.
        std: ``(..., K)``, positive.
        weight: ``(..., K)``, not negative, not all zero; they need not sum to one.
        lower: lower end, ``(...)`` or a number; ``-inf`` for none.
        upper: upper end, ``(...)`` or a number, above ``lower``; ``inf`` for none.

    Returns:
        ``(..., K)``, the batch dimensions broadcast; dtype and device of the parameters.

    Raises:
        TypeError: a parameter is not a floating tensor.
        ValueError: an argument is outside of its range, by index.
        OverflowError: ``1 / Z`` is beyond the largest number of the dtype (as on ``[40, 41]`` for
            N(0, 1)); :func:`truncated_mixture_log_normalizer` gives ``log Z``. Under ``torch.func``
            values cannot be looked at: there the result is ``inf``, and ranges are not checked.

    Example:
        >>> import torch
        >>> mean, std = torch.tensor([-1.0, 2.0]), torch.tensor([0.5, 1.0])
        >>> truncated_mixture_weights(mean, std, torch.tensor([0.3, 0.7]), 0.0, 1.0)
        tensor([2.9426, 6.8662])
    """
    log_z = truncated_mixture_log_normalizer(mean, std, weight, lower, upper)
    if not is_transformed(log_z) and bool((-log_z > math.log(torch.finfo(log_z.dtype).max)).any()):
        raise OverflowError(
            f"the weights p / Z overflow {log_z.dtype}: log Z goes down to "
            f"{log_z.detach().min().item():.1f}. Use truncated_mixture_log_normalizer and the "
            f"logarithm of the weights."
        )
    return weight * torch.exp(-log_z).unsqueeze(-1)


def truncated_mixture_log_normalizer(
    mean: Tensor, std: Tensor, weight: Tensor, lower: Tensor | float, upper: Tensor | float
) -> Tensor:
    r"""``log Z``, the logarithm of the mass of a Gaussian mixture between two bounds.

    ``Z = sum_k p_k (Phi((upper - mean_k) / std_k) - Phi((lower - mean_k) / std_k))``. Right to
    rounding in the tails, for infinite bounds, and for intervals that are tiny or huge beside the
    deviations; with every order of derivative, reverse and forward mode, and ``torch.func``.

    Wrong in circulation: ``(Phi(b) - Phi(a)).log()``, which is -inf in the upper tail, where both
    are 1 (N(0, 1) on [10, 11]: -53.231310226), with NaN for a gradient.

    Args:
        mean: ``(..., K)``, components last.
        std: ``(..., K)``, positive.
        weight: ``(..., K)``, not negative, not all zero; they need not sum to one.
        lower: lower end, ``(...)`` or a number; ``-inf`` for none.
        upper: upper end, ``(...)`` or a number, above ``lower``; ``inf`` for none.

    Returns:
        ``(...)``, the batch dimensions broadcast; dtype and device of the parameters.

    Raises:
        TypeError: a parameter is not a floating tensor.
        ValueError: an argument is outside of its range, by index. Not checked under ``torch.func``.

    Example:
        >>> import torch
        >>> zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
        >>> round(truncated_mixture_log_normalizer(zero, one, one, 10.0, 11.0).item(), 9)
        -53.231310226
    """
    mean, std, weight, low, high = _checked(mean, std, weight, lower, upper)
    log_mass = log_normal_mass(mean, std, low.unsqueeze(-1), high.unsqueeze(-1))
    # Products rather than logarithms of the weights, so that a weight of 0 has its derivative. The
    # shift is a constant: its own derivative cancels.
    shift = (weight.log() + log_mass).detach().amax(-1, keepdim=True)
    largest = math.log(torch.finfo(log_mass.dtype).max)
    ratio = torch.exp((log_mass - shift).clamp(max=largest))
    return (weight * ratio).sum(-1).log() + shift.squeeze(-1)


def _checked(
    mean: Tensor, std: Tensor, weight: Tensor, lower: Tensor | float, upper: Tensor | float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    for name, value in (("mean", mean), ("std", std), ("weight", weight)):
        check_tensor(name, value)
        if value.dim() == 0:
            raise ValueError(f"{name} must have components last, shape (..., K), got shape ().")
    low, high = (torch.as_tensor(b, dtype=mean.dtype, device=mean.device) for b in (lower, upper))
    _require("std must be positive", std, std > 0)
    _require("mean must be finite", mean, mean.isfinite())
    _require("weight must not be negative", weight, weight >= 0)
    total = weight.sum(-1)
    _require("weight must have a positive sum", total, total > 0)
    _require("lower must be below upper, got lower - upper =", low - high, low < high)
    return mean, std, weight, low, high


def _require(what: str, value: Tensor, holds: Tensor) -> None:
    if is_transformed(holds) or bool(holds.all()):
        return
    index = (~holds).nonzero()[0].tolist()
    got = value.detach()[tuple(index)].item()
    raise ValueError(f"{what}{'' if what.endswith('=') else ', got'} {got} at index {index}.")
