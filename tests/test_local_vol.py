"""A SciPy surface in a model: custom gradients and dedup at work in all three modes."""

import copy
import pickle
import sys

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sdesens
from sdesens.models import LocalVolatility

TIMES = torch.tensor([0.0, 0.25, 0.5, 1.0, 2.0], dtype=torch.float64)
SPOTS = torch.linspace(40, 260, 45, dtype=torch.float64)
ALL = ("vjp", "jvp", "tangent")


def surface(function) -> Tensor:
    return function(TIMES[:, None], SPOTS[None, :]).expand(5, 45)


def smile(t: Tensor, s: Tensor) -> Tensor:
    return 0.2 + 1e-5 * (s - 100) ** 2 + 0.05 * torch.exp(-t)


def model(function=smile, **kwargs) -> LocalVolatility:
    return LocalVolatility(0.03, TIMES, SPOTS, surface(function), **kwargs)


def start(batch: int = 5, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.full((batch, 1), 100.0, dtype=dtype)


class Traced(nn.Module):
    """The same SDE for a surface that torch can trace: a cubic in both directions."""

    sde_type, noise_type = "ito", "diagonal"

    def f(self, t: Tensor, y: Tensor) -> Tensor:
        return 0.03 * y

    def g(self, t: Tensor, y: Tensor) -> Tensor:
        return cubic(t, y) * y


def cubic(t, s):
    return 0.2 + 0.02 * t - 0.003 * t**3 + 1e-5 * (s - 100) ** 2 - 2e-8 * (s - 100) ** 3 * (1 + t)


@pytest.mark.parametrize("mode", ALL)
def test_a_cubic_surface_gives_what_the_cubic_itself_gives(mode):
    """A bicubic spline reproduces cubics, so path and derivative are those of the formula."""
    arguments = {"method": "euler", "dt": 0.05, "seed": 3, "mode": mode}
    ts = [0.0, 0.5, 1.0]
    found = sdesens.sensitivities(model(cubic), start(), ts, **arguments)
    right = sdesens.sensitivities(Traced(), start(), ts, **arguments)
    torch.testing.assert_close(found.x, right.x, rtol=1e-12, atol=0)
    torch.testing.assert_close(found.dx0, right.dx0, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "solver",
    [
        {"method": "euler"},
        {"method": "srk"},
        {"method": "milstein"},
        {"method": "milstein", "options": {"grad_free": True}},
    ],
    ids=["euler", "srk", "milstein", "milstein grad-free"],
)
def test_all_modes_and_a_central_difference_agree_for_every_solver(solver):
    report = sdesens.compare_modes(
        model(dividend=0.01),
        start(),
        [0.0, 0.5, 1.0],
        dt=0.1,
        seed=3,
        wrt=("x0", "rate", "dividend", "shift"),
        **solver,
    )
    assert report.agree, str(report)


@pytest.mark.parametrize("mode", ALL)
def test_a_flat_surface_is_geometric_brownian_motion(mode):
    flat = model(lambda t, s: 0.2 + 0 * t + 0 * s)
    sens = sdesens.sensitivities(flat, start(), [0.0, 1.0], dt=0.1, seed=0, mode=mode)
    torch.testing.assert_close(sens.dx0[..., 0, 0], sens.x[..., 0] / 100, rtol=1e-12, atol=0)


@pytest.mark.parametrize("mode", ALL)
def test_second_derivatives_equal_a_central_difference(mode):
    def slope(x0: Tensor) -> Tensor:
        sens = sdesens.sensitivities(
            model(), x0, [0.0, 1.0], method="euler", dt=0.1, seed=3, mode=mode
        )
        return sens.dx0[-1, :, 0, 0]

    x0 = start(2).requires_grad_()
    (second,) = torch.autograd.grad(slope(x0).sum(), x0)
    h = 1e-3
    with torch.no_grad():
        central = (slope(x0 + h) - slope(x0 - h)) / (2 * h)
    torch.testing.assert_close(second[:, 0], central, rtol=1e-6, atol=1e-9)


def test_beyond_the_grid_the_surface_is_flat_with_derivative_zero():
    spot = torch.tensor([20.0, 40.0, 100.0, 260.0, 300.0], dtype=torch.float64, requires_grad=True)
    vol = model().volatility(torch.tensor(5.0, dtype=torch.float64), spot)
    edge = model().volatility(TIMES[-1], SPOTS[[0, 0, 12, -1, -1]])
    torch.testing.assert_close(vol, edge, rtol=1e-14, atol=0)
    (slope,) = torch.autograd.grad(vol.sum(), spot)
    assert slope[0] == 0
    assert slope[-1] == 0
    assert slope[1] < 0 < slope[3]


def test_the_surface_is_evaluated_once_for_each_distinct_point(monkeypatch):
    local = model()
    counts = []
    spline = local._surface._spline

    class Counting:
        def ev(self, t, s, **orders):
            counts.append(np.size(s))
            return spline.ev(t, s, **orders)

    monkeypatch.setattr(local._surface, "_spline", Counting())
    spot = torch.tensor([100.0, 90.0, 100.0, 100.0], dtype=torch.float64, requires_grad=True)
    vol = local.volatility(torch.tensor(0.3, dtype=torch.float64), spot)
    torch.autograd.grad(vol.sum(), spot)
    assert counts
    assert set(counts) == {2}


def test_float32_stays_float32():
    sens = sdesens.sensitivities(model(), start(dtype=torch.float32), [0.0, 1.0], dt=0.1, seed=0)
    assert sens.x.dtype == torch.float32
    assert sens.dx0.dtype == torch.float32


def test_it_is_copied_and_pickled_with_its_surface():
    local = model()
    found = sdesens.sensitivities(local, start(), [0.0, 1.0], dt=0.1, seed=0)
    for twin in (copy.deepcopy(local), pickle.loads(pickle.dumps(local))):
        again = sdesens.sensitivities(twin, start(), [0.0, 1.0], dt=0.1, seed=0)
        assert torch.equal(again.dx0, found.dx0)


def test_a_third_derivative_in_one_direction_is_refused_by_name():
    spot = torch.tensor([100.0], dtype=torch.float64, requires_grad=True)
    value = model().volatility(torch.tensor(0.3, dtype=torch.float64), spot)
    for _ in range(2):
        (value,) = torch.autograd.grad(value.sum(), spot, create_graph=True)
    with pytest.raises(sdesens.UnsupportedError, match="two derivatives"):
        torch.autograd.grad(value.sum(), spot, create_graph=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"times": [0.0, 1.0]}, "times must be at least four"),
        ({"times": [0.0, 1.0, 0.5, 2.0, 3.0]}, "times must be .* increasing"),
        ({"spots": SPOTS[:-1]}, r"vols must have shape .*\(5, 44\), got \(5, 45\)"),
        ({"vols": surface(lambda t, s: -0.1 + 0 * t * s)}, r"positive and finite.*\[0, 0\]"),
        ({"vols": surface(smile) * float("nan")}, "positive and finite"),
    ],
)
def test_a_bad_surface_is_refused(change, message):
    arguments = {"times": TIMES, "spots": SPOTS, "vols": surface(smile)} | change
    with pytest.raises(ValueError, match=message):
        LocalVolatility(0.03, **arguments)


def test_without_scipy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.interpolate", None)
    with pytest.raises(ImportError, match=r"sdesens\[scipy\]"):
        model()
