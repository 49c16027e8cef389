import itertools
import math
import time

import pytest
import torch
import torchsde
from torch import nn

import sdesens
import sdesens.problem
from sdesens import BrownianPath
from sdesens.models import GeometricBrownianMotion, Heston, NeuralSDE, OrnsteinUhlenbeck
from tests.problems import MODES, Field, assert_close, jacobian
from tests.solver_table import LEVY_AREA

ALL = (*MODES, "auto")
X0 = torch.tensor([[0.3, -0.7], [1.1, 0.2], [0.0, 0.5]], dtype=torch.float64)
TS = torch.linspace(0, 1, 5, dtype=torch.float64)
EULER = {"method": "euler", "dt": 0.125, "seed": 3}


class Elementwise:
    """Drift and diffusion that act entry by entry, nonlinear and dependent on time."""

    def __init__(self, sde_type="ito", noise_type="diagonal"):
        self.sde_type, self.noise_type = sde_type, noise_type

    def f(self, t, y):
        return torch.sin(y + t) - 0.3 * y

    def g(self, t, y):
        out = 0.4 * torch.cos(2 * y - t) + 0.5
        return out if self.noise_type == "diagonal" else out.unsqueeze(-1)


# --- the path is that of torchsde -----------------------------------------------------------------

SOLVERS = [
    ("ito", "euler", {}),
    ("ito", "milstein", {"grad_free": True}),
    ("ito", "srk", {}),
    ("stratonovich", "euler_heun", {}),
    ("stratonovich", "heun", {}),
    ("stratonovich", "midpoint", {}),
    ("stratonovich", "log_ode", {}),
    ("stratonovich", "reversible_heun", {}),
]
TIMES = {
    "on the steps": TS,
    "between the steps": torch.tensor([0.0, 0.07, 0.1, 0.333, 0.9, 1.0], dtype=torch.float64),
    "several in one step": torch.tensor([0.0, 0.01, 0.02, 0.03, 1.0], dtype=torch.float64),
    "from elsewhere": torch.tensor([-0.37, 0.1, 0.63], dtype=torch.float64),
    "float32": torch.tensor([0.0, 0.07, 0.1, 0.333, 0.9, 1.0]),
    "with a cut last step": torch.tensor([0.0, 0.5, 0.99], dtype=torch.float64),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize(("sde_type", "method", "options"), SOLVERS)
def test_the_path_is_that_of_torchsde_bit_for_bit(mode, times, sde_type, method, options):
    sde, ts = Elementwise(sde_type), TIMES[times]
    arguments = {"method": method, "dt": 0.125, "options": options}
    sens = sdesens.sensitivities(sde, X0, ts, mode=mode, seed=3, **arguments)
    nodes = sdesens.problem.Grid.of(ts, 0.125).nodes.tolist()
    area = LEVY_AREA.get(method, "none")
    bm = BrownianPath.on_grid(nodes, (3, 2), 3, dtype=torch.float64, levy_area=area)
    own = sdesens.sensitivities(sde, X0, ts, mode=mode, bm=bm, **arguments)
    with torch.no_grad():
        expected = torchsde.sdeint(sde, X0, ts, bm=bm, **arguments)
    assert isinstance(expected, torch.Tensor)
    assert torch.equal(own.x, expected)
    # Nodes of our own and those of the solver differ by the rounding of the times.
    assert_close(sens.x, expected, 1e-13 if ts.dtype is torch.float64 else 1e-5)


@pytest.mark.parametrize("mode", ["vjp", "jvp"])
@pytest.mark.parametrize("sde_type", ["ito", "stratonovich"])
def test_the_path_of_derivative_milstein_is_that_of_torchsde_bit_for_bit(mode, sde_type):
    bm = BrownianPath(0, 1, (3, 2), 8, 3, dtype=torch.float64)
    arguments = {"method": "milstein", "dt": 0.125, "bm": bm}
    sens = sdesens.sensitivities(Elementwise(sde_type), X0, TS, mode=mode, **arguments)
    expected = torchsde.sdeint(Elementwise(sde_type), X0, TS, **arguments)
    assert isinstance(expected, torch.Tensor)
    assert torch.equal(sens.x, expected)


@pytest.mark.parametrize("mode", MODES)
def test_the_path_with_matrix_products_is_that_of_torchsde_to_rounding(mode):
    bm = BrownianPath(0, 1, (3, 3), 8, 3, dtype=torch.float64)
    arguments = {"method": "euler", "dt": 0.125, "bm": bm}
    sens = sdesens.sensitivities(Field("ito", "general"), X0, TS, mode=mode, **arguments)
    expected = torchsde.sdeint(Field("ito", "general"), X0, TS, **arguments)
    assert isinstance(expected, torch.Tensor)
    assert_close(sens.x, expected.detach(), 1e-14)


@pytest.mark.parametrize("mode", MODES)
def test_a_brownian_motion_of_torchsde_is_taken_too(mode):
    bm = torchsde.BrownianInterval(0.0, 1.0, size=(3, 2), dtype=torch.float64, entropy=5, dt=0.125)
    arguments = {"method": "euler", "dt": 0.125, "bm": bm}
    sens = sdesens.sensitivities(Elementwise(), X0, TS, mode=mode, **arguments)
    expected = torchsde.sdeint(Elementwise(), X0, TS, **arguments)
    assert isinstance(expected, torch.Tensor)
    assert torch.equal(sens.x, expected)
    assert sens.seed is None
    reference = jacobian(Elementwise(), X0, TS, mode="vjp", **arguments)
    assert_close(sens.derivatives()["x0"], reference, 1e-14)


@pytest.mark.parametrize("mode", MODES)
def test_the_default_step_is_that_of_torchsde(mode):
    bm = BrownianPath(0, 0.02, (3, 2), 20, 3, dtype=torch.float64)
    ts = torch.tensor([0.0, 0.0075, 0.02], dtype=torch.float64)
    sens = sdesens.sensitivities(Elementwise(), X0, ts, mode=mode, method="euler", bm=bm)
    expected = torchsde.sdeint(Elementwise(), X0, ts, method="euler", bm=bm)
    assert isinstance(expected, torch.Tensor)
    assert torch.equal(sens.x, expected)
    assert sens.dt == 1e-3


@pytest.mark.parametrize("mode", MODES)
def test_no_second_solve_is_spent_on_the_path(mode):
    """``vjp`` takes all steps again at once under vmap; a handful of calls probe the model."""
    calls = 0

    def f(t, y):
        nonlocal calls
        calls += 1
        return torch.sin(y + t)

    sde = Elementwise()
    sde.f = f
    steps = 400
    arguments = {"method": "euler", "dt": 1 / steps, "seed": 0}
    sdesens.sensitivities(sde, X0[:, :1], TS, mode=mode, **arguments)
    assert steps <= calls <= steps + 12


@pytest.mark.parametrize("mode", MODES)
def test_noise_is_asked_for_once_a_step(mode):
    class Counting(BrownianPath):
        queries = 0

        def __call__(self, ta, tb=None, return_U=False, return_A=False):
            if tb is not None and float(tb) > float(ta):
                type(self).queries += 1
            return super().__call__(ta, tb, return_U, return_A)

    bm = Counting(0, 1, (3, 2), 100, dtype=torch.float64)
    sdesens.sensitivities(Elementwise(), X0, TS, mode=mode, method="euler", dt=0.01, bm=bm)
    assert Counting.queries == 100


@pytest.mark.parametrize("mode", MODES)
def test_four_times_the_steps_take_about_four_times_as_long_with_log_ode(mode):
    """torchsde walks the whole graph behind it at every step: 16 times, unless it ends."""

    def seconds(steps):
        ts = torch.linspace(0, 1, steps + 1, dtype=torch.float64)
        arguments = {"mode": mode, "method": "log_ode", "dt": 1 / steps, "seed": 0}
        start = time.perf_counter()
        jacobian(Field("stratonovich", "general"), X0, ts, **arguments)
        return time.perf_counter() - start

    seconds(8)
    short, long = min(seconds(60), seconds(60)), min(seconds(240), seconds(240))
    assert long < 8 * short


# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize("noise_type", ["diagonal", "scalar", "additive", "general"])
def test_shapes_are_time_by_sample_by_output_by_input(mode, noise_type):
    sens = sdesens.sensitivities(
        Field("ito", noise_type), X0, TS, mode=mode, wrt=("rows", "x0", "level"), **EULER
    )
    m = Field.channels[noise_type]
    assert sens.x.shape == (5, 3, 2)
    assert sens.derivatives()["x0"].shape == (5, 3, 2, 2)
    assert sens.dparams["rows"].shape == (5, 3, 2, 2, m)
    assert sens.dparams["level"].shape == (5, 3, 2)
    assert list(sens.derivatives()) == ["x0", "rows", "level"]
    assert sens.ts.tolist() == TS.tolist()
    assert (sens.method, sens.dt, sens.seed) == ("euler", 0.125, 3)
    assert all(not v.requires_grad for v in (sens.x, *sens.derivatives().values()))


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("batch", [0, 1])
def test_no_sample_and_one_sample_are_fine(mode, batch, d):
    model = NeuralSDE(d, 3)
    x0 = X0[:batch, :d]
    arguments = {"mode": mode, "wrt": ("x0", "inner_bias"), **EULER}
    sens = sdesens.sensitivities(model, x0, TS, **arguments)
    assert sens.x.shape == (5, batch, d)
    assert sens.derivatives()["x0"].shape == (5, batch, d, d)
    assert sens.dparams["inner_bias"].shape == (5, batch, d, 3)
    more = sdesens.sensitivities(model, X0[:, :d], TS, **arguments)
    for name, value in sens.derivatives().items():
        assert_close(value, more.derivatives()[name][:, :batch], 1e-14)


@pytest.mark.parametrize("mode", ALL)
def test_samples_do_not_see_each_other(mode):
    whole = jacobian(Field("ito", "general"), X0, TS, mode=mode, **EULER)
    for b in range(3):
        bm = BrownianPath(0, 1, (1, 3), 8, 3, dtype=torch.float64, first_path=b)
        alone = jacobian(
            Field("ito", "general"), X0[b : b + 1], TS, mode=mode, method="euler", dt=0.125, bm=bm
        )
        assert_close(alone[:, 0], whole[:, b], 1e-14)


def test_a_result_is_frozen_and_shows_its_shapes():
    sens = sdesens.sensitivities(Field("ito", "diagonal"), X0, TS, wrt=("x0", "level"), **EULER)
    with pytest.raises(AttributeError):
        sens.x = X0  # pyright: ignore
    assert repr(sens) == (
        "Sensitivities(x=(5, 3, 2), dx0=(5, 3, 2, 2), dlevel=(5, 3, 2), mode='tangent', "
        "method='euler', dt=0.125, seed=3)"
    )


# --- chunks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("noise_type", ["diagonal", "general"])
def test_chunks_never_change_the_result(mode, chunk_size, noise_type):
    arguments = {"mode": mode, "wrt": ("x0", "mix", "level"), **EULER}
    whole = sdesens.sensitivities(Field("ito", noise_type), X0, TS, **arguments)
    parts = sdesens.sensitivities(
        Field("ito", noise_type), X0, TS, chunk_size=chunk_size, **arguments
    )
    assert_close(parts.x, whole.x, 1e-15)
    for name, value in whole.derivatives().items():
        assert_close(parts.derivatives()[name], value, 1e-14)


@pytest.mark.parametrize("chunk_size", [1, 3, None])
@pytest.mark.parametrize("mode", MODES)
def test_chunks_of_reversible_heun_carry_its_second_state_on(mode, chunk_size):
    sde = Field("stratonovich", "general")
    arguments = {"method": "reversible_heun", "dt": 0.125, "seed": 3}
    J = jacobian(sde, X0, TS, mode=mode, chunk_size=chunk_size, **arguments)
    assert_close(J, jacobian(sde, X0, TS, mode="tangent", **arguments), 1e-13)


# --- auto -----------------------------------------------------------------------------------------


def test_auto_is_tangent_for_few_inputs_and_vjp_for_many_parameters():
    def mode(wrt, ts):
        return sdesens.sensitivities(
            NeuralSDE(2, 8), X0, ts, mode="auto", wrt=wrt, method="euler", dt=0.25, seed=0
        ).mode

    assert mode("x0", TS) == "tangent"
    assert mode(("x0", "inner_bias"), TS) == "tangent"  # 8 entries, T d = 10
    assert mode(("x0", "inner"), TS) == "vjp"  # 16 entries
    assert mode(("x0", "inner"), torch.linspace(0, 1, 8)) == "tangent"  # T d = 16


# --- models that some transform cannot take -------------------------------------------------------


class Branching(nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self):
        super().__init__()
        self.early = nn.Parameter(torch.tensor(1.5, dtype=torch.float64))
        self.late = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def f(self, t, y):
        return -self.early * y if t < 0.5 else -self.late * y

    def g(self, t, y):
        return torch.zeros_like(y)


@pytest.mark.parametrize("mode", ALL)
def test_control_flow_on_the_time_is_fine(mode):
    x0 = torch.ones(2, 1, dtype=torch.float64)
    sens = sdesens.sensitivities(
        Branching(), x0, TS, mode=mode, wrt=("x0", "early", "late"), method="euler", dt=0.25, seed=0
    )
    a, b = 1 - 0.25 * 1.5, 1 - 0.25 * 0.5
    assert_close(sens.derivatives()["x0"][:, 1, 0, 0], [1, a, a**2, a**2 * b, a**2 * b**2], 1e-14)
    assert_close(sens.dparams["early"][-1, 1], [2 * a * -0.25 * b**2], 1e-14)
    assert_close(sens.dparams["late"][-1, 1], [2 * b * -0.25 * a**2], 1e-14)


@pytest.mark.parametrize("mode", ALL)
def test_control_flow_on_the_state_is_fine(mode):
    class Thresholds:
        noise_type, sde_type = "diagonal", "ito"

        def f(self, t, y):
            return -2 * y if y.sum() > 0 else -y

        def g(self, t, y):
            return torch.zeros_like(y)

    x0 = torch.ones(1, 2, dtype=torch.float64)
    J = jacobian(Thresholds(), x0, TS, mode=mode, method="euler", dt=0.25, seed=0)
    assert_close(J[-1, 0], 0.5**4 * torch.eye(2, dtype=torch.float64), 1e-15)


@pytest.mark.parametrize("mode", ALL)
def test_batchnorm_in_evaluation_and_an_mlp_are_fine(mode):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).double()
    net.eval()

    class Net(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.net = net

        def f(self, t, y):
            return self.net(y)

        def g(self, t, y):
            return 0.1 * torch.ones_like(y)

    wrt = ("x0", "net.0.weight", "net.3.bias")
    sens = sdesens.sensitivities(Net(), X0, TS, mode=mode, wrt=wrt, **EULER)
    other = sdesens.sensitivities(Net(), X0, TS, mode="vjp", wrt=wrt, **EULER)
    for name, value in other.derivatives().items():
        assert_close(sens.derivatives()[name], value, 1e-13)


class _Sine(torch.autograd.Function):
    """The old style of autograd function: forward with ctx, no vmap, no jvp."""

    @staticmethod
    def forward(ctx, x):  # pyright: ignore
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore
        (x,) = ctx.saved_tensors
        return grad * x.cos()


def test_an_old_style_autograd_function_is_differentiated_by_vjp():
    sde, plain = Elementwise(), Elementwise()
    sde.f = lambda t, y: _Sine.apply(y)  # pyright: ignore
    plain.f = lambda t, y: y.sin()
    J = jacobian(sde, X0, TS, mode="vjp", **EULER)
    assert_close(J, jacobian(plain, X0, TS, mode="vjp", **EULER), 1e-15)
    for mode in ("jvp", "tangent"):
        with pytest.raises(sdesens.UnsupportedError, match=r"without a forward-mode rule.*'vjp'"):
            jacobian(sde, X0, TS, mode=mode, **EULER)


@pytest.mark.parametrize("mode", ALL)
def test_an_error_of_the_model_comes_through_as_it_is(mode):
    def f(t, y):
        raise ZeroDivisionError("mine")

    sde = Elementwise()
    sde.f = f
    with pytest.raises(ZeroDivisionError, match="mine"):
        jacobian(sde, X0, TS, mode=mode, **EULER)


# --- float32 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sde_type", ["ito", "stratonovich"])
def test_float32_is_float64_to_its_own_rounding(mode, sde_type):
    bm64 = BrownianPath(0, 1, (3, 2), 8, 3, dtype=torch.float64)
    method = "euler" if sde_type == "ito" else "heun"

    class Rounded(BrownianPath):
        def __call__(self, ta, tb=None, return_U=False, return_A=False):
            return bm64(ta, tb).float()

    bm32 = Rounded(0, 1, (3, 2), 8, 3, dtype=torch.float32)
    arguments = {"mode": mode, "method": method, "dt": 0.125}
    double = jacobian(Elementwise(sde_type), X0, TS, bm=bm64, **arguments)
    single = jacobian(Elementwise(sde_type), X0.float(), TS.float(), bm=bm32, **arguments)
    assert single.dtype == torch.float32
    assert_close(single, double, 1e-5)


# --- second derivatives ---------------------------------------------------------------------------

SECOND = [
    ("ito", "euler", "diagonal", {}, MODES),
    ("ito", "euler", "general", {}, MODES),
    ("ito", "srk", "diagonal", {}, MODES),
    ("ito", "milstein", "diagonal", {"grad_free": True}, MODES),
    ("ito", "milstein", "diagonal", {}, ("vjp", "jvp")),
    ("ito", "milstein", "scalar", {"grad_free": True}, MODES),
    ("stratonovich", "milstein", "diagonal", {}, ("vjp", "jvp")),
    ("stratonovich", "heun", "general", {}, MODES),
    ("stratonovich", "midpoint", "general", {}, MODES),
    ("stratonovich", "euler_heun", "general", {}, MODES),
    ("stratonovich", "log_ode", "diagonal", {}, MODES),
    ("stratonovich", "log_ode", "general", {}, MODES),
    ("stratonovich", "reversible_heun", "general", {}, MODES),
]
SECOND_CASES = [(*case[:4], mode) for case in SECOND for mode in case[4]]


@pytest.mark.parametrize(("sde_type", "method", "noise_type", "options", "mode"), SECOND_CASES)
def test_a_start_that_requires_grad_gives_second_derivatives(
    sde_type, method, noise_type, options, mode
):
    """In x0 and in parameters, of the Jacobian and of the path, against central differences."""
    sde = Field(sde_type, noise_type)
    ts = torch.tensor([0.0, 0.17, 0.4], dtype=torch.float64)
    arguments = {"method": method, "dt": 0.1, "seed": 3, "options": options}
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(3, 3, 2, 2, generator=generator, dtype=torch.float64)

    def run(x0):
        return sdesens.sensitivities(sde, x0, ts, mode=mode, wrt=("x0", "level"), **arguments)

    def scalar(sens):
        J, D = sens.derivatives()["x0"], sens.dparams["level"]
        return (weights * J).sum() + (weights[..., 0] * D).sum() + (weights[..., 1] * sens.x).sum()

    x0 = X0.clone().requires_grad_()
    second_x0, second_level = torch.autograd.grad(scalar(run(x0)), (x0, sde.level))
    h = 1e-5
    for b, j in ((0, 0), (1, 1), (2, 0)):
        move = torch.zeros_like(X0)
        move[b, j] = h
        difference = (scalar(run(X0 + move)) - scalar(run(X0 - move))) / (2 * h)
        assert second_x0[b, j].item() == pytest.approx(difference.item(), abs=2e-7, rel=1e-7)
    ends = []
    for sign in (1, -1):
        with torch.no_grad():
            sde.level.add_(sign * h)
            ends.append(scalar(run(X0)))
            sde.level.sub_(sign * h)
    difference = (ends[0] - ends[1]) / (2 * h)
    assert second_level.item() == pytest.approx(difference.item(), abs=2e-7, rel=1e-7)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "model",
    [OrnsteinUhlenbeck(1.0, 0.1, 0.3), NeuralSDE(2, 4), Heston(0.03, 1.5, 0.04, 0.3, -0.7)],
    ids=["ou", "neural", "heston"],
)
def test_the_graph_does_not_change_a_number(mode, model):
    x0 = (X0[:, : model.dim].abs() + 0.1).clone()
    plain = sdesens.sensitivities(model, x0, TS, mode=mode, **EULER)
    graph = sdesens.sensitivities(model, x0.requires_grad_(), TS, mode=mode, **EULER)
    assert graph.derivatives()["x0"].requires_grad
    assert_close(graph.x.detach(), plain.x, 1e-15)
    assert_close(graph.derivatives()["x0"].detach(), plain.derivatives()["x0"], 1e-14)


