"""A simulation cut into shards, each a pure function of its index."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sdesens._parameters import Places, known_parameters
from sdesens.errors import UncompiledWarning
from sdesens.fused.eager import EagerKernel
from sdesens.fused.engine import compiled
from sdesens.fused.kernel import Kernel, Moments, Run
from sdesens.fused.rules import UnrecordableError
from sdesens.fused.system import Layout, Motion, flat, tensors_of
from sdesens.montecarlo.simulation import Simulation


@dataclass(frozen=True)
class Job:
    """A simulation ready to run.

    Attributes:
        kernel: what runs it.
        layout: where its outputs are found.
        numbers: those of the run, for the paths of no shard in particular.
        paths: number of paths in all.
        shard_size: paths in every shard but the last.
    """

    kernel: Kernel | EagerKernel
    layout: Layout
    numbers: Run
    paths: int
    shard_size: int

    @classmethod
    def of(cls, simulation: Simulation, seed: int, paths: int, shard_size: int) -> Job:
        """Record and compile ``simulation``, unless that was done before."""
        motion = simulation.motion()
        _refuse_mixing(motion)
        y, tangents = _start(simulation, motion)
        moving = {(r + 1, i) for r, i in tangents[:, 0].nonzero().tolist()}
        kernel, layout = _kernel(simulation, motion, moving)
        rows = torch.cat([y, tangents[:, 0]])
        start = torch.stack([rows[slot] for slot in layout.slots])
        times, rates = _clock(simulation)
        numbers = Run(
            parameters=flat(layout.places(simulation.problem.sde).values()),
            times=times,
            rates=rates,
            flags=simulation.flags()[1:].contiguous(),
            start=start.contiguous(),
            paths=0,
            seed=seed,
        )
        return cls(kernel, layout, numbers, paths, shard_size)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.paths // self.shard_size)

    def shard(self, index: int) -> Run:
        """The run of shard ``index``."""
        first = index * self.shard_size
        return replace(
            self.numbers, first_path=first, paths=min(self.shard_size, self.paths - first)
        )

    def run_shard(self, index: int) -> Moments:
        """The moments of shard ``index``, which depend on it alone."""
        return self.kernel.moments(self.shard(index))


def _refuse_mixing(motion: Motion) -> None:
    """Raise if two paths together do not do what each does alone: only one is recorded.

    Raises:
        ValueError: if a functional or the payoff mixes paths.
    """
    two = torch.cat([motion.y, 1.1 * motion.y + 0.1])
    noise = two.new_full((2, len(motion.counters)), 0.2) * torch.tensor([[1.0], [-2.0]]).to(two)
    times = [torch.tensor(t, dtype=two.dtype) for t in (0.0, 0.5, 0.5)]
    flags = two.new_ones(motion.flags)

    def all_of(rows: slice) -> Tensor:
        y = motion.step(*times, two[rows], noise[rows], flags)
        assert motion.finish is not None
        return torch.cat([y, torch.stack(list(motion.finish(times[1].double(), y)), dim=1)], dim=1)

    with torch.no_grad():
        alone = torch.cat([all_of(slice(0, 1)), all_of(slice(1, 2))])
        tolerance = 1e3 * torch.finfo(two.dtype).eps
        if not torch.allclose(
            all_of(slice(0, 2)), alone, rtol=tolerance, atol=tolerance, equal_nan=True
        ):
            raise ValueError(
                "the payoff or a functional mixes paths: two paths together give other numbers "
                "than each alone, as with a mean over paths. Return one number a path; the mean is "
                "taken here."
            )


def _kernel(
    simulation: Simulation, motion: Motion, moving: set[tuple[int, int]]
) -> tuple[Kernel | EagerKernel, Layout]:
    try:
        engine = compiled(motion, simulation.directions, moving)
    except UnrecordableError as error:
        warnings.warn(
            f"the simulation runs uncompiled: the same numbers, hundreds of times slower: of "
            f"{type(simulation.problem.sde).__name__} or the payoff, {error}.",
            UncompiledWarning,
            stacklevel=4,
        )
        kernel = EagerKernel(motion, simulation.directions)
        return kernel, kernel.layout
    return engine.kernel, engine.layout


def _clock(simulation: Simulation) -> tuple[Tensor, Tensor]:
    """``(steps, 3)`` start, end and width of every step, and their derivatives in the maturity."""
    nodes = torch.arange(simulation.steps + 1, dtype=torch.float64) / simulation.steps
    rates = torch.stack([nodes[:-1], nodes[1:], nodes.diff()], dim=1)
    return rates * simulation.maturity, rates


def _start(simulation: Simulation, motion: Motion) -> tuple[Tensor, Tensor]:
    """State ``(1, D)`` at the start and its tangents ``(R, 1, D)``."""
    x0 = simulation.problem.x0.detach()
    flags = simulation.flags()[0].to(x0.dtype)
    functionals = list(simulation.functionals.values())
    copies = (motion.y.shape[1] - len(functionals)) // x0.shape[1]

    model = simulation.problem.sde
    names, asked = tensors_of(model, simulation.directions)
    names = names[:asked]  # what is watched may depend on them from the first node on
    known, places = known_parameters(model), Places(model, names)
    theta = [known[name].detach() for name in names]

    def start(x0: Tensor, *theta: Tensor) -> Tensor:
        with places.holding(dict(zip(names, theta, strict=True))):
            state = simulation.state(torch.zeros((), dtype=x0.dtype), x0)
            values = [
                f.start(state, flag).expand(1) for f, flag in zip(functionals, flags, strict=True)
            ]
        columns = torch.stack(values, dim=1) if values else x0.new_zeros(1, 0)
        return torch.cat([*[x0] * copies, columns], dim=1)

    tangents = []
    for name, entry in simulation.directions:
        units = [torch.zeros_like(value) for value in (x0, *theta)]
        if name == "x0":
            units[0][0, entry] = 1.0
        elif name in names:
            units[1 + names.index(name)].view(-1)[entry] = 1.0
        tangents.append(torch.func.jvp(start, (x0, *theta), tuple(units))[1])
    with torch.no_grad():
        y = start(x0, *theta)
    return y, torch.stack(tangents) if tangents else y.new_zeros(0, *y.shape)
