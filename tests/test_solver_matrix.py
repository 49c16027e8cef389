import itertools

import pytest
import torch

import sdesens
from tests.problems import MODES, Field, assert_close
from tests.solver_table import (
    NOISE_TYPES,
    PAGE,
    SDE_TYPES,
    SOLVERS,
    TS,
    outcome,
    path_of,
    reference,
    render,
    solved,
    split,
    start,
)

COMBINATIONS = list(itertools.product(SOLVERS, SDE_TYPES, NOISE_TYPES))
WORKING = [
    (solver, sde_type, noise_type)
    for solver, sde_type, noise_type in COMBINATIONS
    if (sde_type == "ito") == (split(solver)[0] in ("euler", "milstein", "srk"))
    or split(solver)[0] == "milstein"
    if not (split(solver)[0] in ("milstein", "srk") and noise_type == "general")
]


@pytest.mark.parametrize(("solver", "sde_type", "noise_type"), WORKING)
def test_all_modes_equal_each_other_and_a_central_difference(solver, sde_type, noise_type):
    expected = reference(solver, sde_type, noise_type)
    found = {k: v for k, v in outcome(solver, sde_type, noise_type).items() if isinstance(v, dict)}
    assert {"vjp", "jvp"} <= set(found)
    for mode, derivatives in found.items():
        assert_close(derivatives["x"], expected["x"], 1e-14)
        for name in ("x0", "mix", "level", "rows"):
            assert_close(derivatives[name], expected[name], 1e-6)
            assert_close(derivatives[name], found["vjp"][name], 1e-10)
            assert derivatives[name].abs().max() > 1e-2, (mode, name)


@pytest.mark.parametrize(("solver", "sde_type", "noise_type"), WORKING)
def test_only_derivative_milstein_has_no_tangent_mode(solver, sde_type, noise_type):
    refused = {k: v for k, v in outcome(solver, sde_type, noise_type).items() if isinstance(v, str)}
    if solver == "milstein" and noise_type != "additive":
        assert list(refused) == ["tangent"]
        assert "grad_free" in refused["tangent"]
        assert noise_type in refused["tangent"]
    else:
        assert not refused


@pytest.mark.parametrize(
    ("solver", "sde_type", "noise_type"), [c for c in COMBINATIONS if c not in WORKING]
)
def test_a_solver_that_does_not_apply_is_refused_with_those_that_do(solver, sde_type, noise_type):
    fitting = [
        s for s in SOLVERS if s != "milstein grad_free" and (s, sde_type, noise_type) in WORKING
    ]
    assert not solved(solver, sde_type, noise_type)
    for message in outcome(solver, sde_type, noise_type).values():
        assert isinstance(message, str)
        for word in (repr(split(solver)[0]), sde_type, noise_type, str(fitting)):
            assert word in message


@pytest.mark.parametrize("noise_type", NOISE_TYPES)
@pytest.mark.parametrize("sde_type", SDE_TYPES)
def test_the_default_method_is_that_of_torchsde(sde_type, noise_type):
    sens = sdesens.sensitivities(
        Field(sde_type, noise_type), start(), TS[:2], dt=0.17, seed=0, mode="vjp"
    )
    ito = "euler" if noise_type == "general" else "srk"
    assert sens.method == ("midpoint" if sde_type == "stratonovich" else ito)


@pytest.mark.parametrize("mode", MODES)
def test_log_ode_takes_davies_area_too(mode):
    bm = sdesens.BrownianPath(0.0, 0.4, (2, 3), 4, seed=3, dtype=torch.float64, levy_area="davie")
    sde = Field("stratonovich", "general")
    arguments = {"method": "log_ode", "dt": 0.1, "bm": bm}
    sens = sdesens.sensitivities(sde, start(), TS, mode=mode, **arguments)
    foster = outcome("log_ode", "stratonovich", "general")[mode]
    assert isinstance(foster, dict)
    difference = (sens.derivatives()["x0"] - foster["x0"]).abs().max()
    assert 1e-8 < difference < 0.2
    assert sdesens.compare_modes(sde, start(), TS, **arguments).agree


def test_srk_takes_a_bm_with_a_levy_area_of_log_ode():
    assert path_of("log_ode", "diagonal").levy_area_approximation == "foster"
    sens = sdesens.sensitivities(
        Field("ito", "diagonal"),
        start(),
        TS,
        method="srk",
        dt=0.1,
        bm=path_of("log_ode", "diagonal"),
    )
    expected = outcome("srk", "ito", "diagonal")["tangent"]
    assert isinstance(expected, dict)
    assert torch.equal(sens.derivatives()["x0"], expected["x0"])


def test_the_page_says_what_was_found():
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python -m tests.solver_table"
