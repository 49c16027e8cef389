"""The simulations of a payoff: as it is paid, its expectation over free steps, and on survivors."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sdesens.errors import UnsupportedError
from sdesens.fused.system import Motion
from sdesens.montecarlo.bridges import IntegratedVariance
from sdesens.montecarlo.functionals import Functional
from sdesens.montecarlo.laws import Conditioning
from sdesens.montecarlo.simulation import Clock, Simulation, State
from sdesens.montecarlo.walk import walked
from sdesens.pricing.estimators.motions import combined
from sdesens.pricing.laws import LognormalLaw, NormalLaw
from sdesens.pricing.payoffs import Barrier
from sdesens.pricing.payoffs.base import before
from sdesens.pricing.scenario import Scenario

_VARIANCE = "integrated_variance"


@dataclass(frozen=True)
class Base:
    """A simulation whose mean is the value of a payoff.

    Attributes:
        motion: what is advanced.
        clock: on what grid.
        smooth: whether the amount is twice differentiable along the path.
    """

    motion: Motion
    clock: Clock
    smooth: bool

    @classmethod
    def of(cls, simulation: Simulation, smooth: bool) -> Base:
        """That of a simulation."""
        return cls(simulation.motion(), simulation.clock(), smooth)


def plain(scenario: Scenario) -> Base:
    """The payoff as it is paid."""
    return Base.of(scenario.simulation(), scenario.payoff.is_smooth)


def conditional(scenario: Scenario, order: int) -> Base:
    """The expectation of the payoff over the steps after the last date at which it is watched.

    Where the asset is log-normal given other factors that move by themselves (Heston's variance,
    Merton's jumps), over all these steps; else over the last one.

    Raises:
        UnsupportedError: if that expectation is not known, or not smooth enough for derivatives
            of this order.
    """
    reason = why_not_conditional(scenario, order)
    if reason:
        raise UnsupportedError(f"{reason} {_CURE}")
    functionals = _without_last(scenario, scenario.functionals)
    return _averaged(scenario, functionals, scenario.payoff.smooth_before)


_CURE = "Use estimator='auto', or one of the others it names."


def why_not_conditional(scenario: Scenario, order: int) -> str:
    """Why an expectation over the last step has no derivatives of this order; empty if it has."""
    model = type(scenario.model).__name__
    if scenario.asset is None:
        return f"no expectation over the last step: {scenario.payoff} is written on no asset."
    if scenario.conditioning is None:
        return (
            f"no expectation over the last step: {model} does not say of its scheme "
            f"{scenario.scheme!r} in which channel of the noise the asset is normal or log-normal "
            f"(conditionally_lognormal, conditionally_normal)."
        )
    if is_frozen(scenario):
        return (
            f"no expectation over the last step: the channel of its noise does not move the asset "
            f"of {model} (a volatility of 0, a correlation of 1), so nothing would be averaged."
        )
    if scenario.has_short_rate:
        return "no expectation over the last step: the discount factor depends on it too."
    return _why_not_of_payoff(scenario, free_nodes(scenario, scenario.conditioning), order)


def _why_not_of_payoff(scenario: Scenario, free: range, order: int) -> str:
    payoff = scenario.payoff
    if isinstance(payoff, Barrier) and payoff.watched:
        return "no expectation over the last step alone: the payoff also jumps at dates before it."
    if payoff.watched is None or not has_expectation(scenario):
        return f"no expectation over the last step: that of {payoff} is not known in closed form."
    if (payoff.jumps or order == 2) and is_still(scenario, [free]):
        return f"the expectation is not smooth: over the steps that are averaged {_STILL}"
    return ""


def has_expectation(scenario: Scenario) -> bool:
    """Whether the payoff knows its expectation over a law of the asset."""
    one = torch.ones(1, dtype=scenario.problem.x0.dtype)
    values = dict.fromkeys(scenario.functionals, one)
    end = State(time=one[0], y=scenario.problem.x0, asset=one, **values)
    with torch.no_grad():
        return scenario.payoff.expected(end, LognormalLaw(one, one)) is not None


def surviving(scenario: Scenario, *, averaged: bool) -> Base:
    """A barrier option watched at dates, on paths that are made to survive.

    ``averaged`` takes the expectation over the steps after the last date but maturity as well,
    which leaves no kink.

    Raises:
        UnsupportedError: if the payoff is none, or the law of a step is not known.
    """
    payoff = scenario.payoff
    if not isinstance(payoff, Barrier) or payoff.dates is None:
        raise UnsupportedError(
            f"one-step survival is for barrier options watched at dates, got {payoff}. {_CURE}"
        )
    if scenario.conditioning is None or is_frozen(scenario):
        raise UnsupportedError(f"{why_not_conditional(scenario, 1)} {_CURE}")
    if payoff.knocks_in:
        whole, out = (replace(scenario, payoff=part) for part in (payoff.whole, payoff.out))
        parts = [
            conditional(whole, order=2) if averaged else plain(whole),
            surviving(out, averaged=averaged),
        ]
        motion = combined([(1.0, parts[0].motion), (-1.0, parts[1].motion)])
        flags = torch.cat([part.clock.flags for part in parts], dim=1)
        return Base(motion, replace(parts[0].clock, flags=flags), averaged)
    nodes = {round(t / scenario.maturity * scenario.steps) for t in payoff.dates}
    if is_still(scenario, [range(k, k + 1) for k in sorted(nodes)]):
        raise UnsupportedError(
            f"one-step survival would miss part of the derivatives: in some steps to a date "
            f"{_STILL} {_CURE}"
        )
    assert scenario.asset is not None
    functionals = payoff.surviving(scenario.asset)
    if not averaged:
        return Base.of(scenario.simulation(functionals), False)
    return _averaged(scenario, _without_last(scenario, functionals), True)


_STILL = (
    "the variance is 0 on some paths (Heston's, where 4 kappa theta < xi²), and the asset jumps "
    "over the level there without a probability."
)


def is_still(scenario: Scenario, groups: Sequence[range]) -> bool:
    """Whether, in a mixture, all steps to the nodes of a group have no variance on some path.

    Found on a few thousand paths: what they do not meet is rarer than any bias that could be seen.
    """
    if not is_mixture(scenario):
        return False
    width = scenario.maturity / scenario.steps
    names = [f"variance_{k}" for k in range(len(groups))]
    functionals: dict[str, Functional] = {
        name: IntegratedVariance([k * width for k in group])
        for name, group in zip(names, groups, strict=True)
    }

    def least(end: State) -> Tensor:
        return torch.stack([getattr(end, name) for name in names]).amin(0)

    simulation = scenario.simulation(functionals, least)
    with torch.no_grad():
        x0 = scenario.problem.x0.expand(_TRIED, -1)
        (variances,) = walked(simulation.motion(), simulation.clock(), x0, seed=0)
    return bool((variances == 0).any())


_TRIED = 2**13  # paths


def is_mixture(scenario: Scenario) -> bool:
    """Whether the asset is log-normal given factors that move by themselves."""
    law = scenario.conditioning
    return law is not None and law.lognormal and scenario.model.dim > 1


def is_frozen(scenario: Scenario) -> bool:
    """Whether, in a mixture, the asset does not move in its own channel at all.

    An expectation over that channel is then none, and a jump would stay. Without other factors the
    asset is known in advance, and so is the expectation.
    """
    law = scenario.conditioning
    if law is None or not is_mixture(scenario):
        return False
    motion = scenario.bare
    noise = torch.linspace(-3.0, 3.0, 7, dtype=motion.y.dtype)[:, None]
    noise = noise.expand(-1, len(motion.counters))
    with torch.no_grad():
        return not bool((law.law(scenario.first_step, noise).stdev != 0).any())


def free_nodes(scenario: Scenario, law: Conditioning) -> range:
    """Ends of the steps over which an expectation is taken."""
    steps, maturity = scenario.steps, scenario.maturity
    if not is_mixture(scenario):
        return range(steps, steps + 1)
    watched = scenario.payoff.watched or ()
    last = max((round(t / maturity * steps) for t in watched), default=0)
    return range(last + 1, steps + 1)


def _averaged(scenario: Scenario, functionals: dict[str, Functional], smooth: bool) -> Base:
    law, payoff = scenario.conditioning, scenario.payoff
    assert law is not None
    free = free_nodes(scenario, law)
    dates = [k * scenario.maturity / scenario.steps for k in free]
    everywhere = len(free) == scenario.steps
    functionals = {**functionals, _VARIANCE: IntegratedVariance(None if everywhere else dates)}
    of = LognormalLaw if law.lognormal else NormalLaw

    def amount(end: State) -> Tensor:
        value = payoff.expected(end, of.about(end.asset, getattr(end, _VARIANCE)))
        assert value is not None
        return value

    return Base.of(scenario.simulation(functionals, amount), smooth)


def _without_last(scenario: Scenario, functionals: dict[str, Functional]) -> dict[str, Functional]:
    """Functionals that do not watch at maturity."""
    out = {}
    for name, functional in functionals.items():
        functional = copy.copy(functional)  # noqa: PLW2901
        dates: Sequence[float] = functional.dates or ()
        functional.dates = before(dates, scenario.maturity)
        out[name] = functional
    return out
