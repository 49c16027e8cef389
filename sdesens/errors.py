"""The named errors and warnings of sdesens.

Bad arguments raise plain ``ValueError`` or ``TypeError``. The classes here are for the outcomes a
caller may want to catch apart.
"""

from __future__ import annotations

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


class AccuracyWarning(UserWarning):
    """The numbers are what the solver defines, but the solver is known to be poor here."""


class UncompiledWarning(UserWarning):
    """The fused engine runs uncompiled: the numbers are the same, the speed is not."""
