import math
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torchsde

import sdesens.brownian
from sdesens import BrownianPath, OffGridError
from tests.problems import Field, assert_close, jacobian

AREAS = ("none", "space-time", "davie", "foster")


def path(steps=8, shape=(3, 2), seed=7, t1=2.0, dtype=torch.float64, **arguments):
    return BrownianPath(0.0, t1, shape, steps, seed, dtype=dtype, **arguments)


def every_step(bm) -> list[Any]:
    """``W``, ``U`` and ``A`` of all steps."""
    nodes = bm._nodes
    answers = [bm(a, b, return_U=True, return_A=True) for a, b in pairwise(nodes)]
    return [None if part[0] is None else torch.stack(part) for part in zip(*answers, strict=True)]


def same(a, b):
    """Equal bit for bit, or both missing."""
    return a is b if a is None or b is None else torch.equal(a, b)


# --- a pure function of (seed, path, step, channel) ---------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("levy_area", AREAS)
def test_one_path_of_many_can_be_replayed_alone(levy_area, dtype):
    many = path(shape=(20, 2), levy_area=levy_area, dtype=dtype)
    alone = path(shape=(1, 2), levy_area=levy_area, first_path=17, dtype=dtype)
    for whole, single in zip(every_step(many), every_step(alone), strict=True):
        if whole is not None:
            assert torch.equal(single[:, 0], whole[:, 17])


@pytest.mark.parametrize("levy_area", AREAS)
@pytest.mark.parametrize("numbers", [1, 60, 2**21])
def test_neither_block_size_nor_the_order_of_queries_changes_a_number(
    monkeypatch, numbers, levy_area
):
    expected = every_step(path(steps=23, levy_area=levy_area))
    monkeypatch.setattr(sdesens.brownian, "_BLOCK_NUMBERS", numbers)
    bm = path(steps=23, levy_area=levy_area)
    order = list(range(23))
    random.Random(0).shuffle(order)
    for k in order:
        W, U, A = bm(bm._nodes[k], bm._nodes[k + 1], return_U=True, return_A=True)
        for part, whole in zip((W, U, A), expected, strict=True):
            assert same(part, None if whole is None else whole[k])


def test_the_global_generators_have_no_effect():
    first = every_step(path())[0]
    torch.manual_seed(1)
    np.random.seed(1)
    second = every_step(path())[0]
    torch.manual_seed(2)
    np.random.seed(2)
    torch.rand(3)
    assert torch.equal(first, second)
    assert torch.equal(first, every_step(path())[0])


def test_making_noise_leaves_the_global_generators_alone():
    before, numpy_before = torch.get_rng_state(), str(np.random.get_state())
    every_step(path(levy_area="foster"))
    assert torch.equal(before, torch.get_rng_state())
    assert numpy_before == str(np.random.get_state())


def test_another_seed_gives_another_path_also_beyond_32_bits():
    a, b, c = (every_step(path(seed=s))[0] for s in (5, 6, 5 + 2**32))
    assert not (a == b).any()
    assert not (a == c).any()
    assert path(seed=2**64 - 1)(0.0, 0.25).isfinite().all()


def test_a_finer_grid_uses_other_numbers_scaled_by_its_step():
    coarse, fine = path(steps=8)(0.0, 0.25), path(steps=32)(0.0, 0.0625)
    assert_close(fine, coarse / 2, 1e-15)


def test_on_grid_scales_each_step_by_its_own_width():
    equal = every_step(path(steps=3, t1=3.0))[0]
    uneven = every_step(BrownianPath.on_grid([0, 0.04, 1, 3], (3, 2), 7, dtype=torch.float64))[0]
    widths = torch.tensor([0.04, 0.96, 2.0], dtype=torch.float64)
    assert_close(uneven, equal * widths.sqrt()[:, None, None], 1e-15)


# --- laws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("levy_area", ["space-time", "davie", "foster"])
@pytest.mark.parametrize("factor", [1, 4])
def test_w_and_u_have_the_covariances_of_brownian_motion(levy_area, factor):
    """5 standard errors of 2e5 samples, also after joining steps: 2e-6 false alarms a case."""
    n, h = 200_000, 0.7
    bm = BrownianPath(0, h, (n, 1), factor, 3, dtype=torch.float64, levy_area=levy_area)
    W, U = bm.coarsen(factor)(0.0, h, return_U=True)
    expected = {"WW": (W * W, h), "WU": (W * U, h * h / 2), "UU": (U * U, h**3 / 3)}
    for name, (product, value) in expected.items():
        error = product.std().item() / math.sqrt(n)
        assert abs(product.mean().item() - value) < 5 * error, name


