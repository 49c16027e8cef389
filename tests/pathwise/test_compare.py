import math

import pytest
import torch
from torch import nn

import sdesens
from sdesens.models import GeometricBrownianMotion, Heston
from sdesens.pathwise import Disagreement
from tests.problems import MODES, Field, assert_close

X0 = torch.tensor([[0.3, -0.7], [1.1, 0.2], [0.0, 0.5]], dtype=torch.float64)
TS = torch.linspace(0, 1, 5, dtype=torch.float64)
EULER = {"method": "euler", "dt": 0.25, "seed": 3}


class Model(nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self, drift, diffusion=None):
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))
        self._drift, self._diffusion = drift, diffusion

    def f(self, t, y):
        return self._drift(self.theta, y)

    def g(self, t, y):
        return 0.1 * torch.ones_like(y) if self._diffusion is None else self._diffusion(y)


@pytest.mark.parametrize("noise_type", ["diagonal", "scalar", "additive", "general"])
def test_good_models_agree(noise_type):
    report = sdesens.compare_modes(
        Field("ito", noise_type), X0, TS, wrt=("x0", "level", "mix"), **EULER
    )
    assert report.agree
    assert not report.coupled
    assert not report.refused
    assert list(report.results) == list(MODES)
    assert list(report.central) == ["x0", "level", "mix"]
    assert report.worst is report.disagreements[0]
    assert report.worst.within
    assert "All agree." in str(report)


def test_good_models_agree_in_float32():
    report = sdesens.compare_modes(Field("ito", "diagonal").float(), X0.float(), TS, **EULER)
    assert report.agree, report


def test_a_large_and_a_tiny_start_agree():
    for scale in (1e8, 1e-8):
        x0 = torch.full((3, 1), scale, dtype=torch.float64)
        report = sdesens.compare_modes(GeometricBrownianMotion(0.05, 0.2), x0, TS, **EULER)
        assert report.agree, report


def test_all_modes_are_held_against_each_other_against_torchsde_and_a_central_difference():
    report = sdesens.compare_modes(Field("ito", "diagonal"), X0, TS, wrt=("x0", "level"), **EULER)
    pairs = {(row.first, row.second, row.quantity) for row in report.disagreements}
    expected = {(m, "torchsde.sdeint", "x") for m in MODES}
    for quantity in ("dx0", "dparams['level']"):
        expected |= {(m, "central difference", quantity) for m in MODES}
        expected |= {("vjp", "jvp", quantity), ("vjp", "tangent", quantity)}
        expected |= {("jvp", "tangent", quantity)}
    assert pairs == expected
    assert len(report.disagreements) == len(expected)


def test_its_results_are_those_of_sensitivities():
    report = sdesens.compare_modes(Field("ito", "general"), X0, TS, **EULER)
    for mode in MODES:
        sens = sdesens.sensitivities(Field("ito", "general"), X0, TS, mode=mode, **EULER)
        assert torch.equal(report.results[mode].derivatives()["x0"], sens.derivatives()["x0"])
        assert_close(report.central["x0"], sens.derivatives()["x0"], 1e-8)


def hidden_part(theta, y):
    with torch.no_grad():
        part = torch.sin(theta * y)
    return part - y


def test_a_no_grad_inside_the_drift_is_found():
    """Reverse mode does not see past it; forward mode does, and is right."""
    report = sdesens.compare_modes(Model(hidden_part), X0, TS, wrt=("x0", "theta"), **EULER)
    assert not report.agree
    assert report.worst.first == "vjp"
    assert report.worst.difference > 1e-2
    beyond = {(r.first, r.second) for r in report.disagreements if not r.within}
    assert beyond == {("vjp", "jvp"), ("vjp", "tangent"), ("vjp", "central difference")}
    assert "<-- DISAGREE" in str(report)
    assert "NOT all agree" in str(report)


def test_a_detached_part_is_found_though_all_modes_agree_with_each_other():
    report = sdesens.compare_modes(
        Model(lambda theta, y: torch.sin(theta * y.detach()) - y), X0, TS, **EULER
    )
    assert not report.agree
    beyond = {r.second for r in report.disagreements if not r.within}
    assert beyond == {"central difference"}
    assert report.worst.difference > 1e-2


