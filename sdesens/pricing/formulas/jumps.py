r"""European options under Merton's jump diffusion.

.. math:: dS = (r - q - λ \bar m) S_- dt + σ S_- dW + S_- (e^J - 1) dN, \qquad
    J ∼ N(μ_J, δ_J^2), \quad \bar m = e^{μ_J + δ_J^2 / 2} - 1.

Given ``n`` jumps the asset is lognormal, so that a price is the mean, over a Poisson number of mean
``lambda T``, of the values of :mod:`.lognormal` at forward ``F exp(n (mu_J + delta_J²/2) - lambda
m T)`` and variance ``sigma² T + n delta_J²``. The series ends where its terms are below rounding.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sdesens._checks import is_transformed
from sdesens.autodiff import positive_sqrt
from sdesens.pricing.formulas import lognormal
from sdesens.pricing.formulas._arguments import as_numbers, check_not_negative, check_positive
from sdesens.sde import Number

_MOST_JUMPS = 400.0  # in the mean: beyond it exp(-mean) nears the end of float64
_TERMS_TRANSFORMED = 200  # under torch.func, where the mean cannot be looked at


def merton_call(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    sigma: Number,
    intensity: Number,
    jump_mean: Number,
    jump_std: Number,
    dividend: Number = 0.0,
) -> Tensor:
    """European call, ``exp(-r T) E(S_T - K)^+``.

    Args:
        spot: price S of the asset today.
        strike: strike K, in units of the spot.
        maturity: time T to expiry, years.
        rate: risk-free rate r, continuously compounded, 1 / year.
        sigma: volatility between jumps, 1 / sqrt(year).
        intensity: mean number lambda of jumps a year.
        jump_mean: mean mu_J of a jump of ``log S``.
        jump_std: standard deviation delta_J of a jump of ``log S``.
        dividend: dividend yield q, 1 / year.

    Returns:
        float64, of the broadcast shape of the arguments, differentiable any number of times.

    At ``intensity = 0`` it is Black's price, with the right derivative in the intensity; at
    ``maturity = 0`` the intrinsic value; at ``sigma = 0`` the term without jumps is intrinsic, with
    the derivative 0 in sigma. Under ``torch.func`` 200 terms are taken: enough for 80 jumps in the
    mean.

    Raises:
        ValueError: spot or strike not positive; maturity, sigma, intensity or jump_std negative;
            more than 400 jumps in the mean, ``lambda T max(1, exp(mu_J + delta_J²/2))``; anything
            not finite.

    Source: Merton, *Option pricing when underlying stock returns are discontinuous*, J. Financ.
    Econ. 3 (1976).

    Example:
        >>> from sdesens.pricing.formulas import merton_call
        >>> round(merton_call(100.0, 100.0, 1.0, 0.05, 0.2, 0.75, -0.1, 0.15).item(), 6)
        12.224434
    """
    discount, mixture = _mixture(
        spot, strike, maturity, rate, sigma, intensity, jump_mean, jump_std, dividend
    )
    return discount * mixture(lognormal.lognormal_call)


def merton_put(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    sigma: Number,
    intensity: Number,
    jump_mean: Number,
    jump_std: Number,
    dividend: Number = 0.0,
) -> Tensor:
    """European put, ``exp(-r T) E(K - S_T)^+``, not through parity.

    Args, limits, raises and source: those of :func:`merton_call`.

    Example:
        >>> from sdesens.pricing.formulas import merton_put
        >>> round(merton_put(100.0, 100.0, 1.0, 0.05, 0.2, 0.75, -0.1, 0.15).item(), 6)
        7.347376
    """
    discount, mixture = _mixture(
        spot, strike, maturity, rate, sigma, intensity, jump_mean, jump_std, dividend
    )
    return discount * mixture(lognormal.lognormal_put)


def merton_digital_call(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    sigma: Number,
    intensity: Number,
    jump_mean: Number,
    jump_std: Number,
    dividend: Number = 0.0,
    cash: Number = 1.0,
) -> Tensor:
    """An amount paid if the asset ends above the strike, ``cash exp(-r T) P(S_T > K)``.

    Args, limits, raises and source: those of :func:`merton_call`, and ``cash``, the amount.

    Example:
        >>> from sdesens.pricing.formulas import merton_digital_call
        >>> round(merton_digital_call(100.0, 100.0, 1.0, 0.05, 0.2, 0.75, -0.1, 0.15).item(), 6)
        0.525656
    """
    (amount,) = as_numbers(cash=cash)
    discount, mixture = _mixture(
        spot, strike, maturity, rate, sigma, intensity, jump_mean, jump_std, dividend
    )
    return amount * discount * mixture(lognormal.lognormal_digital_call)


def merton_digital_put(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    sigma: Number,
    intensity: Number,
    jump_mean: Number,
    jump_std: Number,
    dividend: Number = 0.0,
    cash: Number = 1.0,
) -> Tensor:
    """An amount paid if the asset ends below the strike, ``cash exp(-r T) P(S_T < K)``.

    Args, limits, raises and source: those of :func:`merton_digital_call`.

    Example:
        >>> from sdesens.pricing.formulas import merton_digital_put
        >>> round(merton_digital_put(100.0, 100.0, 1.0, 0.05, 0.2, 0.75, -0.1, 0.15).item(), 6)
        0.425573
    """
    (amount,) = as_numbers(cash=cash)
    discount, mixture = _mixture(
        spot, strike, maturity, rate, sigma, intensity, jump_mean, jump_std, dividend
    )
    return amount * discount * mixture(lognormal.lognormal_digital_put)


def _mixture(
    spot: Number,
    strike: Number,
    maturity: Number,
    rate: Number,
    sigma: Number,
    intensity: Number,
    jump_mean: Number,
    jump_std: Number,
    dividend: Number,
) -> tuple[Tensor, Callable[[Callable[..., Tensor]], Tensor]]:
    """Discount factor, and the mean over the number of jumps of a value given forward, strike, s"""
    S, K, T, r, vol, lam, mu, delta, q = as_numbers(
        spot=spot,
        strike=strike,
        maturity=maturity,
        rate=rate,
        sigma=sigma,
        intensity=intensity,
        jump_mean=jump_mean,
        jump_std=jump_std,
        dividend=dividend,
    )
    check_positive(spot=S, strike=K)
    check_not_negative(maturity=T, sigma=vol, intensity=lam, jump_std=delta)
    growth = mu + 0.5 * delta**2  # log of the mean of a jump's factor
    weights = _poisson(lam * T, _terms(lam * T, growth))
    n = torch.arange(weights.shape[-1], dtype=torch.float64)
    forward = S * torch.exp((r - q) * T - lam * T * torch.expm1(growth))
    forwards = forward.unsqueeze(-1) * torch.exp(growth.unsqueeze(-1) * n)
    variance = (vol**2 * T).unsqueeze(-1) + n * (delta**2).unsqueeze(-1)

    def mixture(value: Callable[..., Tensor]) -> Tensor:
        return (weights * value(forwards, K.unsqueeze(-1), positive_sqrt(variance))).sum(-1)

    return torch.exp(-r * T), mixture


def _poisson(mean: Tensor, count: int) -> Tensor:
    """``exp(-mean) mean^n / n!`` for ``n < count``, as products: a power has no second derivative
    at 0 in torch.
    """
    weights = [torch.exp(-mean)]
    for n in range(1, count):
        weights.append(weights[-1] * mean / n)
    return torch.stack(weights, dim=-1)


def _terms(mean: Tensor, growth: Tensor) -> int:
    """How many terms: in the asset's own measure the mean number of jumps is ``exp(growth)`` times
    as large, and second derivatives reach two terms further.
    """
    if is_transformed(mean) or is_transformed(growth):
        return _TERMS_TRANSFORMED
    most = float((mean * growth.exp().clamp(min=1.0)).detach().max())
    if most > _MOST_JUMPS:
        raise ValueError(
            f"the mean number of jumps, intensity * maturity * max(1, exp(jump_mean + "
            f"jump_std**2 / 2)), must be at most {_MOST_JUMPS}, got {most:.6g}. Jumps that many "
            f"are a diffusion: use black_call with the variance of both."
        )
    return int(most + 9 * most**0.5) + 25
