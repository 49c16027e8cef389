"""The arguments of a solve, checked before anything long is run."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sdesens._checks import check_choice, check_finite, check_tensor, is_transformed
from sdesens.brownian import BaseBrownian, BrownianPath
from sdesens.errors import AccuracyWarning, CoupledSamplesError, UnsupportedError
from sdesens.problem import Grid, Problem
from sdesens.sde import SDE, View, view
from sdesens.solve import METHODS, levy_areas_for, methods_for

DEFAULT_DT = 1e-3  # torchsde's own
_LEVY_AREA = {"srk": "space-time", "log_ode": "foster"}


def prepare(
    sde: Any,
    x0: Tensor,
    ts: Tensor | Sequence[float],
    *,
    method: str | None = None,
    dt: float | None = None,
    bm: BaseBrownian | None = None,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
    adaptive: bool = False,
    logqp: bool = False,
) -> Problem:
    """Check the arguments of a solve and lay out its noise and its grid; nothing long is run.

    Raises:
        ValueError, TypeError, OffGridError, UnsupportedError: see the messages.
    """
    _refuse(adaptive, logqp)
    x0 = _check_x0(x0, sde)
    ts = _check_ts(ts, x0)
    dt = _check_dt(dt, ts)
    _check_source(bm, seed)
    alone = isinstance(sde, SDE) and sde.runs_by_schemes_alone
    if alone and method is not None:
        sde.drift(ts[0], *sde.components(x0))  # raises, and says by what it runs
    the_view = view(sde, names, None if bm is None else bm.shape[-1])
    method = _check_method(method, the_view)
    options = _check_options(options, method)
    grid = Grid.of(ts, dt)
    if alone:
        # There is nothing to probe. Paths that its own step mixes are found where it is run, and a
        # solver that comes here without naming a method is refused by the drift it asks for.
        sde.check_step(dt)
        channels, coupled = max(sde.scheme_channels.values(), default=x0.shape[1]), False
    else:
        # With the last time at which every solver evaluates the model, what only sets in later is
        # seen too.
        times = grid.nodes[[0, -2]] if grid.steps > 1 else grid.nodes[:1]
        channels, coupled = _probe(the_view, x0, times.unbind(0))
    if bm is None:
        seed = secrets.randbits(63) if seed is None else seed
        bm = _noise_for(grid, (x0.shape[0], channels), seed, method, x0)
    else:
        _check_bm(bm, x0, channels, method, the_view, grid)
    problem = Problem(sde, the_view, x0, ts, dt, method, options, bm, seed, grid, coupled)
    _warn_of_transposed_milstein(problem)
    return problem


def refuse_coupling(problem: Problem) -> None:
    """Raise :class:`CoupledSamplesError` if the samples of the batch are coupled."""
    if problem.coupled:
        raise CoupledSamplesError(
            "moving one sample of x0 changes the drift or diffusion of the others, so dX_t/dx0 "
            "of a sample alone is not defined. Usual causes: BatchNorm in training mode "
            "(model.eval()), a mean over the batch (make the particles one sample with d = their "
            "number). To see by how much: compare_modes()."
        )


# --- checks, one an argument -------------------------------------------------------------------


def _refuse(adaptive: bool, logqp: bool) -> None:
    if adaptive:
        raise UnsupportedError(
            "adaptive=True is not supported: the steps chosen would depend on the state (and, for "
            "the tangent system, on the derivative), and that dependence is not differentiated. "
            "Pass a fixed dt=."
        )
    if logqp:
        raise UnsupportedError(
            "logqp=True is not supported: torchsde then returns a pair, not the path. Add the "
            "log-ratio to the model as one more state component."
        )
    if torch.is_inference_mode_enabled():
        raise UnsupportedError(
            "torch.inference_mode() is on, under which no derivative can be taken. Use "
            "torch.no_grad()."
        )


def _check_x0(x0: Tensor, sde: Any) -> Tensor:
    cure = "A single sample of d numbers is x0.unsqueeze(0), a batch of numbers x0.unsqueeze(1)."
    check_tensor("x0", x0, "(B, d)", cure)
    if is_transformed(x0):
        raise UnsupportedError(
            "x0 is inside a torch.func transform (vmap, grad, jvp, ...). Call this outside it: x0 "
            "of shape (B, d) is a batch already, and an x0 that requires grad gives a result that "
            "can be differentiated again."
        )
    if torch.autograd.forward_ad.unpack_dual(x0).tangent is not None:
        raise UnsupportedError(
            "x0 carries a forward-mode tangent. Call this outside dual_level(); an x0 that "
            "requires grad gives a result that can be differentiated again."
        )
    if x0.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"x0 must be float32 or float64, got {x0.dtype}.")
    if x0.shape[1] == 0:
        raise ValueError(f"x0 must have at least one state dimension, got shape {tuple(x0.shape)}.")
    check_finite("x0", x0)
    if isinstance(sde, SDE) and x0.shape[1] != sde.dim:
        raise ValueError(
            f"x0 must have shape (B, {sde.dim}) for the components {tuple(sde.state)} of "
            f"{type(sde).__name__}, got {tuple(x0.shape)}."
        )
    return x0


def _check_ts(ts: Any, x0: Tensor) -> Tensor:
    if not isinstance(ts, Tensor):
        try:
            ts = torch.as_tensor([float(t) for t in ts], dtype=x0.dtype, device=x0.device)
        except (TypeError, ValueError):
            raise TypeError(
                f"ts must be a 1-d tensor or a sequence of numbers, got {type(ts).__name__}."
            ) from None
    elif not (ts.is_floating_point() or ts.is_complex() or ts.dtype is torch.bool):
        ts = ts.to(x0.dtype)
    if ts.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"ts must be float32, float64 or integer, got {ts.dtype}.")
    if ts.dim() != 1 or ts.numel() == 0:
        raise ValueError(f"ts must have shape (T,) with T >= 1, got {tuple(ts.shape)}.")
    if ts.requires_grad:
        raise ValueError("ts must not require grad: derivatives in time are not taken here.")
    if ts.device != x0.device and ts.device.type != "cpu":
        raise ValueError(f"ts is on {ts.device}, x0 on {x0.device}. Move ts: ts.to(x0.device).")
    check_finite("ts", ts)
    wrong = (ts[1:] <= ts[:-1]).nonzero()
    if wrong.numel():
        k = int(wrong[0])
        raise ValueError(
            f"ts must increase strictly, got ts[{k}]={ts[k].item()!r} and "
            f"ts[{k + 1}]={ts[k + 1].item()!r}. Sort it and drop repeated times."
        )
    return ts


def _check_dt(dt: Any, ts: Tensor) -> float:
    if dt is None:
        dt = DEFAULT_DT
    try:
        dt = float(dt)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"dt must be a number, got {type(dt).__name__}.") from None
    if not (dt > 0 and np.isfinite(dt)):
        raise ValueError(f"dt must be positive and finite, got {dt}.")
    largest = ts.abs().max()
    if ts.numel() > 1 and bool((largest + dt == largest) | (ts[-1] - dt == ts[-1])):
        resolution = torch.finfo(ts.dtype).eps * largest.item()
        cure = (
            "Use ts in float64 or a larger dt." if ts.dtype is torch.float32 else "Use a larger dt."
        )
        raise ValueError(
            f"dt={dt} is below the resolution of ts: t + dt == t at t={largest.item()} in "
            f"{ts.dtype} (about {resolution:.1e}). {cure}"
        )
    return dt


def _check_source(bm: Any, seed: int | None) -> None:
    """The noise comes from one of them."""
    if bm is not None and seed is not None:
        raise ValueError(
            "bm and seed were both given; the noise is either that of bm or made from seed. "
            "Drop one of them."
        )
    if bm is not None and not isinstance(bm, BaseBrownian):
        raise TypeError(
            f"bm must be a BrownianPath or another BaseBrownian, got {type(bm).__name__}."
        )


def _check_method(method: str | None, the_view: View) -> str:
    noise_type, sde_type = the_view.noise_type, the_view.sde_type
    fitting = methods_for(sde_type, noise_type)
    if method is None:
        if sde_type == "stratonovich":
            return "midpoint"
        return "euler" if noise_type == "general" else "srk"
    if method == "adjoint_reversible_heun":
        raise UnsupportedError(
            "method 'adjoint_reversible_heun' belongs to torchsde.sdeint_adjoint, whose backward "
            "pass has no forward mode and no batched VJP. Use method='reversible_heun'."
        )
    check_choice("method", method, METHODS)
    if method not in fitting:
        raise UnsupportedError(
            f"method {method!r} does not solve {sde_type} SDEs with {noise_type} noise; these do: "
            f"{fitting}."
        )
    return method


def _check_options(options: Mapping[str, Any] | None, method: str) -> dict[str, Any]:
    options = dict(options or {})
    known = ("grad_free",) if method == "milstein" else ()
    for key in options:
        check_choice(f"an option of method {method!r}", key, known)
    return options


def _warn_of_transposed_milstein(problem: Problem) -> None:
    scalar = problem.view.noise_type == "scalar" and problem.x0.shape[1] > 1
    if problem.derivative_milstein and scalar:
        warnings.warn(
            "torchsde's milstein for scalar noise uses the transposed Jacobian of the diffusion "
            "when the state has more than one dimension: its strong error falls with order 0.5 "
            "instead of 1. Pass options={'grad_free': True}.",
            AccuracyWarning,
            stacklevel=4,
        )


def _probe(the_view: View, x0: Tensor, times: Sequence[Tensor]) -> tuple[int, bool]:
    """Evaluate drift and diffusion at ``times``: number of channels, whether samples are coupled.

    Raises:
        ValueError, TypeError: for a wrong shape or dtype, or a function that edits its input.
        UnsupportedError: if a second evaluation at the same point gives something else.
    """
    with torch.no_grad():
        here = [_evaluate(the_view, t, x0) for t in times]
        channels = _check_outputs(the_view, x0, *here[0])
        coupled = [_is_coupled(the_view, x0, t, at) for t, at in zip(times, here, strict=True)]
    return channels, any(coupled)


def _evaluate(the_view: View, t: Tensor, x0: Tensor) -> tuple[Tensor, Tensor]:
    y = x0.detach().clone()
    version = y._version
    outputs = the_view.f(t, y), the_view.g(t, y)
    if y._version != version:
        raise ValueError(
            "the drift or the diffusion edits its input y in place, which corrupts the state of "
            "the solver. Work on a copy, or use out-of-place operations."
        )
    return outputs


def _check_outputs(the_view: View, x0: Tensor, f: Tensor, g: Tensor) -> int:
    """Shapes and dtypes of drift and diffusion; the number of channels."""
    batch, d = x0.shape
    _check_output("drift", f, (batch, d), "(B, d)", x0)
    if the_view.noise_type == "diagonal":
        _check_output("diffusion", g, (batch, d), "(B, d) for diagonal noise", x0)
        return d
    m = g.shape[-1] if isinstance(g, Tensor) and g.dim() == 3 else "m"
    _check_output("diffusion", g, (batch, d, m), "(B, d, m)", x0)
    if the_view.noise_type == "scalar" and g.shape[-1] != 1:
        raise ValueError(
            f"scalar noise has one channel, got a diffusion of shape {tuple(g.shape)} with "
            f"{g.shape[-1]}. Set noise_type='general'."
        )
    return g.shape[-1]


def _is_coupled(the_view: View, x0: Tensor, t: Tensor, here: tuple[Tensor, Tensor]) -> bool:
    """Whether moving the first sample moves the drift or diffusion, ``here`` now, of another."""
    again = _evaluate(the_view, t, x0)
    if not all(map(_same, here, again)):
        raise UnsupportedError(
            "drift or diffusion evaluated twice at the same (t, y) gives two results: it draws "
            "random numbers (Dropout in training mode) or keeps a memory. Use model.eval(), or "
            "make it a function of (t, y)."
        )
    if x0.shape[0] < 2:
        return False
    moved = x0.detach().clone()
    moved[:1] += 0.5 * (1 + moved[:1].abs())
    others = _evaluate(the_view, t, moved)
    return not all(_same(a[1:], b[1:]) for a, b in zip(here, others, strict=True))


def _check_output(name: str, out: Any, shape: tuple, expected: str, x0: Tensor) -> None:
    if not isinstance(out, Tensor):
        raise TypeError(f"the {name} must return a tensor, got {type(out).__name__}.")
    if tuple(out.shape) != shape:
        raise ValueError(
            f"the {name} must have shape {expected}, here {shape}, got {tuple(out.shape)} for "
            f"x0 of shape {tuple(x0.shape)}."
        )
    if out.dtype != x0.dtype or out.device != x0.device:
        raise TypeError(
            f"the {name} must have the dtype and device of x0, {x0.dtype} on {x0.device}, got "
            f"{out.dtype} on {out.device}. Move the model, or x0.to(...)."
        )


def _same(a: Tensor, b: Tensor) -> bool:
    if torch.equal(a, b):
        return True
    tolerance = 1e3 * torch.finfo(a.dtype).eps
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


def _noise_for(
    grid: Grid, shape: tuple[int, int], seed: int, method: str, x0: Tensor
) -> BrownianPath:
    """A path on the solver's grid: equal steps where they fit, the solver's own nodes otherwise."""
    kwargs: dict[str, Any] = {
        "dtype": x0.dtype,
        "device": x0.device,
        "levy_area": _LEVY_AREA.get(method, "none"),
    }
    nodes = grid.nodes.tolist()
    if len(nodes) == 1:
        return BrownianPath(nodes[0], nodes[0] + 1.0, shape, 1, seed, **kwargs)
    start, end = nodes[0], nodes[-1]
    steps = max(1, round((end - start) / (nodes[1] - start)))
    path = BrownianPath(start, end, shape, steps, seed, **kwargs)
    try:
        path.nodes_at(grid.nodes)
    except ValueError:
        # A last step that is cut short, or steps that drift by rounding. A sliver at the end is
        # rounding, not a step: its noise is zero.
        sliver = torch.finfo(grid.nodes.dtype).eps * max(abs(start), abs(end)) * len(nodes)
        kept = [t for t, u in pairwise(nodes) if u - t > sliver]
        path = BrownianPath.on_grid([*kept, end], shape, seed, **kwargs)
    return path


def _check_bm(
    bm: BaseBrownian, x0: Tensor, channels: int, method: str, the_view: View, grid: Grid
) -> None:
    expected = (x0.shape[0], channels)
    if tuple(bm.shape) != expected:
        raise ValueError(
            f"bm must have shape (B, m) = {expected} for x0 of shape {tuple(x0.shape)} and this "
            f"diffusion, got {tuple(bm.shape)}."
        )
    if bm.dtype != x0.dtype or torch.device(bm.device) != x0.device:
        raise TypeError(
            f"bm must have the dtype and device of x0, {x0.dtype} on {x0.device}, got {bm.dtype} "
            f"on {bm.device}."
        )
    areas = levy_areas_for(method, the_view.sde_type)
    if bm.levy_area_approximation not in areas:
        raise ValueError(
            f"method {method!r} needs a bm with Lévy area {list(areas)}, got "
            f"{bm.levy_area_approximation!r}. Make it with levy_area="
            f"{_LEVY_AREA.get(method, 'none')!r}."
        )
    if isinstance(bm, BrownianPath):
        bm.nodes_at(grid.nodes)
    elif grid.steps:
        _check_range(bm, grid)


def _check_range(bm: BaseBrownian, grid: Grid) -> None:
    """Torchsde's own paths answer queries beyond their end with zeros and a warning."""
    for t in (grid.nodes[0], grid.nodes[-1]):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            bm(t, t)
        if any("Should have" in str(w.message) for w in caught):
            raise ValueError(
                f"bm does not reach time {t.item()!r}; beyond its range torchsde takes the noise "
                f"as zero. Make it at least as long as ts, "
                f"[{grid.nodes[0].item()!r}, {grid.nodes[-1].item()!r}]. bm: {bm!r}"
            )
