"""What is solved: the checked arguments and the grid of steps, as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sdesens.brownian import BaseBrownian
from sdesens.sde import View


@dataclass(frozen=True)
class Grid:
    """The steps torchsde takes for ``ts`` and ``dt``, computed beforehand in the same arithmetic.

    Attributes:
        nodes: ``(N + 1,)`` step times, of the dtype of ``ts``.
        after: for each entry of ``ts``, the index of the first node not before it.
        weights: ``(T, 2)``: weights of the nodes ``after - 1`` and ``after`` in the linear
            interpolation at ``ts``, which torchsde uses too.
        aligned: whether the nodes are the entries of ``ts``.
    """

    nodes: Tensor
    after: list[int]
    weights: Tensor
    aligned: bool

    @classmethod
    def of(cls, ts: Tensor, dt: float) -> Grid:
        """The grid of ``torchsde.sdeint(..., ts=ts, dt=dt)`` with fixed steps."""
        scalar = np.float32 if ts.dtype is torch.float32 else float
        times = [scalar(t) for t in ts.tolist()]
        step, last = scalar(dt), times[-1]
        nodes, after, weights = [times[0]], [0], [(0.0, 1.0)]
        for t in times[1:]:
            while nodes[-1] < t:
                nodes.append(min(nodes[-1] + step, last))
            t0, t1 = nodes[-2], nodes[-1]
            after.append(len(nodes) - 1)
            weights.append((float((t1 - t) / (t1 - t0)), float((t - t0) / (t1 - t0))))
        as_tensor = {"dtype": ts.dtype, "device": ts.device}
        aligned = after == list(range(len(nodes))) and all(w1 == 1 for _, w1 in weights)
        nodes_tensor = torch.tensor(nodes, **as_tensor)
        return cls(nodes_tensor, after, torch.tensor(weights, **as_tensor), aligned)

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.nodes.shape[0] - 1

    def at_times(self, values: Iterable[Tensor]) -> Tensor:
        """Values at the nodes, one after the other, interpolated to ``ts``: ``(T, ...)``."""
        if self.aligned:
            return torch.stack(list(values))
        before, at = [], []
        previous = None
        for k, value in enumerate(values):
            while len(at) < len(self.after) and self.after[len(at)] == k:
                before.append(value if previous is None else previous)
                at.append(value)
            previous = value
        w0, w1 = self.weights.to(at[0]).view(-1, 2, *[1] * at[0].dim()).unbind(1)
        return w0 * torch.stack(before) + w1 * torch.stack(at)


@dataclass(frozen=True)
class Problem:
    """Everything a solve needs, checked: what :func:`~sdesens.prepare.prepare` returns."""

    sde: Any
    view: View
    x0: Tensor
    ts: Tensor
    dt: float
    method: str
    options: dict[str, Any]
    bm: BaseBrownian
    seed: int | None
    grid: Grid
    coupled: bool

    @property
    def derivative_milstein(self) -> bool:
        """Whether the solver itself differentiates the diffusion by Milstein's formula."""
        return (
            self.method == "milstein"
            and self.view.noise_type != "additive"
            and not self.options.get("grad_free", False)
        )
