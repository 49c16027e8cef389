"""A payoff that its author calls Lipschitz is put to the test on common noise."""

from __future__ import annotations

import torch
from torch import Tensor

from sdesens._parameters import Places, known_parameters
from sdesens.errors import NotLipschitzError
from sdesens.montecarlo.walk import walked
from sdesens.pricing.payoffs import CustomPayoff
from sdesens.pricing.scenario import Scenario

PATHS = 2**15
BUMP = 0.02  # of the start
ERRORS = 6.0  # standard errors that a difference may come to


def check_lipschitz(scenario: Scenario, seed: int) -> None:
    """Raise if a pathwise derivative is not that of a bump on common noise.

    Only a payoff made of the user's own function is put to it. First the start and then the model's
    parameters are moved up and down by 2%, all alike, on the same noise, in float64: for a
    Lipschitz payoff the means of the central difference and of the pathwise derivative then differ
    by chance and by the curvature, which a second bump of half the size tells from a jump.

    Raises:
        NotLipschitzError: if they differ by more than both can explain.
    """
    payoff = scenario.payoff
    if not isinstance(payoff, CustomPayoff) or payoff.jumps:
        return
    probe = _Probe(scenario, seed)
    for what in ("the start", "the model's parameters"):
        slope = probe.slope(what)
        bump = BUMP
        wide, narrow = probe.difference(what, bump), probe.difference(what, bump / 2)
        while not bool(torch.isfinite(wide).all()) and bump > BUMP / 100:
            bump /= 4  # a correlation near 1 cannot be moved far
            wide, narrow = probe.difference(what, bump), probe.difference(what, bump / 2)
        # The leading error of a central difference falls with the square of the bump.
        gap = (4 * narrow - wide) / 3 - slope
        error = gap.std() / PATHS**0.5
        scale = slope.abs().mean() + narrow.abs().mean()
        if abs(gap.mean()) > ERRORS * error + 1e-6 * scale:
            raise NotLipschitzError(
                f"the payoff is called Lipschitz and is not: moving {what} by {bump / 2:.1%} on "
                f"the same noise changes its mean by {narrow.mean().item():.6g} per 100%, and the "
                f"pathwise derivative says {slope.mean().item():.6g}; they differ by "
                f"{abs(gap.mean() / error).item():.0f} standard errors. It jumps somewhere, and "
                f"the pathwise derivative misses that. Pass lipschitz=False to payoff()."
            )


class _Probe:
    """The amounts of some paths, as a function of how far start or parameters are moved."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        simulation = scenario.simulation()
        self.motion, self.clock = simulation.motion(), simulation.clock()
        self.x0 = scenario.problem.x0.double()
        self.seed = seed
        known = known_parameters(scenario.holder)
        self.names = [name for name in known if name.startswith("model.")]
        self.places = Places(scenario.holder, self.names)

    def slope(self, what: str) -> Tensor:
        """The pathwise derivative of each path."""
        zero = torch.zeros((), dtype=torch.float64)
        return torch.func.jvp(lambda h: self.amounts(what, h), (zero,), (torch.ones_like(zero),))[1]

    def difference(self, what: str, bump: float) -> Tensor:
        """The central difference of each path."""
        h = torch.tensor(bump, dtype=torch.float64)
        with torch.no_grad():
            return (self.amounts(what, h) - self.amounts(what, -h)) / (2 * h)

    def amounts(self, what: str, h: Tensor) -> Tensor:
        """The discounted amounts, ``(PATHS,)``, with ``what`` moved by a factor ``1 + h``."""
        if what == "the start":
            return self._run(self.x0 + h * torch.where(self.x0 == 0, 1.0, self.x0))
        values = [value.detach() for value in self.places.values()]
        moved = {n: v * (1 + h).to(v.dtype) for n, v in zip(self.names, values, strict=True)}
        with self.places.holding(moved):
            return self._run(self.x0)

    def _run(self, x0: Tensor) -> Tensor:
        return walked(self.motion, self.clock, x0.expand(PATHS, -1), self.seed)[0]
