"""What holds for the own schemes of every model."""

import inspect
import math

import pytest
import torch

import sdesens.models
from sdesens import montecarlo
from sdesens.errors import UncompiledWarning
from sdesens.fused import kernel
from sdesens.montecarlo import job as job_module
from sdesens.sde import SDE
from tests.models.zoo import MODELS, SCHEMES, Inputs, channels, draw, number, step, walk

DECLARED = [
    (kind, name, scheme)
    for name, (model, _) in MODELS.items()
    for kind in ("conditionally_lognormal", "conditionally_normal")
    for scheme in getattr(model, kind)
]


def test_the_zoo_has_every_model():
    exported = {v for v in vars(sdesens.models).values() if inspect.isclass(v)}
    assert exported == {type(model) for model, _ in MODELS.values()}
    for model in exported:
        assert issubclass(model, SDE)


@pytest.mark.parametrize(("kind", "name", "scheme"), DECLARED)
def test_a_component_moves_by_its_channel_as_declared(kind, name, scheme):
    model, x0 = MODELS[name]
    component, channel = getattr(model, kind)[scheme]
    column = list(model.state).index(component)
    values = torch.tensor([-1.3, 0.2, 0.9, 2.2], dtype=torch.float64)
    z = draw(model, scheme, 1, 7)[0]
    z = z.repeat_interleave(4, dim=1)
    z[channel] = values.repeat(7)

    def ends(scale):
        y = number(x0).repeat(28, 1)
        y[:, column] *= scale
        return step(model, scheme, number(0.1), z, y).view(7, 4, -1)

    end = ends(1.0)
    moved = end[..., column]
    if kind == "conditionally_lognormal":
        moved = moved.log()
        assert_close_all(ends(1.7)[..., column].log() - math.log(1.7), moved)
    slope = (moved[:, 1] - moved[:, 0]) / 1.5
    assert (slope.abs() > 1e-6).all()
    assert_close_all(moved, moved[:, :1] + slope[:, None] * (values + 1.3))
    others = torch.cat([end[..., :column], end[..., column + 1 :]], dim=-1)
    assert torch.equal(others, others[:, :1].expand_as(others))


def assert_close_all(a, b):
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_declarations_name_what_there_is():
    for model, _ in MODELS.values():
        for kind in (model.conditionally_lognormal, model.conditionally_normal):
            for scheme, (component, channel) in kind.items():
                assert scheme in (*model.schemes, "euler")
                assert component in model.state and channel < channels(model, scheme)
        assert set(model.scheme_channels) <= set(model.schemes)
        assert model.likelihood is None or model.likelihood in model.state


LAW = ("intensity", "maturity")  # of a jump model: their derivative is in the likelihood


@pytest.mark.parametrize(("name", "scheme"), SCHEMES)
def test_the_derivative_of_a_scheme_is_that_of_a_bump_on_the_same_noise(name, scheme):
    model, x0 = MODELS[name]
    inputs = Inputs(model, scheme, x0, draw(model, scheme, 3, 50))
    for k, label in enumerate(inputs.labels):
        h = 1e-6 * (1 + abs(inputs.at[k].item()))
        unit = torch.zeros_like(inputs.at)
        unit[k] = h
        central = (inputs(inputs.at + unit) - inputs(inputs.at - unit)) / (2 * h)
        exact = inputs.along(k, inputs.at)
        if model.likelihood is not None:
            central, exact = central[:, :1], exact[:, :1]  # the spot's
        scale = 1 + central.abs().max()
        assert (exact - central).abs().max() < 1e-7 * scale, label


