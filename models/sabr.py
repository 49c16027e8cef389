"""The stochastic alpha beta rho model of Hagan and others."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from sdesens.models._functions import check_number, positive_power
from sdesens.sde import SDE, Number


class SABR(SDE):
    r"""A forward with lognormal stochastic volatility, absorbed at 0.

    .. math::

        dF = α F^β dW_1, \qquad dα = ν α dW_2, \qquad d⟨W_1, W_2⟩ = ρ dt

    Args:
        beta: elasticity, in ``[0, 1]``; a parameter with a derivative.
        nu: volatility of volatility per root of a year, at least 0.
        rho: correlation, in ``[-1, 1]``; a parameter with a derivative, for which ``|rho| < 1``.

    The starting volatility is the second component of the state, in units of F to the power
    ``1 - beta`` per root of a year.

    Channels: 0 moves the volatility, and the forward by ``rho``; 1 the forward alone, by
    ``sqrt(1 - rho²)``.

    **At zero.** For ``beta < 1`` the forward reaches 0, and stays there. Its diffusion is 0 at and
    below 0, with derivative 0. A solver's step may land below, and the forward then stands still
    where it landed, with the derivative that it had: read it as ``max(F, 0)``.

    Schemes: ``"absorbed"``. The volatility takes its exact lognormal step, whatever its width. The
    forward takes Euler's with the volatility at the start of the step, and is put on 0 if it lands
    below, from when on its derivative is 0. Near 0 the derivative of one step is like
    ``F^(beta - 1)``.

    Raises:
        ValueError: if a parameter is not one finite number or out of its range.

    Facts: ``dα_t/dα_0 = α_t / α_0``, by Euler too; ``E[α_t²] = α_0² exp(ν² t)``. For ``nu = 0`` the
    forward is that of :class:`~sdesens.models.CEV` without a rate.

    Source: Hagan, Kumar, Lesniewski and Woodward, *Managing smile risk*, Wilmott (September 2002).

    Example:
        >>> from sdesens import montecarlo
        >>> from sdesens.models import SABR
        >>> result = montecarlo.run(SABR(0.5, 0.4, -0.3), [100.0, 2.0], lambda end: end.volatility,
        ...                         maturity=1.0, steps=4, paths=10_000, scheme="absorbed",
        ...                         wrt="volatility")
        >>> derivative = result["value", "volatility"]
        >>> abs(derivative.value - 1.0) < 4 * derivative.stderr
        True
    """

    state = ("forward", "volatility")
    sde_type, noise_type = "ito", "general"
    schemes = ("absorbed",)
    starts: Mapping[str, str] = {"forward": "nonnegative", "volatility": "nonnegative"}
    conditionally_normal: Mapping[str, tuple[str, int]] = {"euler": ("forward", 1)}

    def __init__(self, beta: Number, nu: Number, rho: Number) -> None:
        super().__init__()
        self.beta = self.parameter(beta)
        self.nu = self.parameter(nu)
        self.rho = self.parameter(rho)
        check_number("beta", self.beta, 0, 1)
        check_number("nu", self.nu, 0)
        check_number("rho", self.rho, -1, 1)

    @property
    def is_singular(self) -> bool:
        """Whether ``|rho| = 1``, where nothing has a pathwise derivative in rho."""
        return abs(self.rho.item()) == 1

    def drift(self, t: Tensor, forward: Tensor, volatility: Tensor):
        """Nothing: both are martingales."""
        return 0.0, 0.0

    def diffusion(self, t: Tensor, forward: Tensor, volatility: Tensor):
        """Rows of forward and volatility on two independent Brownian motions."""
        local = volatility * positive_power(forward, self.beta)
        rest = (1 - self.rho**2).sqrt()
        return (self.rho * local, rest * local), (self.nu * volatility, 0.0)

    def step_absorbed(
        self, t: Tensor, dt: Tensor, normals: Tensor, forward: Tensor, volatility: Tensor
    ):
        """The exact step of the volatility, Euler's of the forward, put on 0 if it lands below."""
        nu, rho, root = self.nu, self.rho, dt.sqrt()
        mixed = rho * normals[0] + (1 - rho**2).sqrt() * normals[1]
        local = volatility * positive_power(forward, self.beta)
        grown = torch.exp(nu * root * normals[0] - 0.5 * nu**2 * dt)
        return torch.relu(forward + local * (root * mixed)), volatility * grown

    def drift_tangent(
        self,
        t: Tensor,
        forward: Tensor,
        volatility: Tensor,
        dforward: Tensor,
        dvolatility: Tensor,
        *,
        beta: Tensor | None = None,
        nu: Tensor | None = None,
        rho: Tensor | None = None,
    ):
        """Nothing."""
        return 0.0, 0.0

    def diffusion_tangent(
        self,
        t: Tensor,
        forward: Tensor,
        volatility: Tensor,
        dforward: Tensor,
        dvolatility: Tensor,
        *,
        beta: Tensor | None = None,
        nu: Tensor | None = None,
        rho: Tensor | None = None,
    ):
        """The diffusion's derivative, with ``dF^beta = F^beta (beta dF / F + dbeta log F)``."""
        power, safe = positive_power(forward, self.beta), forward.masked_fill(forward <= 0, 1.0)
        local, rest = volatility * power, (1 - self.rho**2).sqrt()
        dlocal = dvolatility * power + local * (self.beta * dforward / safe)
        if beta is not None:
            dlocal = dlocal + local * (beta * safe.log())
        first, second = self.rho * dlocal, rest * dlocal
        if rho is not None:
            first, second = first + rho * local, second - self.rho / rest * rho * local
        of_volatility = self.nu * dvolatility
        if nu is not None:
            of_volatility = of_volatility + nu * volatility
        return (first, second), (of_volatility, 0.0)
