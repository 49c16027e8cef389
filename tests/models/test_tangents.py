"""Closed-form tangents of every model, and constructors."""

import pytest
import torch

import sdesens
from sdesens._parameters import Places
from sdesens.errors import UnsupportedError
from sdesens.models import (
    CEV,
    CIR,
    SABR,
    BlackScholes,
    Heston,
    MertonJumpDiffusion,
    MultiAssetBlackScholes,
    Vasicek,
)
from tests.models.zoo import EQUATIONS, MODELS, number
from tests.problems import assert_close

NEW = [n for n in EQUATIONS if n not in ("gbm", "ou", "local volatility", "neural")]


def names_of(model):
    return [n for n, _ in model.named_parameters()]


@pytest.mark.parametrize("name", NEW)
@pytest.mark.parametrize("sign", [1, -1], ids=["above", "below zero"])
def test_closed_form_tangents_are_those_of_forward_mode(name, sign):
    model, x0 = EQUATIONS[name]
    assert model.has_closed_form_tangent(names_of(model))
    generator = torch.Generator().manual_seed(3)
    t, shape = number(0.3), (4, model.dim)
    y = sign * number(x0) * (0.5 + torch.rand(shape, generator=generator, dtype=torch.float64))
    if sign < 0:
        y[0] = 0.0
    dy = torch.randn(shape, generator=generator, dtype=torch.float64)
    m = model.g(t, y).shape[-1]
    values = {n: p.detach() for n, p in model.named_parameters()}

    def at(function, *tensors):
        state, *parameters = tensors
        held = dict(zip(values, parameters, strict=True))
        with Places(model, list(values)).holding(held):
            return getattr(model, function)(t, state)

    for wrt in (None, *values):
        units = {n: torch.zeros_like(v) for n, v in values.items()}
        tangents = {}
        if wrt is not None:
            flat = torch.linspace(0.5, 1.5, values[wrt].numel(), dtype=torch.float64)
            units[wrt] = tangents[wrt] = flat.reshape(values[wrt].shape)
        point, along = (y, *values.values()), (dy, *units.values())
        for function in "fg":
            exact = torch.func.jvp(lambda *a, f=function: at(f, *a), point, along)[1]
            extra = (m,) if function == "g" else ()
            closed = getattr(model, f"{function}_tangent")(t, y, dy, *extra, **tangents)
            torch.testing.assert_close(closed, exact, rtol=1e-12, atol=1e-12)
            if wrt is None:
                stacked = getattr(model, f"{function}_tangent")(
                    t, y, torch.stack([dy, 2 * dy]), *extra
                )
                assert_close(stacked[1], 2 * closed, 1e-12 * (1 + closed.abs().max().item()))


# Where Euler carries the variance near zero the root bends too much for a central difference.
@pytest.mark.parametrize("name", [name for name in NEW if "hard" not in name])
def test_all_modes_agree_in_state_and_parameters(name):
    model, x0 = EQUATIONS[name]
    report = sdesens.compare_modes(
        model, number([x0, x0]), [0.0, 0.1, 0.25], wrt=("x0", *names_of(model)), method="euler",
        dt=0.05, seed=1,
    )  # fmt: skip
    assert report.agree, report


@pytest.mark.parametrize("name", ["black-scholes", "cir", "cev"])
def test_all_modes_agree_by_milstein(name):
    model, x0 = EQUATIONS[name]
    report = sdesens.compare_modes(
        model, number([x0, x0]), [0.0, 0.1, 0.25], wrt=("x0", *names_of(model)),
        method="milstein", dt=0.05, seed=1,
    )  # fmt: skip
    assert report.agree, report


@pytest.mark.parametrize("name", ["black-scholes", "heston", "assets"])
def test_the_derivative_in_the_own_spot_is_the_quotient_by_euler(name):
    model, x0 = EQUATIONS[name]
    x = number([x0, x0])
    sens = sdesens.sensitivities(model, x, [0.0, 0.5, 1.0], method="euler", dt=0.1, seed=2)
    spots = 1 if name == "heston" else model.dim
    for i in range(spots):
        assert_close(sens.dx0[..., i, i], sens.x[..., i] / x[:, i], 1e-12)
    if name == "assets":
        assert_close(sens.dx0[-1, 0], torch.diag(sens.x[-1, 0] / x[0]), 1e-12)


