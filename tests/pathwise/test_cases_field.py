"""Faults reported in public about derivatives of SDE paths, as small inputs with right values."""

import math
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.special
import torch
import torchsde
from torch import nn

import sdesens
from sdesens.autodiff import positive_sqrt
from sdesens.models import GeometricBrownianMotion, Heston, OrnsteinUhlenbeck
from tests.problems import MODES, assert_close, central, jacobian

ALL = (*MODES, "auto")


def ou1():
    """``dX = -X dt + dW``."""
    return OrnsteinUhlenbeck(kappa=1.0, mean=0.0, sigma=1.0)


def gbm():
    return GeometricBrownianMotion(mu=0.05, sigma=0.2)


def grid(end, points):
    return torch.linspace(0, end, points, dtype=torch.float64)


def zeros(B=1, d=1):
    return torch.zeros(B, d, dtype=torch.float64)


class Plain:
    """Drift and diffusion for torchsde, diagonal noise."""

    noise_type, sde_type = "diagonal", "ito"

    def __init__(self, f, g, sde_type="ito", noise_type="diagonal"):
        self.f, self.g = f, g
        self.sde_type, self.noise_type = sde_type, noise_type


# --- the Jacobian at every time -----------------------------------------------------------------


@pytest.mark.parametrize("mode", ALL)
def test_so_78658755_ou_at_a_hundred_times(mode):
    """Stack Overflow 78658755: ones as grad_outputs give one number, summed over time."""
    J = jacobian(ou1(), zeros(), grid(1, 100), mode=mode, method="euler", dt=1 / 99, seed=0)
    assert J.shape == (100, 1, 1, 1)
    assert_close(J.flatten(), [(1 - 1 / 99) ** k for k in range(100)], 1e-12)
    assert J[99].item() == pytest.approx(0.366013605, abs=5e-10)


@pytest.mark.parametrize("mode", MODES)
def test_so_78658755_without_dt_torchsde_steps_at_a_thousandth(mode):
    sens = sdesens.sensitivities(ou1(), zeros(), grid(1, 11), mode=mode, method="euler", seed=0)
    assert sens.dt == 1e-3
    assert sens.derivatives()["x0"][-1].item() == pytest.approx(0.999**1000, abs=1e-12)
    assert pytest.approx(0.367695425, abs=5e-10) == 0.999**1000


@pytest.mark.parametrize("mode", MODES)
def test_so_78658755_between_steps_the_interpolation_is_linear(mode):
    J = jacobian(ou1(), zeros(), grid(1, 100), mode=mode, method="euler", dt=0.05, seed=0).flatten()
    assert J[99].item() == pytest.approx(0.95**20, abs=1e-12)
    assert J[4].item() == pytest.approx(0.959596, abs=5e-7)  # not 0.95**(4/99/.05) = 0.960205
    nodes = 0.95 ** np.arange(21)
    expected = np.interp(np.arange(100) / 99, np.linspace(0, 1, 21), nodes)
    assert_close(J, torch.from_numpy(expected), 1e-12)


@pytest.mark.parametrize("chunk_size", [1, 7, 99])
def test_functorch_636_the_chunk_size_never_changes_a_batch_of_a_thousand(chunk_size):
    x0 = zeros(1000)
    arguments = {"method": "euler", "dt": 1 / 99, "seed": 0}
    J = jacobian(ou1(), x0, grid(1, 100), mode="vjp", chunk_size=chunk_size, **arguments)
    assert torch.equal(J, jacobian(ou1(), x0, grid(1, 100), mode="vjp", **arguments))
    assert_close(J, jacobian(ou1(), x0, grid(1, 100), mode="jvp", **arguments), 1e-12)


