"""The diagonal blocks of a batch Jacobian, and the forms of coupling that hide outside of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from sdesens._checks import is_transformed
from sdesens.autodiff._transforms import Pullback, is_dual
from sdesens.errors import CoupledSamplesError

# What the batched gradient of one pass may hold when no chunk size is given: 2 MB of float64, which
# stays in cache; larger passes were slower (1024 samples, 16 inputs: 184 ms, at 2**22 473 ms).
ENTRIES_A_PASS = 2**18


def default_chunk(x: Tensor) -> int:
    """The number of one-hot cotangents a pass, so that it holds ``ENTRIES_A_PASS`` entries."""
    return max(1, ENTRIES_A_PASS // max(1, x.numel()))


def pull_many(pull: Pullback, cotangents: Tensor) -> Tensor:
    """The pullback of each of a stack of cotangents, batched."""
    if len(cotangents) == 1:
        return pull(cotangents[0])[None]
    return torch.func.vmap(pull)(cotangents)


def own_gradients(pull: Pullback, weight: Tensor, x: Tensor, chunk_size: int | None) -> Tensor:
    """``weight_i . dy_i/dx_i`` for every sample i, without what the other outputs add to it.

    Sample by sample, ``chunk_size`` at a time: each pass holds ``chunk_size`` gradients of the size
    of ``x``, of which one row each is kept.
    """
    n = len(x)
    size = default_chunk(x) if chunk_size is None else chunk_size
    attached: list[Tensor] = []
    own = torch.zeros_like(x)
    for start in range(0, n, size):
        index = torch.arange(start, min(start + size, n), device=x.device)
        one_hot = functional.one_hot(index, n).to(weight.dtype)
        one_hot = one_hot.reshape(len(index), n, *[1] * (weight.dim() - 1))
        gradients = pull_many(pull, one_hot * weight)
        rows = gradients[torch.arange(len(index), device=x.device), index]
        if rows.requires_grad or is_transformed(rows) or is_dual(rows):
            attached.append(rows)
        else:
            # Not kept in a list: many small tensors between large ones fragment the heap, which
            # then grows as if every pass were held.
            own[index] = rows
    return torch.cat(attached) if attached else own


def refuse_coupling(pull: Pullback, y: Tensor, cure: str) -> None:
    """Raise if an output depends on another sample's input, by two more backward passes.

    Samples that do not see each other scale with their own cotangent. The factors are powers of
    two, so that this holds to the last bit, and a faint coupling still stands out.
    """
    n = len(y)
    if y.numel() == 0:
        return
    generator = torch.Generator().manual_seed(n)
    sample = [n] + [1] * (y.dim() - 1)
    columns = torch.randint(-2, 3, y.shape[1:], generator=generator).to(y)
    direction = torch.exp2(columns).expand(y.shape)
    with torch.no_grad():
        alone = pull(direction)
        if alone.numel() == 0:
            return
        allowed = 64 * torch.finfo(alone.dtype).eps * alone.abs().amax()
        for _ in range(2):
            exponents = torch.randperm(n, generator=generator) % 17 - 8
            factor = torch.exp2(exponents.to(y))
            together = pull(direction * factor.reshape(sample))
            scale = factor.reshape([n] + [1] * (alone.dim() - 1)).to(alone.dtype)
            difference = (together / scale - alone).abs()
            found = difference > allowed / scale.clamp(max=1.0)
            if bool(found.any()):
                first = int(found.flatten(1).any(1).nonzero()[0])
                raise CoupledSamplesError(
                    f"fn mixes the samples of a batch: the gradient at sample {first} depends on "
                    f"the weights of other outputs (by {difference.max().item():.1e}, where the "
                    f"gradients are up to {alone.abs().max().item():.1e}). {cure}"
                )


class FrozenStatistics(TorchFunctionMode):
    """Batch normalisation in training mode, with the statistics of the batch as constants."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.batch_norm:
            return _frozen_batch_norm(*args, **kwargs)
        return func(*args, **kwargs)


def _frozen_batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not training:
        return functional.batch_norm(x, running_mean, running_var, weight, bias, eps=eps)
    with torch.no_grad():
        # For its refusal of a single value and its update of the running statistics.
        functional.batch_norm(x, running_mean, running_var, None, None, True, momentum, eps)
        variance, mean = torch.var_mean(x, [0, *range(2, x.dim())], correction=0)
    return functional.batch_norm(x, mean, variance, weight, bias, eps=eps)
