"""What ``sensitivities`` returns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, repr=False)
class Sensitivities:
    """A path and its derivatives at every time.

    Attributes:
        ts: ``(T,)`` times.
        x: ``(T, B, d)`` path: what ``torchsde.sdeint`` returns for the same arguments and bm.
        dparams: for each parameter in ``wrt`` its derivative ``(T, B, d, *shape)``.
        mode: ``"vjp"``, ``"jvp"`` or ``"tangent"``: the method that was used.
        method: the solver.
        dt: the step.
        seed: the seed of the noise, None if ``bm`` was given.
    """

    ts: Tensor
    x: Tensor
    dparams: dict[str, Tensor]
    mode: str
    method: str
    dt: float
    seed: int | None
    _dx0: Tensor | None = None

    @property
    def dx0(self) -> Tensor:
        """``(T, B, d, d)``; ``[t, b, i, j]`` is ``dX_t^i / dx0^j`` of sample ``b``.

        Raises:
            ValueError: if ``"x0"`` was not in ``wrt``.
        """
        if self._dx0 is None:
            raise ValueError(
                f"dX_t/dx0 was not computed: wrt named {list(self.dparams)}. Add 'x0' to wrt."
            )
        return self._dx0

    def derivatives(self) -> dict[str, Tensor]:
        """Every derivative by the name of its input, ``"x0"`` first."""
        return ({} if self._dx0 is None else {"x0": self._dx0}) | self.dparams

    def __repr__(self) -> str:
        parts = [f"x={tuple(self.x.shape)}"]
        parts += [f"d{name}={tuple(v.shape)}" for name, v in self.derivatives().items()]
        return (
            f"Sensitivities({', '.join(parts)}, mode={self.mode!r}, method={self.method!r}, "
            f"dt={self.dt:g}, seed={self.seed})"
        )
