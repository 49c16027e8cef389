"""Functionals that use the law of a step: survival of barriers, extremes between the nodes.

They need a simulation with a :class:`~sdesens.montecarlo.laws.Conditioning`. Between two nodes the
component, or its logarithm, is taken as a Brownian bridge of the variance of the step by all
channels of its noise, which is exact where drift and volatility are constant over the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sdesens.autodiff import positive_sqrt
from sdesens.montecarlo.functionals import Functional, Of
from sdesens.montecarlo.laws import StepLaw

Level = Callable[[], Tensor]  # read when it is used, so that it can be differentiated in


def normal_cdf(z: Tensor) -> Tensor:
    """Of the standard normal law, accurate in the lower tail."""
    return 0.5 * torch.erfc(z * -(0.5**0.5))


class IntegratedVariance(Functional):
    """The variance of the channel that is left out of the steps that end at ``dates``, or of all.

    In these steps the component stands where that channel is zero. The variances add up, so at the
    end the component is (log-)normal about its value with the variance gathered here.
    """

    uses_law = True

    def __init__(self, dates: Sequence[float] | None) -> None:
        super().__init__(lambda state: state.time, dates)

    def start(self, state: Any, flag: Tensor) -> Tensor:
        return torch.zeros_like(state.y[:, 0])

    def steer(self, z: Tensor, law: StepLaw, flag: Tensor) -> Tensor:
        zero = torch.zeros_like(z)
        return zero if self.dates is None else torch.where(flag > 0, zero, z)

    def update(self, value: Tensor, before: Any, after: Any, flag: Tensor) -> Tensor:
        squared = after.law.squared
        return value + (squared if self.dates is None else flag * squared)


class _Barrier(Functional):
    """A probability of staying on one side of a level.

    Args:
        of: name of the component.
        level: gives the level.
        above: whether the component lives above it, or below.
        dates: as for :class:`Functional`.
    """

    uses_law = True

    def __init__(
        self, of: Of, level: Level, above: bool, dates: Sequence[float] | None = None
    ) -> None:
        super().__init__(of, dates)
        self.level, self.above = level, above

    def alive(self, x: Tensor) -> Tensor:
        """Whether ``x`` is on the side where the component lives."""
        return x > self.level() if self.above else x < self.level()

    def start(self, state: Any, flag: Tensor) -> Tensor:
        x = self.watched(state)
        one = torch.ones_like(x)
        return torch.where((flag > 0) & ~self.alive(x), torch.zeros_like(x), one)


class Alive(_Barrier):
    """1 until a date at which the component is at the level or beyond, 0 from then on: a jump."""

    uses_law = False

    def update(self, value: Tensor, before: Any, after: Any, flag: Tensor) -> Tensor:
        out = ~self.alive(self.watched(after))
        return torch.where((flag > 0) & out, torch.zeros_like(value), value)


class OneStepSurvival(_Barrier):
    """The product of the probabilities of surviving each date, on paths that are made to survive.

    The step to a date is drawn given that it ends alive, and the path carries the probability of
    that. What is computed from such a path is as smooth in the model as its payoff, without the
    jump at the barrier.

    Source: Glasserman and Staum, *Conditioning on one-step survival for barrier option
    simulations*, Oper. Res. 49 (2001).
    """

    def steer(self, z: Tensor, law: StepLaw, flag: Tensor) -> Tensor:
        survival, death = self._probabilities(law)
        side = z if self.above else -z
        near, far = survival * normal_cdf(-side), death + survival * normal_cdf(side)
        # The smaller of the two tells the number to the last digit, in either tail. Where it is
        # nothing, so is the survival.
        nearer = near < far
        tail = torch.where(nearer, near, far).clamp(min=torch.finfo(z.dtype).tiny)
        x = torch.special.ndtri(tail)
        x = torch.where(nearer, -x, x)
        return torch.where(flag > 0, x if self.above else -x, z)

    def update(self, value: Tensor, before: Any, after: Any, flag: Tensor) -> Tensor:
        survival, _ = self._probabilities(after.law)
        return torch.where(flag > 0, value * survival, value)

    def _probabilities(self, law: StepLaw) -> tuple[Tensor, Tensor]:
        """Of ending the step alive, and of ending it dead."""
        distance = law.scale(law.location) - law.scale(self.level().to(law.location))
        moves = law.stdev > 0
        ratio = distance / torch.where(moves, law.stdev, torch.ones_like(law.stdev))
        ratio = ratio if self.above else -ratio
        alive = self.alive(law.location).to(ratio)
        return (
            torch.where(moves, normal_cdf(ratio), alive),
            torch.where(moves, normal_cdf(-ratio), 1 - alive),
        )


class BridgeSurvival(_Barrier):
    """The probability of never having met the level, given the values at the nodes.

    Source: Glasserman, *Monte Carlo Methods in Financial Engineering*, 2003, section 6.4.
    """

    def start(self, state: Any, flag: Tensor) -> Tensor:
        x = self.watched(state)
        return torch.where(self.alive(x), torch.ones_like(x), torch.zeros_like(x))

    def update(self, value: Tensor, before: Any, after: Any, flag: Tensor) -> Tensor:
        law = after.law
        level = law.scale(self.level().to(law.location))
        sign = 1.0 if self.above else -1.0
        old, new = (
            (sign * (law.scale(self.watched(state)) - level)).clamp(min=0)
            for state in (before, after)
        )
        variance = law.variance()
        moves = variance > 0
        crossing = torch.exp(-2 * old * new / torch.where(moves, variance, torch.ones_like(old)))
        alive = ((old > 0) & (new > 0)).to(old)
        return value * torch.where(moves, 1 - crossing, alive)


class BridgeExtreme(Functional):
    """The maximum or minimum, drawn between the nodes too.

    Args:
        of: name of the component.
        maximum: which of the two.

    Source: Glasserman, *Monte Carlo Methods in Financial Engineering*, 2003, section 6.4.
    """

    uses_law, normals = True, 2

    def __init__(self, of: Of, maximum: bool) -> None:
        super().__init__(of)
        self.maximum = maximum

    def start(self, state: Any, flag: Tensor) -> Tensor:
        return self.watched(state)

    def update(self, value: Tensor, before: Any, after: Any, flag: Tensor) -> Tensor:
        law = after.law
        x, y = law.scale(self.watched(before)), law.scale(self.watched(after))
        exponential = (after.normals**2).sum(1)  # twice an exponential number
        reach = positive_sqrt((y - x) ** 2 + law.variance() * exponential)
        if self.maximum:
            return torch.maximum(value, law.unscale(0.5 * (x + y + reach)))
        return torch.minimum(value, law.unscale(0.5 * (x + y - reach)))
