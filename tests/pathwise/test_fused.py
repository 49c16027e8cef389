from collections import OrderedDict
from typing import Any

import pytest
import torch
import torchsde

import sdesens
from sdesens.errors import NonFiniteError, UncompiledWarning, UnsupportedError
from sdesens.fused import engine, kernel
from sdesens.models import (
    GeometricBrownianMotion,
    Heston,
    LocalVolatility,
    NeuralSDE,
    OrnsteinUhlenbeck,
)
from sdesens.solve import methods_for
from tests.problems import Field, assert_close
from tests.solver_table import DT, NOISE_TYPES, SDE_TYPES, SOLVERS, TS, WRT, path_of, split, start

MATRIX = torch.tensor([[1.0, -2.0], [0.3, 0.5]], dtype=torch.float64)
MODELS = {
    "ou": (OrnsteinUhlenbeck(1.0, 0.2, 0.5), [[0.3]], ("x0", "kappa", "mean", "sigma")),
    "ou matrix": (OrnsteinUhlenbeck(MATRIX, 0.2, MATRIX + 1), [[0.3, 1.0]], ("kappa", "sigma")),
    "gbm": (GeometricBrownianMotion(0.05, 0.2), [[100.0]], ("sigma", "x0")),
    "heston": (
        Heston(0.03, 1.5, 0.04, 0.3, -0.7),
        [[100.0, 0.04]],
        ("x0", "rate", "kappa", "theta", "xi", "rho"),
    ),
    "neural": (NeuralSDE(2, 6), [[0.3, -0.4]], ("x0", "inner", "noise_scale")),
}  # fmt: skip


def compare(model, x0, ts, tolerance=1e-10, **arguments):
    """The fused engine against torchsde, relative to the size of each derivative."""
    fused = sdesens.sensitivities(model, x0, ts, engine="fused", **arguments)
    mode = "auto" if arguments.get("method") == "milstein" else "tangent"
    plain = sdesens.sensitivities(model, x0, ts, mode=mode, **arguments)
    assert_close(fused.x / plain.x.abs().max(), plain.x / plain.x.abs().max(), tolerance)
    assert list(fused.derivatives()) == list(plain.derivatives())
    for name, right in plain.derivatives().items():
        size = right.abs().max().clamp(min=1e-3)
        assert_close(fused.derivatives()[name] / size, right / size, tolerance)
    return fused


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setattr(kernel, "_load", lambda code: None)
    monkeypatch.setattr(kernel, "_libraries", {})
    monkeypatch.setattr(engine, "_engines", OrderedDict())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_the_numbers_of_torchsde(name, dtype):
    model, x0, wrt = MODELS[name]
    x0 = torch.tensor(x0, dtype=dtype).repeat(3, 1) * torch.tensor([[1.0], [1.1], [0.7]]).to(dtype)
    tolerance = 1e-10 if dtype is torch.float64 else 2e-4
    ts = torch.linspace(0, 1, 21, dtype=dtype)
    compare(model, x0, ts, tolerance, wrt=wrt, method="euler", dt=0.05, seed=3)


COMBINATIONS = [
    (sde_type, noise_type, solver)
    for sde_type in SDE_TYPES
    for noise_type in NOISE_TYPES
    for solver in SOLVERS
    if split(solver)[0] in methods_for(sde_type, noise_type)
]


@pytest.mark.filterwarnings("ignore::sdesens.AccuracyWarning")  # milstein with scalar noise
@pytest.mark.parametrize(("sde_type", "noise_type", "solver"), COMBINATIONS)
def test_every_solver_has_the_numbers_of_torchsde(sde_type, noise_type, solver, no_compiler):
    method, options = split(solver)
    field = Field(sde_type, noise_type)
    compare(
        field, start(), TS, wrt=WRT, method=method, dt=DT, options=options,
        bm=path_of(method, noise_type),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sde_type", "noise_type", "method"),
    [("stratonovich", "general", "log_ode"), ("ito", "diagonal", "srk")],
)
def test_solvers_of_many_stages_compile(sde_type, noise_type, method):
    bm = path_of(method, noise_type)
    field = Field(sde_type, noise_type)
    compare(field, start(), TS, wrt=("x0", "level"), method=method, dt=DT, bm=bm)


OU, (OU_X0,), OU_WRT = MODELS["ou"]


def many(batch):
    return torch.linspace(-1, 1, batch, dtype=torch.float64)[:, None]


@pytest.mark.parametrize("batch", [1, 17, 300])
def test_any_number_of_paths(batch):
    ts = torch.linspace(0, 1, 21, dtype=torch.float64)
    compare(OU, many(batch), ts, wrt=OU_WRT, method="euler", dt=0.05, seed=3)


def test_times_between_the_steps_are_interpolated():
    compare(OU, many(3), [0.0, 0.03, 0.31, 0.99, 1.0], wrt=OU_WRT, method="euler", dt=0.05, seed=3)
    compare(OU, many(3), [0.0, 0.99], wrt=OU_WRT, method="euler", dt=0.3, seed=3)


