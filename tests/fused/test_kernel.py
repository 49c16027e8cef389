import math

import numpy as np
import pytest
import torch
from scipy import stats

from sdesens import _philox
from sdesens.fused.emit import Stepper
from sdesens.fused.kernel import Keep, Kernel, Run
from sdesens.fused.operations import OPERATIONS
from sdesens.fused.program import ONE, ZERO, Program

DTYPES = (torch.float32, torch.float64)
NONE = torch.zeros(0, dtype=torch.float64)


def every_operation() -> Stepper:
    """Two state slots; as outputs every operation on path, step and run operands."""
    program = Program()
    x, y = program.input("state", 0), program.input("state", 1)
    parameter, time = program.input("parameter", 0), program.input("time", 1)
    inside = program.apply("div", x, program.number(8.0))  # within [-1, 1] for the arcs
    size = program.apply("add", program.apply("abs", x), program.number(0.5))
    over = program.apply("gt", x, y)
    late = program.apply("ge", time, parameter)
    outputs = []
    for name, operation in OPERATIONS.items():
        arity = max(int(operation.cpp.count(f"{{{k}}}") > 0) * (k + 1) for k in range(3))
        if name == "not":
            results = [program.apply("not", over), program.apply("not", late)]
        elif name in ("and", "or", "xor"):
            results = [program.apply(name, over, late), program.apply(name, late, late)]
        elif name == "where":
            results = [program.apply("where", c, x, parameter) for c in (over, late)]
        elif name == "where_condition":
            results = [program.apply(name, over, late, program.apply("lt", y, parameter))]
        elif arity == 2:
            first = size if name == "pow" else x
            results = [program.apply(name, first, b) for b in (y, parameter, time)]
            results.append(program.apply(name, parameter, time))
        else:
            arguments = {"asin": inside, "acos": inside}.get(name, x)
            if name in ("sqrt", "log", "log1p", "lgamma"):
                arguments = size
            results = [program.apply(name, arguments), program.apply(name, parameter)]
        for result in results:
            number = program.is_condition(result)
            outputs.append(program.apply("where", result, ONE, ZERO) if number else result)
    step = [program.apply("add", x, program.input("noise", 0)),
            program.apply("sub", y, program.input("noise", 1))]  # fmt: skip
    return Stepper(program, step, outputs, [0, 1])


@pytest.fixture(scope="module", params=DTYPES, ids=str)
def kernel(request):
    kernel = Kernel(every_operation(), request.param)
    assert kernel.is_compiled
    return kernel


def run_of(kernel: Kernel, paths: int, steps: int = 7, **changes) -> Run:
    times = torch.linspace(0.1, 0.9, 3 * steps, dtype=torch.float64).reshape(steps, 3)
    numbers = {
        "parameters": torch.tensor([0.6], dtype=torch.float64),
        "times": times,
        "rates": torch.zeros_like(times),
        "flags": times.new_zeros(steps, 0),
        "start": torch.tensor([0.3, -0.2], dtype=kernel.dtype),
        "paths": paths,
        "seed": 2**40 + 5,
    }
    return Run(**(numbers | changes))


def uncompiled(kernel: Kernel) -> Kernel:
    other = Kernel(kernel.stepper, kernel.dtype)
    other.is_compiled = False
    return other


def rounding(dtype: torch.dtype) -> float:
    return 2e-5 if dtype is torch.float32 else 1e-13


def test_compiled_and_uncompiled_give_the_same_numbers_for_every_operation(kernel):
    run = run_of(kernel, 300)
    a, b = kernel.samples(run), uncompiled(kernel).samples(run)
    tolerance = rounding(kernel.dtype)
    assert torch.allclose(a, b, rtol=50 * tolerance, atol=10 * tolerance, equal_nan=True)


@pytest.mark.parametrize("paths", [1, 7, 8, 9, 15, 16, 17, 255, 256, 257, 1000])
def test_a_path_does_not_depend_on_how_many_there_are(kernel, paths):
    keep = Keep.of([0, 3, 7], 7)
    whole = kernel.paths(run_of(kernel, 1000), keep)
    assert torch.equal(kernel.paths(run_of(kernel, paths), keep), whole[..., :paths])
    later = run_of(kernel, 1000 - paths + 1, first_path=paths - 1)
    assert torch.equal(kernel.paths(later, keep), whole[..., paths - 1 :])


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 8, 9])
def test_every_node_is_kept_and_no_number_of_steps_is_special(kernel, steps):
    nodes = list(range(steps + 1))
    run = run_of(kernel, 20, steps)
    kept = kernel.paths(run, Keep.of(nodes, steps))
    right = uncompiled(kernel).paths(run, Keep.of(nodes, steps))
    assert torch.allclose(kept, right, rtol=0, atol=10 * rounding(kernel.dtype))
    long = kernel.paths(run_of(kernel, 20, 9), Keep.of(nodes, 9))
    assert torch.equal(kept, long)


