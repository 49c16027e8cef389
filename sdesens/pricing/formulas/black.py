r"""European options on a geometric Brownian motion, ``dS = (r - q) S dt + sigma S dW``.

Each is the discounted value of :mod:`.lognormal` at forward ``S exp((r - q) T)`` and total standard
deviation ``sigma sqrt(T)``, and differentiable any number of times in every argument.

At ``sigma = 0`` or ``maturity = 0`` a price is that of the forward, with the derivative
``1{F > K}`` (1/2 at the money) and 0 in sigma; the derivative of ``sqrt(T)`` at 0 is taken as 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdesens.autodiff import positive_sqrt
from sdesens.pricing.formulas import lognormal
from sdesens.pricing.formulas._arguments import as_numbers, check_not_negative, check_positive
from sdesens.sde import Number


def black_call(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    sigma: Number,
    dividend: Number = 0.0,
) -> Tensor:
    r"""European call, ``exp(-r T) E(S_T - K)^+``.

    Args:
        spot: price S of the asset today.
        strike: strike K, in units of the spot.
        maturity: time T to expiry, years.
        rate: risk-free rate r, continuously compounded, 1 / year.
        sigma: volatility, 1 / sqrt(year).
        dividend: dividend yield q, 1 / year.

    Returns:
        float64, of the broadcast shape of the arguments.

    Raises:
        ValueError: spot or strike not positive, maturity or sigma negative, anything not finite.

    Source: Black and Scholes, *The pricing of options and corporate liabilities*, J. Polit. Econ.
    81 (1973); Merton, *Theory of rational option pricing*, Bell J. Econ. 4 (1973).

    Example:
        >>> import torch
        >>> from sdesens.pricing.formulas import black_call
        >>> spot = torch.tensor(100.0, dtype=torch.float64, requires_grad=True)
        >>> price = black_call(spot, 100.0, 1.0, 0.05, 0.2)
        >>> (delta,) = torch.autograd.grad(price, spot)
        >>> print(f"{price.item():.6f} {delta.item():.6f}")
        10.450584 0.636831
    """
    discount, *state = _terminal(spot, strike, maturity, rate, sigma, dividend)
    return discount * lognormal.lognormal_call(*state)


def black_put(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    sigma: Number,
    dividend: Number = 0.0,
) -> Tensor:
    """European put, ``exp(-r T) E(K - S_T)^+``, not through parity.

    Args, raises and source: those of :func:`black_call`.

    Example:
        >>> from sdesens.pricing.formulas import black_put
        >>> round(black_put(100.0, 100.0, 1.0, 0.05, 0.2).item(), 6)
        5.573526
    """
    discount, *state = _terminal(spot, strike, maturity, rate, sigma, dividend)
    return discount * lognormal.lognormal_put(*state)


def cash_digital_call(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    sigma: Number,
    dividend: Number = 0.0,
    cash: Number = 1.0,
) -> Tensor:
    """An amount paid if the asset ends above the strike, ``cash exp(-r T) P(S_T > K)``.

    Args and raises: those of :func:`black_call`, and ``cash``, the amount, of either sign. At
    ``sigma = 0`` or ``maturity = 0`` the probability is ``1{F > K}``, 1/2 at the money.

    Source: Reiner and Rubinstein, *Unscrambling the binary code*, Risk 4 (1991).

    Example:
        >>> from sdesens.pricing.formulas import cash_digital_call
        >>> round(cash_digital_call(100.0, 100.0, 1.0, 0.05, 0.2).item(), 6)
        0.532325
    """
    (amount,) = as_numbers(cash=cash)
    discount, *state = _terminal(spot, strike, maturity, rate, sigma, dividend)
    return amount * discount * lognormal.lognormal_digital_call(*state)


def cash_digital_put(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    sigma: Number,
    dividend: Number = 0.0,
    cash: Number = 1.0,
) -> Tensor:
    """An amount paid if the asset ends below the strike, ``cash exp(-r T) P(S_T < K)``.

    Args, raises and source: those of :func:`cash_digital_call`.

    Example:
        >>> from sdesens.pricing.formulas import cash_digital_put
        >>> round(cash_digital_put(100.0, 100.0, 1.0, 0.05, 0.2, cash=10.0).item(), 6)
        4.189046
    """
    (amount,) = as_numbers(cash=cash)
    discount, *state = _terminal(spot, strike, maturity, rate, sigma, dividend)
    return amount * discount * lognormal.lognormal_digital_put(*state)


def asset_digital_call(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    sigma: Number,
    dividend: Number = 0.0,
) -> Tensor:
    """The asset, if it ends above the strike, ``exp(-r T) E(S_T 1{S_T > K})``.

    Args and raises: those of :func:`black_call`; source: that of :func:`cash_digital_call`.

    Example:
        >>> from sdesens.pricing.formulas import asset_digital_call
        >>> round(asset_digital_call(100.0, 100.0, 1.0, 0.05, 0.2).item(), 6)
        63.683065
    """
    discount, *state = _terminal(spot, strike, maturity, rate, sigma, dividend)
    return discount * lognormal.lognormal_asset_digital_call(*state)


def asset_digital_put(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    sigma: Number,
    dividend: Number = 0.0,
) -> Tensor:
    """The asset, if it ends below the strike, ``exp(-r T) E(S_T 1{S_T < K})``.

    Args and raises: those of :func:`black_call`; source: that of :func:`cash_digital_call`.

    Example:
        >>> from sdesens.pricing.formulas import asset_digital_put
        >>> round(asset_digital_put(100.0, 100.0, 1.0, 0.05, 0.2).item(), 6)
        36.316935
    """
    discount, *state = _terminal(spot, strike, maturity, rate, sigma, dividend)
    return discount * lognormal.lognormal_asset_digital_put(*state)


def forward_value(
    spot: Number, strike: Number, maturity: Number, rate: Number, dividend: Number = 0.0
) -> Tensor:
    """Value of a forward contract, ``S exp(-q T) - K exp(-r T)``: call minus put, in any model.

    Args and raises: those of :func:`black_call`.

    Example:
        >>> from sdesens.pricing.formulas import forward_value
        >>> round(forward_value(100.0, 100.0, 1.0, 0.05).item(), 6)
        4.877058
    """
    S, K, T, r, q = as_numbers(
        spot=spot, strike=strike, maturity=maturity, rate=rate, dividend=dividend
    )
    check_positive(spot=S, strike=K)
    check_not_negative(maturity=T)
    return S * torch.exp(-q * T) - K * torch.exp(-r * T)


def _terminal(
    spot: Number, strike: Number, maturity: Number, rate: Number, sigma: Number, dividend: Number
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Discount factor, forward, strike and total standard deviation, of checked arguments."""
    S, K, T, r, vol, q = as_numbers(
        spot=spot, strike=strike, maturity=maturity, rate=rate, sigma=sigma, dividend=dividend
    )
    check_positive(spot=S, strike=K)
    check_not_negative(maturity=T, sigma=vol)
    return torch.exp(-r * T), S * torch.exp((r - q) * T), K, vol * positive_sqrt(T)
