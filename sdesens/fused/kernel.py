"""Run a stepper over many paths: compiled, or operation by operation in torch."""

from __future__ import annotations

import ctypes
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from sdesens.errors import UncompiledWarning, WorkerMismatchError
from sdesens.fused.emit import Stepper, source
from sdesens.fused.evaluate import evaluate

_BLOCK = 256  # as in driver.h
TIMES_SLOWER = 60  # Heston with seven derivatives, operation by operation


@dataclass(frozen=True)
class Run:
    """The numbers of a run.

    Attributes:
        parameters: values of the model's tensors, flat, float64.
        times: ``(steps, 3)`` start, end and width of the noise, float64.
        rates: ``(steps, 3)`` their derivatives in the maturity.
        flags: ``(steps, flags)``.
        start: ``(slots,)``, or ``(slots, paths)`` if every path has its own.
        seed: of the noise.
        first_path: global index of path 0.
        paths: number of paths.
        noise: ``(steps, channels, paths)`` in place of normal numbers from the seed.
    """

    parameters: Tensor
    times: Tensor
    rates: Tensor
    flags: Tensor
    start: Tensor
    paths: int
    seed: int = 0
    first_path: int = 0
    noise: Tensor | None = None


@dataclass(frozen=True)
class Keep:
    """Nodes whose state is kept.

    Attributes:
        nodes: their indices, increasing.
        rows: ``(steps + 1,)``: the place of each node among them, or -1.
    """

    nodes: list[int]
    rows: Tensor

    @classmethod
    def of(cls, nodes: list[int], steps: int) -> Keep:
        """``nodes`` of a run of so many steps."""
        rows = torch.full((steps + 1,), -1, dtype=torch.int32)
        rows[nodes] = torch.arange(len(nodes), dtype=torch.int32)
        return cls(nodes, rows)


@dataclass(frozen=True)
class Moments:
    """Count, means ``(K,)`` and sums of products of deviations ``(K, K)``, float64."""

    count: int
    mean: Tensor
    products: Tensor


def moments_of(samples: Tensor) -> Moments:
    """The moments of samples ``(K, paths)``."""
    y = samples.double()
    mean = y.mean(1)
    deviation = y - mean[:, None]
    return Moments(y.shape[1], mean, deviation @ deviation.T)


class _Job(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("numbers", "parameters", "times", "rates", "flags")),
        ("steps", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        *((name, ctypes.c_int64) for name in ("first_path", "paths", "begin", "end")),
        ("start", ctypes.c_void_p),
        ("start_stride", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("noise", "keep", "kept", "samples", "moments")),
    ]


class Kernel:
    """A stepper, ready to run on the CPU in one dtype.

    It can be pickled: another process compiles it anew, or finds it in the cache on disk.

    Attributes:
        seconds: time spent compiling, 0 if it was compiled before in this process.
        is_compiled: whether it is; if not, the same numbers come from torch, slower.
        digest: of the code and the literals in it.
    """

    def __init__(self, stepper: Stepper, dtype: torch.dtype, *, compile_: bool = True) -> None:
        self.stepper, self.dtype = stepper, dtype
        self._numbers = torch.tensor(stepper.program.numbers, dtype=torch.float64)
        code, begin = source(stepper, dtype), time.perf_counter()
        self.digest = sha256(code.encode() + self._numbers.numpy().tobytes()).hexdigest()
        fresh = compile_ and code not in _libraries
        if fresh:
            _libraries[code] = _load(code)
        self._run = _libraries[code] if compile_ else None
        self.seconds = time.perf_counter() - begin if fresh else 0.0
        self.is_compiled = self._run is not None

    def __reduce__(self) -> tuple[Any, ...]:
        return _elsewhere, (self.stepper, self.dtype, self.is_compiled, self.digest)

    def paths(self, run: Run, keep: Keep) -> Tensor:
        """Slots at the nodes kept, ``(nodes, slots, paths)``."""
        if not self.is_compiled:
            return evaluate(self.stepper, self._numbers, run, self.dtype, keep.nodes)[0]
        kept = torch.empty(len(keep.nodes), len(self.stepper.step), run.paths, dtype=self.dtype)
        self._call(run, keep=keep.rows, kept=kept)
        return kept

    def samples(self, run: Run) -> Tensor:
        """The outputs of every path, ``(outputs, paths)``."""
        if not self.is_compiled:
            return evaluate(self.stepper, self._numbers, run, self.dtype, [])[1]
        out = torch.empty(len(self.stepper.outputs), run.paths, dtype=self.dtype)
        self._call(run, samples=out)
        return out

    def moments(self, run: Run) -> Moments:
        """Moments of the outputs; always by one thread, in one order."""
        k = len(self.stepper.outputs)
        if not self.is_compiled:
            with one_thread():
                return moments_of(self.samples(run))
        out = torch.empty(k + k * k, dtype=torch.float64)
        self._call(run, moments=out)
        return Moments(run.paths, out[:k], out[k:].view(k, k))

    def _call(self, run: Run, **arrays: Tensor) -> None:
        """Run all paths, by several threads where nothing is summed over paths."""
        stride = run.start.shape[1] if run.start.dim() == 2 else 0
        inputs = {
            "numbers": self._numbers,
            "parameters": run.parameters,
            "times": run.times,
            "rates": run.rates,
            "flags": run.flags,
            "start": run.start,
        }
        if run.noise is not None:
            inputs["noise"] = run.noise
        for name, tensor in inputs.items():
            real = self.dtype if name in ("start", "noise") else torch.float64
            assert tensor.is_contiguous() and tensor.dtype is real, name
        pointers = {name: tensor.data_ptr() for name, tensor in (inputs | arrays).items()}
        threads = 1 if "moments" in arrays else torch.get_num_threads()
        call = self._run
        assert call is not None
        ranges = _ranges(run.paths, threads)
        jobs = [
            _Job(
                **pointers,
                steps=run.times.shape[0],
                seed=run.seed,
                first_path=run.first_path,
                paths=run.paths,
                begin=begin,
                end=end,
                start_stride=stride,
            )
            for begin, end in ranges
        ]
        if len(jobs) == 1:
            call(ctypes.byref(jobs[0]))
            return
        with ThreadPoolExecutor(len(jobs)) as pool:
            list(pool.map(lambda job: call(ctypes.byref(job)), jobs))