def test_functorch_636_a_batch_of_a_thousand_stays_below_a_gigabyte():
    """functorch 636 and 680: the naive identity over ``T B d`` alone is 80 GB."""
    program = """
import resource, sys, warnings
import torch
warnings.simplefilter("ignore")
import sdesens
from sdesens.models import OrnsteinUhlenbeck
torch.set_num_threads(1)
x0 = torch.zeros(1000, 1, dtype=torch.float64)
ts = torch.linspace(0, 1, 100, dtype=torch.float64)
for mode in ("vjp", "jvp", "tangent"):
    sdesens.sensitivities(OrnsteinUhlenbeck(1.0, 0.0, 1.0), x0, ts, mode=mode, method="euler",
                          dt=1 / 99, seed=0, wrt=("x0", "kappa"))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # KiB on Linux
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) * 1024 < 1e9


@pytest.mark.parametrize("mode", ALL)
def test_a_matrix_drift_has_rows_of_outputs_and_columns_of_inputs(mode):
    A = torch.tensor([[-1.0, 2.0], [0.0, -0.5]], dtype=torch.float64)
    model = OrnsteinUhlenbeck(kappa=-A, mean=0.0, sigma=1.0)
    J = jacobian(model, zeros(2, 2), grid(1, 11), mode=mode, method="euler", dt=0.1, seed=0)
    step = torch.eye(2, dtype=torch.float64) + 0.1 * A
    for b in range(2):
        assert_close(J[-1, b], [[0.34867844, 1.00023400], [0, 0.59873694]], 5e-9)
        assert_close(J[:, b], [torch.matrix_power(step, k).tolist() for k in range(11)], 1e-13)


@pytest.mark.parametrize("mode", ["vjp", "tangent", "jvp"])
def test_the_loop_over_times_gives_the_same_numbers(mode):
    """``f = sin y - y``, ``g = .3 cos y + .5`` at 1001 times; the loop runs over 10 of them."""
    sde = Plain(lambda t, y: y.sin() - y, lambda t, y: 0.3 * y.cos() + 0.5)
    ts, x0 = grid(1, 1001), torch.full((1, 1), 0.4, dtype=torch.float64)
    bm = sdesens.BrownianPath(0, 1, (1, 1), 1000, 5, dtype=torch.float64)
    arguments = {"method": "euler", "dt": 1e-3, "bm": bm}
    leaf = x0.clone().requires_grad_()
    path = torchsde.sdeint(sde, leaf, ts, **arguments)
    assert isinstance(path, torch.Tensor)
    some = range(13, 1001, 100)
    loop = [torch.autograd.grad(path[k].sum(), leaf, retain_graph=True)[0].item() for k in some]
    found = jacobian(sde, x0, ts, mode=mode, **arguments)[:, 0, 0, 0]
    assert_close(found[list(some)], loop, 1e-14)


@pytest.mark.parametrize("transform", ["vmap", "jacfwd", "jacrev", "grad"])
@pytest.mark.parametrize("mode", ALL)
def test_inside_a_torch_func_transform_it_says_so_rather_than_give_zeros(mode, transform):
    x0 = torch.ones((3, 2, 1) if transform == "vmap" else (2, 1), dtype=torch.float64)

    def call(x0):
        return jacobian(gbm(), x0, grid(1, 3), mode=mode, dt=0.5, seed=0).sum()

    with pytest.raises(sdesens.UnsupportedError, match=r"inside a torch\.func transform.*outside"):
        getattr(torch.func, transform)(call)(x0)


def test_inside_dual_level_it_says_so_rather_than_lose_the_tangent():
    x0 = torch.ones(2, 1, dtype=torch.float64)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x0, torch.ones_like(x0))
        with pytest.raises(sdesens.UnsupportedError, match=r"forward-mode tangent.*dual_level"):
            jacobian(gbm(), dual, grid(1, 3), dt=0.5, seed=0)


@pytest.mark.parametrize("chunk_size", [None, 1, 3])
@pytest.mark.parametrize("mode", ALL)
def test_a_drift_may_close_over_one_number_a_sample(mode, chunk_size):
    z = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64)
    sde = Plain(lambda t, y: -z * y, lambda t, y: torch.ones_like(y))
    J = jacobian(
        sde, zeros(3), grid(1, 3), mode=mode, method="euler", dt=0.1, seed=0, chunk_size=chunk_size
    )
    assert_close(J[-1].flatten(), [0.95**10, 0.9**10, 0.8**10], 1e-12)


@pytest.mark.parametrize("mode", ALL)
def test_a_drift_may_close_over_one_number_a_sample_in_two_dimensions_and_with_parameters(mode):
    class Closed(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.rate = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
            self.z = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64)

        def f(self, t, y):
            return -self.rate * self.z * y

        def g(self, t, y):
            return torch.zeros_like(y)

    x0 = torch.ones(3, 2, dtype=torch.float64)
    sens = sdesens.sensitivities(
        Closed(), x0, grid(1, 3), mode=mode, wrt=("x0", "rate"), method="euler", dt=0.1, seed=0
    )
    J = sens.derivatives()["x0"]
    for b, z in enumerate((0.5, 1.0, 2.0)):
        last = (1 - 0.1 * z) ** 10
        assert_close(J[-1, b], [[last, 0], [0, last]], 1e-12)
        slope = -z * (1 - 0.1 * z) ** 9
        assert_close(sens.dparams["rate"][-1, b], [slope, slope], 1e-12)


# --- forward mode --------------------------------------------------------------------------------


@pytest.mark.parametrize("grad_free", [False, True])
@pytest.mark.parametrize("sde_type", ["ito", "stratonovich"])
@pytest.mark.parametrize("mode", MODES)
def test_milstein_on_gbm_is_linear_in_the_start(mode, sde_type, grad_free):
    """torch.func.jvp raises here, and dual_level loses part of the tangent in silence."""
    model = gbm()
    model.sde_type = sde_type
    x0 = torch.full((2, 1), 100.0, dtype=torch.float64)
    arguments = {"method": "milstein", "dt": 0.1, "seed": 0, "options": {"grad_free": grad_free}}
    if mode == "tangent" and not grad_free:
        with pytest.raises(sdesens.UnsupportedError, match=r"milstein.*'grad_free': True"):
            jacobian(model, x0, grid(1, 11), mode=mode, **arguments)
        return
    sens = sdesens.sensitivities(model, x0, grid(1, 11), mode=mode, **arguments)
    if grad_free:  # its difference quotient is not homogeneous in the state
        assert sdesens.compare_modes(model, x0, grid(1, 11), **arguments).agree
    else:
        assert_close(sens.derivatives()["x0"][..., 0], sens.x / x0, 1e-13)


@pytest.mark.parametrize("options", [{}, {"grad_free": True}])
def test_milstein_on_a_nonlinear_sde_has_the_central_difference_in_all_modes(options):
    sde = Plain(lambda t, y: -y, lambda t, y: 0.5 * y.sin() + 1)
    x0 = torch.full((2, 1), 0.3, dtype=torch.float64)
    report = sdesens.compare_modes(
        sde, x0, grid(1, 11), method="milstein", dt=0.1, seed=0, options=options
    )
    assert report.agree, report
    assert list(report.refused) == ([] if options else ["tangent"])


def test_auto_takes_vjp_for_derivative_milstein():
    x0 = torch.full((2, 1), 100.0, dtype=torch.float64)
    sens = sdesens.sensitivities(
        gbm(), x0, grid(1, 11), mode="auto", method="milstein", dt=0.1, seed=0
    )
    assert sens.mode == "vjp"
    assert_close(sens.derivatives()["x0"][..., 0], sens.x / x0, 1e-13)


def test_milstein_with_scalar_noise_in_two_dimensions_warns_and_names_the_cure():
    sde = Plain(lambda t, y: -y, lambda t, y: y.sin().unsqueeze(-1), noise_type="scalar")
    with pytest.warns(sdesens.AccuracyWarning, match=r"transposed Jacobian.*'grad_free': True"):
        jacobian(sde, zeros(1, 2), grid(1, 3), mode="vjp", method="milstein", dt=0.5, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cure = {"grad_free": True}
        jacobian(sde, zeros(1, 2), grid(1, 3), method="milstein", dt=0.5, seed=0, options=cure)
        jacobian(sde, zeros(1, 1), grid(1, 3), mode="vjp", method="milstein", dt=0.5, seed=0)


class _Erf(torch.autograd.Function):
    """SciPy's erf with a backward and, in a subclass, a jvp; no vmap rule."""

    @staticmethod
    def forward(x):
        return torch.from_numpy(np.asarray(scipy.special.erf(x.detach().numpy())))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore
        (x,) = ctx.saved_tensors
        return grad * 2 / math.sqrt(math.pi) * torch.exp(-(x**2))