@pytest.mark.parametrize("make", ["later paths", "coarse", "interval"])
def test_any_brownian_motion_may_be_given(make):
    ts = torch.linspace(0, 1, 21, dtype=torch.float64)
    if make == "interval":
        bm = torchsde.BrownianInterval(0.0, 1.0, (3, 1), dtype=torch.float64, dt=0.05, entropy=5)
    else:
        steps = 60 if make == "coarse" else 20
        bm = sdesens.BrownianPath(
            0.0, 1.0, (3, 1), steps, seed=2**33, dtype=torch.float64, first_path=77
        )
        bm = bm.coarsen(3) if make == "coarse" else bm
    compare(OU, many(3), ts, wrt=OU_WRT, method="euler", dt=0.05, bm=bm)


def test_one_time_gives_the_identity():
    sens = sdesens.sensitivities(OU, many(2), [0.5], method="euler", engine="fused", seed=1)
    assert_close(sens.dx0, torch.ones(1, 2, 1, 1), 0.0)


def test_a_model_that_reads_scipy_goes_through_torchsde_with_a_warning():
    spots = torch.linspace(50, 200, 31)
    vols = (0.2 + 1e-5 * (spots - 100.0) ** 2).expand(4, -1)
    model = LocalVolatility(0.03, [0.0, 0.5, 1.0, 2.0], spots, vols)
    x0 = torch.full((2, 1), 100.0, dtype=torch.float64)
    with pytest.warns(UncompiledWarning, match="LocalVolatility"):
        compare(model, x0, [0.0, 1.0], wrt=("x0", "shift"), method="euler", dt=0.25, seed=1)


def test_a_model_that_holds_a_number_for_each_sample_goes_through_torchsde():
    class PerSample:
        noise_type, sde_type = "diagonal", "ito"

        def f(self, t, y):
            return -torch.tensor([[0.5], [1.0], [2.0]], dtype=y.dtype) * y

        def g(self, t, y):
            return 0.1 + 0 * y

    x0, ts = torch.ones(3, 1, dtype=torch.float64), torch.linspace(0, 1, 11, dtype=torch.float64)
    with pytest.warns(UncompiledWarning, match="PerSample"):
        sens = compare(PerSample(), x0, ts, method="euler", dt=0.1, seed=1)
    assert_close(sens.dx0[-1, :, 0, 0], [0.95**10, 0.9**10, 0.8**10], 1e-13)


def test_derivatives_in_very_many_parameters_go_through_torchsde(monkeypatch):
    monkeypatch.setattr("sdesens.fused.trace.MAX_NODES", 400)
    monkeypatch.setattr(engine, "_engines", OrderedDict())
    model, x0 = NeuralSDE(2, 6), torch.ones(1, 2, dtype=torch.float64)
    with pytest.warns(UncompiledWarning, match="many parameters"):
        compare(model, x0, [0.0, 1.0], wrt=("x0", "inner"), method="euler", dt=0.5, seed=1)


def test_what_the_engine_does_not_do_is_refused():
    arguments: dict[str, Any] = {"method": "euler", "dt": 0.5, "engine": "fused"}
    with pytest.raises(ValueError, match="mode must be 'tangent'"):
        sdesens.sensitivities(OU, many(1), [0.0, 1.0], mode="vjp", **arguments)
    with pytest.raises(UnsupportedError, match=r"x0\.detach"):
        sdesens.sensitivities(OU, many(1).requires_grad_(), [0.0, 1.0], **arguments)
    with pytest.raises(ValueError, match="Did you mean 'fused'"):
        sdesens.sensitivities(OU, many(1), [0.0, 1.0], **dict(arguments, engine="fussed"))


def test_an_exploding_path_is_reported_where_it_explodes():
    class Cubic:
        noise_type, sde_type = "diagonal", "ito"

        def f(self, t, y):
            return y - y**3

        def g(self, t, y):
            return torch.ones_like(y)

    ts = torch.linspace(0, 1, 11, dtype=torch.float64)
    x0 = torch.tensor([[10.0]], dtype=torch.float64)
    with pytest.raises(NonFiniteError) as caught:
        sdesens.sensitivities(Cubic(), x0, ts, method="euler", dt=0.1, seed=1, engine="fused")
    assert caught.value.time_index == 6


def test_fuse_gives_the_same_numbers_as_a_call_with_all_checks():
    ts = torch.linspace(0, 1, 21, dtype=torch.float64)
    model = OrnsteinUhlenbeck(1.0, 0.2, 0.5)
    solve = sdesens.fuse(model, many(1), ts, wrt=OU_WRT, method="euler", dt=0.05)
    arguments: dict[str, Any] = {"wrt": OU_WRT, "method": "euler", "dt": 0.05, "engine": "fused"}
    for kappa, batch, seed in ((1.0, 3, 4), (0.7, 5, 6)):
        with torch.no_grad():
            model.kappa.fill_(kappa)
        a = solve(many(batch), seed=seed)
        b = sdesens.sensitivities(model, many(batch), ts, seed=seed, **arguments)
        assert torch.equal(a.x, b.x) and a.seed == b.seed
        assert all(torch.equal(v, b.derivatives()[k]) for k, v in a.derivatives().items())
    model.kappa = torch.nn.Parameter(torch.tensor(0.3, dtype=torch.float64))
    other = sdesens.sensitivities(model, many(2), ts, seed=1, **arguments)
    assert torch.equal(solve(many(2), seed=1).x, other.x)
    with pytest.raises(ValueError, match="as was prepared"):
        solve(many(2).float())
    with pytest.raises(ValueError, match="seed must be"):
        solve(many(2), seed=2**64)
    assert solve(many(2)).seed != solve(many(2)).seed
