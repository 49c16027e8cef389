"""Compiled systems, made once for every model, scheme, set of directions and dtype."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sdesens import _philox
from sdesens.fused.kernel import Kernel
from sdesens.fused.noise import NoiseForm
from sdesens.fused.system import Direction, Layout, Motion, assemble
from sdesens.problem import Problem
from sdesens.solve import StepMap

_KEPT = 64


@dataclass(frozen=True)
class Engine:
    """A kernel, and where its numbers are found."""

    layout: Layout
    kernel: Kernel


_engines: OrderedDict[Hashable, tuple[Engine, Any]] = OrderedDict()


def engine_for(
    motion: Motion,
    directions: Sequence[Direction],
    moving: set[tuple[int, int]],
    key: Hashable,
    *,
    anew: bool = False,
) -> Engine:
    """The engine of ``motion``, from the cache unless ``anew``.

    ``key`` tells the functions of the motion from others; what the model's tensors hold is no part
    of it, nor the numbers of a run.

    Raises:
        UnrecordableError: if the motion cannot be written as scalar operations.
    """
    dtype = motion.y.dtype
    key = (key, fingerprint(motion.model), tuple(directions), frozenset(moving), dtype)
    if key not in _engines or anew:
        engine = compiled(motion, directions, moving)
        # The model is kept alive: an identity in the key must not pass to another object.
        _engines[key] = engine, motion.model
        if len(_engines) > _KEPT:
            _engines.popitem(last=False)
    _engines.move_to_end(key)
    return _engines[key][0]


def compiled(
    motion: Motion, directions: Sequence[Direction], moving: set[tuple[int, int]]
) -> Engine:
    """The engine of ``motion``, recorded anew; compiled only if its program is new.

    Raises:
        UnrecordableError: if the motion cannot be written as scalar operations.
    """
    stepper, layout = assemble(motion, directions, moving)
    return Engine(layout, Kernel(stepper, motion.y.dtype))


def solver_step(problem: Problem, form: NoiseForm) -> tuple[Callable[..., Tensor], Tensor]:
    """The step of a torchsde solver for :class:`Motion`, and an example of its state."""
    step = StepMap(problem)
    x0 = problem.x0.detach()[:1].cpu()
    y = torch.cat([x0] * step.copies, dim=1)

    def advance(
        start: Tensor, end: Tensor, width: Tensor, y: Tensor, noise: Tensor, flags: Tensor
    ) -> Tensor:
        return step(start, end, y, form.of(noise, width))

    return advance, y


def own_step(problem: Problem, scheme: str) -> tuple[Callable[..., Tensor], Tensor, list[int]]:
    """The step of a model's own scheme, an example of its state, and its channel words."""
    sde = problem.sde
    channels = sde.scheme_channels.get(scheme, problem.bm.shape[1])
    method = getattr(sde, f"step_{scheme}")

    def advance(
        start: Tensor, end: Tensor, width: Tensor, y: Tensor, noise: Tensor, flags: Tensor
    ) -> Tensor:
        components = sde.components(y)
        new = sde.per_component(method(start, width, noise.mT, *components), "entry")
        return sde.join(new, components)

    counters = [_philox.word(_philox.INCREMENT, c) for c in range(channels)]
    return advance, problem.x0.detach()[:1], counters


def fingerprint(value: Any, above: tuple[int, ...] = ()) -> Hashable:  # noqa: PLR0911  (a table)
    """What an object is apart from the values of its floating tensors.

    Numbers, strings and containers of them count by value, modules and plain objects by type and
    attributes, everything else by identity. ``above`` holds the identities of the objects that
    ``value`` is an attribute of, which it may refer back to.
    """
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None), type)):
        return value
    if id(value) in above:
        return ("above", above.index(id(value)))
    above = (*above, id(value))
    if isinstance(value, (tuple, list)):
        return (type(value), *(fingerprint(v, above) for v in value))
    if isinstance(value, dict):
        return (dict, *((k, fingerprint(v, above)) for k, v in value.items()))
    if isinstance(value, Tensor):
        return (Tensor, value.shape, value.dtype) if value.is_floating_point() else id(value)
    if isinstance(value, nn.Module):
        tables = {"_parameters", "_buffers", "_modules"}
        own = {k: v for k, v in vars(value).items() if k in tables or not k.startswith("_")}
        return (type(value), value.training, fingerprint(own, above))
    if hasattr(value, "__dict__") and not callable(value):
        return (type(value), fingerprint(vars(value), above))
    return (type(value), id(value))
