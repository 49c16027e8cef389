"""The front door: ``montecarlo.run``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from sdesens._checks import check_choice, check_count, check_finite
from sdesens._parameters import known_parameters
from sdesens.fused.kernel import Moments
from sdesens.fused.system import Direction
from sdesens.montecarlo.accuracy import Target
from sdesens.montecarlo.estimates import Estimates
from sdesens.montecarlo.execution import Terms
from sdesens.montecarlo.functionals import Functional
from sdesens.montecarlo.job import Job
from sdesens.montecarlo.simulation import Payoff, Simulation
from sdesens.montecarlo.specification import Specification, parameters_in_words, plain, versions
from sdesens.prepare import prepare, refuse_coupling
from sdesens.problem import Problem
from sdesens.sde import SDE

SHARD_SIZE = 2**16


def run(
    sde: Any,
    x0: Tensor | Sequence[float],
    payoff: Payoff,
    *,
    maturity: float,
    steps: int,
    paths: int,
    wrt: str | Sequence[str] = "all",
    scheme: str = "euler",
    functionals: Mapping[str, Functional] | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    options: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
    shard_size: int = SHARD_SIZE,
    workers: int = 1,
    executor: Any = None,
    checkpoint: str | PathLike[str] | None = None,
    target_stderr: float | Mapping[Any, float] | None = None,
    retries: int = 2,
    progress: bool = False,
) -> Estimates:
    r"""Means over paths of a payoff, and their derivatives in everything the paths depend on.

    Noise, state, tangents, functionals and payoff advance together in one compiled pass, so nothing
    is held for a path but its state, and memory does not grow with ``paths``. Derivatives are
    pathwise: right for a payoff that is Lipschitz in the state, and **wrong without a sign of it
    for one that jumps** (a digital, a barrier), whose jump has derivative zero almost everywhere.

    The noise of path p, step k and channel c is that of :class:`~sdesens.BrownianPath`, so path 17
    of a million can be replayed alone by :func:`~sdesens.sensitivities` with ``bm=BrownianPath(...,
    first_path=17)``. The bits of the result depend on the arguments and ``shard_size``, not on
    workers.

    Args:
        sde: an :class:`~sdesens.SDE` or any object torchsde accepts.
        x0: ``(d,)``, the start of all paths.
        payoff: a function of the end of a path that returns one number a path ``(P,)``, or a dict
            of such. Its argument has the components of the state as attributes (``end.spot``),
            functionals by their names, ``end.time`` (the maturity) and ``end.y (P, d)``. Parameters
            of the model it uses are differentiated too. It must be written in torch.
        maturity: end of the paths, which start at time 0.
        steps: number of equal steps.
        paths: number of paths, at least 2.
        wrt: inputs of the derivatives: ``"x0"``, components, parameters, ``"maturity"`` (the number
            of steps fixed, dates moving along); or ``"all"``. ``()`` for none.
        scheme: a fixed-step solver of torchsde (``"euler"``, ``"milstein"``, ``"heun"``, ...) or
            one of the model's own ``schemes`` (``"exact"``).
        functionals: what is gathered along the path, by name; see :class:`Functional`.
        seed: seed of the noise.
        dtype: of the paths, float32 or float64; sums are float64.
        options: solver options, ``{"grad_free": True}`` for milstein.
        names: names of drift and diffusion methods, as in ``torchsde.sdeint``.
        shard_size: paths simulated at once, whose moments are then merged in order.
        workers: number of processes, or of what ``executor`` names.
        executor: what runs the shards: ``"serial"``, ``"threads"``, ``"processes"``, ``"dask"`` (a
            cluster on this machine), ``"ray"`` (that of ``ray.init()``), the address of a Dask
            scheduler, a ``dask.distributed.Client``, a :class:`RayExecutor`, or any
            ``concurrent.futures.Executor``.
        checkpoint: a folder for finished shards. A run that was stopped goes on where it was, and
            one of more paths where the first ended, to the same bits.
        target_stderr: stop where the standard error of the value is this, or that of every
            ``{key: stderr}``, keys as in :class:`Estimates`; ``paths`` is then the most. The number
            of paths depends on the samples, a bias of the order of 1 / paths.
        retries: how often a shard that fails, or whose worker dies, is tried again.
        progress: show a bar of paths.

    Returns:
        :class:`Estimates`.

    Raises:
        ValueError, TypeError, UnsupportedError: for bad arguments, before anything is compiled.
        ArithmeticError: if a mean is not finite.
        ShardError: if a shard fails more often than ``retries``; finished ones stay on disk.
        CheckpointError: if ``checkpoint`` cannot be used.

    Warns:
        AccuracyWarning: if ``paths`` do not reach ``target_stderr``.
        UncompiledWarning: if the model or the payoff cannot be compiled, or there is no compiler;
            the numbers are the same.

    Source: Glasserman, *Monte Carlo Methods in Financial Engineering*, 2003, section 7.2.

    Example:
        >>> import torch
        >>> from sdesens import montecarlo
        >>> from sdesens.models import GeometricBrownianMotion
        >>> gbm = GeometricBrownianMotion(mu=0.05, sigma=0.2)
        >>> def call(end):
        ...     return torch.exp(-gbm.mu * end.time) * torch.relu(end.x - 100.0)
        >>> result = montecarlo.run(gbm, [100.0], call, maturity=1.0, steps=1, paths=100_000,
        ...                         scheme="exact")
        >>> delta = result["value", "x"]
        >>> abs(delta.value - 0.636831) < 4 * delta.stderr < 0.01
        True
    """
    simulation = simulation_of(
        sde, x0, payoff, maturity=maturity, steps=steps, wrt=wrt, scheme=scheme,
        functionals=functionals, dtype=dtype, options=options, names=names,
    )  # fmt: skip
    paths = check_count("paths", paths, 2)
    check_run(seed, shard_size)
    terms = Terms.of(executor, workers, checkpoint, retries)
    estimated = _Estimated.of(simulation, seed)
    target = Target.of(target_stderr, estimated.outputs[0], estimated.blank())
    with tqdm(total=paths, unit="path", unit_scale=True, disable=not progress) as bar:
        bar.set_description("compiling")
        job = Job.of(simulation, seed, paths, shard_size)
        bar.set_description(f"simulating (compiled in {job.kernel.seconds:.1f} s)")

        def shortfall(parts: Sequence[Moments]) -> float:
            return target.shortfall(estimated.found(job, parts[0])) if target else 1.0

        specification = Specification(_about(simulation, seed, shard_size), [job])
        (moments,) = terms.carry_out(specification, target and shortfall, bar.update)
    found = estimated.found(job, moments)
    if target is not None:
        target.warn_if_missed(found, moments.count)
    return found


@dataclass(frozen=True)
class _Estimated:
    """What a simulation estimates.

    Attributes:
        simulation: whose it is.
        outputs: names of its outputs.
        seed: of the noise.
    """

    simulation: Simulation
    outputs: Sequence[str]
    seed: int

    @classmethod
    def of(cls, simulation: Simulation, seed: int) -> _Estimated:
        return cls(simulation, simulation.output_names(), seed)

    def found(self, job: Job, moments: Moments) -> Estimates:
        """The estimates of these moments."""
        raise_if_not_finite(moments)
        return self._estimates(job.layout.outputs, moments)

    def blank(self) -> Estimates:
        """Zeros, under the names of all that is estimated."""
        rows, outputs = 1 + len(self.simulation.directions), len(self.outputs)
        keys = [(r, k) for r in range(rows) for k in range(outputs)]
        zeros = torch.zeros(len(keys), dtype=torch.float64)
        return self._estimates(keys, Moments(2, zeros, torch.outer(zeros, zeros)))

    def _estimates(self, keys: Sequence[tuple[int, int]], moments: Moments) -> Estimates:
        simulation = self.simulation
        return Estimates(
            moments=moments,
            outputs=self.outputs,
            inputs=_input_shapes(simulation),
            components=component_names(simulation.problem.sde, simulation.problem.x0.shape[1]),
            places={key: k for k, key in enumerate(keys)},
            directions=simulation.directions,
            seed=self.seed,
        )


def _about(simulation: Simulation, seed: int, shard_size: int) -> dict[str, Any]:
    """The simulation in plain values."""
    problem = simulation.problem
    return {
        "model": type(problem.sde).__name__,
        "parameters": parameters_in_words(problem.sde),
        "x0": plain(problem.x0[0]),
        "payoff": getattr(simulation.payoff, "__qualname__", type(simulation.payoff).__name__),
        "functionals": {k: type(f).__name__ for k, f in simulation.functionals.items()},
        "maturity": simulation.maturity,
        "wrt": [f"{name}[{entry}]" for name, entry in simulation.directions],
        "scheme": simulation.scheme,
        "steps": simulation.steps,
        "dtype": str(problem.x0.dtype),
        "seed": seed,
        "shard_size": shard_size,
        "versions": versions(),
    }


def raise_if_not_finite(moments: Moments) -> None:
    """Raise :class:`ArithmeticError` if a mean or a variance is not finite."""
    if not bool(torch.isfinite(moments.mean).all() and torch.isfinite(moments.products).all()):
        raise ArithmeticError(
            "a mean or a variance is not finite: some path or derivative is not. Run its paths by "
            "sensitivities(), which names the first time and sample; use more steps, or check "
            "roots and logarithms at zero."
        )


def check_run(seed: int, shard_size: int) -> None:
    """Raise unless these are counts, and the seed one of 64 bits."""
    check_count("shard_size", shard_size)
    if not 0 <= check_count("seed", seed, 0) < 2**64:
        raise ValueError(f"seed must be in [0, 2**64), got {seed}.")


def simulation_of(
    sde: Any,
    x0: Tensor | Sequence[float],
    payoff: Payoff,
    *,
    maturity: float,
    steps: int,
    wrt: str | Sequence[str],
    scheme: str,
    functionals: Mapping[str, Functional] | None,
    dtype: torch.dtype,
    options: Mapping[str, Any] | None,
    names: Mapping[str, str] | None,
) -> Simulation:
    """Check the arguments of a simulation."""
    steps, maturity = check_count("steps", steps), _check_maturity(maturity)
    problem = problem_of(
        sde, x0, maturity, steps, scheme, dtype=dtype, options=options, names=names
    )
    directions = _directions(sde, problem.x0, wrt)
    functionals = dict(functionals or {})
    check_functionals(functionals, sde, problem.x0, maturity, steps)
    return Simulation(problem, maturity, steps, scheme, payoff, functionals, directions)


def problem_of(
    sde: Any,
    x0: Tensor | Sequence[float],
    maturity: float,
    steps: int,
    scheme: str,
    *,
    dtype: torch.dtype,
    options: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
) -> Problem:
    """The model with its start and its scheme, checked."""
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"dtype must be torch.float32 or torch.float64, got {dtype}.")
    x0 = _check_x0(x0, dtype)
    for name, value in known_parameters(sde).items():
        if value.device.type != "cpu":
            raise ValueError(
                f"the parameter {name!r} is on {value.device}; simulations run on the CPU. Use "
                f"model.cpu()."
            )
        check_finite(f"the parameter {name!r}", value)
    own = scheme in sde.schemes if isinstance(sde, SDE) else False
    ts = torch.tensor([0.0, maturity], dtype=torch.float64)
    problem = prepare(
        sde, x0, ts, method=None if own else scheme, dt=maturity / steps, seed=0, options=options,
        names=names,
    )  # fmt: skip
    refuse_coupling(problem)
    return problem


def _check_maturity(maturity: Any) -> float:
    value = float(maturity)
    if not (value > 0 and value < float("inf")):
        raise ValueError(f"maturity must be positive and finite, got {maturity}.")
    return value


def _check_x0(x0: Tensor | Sequence[float], dtype: torch.dtype) -> Tensor:
    x0 = torch.as_tensor(x0, dtype=dtype) if not isinstance(x0, Tensor) else x0.detach().to(dtype)
    if x0.dim() != 1:
        raise ValueError(
            f"x0 must have shape (d,), one start for all paths, got {tuple(x0.shape)}."
        )
    return x0.cpu()[None]


def _directions(sde: Any, x0: Tensor, wrt: str | Sequence[str]) -> list[Direction]:
    """Every entry of every input."""
    known = known_parameters(sde)
    components = component_names(sde, x0.shape[1])
    if wrt == "all":
        wrt = ("x0", *distinct(known), "maturity")
    wrt = (wrt,) if isinstance(wrt, str) else tuple(wrt)
    out: list[Direction] = []
    for name in wrt:
        check_choice("wrt", name, ("x0", *components, *known, "maturity"))
        if name in known and name in ("x0", *components, "maturity"):
            raise ValueError(
                f"wrt has {name!r}, which is a parameter of {type(sde).__name__} and also an input "
                f"of every simulation. Rename the parameter."
            )
        if name == "x0":
            out += [("x0", j) for j in range(x0.shape[1])]
        elif name in known:
            out += [(name, k) for k in range(known[name].numel())]
        elif name == "maturity":
            out.append((name, 0))
        else:
            out.append(("x0", components.index(name)))
    repeated = {name for name in out if out.count(name) > 1}
    if repeated:
        raise ValueError(f"wrt names {sorted(repeated)} more than once: {list(wrt)}.")
    return out


def distinct(known: Mapping[str, Tensor]) -> list[str]:
    """Names of the parameters, tied ones once."""
    seen: dict[int, str] = {}
    for name, value in known.items():
        seen.setdefault(id(value), name)
    return list(seen.values())


def component_names(sde: Any, d: int) -> list[str]:
    """Names of the entries of x0."""
    if not isinstance(sde, SDE):
        return [f"x{i}" for i in range(d)]
    if isinstance(sde.state, Mapping):
        return [f"{name}[{i}]" for name, n in sde.state.items() for i in range(n)]
    return list(sde.state)


def _input_shapes(simulation: Simulation) -> dict[str, tuple[int, ...]]:
    known = known_parameters(simulation.problem.sde)
    shapes = {name: tuple(known[name].shape) if name in known else () for name, _ in
              simulation.directions}  # fmt: skip
    if "x0" in shapes:
        shapes["x0"] = (sum(name == "x0" for name, _ in simulation.directions),)
    return shapes


def check_functionals(
    functionals: Mapping[str, Functional], sde: Any, x0: Tensor, maturity: float, steps: int
) -> None:
    """Raise unless the functionals have free names and dates on the grid."""
    taken = {"time", "y", "law", "normals", *component_names(sde, x0.shape[1])}
    for name, functional in functionals.items():
        if not isinstance(functional, Functional):
            raise TypeError(
                f"functionals[{name!r}] must be a Functional, got {type(functional).__name__}."
            )
        if name in taken:
            raise ValueError(f"a functional cannot be called {name!r}: the state has that name.")
        for date in functional.dates or ():
            node = date / maturity * steps
            if not 0 <= node <= steps * (1 + 1e-12) or abs(node - round(node)) > 1e-6:
                nearest = min(max(round(node), 0), steps) * maturity / steps
                raise ValueError(
                    f"functionals[{name!r}] asks for the date {date:g}, which is not on the grid "
                    f"of {steps} steps up to {maturity:g}; the nearest node is {nearest:g}. Change "
                    f"steps or the date."
                )
        found = [round(date / maturity * steps) for date in functional.dates or ()]
        if len(set(found)) < len(found):
            raise ValueError(
                f"functionals[{name!r}] has dates at the same node of the grid, "
                f"{list(functional.dates or ())}; each counts once. Name each once."
            )
