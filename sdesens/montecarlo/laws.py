"""The law of a component after one step, given everything but one channel of the noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sdesens.autodiff import positive_sqrt
from sdesens.sde import SDE


@dataclass(frozen=True)
class StepLaw:
    """``location exp(stdev z)`` or ``location + stdev z``, with z standard normal.

    Attributes:
        location: where the component comes to with ``z = 0``, ``(P,)``.
        stdev: standard deviation of its logarithm, or of itself, ``(P,)``, not negative.
        squared: its square, which is smooth where that is not.
        lognormal: which of the two.
        slopes: gives what the other channels move it by, each on the scale on which it is normal.
    """

    location: Tensor
    stdev: Tensor
    squared: Tensor
    lognormal: bool
    slopes: Callable[[], Sequence[Tensor]] = tuple

    def variance(self) -> Tensor:
        """That of the step with all its channels, to first order in the others."""
        return sum((slope**2 for slope in self.slopes()), self.squared)

    def scale(self, x: Tensor) -> Tensor:
        """``x`` on the scale on which the law is normal: its logarithm, or itself."""
        return x.log() if self.lognormal else x

    def unscale(self, x: Tensor) -> Tensor:
        """The inverse of :meth:`scale`."""
        return x.exp() if self.lognormal else x


@dataclass(frozen=True)
class Conditioning:
    """In one step, one component is (log-)normal in one channel, and no other depends on that.

    Attributes:
        column: of the component, in the state.
        channel: of the noise.
        lognormal: whether its logarithm is affine in that channel, or itself.
    """

    column: int
    channel: int
    lognormal: bool

    def law(
        self,
        step: Callable[[Tensor], Tensor],
        noise: Tensor,
        exponent: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None,
    ) -> StepLaw:
        """The law under ``step``, a function of the noise ``(P, M)`` alone.

        ``exponent`` gives a and b² of ``exp(a + b z)``, if the model says what they are.
        """
        units = torch.eye(noise.shape[1], dtype=noise.dtype)
        centre = noise * (1.0 - units[self.channel])

        def along(channel: int) -> tuple[Tensor, Tensor]:
            tangent = units[channel].expand_as(noise)
            after, slope, *_ = torch.func.jvp(step, (centre,), (tangent,))
            location, slope = after[:, self.column], slope[:, self.column]
            return location, slope / location if self.lognormal else slope

        others = [c for c in range(noise.shape[1]) if c != self.channel]
        if exponent is None:
            location, stdev = along(self.channel)
            squared = stdev**2
        else:
            location, (_, squared) = step(centre)[:, self.column], exponent(centre)
            stdev = positive_sqrt(squared)
        slopes = partial(_slopes, along, others)
        return StepLaw(location, stdev, squared, self.lognormal, slopes)


def _slopes(along: Callable[[int], tuple[Tensor, Tensor]], channels: list[int]) -> list[Tensor]:
    return [along(c)[1] for c in channels]


def conditioning(sde: Any, scheme: str) -> Conditioning | None:
    """What the model says of ``scheme``; the Euler step of one component is normal in any case."""
    if not isinstance(sde, SDE):
        return None
    for declared, lognormal in (
        (sde.conditionally_lognormal, True),
        (sde.conditionally_normal, False),
    ):
        if scheme in declared:
            name, channel = declared[scheme]
            return Conditioning(list(sde.state).index(name), channel, lognormal)
    single = sde.dim == 1 and sde.sizes == (None,)
    if scheme == "euler" and sde.sde_type == "ito" and single:
        return Conditioning(0, 0, False)
    return None
