"""A valuation: what is simulated for a payoff, as a job, and the report of what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sdesens.fused.kernel import Moments
from sdesens.fused.system import Direction
from sdesens.montecarlo.estimates import Estimate
from sdesens.montecarlo.job import Job
from sdesens.montecarlo.moments import raise_if_not_finite, standard_error
from sdesens.montecarlo.specification import Specification, in_plain_values
from sdesens.pricing.control import Control, adjusted, with_controls
from sdesens.pricing.estimators import Key, Piece, plan
from sdesens.pricing.estimators.motions import antithetic as in_pairs
from sdesens.pricing.payoffs import Payoff
from sdesens.pricing.probe import check_lipschitz
from sdesens.pricing.report import Report
from sdesens.pricing.scenario import Scenario

Places = Mapping[tuple[int, int], int]  # of (row, output) among the moments


@dataclass(frozen=True)
class Valuation:
    """Everything that is to be estimated, and by what.

    Attributes:
        scenario: what is valued.
        directions: what is differentiated in.
        pieces: the simulations.
        controls: of known value, simulated beside.
        antithetic: whether paths come in pairs.
        seed: of the noise.
    """

    scenario: Scenario
    directions: Sequence[Direction]
    pieces: Sequence[Piece]
    controls: Sequence[Control]
    antithetic: bool
    seed: int

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        wrt: str | Sequence[str],
        order: int,
        estimator: str,
        control: Payoff | Sequence[Payoff],
        *,
        antithetic: bool,
        seed: int,
    ) -> Valuation:
        """Plan a valuation.

        Raises:
            UnsupportedError: if the estimator is not right for the payoff.
            NotLipschitzError: if the payoff jumps and says that it does not.
        """
        directions = scenario.directions(wrt)
        pieces = plan(scenario, estimator, order, directions)
        controls = _controls(scenario, control, order, directions)
        check_lipschitz(scenario, seed)
        if controls:
            pieces = with_controls(pieces, controls, estimator, order, directions)
        return cls(scenario, directions, pieces, controls, antithetic, seed)

    def job(self, samples: int, shard_size: int) -> Specification:
        """The job of so many paths, or pairs of them: recorded and compiled."""
        jobs = []
        for piece in self.pieces:
            motion = in_pairs(piece.motion) if self.antithetic else piece.motion
            x0, directions = self.scenario.problem.x0, piece.directions
            jobs.append(
                Job.moving(motion, piece.clock, x0, directions, self.seed, samples, shard_size)
            )
        return Specification(self._about(shard_size), jobs)

    def report(self, job: Specification, parts: Sequence[Moments]) -> Report:
        """The report of the moments of every simulation of ``job``.

        Raises:
            ArithmeticError: if a number is not finite.
        """
        found: dict[Key, tuple[Estimate, str]] = {}
        for piece, one, moments in zip(self.pieces, job.jobs, parts, strict=True):
            places = {at: k for k, at in enumerate(one.layout.outputs)}
            _check_finite(self.scenario, piece, places, moments)
            for key, estimate in estimates_of(piece, places, moments, self.controls).items():
                found[key] = estimate, piece.estimator
        return self._report(found, parts[0].count)

    def blank(self) -> Report:
        """A report of zeros, which has the names of all that is estimated."""
        zero = Estimate(0.0, 0.0)
        keys = {key: (zero, p.estimator) for p in self.pieces for key in p.keys.values()}
        return self._report(keys, 0)

    def _report(self, found: Mapping[Key, tuple[Estimate, str]], samples: int) -> Report:
        scenario = self.scenario
        names = {key: tuple(scenario.label(d) for d in key) for key in found}
        return Report(
            entries={names[key]: estimate for key, (estimate, _) in found.items()},
            estimators={names[key]: estimator for key, (_, estimator) in found.items()},
            groups=_groups(scenario, self.directions),
            asset=None if scenario.asset is None else scenario.asset.name,
            model=type(scenario.model).__name__,
            payoff=str(scenario.payoff),
            scheme=scenario.scheme,
            steps=scenario.steps,
            paths=2 * samples if self.antithetic else samples,
            seed=self.seed,
            antithetic=self.antithetic,
        )

    def _about(self, shard_size: int) -> dict[str, Any]:
        """The valuation in plain values."""
        scenario = self.scenario
        return in_plain_values(
            scenario.problem,
            scenario.scheme,
            scenario.steps,
            self.seed,
            shard_size,
            payoff=str(scenario.payoff),
            controls=[str(control.scenario.payoff) for control in self.controls],
            wrt=[scenario.label(direction) for direction in self.directions],
            estimators=[piece.estimator for piece in self.pieces],
            antithetic=self.antithetic,
        )


def _controls(
    scenario: Scenario, control: Any, order: int, directions: Sequence[Direction]
) -> list[Control]:
    payoffs = [control] if isinstance(control, Payoff) else control
    if not isinstance(payoffs, Sequence) or not all(isinstance(p, Payoff) for p in payoffs):
        raise TypeError(
            f"control must be a payoff of sdesens.pricing, or several, got {control!r}."
        )
    return [Control.of(scenario, payoff, order, directions) for payoff in payoffs]


def _check_finite(scenario: Scenario, piece: Piece, places: Places, moments: Moments) -> None:
    """Raise :class:`ArithmeticError` if a mean or a variance is not finite, naming them."""
    bad = ~(torch.isfinite(moments.mean) & torch.isfinite(moments.products.diagonal()))
    names = [_name(scenario, key) for at, key in piece.keys.items() if bool(bad[places[at]])]
    if names:
        raise ArithmeticError(
            f"{names} by {piece.estimator!r}: not finite, as a path, its derivative or its weight "
            f"is not. A weight divides by the volatility of a step, and roots have no derivative "
            f"at 0 (a correlation of 1). Leave them out of wrt, or use another estimator, scheme "
            f"or number of steps."
        )
    raise_if_not_finite(moments)


def _name(scenario: Scenario, key: Key) -> str:
    return ", ".join(scenario.label(d) for d in key) or "price"


def estimates_of(
    piece: Piece, places: Places, moments: Moments, controls: Sequence[Control]
) -> dict[Key, Estimate]:
    """What the moments of a simulation say, by key."""
    if controls:
        return adjusted(piece, places, moments, controls)
    errors = standard_error(moments)
    return {
        key: Estimate(moments.mean[places[at]].item(), errors[places[at]].item())
        for at, key in piece.keys.items()
    }


def _groups(
    scenario: Scenario, directions: Sequence[Direction]
) -> dict[str, tuple[Sequence[str], tuple[int, ...]]]:
    """Inputs of several entries, all of which were asked for."""
    out: dict[str, tuple[Sequence[str], tuple[int, ...]]] = {}
    for name, members in scenario.inputs.items():
        if not members or not set(members) <= set(directions):
            continue
        labels = [scenario.label(d) for d in members]
        if labels == [name]:
            continue
        which = members[0][0]
        shape = (len(members),)
        if which.partition(".")[0] in ("model", "payoff"):
            shape = tuple(scenario.holder.get_parameter(which).shape)
        out[name] = labels, shape
    return out
