from typing import Any

import pytest
import torch

import sdesens
from sdesens import montecarlo
from sdesens.fused.engine import fingerprint
from sdesens.fused.kernel import compile_count
from sdesens.models import GeometricBrownianMotion, OrnsteinUhlenbeck
from tests.problems import assert_close

X0 = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
TS = torch.linspace(0, 1, 5, dtype=torch.float64)


def price(gbm, strike=100.0, **changes):
    arguments: dict[str, Any] = {
        "maturity": 1.0,
        "steps": 4,
        "paths": 300,
        "wrt": ("x", "sigma"),
        "seed": 1,
    }
    payoff = lambda end: torch.relu(end.x - strike)  # noqa: E731
    return montecarlo.run(gbm, [100.0], payoff, **(arguments | changes))


def test_a_change_of_numbers_compiles_nothing():
    price(GeometricBrownianMotion(0.05, 0.2))
    sensitivities: dict[str, Any] = {"method": "euler", "engine": "fused", "seed": 1}
    gbm = GeometricBrownianMotion(0.05, 0.2)
    sdesens.sensitivities(gbm, X0, TS, dt=0.25, **sensitivities)
    before = compile_count()
    price(GeometricBrownianMotion(0.01, 0.3), strike=90.0, seed=2)
    price(GeometricBrownianMotion(0.01, 0.3), maturity=2.0, steps=9, paths=1000)
    sdesens.sensitivities(GeometricBrownianMotion(0.1, 0.3), X0[:1], TS, dt=0.05, **sensitivities)
    with torch.no_grad():
        gbm.mu.add_(0.1)
    sdesens.sensitivities(gbm, X0 + 1, TS[:3], dt=0.1, **dict(sensitivities, seed=9))
    assert compile_count() == before


def test_another_strike_is_another_number():
    gbm = GeometricBrownianMotion(0.05, 0.2)
    low, high = price(gbm, 90.0)["value"].value, price(gbm, 110.0)["value"].value
    assert low > high + 5


class Scaled(torch.nn.Module):
    """A drift with a number, a hidden table and a global that a recording would freeze."""

    noise_type, sde_type = "diagonal", "ito"
    factor = torch.tensor(1.0, dtype=torch.float64)

    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number
        self._hidden = number

    def f(self, t, y):
        return -self.number * y * Scaled.factor + self._hidden

    def g(self, t, y):
        return 0.3 * torch.cos(y)


def both(model):
    arguments: dict[str, Any] = {"method": "euler", "dt": 0.25, "seed": 1}
    fused = sdesens.sensitivities(model, X0, TS, engine="fused", **arguments)
    plain = sdesens.sensitivities(model, X0, TS, **arguments)
    assert_close(fused.x, plain.x, 1e-14)
    assert_close(fused.dx0, plain.dx0, 1e-14)
    return fused


@pytest.mark.parametrize("what", ["number", "_hidden", "factor"])
def test_a_model_that_changed_between_calls_is_recorded_anew(what):
    model = Scaled(1.0)
    before = both(model)
    if what == "factor":
        Scaled.factor = torch.tensor(2.0, dtype=torch.float64)
    else:
        setattr(model, what, 2.0)
    try:
        after = both(model)
    finally:
        Scaled.factor = torch.tensor(1.0, dtype=torch.float64)
    assert not torch.equal(after.x, before.x)


def test_a_fingerprint_tells_models_apart_and_not_their_parameters():
    a, b = OrnsteinUhlenbeck(1.0, 0.0, 0.5), OrnsteinUhlenbeck(2.0, 0.1, 0.3)
    assert fingerprint(a) == fingerprint(b)
    wide = OrnsteinUhlenbeck(torch.ones(2), 0.0, 0.5)
    assert fingerprint(a) != fingerprint(wide)
    assert fingerprint(Scaled(1.0)) != fingerprint(Scaled(2.0))
    evaluated = OrnsteinUhlenbeck(1.0, 0.0, 0.5).eval()
    assert fingerprint(a) != fingerprint(evaluated)


def test_a_model_may_refer_back_to_itself():
    model = Scaled(1.0)
    model.__dict__["owner"] = {"model": model}
    assert fingerprint(model) == fingerprint(model)
    both(model)


class Hidden:
    """A factor that acts from 0.4 on, or at once."""

    noise_type, sde_type = "diagonal", "ito"
    factor = torch.tensor(1.0, dtype=torch.float64)

    def __init__(self, late: bool) -> None:
        self.late = late

    def f(self, t, y):
        factor = torch.where(t > 0.4, Hidden.factor, 1.0) if self.late else Hidden.factor
        return -factor * y

    def g(self, t, y):
        return 0.3 * torch.ones_like(y)


@pytest.mark.parametrize(("late", "start"), [(False, 0.0), (True, 1.0)])
def test_a_change_that_the_first_step_does_not_show_is_recorded_anew(late, start):
    model, x0 = Hidden(late), torch.full((2, 1), start, dtype=torch.float64)
    arguments: dict[str, Any] = {"method": "euler", "dt": 0.25, "seed": 1}
    sdesens.sensitivities(model, x0, TS, engine="fused", **arguments)
    Hidden.factor = torch.tensor(2.0, dtype=torch.float64)
    try:
        fused = sdesens.sensitivities(model, x0, TS, engine="fused", **arguments)
        plain = sdesens.sensitivities(model, x0, TS, **arguments)
    finally:
        Hidden.factor = torch.tensor(1.0, dtype=torch.float64)
    assert_close(fused.x, plain.x, 1e-12)
    assert_close(fused.dx0, plain.dx0, 1e-12)