MATRIX = [[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]]
BAD = {
    "sigma must be at least 0, got -0.2": lambda: BlackScholes(0.05, -0.2),
    "rate must be finite, got inf": lambda: BlackScholes(float("inf"), 0.2),
    r"rate must be a number, got shape \(2,\)": lambda: BlackScholes(torch.ones(2), 0.2),
    "mean must be finite, got nan": lambda: Vasicek(1.0, float("nan"), 0.1),
    "kappa must be at least 0, got -1.0": lambda: CIR(-1.0, 0.04, 0.1),
    "theta must be at least 0": lambda: CIR(1.0, -0.04, 0.1),
    "xi must be at least 0": lambda: Heston(0.0, 1.0, 0.04, -0.3, 0.5),
    r"rho must be in \[-1, 1\], got 1.5": lambda: Heston(0.0, 1.0, 0.04, 0.3, 1.5),
    r"rho must be in \[-1, 1\], got nan": lambda: SABR(0.5, 0.4, float("nan")),
    r"beta must be in \[0, 1\], got 1.2": lambda: CEV(0.0, 0.2, 1.2),
    r"beta must be in \[0, 1\], got -0.1": lambda: SABR(-0.1, 0.4, 0.0),
    "nu must be at least 0": lambda: SABR(0.5, -0.4, 0.0),
    "intensity must be at least 0, got -1": lambda: MertonJumpDiffusion(0.0, 0.2, -1.0, 0.0, 0.1),
    r"intensity must be above 0.*BlackScholes": lambda: MertonJumpDiffusion(0.0, 0.2, 0, 0.0, 0.1),
    "jump_std must be at least 0": lambda: MertonJumpDiffusion(0.0, 0.2, 1.0, 0.0, -0.1),
    r"positive semi-definite.*eigenvalue is -0.8": lambda: MultiAssetBlackScholes(
        0.0, [0.2, 0.2, 0.2], MATRIX
    ),
    r"matrix of shape \(3, 3\) or its pairs \(3,\).*got shape \(2,\)": lambda: (
        MultiAssetBlackScholes(0.0, [0.2, 0.2, 0.2], [0.1, 0.2])
    ),
    r"symmetric.*got 0.5 at \(0, 1\) and 0.4 at \(1, 0\)": lambda: MultiAssetBlackScholes(
        0.0, [0.2, 0.2], [[1.0, 0.5], [0.4, 1.0]]
    ),
    r"ones on its diagonal, got 2 at \(1, 1\)": lambda: MultiAssetBlackScholes(
        0.0, [0.2, 0.2], [[1.0, 0.5], [0.5, 2.0]]
    ),
    r"correlation must be in \[-1, 1\], got 1.1": lambda: MultiAssetBlackScholes(
        0.0, [0.2, 0.2], [1.1]
    ),
    "at least two assets": lambda: MultiAssetBlackScholes(0.0, [0.2], [[1.0]]),
    r"dividend must be a number or have shape \(2,\)": lambda: MultiAssetBlackScholes(
        0.0, [0.2, 0.2], [0.5], [0.0, 0.0, 0.0]
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_a_constructor_names_the_argument_that_does_not_fit(message):
    with pytest.raises(ValueError, match=message):
        BAD[message]()


@pytest.mark.parametrize("mode", ["vjp", "jvp", "tangent", "auto"])
def test_a_model_that_jumps_is_refused_by_every_solver(mode):
    model, x0 = MODELS["merton"]
    with pytest.raises(UnsupportedError, match=r"Merton.*no drift.*scheme='exact'"):
        sdesens.sensitivities(model, number([x0]), [0.0, 1.0], dt=0.5, mode=mode)
    with pytest.raises(UnsupportedError, match=r"Merton.*no drift.*scheme='exact'"):
        sdesens.sensitivities(model, number([x0]), [0.0, 1.0], dt=0.5, mode=mode, method="euler")
