"""What several test files share: unstructured fields, and derivatives by central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import sdesens

MODES = ("vjp", "jvp", "tangent")


class Field(nn.Module):
    """A nonlinear, time-dependent SDE of dimension two with no structure that could hide a fault.

    Every parameter enters drift and diffusion. Diagonal noise alone has an entry that depends on
    its own component only, as its definition demands.
    """

    channels: ClassVar[dict[str, int]] = {"diagonal": 2, "scalar": 1, "additive": 3, "general": 3}

    def __init__(self, sde_type: str, noise_type: str) -> None:
        super().__init__()
        self.sde_type, self.noise_type = sde_type, noise_type
        generator = torch.Generator().manual_seed(11)

        def weights(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator, dtype=torch.float64))

        m = self.channels[noise_type]
        self.mix = weights(2, 2)
        self.level = nn.Parameter(torch.tensor(0.4, dtype=torch.float64))
        self.rows = weights(2, m)
        self.mix_noise = weights(2, m, 2)

    def f(self, t: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(y @ self.mix.mT + t) - self.level * y + 0.3 * torch.cos(3 * t)

    def g(self, t: Tensor, y: Tensor) -> Tensor:
        if self.noise_type == "diagonal":
            return self.level * (1 + 0.5 * torch.sin(y * self.rows.diagonal() + 2 * t))
        if self.noise_type == "additive":
            value = self.level * torch.sin(self.rows + t)
            return value.expand(y.shape[0], *value.shape)
        inner = torch.einsum("imj,bj->bim", self.mix_noise, y)
        return self.level * torch.sin(self.rows + inner + t)


def central(
    solve: Callable[[], Tensor], value: Tensor, *, step: float = 6e-6, batched: bool = False
) -> Tensor:
    """Derivative of ``solve()`` in the entries of ``value``, which is changed in place and back.

    The entries are behind the shape of the output; with ``batched``, ``value (B, d)`` is a batch
    whose samples are independent and the output ``(T, B, d)`` has the derivatives ``(T, B, d, d)``.
    """
    flat = value.detach()
    columns = []
    for index in range(flat.shape[-1] if batched else flat.numel()):
        entry = flat[:, index] if batched else flat.view(-1)[index : index + 1]
        before = entry.clone()
        entry += step
        up = solve().detach().clone()
        entry.copy_(before - step)
        down = solve().detach().clone()
        entry.copy_(before)
        columns.append((up - down) / (2 * step))
    out = torch.stack(columns, dim=-1)
    return out if batched else out.reshape(*out.shape[:-1], *value.shape)


def jacobian(sde: Any, x0: Tensor, ts: Any, **arguments: Any) -> Tensor:
    """``dX_t/dx0`` alone, ``(T, B, d, d)``."""
    return sdesens.sensitivities(sde, x0, ts, **arguments).derivatives()["x0"]


def assert_close(actual: Tensor, expected: Any, tolerance: float) -> None:
    """Largest absolute difference within ``tolerance``; NaN never is."""
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    assert actual.shape == expected.shape, f"{tuple(actual.shape)} != {tuple(expected.shape)}"
    worst = (actual - expected).abs().max().item() if actual.numel() else 0.0
    assert worst <= tolerance, f"differs by {worst:.3e}, allowed {tolerance:.0e}"
