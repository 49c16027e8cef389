"""The gradient of each sample's own output, whether or not the samples of a batch are coupled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from sdesens._checks import check_choice, check_count, check_tensor, is_transformed
from sdesens.autodiff._blocks import (
    FrozenStatistics,
    own_gradients,
    pull_many,
    refuse_coupling,
)
from sdesens.autodiff._transforms import Pullback, value_and_pullback
from sdesens.errors import UnsupportedError

COUPLINGS = ("none", "exact", "frozen")
STRATEGIES = ("vjp", "vmap")


def per_sample_grad(
    fn: Callable[[Tensor], Tensor],
    x: Tensor,
    *,
    create_graph: bool = False,
    coupling: str = "none",
    chunk_size: int | None = None,
    strategy: str = "vjp",
    check: bool = False,
) -> Tensor:
    r"""``dy_i/dx_i`` for every sample i of ``y = fn(x)``: a gradient for each row of ``x``.

    ``coupling`` says how the samples of the batch see each other inside ``fn``:

    - ``"none"``: not at all. One backward pass of ``y.sum()`` gives every row. Where ``fn`` does
      couple them, as BatchNorm does in training mode, that pass gives row i the sum of all
      ``dy_j/dx_i``, which is wrong and looks right; ``check=True`` finds it.
    - ``"exact"``: they do, and the diagonal of the true Jacobian is wanted. One backward pass a
      sample, ``chunk_size`` together: at most ``chunk_size * x.numel()`` entries are held.
    - ``"frozen"``: through the batch statistics of BatchNorm in training mode alone, which are
      taken as constants. One backward pass. Statistics that ``fn`` computes by other means are
      not known here; detach them in ``fn``, and ``check=True`` finds those left.

    ``fn`` is called once, so that running statistics move once and Dropout draws one mask, the same
    for values and gradients. The result is what ``fn`` defines: if it divides by the batch size, as
    a mean-reduced loss does, so is every gradient.

    Wrong in circulation: ``torch.func.vjp(fn, x)[1](torch.eye(N))`` for an output ``(N, 1)``, and
    ``autograd.grad(y, x, torch.eye(N))`` without ``is_grads_batched``: both are shape errors, and
    once mended hold ``N * N * F`` numbers to keep ``N * F`` of them.

    Args:
        fn: ``(N, *row) -> (N,)`` or ``(N, 1)``, one number a sample.
        x: ``(N, *row)``, floating dtype.
        create_graph: whether the result can be differentiated again, in ``x`` if that requires
            grad, and in the parameters of ``fn``.
        coupling: ``"none"``, ``"exact"`` or ``"frozen"``.
        chunk_size: for ``"exact"`` the number of samples a pass (by default as many as keep it
            below 2^18 entries), for ``strategy="vmap"`` that of samples mapped at once. Never
            changes the result. One pass has nothing to cut.
        strategy: ``"vjp"`` runs ``fn`` on the batch; ``"vmap"`` maps it over batches of one sample,
            for ``coupling="none"`` alone. Equal where both are right; Dropout and BatchNorm in
            training mode are refused by the second.
        check: raise if samples are coupled in a way that ``coupling`` does not account for. Two
            more backward passes.

    Returns:
        Shape, dtype and device of ``x``.

    Raises:
        ValueError: ``fn`` does not give one number a sample (a mean or a sum over the batch, say),
            or its output does not depend on ``x``; or an argument is not one of its choices.
        TypeError: ``x`` or the output of ``fn`` is not a floating tensor.
        CoupledSamplesError: ``check=True`` found a coupling.
        UnsupportedError: ``strategy="vmap"`` with a coupling, or with an ``fn`` that cannot be
            mapped.

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64)
        >>> norm = torch.nn.BatchNorm1d(1, affine=False).double()
        >>> per_sample_grad(norm, x, coupling="exact").flatten()
        tensor([0.1763, 0.2755, 0.0110], dtype=torch.float64)
        >>> per_sample_grad(norm, x, coupling="frozen").flatten()
        tensor([0.4629, 0.4629, 0.4629], dtype=torch.float64)
    """
    _check_arguments(x, coupling, chunk_size, strategy)
    if strategy == "vmap":

        def one(row: Tensor) -> Tensor:
            return one_number_a_sample(fn(row[None]), 1).reshape(())

        if check:
            _check_by_batch(fn, x)
        return mapped(torch.func.grad(one), x, chunk_size, create_graph)
    y, pull, x = _run(fn, x, coupling, create_graph)
    one_number_a_sample(y, len(x))
    if check and coupling != "exact":
        refuse_coupling(pull, y, _cure(coupling))
    if coupling == "exact":
        return own_gradients(pull, torch.ones_like(y), x, chunk_size)
    return pull(torch.ones_like(y))


def per_sample_jacobian(
    fn: Callable[[Tensor], Tensor],
    x: Tensor,
    *,
    create_graph: bool = False,
    coupling: str = "none",
    chunk_size: int | None = None,
    strategy: str = "vjp",
    check: bool = False,
) -> Tensor:
    r"""``dy_i/dx_i`` for every sample i of ``y = fn(x)`` with several outputs a sample.

    As :func:`per_sample_grad`, with which it shares its arguments: the backward passes run over the
    outputs of one sample, never over those of the batch.

    Wrong in circulation: ``torch.autograd.functional.jacobian`` followed by
    ``einsum("iokf->iof")`` over its diagonal computes ``N`` times more than it keeps.

    Args:
        fn: ``(N, *row) -> (N, *out)``.
        x: ``(N, *row)``, floating dtype.
        create_graph: whether the result can be differentiated again.
        coupling: ``"none"``, ``"exact"`` or ``"frozen"``.
        chunk_size: how many cotangents a pass: outputs of a sample, for ``"exact"`` samples. At
            most ``chunk_size * x.numel()`` entries are held beside the result.
        strategy: ``"vjp"`` or ``"vmap"``.
        check: raise if samples are coupled in a way that ``coupling`` does not account for.

    Returns:
        ``(N, *out, *row)``; dtype and device of ``x``.

    Raises:
        ValueError: the output of ``fn`` does not have ``N`` rows or does not depend on ``x``, or an
            argument is not one of its choices.
        TypeError: ``x`` or the output of ``fn`` is not a floating tensor.
        CoupledSamplesError: ``check=True`` found a coupling.
        UnsupportedError: ``strategy="vmap"`` with a coupling, or with an ``fn`` that cannot be
            mapped.

    Example:
        >>> import torch
        >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> per_sample_jacobian(lambda x: torch.stack([x.prod(1), x.sum(1)], dim=1), x)
        tensor([[[2., 1.],
                 [1., 1.]],
        <BLANKLINE>
                [[4., 3.],
                 [1., 1.]]])
    """
    _check_arguments(x, coupling, chunk_size, strategy)
    if strategy == "vmap":

        def one(row: Tensor) -> Tensor:
            return _a_row_a_sample(fn(row[None]), 1)[0]

        if check:
            _check_by_batch(fn, x)
        return mapped(torch.func.jacrev(one), x, chunk_size, create_graph)
    y, pull, x = _run(fn, x, coupling, create_graph)
    out = _a_row_a_sample(y, len(x)).shape[1:]
    if check and coupling != "exact":
        refuse_coupling(pull, y, _cure(coupling))
    # The k-th output of every sample, as cotangents (K, 1, *out): the same for all samples.
    basis = torch.eye(out.numel(), dtype=y.dtype, device=y.device)
    basis = basis.reshape(out.numel(), 1, *out)
    if coupling == "exact":
        columns = [own_gradients(pull, k.expand(y.shape), x, chunk_size) for k in basis]
        rows = torch.stack(columns) if columns else x.new_zeros(0, *x.shape)
    else:
        size = max(1, len(basis)) if chunk_size is None else chunk_size
        parts = [pull_many(pull, part.expand(-1, *y.shape)) for part in basis.split(size)]
        rows = torch.cat(parts) if len(basis) else x.new_zeros(0, *x.shape)
    return rows.movedim(0, 1).reshape(len(x), *out, *x.shape[1:])


def _check_arguments(x: Tensor, coupling: str, chunk_size: int | None, strategy: str) -> None:
    check_tensor("x", x)
    if x.dim() == 0:
        raise ValueError("x must have samples, shape (N, ...), got shape (). Use x[None].")
    check_choice("coupling", coupling, COUPLINGS)
    check_choice("strategy", strategy, STRATEGIES)
    if chunk_size is not None:
        check_count("chunk_size", chunk_size)
    if strategy == "vmap" and coupling != "none":
        raise UnsupportedError(
            f"strategy='vmap' runs each sample alone and cannot see coupling={coupling!r}. "
            f"Use strategy='vjp'."
        )


def _run(
    fn: Callable[[Tensor], Tensor], x: Tensor, coupling: str, create_graph: bool
) -> tuple[Tensor, Pullback, Tensor]:
    """``fn(x)`` by one call, its pullback, and the tensor it is differentiated in."""
    if not is_transformed(x) and not x.requires_grad:
        # A view, since detach would drop a forward-mode tangent.
        x = x.view_as(x).requires_grad_()
    with FrozenStatistics() if coupling == "frozen" else nullcontext():
        y, pull = value_and_pullback(fn, x)
    if not isinstance(y, Tensor) or not y.is_floating_point():
        got = y.dtype if isinstance(y, Tensor) else type(y).__name__
        raise TypeError(f"fn must return a tensor of floating dtype, got {got}.")
    if not is_transformed(x) and not y.requires_grad:
        raise ValueError(
            "the output of fn does not depend on x in a way autograd can see. Look for no_grad, "
            "detach, .data or NumPy in it; custom_gradient gives those a derivative."
        )

    def pull_in_graph(cotangent: Tensor) -> Tensor:
        with torch.set_grad_enabled(create_graph):
            return pull(cotangent)

    return y, pull_in_graph, x


def _check_by_batch(fn: Callable[[Tensor], Tensor], x: Tensor) -> None:
    y, pull, _ = _run(fn, x, "none", create_graph=False)
    refuse_coupling(pull, y, _cure("none"))


def mapped(
    derivative: Callable[[Tensor], Any], x: Tensor, chunk_size: int | None, create_graph: bool
) -> Any:
    """The derivative at one sample mapped over all, or a refusal that names the cure."""
    cure = "Run the batch once: strategy='vjp' (for parameters coupling='exact')"
    try:
        with torch.set_grad_enabled(create_graph):
            return torch.func.vmap(derivative, chunk_size=chunk_size)(x)
    except (RuntimeError, UnsupportedError) as error:
        raise UnsupportedError(
            f"fn cannot be mapped over batches of one sample: {error}\n{cure}."
        ) from error
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise UnsupportedError(
            f"BatchNorm in training mode cannot be mapped over batches of one sample. {cure}."
        ) from error


def one_number_a_sample(y: Tensor, n: int) -> Tensor:
    """``y`` if it has one number a sample; otherwise a refusal."""
    if y.shape not in ((n,), (n, 1)):
        cure = (
            "A loss must not be reduced over the batch (reduction='none'): a mean would scale each "
            "gradient by 1/N."
            if y.dim() == 0
            else "For several outputs a sample use per_sample_jacobian."
        )
        raise ValueError(
            f"fn must return one number a sample, shape ({n},) or ({n}, 1), "
            f"got {tuple(y.shape)}. {cure}"
        )
    return y


def _a_row_a_sample(y: Tensor, n: int) -> Tensor:
    if y.shape[:1] != (n,):
        raise ValueError(
            f"fn must return one row a sample, shape ({n}, ...), got {tuple(y.shape)}. Do not "
            f"reduce over the batch."
        )
    return y


def _cure(coupling: str) -> str:
    if coupling == "frozen":
        return "Detach these statistics in fn, or use coupling='exact'."
    return "Use coupling='exact' for the true gradient, or 'frozen' for constant statistics."