@pytest.mark.parametrize("levy_area", ["davie", "foster"])
@pytest.mark.parametrize("factor", [1, 4])
def test_the_area_is_antisymmetric_with_variance_a_quarter_of_h_squared(levy_area, factor):
    """5 standard errors of 1e5 samples; three entries: 2e-6 false alarms a case."""
    n, h = 100_000, 0.7
    bm = BrownianPath(0, h, (n, 3), factor, 4, dtype=torch.float64, levy_area=levy_area)
    A = bm.coarsen(factor)(0.0, h, return_A=True)[1]
    assert torch.equal(A, -A.mT)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        square = A[:, i, j] ** 2
        error = square.std().item() / math.sqrt(n)
        assert abs(square.mean().item() - h * h / 4) < 5 * error
        assert abs(A[:, i, j].mean().item()) < 5 * math.sqrt(h * h / 4 / n)


@pytest.mark.parametrize("levy_area", ["davie", "foster"])
def test_the_area_of_one_step_is_joint_with_w_and_u_as_that_of_a_finely_resolved_path(levy_area):
    """E[A_12 (H_1 W_2 - W_1 H_2)] = h^2 / 6; 5 standard errors, 6e-7 false alarms each."""
    n, h = 50_000, 1.3
    for factor in (1, 32):  # modelled; and Chen's sum, in which the areas of the steps hardly count
        bm = BrownianPath(0, h, (n, 2), factor, 5, dtype=torch.float64, levy_area=levy_area)
        W, U, A = bm.coarsen(factor)(0.0, h, return_U=True, return_A=True)
        H = U / h - W / 2
        product = A[:, 0, 1] * (H[:, 0] * W[:, 1] - W[:, 0] * H[:, 1])
        error = product.std().item() / math.sqrt(n)
        assert abs(product.mean().item() - h * h / 6) < 5 * error