class _ErfWithJvp(_Erf):
    @staticmethod
    def jvp(ctx, dx):  # pyright: ignore
        (x,) = ctx.saved_tensors
        return dx * 2 / math.sqrt(math.pi) * torch.exp(-(x**2))


def erf_recursion(x, dt):
    J = torch.ones_like(x[0])
    out = [J]
    for k in range(len(x) - 1):
        J = J * (1 - dt * 2 / math.sqrt(math.pi) * torch.exp(-(x[k] ** 2)))
        out.append(J)
    return torch.stack(out)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rule", [_Erf, _ErfWithJvp])
def test_a_drift_through_scipy_has_the_tangent_recursion_or_the_missing_rule_is_named(mode, rule):
    sde = Plain(lambda t, y: -rule.apply(y), lambda t, y: torch.ones_like(y))
    x0 = torch.tensor([[0.2], [-1.0]], dtype=torch.float64)
    arguments = {"mode": mode, "method": "euler", "dt": 0.1, "seed": 0}
    if mode != "vjp" and rule is _Erf:
        with pytest.raises(sdesens.UnsupportedError, match=rf"'{mode}' met an operation.*'vjp'"):
            sdesens.sensitivities(sde, x0, grid(1, 11), **arguments)
        return
    sens = sdesens.sensitivities(sde, x0, grid(1, 11), **arguments)
    assert_close(sens.derivatives()["x0"][..., 0], erf_recursion(sens.x, 0.1), 1e-14)


