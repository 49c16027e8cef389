"""The one place that calls ``torchsde.sdeint``: arguments checked once, grid known beforehand."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torchsde
from torch import Tensor
from torchsde._core import base_sde, methods

from sdesens._checks import check_choice, check_finite, check_tensor, is_transformed
from sdesens.brownian import BaseBrownian, BrownianPath
from sdesens.errors import AccuracyWarning, CoupledSamplesError, UnsupportedError
from sdesens.sde import SDE, View, view

DEFAULT_DT = 1e-3  # torchsde's own
METHODS = (
    "euler",
    "milstein",
    "srk",
    "euler_heun",
    "heun",
    "midpoint",
    "log_ode",
    "reversible_heun",
)
_LEVY_AREA = {"srk": "space-time", "log_ode": "foster"}


@dataclass(frozen=True)
class Grid:
    """The steps torchsde takes for ``ts`` and ``dt``, computed beforehand in the same arithmetic.

    Attributes:
        nodes: ``(N + 1,)`` step times, of the dtype of ``ts``.
        after: for each entry of ``ts``, the index of the first node not before it.
        weights: ``(T, 2)``: weights of the nodes ``after - 1`` and ``after`` in the linear
            interpolation at ``ts``, which torchsde uses too.
    """

    nodes: Tensor
    after: list[int]
    weights: Tensor

    @classmethod
    def of(cls, ts: Tensor, dt: float) -> Grid:
        """The grid of ``torchsde.sdeint(..., ts=ts, dt=dt)`` with fixed steps."""
        scalar = np.float32 if ts.dtype is torch.float32 else np.float64
        times = [scalar(t) for t in ts.tolist()]
        step, last = scalar(dt), times[-1]
        nodes, after, weights = [times[0]], [0], [(0.0, 1.0)]
        for t in times[1:]:
            while nodes[-1] < t:
                nodes.append(min(nodes[-1] + step, last))
            t0, t1 = nodes[-2], nodes[-1]
            after.append(len(nodes) - 1)
            weights.append((float((t1 - t) / (t1 - t0)), float((t - t0) / (t1 - t0))))
        as_tensor = {"dtype": ts.dtype, "device": ts.device}
        return cls(torch.tensor(nodes, **as_tensor), after, torch.tensor(weights, **as_tensor))

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.nodes.shape[0] - 1

    def at_times(self, values: Iterable[Tensor]) -> Tensor:
        """Values at the nodes, one after the other, interpolated to ``ts``: ``(T, ...)``."""
        out: list[Tensor] = []
        weights, before = self.weights.tolist(), None
        for k, value in enumerate(values):
            while len(out) < len(self.after) and self.after[len(out)] == k:
                w0, w1 = weights[len(out)]
                exact = before is None or w1 == 1
                out.append(value if exact else w0 * before + w1 * value)
            before = value
        return torch.stack(out)


@dataclass(frozen=True)
class Problem:
    """Everything a solve needs, checked: what :func:`prepare` returns."""

    sde: Any
    view: View
    x0: Tensor
    ts: Tensor
    dt: float
    method: str
    options: dict[str, Any]
    bm: BaseBrownian
    seed: int | None
    grid: Grid
    coupled: bool

    @property
    def derivative_milstein(self) -> bool:
        """Whether the solver itself differentiates the diffusion by Milstein's formula."""
        return (
            self.method == "milstein"
            and self.view.noise_type != "additive"
            and not self.options.get("grad_free", False)
        )


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
    x0 = _check_x0(x0)
    if isinstance(sde, SDE) and x0.shape[1] != sde.dim:
        raise ValueError(
            f"x0 must have shape (B, {sde.dim}) for the components {tuple(sde.state)} of "
            f"{type(sde).__name__}, got {tuple(x0.shape)}."
        )
    ts = _check_ts(ts, x0)
    dt = _check_dt(dt, ts)
    if bm is not None and seed is not None:
        raise ValueError(
            "bm and seed were both given; the noise is either that of bm or made from seed. "
            "Drop one of them."
        )
    if bm is not None and not isinstance(bm, BaseBrownian):
        raise TypeError(
            f"bm must be a BrownianPath or another BaseBrownian, got {type(bm).__name__}."
        )
    the_view = view(sde, names, None if bm is None else bm.shape[-1])
    method = _check_method(method, the_view)
    options = _check_options(options, method)
    channels, coupled = _probe(the_view, x0, ts[0])
    grid = Grid.of(ts, dt)
    if bm is None:
        seed = secrets.randbits(63) if seed is None else seed
        bm = _noise_for(grid, (x0.shape[0], channels), seed, method, x0)
    else:
        _check_bm(bm, x0, channels, method, the_view, grid)
    problem = Problem(sde, the_view, x0, ts, dt, method, options, bm, seed, grid, coupled)
    if problem.derivative_milstein and the_view.noise_type == "scalar" and x0.shape[1] > 1:
        warnings.warn(
            "torchsde's milstein for scalar noise uses the transposed Jacobian of the diffusion "
            "when the state has more than one dimension: its strong error falls with order 0.5 "
            "instead of 1. Pass options={'grad_free': True}.",
            AccuracyWarning,
            stacklevel=3,
        )
    return problem