@pytest.mark.parametrize("mode", MODES)
def test_without_grad_mode_there_is_no_graph(mode):
    x0 = X0.clone().requires_grad_()
    with torch.no_grad():
        sens = sdesens.sensitivities(Field("ito", "diagonal"), x0, TS, mode=mode, **EULER)
    assert not sens.x.requires_grad
    assert not sens.derivatives()["x0"].requires_grad
    assert x0.grad is None


@pytest.mark.parametrize("mode", MODES)
def test_a_start_computed_from_something_hands_the_derivative_on(mode):
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    sens = sdesens.sensitivities(Field("ito", "diagonal"), scale * X0, TS, mode=mode, **EULER)
    (d_scale,) = torch.autograd.grad(sens.x[-1].sum(), scale, retain_graph=True)
    J = sens.derivatives()["x0"][-1].detach()
    assert_close(d_scale, torch.einsum("bij,bj->", J, X0), 1e-13)


# --- progress -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ALL)
def test_a_progress_bar_runs_to_its_end_and_changes_nothing(mode, capsys):
    arguments = {"mode": mode, **EULER}
    silent = jacobian(Field("ito", "general"), X0, TS, **arguments)
    assert capsys.readouterr() == ("", "")
    shown = jacobian(Field("ito", "general"), X0, TS, progress=True, **arguments)
    assert torch.equal(silent, shown)
    bar = capsys.readouterr().err
    assert "sensitivities (" in bar
    assert "8/8" in bar


