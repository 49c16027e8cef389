"""The front door: ``sensitivities``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from sdesens._checks import check_choice, check_count
from sdesens._parameters import check_not_captured, find_parameters
from sdesens.brownian import BaseBrownian
from sdesens.errors import NonFiniteError, UnsupportedError
from sdesens.pathwise.directions import Derivatives, Inputs
from sdesens.pathwise.fused import fused
from sdesens.pathwise.jvp import jvp
from sdesens.pathwise.progress import Progress
from sdesens.pathwise.result import Sensitivities
from sdesens.pathwise.tangent import tangent
from sdesens.pathwise.vjp import vjp
from sdesens.prepare import prepare, refuse_coupling
from sdesens.problem import Problem

MODES = {"vjp": vjp, "jvp": jvp, "tangent": tangent}
ENGINES = ("torchsde", "fused")


def sensitivities(
    sde: Any,
    x0: Tensor,
    ts: Tensor | Sequence[float],
    *,
    mode: str = "tangent",
    wrt: str | Sequence[str] = ("x0",),
    method: str | None = None,
    dt: float | None = None,
    bm: BaseBrownian | None = None,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
    engine: str = "torchsde",
    chunk_size: int | None = None,
    progress: bool = False,
    adaptive: bool = False,
    logqp: bool = False,
) -> Sensitivities:
    r"""The path of an SDE and its derivatives at every time point.

    Three modes differentiate the same discrete solver on the same Brownian path, so they agree to
    rounding:

    * ``"vjp"``: batched vector-Jacobian products of the solver's steps, chained along time. Cost
      hardly depends on the number of parameters.
    * ``"jvp"``: forward mode through ``torchsde.sdeint``, one direction for each input.
    * ``"tangent"``: the tangent (first-variation) SDE solved beside the state on the same
      increments; from closed forms where the model has them.
    * ``"auto"``: ``"tangent"``, but ``"vjp"`` when the parameter entries outnumber ``T * d``, or
      when the solver is derivative-based Milstein, which the tangent SDE cannot go through.

    Args:
        sde: an :class:`SDE` or any object torchsde accepts.
        x0: ``(B, d)`` start, float32 or float64. If it requires grad, the result carries a graph
            and can be differentiated again, in x0 and in parameters.
        ts: ``(T,)`` increasing times, a tensor or a sequence of numbers. ``T = 1`` gives the
            identity. Integers become floats of the dtype of ``x0``.
        mode: see above.
        wrt: what to differentiate in: ``"x0"`` and names of parameters of ``sde`` (as in
            ``named_parameters``). A parameter that is not used has derivative zero.
        method: solver of torchsde, by default torchsde's choice for the SDE and noise type.
        dt: fixed step, by default torchsde's 1e-3. Between steps the path and its derivatives are
            interpolated linearly, as torchsde does.
        bm: Brownian motion; :class:`BrownianPath` or another of torchsde's. Its grid must hold the
            solver's steps.
        seed: seed of the noise if ``bm`` is omitted; equal seeds give equal bits. Without it a
            fresh one is drawn, and reported as ``.seed``.
        options: solver options, ``{"grad_free": True}`` for milstein.
        names: names of drift and diffusion methods, as in ``torchsde.sdeint``.
        engine: ``"torchsde"``, or ``"fused"``: noise, state and tangents advance together in one
            compiled pass (mode ``"tangent"``), to the same numbers up to rounding and many times
            faster. The first call for a model compiles for a few seconds. A model that cannot be
            compiled goes through torchsde, with an :class:`UncompiledWarning`.
        chunk_size: bounds memory without changing the result: number of steps linearised at once
            (``"vjp"``), or of directions per solve (``"jvp"``, ``"tangent"``). The fused engine
            holds little but the result.
        progress: show a bar of solver steps.
        adaptive, logqp: torchsde's arguments; True is refused by name.

    Returns:
        :class:`Sensitivities` with ``x (T, B, d)``, ``dx0 (T, B, d, d)`` (out by in) and
        ``dparams``; dtype and device of ``x0``.

    Raises:
        ValueError, TypeError: for bad arguments, before any long work.
        UnsupportedError: where a combination would give a wrong number; the message has the cure.
        CoupledSamplesError: if drift or diffusion mixes the samples of the batch.
        NonFiniteError: if the path or a derivative leaves the finite numbers; it holds the result.

    Warns:
        AccuracyWarning: for torchsde's milstein with scalar noise and ``d > 1``.
        UncompiledWarning: if ``engine="fused"`` cannot compile the model, or there is no compiler.

    Example:
        >>> import torch, sdesens
        >>> from sdesens.models import OrnsteinUhlenbeck
        >>> ou = OrnsteinUhlenbeck(kappa=1.0, mean=0.0, sigma=1.0)
        >>> x0 = torch.zeros(1, 1, dtype=torch.float64)
        >>> ts = torch.linspace(0, 1, 11, dtype=torch.float64)
        >>> sens = sdesens.sensitivities(ou, x0, ts, method="euler", dt=0.1, seed=0)
        >>> exact = 0.9 ** torch.arange(11, dtype=torch.float64)
        >>> bool((sens.dx0[:, 0, 0, 0] - exact).abs().max() < 1e-14)
        True
    """
    check_choice("mode", mode, (*MODES, "auto"))
    check_choice("engine", engine, ENGINES)
    if engine == "fused" and mode not in ("tangent", "auto"):
        raise ValueError(
            f"engine 'fused' propagates tangents: mode must be 'tangent' or 'auto', got {mode!r}. "
            f"Drop mode=, or use engine='torchsde'."
        )
    wrt = check_wrt(wrt)
    if chunk_size is not None:
        chunk_size = check_count("chunk_size", chunk_size)
    problem = prepare(
        sde,
        x0,
        ts,
        method=method,
        dt=dt,
        bm=bm,
        seed=seed,
        options=options,
        names=names,
        adaptive=adaptive,
        logqp=logqp,
    )
    parameters = parameters_of(problem, wrt)
    inputs = Inputs.of(problem, "x0" in wrt, parameters)
    if mode == "auto":
        mode = "tangent" if engine == "fused" else choose_mode(problem, inputs)
    if inputs.x0 or mode == "vjp":
        refuse_coupling(problem)
    result = run_mode(
        problem, inputs, mode, engine=engine, chunk_size=chunk_size, progress=progress
    )
    raise_if_not_finite(result)
    return result


def check_wrt(wrt: str | Sequence[str]) -> tuple[str, ...]:
    """``wrt`` as a tuple of distinct names, at least one."""
    names = (wrt,) if isinstance(wrt, str) else tuple(wrt)
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"wrt must hold 'x0' and/or names of parameters, got {wrt!r}.")
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ValueError(f"wrt names {sorted(repeated)} more than once: {wrt!r}.")
    return names


def parameters_of(problem: Problem, wrt: Sequence[str]) -> dict[str, Tensor]:
    """The parameters named in ``wrt``, which the model must reach by these names alone."""
    parameters = find_parameters(problem.sde, [name for name in wrt if name != "x0"])
    for (first, a), (second, b) in combinations(parameters.items(), 2):
        if a is b:
            raise ValueError(
                f"wrt names one tensor twice: {first!r} and {second!r} of "
                f"{type(problem.sde).__name__} are tied. Name one; its derivative is that of all "
                f"its places."
            )
    x0, t, view = problem.x0.detach(), problem.ts[0], problem.view
    check_not_captured(problem.sde, parameters, lambda: (view.f(t, x0), view.g(t, x0)))
    return parameters


def choose_mode(problem: Problem, inputs: Inputs) -> str:
    """The rule of ``mode="auto"``."""
    if problem.derivative_milstein:
        return "vjp"
    return "vjp" if inputs.entries > problem.ts.numel() * inputs.d else "tangent"


def run_mode(
    problem: Problem,
    inputs: Inputs,
    mode: str,
    *,
    engine: str = "torchsde",
    chunk_size: int | None,
    progress: bool,
) -> Sensitivities:
    """Solve by ``mode``; the result is returned whether it is finite or not."""
    graph = torch.is_grad_enabled() and problem.x0.requires_grad
    solve = fused if engine == "fused" else MODES[mode]
    label = engine if engine == "fused" else mode
    with Progress(progress, problem.grid.steps, f"sensitivities ({label})") as bar:
        try:
            x, derivatives = solve(
                problem, inputs, chunk_size=chunk_size, graph=graph, progress=bar
            )
        except NotImplementedError as error:
            raise UnsupportedError(
                f"mode {mode!r} met an operation of the model without a forward-mode rule: {error} "
                f"Use mode='vjp', or give the operation a jvp."
            ) from error
    if graph:
        derivatives = _connected(derivatives, problem.x0)
    return Sensitivities(
        ts=problem.ts,
        x=x,
        dparams={name: value for name, value in derivatives.items() if name != "x0"},
        mode=mode,
        method=problem.method,
        dt=problem.dt,
        seed=problem.seed,
        _dx0=derivatives.get("x0"),
    )


def _connected(derivatives: Derivatives, x0: Tensor) -> Derivatives:
    """Derivatives that do not depend on x0 (a linear SDE) still have a derivative in it: zero."""
    nothing = (x0 * 0).sum()
    return {name: value + nothing for name, value in derivatives.items()}


def raise_if_not_finite(result: Sensitivities) -> None:
    """Raise :class:`NonFiniteError` at the first time where something is not finite."""
    parts = [result.x, *result.derivatives().values()]
    if math.isfinite(sum(part.detach().sum().item() for part in parts)):
        return
    found = []
    for order, (name, value) in enumerate({"x": result.x, **result.derivatives()}.items()):
        bad = ~torch.isfinite(value.detach()).flatten(2).all(-1)
        if bool(bad.any()):
            time, sample = bad.nonzero()[0].tolist()
            found.append((time, order, sample, name))
    if not found:
        return
    time, _, sample, name = min(found)
    quantity = {"x": "x", "x0": "dx0"}.get(name, f"dparams[{name!r}]")
    cause = (
        "the path explodes: use a smaller dt, or check drift and diffusion"
        if name == "x"
        else "the path itself is finite there: a derivative is infinite or not a number, as of "
        "sqrt at 0, also behind torch.where (see sdesens.autodiff.positive_sqrt)"
    )
    raise NonFiniteError(
        f"{quantity} is not finite from ts[{time}]={result.ts[time].item():g} on, first in sample "
        f"{sample}; {cause}. The error's attribute .result holds everything computed, finite "
        f"before that time.",
        time_index=time,
        sample=sample,
        quantity=quantity,
        result=result,
    )
