"""Time and memory of the utilities in ``sdesens.autodiff`` against what they replace.

    python scripts/bench_autodiff.py [--quick]

Times are minima of interleaved runs on one thread. Memory is the growth of the resident set at its
peak, each case in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from sdesens.autodiff import per_sample_grad, per_sample_param_grad, unique_map

Case = Callable[[], object]


def costly(u: Tensor) -> Tensor:
    """The distribution function of a noncentral chi-square, the law of a CIR step; 32 terms.

    About 3 microseconds an element, forward and backward; the dearer, the larger the ratio.
    """
    total = torch.zeros_like(u)
    for j in range(32):
        shape = torch.full_like(u, 0.6 + j)
        total = total + 2.5**j / math.factorial(j) * torch.special.gammainc(shape, 2 * u)
    return math.exp(-2.5) * total


def dedup_cases(elements: int, distinct: int) -> dict[str, Case]:
    """Forward and backward of ``costly`` on values of which ``distinct`` differ."""
    generator = torch.Generator().manual_seed(0)
    pool = torch.rand(distinct, generator=generator, dtype=torch.float64)
    order = torch.randperm(elements, generator=generator) % distinct
    x = pool[order].requires_grad_()
    w = torch.rand(elements, generator=generator, dtype=torch.float64)
    return {
        "plain": lambda: torch.autograd.grad(costly(x), x, w),
        "unique_map": lambda: torch.autograd.grad(unique_map(costly, x), x, w),
    }


def network(features: int) -> nn.Module:
    """Two layers, one output, samples apart."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, 1)).double()


def per_sample_cases(n: int, features: int) -> dict[str, Case]:
    """Gradients of each sample's output in its own input."""
    net = network(features)
    x = torch.randn(n, features, dtype=torch.float64)

    def full() -> Tensor:
        jacobian = torch.autograd.functional.jacobian(
            lambda x: net(x).reshape(-1), x, strict=True, vectorize=False
        )
        return torch.einsum("iif->if", jacobian)

    one = torch.func.grad(lambda row: net(row[None]).reshape(()))
    return {
        "full jacobian + einsum": full,
        "none, vjp": lambda: per_sample_grad(net, x),
        "none, vmap": lambda: per_sample_grad(net, x, strategy="vmap"),
        "none, vjp, check": lambda: per_sample_grad(net, x, check=True),
        "exact": lambda: per_sample_grad(net, x, coupling="exact"),
        "torch.func": lambda: torch.func.vmap(one)(x),
    }


def parameter_cases(n: int, features: int) -> dict[str, Case]:
    """Gradients of each sample's loss in the parameters."""
    net = network(features)
    params = {k: v.detach() for k, v in net.named_parameters()}
    x = torch.randn(n, features, dtype=torch.float64)

    def losses(params, x: Tensor) -> Tensor:
        return torch.func.functional_call(net, params, (x,)).square()

    def one(params, row: Tensor) -> Tensor:
        return losses(params, row[None]).reshape(())

    cases: dict[str, Case] = {
        "none": lambda: per_sample_param_grad(losses, params, x),
        "exact": lambda: per_sample_param_grad(losses, params, x, coupling="exact"),
        "torch.func": lambda: torch.func.vmap(torch.func.grad(one), in_dims=(None, 0))(params, x),
    }
    if importlib.util.find_spec("opacus") is not None:
        cases["opacus"] = opacus_case(n, features, x)
    return cases


def opacus_case(n: int, features: int, x: Tensor) -> Case:
    """The same by Opacus, which hooks the layers."""
    from opacus import GradSampleModule  # pyright: ignore # noqa: PLC0415

    net = GradSampleModule(network(features), loss_reduction="sum")

    def run() -> object:
        net.zero_grad()
        net(x).square().sum().backward()
        return [p.grad_sample for p in net.parameters()]

    return run


GROUPS = {"dedup": dedup_cases, "input": per_sample_cases, "parameter": parameter_cases}


def minima(cases: dict[str, Case], rounds: int) -> dict[str, float]:
    """The least time of each case, the cases taking turns."""
    best = dict.fromkeys(cases, float("inf"))
    for case in cases.values():
        case()
    for _ in range(rounds):
        for name, case in cases.items():
            start = time.perf_counter()
            case()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def peak_memory(group: str, sizes: tuple[int, int], name: str) -> float:
    """Growth of the peak resident set over one run, in MiB, in a fresh process."""
    command = [sys.executable, __file__, "--peak", group, str(sizes[0]), str(sizes[1]), name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_peak(group: str, first: str, second: str, name: str) -> None:
    """The child's side of :func:`peak_memory`."""
    GROUPS[group](min(int(first), 4), min(int(second), 4))[name]()  # imports and thread pools
    case = GROUPS[group](int(first), int(second))[name]
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = resident("VmRSS")
    case()
    print((resident("VmHWM") - before) / 1024)


def resident(field: str) -> float:
    """A memory field of this process in KiB; NaN where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return float("nan")
    return next(float(line.split()[1]) for line in status.splitlines() if line.startswith(field))


def report(title: str, group: str, sizes: tuple[int, int], rounds: int, slow: set[str]) -> None:
    """A table of one group; cases in ``slow`` are run once only."""
    cases = GROUPS[group](*sizes)
    times = minima({k: v for k, v in cases.items() if k not in slow}, rounds)
    times |= minima_once({k: v for k, v in cases.items() if k in slow})
    reference = times[next(iter(cases))]
    print(f"\n{title}\n{'':26s}{'ms':>10s}{'faster':>10s}{'peak MiB':>10s}")
    for name in cases:
        memory = peak_memory(group, sizes, name)
        print(
            f"  {name:24s}{1e3 * times[name]:10.2f}{reference / times[name]:9.1f}x{memory:10.1f}",
            flush=True,
        )


def minima_once(cases: dict[str, Case]) -> dict[str, float]:
    """One timed run of each, without a warm-up."""
    times = {}
    for name, case in cases.items():
        start = time.perf_counter()
        case()
        times[name] = time.perf_counter() - start
    return times


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Time and memory of sdesens.autodiff.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, about a minute")
    parser.add_argument("--peak", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.peak:
        print_peak(*options.peak)
        return
    elements = 10**5 if options.quick else 10**6
    rounds = 2 if options.quick else 3
    print(f"torch {torch.__version__}, one thread, float64, minima of {rounds} interleaved runs")
    for distinct in (elements // 10**4, elements // 100, elements):
        title = f"unique_map: {elements:.0e} elements, {distinct:.0e} distinct, forward + backward"
        report(title, "dedup", (elements, distinct), rounds, set())
    for n in (64, 256) if options.quick else (64, 512, 4096):
        slow = {"full jacobian + einsum", "exact"} if n > 1000 else set()
        report(f"per_sample_grad: N = {n}, F = 16", "input", (n, 16), 5 * rounds, slow)
    for n in (64, 256) if options.quick else (64, 1024):
        slow = {"exact"} if n > 1000 else set()
        report(f"per_sample_param_grad: N = {n}, 1153 parameters", "parameter", (n, 16), 5, slow)
    if importlib.util.find_spec("opacus") is None:
        print("\nOpacus is not installed; its row is left out (pip install opacus).")


if __name__ == "__main__":
    main()
