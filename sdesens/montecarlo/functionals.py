"""Functionals of a path that grow along with it: sums, extremes, products, values at dates.

Each is one more state component of the simulation, so its derivatives follow by the same rule as
those of the state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sdesens._checks import check_floats
from sdesens.montecarlo.laws import StepLaw

Of = str | Callable[[Any], Tensor]


def _check_dates(dates: Sequence[float]) -> tuple[float, ...]:
    found = check_floats("dates", dates)
    if not found:
        raise ValueError("dates must hold at least one time, got none.")
    for k, t in enumerate(found):
        if not math.isfinite(t):
            raise ValueError(f"dates must be finite times, got dates[{k}]={t}.")
    return found


class Functional:
    """A number that is updated at every step; subclasses give ``start`` and ``update``.

    Args:
        of: what of the state it watches: the name of a component, or a function of the state,
            whose attributes are the components, each ``(P,)``, and ``time``.
        dates: the times at which it watches, which must be nodes of the grid; every node but the
            first if omitted.

    Class attributes:
        uses_law: whether it uses ``after.law``, the law of the step
            (:class:`~sdesens.montecarlo.laws.StepLaw`), or steers its noise.
        normals: how many standard normal numbers of its own it takes a step, ``after.normals``
            of shape ``(P, normals)``.
    """

    uses_law, normals = False, 0

    def __init__(self, of: Of, dates: Sequence[float] | None = None) -> None:
        self.of = of
        self.dates = None if dates is None else _check_dates(dates)

    def watched(self, state: Any) -> Tensor:
        """What is watched, ``(P,)``."""
        return getattr(state, self.of) if isinstance(self.of, str) else self.of(state)

    def start(self, state: Any, flag: Tensor) -> Tensor:
        """The value at the first node; ``flag`` is 1 if it is a date."""
        raise NotImplementedError

    def update(self, value: Tensor, before: Any, after: Any, flag: Tensor) -> Tensor:
        """The value after a step from ``before`` to ``after``; ``flag`` is 1 if that is a date.

        ``before`` also has the values of all functionals then, by name.
        """
        raise NotImplementedError

    def steer(self, z: Tensor, law: StepLaw, flag: Tensor) -> Tensor:
        """The number that takes the place of ``z``, the channel of ``law``, in a step."""
        return z


class RunningSum(Functional):
    """The sum over the dates; divided by their number, the average of an Asian option."""

    def start(self, state: Any, flag: Tensor) -> Tensor:
        return flag * self.watched(state)

    def update(self, value: Tensor, before: Any, after: Any, flag: Tensor) -> Tensor:
        return value + flag * self.watched(after)


class RunningMax(Functional):
    """The maximum over the dates.

    Where two dates tie, the derivative is half of either's, as of ``torch.maximum``.
    """

    def start(self, state: Any, flag: Tensor) -> Tensor:
        x = self.watched(state)
        return torch.where(flag > 0, x, torch.full_like(x, -torch.inf))

    def update(self, value: Tensor, before: Any, after: Any, flag: Tensor) -> Tensor:
        return torch.where(flag > 0, torch.maximum(value, self.watched(after)), value)


class RunningMin(Functional):
    """The minimum over the dates."""

    def start(self, state: Any, flag: Tensor) -> Tensor:
        x = self.watched(state)
        return torch.where(flag > 0, x, torch.full_like(x, torch.inf))

    def update(self, value: Tensor, before: Any, after: Any, flag: Tensor) -> Tensor:
        return torch.where(flag > 0, torch.minimum(value, self.watched(after)), value)


class ValueAt(Functional):
    """The value at one date."""

    def __init__(self, of: Of, date: float) -> None:
        super().__init__(of, (date,))

    def start(self, state: Any, flag: Tensor) -> Tensor:
        return self.watched(state) * flag

    def update(self, value: Tensor, before: Any, after: Any, flag: Tensor) -> Tensor:
        return torch.where(flag > 0, self.watched(after), value)


class Integral(Functional):
    """The integral over time, by the trapezoidal rule on the grid."""

    def __init__(self, of: Of) -> None:
        super().__init__(of)

    def start(self, state: Any, flag: Tensor) -> Tensor:
        return torch.zeros_like(self.watched(state))

    def update(self, value: Tensor, before: Any, after: Any, flag: Tensor) -> Tensor:
        mean = 0.5 * (self.watched(before) + self.watched(after))
        return value + (after.time - before.time) * mean


class Survival(Functional):
    """The product over the steps of a probability, as that of not crossing a barrier in between.

    Args:
        probability: a function of the states before and after a step, with values ``(P,)``.
        dates: as for :class:`Functional`: only steps that end at one of them count.
    """

    def __init__(
        self, probability: Callable[[Any, Any], Tensor], dates: Sequence[float] | None = None
    ) -> None:
        super().__init__(lambda state: state.time, dates)
        self.probability = probability

    def start(self, state: Any, flag: Tensor) -> Tensor:
        return torch.ones_like(state.y[:, 0])

    def update(self, value: Tensor, before: Any, after: Any, flag: Tensor) -> Tensor:
        return torch.where(flag > 0, value * self.probability(before, after), value)
