"""The Ornstein-Uhlenbeck process, scalar or with a matrix drift."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sdesens.models._functions import gaussian_step
from sdesens.sde import SDE, Number, column


class OrnsteinUhlenbeck(SDE):
    r"""``dX = kappa (mean - X) dt + sigma dW``, mean-reverting and Gaussian.

    With numbers the state is one-dimensional. With a matrix ``kappa`` of shape ``(d, d)``, or a
    ``kappa``, ``mean`` or ``sigma`` of shape ``(d,)``, it has dimension ``d``, and every component
    its own Brownian motion; a matrix ``sigma`` of shape ``(d, m)`` mixes ``m`` of them.

    Args:
        kappa: speed of mean reversion, 1 / time; a number, ``(d,)`` or ``(d, d)``.
        mean: level it reverts to, in units of X; a number or ``(d,)``.
        sigma: volatility, units of X per root of time; a number, ``(d,)`` or ``(d, m)``.

    Facts: ``dX_t/dx0 = exp(-kappa t)``, by Euler ``(1 - kappa dt)^k``. ``X_t`` is normal with mean
    ``mean + exp(-kappa t) (x0 - mean)`` and, for numbers, variance
    ``sigma² (1 - exp(-2 kappa t)) / (2 kappa)``.

    Source: Uhlenbeck and Ornstein, *On the theory of the Brownian motion*, Phys. Rev. 36 (1930).

    Example:
        >>> import torch
        >>> from sdesens.models import OrnsteinUhlenbeck
        >>> OrnsteinUhlenbeck(kappa=1.0, mean=0.0, sigma=0.5).dim
        1
        >>> OrnsteinUhlenbeck(kappa=torch.eye(3), mean=0.0, sigma=0.5).dim
        3
    """

    sde_type = "ito"

    def __init__(self, kappa: Number, mean: Number, sigma: Number) -> None:
        super().__init__()
        self.kappa = self.parameter(kappa)
        self.mean = self.parameter(mean)
        self.sigma = self.parameter(sigma)
        sizes = {p.shape[0] for p in self.parameters() if p.dim()} | set(self.kappa.shape)
        if len(sizes) > 1:
            shapes = {n: tuple(p.shape) for n, p in self.named_parameters()}
            raise ValueError(f"kappa, mean and sigma must agree on the dimension d, got {shapes}.")
        self.state = {"x": sizes.pop()} if sizes else ("x",)
        self.noise_type = "additive" if self.sigma.dim() == 2 else "diagonal"
        # With matrices the exact covariance of a step is no elementary function of the parameters.
        self.schemes = ("exact",) if max(self.kappa.dim(), self.sigma.dim()) < 2 else ()
        if self.state == ("x",):
            self.conditionally_normal = {"exact": ("x", 0), "euler": ("x", 0)}

    def drift(self, t: Tensor, x: Tensor) -> Tensor:
        """``kappa (mean - x)``."""
        return _rate(self.kappa, column(self.mean) - x)

    def diffusion(self, t: Tensor, x: Tensor) -> Any:
        """``sigma``, constant."""
        return column(self.sigma)

    def step_exact(self, t: Tensor, dt: Tensor, normals: Tensor, x: Tensor) -> Tensor:
        """The transition itself, without discretisation error, for ``kappa = 0`` too."""
        kappa, mean, sigma = column(self.kappa), column(self.mean), column(self.sigma)
        z = normals if self.sizes[0] else normals[0]
        return gaussian_step(kappa, mean, sigma, dt, z, x)

    def drift_tangent(
        self,
        t: Tensor,
        x: Tensor,
        dx: Tensor,
        *,
        kappa: Tensor | None = None,
        mean: Tensor | None = None,
        sigma: Tensor | None = None,
    ) -> Tensor:
        """``-kappa dx + dkappa (mean - x) + kappa dmean``."""
        out = -_rate(self.kappa, dx)
        if kappa is not None:
            out = out + _rate(kappa, column(self.mean) - x)
        if mean is not None:
            out = out + _rate(self.kappa, column(mean) + torch.zeros_like(x))
        return out

    def diffusion_tangent(
        self,
        t: Tensor,
        x: Tensor,
        dx: Tensor,
        *,
        kappa: Tensor | None = None,
        mean: Tensor | None = None,
        sigma: Tensor | None = None,
    ) -> Any:
        """``dsigma``."""
        return 0.0 if sigma is None else column(sigma)


def _rate(kappa: Tensor, x: Tensor) -> Tensor:
    """``kappa x``: a matrix product for a matrix, elementwise otherwise."""
    return kappa.to(x.dtype) @ x if kappa.dim() == 2 else column(kappa) * x