@pytest.mark.parametrize("mode", ALL)
def test_the_adjoint_solver_is_refused_with_the_plain_one(mode):
    model = gbm()
    model.sde_type = "stratonovich"
    with pytest.raises(sdesens.UnsupportedError, match=r"sdeint_adjoint.*method='reversible_heun'"):
        jacobian(model, zeros(), grid(1, 3), mode=mode, method="adjoint_reversible_heun", dt=0.1)


# --- Brownian motion and time grids ---------------------------------------------------------------


@pytest.mark.parametrize("mode", ALL)
def test_torchsde_36_and_109_a_grid_off_by_rounding_takes_less_than_a_second(mode):
    J = jacobian(ou1(), zeros(), grid(10, 101), mode=mode, method="euler", dt=0.1)
    assert J[-1].item() == pytest.approx(2.65613989e-5, rel=5e-9)
    assert J[-1].item() == pytest.approx(0.9**100, rel=1e-12)


@pytest.mark.parametrize("mode", ["vjp", "tangent"])
def test_torchsde_105_twenty_thousand_steps_do_not_recurse(mode):
    J = jacobian(ou1(), zeros(), grid(20, 20001), mode=mode, method="euler", dt=1e-3)
    assert J[-1].item() == pytest.approx(0.999**20000, rel=1e-9)
    assert J[-1].item() == pytest.approx(2.0406e-9, rel=1e-4)


@pytest.mark.parametrize("mode", ALL)
def test_a_bm_shorter_than_ts_is_an_error_and_not_a_path_without_noise(mode):
    ours = sdesens.BrownianPath(0, 0.5, (1, 1), 5, dtype=torch.float64)
    theirs = torchsde.BrownianInterval(0.0, 0.5, size=(1, 1), dtype=torch.float64)
    with pytest.raises(sdesens.OffGridError, match=r"outside the grid \[0.0, 0.5\].*long as ts"):
        jacobian(ou1(), zeros(), grid(1, 11), mode=mode, method="euler", dt=0.1, bm=ours)
    with pytest.raises(ValueError, match=r"bm does not reach time 1.0.*at least as long as ts"):
        jacobian(ou1(), zeros(), grid(1, 11), mode=mode, method="euler", dt=0.1, bm=theirs)


@pytest.mark.parametrize("mode", ALL)
def test_the_seed_alone_decides_every_bit(mode):
    x0 = torch.full((2, 1), 100.0, dtype=torch.float64)

    def run(seed):
        return sdesens.sensitivities(
            gbm(),
            x0,
            grid(1, 5),
            mode=mode,
            wrt=("x0", "sigma"),
            dt=0.25,
            seed=seed,
            method="euler",
        )

    torch.manual_seed(0)
    np.random.seed(0)
    a = run(7)
    torch.manual_seed(1)
    np.random.seed(1)
    b = run(7)
    assert torch.equal(a.x, b.x)
    for name, value in a.derivatives().items():
        assert torch.equal(value, b.derivatives()[name])
    assert not torch.equal(a.x, run(8).x)
    assert not torch.equal(a.x, run(7 + 2**32).x)
    assert a.seed == 7


