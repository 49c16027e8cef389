r"""Options on two assets, ``dS_i = (r - q_i) S_i dt + sigma_i S_i dW_i``, ``d<W_1, W_2> = rho dt``.

Differentiable in every argument. At ``rho = ±1`` the values are the limits, and the derivative in
rho is that from the spread's volatility alone; where that is 0 too, it is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sdesens.autodiff import positive_sqrt
from sdesens.pricing.formulas import lognormal
from sdesens.pricing.formulas._arguments import (
    as_numbers,
    check_correlation,
    check_not_negative,
    check_positive,
)
from sdesens.pricing.formulas._bivariate import bivariate_ndtr
from sdesens.sde import Number

_SMALLEST = 1e-10  # a total standard deviation below it is taken for it in the two-asset formulas


def exchange_option(
    spot1: Number,
    spot2: Number,
    maturity: Number,
    sigma1: Number,
    sigma2: Number,
    rho: Number,
    dividend1: Number = 0.0,
    dividend2: Number = 0.0,
) -> Tensor:
    r"""The right to receive asset 1 for asset 2, ``exp(-r T) E(S1_T - S2_T)^+``.

    Black's formula with the volatility ``sqrt(sigma1² + sigma2² - 2 rho sigma1 sigma2)``; the rate
    drops out.

    Args:
        spot1, spot2: prices of the assets today, in one unit.
        maturity: time T to expiry, years.
        sigma1, sigma2: volatilities, 1 / sqrt(year).
        rho: correlation of the two Brownian motions, in ``[-1, 1]``.
        dividend1, dividend2: dividend yields, 1 / year.

    Returns:
        float64, of the broadcast shape of the arguments.

    Where the spread has no volatility (``sigma1 = sigma2`` and ``rho = 1``, or ``maturity = 0``) it
    is the intrinsic value of the forwards, with derivative 0 in sigma and rho.

    Raises:
        ValueError: a spot not positive, maturity or a sigma negative, rho outside ``[-1, 1]``,
            anything not finite.

    Source: Margrabe, *The value of an option to exchange one asset for another*, J. Finance 33
    (1978).

    Example:
        >>> from sdesens.pricing.formulas import exchange_option
        >>> round(exchange_option(100.0, 100.0, 1.0, 0.2, 0.3, 0.5).item(), 6)
        10.524316
    """
    S1, S2, T, vol1, vol2, corr, q1, q2 = as_numbers(
        spot1=spot1,
        spot2=spot2,
        maturity=maturity,
        sigma1=sigma1,
        sigma2=sigma2,
        rho=rho,
        dividend1=dividend1,
        dividend2=dividend2,
    )
    check_positive(spot1=S1, spot2=S2)
    check_not_negative(maturity=T, sigma1=vol1, sigma2=vol2)
    check_correlation(rho=corr)
    spread = _spread(vol1, vol2, corr) * positive_sqrt(T)
    return lognormal.lognormal_call(S1 * torch.exp(-q1 * T), S2 * torch.exp(-q2 * T), spread)


def best_of_call(
    spot1: Number,
    spot2: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    sigma1: Number,
    sigma2: Number,
    rho: Number,
    dividend1: Number = 0.0,
    dividend2: Number = 0.0,
) -> Tensor:
    r"""Call on the dearer of two assets, ``exp(-r T) E(max(S1_T, S2_T) - K)^+``.

    .. math:: F_1 P_1(S_1 > S_2, S_1 > K) + F_2 P_2(S_2 > S_1, S_2 > K)
        - K (1 - P(S_1 < K, S_2 < K)),

    discounted, with ``P_i`` the measure of asset i.

    Args:
        spot1, spot2: prices of the assets today, in the unit of the strike.
        strike: strike K.
        maturity: time T to expiry, years.
        rate: risk-free rate r, 1 / year.
        sigma1, sigma2: volatilities, 1 / sqrt(year).
        rho: correlation of the two Brownian motions, in ``[-1, 1]``.
        dividend1, dividend2: dividend yields, 1 / year.

    Returns:
        float64, of the broadcast shape of the arguments.

    A total standard deviation, of an asset or of their spread, below 1e-10 is taken as 1e-10: no
    volatility and no time are finite, off by less than 1e-10 of a forward.

    Raises:
        ValueError: a spot or the strike not positive, maturity or a sigma negative, rho outside
            ``[-1, 1]``, anything not finite.

    Source: Stulz, *Options on the minimum or the maximum of two risky assets*, J. Financ. Econ. 10
    (1982).

    Example:
        >>> from sdesens.pricing.formulas import best_of_call
        >>> round(best_of_call(100.0, 100.0, 100.0, 1.0, 0.05, 0.2, 0.3, 0.5).item(), 6)
        18.828747
    """
    discount, one, two, K, h1, h2, rho12 = _two_assets(
        spot1, spot2, strike, maturity, rate, sigma1, sigma2, rho, dividend1, dividend2
    )
    first = one.forward * bivariate_ndtr(one.d_strike, one.d_other, one.rho)
    second = two.forward * bivariate_ndtr(two.d_strike, two.d_other, two.rho)
    return discount * (first + second - K * (1 - bivariate_ndtr(-h1, -h2, rho12)))


def worst_of_call(
    spot1: Number,
    spot2: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    sigma1: Number,
    sigma2: Number,
    rho: Number,
    dividend1: Number = 0.0,
    dividend2: Number = 0.0,
) -> Tensor:
    r"""Call on the cheaper of two assets, ``exp(-r T) E(min(S1_T, S2_T) - K)^+``.

    .. math:: F_1 P_1(K < S_1 < S_2) + F_2 P_2(K < S_2 < S_1) - K P(S_1 > K, S_2 > K),

    discounted, with ``P_i`` the measure of asset i.

    Args, limits, raises and source: those of :func:`best_of_call`.

    Example:
        >>> from sdesens.pricing.formulas import worst_of_call
        >>> round(worst_of_call(100.0, 100.0, 100.0, 1.0, 0.05, 0.2, 0.3, 0.5).item(), 6)
        5.853091
    """
    discount, one, two, K, h1, h2, rho12 = _two_assets(
        spot1, spot2, strike, maturity, rate, sigma1, sigma2, rho, dividend1, dividend2
    )
    first = one.forward * bivariate_ndtr(one.d_strike, -one.d_other, -one.rho)
    second = two.forward * bivariate_ndtr(two.d_strike, -two.d_other, -two.rho)
    return discount * (first + second - K * bivariate_ndtr(h1, h2, rho12))


@dataclass(frozen=True)
class _Asset:
    """One asset under its own measure: it ends above the strike and above the other asset where
    two standard normals of correlation ``rho`` are below ``d_strike`` and ``d_other``.
    """

    forward: Tensor
    d_strike: Tensor
    d_other: Tensor
    rho: Tensor


def _two_assets(
    spot1: Number,
    spot2: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    sigma1: Number,
    sigma2: Number,
    rho: Number,
    dividend1: Number,
    dividend2: Number,
) -> tuple[Tensor, _Asset, _Asset, Tensor, Tensor, Tensor, Tensor]:
    """Discount factor, both assets, the strike, ``d2`` of both and their correlation."""
    S1, S2, K, T, r, vol1, vol2, corr, q1, q2 = as_numbers(
        spot1=spot1,
        spot2=spot2,
        strike=strike,
        maturity=maturity,
        rate=rate,
        sigma1=sigma1,
        sigma2=sigma2,
        rho=rho,
        dividend1=dividend1,
        dividend2=dividend2,
    )
    check_positive(spot1=S1, spot2=S2, strike=K)
    check_not_negative(maturity=T, sigma1=vol1, sigma2=vol2)
    check_correlation(rho=corr)
    root = positive_sqrt(T)
    F1, F2 = S1 * torch.exp((r - q1) * T), S2 * torch.exp((r - q2) * T)
    s1, s2 = _floored(vol1 * root), _floored(vol2 * root)
    spread = _floored(_spread(vol1, vol2, corr) * root)
    d1, d2 = torch.log(F1 / K) / s1, torch.log(F2 / K) / s2
    d12 = torch.log(F1 / F2) / spread
    one = _Asset(F1, d1 + s1 / 2, d12 + spread / 2, _within((s1 - corr * s2) / spread))
    two = _Asset(F2, d2 + s2 / 2, -d12 + spread / 2, _within((s2 - corr * s1) / spread))
    return torch.exp(-r * T), one, two, K, d1 - s1 / 2, d2 - s2 / 2, corr


def _spread(sigma1: Tensor, sigma2: Tensor, rho: Tensor) -> Tensor:
    """Volatility of ``log(S1 / S2)``, as a sum of squares, which does not cancel."""
    return positive_sqrt((sigma1 - sigma2) ** 2 + 2 * (1 - rho) * sigma1 * sigma2)


def _floored(stdev: Tensor) -> Tensor:
    return torch.where(stdev < _SMALLEST, _SMALLEST, stdev)


def _within(rho: Tensor) -> Tensor:
    """A correlation that rounding has not carried beyond ``[-1, 1]``."""
    return torch.where(rho.abs() > 1, torch.sign(rho), rho)
