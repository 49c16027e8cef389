"""The gradient of each sample's loss in the parameters that all samples share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from sdesens._checks import check_choice, check_count, check_tensor
from sdesens.autodiff.per_sample import mapped, one_number_a_sample

Parameters = Mapping[str, Tensor]


def per_sample_param_grad(
    fn: Callable[[Parameters, Tensor], Tensor],
    params: Parameters,
    x: Tensor,
    *,
    create_graph: bool = False,
    coupling: str = "none",
    chunk_size: int | None = None,
) -> dict[str, Tensor]:
    r"""``dL_i/dw`` for every sample i of ``L = fn(params, x)``: a gradient a sample and parameter.

    - ``coupling="none"``: samples do not see each other; ``fn`` is mapped over batches of one
      sample by ``torch.func``, at the cost of about one batched backward pass.
    - ``coupling="exact"``: they do (BatchNorm in training mode), or ``fn`` draws random numbers
      (Dropout): ``fn`` runs once on the batch, and the rows of its Jacobian are taken,
      ``chunk_size`` together. The sum over samples is the gradient of ``L.sum()`` under the same
      mask and statistics.

    Wrong in circulation: per-sample gradients of a mean-reduced loss, which are 1/N of the right
    ones without an error. ``fn`` that returns one number for the batch is refused here.

    Args:
        fn: ``(params, (N, *row)) -> (N,)`` or ``(N, 1)``; for a module ``net`` use
            ``torch.func.functional_call(net, params, (x,))`` in it.
        params: floating tensors by name, as ``dict(net.named_parameters())``.
        x: ``(N, *row)``, floating dtype.
        create_graph: whether the result can be differentiated again.
        coupling: ``"none"`` or ``"exact"``.
        chunk_size: samples at once; by default all for ``"none"``, 32 for ``"exact"``.

    Returns:
        By name, ``(N, *shape of the parameter)``, of its dtype.

    Raises:
        ValueError: ``fn`` does not give one number a sample, or ``coupling`` is not a choice.
        TypeError: ``x`` or a parameter is not a floating tensor.
        UnsupportedError: ``coupling="none"`` with an ``fn`` that cannot be mapped.

    Example:
        >>> import torch
        >>> x = torch.tensor([[1.0], [2.0]])
        >>> params = {"w": torch.tensor(3.0)}
        >>> per_sample_param_grad(lambda p, x: (p["w"] * x[:, 0]) ** 2, params, x)
        {'w': tensor([ 6., 24.])}
    """
    check_tensor("x", x)
    check_choice("coupling", coupling, ("none", "exact"))
    for name, value in params.items():
        check_tensor(f"params[{name!r}]", value)
    if chunk_size is not None:
        check_count("chunk_size", chunk_size)
    if coupling == "none":

        def one(row: Tensor) -> dict[str, Tensor]:
            def loss(params: Parameters) -> Tensor:
                return one_number_a_sample(fn(params, row[None]), 1).reshape(())

            return torch.func.grad(loss)(dict(params))

        return mapped(one, x, chunk_size, create_graph)
    return _rows(fn, params, x, create_graph, 32 if chunk_size is None else chunk_size)


def _rows(
    fn: Callable[[Parameters, Tensor], Tensor],
    params: Parameters,
    x: Tensor,
    create_graph: bool,
    chunk_size: int,
) -> dict[str, Tensor]:
    """The rows of the Jacobian of the batch's losses."""
    leaves = {k: v if v.requires_grad else v.view_as(v).requires_grad_() for k, v in params.items()}
    with torch.enable_grad():
        losses = one_number_a_sample(fn(leaves, x), len(x)).reshape(-1)
    rows: dict[str, list[Tensor]] = {name: [] for name in leaves}
    for one_hot in torch.eye(len(x), dtype=losses.dtype, device=losses.device).split(chunk_size):
        gradients = torch.autograd.grad(
            losses,
            list(leaves.values()),
            one_hot,
            is_grads_batched=True,
            create_graph=create_graph,
            retain_graph=True,
            materialize_grads=True,
        )
        for name, gradient in zip(leaves, gradients, strict=True):
            rows[name].append(gradient)
    return {
        name: torch.cat(parts) if parts else leaves[name].new_zeros(0, *leaves[name].shape)
        for name, parts in rows.items()
    }
