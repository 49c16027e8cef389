"""Correlated assets of constant volatility."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from sdesens.models._functions import check_number, check_range
from sdesens.pricing.formulas import best_of_call, exchange_option, worst_of_call
from sdesens.pricing.payoffs import BestOf, Exchange, WorstOf
from sdesens.sde import SDE, Number, column

_ROUNDING = 1e-12  # of a pivot or an eigenvalue in float64, from entries written in decimals


class MultiAssetBlackScholes(SDE):
    r"""``dS_i = (r - q_i) S_i dt + sigma_i S_i dW_i`` with ``d<W_i, W_j> = rho_ij dt``.

    Args:
        rate: risk-free rate r, 1 / year.
        sigma: ``(n,)`` volatilities per root of a year, at least 0; n is at least 2.
        correlation: ``(n, n)`` correlation matrix, or its pairs ``(n (n - 1) / 2,)`` in the order
            (0, 1), (0, 2), ..., (1, 2), ...
        dividend: dividend yields q, 1 / year; ``(n,)``, or a number for all.

    The parameter ``rho`` holds the correlations as pairs, in the order above: a derivative in one
    is that of both its places in the matrix. The matrix may be singular (``|rho_ij| = 1``, see
    :attr:`is_singular`): paths and all other derivatives are right, and those in ``rho`` do not
    exist there and come out as NaN or infinite, on which a simulation stops.

    Schemes: ``"exact"``, the lognormal transition, without discretisation error.

    Raises:
        ValueError: if shapes do not agree, a number is out of its range, or the correlations are
            those of no matrix that is positive semi-definite.

    Facts: ``dS_t^i/dS_0^j`` is ``S_t^i / S_0^i`` for ``i = j`` and 0 otherwise, by Euler too.

    Closed forms: options to exchange one asset for another; of two assets, calls on the better and
    the worse.

    Source: Glasserman, *Monte Carlo Methods in Financial Engineering*, 2003, section 3.2.3.

    Example:
        >>> import torch
        >>> from sdesens.models import MultiAssetBlackScholes
        >>> model = MultiAssetBlackScholes(0.05, [0.2, 0.3, 0.4], [0.5, 0.1, -0.2])
        >>> model.correlation
        tensor([[ 1.0000,  0.5000,  0.1000],
                [ 0.5000,  1.0000, -0.2000],
                [ 0.1000, -0.2000,  1.0000]], dtype=torch.float64)
        >>> lower = model.cholesky()
        >>> torch.allclose(lower @ lower.T, model.correlation)
        True
    """

    sde_type, noise_type = "ito", "general"
    schemes = ("exact",)
    starts: Mapping[str, str] = {"spots": "positive"}

    def __init__(
        self,
        rate: Number,
        sigma: Tensor | Sequence[float],
        correlation: Tensor | Sequence[Any],
        dividend: Number | Sequence[float] = 0.0,
    ) -> None:
        super().__init__()
        self.rate = self.parameter(rate)
        self.sigma = self.parameter(sigma)
        if self.sigma.dim() != 1 or self.sigma.numel() < 2:
            raise ValueError(
                f"sigma must have shape (n,) with at least two assets, got "
                f"{tuple(self.sigma.shape)}. For one use BlackScholes."
            )
        n = self.sigma.numel()
        self.rho = self.parameter(_pairs(self.parameter(correlation).detach(), n))
        self.dividend = self.parameter(dividend)
        if self.dividend.dim() and self.dividend.shape != (n,):
            raise ValueError(
                f"dividend must be a number or have shape ({n},), got {tuple(self.dividend.shape)}."
            )
        check_number("rate", self.rate)
        check_range("sigma", self.sigma, 0)
        check_range("correlation", self.rho, -1, 1)
        check_range("dividend", self.dividend)
        lowest = torch.linalg.eigvalsh(self.correlation.double().cpu())[0].item()
        if lowest < -_tolerance(self.rho):
            raise ValueError(
                f"correlation must be positive semi-definite, got a matrix whose lowest "
                f"eigenvalue is {lowest:g}: no Brownian motions have these correlations. Move it "
                f"to the nearest one that is, or shrink its pairs towards 0."
            )
        self.state = {"spots": n}

    @property
    def correlation(self) -> Tensor:
        """The correlation matrix ``(n, n)``, without a graph."""
        n, rho = self.sigma.numel(), self.rho.detach()
        matrix = torch.eye(n, dtype=rho.dtype, device=rho.device)
        i, j = torch.triu_indices(n, n, 1)
        matrix[i, j] = matrix[j, i] = rho
        return matrix

    @property
    def is_singular(self) -> bool:
        """Whether the correlation matrix is singular, where nothing has a derivative in ``rho``."""
        return bool((self.cholesky().detach().diagonal() == 0).any())

    def cholesky(self, drho: Tensor | None = None) -> Tensor:
        """The lower triangle L with ``L L^T`` the correlation matrix, ``(n, n)``.

        Args:
            drho: a tangent of ``rho``; with it, the derivative of L along it instead.
        """
        n, rho = self.sigma.numel(), self.rho
        pairs = {}
        for i in range(n):
            for j in range(i + 1, n):
                pairs[j, i] = rho[len(pairs)]
        tangents = {}
        if drho is not None:
            tangents = {key: drho[k] for k, key in enumerate(pairs)}
        none = torch.zeros_like(rho[0])
        L = [[none] * n for _ in range(n)]
        D = [[none] * n for _ in range(n)]
        for j in range(n):
            pivot, dpivot = torch.ones_like(none), none
            for k in range(j):
                pivot = pivot - L[j][k] ** 2
                dpivot = dpivot - 2 * L[j][k] * D[j][k]
            positive = pivot > _tolerance(rho)
            # Without the floor a singular matrix would give the root of a rounding error. The root
            # of the 0 that is left has no derivative, and says so: NaN, which no mean hides.
            L[j][j] = pivot.where(positive, 0.0).sqrt()
            D[j][j] = 0.5 * dpivot / L[j][j]
            divisor = L[j][j].where(positive, 1.0)
            for i in range(j + 1, n):
                entry, dentry = pairs[i, j], tangents.get((i, j), none)
                for k in range(j):
                    entry = entry - L[i][k] * L[j][k]
                    dentry = dentry - L[i][k] * D[j][k] - D[i][k] * L[j][k]
                L[i][j] = (entry / divisor).where(positive, 0.0)
                D[i][j] = (dentry - L[i][j] * D[j][j]) / L[j][j]
        rows = L if drho is None else D
        return torch.stack([torch.stack(row) for row in rows])

    def drift(self, t: Tensor, spots: Tensor) -> Tensor:
        """``(r - q) S``."""
        return column(self.rate - self.dividend) * spots

    def diffusion(self, t: Tensor, spots: Tensor) -> Tensor:
        """``sigma_i S_i L_ij``, ``(n, n, P)``."""
        return _channels(column(self.sigma) * spots, self.cholesky())

    def step_exact(self, t: Tensor, dt: Tensor, normals: Tensor, spots: Tensor) -> Tensor:
        """``S exp((r - q - sigma²/2) dt + sigma sqrt(dt) L Z)``."""
        growth = (self.rate - self.dividend - 0.5 * self.sigma**2) * dt
        moved = self.cholesky().to(normals.dtype) @ normals
        return spots * torch.exp(column(growth) + column(self.sigma * dt.sqrt()) * moved)

    def drift_tangent(
        self,
        t: Tensor,
        spots: Tensor,
        dspots: Tensor,
        *,
        rate: Tensor | None = None,
        sigma: Tensor | None = None,
        rho: Tensor | None = None,
        dividend: Tensor | None = None,
    ) -> Tensor:
        """``(r - q) dS + (dr - dq) S``."""
        out = column(self.rate - self.dividend) * dspots
        if rate is not None:
            out = out + rate * spots
        return out if dividend is None else out - column(dividend) * spots

    def diffusion_tangent(
        self,
        t: Tensor,
        spots: Tensor,
        dspots: Tensor,
        *,
        rate: Tensor | None = None,
        sigma: Tensor | None = None,
        rho: Tensor | None = None,
        dividend: Tensor | None = None,
    ) -> Tensor:
        """``(sigma_i dS_i + dsigma_i S_i) L_ij + sigma_i S_i dL_ij``."""
        moved = column(self.sigma) * dspots
        if sigma is not None:
            moved = moved + column(sigma) * spots
        out = _channels(moved, self.cholesky())
        if rho is not None:
            out = out + _channels(column(self.sigma) * spots, self.cholesky(rho))
        return out

    def closed_form(self, payoff: Any, x0: Tensor, maturity: Tensor) -> Tensor | None:
        """Of exchange options, and of calls on the better or worse of two assets."""
        kind, n = type(payoff), self.sigma.numel()
        if payoff.of not in (None, "spots"):
            return None
        if kind is Exchange:
            i, j = payoff.receive, payoff.deliver
            return exchange_option(x0[i], x0[j], maturity, *self._pair(i, j))
        if kind not in (BestOf, WorstOf) or n != 2 or payoff.option != "call":
            return None
        if payoff.strike <= 0:
            return None
        formula = best_of_call if kind is BestOf else worst_of_call
        return formula(x0[0], x0[1], payoff.strike, maturity, self.rate, *self._pair(0, 1))

    def _pair(self, i: int, j: int) -> list[Tensor]:
        """Volatilities of assets i and j, their correlation, and their dividend yields."""
        n = self.sigma.numel()
        rho = self.rho[list(combinations(range(n), 2)).index((min(i, j), max(i, j)))]
        q = self.dividend.expand(n)
        return [self.sigma[i], self.sigma[j], rho, q[i], q[j]]


def _channels(sizes: Tensor, lower: Tensor) -> Tensor:
    """Sizes ``(..., n, P)`` spread over channels, ``(..., n, m, P)``."""
    return sizes.unsqueeze(-2) * lower.to(sizes.dtype).unsqueeze(-1)


def _tolerance(rho: Tensor) -> float:
    """How far a pivot or eigenvalue that is 0 may come out from it, by the rounding of entries."""
    return max(_ROUNDING, 8 * torch.finfo(rho.dtype).eps)


def _pairs(correlation: Tensor, n: int) -> Tensor:
    """The pairs of a correlation matrix ``(n, n)``; pairs as they are."""
    count = n * (n - 1) // 2
    if correlation.shape == (count,):
        return correlation
    if correlation.shape != (n, n):
        raise ValueError(
            f"correlation must be a matrix of shape {(n, n)} or its pairs ({count},) for the {n} "
            f"assets of sigma, got shape {tuple(correlation.shape)}."
        )
    wrong = ~torch.isclose(correlation, correlation.T, rtol=0, atol=1e-8)
    wrong |= torch.diag(~torch.isclose(correlation.diagonal(), torch.ones_like(correlation[0])))
    if bool(wrong.any()):
        i, j = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"correlation must be symmetric with ones on its diagonal, got {correlation[i, j]:g} "
            f"at ({i}, {j}) and {correlation[j, i]:g} at ({j}, {i})."
        )
    i, j = torch.triu_indices(n, n, 1)
    return correlation[i, j]
