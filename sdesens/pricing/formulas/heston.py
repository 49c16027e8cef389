r"""European options and variance swaps under Heston's model.

.. math:: dS = (r - q) S dt + \sqrt v S dW_1, \quad
    dv = κ (θ - v) dt + ξ \sqrt v dW_2, \quad d⟨W_1, W_2⟩ = ρ dt

A price is Black's at the expected variance plus an integral, :mod:`._heston_integral`, of what the
two characteristic functions differ by.
"""

from __future__ import annotations

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
from sdesens.pricing.formulas._heston_integral import HestonLaw
from sdesens.pricing.formulas._special import expm1_ratio
from sdesens.sde import Number


def heston_call(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    variance: Number,
    kappa: Number,
    theta: Number,
    xi: Number,
    rho: Number,
    dividend: Number = 0.0,
) -> Tensor:
    """European call, ``exp(-r T) E(S_T - K)^+``.

    Args:
        spot: price S of the asset today.
        strike: strike K, in units of the spot.
        maturity: time T to expiry, years.
        rate: risk-free rate r, continuously compounded, 1 / year.
        variance: variance v0 today, 1 / year.
        kappa: speed of mean reversion of the variance, 1 / year.
        theta: long-run variance, 1 / year.
        xi: volatility of variance, 1 / year.
        rho: correlation of asset and variance, in ``[-1, 1]``.
        dividend: dividend yield q, 1 / year.

    Returns:
        float64, of the broadcast shape of the arguments, differentiable any number of times. The
        absolute error is about 1e-12 of the forward; the relative one of a far
        out-of-the-money price is not controlled.

    The Feller condition is not needed. ``xi = 0`` (Black at the mean variance), ``kappa = 0`` and
    ``rho = ±1`` are no special cases; where kappa and xi are both 0, xi is taken as 1e-8. Without
    time or variance it is the intrinsic value of the forward, with derivative 0 in the variance.

    Raises:
        ValueError: spot or strike not positive; maturity, variance, kappa, theta or xi negative;
            rho outside ``[-1, 1]``; anything not finite.

    Source: Heston, *A closed-form solution for options with stochastic volatility*, Rev. Financ.
    Stud. 6 (1993); Albrecher et al., *The little Heston trap*, Wilmott Mag. (2007).

    Example:
        >>> from sdesens.pricing.formulas import heston_call
        >>> print(f"{heston_call(100., 100., 1., .01, .04, 4., .25, 1., -.5, .02).item():.9f}")
        16.070154917
    """
    discount, law = _law(spot, strike, maturity, rate, variance, kappa, theta, xi, rho, dividend)
    black = lognormal.lognormal_call(law.forward, law.strike, positive_sqrt(law.variance))
    return discount * (black + law.option_correction())


def heston_put(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    variance: Number,
    kappa: Number,
    theta: Number,
    xi: Number,
    rho: Number,
    dividend: Number = 0.0,
) -> Tensor:
    """European put, ``exp(-r T) E(K - S_T)^+``.

    Args, limits, raises and source: those of :func:`heston_call`.

    Example:
        >>> from sdesens.pricing.formulas import heston_put
        >>> print(f"{heston_put(100., 100., 1., .01, .04, 4., .25, 1., -.5, .02).item():.9f}")
        17.055270961
    """
    discount, law = _law(spot, strike, maturity, rate, variance, kappa, theta, xi, rho, dividend)
    black = lognormal.lognormal_put(law.forward, law.strike, positive_sqrt(law.variance))
    return discount * (black + law.option_correction())


