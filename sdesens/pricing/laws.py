"""The law of an asset at maturity, given the noise that is not integrated out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from sdesens.autodiff import positive_sqrt
from sdesens.pricing.formulas.lognormal import (
    lognormal_asset_digital_call,
    lognormal_call,
    lognormal_digital_call,
    lognormal_put,
)
from sdesens.pricing.formulas.normal import normal_call, normal_digital_call, normal_put


class Law(ABC):
    """Expectations under the law of the asset; every method takes and gives ``(P,)``."""

    mean: Tensor

    @abstractmethod
    def call(self, strike: Tensor) -> Tensor:
        """``E (X - K)^+``."""

    @abstractmethod
    def put(self, strike: Tensor) -> Tensor:
        """``E (K - X)^+``."""

    @abstractmethod
    def above(self, strike: Tensor) -> Tensor:
        """``P(X > K)``."""

    @abstractmethod
    def mean_above(self, strike: Tensor) -> Tensor:
        """``E X 1{X > K}``."""


@dataclass(frozen=True)
class LognormalLaw(Law):
    """``X = F exp(s Z - s²/2)``; a strike at or below zero is below every value of it."""

    mean: Tensor
    stdev: Tensor

    @classmethod
    def about(cls, location: Tensor, variance: Tensor) -> LognormalLaw:
        """The law of ``location exp(N(0, variance))``."""
        return cls(location * torch.exp(0.5 * variance), positive_sqrt(variance))

    def call(self, strike: Tensor) -> Tensor:
        return self._split(strike, lognormal_call, lambda k: self.mean - k)

    def put(self, strike: Tensor) -> Tensor:
        return self._split(strike, lognormal_put, torch.zeros_like)

    def above(self, strike: Tensor) -> Tensor:
        return self._split(strike, lognormal_digital_call, torch.ones_like)

    def mean_above(self, strike: Tensor) -> Tensor:
        return self._split(strike, lognormal_asset_digital_call, lambda k: self.mean + 0 * k)

    def _split(self, strike, above_zero, below_zero) -> Tensor:
        strike = strike.to(self.mean).expand_as(self.mean)
        positive = strike > 0
        safe = torch.where(positive, strike, torch.ones_like(strike))
        return torch.where(positive, above_zero(self.mean, safe, self.stdev), below_zero(strike))


@dataclass(frozen=True)
class NormalLaw(Law):
    """``X = m + s Z``."""

    mean: Tensor
    stdev: Tensor

    @classmethod
    def about(cls, location: Tensor, variance: Tensor) -> NormalLaw:
        """The law of ``location + N(0, variance)``."""
        return cls(location, positive_sqrt(variance))

    def call(self, strike: Tensor) -> Tensor:
        return normal_call(self.mean, strike.to(self.mean), self.stdev)

    def put(self, strike: Tensor) -> Tensor:
        return normal_put(self.mean, strike.to(self.mean), self.stdev)

    def above(self, strike: Tensor) -> Tensor:
        return normal_digital_call(self.mean, strike.to(self.mean), self.stdev)

    def mean_above(self, strike: Tensor) -> Tensor:
        return self.call(strike) + strike.to(self.mean) * self.above(strike)
