r"""Single-barrier options on a geometric Brownian motion, monitored at all times.

With ``X = log(S_T / S)``, ``X ~ N(m, s²)``, ``s² = sigma² T``, ``m = (r - q) T - s²/2`` and
``h = log(H / S)``, the density of ``X`` on paths that have not touched ``h`` is, on the side of
``h`` where the path starts,

.. math:: φ(x; m, s) - e^{2mh/s²} φ(x - 2h; m, s).

A knock-out option is its payoff against this on that side; a knock-in option is the payoff against
the first term on the other side and against the second, the image, on this one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdesens._checks import check_choice
from sdesens.autodiff import positive_sqrt
from sdesens.pricing.formulas._arguments import as_numbers, check_not_negative, check_positive
from sdesens.pricing.formulas._special import exp_ndtr, ndtr, positive_part
from sdesens.sde import Number

KINDS = ("down-and-out", "down-and-in", "up-and-out", "up-and-in")

_SMALLEST = 1e-60  # total standard deviation below which the path is the forward curve


def barrier_option(
    spot: Number,
    strike: Number,
    barrier: Number,
    maturity: Number,
    rate: Number,
    sigma: Number,
    dividend: Number = 0.0,
    *,
    kind: str = "down-and-out",
    option: str = "call",
) -> Tensor:
    r"""European option that a touch of the barrier ends or brings to life; no rebate.

    Args:
        spot: price S of the asset today.
        strike: strike K, in units of the spot.
        barrier: level H, in units of the spot, watched continuously from today to expiry.
        maturity: time T to expiry, years.
        rate: risk-free rate r, continuously compounded, 1 / year.
        sigma: volatility, 1 / sqrt(year).
        dividend: dividend yield q, 1 / year.
        kind: ``"down-and-out"``, ``"down-and-in"``, ``"up-and-out"`` or ``"up-and-in"``.
        option: ``"call"`` or ``"put"``.

    Returns:
        float64, of the broadcast shape of the arguments, differentiable any number of times.

    A spot at or beyond the barrier has touched it: out is worth 0 and in is the vanilla option, so
    that at the barrier the derivatives are those of the far side. At ``sigma = 0`` or
    ``maturity = 0`` the path is the forward curve, which touches the barrier or does not, and the
    derivative in sigma is 0.

    Raises:
        ValueError: an unknown kind or option; spot, strike or barrier not positive; maturity or
            sigma negative; anything not finite.

    Source: Reiner and Rubinstein, *Breaking down the barriers*, Risk 4 (1991).

    Example:
        >>> from sdesens.pricing.formulas import barrier_option
        >>> round(barrier_option(100.0, 100.0, 85.0, 1.0, 0.05, 0.2).item(), 6)
        9.94927
    """
    check_choice("kind", kind, KINDS)
    check_choice("option", option, ("call", "put"))
    S, K, H, T, r, vol, q = as_numbers(
        spot=spot,
        strike=strike,
        barrier=barrier,
        maturity=maturity,
        rate=rate,
        sigma=sigma,
        dividend=dividend,
    )
    check_positive(spot=S, strike=K, barrier=H)
    check_not_negative(maturity=T, sigma=vol)
    side = 1.0 if kind.startswith("down") else -1.0  # of the path, seen from the barrier
    sign = 1.0 if option == "call" else -1.0
    out = kind.endswith("out")
    b, s, k = (r - q) * T, vol * positive_sqrt(T), torch.log(K / S)
    limit, touched = s < _SMALLEST, side * (S - H) <= 0
    h = torch.where(touched, -side, torch.log(H / S))
    law = _Law(b, torch.where(limit, 1.0, s), h)

    direct = _integral(law.direct, S, K, k, (h, side if out else -side), sign)
    image = _integral(law.image, S, K, k, (h, side), sign)
    vanilla = _integral(law.direct, S, K, k, None, sign)
    value = torch.where(touched, 0.0 if out else vanilla, direct - image if out else direct + image)
    crossing = touched | (side * (S * torch.exp(b) - H) <= 0)
    forward = positive_part(sign * (S * torch.exp(b) - K))
    at_limit = torch.where(crossing if out else ~crossing, 0.0, forward)
    return torch.exp(-r * T) * torch.where(limit, at_limit, value)


class _Law:
    """Masses of intervals, under the pricing measure and that of the asset (``asset=True``)."""

    def __init__(self, b: Tensor, s: Tensor, h: Tensor) -> None:
        self.b, self.s, self.h = b, s, h

    def direct(self, x: Tensor, upper: bool, asset: bool) -> Tensor:
        """Mass of ``X`` above (``upper``) or below ``x``."""
        z = (x - self._mean(asset)) / self.s
        return self._weight(asset) * ndtr(-z if upper else z)

    def image(self, x: Tensor, upper: bool, asset: bool) -> Tensor:
        """The same of the image, ``exp(2 m h / s²) P(X + 2h > x)``."""
        m, s, h = self._mean(asset), self.s, self.h
        z = (x - 2 * h - m) / s
        # exp(2mh/s²) Phi(z) overflows where its logarithm does not: 2mh/s² - z²/2, put together.
        rest = 2 * (h / s) * ((x - h) / s) - 0.5 * ((x - m) / s) ** 2
        return self._weight(asset) * exp_ndtr(2 * (m / s) * (h / s), -z if upper else z, rest)

    def _mean(self, asset: bool) -> Tensor:
        return self.b + 0.5 * self.s**2 * (1 if asset else -1)

    def _weight(self, asset: bool) -> Tensor | float:
        return self.b.exp() if asset else 1.0


def _integral(
    mass, S: Tensor, K: Tensor, k: Tensor, region: tuple[Tensor, float] | None, sign: float
) -> Tensor:
    """Integral of ``(sign (S exp(X) - K))^+`` over one side of a level, under ``mass``."""

    def tail(x: Tensor, side: float) -> Tensor:
        return S * mass(x, side > 0, True) - K * mass(x, side > 0, False)

    if region is None:
        return sign * tail(k, sign)
    level, side = region
    if side == sign:  # the payoff is positive on the same side of k
        return sign * tail(torch.maximum(k, level) if sign > 0 else torch.minimum(k, level), sign)
    empty = side * (k - level) <= 0
    edge = torch.where(empty, level, k)
    return torch.where(empty, 0.0, sign * (tail(level, side) - tail(edge, side)))
