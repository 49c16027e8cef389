"""A small neural SDE."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sdesens.sde import SDE


class NeuralSDE(SDE):
    r"""``dX = f(t, X) dt + g(t, X) dW`` with one-hidden-layer networks; diagonal noise.

    .. math::

        f(t, x) &= V \tanh(U x + u t + b) + c \\
        g_i(t, x) &= s_i (1 + \tfrac12 \tanh(w_i x_i + p_i t + q_i))

    Each entry of the diffusion depends on its own component alone, as diagonal noise demands of
    Milstein's method, and stays in ``[s/2, 3s/2]``.

    Args:
        dim: state dimension d.
        width: hidden units of the drift.
        scale: initial size s of the diffusion.
        seed: seed of the initial weights, which no global generator touches.

    Closed-form tangents are those in the state; derivatives in the weights are automatic.

    Source: Li, Wong, Chen and Duvenaud, *Scalable gradients for stochastic differential
    equations*, AISTATS 2020.

    Example:
        >>> from sdesens.models import NeuralSDE
        >>> sum(p.numel() for p in NeuralSDE(dim=2, width=8).parameters())
        58
    """

    sde_type, noise_type = "ito", "diagonal"

    def __init__(self, dim: int, width: int = 16, scale: float = 0.3, seed: int = 0) -> None:
        super().__init__()
        self.state = {"x": dim}
        generator = torch.Generator().manual_seed(seed)

        def weights(*shape: int, size: float = 1.0) -> nn.Parameter:
            return nn.Parameter(
                size * torch.randn(*shape, dtype=torch.float64, generator=generator)
            )

        self.inner = weights(width, dim, size=dim**-0.5)
        self.inner_time = weights(width)
        self.inner_bias = weights(width)
        self.outer = weights(dim, width, size=width**-0.5)
        self.outer_bias = weights(dim, size=0.1)
        self.noise_scale = nn.Parameter(torch.full((dim,), scale, dtype=torch.float64))
        self.noise_weight = weights(dim)
        self.noise_time = weights(dim)
        self.noise_bias = weights(dim)

    def _hidden(self, t: Tensor, x: Tensor) -> Tensor:
        shift = (self.inner_time * t + self.inner_bias).to(x.dtype)
        return torch.tanh(self.inner.to(x.dtype) @ x + shift.unsqueeze(-1))

    def _level(self, t: Tensor, x: Tensor) -> Tensor:
        shift = self.noise_time * t + self.noise_bias
        return torch.tanh(self.noise_weight.unsqueeze(-1) * x + shift.unsqueeze(-1))

    def drift(self, t: Tensor, x: Tensor) -> Tensor:
        """``V tanh(U x + u t + b) + c``."""
        return self.outer.to(x.dtype) @ self._hidden(t, x) + self.outer_bias.unsqueeze(-1)

    def diffusion(self, t: Tensor, x: Tensor) -> Tensor:
        """``s (1 + tanh(w x + p t + q) / 2)``."""
        return self.noise_scale.unsqueeze(-1) * (1 + 0.5 * self._level(t, x))

    def drift_tangent(self, t: Tensor, x: Tensor, dx: Tensor) -> Tensor:
        """``V (1 - h²) U dx`` with ``h`` the hidden layer."""
        slope = 1 - self._hidden(t, x) ** 2
        return self.outer.to(x.dtype) @ (slope * (self.inner.to(x.dtype) @ dx))

    def diffusion_tangent(self, t: Tensor, x: Tensor, dx: Tensor) -> Tensor:
        """``s w (1 - tanh²) dx / 2``."""
        slope = 1 - self._level(t, x) ** 2
        return (0.5 * self.noise_scale * self.noise_weight).unsqueeze(-1) * slope * dx
