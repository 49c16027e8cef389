r"""Options on the path of a geometric Brownian motion: lookbacks and geometric averages.

The lookbacks watch the extreme at all times from today on. With ``s = sigma sqrt(T)``,
``beta = (r - q) T / s``, ``k = log(K / S)``, ``d = (-k + s²/2) / s`` and ``eta`` 1 for the
maximum, -1 for the minimum, the expected gain over a strike that is not yet passed is that of the
vanilla option plus

.. math::

    η S \frac{s}{2β} \bigl[e^{βs} Φ(η(d + β)) - e^{2βk/s} Φ(η(d - β))\bigr],

whose bracket is 0 at ``beta = 0``; near there it is the integral of its derivative.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdesens.autodiff import positive_sqrt
from sdesens.pricing.formulas import lognormal
from sdesens.pricing.formulas._arguments import as_numbers, check_not_negative, check_positive
from sdesens.pricing.formulas._special import (
    density,
    exp_ndtr,
    gauss_legendre,
    ndtr,
    positive_part,
)
from sdesens.sde import Number

_SMALLEST = 1e-60  # total standard deviation below which the path is the forward curve
_NODES, _WEIGHTS = gauss_legendre(24)


def fixed_lookback_call(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    sigma: Number,
    dividend: Number = 0.0,
) -> Tensor:
    r"""Call on the maximum, ``exp(-r T) E(max_t S_t - K)^+``, from today on.

    Args:
        spot: price S of the asset today.
        strike: strike K, in units of the spot.
        maturity: time T to expiry, years.
        rate: risk-free rate r, continuously compounded, 1 / year.
        sigma: volatility, 1 / sqrt(year).
        dividend: dividend yield q, 1 / year.

    Returns:
        float64, of the broadcast shape of the arguments, differentiable any number of times.

    ``rate = dividend`` is no special case. At ``sigma = 0`` or ``maturity = 0`` the path is the
    forward curve, and the derivative in sigma is 0. At ``strike = spot`` the two sides agree up to
    the first derivatives.

    Raises:
        ValueError: spot or strike not positive, maturity or sigma negative, anything not finite.

    Source: Conze and Viswanathan, *Path dependent options: the case of lookback options*, J.
    Finance 46 (1991).

    Example:
        >>> from sdesens.pricing.formulas import fixed_lookback_call
        >>> round(fixed_lookback_call(100.0, 100.0, 1.0, 0.05, 0.2).item(), 6)
        19.167625
    """
    S, K, b, s, discount = _prepare(spot, strike, maturity, rate, sigma, dividend)
    passed = positive_part(S - K)
    return discount * (passed + _beyond(S, K + passed, b, s, 1))


def fixed_lookback_put(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    sigma: Number,
    dividend: Number = 0.0,
) -> Tensor:
    """Put on the minimum, ``exp(-r T) E(K - min_t S_t)^+``, from today on.

    Args, limits, raises and source: those of :func:`fixed_lookback_call`.

    Example:
        >>> from sdesens.pricing.formulas import fixed_lookback_put
        >>> round(fixed_lookback_put(100.0, 100.0, 1.0, 0.05, 0.2).item(), 6)
        12.339745
    """
    S, K, b, s, discount = _prepare(spot, strike, maturity, rate, sigma, dividend)
    passed = positive_part(K - S)
    return discount * (passed + _beyond(S, K - passed, b, s, -1))


def floating_lookback_call(
    spot: Number, maturity: Number, rate: Number, sigma: Number, dividend: Number = 0.0
) -> Tensor:
    """To buy at the lowest price, ``exp(-r T) E(S_T - min_t S_t)``, from today on.

    Args, limits and raises: those of :func:`fixed_lookback_call`. Linear in the spot: gamma is 0.

    Source: Goldman, Sosin and Gatto, *Path dependent options: buy at the low, sell at the high*, J.
    Finance 34 (1979).

    Example:
        >>> from sdesens.pricing.formulas import floating_lookback_call
        >>> round(floating_lookback_call(100.0, 1.0, 0.05, 0.2).item(), 6)
        17.216802
    """
    S, K, b, s, discount = _prepare(spot, spot, maturity, rate, sigma, dividend)
    return discount * (S * torch.expm1(b) + _beyond(S, K, b, s, -1))


def floating_lookback_put(
    spot: Number, maturity: Number, rate: Number, sigma: Number, dividend: Number = 0.0
) -> Tensor:
    """To sell at the highest price, ``exp(-r T) E(max_t S_t - S_T)``, from today on.

    Args, limits, raises and source: those of :func:`floating_lookback_call`.

    Example:
        >>> from sdesens.pricing.formulas import floating_lookback_put
        >>> round(floating_lookback_put(100.0, 1.0, 0.05, 0.2).item(), 6)
        14.290568
    """
    S, K, b, s, discount = _prepare(spot, spot, maturity, rate, sigma, dividend)
    return discount * (_beyond(S, K, b, s, 1) - S * torch.expm1(b))


def _prepare(
    spot: Number, strike: Number, maturity: Number, rate: Number, sigma: Number, dividend: Number
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Spot, strike, ``(r - q) T``, total standard deviation and discount factor."""
    S, K, T, r, vol, q = as_numbers(
        spot=spot, strike=strike, maturity=maturity, rate=rate, sigma=sigma, dividend=dividend
    )
    check_positive(spot=S, strike=K)
    check_not_negative(maturity=T, sigma=vol)
    return S, K, (r - q) * T, vol * positive_sqrt(T), torch.exp(-r * T)


