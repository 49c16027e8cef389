"""Whether the standard errors are true: over many seeds, against values known in closed form.

Two statements about the deviations in standard errors of K seeds. The number of 95% intervals that
hold the true value is binomial, ``B(K, 0.95)``; the sum of squared deviations is chi-squared with K
degrees of freedom, which sees errors that are too large as sharply as ones too small.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from sdesens.models import BlackScholes, Heston, MertonJumpDiffusion, MultiAssetBlackScholes
from sdesens.montecarlo import Estimate
from sdesens.montecarlo.job import Job
from sdesens.montecarlo.moments import merge_all
from sdesens.pricing import Asian, Barrier, Call, Digital, Exchange, Forward, Payoff, greeks
from sdesens.pricing.control import Control, with_controls
from sdesens.pricing.estimators import plan
from sdesens.pricing.estimators.motions import antithetic as in_pairs
from sdesens.pricing.reference import closed_form_derivatives
from sdesens.pricing.report import Name
from sdesens.pricing.scenario import Scenario
from sdesens.pricing.valuation import estimates_of

BLACK_SCHOLES = BlackScholes(0.05, 0.2, 0.02)
HESTON = Heston(0.025, 1.5768, 0.0398, 0.5751, -0.5711, 0.01)
MERTON = MertonJumpDiffusion(0.05, 0.2, 0.75, -0.1, 0.15)
TWO = MultiAssetBlackScholes(0.05, [0.2, 0.3], [0.5])
CALL, DIGITAL = Call(100.0, 1.0), Digital(100.0, 1.0)


@dataclass(frozen=True)
class Setting:
    """A valuation by an estimator; ``known``: payoffs whose weighted sum has the same value."""

    estimator: str
    payoff: Payoff
    wrt: str | Sequence[str] = ("spot", "sigma")
    model: Any = BLACK_SCHOLES
    x0: Sequence[float] = (100.0,)
    steps: int = 2
    order: int = 1
    antithetic: bool = False
    controls: Sequence[Payoff] = ()
    known: Mapping[Payoff, float] = field(default_factory=dict)

    def scenario(self, payoff: Payoff | None = None) -> Scenario:
        return Scenario.of(
            self.model, payoff or self.payoff, self.x0, steps=self.steps, scheme="auto",
            dtype=torch.float64,
        )  # fmt: skip


def estimates(setting: Setting, runs: Sequence[tuple[int, int]]) -> dict[Name, list[Estimate]]:
    """What ``greeks`` returns for each (seed, paths), recorded and compiled once."""
    scenario = setting.scenario()
    directions = scenario.directions(setting.wrt)
    pieces = plan(scenario, setting.estimator, setting.order, directions)
    controls = [Control.of(scenario, p, setting.order, directions) for p in setting.controls]
    if controls:
        pieces = with_controls(pieces, controls, setting.estimator, setting.order, directions)
    out: dict[Name, list[Estimate]] = {}
    for piece in pieces:
        motion = in_pairs(piece.motion) if setting.antithetic else piece.motion
        start = scenario.problem.x0
        recorded = Job.moving(motion, piece.clock, start, piece.directions, 0, 2, 2**16)
        places = {at: k for k, at in enumerate(recorded.layout.outputs)}
        for seed, paths in runs:
            numbers = replace(recorded.numbers, seed=seed)
            samples = paths // 2 if setting.antithetic else paths
            job = replace(recorded, numbers=numbers, paths=samples)
            moments = merge_all(job.run_shard(k) for k in range(job.shards))
            for key, estimate in estimates_of(piece, places, moments, controls).items():
                out.setdefault(tuple(scenario.label(d) for d in key), []).append(estimate)
    return out


def true_values(setting: Setting) -> dict[Name, float]:
    """In closed form."""
    out: dict[Name, float] = {}
    for payoff, weight in (setting.known or {setting.payoff: 1.0}).items():
        scenario = setting.scenario(payoff)
        directions = scenario.directions(setting.wrt)
        for key, value in closed_form_derivatives(scenario, setting.order, directions).items():
            name = tuple(scenario.label(d) for d in key)
            out[name] = out.get(name, 0.0) + weight * value
    return out


def deviations(setting: Setting, seeds: int, paths: int = 4000) -> dict[Name, torch.Tensor]:
    """In standard errors, one a seed, of every number."""
    found = estimates(setting, [(seed, paths) for seed in range(1, seeds + 1)])
    true = true_values(setting)
    assert set(found) == set(true)
    return {
        name: torch.tensor([(e.value - true[name]) / e.stderr for e in values])
        for name, values in found.items()
    }


# A barrier of 105 that is looked at on the last day only: S_T - 100 where S_T > 105.
AT_THE_END = Barrier(100.0, 105.0, 1.0, dates=1)
IN_PARTS: Mapping[Payoff, float] = {Call(105.0, 1.0): 1.0, Digital(105.0, 1.0): 5.0}

SETTINGS = {
    "pathwise": Setting("pathwise", CALL, ("spot", "sigma", "rate", "maturity", "strike")),
    "mixed": Setting("mixed", CALL, order=2),
    "conditional": Setting("conditional", CALL, ("spot", "sigma", "intensity", "maturity"), MERTON),
    "conditional, gamma": Setting("conditional", CALL, ("spot",), MERTON, order=2),
    "conditional, digital": Setting("conditional", DIGITAL, ("spot", "sigma", "strike")),
    "one-step-survival": Setting("one-step-survival", AT_THE_END, known=IN_PARTS),
    "one-step-survival, gamma": Setting(
        "one-step-survival", AT_THE_END, ("spot",), order=2, known=IN_PARTS
    ),
    "bismut": Setting("bismut", DIGITAL, ("spot", "sigma", "rate", "maturity"), steps=4),
    "bismut, gamma": Setting("bismut", DIGITAL, ("spot",), order=2),
    "likelihood-ratio": Setting("likelihood-ratio", DIGITAL, steps=4),
    "antithetic": Setting("pathwise", CALL, antithetic=True),
    "antithetic bismut": Setting("bismut", DIGITAL, antithetic=True),
    "control": Setting(
        "pathwise", Asian(100.0, 1.0, 2, average="geometric"), controls=[CALL, Forward(100.0, 1.0)]
    ),
    "control, antithetic": Setting(
        "pathwise", Asian(100.0, 1.0, 2, average="geometric"), antithetic=True, controls=[CALL]
    ),
    "two assets": Setting("auto", Exchange(1.0), ("x0", "sigma", "rho"), TWO, (100.0, 95.0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_intervals_of_200_seeds_hold_the_true_value_in_90_to_99_percent(name):
    # B(200, 0.95) is outside [180, 198] with probability 0.2%, for each of about 50 numbers; the
    # chi-squared bounds are those of 0.05% on each side.
    for key, z in deviations(SETTINGS[name], 200).items():
        covered = int((z.abs() < 1.95996).sum())
        assert 180 <= covered <= 198, (key, covered)
        assert 140.6 < float((z**2).sum()) < 272.5, key


@pytest.mark.parametrize("name", ["pathwise", "antithetic bismut", "control"])
def test_deviations_of_40_seeds_are_those_of_the_standard_error(name):
    # B(40, 0.95) is below 33 with probability 0.07%, for each of 11 numbers; the chi-squared
    # bounds are those of 0.05% on each side.
    for key, z in deviations(SETTINGS[name], 40).items():
        assert int((z.abs() < 1.95996).sum()) >= 33, key
        assert 16.9 < float((z**2).sum()) < 76.1, key


def test_the_runs_of_many_seeds_are_those_of_greeks():
    setting = SETTINGS["control, antithetic"]
    report = greeks(
        setting.model, setting.payoff, setting.x0, paths=4000, steps=setting.steps, seed=5,
        wrt=setting.wrt, estimator=setting.estimator, antithetic=True, control=setting.controls,
    )  # fmt: skip
    found = estimates(setting, [(4, 2000), (5, 4000)])
    assert {name: values[1] for name, values in found.items()} == report.entries


SIZES = {
    "Black-Scholes": Setting("auto", CALL, "all"),
    "Black-Scholes, digital": Setting("auto", DIGITAL, "all"),
    "Heston": Setting("auto", CALL, "all", HESTON, (100.0, 0.0175), steps=4),
    "Merton": Setting("auto", CALL, "all", MERTON),
    "two assets": Setting("auto", Exchange(1.0), "all", TWO, (100.0, 95.0), steps=1),
    "Black-Scholes, second": Setting("auto", CALL, order=2),
    "Heston, second": Setting("auto", CALL, ("spot",), HESTON, (100.0, 0.0175), steps=4, order=2),
    "Merton, second": Setting("auto", CALL, ("spot",), MERTON, order=2),
    "two assets, second": Setting("auto", Exchange(1.0), "spots[0]", TWO, (100.0, 95.0), 1, 2),
}


@pytest.mark.parametrize("name", SIZES)
def test_four_times_the_paths_halve_every_standard_error(name):
    found = estimates(SIZES[name], [(1, 50_000), (2, 200_000)])
    for key, (few, many) in found.items():
        if (many.value, many.stderr) != (0.0, 0.0):  # an input that has no influence
            assert few.stderr / many.stderr == pytest.approx(2, rel=0.1), key