def test_log_ode_has_order_1_where_noise_does_not_commute_and_heun_half():
    """A quarter of the step on one path: errors fall by 4 and by 2."""
    sde = Field("stratonovich", "general")
    x0 = torch.tensor([[0.3, -0.7]], dtype=torch.float64).expand(256, 2)
    fine = BrownianPath(0, 1, (256, 3), 1024, 9, dtype=torch.float64, levy_area="foster")
    ts = torch.tensor([0.0, 1.0], dtype=torch.float64)

    @torch.no_grad()
    def solve(method, n):
        bm = fine.coarsen(1024 // n)
        out = torchsde.sdeint(sde, x0, ts, bm=bm, method=method, dt=1 / n)
        assert isinstance(out, torch.Tensor)
        return out[-1]

    exact = solve("log_ode", 1024)

    def improvement(method):
        errors = [(solve(method, n) - exact).pow(2).mean().sqrt().item() for n in (64, 256)]
        return errors[0] / errors[1]

    assert improvement("log_ode") > 3.2
    assert improvement("heun") < 2.5


# --- joining steps -------------------------------------------------------------------------------


@pytest.mark.parametrize("levy_area", AREAS)
@pytest.mark.parametrize("uneven", [False, True])
def test_coarsen_joins_w_u_and_a_as_chen_says(levy_area, uneven):
    nodes = [0.0, 0.1, 0.35, 0.4, 0.9, 1.0, 1.7] if uneven else [0.25 * k for k in range(7)]
    fine = BrownianPath.on_grid(nodes, (4, 3), 2, dtype=torch.float64, levy_area=levy_area)
    W, U, A = every_step(fine)
    for group, (coarse_W, coarse_U, coarse_A) in enumerate(
        zip(
            *(p if p is not None else (None, None) for p in every_step(fine.coarsen(3))),
            strict=True,
        )
    ):
        steps = range(3 * group, 3 * group + 3)
        assert_close(coarse_W, sum(W[k] for k in steps), 1e-14)
        before, area, integral = torch.zeros_like(W[0]), 0, 0
        for k in steps:
            if U is not None:
                integral = integral + U[k] + before * (nodes[k + 1] - nodes[k])
            if A is not None:
                outer = before[:, :, None] * W[k][:, None, :]
                area = area + A[k] + 0.5 * (outer - outer.mT)
            before = before + W[k]
        assert (coarse_U is None) == (U is None)
        assert (coarse_A is None) == (A is None)
        if U is not None:
            assert_close(coarse_U, integral, 1e-14)
        if A is not None:
            assert_close(coarse_A, area, 1e-14)


@pytest.mark.parametrize("levy_area", AREAS)
def test_a_query_over_several_steps_is_that_of_the_coarse_path(levy_area):
    bm = path(levy_area=levy_area)
    long = bm(0.5, 1.0, return_U=True, return_A=True)
    coarse = bm.coarsen(2)(0.5, 1.0, return_U=True, return_A=True)
    for a, b in zip(long, coarse, strict=True):
        assert same(a, b)


def test_coarsen_twice_is_coarsen_once():
    bm = path(levy_area="foster")
    for a, b in zip(every_step(bm.coarsen(2).coarsen(2)), every_step(bm.coarsen(4)), strict=True):
        assert_close(a, b, 1e-14)


def test_coarsening_by_one_changes_nothing():
    for a, b in zip(
        every_step(path(levy_area="davie").coarsen(1)),
        every_step(path(levy_area="davie")),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_coarsen_refuses_what_does_not_divide_and_lists_what_does():
    with pytest.raises(ValueError, match=r"divide the number of steps, 8, got n=3.*\[1, 2, 4, 8\]"):
        path().coarsen(3)


@pytest.mark.parametrize("n", [0, -2])
def test_coarsen_refuses_a_factor_below_one(n):
    with pytest.raises(ValueError, match=f"n must be at least 1, got {n}"):
        path().coarsen(n)


# --- queries -------------------------------------------------------------------------------------


def test_one_time_gives_the_path_from_its_start():
    bm = path()
    assert torch.equal(bm(0.5), bm(0.0, 0.5))
    assert torch.equal(bm(0.0), torch.zeros(3, 2, dtype=torch.float64))


@pytest.mark.parametrize("levy_area", AREAS)
def test_an_empty_interval_has_no_noise(levy_area):
    W, U, A = path(levy_area=levy_area)(0.5, 0.5, return_U=True, return_A=True)
    assert W.shape == (3, 2)
    assert all(part is None or not part.any() for part in (W, U, A))
    assert (U is None, A is None) == (levy_area == "none", levy_area in ("none", "space-time"))


def test_what_is_asked_for_is_what_comes():
    bm = path(levy_area="foster")
    W, U, A = bm(0.0, 0.25, return_U=True, return_A=True)
    assert torch.equal(bm(0.0, 0.25), W)
    assert torch.equal(bm(0.0, 0.25, return_U=True)[1], U)
    assert torch.equal(bm(0.0, 0.25, return_A=True)[1], A)
    assert (W.shape, U.shape, A.shape) == ((3, 2), (3, 2), (3, 2, 2))


def test_a_time_off_the_grid_is_refused_with_the_nearest_nodes():
    with pytest.raises(OffGridError, match=r"0\.3 is not a node.*0\.25 and 0\.5.*dt=0\.25"):
        path()(0.0, 0.3)


@pytest.mark.parametrize("t", [-0.25, 2.25, 1e9])
def test_a_time_outside_the_range_is_refused_with_the_range(t):
    with pytest.raises(OffGridError, match=r"outside the grid \[0\.0, 2\.0\].*as long as ts"):
        path()(min(t, 0.0), max(t, 0.0))


def test_times_in_the_wrong_order_are_refused():
    with pytest.raises(ValueError, match=r"ta <= tb, got ta=1\.0, tb=0\.5"):
        path()(1.0, 0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_times_that_a_solver_adds_up_find_their_nodes(dtype):
    bm = path(steps=1000, t1=10.0)
    t, dt = torch.zeros((), dtype=dtype), torch.tensor(0.01, dtype=dtype)
    for k in range(1, 1001):
        t = t + dt
        assert bm.node(t) == k


def test_the_tolerance_of_a_float64_time_is_that_of_float64():
    with pytest.raises(OffGridError, match="not a node"):
        path().node(torch.tensor(0.25 + 1e-9, dtype=torch.float64))
    assert path().node(torch.tensor(0.25 + 1e-7, dtype=torch.float32)) == 1


def test_float32_times_that_miss_are_told_to_be_float64():
    with pytest.raises(OffGridError, match="use float64 times"):
        path().node(torch.tensor(0.3, dtype=torch.float32))


# --- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"steps": 0}, ValueError, "steps must be at least 1, got 0"),
        ({"steps": 2.0}, TypeError, "steps must be an int, got 2.0"),
        ({"steps": True}, TypeError, "steps must be an int"),
        ({"t0": 1.0}, ValueError, "t0 < t1, got t0=1.0, t1=1.0"),
        ({"t1": math.inf}, ValueError, "finite with t0 < t1"),
        ({"t1": math.nan}, ValueError, "finite with t0 < t1"),
        ({"shape": (3,)}, ValueError, r"shape must be \(B, m\), got \(3,\)"),
        ({"shape": (3, -1)}, ValueError, "m must be at least 0, got -1"),
        ({"shape": (3, 1.5)}, TypeError, "m must be an int, got 1.5"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"seed": 2**64}, ValueError, r"seed must be in \[0, 2\*\*64\)"),
        ({"seed": 1.5}, TypeError, "seed must be an int, got 1.5"),
        ({"dtype": torch.float16}, TypeError, "float32 or torch.float64, got torch.float16"),
        ({"levy_area": "fosster"}, ValueError, "levy_area must be one of .*mean 'foster'"),
        ({"first_path": -1}, ValueError, "first_path must be at least 0, got -1"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, words):
    good = {"t0": 0.0, "t1": 1.0, "shape": (3, 1), "steps": 4}
    with pytest.raises(error, match=words):
        BrownianPath(**(good | arguments))


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([0.0], "at least two times, got 1"),
        ([], "at least two times, got 0"),
        ([0.0, 1.0, 1.0], r"increase, got nodes\[1\]=1.0, nodes\[2\]=1.0"),
        ([0.0, 1.0, 0.5], r"increase, got nodes\[1\]=1.0, nodes\[2\]=0.5"),
        ([0.0, math.nan], "must be finite"),
    ],
)
def test_bad_nodes_are_refused(nodes, words):
    with pytest.raises(ValueError, match=words):
        BrownianPath.on_grid(nodes, (1, 1))


