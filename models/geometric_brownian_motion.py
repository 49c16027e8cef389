"""Geometric Brownian motion."""

from __future__ import annotations

import torch
from torch import Tensor

from sdesens.sde import SDE, Number, column


class GeometricBrownianMotion(SDE):
    r"""``dX = mu X dt + sigma X dW``.

    Args:
        mu: growth rate, 1 / time; a number, or ``(d,)`` for ``d`` independent components.
        sigma: volatility per root of time; a number or ``(d,)``.

    Facts: ``X_t = x0 exp((mu - sigma²/2) t + sigma W_t)``, so ``dX_t/dx0 = X_t / x0``,
    ``dX_t/dmu = t X_t`` and ``dX_t/dsigma = X_t (W_t - sigma t)``. Euler and Milstein are linear in
    x0, so ``dX_t/dx0 = X_t / x0`` holds for them to rounding.

    Source: Glasserman, *Monte Carlo Methods in Financial Engineering*, 2003, section 3.2.

    Example:
        >>> from sdesens.models import GeometricBrownianMotion
        >>> GeometricBrownianMotion(mu=0.05, sigma=0.2).dim
        1
    """

    sde_type, noise_type = "ito", "diagonal"
    schemes = ("exact",)

    def __init__(self, mu: Number, sigma: Number) -> None:
        super().__init__()
        self.mu = self.parameter(mu)
        self.sigma = self.parameter(sigma)
        sizes = {p.shape[0] for p in self.parameters() if p.dim()}
        if len(sizes) > 1 or max(self.mu.dim(), self.sigma.dim()) > 1:
            raise ValueError(
                f"mu and sigma must be numbers or of one shape (d,), got {tuple(self.mu.shape)} "
                f"and {tuple(self.sigma.shape)}."
            )
        self.state = {"x": sizes.pop()} if sizes else ("x",)
        if self.state == ("x",):
            self.conditionally_lognormal = {"exact": ("x", 0)}
            self.conditionally_normal = {"euler": ("x", 0)}

    def drift(self, t: Tensor, x: Tensor) -> Tensor:
        """``mu x``."""
        return column(self.mu) * x

    def diffusion(self, t: Tensor, x: Tensor) -> Tensor:
        """``sigma x``."""
        return column(self.sigma) * x

    def step_exact(self, t: Tensor, dt: Tensor, normals: Tensor, x: Tensor) -> Tensor:
        """``x exp((mu - sigma²/2) dt + sigma sqrt(dt) Z)``, without discretisation error."""
        sigma = column(self.sigma)
        z = normals if self.sizes[0] else normals[0]
        return x * torch.exp((column(self.mu) - 0.5 * sigma**2) * dt + sigma * dt.sqrt() * z)

    def drift_tangent(
        self,
        t: Tensor,
        x: Tensor,
        dx: Tensor,
        *,
        mu: Tensor | None = None,
        sigma: Tensor | None = None,
    ) -> Tensor:
        """``mu dx + dmu x``."""
        out = column(self.mu) * dx
        return out if mu is None else out + column(mu) * x

    def diffusion_tangent(
        self,
        t: Tensor,
        x: Tensor,
        dx: Tensor,
        *,
        mu: Tensor | None = None,
        sigma: Tensor | None = None,
    ) -> Tensor:
        """``sigma dx + dsigma x``."""
        out = column(self.sigma) * dx
        return out if sigma is None else out + column(sigma) * x
