"""The front door: ``montecarlo.run``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from sdesens._checks import check_count
from sdesens._parameters import known_parameters
from sdesens.fused.kernel import Moments
from sdesens.montecarlo.accuracy import Target
from sdesens.montecarlo.arguments import (
    check_functionals,
    check_maturity,
    check_run,
    component_names,
    directions_of,
    problem_of,
)
from sdesens.montecarlo.estimates import Estimates
from sdesens.montecarlo.execution import Terms
from sdesens.montecarlo.functionals import Functional
from sdesens.montecarlo.job import SHARD_SIZE, Job
from sdesens.montecarlo.moments import raise_if_not_finite
from sdesens.montecarlo.simulation import Payoff, Simulation
from sdesens.montecarlo.specification import Specification, in_plain_values


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
        specification = Specification(_about(simulation, seed, shard_size), [job])
        return terms.estimate(
            specification, lambda parts: estimated.found(job, parts[0]), target, bar.update
        )


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
    return in_plain_values(
        simulation.problem,
        simulation.scheme,
        simulation.steps,
        seed,
        shard_size,
        payoff=getattr(simulation.payoff, "__qualname__", type(simulation.payoff).__name__),
        functionals={k: type(f).__name__ for k, f in simulation.functionals.items()},
        maturity=simulation.maturity,
        wrt=[f"{name}[{entry}]" for name, entry in simulation.directions],
    )


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
    steps, maturity = check_count("steps", steps), check_maturity(maturity)
    problem = problem_of(
        sde, x0, maturity, steps, scheme, dtype=dtype, options=options, names=names
    )
    directions = directions_of(sde, problem.x0, wrt)
    functionals = dict(functionals or {})
    check_functionals(functionals, sde, problem.x0, maturity, steps)
    return Simulation(problem, maturity, steps, scheme, payoff, functionals, directions)


def _input_shapes(simulation: Simulation) -> dict[str, tuple[int, ...]]:
    known = known_parameters(simulation.problem.sde)
    shapes = {name: tuple(known[name].shape) if name in known else () for name, _ in
              simulation.directions}  # fmt: skip
    if "x0" in shapes:
        shapes["x0"] = (sum(name == "x0" for name, _ in simulation.directions),)
    return shapes
