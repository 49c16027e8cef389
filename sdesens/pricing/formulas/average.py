r"""Averages of a geometric Brownian motion over fixing dates ``t_1, ..., t_n``.

The logarithm of the geometric average is normal with mean ``log S + (r - q - sigma²/2) t̄`` and
variance ``sigma² / n² sum_ij min(t_i, t_j)``, ``t̄`` being the mean date.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sdesens.autodiff import positive_sqrt
from sdesens.pricing.formulas import lognormal
from sdesens.pricing.formulas._arguments import as_numbers, check_not_negative, check_positive
from sdesens.sde import Number

Dates = Tensor | Sequence[float]


def geometric_asian_call(
    spot: Number,
    strike: Number,
    dates: Dates,
    rate: Number,
    sigma: Number,
    dividend: Number = 0.0,
    maturity: Number | None = None,
) -> Tensor:
    r"""Call on the geometric average of the fixings, ``exp(-r T) E(G - K)^+``.

    Args:
        spot: price S of the asset today.
        strike: strike K, in units of the spot.
        dates: times of the fixings from today, years, ``(n,)``, in any order; differentiable if a
            tensor. A date 0 fixes the spot.
        rate: risk-free rate r, continuously compounded, 1 / year.
        sigma: volatility, 1 / sqrt(year).
        dividend: dividend yield q, 1 / year.
        maturity: time T of payment, years; the last of the dates if None.

    Returns:
        float64, of the broadcast shape of the arguments other than ``dates``.

    At ``sigma = 0``, or all dates 0, it is the intrinsic value of the forward's average, with the
    derivative 0 in sigma.

    Raises:
        ValueError: spot or strike not positive; a date, maturity or sigma negative; dates not of
            shape ``(n,)`` or none; a payment before the last fixing; anything not finite.

    Source: Kemna and Vorst, *A pricing method for options based on average asset values*, J. Bank.
    Financ. 14 (1990), with the sums over dates.

    Example:
        >>> from sdesens.pricing.formulas import geometric_asian_call
        >>> dates = [0.1 * i for i in range(1, 11)]
        >>> round(geometric_asian_call(100.0, 100.0, dates, 0.06, 0.2, 0.03).item(), 6)
        5.342561
    """
    discount, *state = _average(spot, strike, dates, rate, sigma, dividend, maturity)
    return discount * lognormal.lognormal_call(*state)


def geometric_asian_put(
    spot: Number,
    strike: Number,
    dates: Dates,
    rate: Number,
    sigma: Number,
    dividend: Number = 0.0,
    maturity: Number | None = None,
) -> Tensor:
    """Put on the geometric average of the fixings, ``exp(-r T) E(K - G)^+``.

    Args, limits, raises and source: those of :func:`geometric_asian_call`.

    Example:
        >>> from sdesens.pricing.formulas import geometric_asian_put
        >>> round(geometric_asian_put(100.0, 100.0, [0.5, 1.0], 0.05, 0.2).item(), 6)
        4.555107
    """
    discount, *state = _average(spot, strike, dates, rate, sigma, dividend, maturity)
    return discount * lognormal.lognormal_put(*state)


def arithmetic_average_moments(
    spot: Number, dates: Dates, rate: Number, sigma: Number, dividend: Number = 0.0
) -> tuple[Tensor, Tensor]:
    r"""First and second moment of the arithmetic average of the fixings, not discounted.

    .. math:: E A = \frac{S}{n} \sum_i e^{b t_i}, \qquad
        E A^2 = \frac{S^2}{n^2} \sum_{ij} e^{b (t_i + t_j) + σ^2 \min(t_i, t_j)}, \qquad b = r - q.

    Args and raises: those of :func:`geometric_asian_call`. At ``sigma = 0`` the second is the
    square of the first.

    Source: Levy, *Pricing European average rate currency options*, J. Int. Money Financ. 11 (1992).

    Example:
        >>> from sdesens.pricing.formulas import arithmetic_average_moments
        >>> mean, second = arithmetic_average_moments(100.0, [0.5, 1.0], 0.05, 0.2)
        >>> print(f"{mean.item():.4f} {(second - mean**2).sqrt().item():.4f}")
        103.8293 16.5748
    """
    S, r, vol, q = as_numbers(spot=spot, rate=rate, sigma=sigma, dividend=dividend)
    check_positive(spot=S)
    check_not_negative(sigma=vol)
    t = _fixings(dates)
    b, vol = (r - q).unsqueeze(-1), vol.unsqueeze(-1)
    curve = torch.exp(b * t)
    pairs = curve.unsqueeze(-1) * curve.unsqueeze(-2)
    shared = torch.exp(vol.unsqueeze(-1) ** 2 * torch.minimum(t.unsqueeze(-1), t))
    return S * curve.mean(-1), S**2 * (pairs * shared).mean((-2, -1))


def _fixings(dates: Dates) -> Tensor:
    if not isinstance(dates, Tensor):
        dates = torch.tensor(list(dates), dtype=torch.float64)
    (t,) = as_numbers(dates=dates)
    if t.dim() != 1 or len(t) == 0:
        raise ValueError(f"dates must have shape (n,) with n > 0, got {tuple(t.shape)}.")
    check_not_negative(dates=t)
    return t


def _average(
    spot: Number,
    strike: Number,
    dates: Dates,
    rate: Number,
    sigma: Number,
    dividend: Number,
    maturity: Number | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Discount factor, mean of the average, strike and standard deviation of the logarithm."""
    t = _fixings(dates)
    S, K, r, vol, q, T = as_numbers(
        spot=spot,
        strike=strike,
        rate=rate,
        sigma=sigma,
        dividend=dividend,
        maturity=t.max() if maturity is None else maturity,
    )
    check_positive(spot=S, strike=K)
    check_not_negative(sigma=vol)
    if maturity is not None and bool((T.detach() < t.detach().max()).any()):
        raise ValueError(
            f"maturity must not be before the last of the dates, {t.max().item()}, got "
            f"{T.min().item()}. The average is known only then."
        )
    variance = torch.minimum(t.unsqueeze(-1), t).mean()
    mean = S * torch.exp((r - q) * t.mean() + 0.5 * vol**2 * (variance - t.mean()))
    return torch.exp(-r * T), mean, K, vol * positive_sqrt(variance)
