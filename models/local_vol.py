"""Local volatility after Dupire, on a SciPy spline surface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sdesens.autodiff import custom_gradient, unique_map
from sdesens.errors import UnsupportedError
from sdesens.models._functions import carry_tangent
from sdesens.sde import SDE, Number


class LocalVolatility(SDE):
    r"""``dS = (r - q) S dt + (sigma(t, S) + shift) S dW`` with a volatility surface.

    The surface is SciPy's bicubic spline through ``vols``, code that autograd cannot trace: its
    value and its partial derivatives enter through
    :func:`~sdesens.autodiff.custom_gradient`, and :func:`~sdesens.autodiff.unique_map` evaluates it
    once for each distinct ``(t, S)``. Outside the grid it continues flat, with derivative zero.

    Args:
        rate: risk-free rate r, 1 / year.
        times: ``(n,)`` increasing times of the surface, years; at least four.
        spots: ``(k,)`` increasing spot levels of the surface; at least four.
        vols: ``(n, k)`` local volatilities at these, per root of a year; positive.
        dividend: dividend yield q, 1 / year.
        shift: added to the whole surface. Its derivative is that of a parallel shift.

    Parameters with a derivative are ``rate``, ``dividend`` and ``shift``; the surface itself is
    fixed. It is twice differentiable: a third derivative is refused.

    Raises:
        ImportError: without SciPy; ``pip install sdesens[scipy]``.
        ValueError: if the surface has a wrong shape, fewer than four times or spots, or a
            volatility that is not positive and finite.

    Facts: for a flat surface this is geometric Brownian motion, so ``dS_t/dS_0 = S_t / S_0``.

    Source: Dupire, *Pricing with a smile*, Risk 7 (1994).

    Example:
        >>> import torch, sdesens
        >>> from sdesens.models import LocalVolatility
        >>> smile = lambda s: 0.2 + 1e-5 * (s - 100.0) ** 2
        >>> spots = torch.linspace(50, 200, 31)
        >>> model = LocalVolatility(0.03, [0.0, 0.5, 1.0, 2.0], spots, smile(spots).expand(4, -1))
        >>> x0 = torch.full((2, 1), 100.0, dtype=torch.float64)
        >>> sens = sdesens.sensitivities(model, x0, [0.0, 1.0], method="euler", dt=0.25, seed=1)
        >>> sens.dx0.shape
        torch.Size([2, 2, 1, 1])
    """

    state = ("spot",)
    sde_type, noise_type = "ito", "diagonal"
    starts: Mapping[str, str] = {"spot": "positive"}
    conditionally_normal: Mapping[str, tuple[str, int]] = {"euler": ("spot", 0)}

    def __init__(
        self,
        rate: Number,
        times: Tensor | Sequence[float],
        spots: Tensor | Sequence[float],
        vols: Tensor | Sequence[Sequence[float]],
        dividend: Number = 0.0,
        shift: Number = 0.0,
    ) -> None:
        super().__init__()
        self.rate = self.parameter(rate)
        self.dividend = self.parameter(dividend)
        self.shift = self.parameter(shift)
        self._surface = _Surface(*(_array(v) for v in (times, spots, vols)))

    def volatility(self, t: Tensor, spot: Tensor) -> Tensor:
        """``sigma(t, S) + shift``, in the shape of ``spot``."""
        return self._on_surface((0, 0), t, spot) + self.shift

    def drift(self, t: Tensor, spot: Tensor) -> Tensor:
        """``(r - q) S``."""
        return (self.rate - self.dividend) * spot

    def diffusion(self, t: Tensor, spot: Tensor) -> Tensor:
        """``(sigma(t, S) + shift) S``."""
        return self.volatility(t, spot) * spot

    def drift_tangent(
        self,
        t: Tensor,
        spot: Tensor,
        dspot: Tensor,
        *,
        rate: Tensor | None = None,
        dividend: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> Tensor:
        """``(r - q) dS + (dr - dq) S``."""
        carry = self.rate - self.dividend
        return carry_tangent(carry, spot, dspot, rate, dividend)

    def diffusion_tangent(
        self,
        t: Tensor,
        spot: Tensor,
        dspot: Tensor,
        *,
        rate: Tensor | None = None,
        dividend: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> Tensor:
        """``(sigma + shift + S dsigma/dS) dS + dshift S``."""
        slope = self._on_surface((0, 1), t, spot)
        out = (self.volatility(t, spot) + slope * spot) * dspot
        return out if shift is None else out + shift * spot

    def _on_surface(self, orders: tuple[int, int], t: Tensor, spot: Tensor) -> Tensor:
        points = torch.stack([t.to(spot).expand_as(spot), spot], dim=-1).flatten(0, -2)
        return unique_map(self._surface.partial(*orders), points, dim=0).reshape(spot.shape)


class _Surface:
    """A bicubic spline and its partial derivatives as operators of points ``(N, 2)``."""

    def __init__(self, times: np.ndarray, spots: np.ndarray, vols: np.ndarray) -> None:
        try:
            from scipy.interpolate import RectBivariateSpline  # noqa: PLC0415
        except ImportError:
            raise ImportError(
                "LocalVolatility reads its surface by SciPy, which is not installed. "
                "pip install 'sdesens[scipy]'"
            ) from None
        for name, axis in (("times", times), ("spots", spots)):
            if axis.ndim != 1 or len(axis) < 4 or not (np.diff(axis) > 0).all():
                raise ValueError(
                    f"{name} must be at least four increasing numbers, got shape {axis.shape}: "
                    f"{axis.tolist()}."
                )
        if vols.shape != (len(times), len(spots)):
            raise ValueError(
                f"vols must have shape (times, spots) = {(len(times), len(spots))}, "
                f"got {vols.shape}."
            )
        if not (np.isfinite(vols) & (vols > 0)).all():
            index = np.argwhere(~(np.isfinite(vols) & (vols > 0)))[0].tolist()
            raise ValueError(
                f"vols must be positive and finite, got {vols[tuple(index)]} at index {index}."
            )
        self._spline: Any = RectBivariateSpline(times, spots, vols)
        self._low = np.array([times[0], spots[0]])
        self._high = np.array([times[-1], spots[-1]])
        self._operators: dict[tuple[int, int], Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Without the operators, which hold functions and are made again when asked for."""
        return vars(self) | {"_operators": {}}

    def partial(self, in_time: int, in_spot: int) -> Any:
        """The partial derivative of these orders, differentiable by those of one order more."""
        orders = (in_time, in_spot)
        if orders not in self._operators:
            self._operators[orders] = self._operator(in_time, in_spot)
        return self._operators[orders]

    def _operator(self, in_time: int, in_spot: int) -> Any:
        if max(in_time, in_spot) > 2:
            raise UnsupportedError(
                "a bicubic spline has two derivatives in each direction, and a third was asked "
                "for. Differentiate less often, or use a smooth formula for the surface."
            )

        def evaluate(points: Tensor) -> np.ndarray:
            at = points.double().numpy()
            inside = np.clip(at, self._low, self._high)
            values = self._spline.ev(inside[:, 0], inside[:, 1], dx=in_time, dy=in_spot)
            for axis, order in enumerate((in_time, in_spot)):
                if order:  # flat beyond the grid
                    values = values * (inside[:, axis] == at[:, axis])
            return values

        def vjp(points: Tensor, values: Tensor, grad: Tensor) -> Tensor:
            slopes = self.partial(in_time + 1, in_spot), self.partial(in_time, in_spot + 1)
            return torch.stack([grad * slope(points) for slope in slopes], dim=-1)

        return custom_gradient(evaluate, vjp=vjp)


def _array(value: Any) -> np.ndarray:
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    return np.asarray(value, dtype=np.float64)