def integrate(
    problem: Problem,
    *,
    view: View | None = None,
    x0: Tensor | None = None,
    ts: Tensor | None = None,
    dt: Tensor | None = None,
    bm: BaseBrownian | None = None,
) -> Tensor:
    """The path by ``torchsde.sdeint``, ``(T, batch, d)``; any part may be given in another form."""
    path = torchsde.sdeint(
        problem.view if view is None else view,
        problem.x0 if x0 is None else x0,
        problem.ts if ts is None else ts,
        bm=problem.bm if bm is None else bm,
        method=problem.method,
        dt=problem.dt if dt is None else dt,
        options=problem.options,
    )
    assert isinstance(path, Tensor)
    return path


def solver_of(
    problem: Problem,
    *,
    view: View | None = None,
    bm: BaseBrownian | None = None,
    functional: bool = False,
) -> Any:
    """The solver object of torchsde, of which ``step(t0, t1, y0, extra) -> (y1, extra)`` is used.

    ``functional`` has the derivatives inside a step (Milstein, log-ODE) taken by ``torch.func``,
    so that the step can be put under ``vmap``.
    """
    solver = methods.select(problem.method, problem.view.sde_type)
    wrapper = _FunctionalSDE if functional else base_sde.ForwardSDE
    return solver(
        sde=wrapper(problem.view if view is None else view),
        bm=problem.bm if bm is None else bm,
        dt=problem.dt,
        adaptive=False,
        rtol=0.0,
        atol=0.0,
        dt_min=0.0,
        options=dict(problem.options),
    )


def march(problem: Problem, solver: Any, x0: Tensor) -> Iterator[tuple[Tensor, Any]]:
    """State and extra solver state at every node, bit for bit as in ``torchsde.sdeint``.

    The steps are those of torchsde's loop, which also works out at every step where it is and
    interpolates there; with the grid known beforehand that half of its time is saved.
    """
    nodes = problem.grid.nodes.unbind(0)
    y, extra = x0, solver.init_extra_solver_state(nodes[0], x0)
    yield y, extra
    for t0, t1 in pairwise(nodes):
        y, extra = solver.step(t0, t1, y, extra)
        yield y, extra


class _FunctionalSDE(base_sde.ForwardSDE):
    """torchsde's solver-side SDE, with its inner derivatives taken by ``torch.func``."""

    def g_prod_and_gdg_prod_default(self, t, y, v1, v2):
        g, pull_back = torch.func.vjp(lambda z: self.g(t, z), y)[:2]
        return self.prod(g, v1), pull_back(g * v2.unsqueeze(-2))[0]

    def g_prod_and_gdg_prod_diagonal(self, t, y, v1, v2):
        g, pull_back = torch.func.vjp(lambda z: self.g(t, z), y)[:2]
        return self.prod(g, v1), pull_back(g * v2)[0]

    def dg_ga_jvp_column_sum_v1(self, t, y, a):
        ga = torch.bmm(self.g(t, y), a)
        columns = [
            torch.func.jvp(lambda z, k=k: self.g(t, z)[..., k], (y,), (ga[..., k],))[1]
            for k in range(ga.shape[-1])
        ]
        return torch.stack(columns).sum(0)


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