def _beyond(S: Tensor, K: Tensor, b: Tensor, s: Tensor, eta: int) -> Tensor:
    """``E(max S_t - K)^+`` for ``K >= S`` (eta = 1), ``E(K - min S_t)^+`` for ``K <= S`` (-1)."""
    vanilla = lognormal.lognormal_call if eta > 0 else lognormal.lognormal_put
    limit = s < _SMALLEST
    s_or_1 = torch.where(limit, 1.0, s)
    extra = 0.5 * S * s_or_1 * eta * _bracket_ratio(b / s_or_1, torch.log(K / S), s_or_1, eta)
    return vanilla(S * torch.exp(b), K, s) + torch.where(limit, 0.0, extra)


def _bracket_ratio(beta: Tensor, k: Tensor, s: Tensor, eta: int) -> Tensor:
    """The bracket of the module's formula divided by ``beta``."""
    d = 0.5 * s - k / s
    small = beta.abs() < 1
    near = torch.where(small, beta, 0.0).unsqueeze(-1) * _NODES
    slope = _bracket_slope(near, k.unsqueeze(-1), s.unsqueeze(-1), d.unsqueeze(-1), eta)
    far = torch.where(small, 1.0, beta)
    bracket = torch.exp(far * s) * ndtr(eta * (d + far)) - _image(far, k, s, d, eta)
    return torch.where(small, (slope * _WEIGHTS).sum(-1), bracket / far)


def _bracket_slope(beta: Tensor, k: Tensor, s: Tensor, d: Tensor, eta: int) -> Tensor:
    """The derivative of the bracket in beta."""
    growth = torch.exp(beta * s)
    direct = growth * (s * ndtr(eta * (d + beta)) + 2 * eta * density(d + beta))
    return direct - 2 * k / s * _image(beta, k, s, d, eta)


def _image(beta: Tensor, k: Tensor, s: Tensor, d: Tensor, eta: int) -> Tensor:
    """``exp(2 beta k / s) Phi(eta (d - beta))``, whose factors may overflow and vanish."""
    rest = beta * s - 0.5 * (d + beta) ** 2
    return exp_ndtr(2 * beta * k / s, eta * (d - beta), rest)