class _WrongJvp(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore
        return grad * ctx.saved_tensors[0].cos()

    @staticmethod
    def jvp(ctx, dx):  # pyright: ignore
        return 1.001 * dx * ctx.saved_tensors[0].cos()


def test_rules_that_contradict_each_other_are_found_between_the_right_modes():
    report = sdesens.compare_modes(Model(lambda theta, y: _WrongJvp.apply(y)), X0, TS, **EULER)
    assert not report.agree
    beyond = {(r.first, r.second) for r in report.disagreements if not r.within}
    assert beyond == {
        ("vjp", "jvp"),
        ("vjp", "tangent"),
        ("jvp", "central difference"),
        ("tangent", "central difference"),
    }


def test_it_says_where_the_disagreement_is():
    """The drift hides a part from 0.5 on in sample 1, component 0, alone: the rest agrees."""

    class Late(Model):
        def f(self, t, y):
            if t >= 0.5:
                mask = torch.zeros_like(y)
                mask[1, 0] = 1.0
                y = y - 0.5 * mask * (y - y.detach())
            return -y

    report = sdesens.compare_modes(Late(None), X0, TS, **EULER)
    row = next(r for r in report.disagreements if r.second == "central difference")
    assert not row.within
    assert (row.time_index, row.sample, row.index) == (4, 1, (0, 0))
    assert "ts[4]=1, sample 1, [0, 0]  <-- DISAGREE" in str(report)


def coupled_by_a_mean(theta, y):
    return theta * (y.mean(0) - y)


def test_a_mean_over_the_batch_is_found_though_it_is_symmetric():
    report = sdesens.compare_modes(Model(coupled_by_a_mean), X0, TS, **EULER)
    assert report.coupled
    assert not report.agree
    assert "COUPLED" in str(report)
    assert any(not r.within and r.second == "central difference" for r in report.disagreements)


def test_batchnorm_in_training_mode_is_found():
    norm = nn.BatchNorm1d(2, affine=False, dtype=torch.float64)
    report = sdesens.compare_modes(Model(lambda theta, y: norm(y)), X0, TS, **EULER)
    assert report.coupled
    assert not report.agree


def test_the_central_difference_of_coupled_samples_moves_one_at_a_time():
    """One Euler step of ``theta (mean - y)``: ``1 + theta dt (1/B - 1)`` of a sample in itself."""
    report = sdesens.compare_modes(Model(coupled_by_a_mean), X0, [0.0, 0.25], **EULER)
    own = 1 + 0.7 * 0.25 * (1 / 3 - 1)
    expected = (own * torch.eye(2, dtype=torch.float64)).expand(3, 2, 2)
    assert_close(report.central["x0"][1], expected, 1e-9)


def test_modes_that_do_not_apply_are_listed_with_the_reason():
    report = sdesens.compare_modes(
        Field("ito", "diagonal"), X0, TS, method="milstein", dt=0.25, seed=0
    )
    assert report.agree
    assert list(report.results) == ["vjp", "jvp"]
    assert list(report.refused) == ["tangent"]
    assert "tangent: not run. mode 'tangent' with derivative-based milstein" in str(report)


def test_nan_is_a_disagreement_and_comes_first():
    """Left of zero the root is NaN, so the central difference at zero is."""
    x0 = torch.zeros(2, 1, dtype=torch.float64)

    def drift(theta, y):
        return (y + 1e-7).sqrt()

    report = sdesens.compare_modes(Model(drift), x0, [0.0, 0.25], **EULER)
    assert not report.agree
    assert math.isnan(report.worst.difference)
    assert not report.worst.within
    assert report.worst.second == "central difference"


def test_a_difference_of_nan_is_never_within():
    row = Disagreement("vjp", "jvp", "dx0", math.nan, math.inf, 0, 0, ())
    assert not row.within


def test_an_explosion_is_raised_with_the_result():
    x0 = torch.full((2, 1), 10.0, dtype=torch.float64)
    with pytest.raises(sdesens.NonFiniteError, match="explodes"):
        sdesens.compare_modes(
            Model(lambda theta, y: y - y**3),
            x0,
            torch.linspace(0, 1, 11, dtype=torch.float64),
            method="euler",
            dt=0.1,
            seed=0,
        )


def test_a_derivative_that_is_zero_up_to_rounding_agrees():
    report = sdesens.compare_modes(
        Model(lambda theta, y: (theta * y.sin()) / theta - y), X0, TS, wrt=("x0", "theta"), **EULER
    )
    assert report.agree, report


def test_a_small_part_that_is_missing_is_found_all_the_same():
    """1e-7 of the path, in a derivative that is otherwise zero."""

    def drift(theta, y):
        return -y + 1e-7 * theta.detach() ** 2 + 0 * theta

    report = sdesens.compare_modes(Model(drift), X0, TS, wrt="theta", **EULER)
    assert not report.agree


def test_no_samples_agree():
    assert sdesens.compare_modes(Field("ito", "diagonal"), X0[:0], TS, **EULER).agree


def test_the_table_names_solver_sizes_quantities_and_tolerances(capsys):
    model = Heston(0.03, 1.5, 0.04, 0.3, -0.7)
    x0 = torch.tensor([[100.0, 0.04]] * 3, dtype=torch.float64)
    print(sdesens.compare_modes(model, x0, TS, wrt=("x0", "kappa"), **EULER))
    out = capsys.readouterr().out
    for word in (
        "euler, dt=0.25, T=5, B=3, d=2, torch.float64",
        "dx0 ",
        "dparams['kappa']",
        "vjp - central difference",
        "jvp - tangent",
        "1e-10",
        "1e-06",
        "All agree.",
    ):
        assert word in out
    assert repr(sdesens.compare_modes(model, x0, TS, wrt=("x0", "kappa"), **EULER)) == out[:-1]


def test_the_model_is_left_as_it_was():
    model = Model(hidden_part)
    theta = model.theta
    sdesens.compare_modes(model, X0, TS, wrt=("x0", "theta"), **EULER)
    assert model.theta is theta
    assert theta.item() == 0.7
    assert theta.grad is None