def _check_x0(x0: Tensor) -> Tensor:
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


def _check_method(method: str | None, the_view: View) -> str:
    noise_type, sde_type = the_view.noise_type, the_view.sde_type
    fitting = [m for m in METHODS if _fits(m, noise_type, sde_type)]
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


def _fits(method: str, noise_type: str, sde_type: str) -> bool:
    solver = methods.select(method, sde_type)
    return solver.sde_type == sde_type and noise_type in solver.noise_types


def _check_options(options: Mapping[str, Any] | None, method: str) -> dict[str, Any]:
    options = dict(options or {})
    known = ("grad_free",) if method == "milstein" else ()
    for key in options:
        check_choice(f"an option of method {method!r}", key, known)
    return options


def _probe(the_view: View, x0: Tensor, t: Tensor) -> tuple[int, bool]:
    """Evaluate drift and diffusion once: number of channels, and whether samples are coupled.

    Raises:
        ValueError, TypeError: for a wrong shape or dtype, or a function that edits its input.
    """
    batch, d = x0.shape
    with torch.no_grad():
        y = x0.detach().clone()
        version = y._version
        f, g = the_view.f(t, y), the_view.g(t, y)
        if y._version != version:
            raise ValueError(
                "the drift or the diffusion edits its input y in place, which corrupts the state "
                "of the solver. Work on a copy, or use out-of-place operations."
            )
        diagonal = the_view.noise_type == "diagonal"
        _check_output("drift", f, (batch, d), "(B, d)", x0)
        if diagonal:
            _check_output("diffusion", g, (batch, d), "(B, d) for diagonal noise", x0)
        else:
            m = g.shape[-1] if isinstance(g, Tensor) and g.dim() == 3 else "m"
            _check_output("diffusion", g, (batch, d, m), "(B, d, m)", x0)
        channels = d if diagonal else g.shape[-1]
        if the_view.noise_type == "scalar" and channels != 1:
            raise ValueError(
                f"scalar noise has one channel, got a diffusion of shape {tuple(g.shape)} with "
                f"{channels}. Set noise_type='general'."
            )
        if batch < 2:
            return channels, False
        moved = x0.detach().clone()
        moved[0] += 0.5 * (1 + moved[0].abs())
        others = (the_view.f(t, moved)[1:], the_view.g(t, moved)[1:])
    coupled = not (_same(others[0], f[1:]) and _same(others[1], g[1:]))
    return channels, coupled


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
    tolerance = 1e3 * torch.finfo(a.dtype).eps
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


def refuse_coupling(problem: Problem) -> None:
    """Raise :class:`CoupledSamplesError` if the samples of the batch are coupled."""
    if problem.coupled:
        raise CoupledSamplesError(
            "moving one sample of x0 changes the drift or diffusion of the others, so dX_t/dx0 "
            "of a sample alone is not defined. Usual causes: BatchNorm in training mode "
            "(model.eval()), a mean over the batch (make the particles one sample with d = their "
            "number). To see by how much: compare_modes()."
        )


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
        for t in nodes:
            path.node(t, grid.nodes.dtype)
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
    areas = methods.select(method, the_view.sde_type).levy_area_approximations
    if bm.levy_area_approximation not in areas:
        raise ValueError(
            f"method {method!r} needs a bm with Lévy area {list(areas)}, got "
            f"{bm.levy_area_approximation!r}. Make it with levy_area="
            f"{_LEVY_AREA.get(method, 'none')!r}."
        )
    if isinstance(bm, BrownianPath):
        for t in grid.nodes.tolist():
            bm.node(t, grid.nodes.dtype)
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
