"""From the name of an estimator to motions to run: what is computed how, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from sdesens.errors import UnsupportedError
from sdesens.fused.system import Direction, Motion
from sdesens.montecarlo.simulation import Clock
from sdesens.pricing.estimators.bases import (
    Base,
    conditional,
    is_frozen,
    is_mixture,
    plain,
    surviving,
    why_not_conditional,
)
from sdesens.pricing.estimators.motions import Push, differentiated, last_outputs
from sdesens.pricing.estimators.pushes import push_of
from sdesens.pricing.payoffs import Barrier
from sdesens.pricing.scenario import Scenario

ESTIMATORS = (
    "auto", "pathwise", "mixed", "conditional", "one-step-survival", "bismut", "likelihood-ratio",
)  # fmt: skip

Pushed = Callable[[], Push | str]
Key = tuple[Direction, ...]  # () the price, (a,) a first derivative, (a, b) a second


@dataclass(frozen=True)
class Piece:
    """A motion to run, and what its outputs estimate.

    Attributes:
        motion: what is advanced.
        clock: on what grid.
        directions: what the engine differentiates the outputs in, pathwise.
        keys: what is estimated by which (row, output); row 0 holds the outputs themselves.
        estimator: how, in words.
    """

    motion: Motion
    clock: Clock
    directions: Sequence[Direction]
    keys: Mapping[tuple[int, int], Key]
    estimator: str


def plan(
    scenario: Scenario, estimator: str, order: int, directions: Sequence[Direction]
) -> list[Piece]:
    """The pieces that estimate the value and its derivatives up to ``order``.

    Raises:
        UnsupportedError: if the estimator is not right for the payoff, or cannot be made.
    """
    pushed = cache(lambda: push_of(scenario))  # it tries some paths: when asked for, and once
    if estimator == "auto":
        estimator = chosen(scenario, order, directions, pushed)
    match estimator:
        case "pathwise":
            return _pathwise(scenario, order, directions, pushed)
        case "mixed":
            return _mixed(scenario, order, directions, pushed)
        case "conditional":
            return _smooth(conditional(scenario, order), estimator, order, directions, scenario)
        case "one-step-survival":
            base = surviving(scenario, averaged=order == 2)
            return _smooth(base, estimator, order, directions, scenario)
    return _weighted(scenario, estimator, order, directions, pushed)


def chosen(scenario: Scenario, order: int, directions: Sequence[Direction], pushed: Pushed) -> str:
    """The estimator for a payoff as smooth as it says it is.

    Raises:
        UnsupportedError: if there is none.
    """
    payoff, contract = scenario.payoff, any(n.startswith("payoff.") for n, _ in directions)
    not_averaged = why_not_conditional(scenario, order)
    averaged = not not_averaged
    steered = scenario.conditioning and not is_frozen(scenario)
    if isinstance(payoff, Barrier) and payoff.dates is not None and steered:
        only_at_end = averaged and is_mixture(scenario) and not payoff.watched
        return "conditional" if only_at_end and not payoff.knocks_in else "one-step-survival"
    if averaged and is_mixture(scenario) and (order == 1 or payoff.smooth_before):
        return "conditional"
    if not payoff.jumps and (order == 1 or payoff.is_smooth):
        return "pathwise"
    push = pushed()
    reason = push if isinstance(push, str) else ""
    if contract and payoff.jumps and not reason:
        reason = "a weight cannot move a number of the contract at which the payoff jumps."
    if contract and order == 2 and not reason:
        reason = "a weight cannot take the second derivative in a number of the contract."
    if not reason:
        return "bismut" if payoff.jumps else "mixed"
    if averaged and (order == 1 or payoff.smooth_before):
        return "conditional"
    raise UnsupportedError(
        f"no estimator is right for {payoff} at order {order}: {reason} "
        f"{not_averaged or 'What it gathers before the last date is not smooth.'}"
    )


# --- the estimators ------------------------------------------------------------------------------


def _rows(directions: Sequence[Direction], before: Key = (), output: int = 0) -> dict:
    """Keys of the pathwise derivatives of an output."""
    return {(r, output): (*before, d) for r, d in enumerate(directions, 1)}


def _pathwise(
    scenario: Scenario, order: int, directions: Sequence[Direction], pushed: Pushed
) -> list[Piece]:
    payoff = scenario.payoff
    if payoff.jumps:
        raise UnsupportedError(
            f"pathwise is wrong for {payoff}: it jumps, and the derivative of the jump, which "
            f"autodiff takes as 0, carries part or all of that of the mean. Use estimator='auto' "
            f"(here {_advice(scenario, order, directions, pushed)})."
        )
    base = plain(scenario)
    if order == 2 and not base.smooth:
        raise UnsupportedError(
            f"pathwise is wrong at order 2 for {payoff}: the derivative of a kink jumps, and "
            f"autodiff takes the derivative of that as 0, so gamma would come out as 0. Use "
            f"estimator='auto' (here {_advice(scenario, order, directions, pushed)})."
        )
    return _smooth(base, "pathwise", order, directions, scenario)


def _advice(scenario: Scenario, order: int, directions: Sequence[Direction], pushed: Pushed) -> str:
    try:
        return repr(chosen(scenario, order, directions, pushed))
    except UnsupportedError as error:
        return str(error)


def _smooth(
    base: Base, name: str, order: int, directions: Sequence[Direction], scenario: Scenario
) -> list[Piece]:
    """Derivatives of a simulation as they stand."""
    if order == 2 and not base.smooth:
        raise UnsupportedError(
            f"{name} gives no second derivative for {scenario.payoff}: what it gathers along the "
            f"path is not smooth. Use estimator='auto'."
        )
    first = Piece(base.motion, base.clock, directions, {(0, 0): (), **_rows(directions)}, name)
    pieces = [first]
    if order == 2:
        for k, inner in enumerate(directions):
            motion = last_outputs(differentiated(base.motion, [inner], None), 1)
            clock = _with_shares(base.clock, torch.zeros(scenario.steps + 1))
            outer = directions[k:]
            pieces.append(Piece(motion, clock, outer, _rows(outer, (inner,)), name))
    return pieces


def _mixed(
    scenario: Scenario, order: int, directions: Sequence[Direction], pushed: Pushed
) -> list[Piece]:
    """First derivatives pathwise; second ones the pathwise derivative of a weighted payoff."""
    if scenario.payoff.jumps:
        _pathwise(scenario, order, directions, pushed)  # refuses
    base = plain(scenario)
    pieces = _smooth(base, "pathwise", 1, directions, scenario)
    if order == 1:
        return pieces
    push = _checked(pushed())
    clock = _with_shares(base.clock, shares(scenario, "bismut"))
    for k, inner in enumerate(directions):
        outer = directions[k:]
        _refuse_contract(scenario, inner)
        motion = last_outputs(differentiated(base.motion, [inner], push), 1)
        pieces.append(Piece(motion, clock, outer, _rows(outer, (inner,)), "mixed"))
    return pieces


def _weighted(
    scenario: Scenario, name: str, order: int, directions: Sequence[Direction], pushed: Pushed
) -> list[Piece]:
    """All derivatives by weights."""
    push = _checked(pushed())
    base = plain(scenario)
    for direction in directions:
        _refuse_contract(scenario, direction)
    share = shares(scenario, name)
    once = _with_shares(base.clock, share)
    motion = differentiated(base.motion, directions, push)
    keys: dict[tuple[int, int], Key] = {(0, 0): ()}
    keys |= {(0, k): (d,) for k, d in enumerate(directions, 1)}
    pieces = [Piece(motion, once, [], keys, name)]
    if order == 2:
        twice = _with_shares(once, share)
        for k, inner in enumerate(directions):
            outer = directions[k:]
            inner_motion = last_outputs(differentiated(base.motion, [inner], push), 1)
            motion = last_outputs(differentiated(inner_motion, outer, push), len(outer))
            keys = {(0, j): (inner, d) for j, d in enumerate(outer)}
            pieces.append(Piece(motion, twice, [], keys, f"{name}, twice"))
    return pieces


def _checked(push: Push | str) -> Push:
    if isinstance(push, str):
        raise UnsupportedError(f"{push} Use estimator='auto'.")
    return push


def _refuse_contract(scenario: Scenario, direction: Direction) -> None:
    if direction[0].startswith("payoff."):
        raise UnsupportedError(
            f"{scenario.label(direction)!r} is a number of the contract: no weight gives the "
            f"derivative in it. Leave it out of wrt, or use estimator='conditional'."
        )


def shares(scenario: Scenario, name: str) -> Tensor:
    """``(steps + 1,)`` the share of the tangent that is pushed out in the step to each node.

    ``likelihood-ratio`` pushes all of it out in every step. ``bismut`` spreads it evenly up to the
    next date at which the payoff is not smooth, where nothing may be left.
    """
    steps = scenario.steps
    if name == "likelihood-ratio":
        return torch.ones(steps + 1, dtype=torch.float64)
    rough = scenario.payoff.rough or (scenario.maturity,)
    nodes = sorted({round(t / scenario.maturity * steps) for t in rough})
    out = torch.zeros(steps + 1, dtype=torch.float64)
    for k in range(1, steps + 1):
        ahead = [node for node in nodes if node >= k]
        if ahead:
            out[k] = 1.0 / (ahead[0] - k + 1)
    return out


def _with_shares(clock: Clock, share: Tensor) -> Clock:
    """The clock of a :func:`differentiated` motion."""
    _, rates = clock.times()
    rates = torch.cat([torch.zeros(1, 3, dtype=torch.float64), rates])
    return replace(clock, flags=torch.cat([clock.flags, share.double()[:, None], rates], dim=1))