def test_without_a_seed_a_fresh_one_is_drawn_and_reported():
    x0 = torch.full((2, 1), 100.0, dtype=torch.float64)
    torch.manual_seed(0)
    a = sdesens.sensitivities(gbm(), x0, grid(1, 5), dt=0.25)
    torch.manual_seed(0)
    b = sdesens.sensitivities(gbm(), x0, grid(1, 5), dt=0.25)
    assert a.seed is not None
    assert a.seed != b.seed
    assert torch.equal(a.x, sdesens.sensitivities(gbm(), x0, grid(1, 5), dt=0.25, seed=a.seed).x)


@pytest.mark.parametrize(
    ("ts", "words"),
    [
        ([1.0, 0.5, 0.0], r"increase strictly, got ts\[0\]=1.0 and ts\[1\]=0.5"),
        ([0.0, 0.5, 0.5], r"increase strictly, got ts\[1\]=0.5 and ts\[2\]=0.5"),
        ([], r"shape \(T,\) with T >= 1, got \(0,\)"),
    ],
)
@pytest.mark.parametrize("mode", ALL)
def test_torchsde_115_bad_times_are_named_by_index(mode, ts, words):
    with pytest.raises(ValueError, match=words):
        jacobian(ou1(), zeros(), ts, mode=mode, dt=0.1, seed=0)
    with pytest.raises(ValueError, match=words):
        jacobian(ou1(), zeros(), torch.tensor(ts, dtype=torch.float64), mode=mode, dt=0.1, seed=0)


