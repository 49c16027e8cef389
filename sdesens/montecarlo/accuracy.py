"""Stop where the standard errors are small enough."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from sdesens.errors import AccuracyWarning
from sdesens.montecarlo.estimates import Estimate


class Found(Protocol):
    """Estimates by name, of so many paths."""

    @property
    def paths(self) -> int: ...

    def __getitem__(self, key: Any, /) -> Estimate: ...


@dataclass(frozen=True)
class Target:
    """Standard errors to reach, by what a user calls the estimates."""

    stderrs: Mapping[Any, float]

    @classmethod
    def of(cls, target: Any, of_all: str, known: Found) -> Target | None:
        """Check a ``target_stderr``; a number is the target of the estimate ``of_all``.

        Raises:
            ValueError, KeyError: if it is not positive, or of something that is not ``known``.
        """
        if target is None:
            return None
        stderrs = dict(target) if isinstance(target, Mapping) else {of_all: target}
        if not stderrs:
            raise ValueError("target_stderr is empty; give a number, or a name at least.")
        for key, value in stderrs.items():
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not 0 < value < math.inf:
                raise ValueError(
                    f"target_stderr of {key!r} must be a positive number, got {value!r}."
                )
            names = (key,) if isinstance(key, str) else key
            if not (
                isinstance(names, tuple)
                and len(names) <= 2
                and all(isinstance(n, str) for n in names)
            ):
                raise ValueError(
                    f"target_stderr has the key {key!r}; keys are those of the result, a name or "
                    f"a pair of names."
                )
            try:
                known[key]
            except (ValueError, KeyError) as error:
                raise type(error)(f"target_stderr has the key {key!r}: {error.args[0]}") from None
        return cls(stderrs)

    def shortfall(self, found: Found) -> float:
        """How many times as many paths are needed; infinite while something does not vary."""
        reached = self._reached(found)
        if any(value == 0 for value in reached.values()):
            return math.inf
        return max((reached[key] / goal) ** 2 for key, goal in self.stderrs.items())

    def warn_if_missed(self, found: Found, stacklevel: int) -> None:
        """Warn if all paths did not do."""
        paths = found.paths
        for key, reached in self._reached(found).items():
            goal = self.stderrs[key]
            if reached > goal:
                needed = math.ceil(paths * (reached / goal) ** 2)
                warnings.warn(
                    f"the standard error of {key!r} is {reached:.3g} after all {paths:,} paths, "
                    f"not {goal:g}; some {needed:,} paths would do.",
                    AccuracyWarning,
                    stacklevel=stacklevel + 1,
                )

    def _reached(self, found: Found) -> dict[Any, float]:
        """The standard errors so far, the largest of several entries."""
        return {key: float(torch.as_tensor(found[key].stderr).max()) for key in self.stderrs}
