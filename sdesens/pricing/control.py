"""Control variates: payoffs of known value, simulated beside on the same paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from sdesens.errors import UnsupportedError
from sdesens.fused.kernel import Moments
from sdesens.fused.system import Direction
from sdesens.montecarlo.estimates import Estimate
from sdesens.pricing.estimators import Key, Piece, plan
from sdesens.pricing.estimators.motions import joined
from sdesens.pricing.payoffs import Payoff
from sdesens.pricing.reference import closed_form_derivatives
from sdesens.pricing.scenario import Scenario


@dataclass(frozen=True)
class Control:
    """A payoff whose value and derivatives are known.

    Attributes:
        scenario: the same with that payoff.
        known: its value and derivatives.
    """

    scenario: Scenario
    known: Mapping[Key, float]

    @classmethod
    def of(
        cls, scenario: Scenario, payoff: Payoff, order: int, directions: Sequence[Direction]
    ) -> Control:
        """Check a control of ``scenario``.

        Raises:
            UnsupportedError: if its value is not known, or the scheme has a bias that would stay.
        """
        if scenario.scheme != "exact":
            raise UnsupportedError(
                f"a control variate needs paths without discretisation bias, or the bias of the "
                f"control stays in the result; the scheme is {scenario.scheme!r}. Use a model with "
                f"scheme='exact', or no control."
            )
        if payoff.maturity != scenario.maturity:
            raise ValueError(
                f"a control must have the payoff's maturity {scenario.maturity:g}, got "
                f"{payoff.maturity:g}."
            )
        model, x0 = scenario.model, scenario.problem.x0[0]
        beside = Scenario.of(
            model, payoff, x0, steps=scenario.steps, scheme=scenario.scheme, dtype=x0.dtype
        )
        own = [d for d in directions if not d[0].startswith("payoff.")]
        return cls(beside, closed_form_derivatives(beside, order, own))


def with_controls(
    pieces: Sequence[Piece],
    controls: Sequence[Control],
    estimator: str,
    order: int,
    directions: Sequence[Direction],
) -> list[Piece]:
    """The pieces with the outputs of the controls behind their own.

    Raises:
        UnsupportedError: if a control cannot be computed by the estimators of the pieces.
    """
    if any(name.startswith("payoff.") for name, _ in directions):
        raise UnsupportedError(
            "with a control variate, wrt must not have numbers of the payoff. Leave them out."
        )
    name = pieces[0].estimator
    name = "mixed" if name == "pathwise" and order == 2 and estimator != "pathwise" else name
    plans = [plan(control.scenario, name, order, directions) for control in controls]
    out = []
    for k, piece in enumerate(pieces):
        beside = [plan[k] for plan in plans]
        if any(list(p.directions) != list(piece.directions) for p in beside):
            raise UnsupportedError(f"the estimator {name!r} does not suit the control too.")
        parts = [piece, *beside]
        flags = torch.cat([p.clock.flags for p in parts], dim=1)
        motion = joined([p.motion for p in parts])
        out.append(replace(piece, motion=motion, clock=replace(piece.clock, flags=flags)))
    return out


def adjusted(
    piece: Piece,
    places: Mapping[tuple[int, int], int],
    moments: Moments,
    controls: Sequence[Control],
) -> dict[Key, Estimate]:
    """Estimates less what the controls explain of them.

    The coefficients are those of least squares on the same paths, a bias of the order of 1 / paths.

    Source: Glasserman, *Monte Carlo Methods in Financial Engineering*, 2003, section 4.1.
    """
    count = piece.motion.outputs // (1 + len(controls))
    n, out = moments.count, {}
    for (row, output), key in piece.keys.items():
        at = places[row, output]
        beside = [places[row, output + count * (c + 1)] for c in range(len(controls))]
        known = torch.tensor([c.known[key] for c in controls], dtype=torch.float64)
        inside = moments.products[beside][:, beside]
        across = moments.products[at, beside]
        slope = torch.linalg.pinv(inside, hermitian=True) @ across
        value = moments.mean[at] - slope @ (moments.mean[beside] - known)
        rest = (moments.products[at, at] - slope @ across).clamp(min=0)
        error = (rest / max(n - 1 - len(controls), 1) / n).sqrt()
        out[key] = Estimate(value.item(), error.item())
    return out