@pytest.mark.parametrize("mode", ALL)
def test_torchsde_115_one_time_gives_the_identity(mode):
    A = -torch.tensor([[-1.0, 2.0], [0.0, -0.5]], dtype=torch.float64)
    x0 = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], dtype=torch.float64)
    sens = sdesens.sensitivities(
        OrnsteinUhlenbeck(A, 0.0, 1.0), x0, [0.5], mode=mode, wrt=("x0", "kappa"), seed=0
    )
    assert torch.equal(sens.x, x0[None])
    assert torch.equal(sens.derivatives()["x0"], torch.eye(2).double().expand(1, 3, 2, 2))
    assert torch.equal(sens.dparams["kappa"], torch.zeros(1, 3, 2, 2, 2, dtype=torch.float64))


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize(
    "ts",
    [
        torch.tensor([0, 1, 2]),
        torch.tensor([0.0, 1.0, 2.0]),
        torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64),
        [0, 1, 2],
        np.array([0.0, 1.0, 2.0]),
    ],
    ids=["integers", "float32", "float64", "list", "numpy"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_derivatives_have_the_dtype_of_the_start_whatever_that_of_the_times(mode, ts, dtype):
    x0 = torch.zeros(2, 1, dtype=dtype)
    sens = sdesens.sensitivities(ou1(), x0, ts, mode=mode, method="euler", dt=0.5, seed=0)
    assert sens.x.dtype == sens.derivatives()["x0"].dtype == dtype
    tolerance = 1e-14 if dtype is torch.float64 else 1e-6
    assert_close(sens.derivatives()["x0"][:, 0, 0, 0], [1.0, 0.25, 0.0625], tolerance)


@pytest.mark.parametrize("mode", ALL)
def test_torchsde_107_and_116_heston_moves_in_proportion_to_its_spot(mode):
    model = Heston(rate=0.03, kappa=1.5, theta=0.04, xi=0.3, rho=-0.7)
    x0 = torch.tensor([[100.0, 0.04]] * 3, dtype=torch.float64)
    sens = sdesens.sensitivities(model, x0, grid(1, 11), mode=mode, method="euler", dt=0.1, seed=0)
    J = sens.derivatives()["x0"]
    assert_close(J[..., 0, 0], sens.x[..., 0] / 100, 1e-12)
    assert not J[..., 1, 0].any()
    assert J[1:, :, 0, 1].all()
    with pytest.raises(sdesens.UnsupportedError, match=r"'milstein' does not solve .* general"):
        jacobian(model, x0, grid(1, 11), mode=mode, method="milstein", dt=0.1, seed=0)


@pytest.mark.parametrize("mode", ALL)
def test_torchsde_82_logqp_is_refused_and_its_pair_not_taken_for_the_path(mode):
    with pytest.raises(sdesens.UnsupportedError, match=r"logqp=True is not supported.*pair"):
        sdesens.sensitivities(ou1(), zeros(), grid(1, 3), mode=mode, logqp=True)


@pytest.mark.parametrize("mode", ALL)
def test_a_stratonovich_exponential_has_no_ito_term(mode):
    """``dX = .2 X o dW`` by heun: ``J = X / x0``, close to ``exp(.2 W)``."""
    sde = Plain(lambda t, y: 0 * y, lambda t, y: 0.2 * y, sde_type="stratonovich")
    x0 = torch.full((4, 1), 2.0, dtype=torch.float64)
    bm = sdesens.BrownianPath(0, 1, (4, 1), 100, 3, dtype=torch.float64)
    sens = sdesens.sensitivities(sde, x0, grid(1, 11), mode=mode, method="heun", dt=0.01, bm=bm)
    J = sens.derivatives()["x0"][..., 0]
    assert_close(J, sens.x / x0, 1e-13)
    # The local error of Heun's method is (.2 dW)^3 / 6; Itô's term would be a difference of 2e-2.
    assert_close(J[-1], (0.2 * bm(0.0, 1.0)).exp(), 1e-3)


# --- non-finite values ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ALL)
def test_a_cir_step_from_below_zero_has_derivative_from_its_drift_alone(mode):
    """``where(v > 0, v.sqrt(), 0)`` gives NaN. One Euler step of the drift: ``1 - kappa dt``."""
    sde = Plain(lambda t, v: 1.0 * (0.04 - v), lambda t, v: 0.2 * positive_sqrt(v))
    v0 = torch.tensor([[-0.01], [0.0], [0.04]], dtype=torch.float64)
    J = jacobian(sde, v0, [0.0, 0.1], mode=mode, method="euler", dt=0.1, seed=0)
    W = sdesens.BrownianPath(0, 0.1, (3, 1), 1, 0, dtype=torch.float64)(0.0, 0.1)
    assert J[-1].flatten()[:2].tolist() == [0.9, 0.9]
    assert J[-1, 2].item() == pytest.approx(0.9 + 0.2 * 2.5 * W[2].item(), abs=1e-14)


def where_sqrt():
    return Plain(
        lambda t, v: 1.0 * (0.04 - v), lambda t, v: 0.2 * torch.where(v > 0, v.sqrt(), 0.0)
    )


def test_a_square_root_behind_where_is_flagged_in_reverse_mode_with_the_cure():
    v0 = torch.tensor([[0.04], [-0.01]], dtype=torch.float64)
    with pytest.raises(sdesens.NonFiniteError, match=r"dx0 is not finite.*positive_sqrt") as caught:
        jacobian(where_sqrt(), v0, [0.0, 0.1], mode="vjp", method="euler", dt=0.1, seed=0)
    assert (caught.value.time_index, caught.value.sample) == (1, 1)
    assert caught.value.quantity == "dx0"
    assert caught.value.result.x.isfinite().all()


@pytest.mark.parametrize("mode", ["jvp", "tangent"])
def test_a_square_root_behind_where_is_right_in_forward_mode(mode):
    """Forward mode takes the tangent of the branch that is taken."""
    v0 = torch.tensor([[0.04], [-0.01]], dtype=torch.float64)
    J = jacobian(where_sqrt(), v0, [0.0, 0.1], mode=mode, method="euler", dt=0.1, seed=0)
    assert J[-1, 1].item() == 0.9


@pytest.mark.parametrize("mode", ALL)
def test_an_explosion_is_reported_with_its_first_time_and_the_result_so_far(mode):
    sde = Plain(lambda t, y: y - y**3, lambda t, y: torch.ones_like(y))
    x0 = torch.tensor([[0.5], [10.0]], dtype=torch.float64)
    with pytest.raises(sdesens.NonFiniteError, match=r"x is not finite from ts\[6\]=0.6") as caught:
        jacobian(sde, x0, grid(1, 11), mode=mode, method="euler", dt=0.1, seed=0)
    error = caught.value
    assert (error.time_index, error.sample, error.quantity) == (6, 1, "x")
    assert error.result.x[:6].isfinite().all()
    assert error.result.dx0[:6].isfinite().all()
    assert error.result.x[:, 0].isfinite().all()


# --- parameters ----------------------------------------------------------------------------------


class OneUnused(nn.Module):
    """``dX = -theta X dt + dW`` and a parameter that nothing uses."""

    noise_type, sde_type = "diagonal", "ito"

    def __init__(self):
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
        self.unused = nn.Parameter(torch.ones(2, 3, dtype=torch.float64))

    def f(self, t, y):
        return -self.theta * y

    def g(self, t, y):
        return torch.ones_like(y)


@pytest.mark.parametrize("mode", ALL)
def test_a_parameter_has_its_recursion_and_an_unused_one_zeros(mode):
    """``D_{k+1} = .9 D_k - .1 X_k``."""
    x0 = torch.full((2, 1), 2.0, dtype=torch.float64)
    sens = sdesens.sensitivities(
        OneUnused(),
        x0,
        grid(1, 11),
        mode=mode,
        wrt=("theta", "unused", "x0"),
        method="euler",
        dt=0.1,
        seed=0,
    )
    D = torch.zeros_like(x0)
    for k in range(11):
        assert_close(sens.dparams["theta"][k], D, 1e-14)
        D = 0.9 * D - 0.1 * sens.x[k]
    assert torch.equal(sens.dparams["unused"], torch.zeros(11, 2, 1, 2, 3, dtype=torch.float64))
    assert_close(sens.derivatives()["x0"][:, 0, 0, 0], [0.9**k for k in range(11)], 1e-14)
    only = sdesens.sensitivities(
        OneUnused(), x0, grid(1, 3), mode=mode, wrt="unused", method="euler", dt=0.1, seed=0
    )
    assert not only.dparams["unused"].any()


@pytest.mark.parametrize("mode", ALL)
def test_the_second_derivative_of_gbm_in_its_start_is_zero(mode):
    """torch raises "does not require grad" here."""
    x0 = torch.full((2, 1), 100.0, dtype=torch.float64, requires_grad=True)
    J = jacobian(gbm(), x0, grid(1, 5), mode=mode, method="euler", dt=0.25, seed=0)
    (second,) = torch.autograd.grad(J.sum(), x0)
    assert torch.equal(second, torch.zeros_like(x0))


def test_gbm_has_the_closed_derivatives_of_its_fine_path():
    """Within the discretisation: ``dX/dmu = t X`` and ``dX/dsigma = X (W - sigma t)``."""
    x0 = torch.full((3, 1), 100.0, dtype=torch.float64)
    bm = sdesens.BrownianPath(0, 1, (3, 1), 4000, 3, dtype=torch.float64)
    sens = sdesens.sensitivities(
        gbm(),
        x0,
        [0.0, 1.0],
        wrt=("mu", "sigma"),
        method="milstein",
        options={"grad_free": True},
        dt=1 / 4000,
        bm=bm,
    )
    X, W = sens.x[-1], bm(0.0, 1.0)
    assert_close(X, 100 * (0.05 - 0.02 + 0.2 * W).exp(), 2e-2)
    assert_close(sens.dparams["mu"][-1] / X, torch.ones_like(X), 1e-3)
    assert_close(sens.dparams["sigma"][-1] / X, W - 0.2, 2e-3)


def test_a_central_difference_on_the_seed_agrees_with_the_derivative():
    """The user's own check: the same seed gives the bumped run the same noise."""
    x0 = torch.tensor([[0.3], [1.2]], dtype=torch.float64)
    sde = Plain(lambda t, y: y.sin() - y, lambda t, y: 0.3 * y.cos() + 0.5)
    arguments = {"method": "euler", "dt": 0.1, "seed": 4}
    J = jacobian(sde, x0, grid(1, 5), **arguments)
    fd = central(
        lambda: sdesens.sensitivities(sde, x0, grid(1, 5), **arguments).x, x0, batched=True
    )
    assert_close(J, fd, 1e-9)