def _elsewhere(stepper: Stepper, dtype: torch.dtype, is_compiled: bool, digest: str) -> Kernel:
    """The kernel in the process that it was sent to, which must give the same bits.

    Raises:
        WorkerMismatchError: if it would not.
    """
    kernel = Kernel(stepper, dtype, compile_=is_compiled)
    if kernel.is_compiled != is_compiled:
        raise WorkerMismatchError(
            "this worker cannot compile what its driver compiled, and uncompiled its numbers would "
            "differ in the last bits. Install a C++ compiler on the worker, or on none."
        )
    if kernel.digest != digest:
        raise WorkerMismatchError(
            "this worker writes another kernel than its driver: its copy of sdesens is another. "
            "Install the same version on both."
        )
    return kernel


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread, so that the bits of a sum do not depend on how many there are."""
    with _threads:  # their number is one for the process
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


_threads = Lock()


def _ranges(paths: int, threads: int) -> list[tuple[int, int]]:
    blocks = -(-paths // _BLOCK)
    size = max(1, -(-blocks // threads)) * _BLOCK
    return [(a, min(a + size, paths)) for a in range(0, paths, size)]


def compile_count() -> int:
    """How many kernels this process has compiled, or loaded from torch's cache on disk."""
    return len(_libraries)


_libraries: dict[str, Any] = {}  # the function ``run`` of every source, None if it fails


def _load(code: str) -> Any:
    """The compiled ``run`` of this source, or None if it does not compile here."""
    try:
        library = _compile(code)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        first = next((line for line in lines if "error:" in line), lines[0])
        warnings.warn(
            f"the fused engine runs uncompiled: the same numbers, about {TIMES_SLOWER} times "
            f"slower (as measured by scripts/bench_montecarlo.py). Compiling failed: "
            f"{type(error).__name__}: {first}",
            UncompiledWarning,
            stacklevel=4,
        )
        return None
    library.run.restype, library.run.argtypes = None, [ctypes.c_void_p]
    return library.run


def _compile(code: str) -> Any:
    """The library, from torch's cache on disk if it is there."""
    from torch._inductor import config, cpu_vec_isa  # noqa: PLC0415  (slow to import)
    from torch._inductor.codecache import CppCodeCache  # noqa: PLC0415

    flags = ("-ffp-contract=fast",)
    try:
        # In every process torch asks a process for each instruction set whether it works, which
        # takes seconds. Take the processor's word, and ask only if that fails.
        with config.patch({"cpp.vec_isa_ok": True}):
            return CppCodeCache.load(code, extra_flags=flags)
    except (RuntimeError, OSError):  # does not compile, does not load
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
        return CppCodeCache.load(code, extra_flags=flags)
    finally:
        cpu_vec_isa.valid_vec_isa_list.cache_clear()  # nobody else's word