@pytest.mark.parametrize(("name", "scheme"), SCHEMES)
def test_the_second_derivative_of_a_scheme_is_that_of_a_bump_of_the_first(name, scheme):
    model, x0 = MODELS[name]
    inputs = Inputs(model, scheme, x0, draw(model, scheme, 2, 50))
    for j, k in [(0, len(x0)), (len(x0), len(x0) + 1), (len(x0) + 1, len(x0) + 1)]:
        h = 1e-6 * (1 + abs(inputs.at[j].item()))
        unit = torch.zeros_like(inputs.at)
        unit[j] = h
        up, down = inputs.along(k, inputs.at + unit), inputs.along(k, inputs.at - unit)
        central, exact = (up - down) / (2 * h), inputs.twice(j, k)
        if model.likelihood is not None:
            central, exact = central[:, :1], exact[:, :1]
        scale = 1 + central.abs().max()
        assert (exact - central).abs().max() < 1e-6 * scale, (inputs.labels[j], inputs.labels[k])


RECORDED = ["black-scholes", "vasicek", "cir", "heston", "sabr", "cev", "assets", "merton"]


@pytest.mark.parametrize("name", RECORDED)
def test_a_scheme_is_recorded_and_gives_the_numbers_of_torch(name, monkeypatch):
    """The recorded program, run without a compiler, which is quicker; Heston is compiled elsewhere.

    Merton's is compiled: without it a count would pass through float32 here.
    """
    model, x0 = MODELS[name]

    def ends(end):
        return {f"y{i}": end.y[:, i] for i in range(len(x0))}

    def run():
        return montecarlo.run(
            model, x0, ends, maturity=1.0, steps=3, paths=300, scheme=model.schemes[0],
            dtype=torch.float64, seed=4,
        )  # fmt: skip

    if name != "merton":
        monkeypatch.setattr(kernel, "_libraries", {})
        monkeypatch.setattr(kernel, "_load", lambda code: None)
    recorded = run()  # what cannot be recorded would warn, and warnings are errors

    def refuse(*arguments):
        raise job_module.UnrecordableError("for this test")

    monkeypatch.setattr(job_module, "compiled", refuse)
    with pytest.warns(UncompiledWarning):
        eager = run()
    for key, k in eager.places.items():
        a, b = recorded.moments.mean[recorded.places[key]], eager.moments.mean[k]
        assert abs(a - b) <= 1e-11 * (1 + abs(b)), key


DEGENERATE = {
    "black-scholes": {"sigma": 0.0},
    "vasicek": {"kappa": 0.0, "sigma": 0.0},
    "ou": {"kappa": 0.0},
    "cir": {"kappa": 0.0},
    "cir, hard": {"xi": 0.0},
    "heston": {"kappa": 0.0},
    "heston, hard": {"xi": 0.0},
    "sabr": {"nu": 0.0, "beta": 0.0},
    "cev": {"sigma": 0.0, "beta": 1.0},
    "assets": {"sigma": torch.zeros(3, dtype=torch.float64)},
    "merton": {"sigma": 0.0, "jump_std": 0.0},
}


@pytest.mark.parametrize(("name", "scheme"), [pair for pair in SCHEMES if pair[0] in DEGENERATE])
def test_degenerate_parameters_give_finite_values_and_derivatives(name, scheme):
    model, x0 = MODELS[name]
    for zeroed in [{k: v} for k, v in DEGENERATE[name].items()] + [DEGENERATE[name]]:
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        try:
            with torch.no_grad():
                for key, value in zeroed.items():
                    getattr(model, key).copy_(torch.as_tensor(value))
            inputs = Inputs(model, scheme, x0, draw(model, scheme, 3, 200))
            assert inputs(inputs.at).isfinite().all()
            for k, label in enumerate(inputs.labels):
                assert inputs.along(k, inputs.at).isfinite().all(), (zeroed, label)
        finally:
            with torch.no_grad():
                for n, p in model.named_parameters():
                    p.copy_(before[n])


@pytest.mark.parametrize(("name", "scheme"), SCHEMES)
def test_a_float32_path_stays_close_to_the_float64_one(name, scheme):
    model, x0 = MODELS[name]
    z = draw(model, scheme, 3, 200)
    y = number(x0).float().expand(200, -1)
    for normals in z.float():
        y = step(model, scheme, torch.tensor(1 / 3), normals, y)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.double(), walk(model, scheme, x0, z), rtol=2e-4, atol=2e-5)
