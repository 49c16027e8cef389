"""What a simulation returns: means, derivatives of means, and their standard errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from sdesens._checks import check_choice
from sdesens.fused.kernel import Moments
from sdesens.fused.system import Direction
from sdesens.montecarlo.moments import standard_error


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error: numbers, or tensors in the shape of what was asked for."""

    value: Any  # float or Tensor, by what was asked for
    stderr: Any

    @classmethod
    def of(cls, samples: Tensor) -> Estimate:
        """The mean of independent numbers, with its standard error.

        Args:
            samples: ``(n,)``, at least 2.

        Raises:
            ValueError: if they are not of this shape, or too few.

        Example:
            >>> import torch
            >>> from sdesens.montecarlo import Estimate
            >>> Estimate.of(torch.tensor([0.0, 0.0, 0.0, 8.0]))
            Estimate(value=2.0, stderr=2.0)
        """
        if samples.dim() != 1 or len(samples) < 2:
            raise ValueError(
                f"samples must have shape (n,), n at least 2, got {tuple(samples.shape)}."
            )
        return cls(samples.mean().item(), (samples.std() / len(samples) ** 0.5).item())

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """The confidence interval, by the normal law; of tensors for each entry.

        Raises:
            ValueError: if ``level`` is not between 0 and 1.

        Example:
            >>> from sdesens.montecarlo import Estimate
            >>> low, high = Estimate(0.64, 0.01).interval()
            >>> round(low, 4), round(high, 4)
            (0.6204, 0.6596)
        """
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, got {level}.")
        reach = NormalDist().inv_cdf(0.5 + level / 2) * self.stderr
        return self.value - reach, self.value + reach

    def __str__(self) -> str:
        return f"{self.value} ± {self.stderr}"


@dataclass(frozen=True, repr=False)
class Estimates:
    """Means over paths, in float64.

    ``estimates["value"]`` is the :class:`Estimate` of an output, ``estimates["value", "kappa"]`` of
    its derivative in an input. Inputs are ``"x0"`` (all components), a component, a parameter, and
    ``"maturity"``.

    Attributes:
        moments: count, means and covariances of all samples, from which the rest is computed.
        outputs: names of the outputs.
        inputs: for each input its shape, in order.
        components: names of the entries of x0.
        seed: seed of the noise.
    """

    moments: Moments
    outputs: Sequence[str]
    inputs: Mapping[str, tuple[int, ...]]
    components: Sequence[str]
    places: Mapping[tuple[int, int], int]
    directions: Sequence[Direction]
    seed: int

    @property
    def paths(self) -> int:
        """Number of paths."""
        return self.moments.count

    def __getitem__(self, key: str | tuple[str, str]) -> Estimate:
        output, *of = (key,) if isinstance(key, str) else key
        if output not in self.outputs and output in (*self.inputs, *self.components):
            raise ValueError(
                f"{output!r} is an input; the derivative in it is under "
                f"{(self.outputs[0], output)!r}."
            )
        check_choice("an output", output, self.outputs)
        number = list(self.outputs).index(output)
        if not of:
            return self._estimate([(0, number)], ())
        (name,) = of
        if name in self.components and "x0" in self.inputs:
            rows = [1 + list(self.directions).index(("x0", list(self.components).index(name)))]
            return self._estimate([(row, number) for row in rows], ())
        check_choice("an input", name, (*self.inputs, *self.components))
        rows = [r for r, (which, _) in enumerate(self.directions, 1) if which == name]
        return self._estimate([(row, number) for row in rows], self.inputs[name])

    def _estimate(self, keys: Sequence[tuple[int, int]], shape: tuple[int, ...]) -> Estimate:
        index = [self.places[key] for key in keys]
        value = self.moments.mean[index].reshape(shape)
        error = standard_error(self.moments)[index].reshape(shape)
        if not shape:
            return Estimate(value.item(), error.item())
        return Estimate(value, error)

    def __repr__(self) -> str:
        lines = [f"Estimates of {self.paths} paths, seed {self.seed}"]
        for (row, number), place in sorted(self.places.items()):
            name = self.outputs[number]
            if row:
                which, entry = self.directions[row - 1]
                if which == "x0":
                    which = self.components[entry]
                elif self.inputs[which]:
                    at = torch.unravel_index(torch.tensor(entry), self.inputs[which])
                    which += str([int(i) for i in at])
                name = f"d {name} / d {which}"
            value, error = self.moments.mean[place], standard_error(self.moments)[place]
            lines.append(f"  {name:<28}{value.item():>14.6g} ± {error.item():.2g}")
        return "\n".join(lines)
