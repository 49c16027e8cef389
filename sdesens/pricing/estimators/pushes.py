"""How the noise can be moved so that the tangent of what a payoff is written on comes to rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from sdesens.fused.trace import RealZeros
from sdesens.montecarlo.walk import walked
from sdesens.pricing.estimators.motions import Push, units_of
from sdesens.pricing.payoffs import Payoff
from sdesens.pricing.scenario import Scenario

_TRIED = 2**12  # paths


def push_of(scenario: Scenario) -> Push | str:
    """How the noise moves the payoff's asset about, or why it cannot."""
    reason = _why_not_of_payoff(scenario.payoff)
    if reason:
        return reason
    law, d = scenario.conditioning, scenario.problem.x0.shape[1]
    model = type(scenario.model).__name__
    if law is not None:
        push = Push([law.column], [law.channel])
    else:
        inputs = len(scenario.bare.counters)
        if inputs != d:
            return (
                f"no weight: {inputs} noise inputs a step for {d} components of {model}; there "
                f"must be as many."
            )
        push = _pivoted(_slopes(scenario, Push(range(d), range(d))))
    slopes = _slopes(scenario, push)
    if not bool(torch.isfinite(slopes).all()) or float(torch.linalg.det(slopes)) == 0:
        return (
            f"no weight: at the start the noise does not move the asset of {model} in every "
            f"direction (a volatility of 0, a correlation of 1)."
        )
    # Nothing stops as Black and Scholes have it, and the trial would cost more than the run.
    moves = law is not None and law.lognormal and d == 1
    if not moves and _stops(scenario, push):
        by_euler = law is None and "euler" in getattr(scenario.model, "conditionally_normal", {})
        cure = " scheme='euler' with estimator='conditional' needs none." if by_euler else ""
        return (
            f"no weight: on some paths the noise does not move the asset of {model} in a step (it "
            f"was absorbed, or its variance is 0), and a weight divides by that.{cure}"
        )
    return push


def _why_not_of_payoff(payoff: Payoff) -> str:
    if payoff.watches_start:
        return "no weight: the payoff is not smooth in the start, which no noise moves."
    if payoff.rough is None:
        return "no weight: the payoff is not smooth at any time, and noise needs a while to act."
    if not payoff.smooth_before and not payoff.jumps and len(payoff.rough) == 0:
        return "no weight: the payoff does not say where it is not smooth."
    return ""


def _pivoted(slopes: Tensor) -> Push:
    """All rows, each with a channel that moves it at the start: elimination divides by that."""
    left, channels = slopes.clone(), []
    for row in range(len(slopes)):
        size = left[row].abs()
        size[channels] = -1.0
        channels.append(int(size.argmax()))
        pivot = left[row, channels[-1]]
        if pivot != 0:
            left = left - left[:, channels[-1:]] / pivot * left[[row]]
    return Push(list(range(len(slopes))), channels)


def _slopes(scenario: Scenario, push: Push) -> Tensor:
    """How the channels move the rows in a step from the start."""
    noise = scenario.bare.y.new_full((1, len(scenario.bare.counters)), 0.1)
    return _moved(scenario.first_step, noise, push)[0].detach().double()


def _moved(move: Callable[[Tensor], Tensor], noise: Tensor, push: Push) -> Tensor:
    """``(P, rows, channels)`` how the channels move the rows."""
    columns = [torch.func.jvp(move, (noise,), (unit,))[1] for unit in units_of(push, noise)]
    return torch.stack(columns, dim=2)[:, list(push.rows)]


def _stops(scenario: Scenario, push: Push) -> bool:
    """Whether on some path there is a step in which the channels do not move the rows.

    Found on a few thousand paths, and if they do not meet it, by the mean that is not finite.
    """
    motion = scenario.bare
    assert motion.start is not None
    begin = motion.start

    def start(x0: Tensor) -> Tensor:
        y = begin(x0)
        return torch.cat([y, torch.ones_like(y[:, :1])], dim=1)

    def step(start, end, width, y, noise, flags) -> Tensor:
        def move(noise: Tensor) -> Tensor:
            return motion.step(start, end, width, y[:, :-1], noise, flags)

        moves = torch.linalg.det(_moved(move, noise, push)) != 0
        return torch.cat([move(noise), y[:, -1:] * moves[:, None]], dim=1)

    watched = replace(motion, step=step, start=start, finish=lambda end, y: [y[:, -1]])
    x0 = scenario.problem.x0.expand(_TRIED, -1)
    with torch.no_grad(), RealZeros():
        (moves,) = walked(watched, scenario.simulation({}, lambda end: end.y[:, 0]).clock(), x0, 0)
    return bool((moves == 0).any())
