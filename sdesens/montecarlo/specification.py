"""What a job is, complete: a value that can be printed, sent elsewhere, and told from others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn

from sdesens.fused.kernel import Moments
from sdesens.montecarlo.job import Job
from sdesens.problem import Problem

_SHOWN = 8  # entries of a tensor that are written out


@dataclass(frozen=True, repr=False)
class Specification:
    """A job: simulations cut into shards, each a pure function of this value and its index.

    Attributes:
        about: the job in plain values: model, parameters, payoff, scheme, steps, dtype, seed, shard
            size, versions. The number of paths is not among them: more paths are the same job.
        jobs: its simulations, on the same number of paths.
    """

    about: Mapping[str, Any]
    jobs: Sequence[Job]

    @property
    def paths(self) -> int:
        """Number of paths."""
        return self.jobs[0].paths

    @property
    def shards(self) -> int:
        """Number of shards of each simulation."""
        return self.jobs[0].shards

    def run_shard(self, piece: int, index: int) -> Moments:
        """The moments of a shard of simulation ``piece``, which depend on nothing else."""
        return self.jobs[piece].run_shard(index)

    @cached_property
    def contents(self) -> dict[str, Any]:
        """All that the numbers depend on, fit for JSON: ``about``, and a hash of each program."""
        return {**self.about, "simulations": [job.identity for job in self.jobs]}

    @cached_property
    def digest(self) -> str:
        """A hash of :attr:`contents`; it names the checkpoint folder."""
        return digest_of(self.contents)

    def __repr__(self) -> str:
        rows = {**self.about, "paths": self.paths, "shards": self.shards, "digest": self.digest}
        width = max(map(len, rows))
        return "\n".join(f"{name:{width}}  {_shown(value)}" for name, value in rows.items())


def digest_of(contents: Mapping[str, Any]) -> str:
    """The hash of plain values, whatever the order of their names."""
    return sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def in_plain_values(
    problem: Problem, scheme: str, steps: int, seed: int, shard_size: int, **own: Any
) -> dict[str, Any]:
    """A job in plain values; ``own`` are those that only jobs of its kind have."""
    return {
        "model": type(problem.sde).__name__,
        "parameters": _parameters(problem.sde),
        "x0": _plain(problem.x0[0]),
        **own,
        "scheme": scheme,
        "steps": steps,
        "dtype": str(problem.x0.dtype),
        "seed": seed,
        "shard_size": shard_size,
        "versions": versions(),
    }


def _parameters(model: object) -> dict[str, Any]:
    """The values of a model's parameters; of large ones shape and hash."""
    named = model.named_parameters() if isinstance(model, nn.Module) else ()
    return {name: _plain(value) for name, value in named}


def _plain(value: Tensor) -> Any:
    """A tensor as a number or a list; a large one as its shape and hash."""
    value = value.detach().cpu()
    if value.numel() <= _SHOWN:
        return value.tolist()
    content = sha256(value.contiguous().numpy().tobytes()).hexdigest()
    return {"shape": list(value.shape), "sha256": content[:16]}


def versions() -> dict[str, str]:
    """What has a say in the last bits."""
    from sdesens import __version__  # noqa: PLC0415  (the top of the package, made last)

    return {"sdesens": __version__, "torch": str(torch.__version__)}


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {inner}" for name, inner in value.items())
    return str(value)