# --- a few exact identities -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_linear_stratonovich_has_its_closed_parameter_derivatives_in_the_limit(mode):
    """``dX = a X dt + b X o dW``: ``dX/da = t X`` and ``dX/db = W X``."""

    class Linear(nn.Module):
        noise_type, sde_type = "diagonal", "stratonovich"

        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))
            self.b = nn.Parameter(torch.tensor(0.2, dtype=torch.float64))

        def f(self, t, y):
            return self.a * y

        def g(self, t, y):
            return self.b * y

    bm = BrownianPath(0, 1, (3, 1), 400, 3, dtype=torch.float64)
    x0 = torch.ones(3, 1, dtype=torch.float64)
    sens = sdesens.sensitivities(
        Linear(), x0, TS, mode=mode, wrt=("a", "b"), method="heun", dt=1 / 400, bm=bm
    )
    W = torch.stack([bm(t) for t in TS])
    assert_close(sens.x, (0.3 * TS[:, None, None] + 0.2 * W).exp(), 1e-3)
    assert_close(sens.dparams["a"], TS[:, None, None] * sens.x, 2e-3)
    assert_close(sens.dparams["b"], W * sens.x, 2e-3)


@pytest.mark.parametrize("mode", MODES)
def test_several_assets_have_a_diagonal_jacobian_of_ratios(mode):
    model = GeometricBrownianMotion(
        torch.tensor([0.05, 0.1]).double(), torch.tensor([0.2, 0.3]).double()
    )
    x0 = torch.tensor([[100.0, 50.0], [80.0, 20.0]], dtype=torch.float64)
    sens = sdesens.sensitivities(model, x0, TS, mode=mode, **EULER)
    assert_close(sens.derivatives()["x0"], torch.diag_embed(sens.x / x0), 1e-13)


def test_all_pairs_of_modes_agree_on_a_long_path_of_a_neural_sde():
    x0 = X0.repeat(2, 2)
    ts = torch.linspace(0, 2, 41, dtype=torch.float64)
    found = {
        mode: sdesens.sensitivities(
            NeuralSDE(4, 8), x0, ts, mode=mode, wrt=("x0", "outer_bias"), dt=0.05, seed=0
        )
        for mode in MODES
    }
    for a, b in itertools.combinations(MODES, 2):
        for name, value in found[a].derivatives().items():
            assert_close(value, found[b].derivatives()[name], 1e-12 * math.exp(2))