def test_a_misspelt_keyword_is_refused():
    with pytest.raises(TypeError, match="levy_areas"):
        BrownianPath(0.0, 1.0, (1, 1), 4, levy_areas="none")  # pyright: ignore


def test_dtype_is_the_default_one_unless_given():
    assert BrownianPath(0.0, 1.0, (1, 1), 4)(0.0, 0.25).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    assert BrownianPath(0.0, 1.0, (1, 1), 4)(0.0, 0.25).dtype == torch.float64


def test_no_paths_and_no_channels_are_fine():
    for shape in ((0, 2), (2, 0)):
        bm = path(shape=shape, levy_area="foster")
        W, U, A = bm(0.0, 0.5, return_U=True, return_A=True)
        assert W.shape == U.shape == shape
        assert A.shape == (*shape, shape[1])


def test_it_says_what_it_is():
    bm = path(levy_area="foster")
    assert (bm.t0, bm.t1, bm.steps, bm.seed, bm.shape) == (0.0, 2.0, 8, 7, (3, 2))
    assert repr(bm) == (
        "BrownianPath(t0=0, t1=2, shape=(3, 2), steps=8, seed=7, dtype=torch.float64, "
        "device='cpu', levy_area='foster', first_path=0)"
    )


# --- in torchsde and under torch.func ------------------------------------------------------------


TS = torch.linspace(0, 1, 5, dtype=torch.float64)
X0 = torch.tensor([[0.3, -0.7], [1.1, 0.2], [0.0, 0.5]], dtype=torch.float64)


def test_it_drives_torchsde_by_the_increments_it_shows():
    bm = BrownianPath(0, 1, (3, 3), 4, 1, dtype=torch.float64)
    sde = Field("ito", "general")
    path = torchsde.sdeint(sde, X0, TS, bm=bm, method="euler", dt=0.25)
    x = X0
    for k in range(4):
        x = x + 0.25 * sde.f(TS[k], x) + (sde.g(TS[k], x) @ bm(TS[k], TS[k + 1])[..., None])[..., 0]
        assert isinstance(path, torch.Tensor)
        assert_close(path[k + 1], x, 1e-14)


def test_jacfwd_over_torchsde_works_with_one_noise_for_all_columns():
    bm = BrownianPath(0, 1, (3, 3), 4, 1, dtype=torch.float64)
    sde = Field("ito", "general")

    def solve(x0):
        return torchsde.sdeint(sde, x0, TS, bm=bm, method="euler", dt=0.25)

    whole = torch.func.jacfwd(solve)(X0)  # (T, B, d, B, d)
    ours = jacobian(sde, X0, TS, bm=bm, method="euler", dt=0.25)
    for b in range(3):
        for c in range(3):
            block = whole[:, b, :, c]
            assert_close(block, ours[:, b] if b == c else torch.zeros_like(block), 1e-14)


def test_vmap_over_torchsde_works_too():
    bm = BrownianPath(0, 1, (3, 2), 4, 1, dtype=torch.float64)
    sde = Field("ito", "diagonal")

    def solve(x0):
        return torchsde.sdeint(sde, x0, TS, bm=bm, method="euler", dt=0.25)

    batches = torch.stack([X0, X0 + 1])
    out = torch.func.vmap(solve)(batches)
    for k in range(2):
        expected = solve(batches[k])
        assert isinstance(expected, torch.Tensor)
        assert_close(out[k], expected, 1e-14)