def heston_digital_call(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    variance: Number,
    kappa: Number,
    theta: Number,
    xi: Number,
    rho: Number,
    dividend: Number = 0.0,
    cash: Number = 1.0,
) -> Tensor:
    """An amount paid if the asset ends above the strike, ``cash exp(-r T) P(S_T > K)``.

    Args, limits, raises and source: those of :func:`heston_call`, and ``cash``, the amount.

    Example:
        >>> from sdesens.pricing.formulas import heston_digital_call
        >>> price = heston_digital_call(100., 100., 1., .01, .04, 4., .25, 1., -.5, .02)
        >>> print(f"{price.item():.9f}")
        0.438769777
    """
    (amount,) = as_numbers(cash=cash)
    discount, law = _law(spot, strike, maturity, rate, variance, kappa, theta, xi, rho, dividend)
    black = lognormal.lognormal_digital_call(law.forward, law.strike, positive_sqrt(law.variance))
    return amount * discount * (black + law.digital_correction())


def heston_digital_put(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    variance: Number,
    kappa: Number,
    theta: Number,
    xi: Number,
    rho: Number,
    dividend: Number = 0.0,
    cash: Number = 1.0,
) -> Tensor:
    """An amount paid if the asset ends below the strike, ``cash exp(-r T) P(S_T < K)``.

    Args, limits, raises and source: those of :func:`heston_digital_call`.

    Example:
        >>> from sdesens.pricing.formulas import heston_digital_put
        >>> price = heston_digital_put(100., 100., 1., .01, .04, 4., .25, 1., -.5, .02)
        >>> print(f"{price.item():.9f}")
        0.551280057
    """
    (amount,) = as_numbers(cash=cash)
    discount, law = _law(spot, strike, maturity, rate, variance, kappa, theta, xi, rho, dividend)
    black = lognormal.lognormal_digital_put(law.forward, law.strike, positive_sqrt(law.variance))
    return amount * discount * (black - law.digital_correction())


def variance_swap_rate(maturity: Number, variance: Number, kappa: Number, theta: Number) -> Tensor:
    r"""Fair annualised variance, ``E(1/T ∫_0^T v dt)``.

    .. math:: θ + (v_0 - θ) \frac{1 - e^{-κT}}{κT}

    Args:
        maturity: time T, years.
        variance: variance v0 today, 1 / year.
        kappa: speed of mean reversion of the variance, 1 / year.
        theta: long-run variance, 1 / year.

    Returns:
        float64, 1 / year, of the broadcast shape of the arguments; ``v0`` at ``kappa T = 0``. It
        does not depend on the volatility of variance or the correlation.

    Raises:
        ValueError: an argument negative or not finite.

    Source: Demeterfi, Derman, Kamal and Zou, *A guide to volatility and variance swaps*, J. Deriv.
    6 (1999).

    Example:
        >>> from sdesens.pricing.formulas import variance_swap_rate
        >>> round(variance_swap_rate(1.0, 0.04, 1.5, 0.09).item(), 6)
        0.064104
    """
    T, v0, k, mean = as_numbers(maturity=maturity, variance=variance, kappa=kappa, theta=theta)
    check_not_negative(maturity=T, variance=v0, kappa=k, theta=mean)
    return mean + (v0 - mean) * expm1_ratio(k * T)


def _law(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    variance: Number,
    kappa: Number,
    theta: Number,
    xi: Number,
    rho: Number,
    dividend: Number,
) -> tuple[Tensor, HestonLaw]:
    """Discount factor and the law of the asset at maturity, of checked arguments."""
    S, K, T, r, v0, k, mean, vol, corr, q = as_numbers(
        spot=spot,
        strike=strike,
        maturity=maturity,
        rate=rate,
        variance=variance,
        kappa=kappa,
        theta=theta,
        xi=xi,
        rho=rho,
        dividend=dividend,
    )
    check_positive(spot=S, strike=K)
    check_not_negative(maturity=T, variance=v0, kappa=k, theta=mean, xi=vol)
    check_correlation(rho=corr)
    total = T * (mean + (v0 - mean) * expm1_ratio(k * T))
    forward = S * torch.exp((r - q) * T)
    return torch.exp(-r * T), HestonLaw(forward, K, T, v0, k, mean, vol, corr, total)
