"""The named errors and warnings of sdesens.

Bad arguments raise plain ``ValueError`` or ``TypeError``. The classes here are for the outcomes a
caller may want to catch apart.
"""

from __future__ import annotations

from functools import partial
from typing import Any


class UnsupportedError(ValueError):
    """A combination of solver, noise type, mode and options that would give a wrong number.

    The message names the combination and the cure.
    """


class OffGridError(ValueError):
    """A Brownian path was asked for a time that is not a node of its grid."""


class CoupledSamplesError(ValueError):
    """The drift or the diffusion mixes the samples of a batch.

    Then ``dX_t/dx0`` of one sample depends on the others and has no place in ``(T, B, d, d)``.
    """


class NonFiniteError(ArithmeticError):
    """The path or a derivative left the finite numbers.

    Attributes:
        time_index: index into ``ts`` of the first time at which something is not finite.
        sample: index of the first such sample at that time.
        quantity: ``"x"``, ``"dx0"`` or ``"dparams[...]"``.
        result: the whole :class:`~sdesens.Sensitivities` as computed; every entry before
            ``time_index`` is finite.
    """

    def __init__(
        self, message: str, *, time_index: int, sample: int, quantity: str, result: Any
    ) -> None:
        super().__init__(message)
        self.time_index = time_index
        self.sample = sample
        self.quantity = quantity
        self.result = result


class NotLipschitzError(ValueError):
    """A payoff that is said to change continuously was found to jump."""


class ShardError(RuntimeError):
    """A shard of a job failed as often as is allowed.

    Attributes:
        piece: index of its simulation in the job.
        shard: its index.
        attempts: how often it was tried.
    """

    def __init__(self, message: str, *, piece: int, shard: int, attempts: int) -> None:
        super().__init__(message)
        self.piece, self.shard, self.attempts = piece, shard, attempts

    def __reduce__(self) -> tuple[Any, ...]:
        numbers = {"piece": self.piece, "shard": self.shard, "attempts": self.attempts}
        return partial(type(self), **numbers), self.args


class CheckpointError(RuntimeError):
    """A checkpoint folder cannot be used, or a shard cannot be written to it."""


class WorkerMismatchError(RuntimeError):
    """A worker would not give the bits of its driver: another version, processor or compiler."""


class CheckpointWarning(UserWarning):
    """A file of a checkpoint folder is not used; its shard is computed again."""


class AccuracyWarning(UserWarning):
    """The numbers are what the solver defines, but the solver is known to be poor here."""


class UncompiledWarning(UserWarning):
    """The fused engine runs uncompiled: the numbers are the same, the speed is not."""
