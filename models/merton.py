"""The jump diffusion of Merton."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sdesens.models._european import Formulas, european_value
from sdesens.models._functions import check_number, normal_tail
from sdesens.pricing import formulas
from sdesens.sde import SDE, Number

MOST_JUMPS = 14  # in a step; more have probability below 4e-13 for a mean of at most 1

_EUROPEAN = Formulas(
    formulas.merton_call,
    formulas.merton_put,
    formulas.merton_digital_call,
    formulas.merton_digital_put,
)


class MertonJumpDiffusion(SDE):
    r"""``dS/S = (r - q - λ k) dt + sigma dW + (exp(J) - 1) dN``: jumps of lognormal size.

    N counts the jumps of a Poisson process of intensity λ, ``J ~ N(jump_mean, jump_std²)``, and
    ``k = exp(jump_mean + jump_std² / 2) - 1`` makes the discounted spot a martingale.

    **The derivative in the intensity.** On a given path the number of jumps does not move with λ,
    so the derivative of the path says nothing of the jumps that a larger λ would bring. What it
    misses is the derivative of their probability. The state therefore has a second component,
    ``likelihood``, that starts at 1 and stays at 1, and whose derivative in λ (and in the maturity,
    which the count depends on too) is the score of the counts drawn: the first is ``p'/p`` and the
    second ``p''/p``. **Multiply every payoff by it**, as ``end.likelihood * payoff``; prices are
    not changed by that, and without it the derivatives in ``intensity`` and ``maturity`` are wrong.

    Args:
        rate: risk-free rate r, 1 / year.
        sigma: volatility of the diffusion per root of a year, at least 0.
        intensity: expected number λ of jumps a year, above 0. Without jumps the model is
            :class:`~sdesens.models.BlackScholes`; at 0 the number of jumps has no score.
        jump_mean: mean of the logarithmic jump.
        jump_std: its standard deviation, at least 0.
        dividend: dividend yield q, 1 / year.

    Schemes: ``"exact"``, on three normals a step: diffusion, number of jumps, and their sum. The
    number comes from the inverse of its distribution, cut at 14 jumps a step, which leaves out less
    than 4e-13 for the ``λ dt <= 1`` that is required. (In float32 the tail of the count is as fine
    as the normal numbers, whose largest are near 6.7.) There is no drift and diffusion: solvers
    would silently leave the jumps out, and are refused.

    Raises:
        ValueError: if a parameter is not one finite number or out of its range; before a run, if
            ``λ dt > 1``.
        UnsupportedError: for a solver of torchsde, and in :func:`sdesens.sensitivities`.

    Facts: ``dS_t/dS_0 = S_t / S_0``.

    Closed forms: calls, puts, forwards, digitals; the price of a European option is the mean of
    Black-Scholes prices over the Poisson number of jumps.

    Source: Merton, *Option pricing when underlying stock returns are discontinuous*, J. Financ.
    Econ. 3 (1976). For the score: Glasserman, *Monte Carlo Methods in Financial Engineering*,
    2003, section 7.3.

    Example:
        >>> import torch
        >>> from sdesens import montecarlo
        >>> from sdesens.models import MertonJumpDiffusion
        >>> model = MertonJumpDiffusion(0.05, 0.2, intensity=0.75, jump_mean=-0.1, jump_std=0.15)
        >>> def call(end):
        ...     discounted = torch.exp(-model.rate * end.time) * torch.relu(end.spot - 100.0)
        ...     return end.likelihood * discounted
        >>> result = montecarlo.run(model, [100.0, 1.0], call, maturity=1.0, steps=1,
        ...                         paths=50_000, scheme="exact", wrt=("spot", "intensity"))
        >>> vega = result["value", "intensity"]
        >>> abs(vega.value - 2.197859) < 4 * vega.stderr
        True
    """

    state = ("spot", "likelihood")
    sde_type, noise_type = "ito", "general"
    schemes = ("exact",)
    starts: Mapping[str, str] = {"spot": "positive"}
    scheme_channels: Mapping[str, int] = {"exact": 3}
    conditionally_lognormal: Mapping[str, tuple[str, int]] = {"exact": ("spot", 0)}
    likelihood = "likelihood"

    def __init__(
        self,
        rate: Number,
        sigma: Number,
        intensity: Number,
        jump_mean: Number,
        jump_std: Number,
        dividend: Number = 0.0,
    ) -> None:
        super().__init__()
        self.rate = self.parameter(rate)
        self.sigma = self.parameter(sigma)
        self.intensity = self.parameter(intensity)
        self.jump_mean = self.parameter(jump_mean)
        self.jump_std = self.parameter(jump_std)
        self.dividend = self.parameter(dividend)
        for name in ("rate", "jump_mean", "dividend"):
            check_number(name, getattr(self, name))
        for name in ("sigma", "intensity", "jump_std"):
            check_number(name, getattr(self, name), 0)
        if self.intensity == 0:
            raise ValueError(
                "intensity must be above 0: without jumps use BlackScholes(rate, sigma, dividend)."
            )

    def check_step(self, dt: float) -> None:
        """Raise if more jumps a step are expected than are drawn for."""
        mean = self.intensity.item() * dt
        if mean > 1 + 1e-9:
            raise ValueError(
                f"intensity * dt must be at most 1, got {mean:g} expected jumps a step. Use "
                f"{math.ceil(mean)} times as many steps."
            )

    def step_exact(
        self, t: Tensor, dt: Tensor, normals: Tensor, spot: Tensor, likelihood: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The transition of the spot, and the score of the jumps drawn."""
        expected = self.intensity * dt
        jumps = poisson_count(expected.detach(), normals[1])
        spread = self.jump_std * jumps.sqrt() * normals[2]  # a count has no derivative, at 0 too
        k = torch.expm1(self.jump_mean + 0.5 * self.jump_std**2)
        growth = (self.rate - self.dividend - 0.5 * self.sigma**2) * dt - expected * k
        moved = growth + self.sigma * dt.sqrt() * normals[0] + jumps * self.jump_mean + spread
        # p(jumps) over itself. The quotient is 1, whatever the rounding, so its log is 0; taken of
        # the two probabilities the value would be 1 but for rounding.
        quotient = expected / expected.detach()
        score = jumps * torch.log(quotient) - expected.detach() * (quotient - 1)
        return spot * torch.exp(moved), likelihood * torch.exp(score)

    def closed_form(self, payoff: Any, x0: Tensor, maturity: Tensor) -> Tensor | None:
        """Of European payoffs of the spot."""
        if payoff.of not in (None, "spot"):
            return None
        return european_value(
            payoff, _EUROPEAN, x0[0], maturity, self.rate, self.sigma, self.intensity,
            self.jump_mean, self.jump_std, dividend=self.dividend,
        )  # fmt: skip


def poisson_count(mean: Tensor, z: Tensor) -> Tensor:
    """The Poisson number of this mean that is as far out in its distribution as the normal ``z``.

    At most :data:`MOST_JUMPS`. The probabilities are summed from far out, since ``1 - F`` has no
    digits left there.
    """
    probabilities = [torch.exp(-mean)]
    for k in range(1, 2 * MOST_JUMPS):
        probabilities.append(probabilities[-1] * mean / k)
    tail, beyond, count = normal_tail(z), torch.zeros_like(mean), torch.zeros_like(z)
    for k in range(len(probabilities) - 1, 0, -1):
        beyond = beyond + probabilities[k]
        if k <= MOST_JUMPS:
            count = count + (tail < beyond).to(z.dtype)
    return count
