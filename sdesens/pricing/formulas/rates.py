"""Zero-coupon bonds in one-factor models of the short rate, differentiable in every argument."""

from __future__ import annotations

import torch
from torch import Tensor

from sdesens.pricing.formulas._arguments import as_numbers, check_not_negative
from sdesens.pricing.formulas._special import expm1_ratio, gauss_legendre
from sdesens.pricing.formulas._square_root import exponents, nonzero_xi
from sdesens.sde import Number

_NODES, _WEIGHTS = gauss_legendre(24)


def vasicek_bond(
    rate: Number, kappa: Number, mean: Number, sigma: Number, maturity: Number
) -> Tensor:
    r"""``E exp(-∫_0^T r dt)`` for ``dr = kappa (mean - r) dt + sigma dW``.

    .. math:: \exp\Bigl(-r B(T) - m (T - B(T)) + \frac{σ^2}2 \int_0^T B(t)^2 dt\Bigr), \qquad
        B(t) = \frac{1 - e^{-κt}}κ.

    Args:
        rate: short rate r today, 1 / year, of either sign.
        kappa: speed of mean reversion, 1 / year.
        mean: long-run rate m, 1 / year, of either sign.
        sigma: volatility of the rate, 1 / year^1.5.
        maturity: time T to maturity, years.

    Returns:
        float64, of the broadcast shape of the arguments, differentiable any number of times.

    ``kappa = 0`` (a Brownian rate), ``sigma = 0`` and ``maturity = 0`` are no special cases.

    Raises:
        ValueError: kappa, sigma or maturity negative; anything not finite.

    Source: Vasicek, *An equilibrium characterization of the term structure*, J. Financ. Econ. 5
    (1977).

    Example:
        >>> from sdesens.pricing.formulas import vasicek_bond
        >>> round(vasicek_bond(0.03, 0.5, 0.05, 0.01, 5.0).item(), 6)
        0.808302
    """
    r, k, m, vol, T = as_numbers(rate=rate, kappa=kappa, mean=mean, sigma=sigma, maturity=maturity)
    check_not_negative(kappa=k, sigma=vol, maturity=T)
    B = T * expm1_ratio(k * T)
    variance = vol**2 * T**3 * _mean_square(k * T)
    return torch.exp(-r * B - m * (T - B) + 0.5 * variance)


def cir_bond(rate: Number, kappa: Number, theta: Number, xi: Number, maturity: Number) -> Tensor:
    r"""``E exp(-∫_0^T r dt)`` for ``dr = kappa (theta - r) dt + xi sqrt(r) dW``.

    ``exp(theta A + r B)`` with the exponents of a square-root diffusion.

    Args:
        rate: short rate r today, 1 / year.
        kappa: speed of mean reversion, 1 / year.
        theta: long-run rate, 1 / year.
        xi: volatility coefficient of the rate, 1 / year.
        maturity: time T to maturity, years.

    Returns:
        float64, of the broadcast shape of the arguments, differentiable any number of times.

    ``kappa = 0``, ``xi = 0`` and ``maturity = 0`` are no special cases; where kappa and xi are both
    0, xi is taken as 1e-8. The Feller condition is not needed.

    Raises:
        ValueError: an argument negative or not finite.

    Source: Cox, Ingersoll and Ross, *A theory of the term structure of interest rates*,
    Econometrica 53 (1985).

    Example:
        >>> from sdesens.pricing.formulas import cir_bond
        >>> round(cir_bond(0.03, 0.5, 0.05, 0.1, 5.0).item(), 6)
        0.809405
    """
    r, k, mean, vol, T = as_numbers(rate=rate, kappa=kappa, theta=theta, xi=xi, maturity=maturity)
    check_not_negative(rate=r, kappa=k, theta=mean, xi=vol, maturity=T)
    A, B = exponents(torch.full_like(r, 2.0), k, k, nonzero_xi(k, vol), T)
    return torch.exp(mean * A + r * B)


def _mean_square(x: Tensor) -> Tensor:
    """``∫_0^1 (u E(x u))² du`` with ``E(x) = (1 - exp(-x)) / x``; 1/3 at 0."""
    small = x < 5
    near = torch.where(small, x, 0.0).unsqueeze(-1)
    quadrature = ((_NODES * expm1_ratio(near * _NODES)) ** 2 * _WEIGHTS).sum(-1)
    far = torch.where(small, 1.0, x)
    closed = (1 - 2 * expm1_ratio(far) + expm1_ratio(2 * far)) / far**2
    return torch.where(small, quadrature, closed)