def test_paths_may_have_starts_of_their_own(kernel):
    shared = run_of(kernel, 300)
    own = run_of(kernel, 300, start=shared.start[:, None].expand(-1, 300).contiguous())
    keep = Keep.of([0, 7], 7)
    assert torch.equal(kernel.paths(shared, keep), kernel.paths(own, keep))
    moved = own.start.clone()
    moved[0, 17] += 1
    other = kernel.paths(run_of(kernel, 300, start=moved), keep) - kernel.paths(own, keep)
    assert other[:, 0].count_nonzero() == 2 and (other[:, 0, 17] - 1).abs().max() < 1e-6


def test_noise_may_be_given(kernel):
    noise = torch.arange(7 * 2 * 20, dtype=kernel.dtype).reshape(7, 2, 20) / 64
    kept = kernel.paths(run_of(kernel, 20, noise=noise), Keep.of([0, 7], 7))
    assert torch.equal(kept[1, 0] - kept[0, 0], (kept[0, 0] * 0 + noise[:, 0].sum(0)))


def test_threads_do_not_change_a_bit(kernel):
    one = kernel.samples(run_of(kernel, 1000)).nan_to_num(nan=-7.0)
    torch.set_num_threads(2)
    assert torch.equal(kernel.samples(run_of(kernel, 1000)).nan_to_num(nan=-7.0), one)


def test_moments_are_those_of_the_samples(kernel):
    run = run_of(kernel, 1000)
    y = kernel.samples(run).double().numpy()
    finite = np.isfinite(y).all(1)
    assert finite.sum() > 50
    moments = kernel.moments(run)
    assert moments.count == 1000
    assert np.allclose(moments.mean.numpy()[finite], y.mean(1)[finite], rtol=1e-12, atol=1e-12)
    products = 999 * np.cov(y[finite])
    got = moments.products.numpy()[np.ix_(finite, finite)]
    assert np.allclose(got, products, rtol=1e-10, atol=1e-9)


@pytest.fixture(scope="module", params=DTYPES, ids=str)
def adder(request):
    """Outputs: the noise of four steps of two channels, and their sum far from zero."""
    program = Program()
    state = [program.input("state", k) for k in range(5)]
    z = [program.input("noise", 0), program.input("noise", 1)]
    step = [z[0], z[1], state[0], state[1], program.apply("add", state[4], z[0])]
    return Kernel(Stepper(program, step, state, [0, 1]), request.param)


def noise_of(kernel: Kernel, paths: int, steps: int = 2, **changes) -> torch.Tensor:
    start = torch.tensor([0, 0, 0, 0, 1e6], dtype=kernel.dtype)
    return kernel.samples(run_of(kernel, paths, steps, start=start, **changes))


@pytest.mark.parametrize("first_path", [0, 2**32 - 8, 2**32, 2**40 + 3])
@pytest.mark.parametrize("seed", [0, 7, 2**63 + 11])
def test_the_noise_is_that_of_a_brownian_path(adder, first_path, seed):
    got = noise_of(adder, 40, 6, seed=seed, first_path=first_path)[:2]
    paths = range(first_path, first_path + 40)
    right = _philox.normals(seed, paths, range(5, 6), 2, dtype=adder.dtype)[0].T
    # The angle of Box and Muller is rounded once more there, by 2e-7 of a turn in float32.
    tolerance = 4e-6 if adder.dtype is torch.float32 else 1e-14
    assert torch.allclose(got, right, rtol=0, atol=tolerance)


def test_a_mean_far_from_zero_does_not_spoil_the_variance(adder):
    start = torch.tensor([0, 0, 0, 0, 1e6], dtype=adder.dtype)
    run = run_of(adder, 100_000, 16, start=start)
    variance = adder.moments(run).products[4, 4].item() / 99_999
    # Rounding of 1e6 in float32 adds a variance of up to 16 * (1/16)^2 / 12.
    assert abs(variance - 16) < 16 * 5 * math.sqrt(2 / 1e5) + 0.01


def test_the_noise_is_normal(adder):
    # Each of the ten statistics is within its bound with a false-alarm rate below 1e-6.
    z = noise_of(adder, 500_000, 2)[:4].double().numpy()
    n = z.size
    assert abs(z.mean()) < 5 / math.sqrt(n)
    assert abs(z.var() - 1) < 5 * math.sqrt(2 / n)
    assert abs((z**3).mean()) < 5 * math.sqrt(15 / n)
    assert abs((z**4).mean() - 3) < 5 * math.sqrt(96 / n)
    for bound in (3.0, 4.0, 4.5):
        p = 2 * stats.norm.sf(bound)
        assert abs((abs(z) > bound).sum() - n * p) < 5 * math.sqrt(n * p)
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-6
    counts = np.bincount((stats.norm.cdf(z.ravel()) * 1000).astype(int), minlength=1000)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert abs(z).max() > 4.8


def test_steps_channels_and_paths_are_independent(adder):
    # 22 correlations, of numbers and of their squares, each beyond 5.5 deviations with rate 4e-8.
    z = noise_of(adder, 500_000, 2)[:4].double()
    pairs = [(z[i], z[j]) for i in range(4) for j in range(i)]
    pairs += [(row[1:], row[:-1]) for row in z] + [(z[0][256:], z[0][:-256])]
    for a, b in pairs:
        n = a.numel()
        assert abs((a * b).mean()) < 5.5 / math.sqrt(n)
        assert abs(((a * a - 1) * (b * b - 1)).mean()) < 5.5 * 2 / math.sqrt(n)
