"""Prepare sensitivities once and compute them many times."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sdesens._checks import check_count
from sdesens.errors import UnsupportedError
from sdesens.fused.rules import UnrecordableError
from sdesens.pathwise.directions import Inputs
from sdesens.pathwise.front import check_wrt, parameters_of, raise_if_not_finite
from sdesens.pathwise.fused import FusedSolve, check_device
from sdesens.pathwise.result import Sensitivities
from sdesens.prepare import prepare, refuse_coupling


class FusedSensitivities:
    """Sensitivities of a model on a grid, checked and compiled: what :func:`~sdesens.fuse` gives.

    Attributes:
        ts: ``(T,)`` times.
        method: the solver.
        dt: the step.
    """

    def __init__(self, plan: FusedSolve) -> None:
        self._plan, self._engine = plan, plan.engine()
        problem = plan.problem
        self.ts, self.method, self.dt = problem.ts, problem.method, problem.dt

    def __call__(
        self, x0: Tensor, *, seed: int | None = None, first_path: int = 0
    ) -> Sensitivities:
        """Path and derivatives from ``x0 (B, d)``, for the present values of the parameters.

        Args:
            x0: start, any number of samples, in the dtype of the ``x0`` that was prepared.
            seed: seed of the noise; without it a fresh one is drawn, and reported as ``.seed``.
            first_path: global index of the first sample's noise.

        Raises:
            ValueError: if ``x0`` or ``seed`` does not fit.
            NonFiniteError: as :func:`~sdesens.sensitivities`.
        """
        prepared = self._plan.problem.x0
        if x0.dim() != 2 or x0.shape[1] != prepared.shape[1] or x0.dtype != prepared.dtype:
            raise ValueError(
                f"x0 must have shape (B, {prepared.shape[1]}) and dtype {prepared.dtype}, as was "
                f"prepared, got {tuple(x0.shape)} and {x0.dtype}."
            )
        if seed is None:
            seed = secrets.randbits(63)
        elif not 0 <= check_count("seed", seed, 0) < 2**64:
            raise ValueError(f"seed must be in [0, 2**64), got {seed}.")
        with torch.no_grad():
            x, derivatives = self._plan.solve(self._engine, x0, seed=seed, first_path=first_path)
        dx0 = derivatives.pop("x0", None)
        result = Sensitivities(
            ts=self.ts,
            x=x,
            dparams=derivatives,
            mode="tangent",
            method=self.method,
            dt=self.dt,
            seed=seed,
            _dx0=dx0,
        )
        raise_if_not_finite(result)
        return result


def fuse(
    sde: Any,
    x0: Tensor,
    ts: Tensor | Sequence[float],
    *,
    wrt: str | Sequence[str] = ("x0",),
    method: str | None = None,
    dt: float | None = None,
    options: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
) -> FusedSensitivities:
    """Check and compile once what ``sensitivities(..., engine="fused")`` does at every call.

    What is left of a call is the kernel and the layout of its result: tens of microseconds for a
    single path. The model must stay as it is, but for the values of its parameters.

    Args:
        sde, ts, wrt, method, dt, options, names: as in :func:`~sdesens.sensitivities`.
        x0: an example ``(B, d)`` of the start; its dtype is that of the result.

    Returns:
        A function of ``x0`` and ``seed``, with the result of :func:`~sdesens.sensitivities`.

    Raises:
        UnsupportedError: if the model cannot be compiled.
        ValueError, TypeError: as :func:`~sdesens.sensitivities`.

    Example:
        >>> import torch, sdesens
        >>> from sdesens.models import OrnsteinUhlenbeck
        >>> ou = OrnsteinUhlenbeck(kappa=1.0, mean=0.0, sigma=1.0)
        >>> x0, ts = torch.zeros(1, 1, dtype=torch.float64), torch.linspace(0, 1, 11)
        >>> solve = sdesens.fuse(ou, x0, ts.double(), method="euler", dt=0.1)
        >>> sens = solve(x0 + 1.0, seed=7)
        >>> same = sdesens.sensitivities(ou, x0 + 1.0, ts.double(), method="euler", dt=0.1, seed=7)
        >>> bool(torch.allclose(sens.x, same.x) and torch.allclose(sens.dx0, same.dx0))
        True
    """
    wrt = check_wrt(wrt)
    problem = prepare(sde, x0, ts, method=method, dt=dt, seed=0, options=options, names=names)
    inputs = Inputs.of(problem, "x0" in wrt, parameters_of(problem, wrt))
    refuse_coupling(problem)
    cure = "Use sensitivities()."
    if not problem.grid.steps:
        raise ValueError(f"ts must hold at least two times, got one. {cure}")
    try:
        check_device(problem)
        with torch.no_grad():
            return FusedSensitivities(FusedSolve(problem, inputs))
    except UnrecordableError as error:
        raise UnsupportedError(
            f"{type(sde).__name__} cannot be compiled: {error}. {cure}"
        ) from error
