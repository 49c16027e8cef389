"""Brownian paths on a grid: increments as a pure function of (seed, path, step, channel)."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torchsde import BaseBrownian

from sdesens import _philox
from sdesens._checks import check_choice, check_count
from sdesens.errors import OffGridError

LEVY_AREAS = ("none", "space-time", "davie", "foster")
_BLOCK_NUMBERS = 2**21  # numbers of noise held at once


class Increments(NamedTuple):
    """What a solver asks of a Brownian motion over consecutive steps; steps lead every shape.

    ``W`` is the increment, ``U`` the integral of ``W_u - W_s`` over the step (None without
    space-time Lévy area) and ``A`` the antisymmetric Lévy area (None without it).
    """

    W: Tensor  # (K, B, m)
    U: Tensor | None  # (K, B, m)
    A: Tensor | None  # (K, B, m, m)

    def step(self, k: int) -> Increments:
        """Those of step ``k`` alone, without the leading axis."""
        U, A = self.U, self.A
        return Increments(self.W[k], None if U is None else U[k], None if A is None else A[k])


class BrownianPath(BaseBrownian):
    r"""A batch of Brownian motions on a fixed grid, for ``torchsde.sdeint`` and for sdesens.

    The increment of (path ``p``, step ``k``, channel ``c``) depends on ``seed`` and on ``p``,
    ``k``, ``c`` alone, so shards, block sizes and the order of queries never change a number, two
    runs with different parameters see the same noise, and path 17 of a million is
    ``BrownianPath(..., shape=(1, m), first_path=17)``. Neither ``torch.manual_seed`` nor
    ``numpy.random.seed`` has any effect. Numbers of float32 and float64 paths are different.

    Noise is generated in blocks as it is asked for, and about 16 MB are held, whatever the length.

    Args:
        t0, t1: start and end of the grid, ``t0 < t1``.
        shape: ``(B, m)``: number of paths, number of channels.
        steps: number of equal steps between ``t0`` and ``t1``.
        seed: an int in ``[0, 2^64)``.
        dtype: float32 or float64; the default dtype if omitted.
        device: device of the increments.
        levy_area: ``"none"``; ``"space-time"``, for ``srk``; ``"davie"`` or ``"foster"``, for
            ``log_ode``. The space-time area ``H ~ N(0, h/12)`` is exact. Given ``W`` and ``H``,
            the Lévy area is normal around ``H ⊗ W - W ⊗ H`` with variance ``h²/12`` (Davie) or
            ``h²/20 + h (H_i² + H_j²) / 5`` (Foster), so that ``Var A_ij = h²/4`` as for the true
            area.
        first_path: global index of the first path of this batch.

    Raises:
        OffGridError: when called for a time that is not a node of the grid.

    Sources: Salmon et al. 2011 (Philox4x32-10); Foster, Lyons and Oberhauser, *An optimal
    polynomial approximation of Brownian motion*, SIAM J. Numer. Anal. 58 (2020).

    Example:
        >>> import torch
        >>> from sdesens import BrownianPath
        >>> bm = BrownianPath(0.0, 1.0, shape=(3, 2), steps=4, seed=7, dtype=torch.float64)
        >>> bm(0.25, 0.5).shape
        torch.Size([3, 2])
        >>> alone = BrownianPath(0.0, 1.0, (1, 2), 4, seed=7, dtype=torch.float64, first_path=2)
        >>> bool((alone(0.25, 0.5) == bm(0.25, 0.5)[2]).all())
        True
        >>> coarse = bm.coarsen(2)
        >>> bool(torch.allclose(coarse(0.0, 0.5), bm(0.0, 0.25) + bm(0.25, 0.5)))
        True
    """

    def __init__(
        self,
        t0: float,
        t1: float,
        shape: tuple[int, int],
        steps: int,
        seed: int = 0,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str = "cpu",
        levy_area: str = "none",
        first_path: int = 0,
    ) -> None:
        steps = check_count("steps", steps)
        t0, t1 = float(t0), float(t1)
        if not (math.isfinite(t0) and math.isfinite(t1) and t0 < t1):
            raise ValueError(f"t0 and t1 must be finite with t0 < t1, got t0={t0}, t1={t1}.")
        width = (t1 - t0) / steps
        nodes = [t0 + k * width for k in range(steps)] + [t1]
        self._set(nodes, shape, seed, dtype, device, levy_area, first_path)

    @classmethod
    def on_grid(
        cls,
        nodes: Sequence[float] | Tensor,
        shape: tuple[int, int],
        seed: int = 0,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str = "cpu",
        levy_area: str = "none",
        first_path: int = 0,
    ) -> BrownianPath:
        """A path on the given increasing nodes, at least two; otherwise as the constructor.

        Step ``k`` runs from ``nodes[k]`` to ``nodes[k + 1]`` and uses the same normal numbers as
        step ``k`` of an equal grid, scaled by the root of its own width.
        """
        values = [float(t) for t in nodes]
        if len(values) < 2:
            raise ValueError(f"nodes must hold at least two times, got {len(values)}.")
        for k, (a, b) in enumerate(pairwise(values)):
            if not (math.isfinite(a) and math.isfinite(b) and a < b):
                raise ValueError(
                    f"nodes must be finite and increase, got nodes[{k}]={a}, nodes[{k + 1}]={b}."
                )
        path = cls.__new__(cls)
        path._set(values, shape, seed, dtype, device, levy_area, first_path)
        return path

    def _set(self, nodes, shape, seed, dtype, device, levy_area, first_path) -> None:
        if len(shape) != 2:
            raise ValueError(f"shape must be (B, m), got {tuple(shape)}.")
        batch, channels = check_count("B", shape[0], 0), check_count("m", shape[1], 0)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if dtype not in _philox.LANES:
            raise TypeError(f"dtype must be torch.float32 or torch.float64, got {dtype}.")
        if not 0 <= check_count("seed", seed, 0) < 2**64:
            raise ValueError(f"seed must be in [0, 2**64), got {seed}.")
        check_choice("levy_area", levy_area, LEVY_AREAS)
        self._nodes: list[float] = nodes
        self._shape = (batch, channels)
        self._seed, self._dtype, self._device = int(seed), dtype, torch.device(device)
        self._levy_area, self._first_path = levy_area, check_count("first_path", first_path, 0)
        self._fine: BrownianPath | None = None
        self._factor = 1
        self._start_of_block = 0
        self._block: Increments | None = None
        self._known: dict[torch.dtype, dict[float, int]] = {}  # nodes found before
        self._slack = min(b - a for a, b in pairwise(nodes)) / 4

    def coarsen(self, n: int) -> BrownianPath:
        """The same paths on every ``n``-th node; fine increments sum to coarse ones.

        Raises:
            ValueError: if ``n`` does not divide the number of steps.
        """
        n = check_count("n", n)
        if self.steps % n:
            divisors = [k for k in range(1, self.steps + 1) if self.steps % k == 0]
            raise ValueError(
                f"n must divide the number of steps, {self.steps}, got n={n}. "
                f"Divisors: {divisors[:12]}{' ...' if len(divisors) > 12 else ''}."
            )
        coarse = BrownianPath.on_grid(
            self._nodes[::n],
            self._shape,
            self._seed,
            dtype=self._dtype,
            device=self._device,
            levy_area=self._levy_area,
            first_path=self._first_path,
        )
        coarse._fine, coarse._factor = self, n
        return coarse

    def __call__(self, ta, tb=None, return_U=False, return_A=False) -> Any:
        """The increment over ``[ta, tb]``, or ``W(ta)`` from ``t0`` on if ``tb`` is omitted.

        Returns ``W`` of shape ``(B, m)``, and with it, where asked for, ``U`` of shape ``(B, m)``
        and ``A`` of shape ``(B, m, m)``; None for what ``levy_area`` does not provide.
        """
        if tb is None:
            ta, tb = self._nodes[0], ta
        i, j = self.node(ta), self.node(tb)
        if i > j:
            raise ValueError(f"times must respect ta <= tb, got ta={float(ta)}, tb={float(tb)}.")
        W, U, A = self._over(i, j)
        if return_U:
            return (W, U, A) if return_A else (W, U)
        return (W, A) if return_A else W

    def node(self, t, dtype: torch.dtype | None = None) -> int:
        """The index of the node at time ``t``, up to the rounding of a solver that adds up steps.

        The rounding is that of ``dtype``, by default the dtype of ``t`` itself.

        Raises:
            OffGridError: if there is none; the message names the nearest nodes.
        """
        if dtype is None:
            dtype = t.dtype if isinstance(t, Tensor) and t.is_floating_point() else torch.float64
        time = float(t)
        known = self._known.setdefault(dtype, {})
        k = known.get(time)
        if k is None:
            k = known[time] = self._search(time, dtype)
        return k

    def _tolerance(self, dtype: torch.dtype) -> float:
        """How far a time may be from its node: the rounding of a solver that adds up steps."""
        scale = torch.finfo(dtype).eps * max(abs(self._nodes[0]), abs(self._nodes[-1]))
        return min(scale * (self.steps + 8), self._slack)

    def _search(self, time: float, dtype: torch.dtype) -> int:
        nodes, tolerance = self._nodes, self._tolerance(dtype)
        k = bisect.bisect_left(nodes, time - tolerance)
        if k < len(nodes) and abs(nodes[k] - time) <= tolerance:
            return k
        if k in (0, len(nodes)):
            raise OffGridError(
                f"time {time!r} is outside the grid [{nodes[0]!r}, {nodes[-1]!r}] of this "
                f"BrownianPath. Make the path as long as ts."
            )
        hint = " Times in float32 drift as steps add up: use float64 times."
        raise OffGridError(
            f"time {time!r} is not a node of this BrownianPath; the nearest nodes are "
            f"{nodes[k - 1]!r} and {nodes[k]!r}. Use a step that visits the nodes (here "
            f"dt={nodes[k] - nodes[k - 1]:.6g}), or a path on the solver's own grid."
            f"{hint if dtype is torch.float32 else ''}"
        )

    def nodes_at(self, times: Tensor) -> list[int]:
        """:meth:`node` of every entry of ``times``, at once."""
        nodes = np.asarray(self._nodes)
        wanted = times.detach().cpu().double().numpy()
        tolerance = self._tolerance(times.dtype)
        k = np.searchsorted(nodes, wanted - tolerance)
        near = np.abs(nodes[np.minimum(k, len(nodes) - 1)] - wanted) <= tolerance
        for time in wanted[~near]:
            self._search(float(time), times.dtype)  # raises
        return k.tolist()

    def widths_on(self, times: Tensor) -> Tensor | None:
        """``(steps,)`` widths, in float64, of this path's own steps between ``times``.

        None unless the ``k``-th time is the ``k``-th node, or repeats the last one, and the steps
        are drawn from the counter rather than joined from finer ones.
        """
        found = self.nodes_at(times)
        if self._fine is not None or found != [min(k, self.steps) for k in range(len(found))]:
            return None
        nodes = torch.tensor(self._nodes, dtype=torch.float64)
        return nodes[found].diff()

    def _over(self, i: int, j: int) -> Increments:
        """Increment and areas from node ``i`` to node ``j``, without the leading axis."""
        if i == j:
            return self._zeros(1).step(0)
        if j == i + 1:
            block = self._block
            if block is None or not 0 <= i - self._start_of_block < block.W.shape[0]:
                block = self._load(i)
            return block.step(i - self._start_of_block)
        return _join(self._generate(i, j), self._widths(i, j), j - i).step(0)

    def _load(self, i: int) -> Increments:
        """Make the block that holds step ``i`` the current one."""
        batch, channels = self._shape
        per_step = max(1, batch * channels * self._factor)
        if self._levy_area in ("davie", "foster"):
            per_step *= max(1, channels)
        size = max(4, _BLOCK_NUMBERS // per_step // 4 * 4)
        start = i // size * size
        self._block = self._generate(start, min(start + size, self.steps))
        self._start_of_block = start
        return self._block

    def _generate(self, i: int, j: int) -> Increments:
        """Steps ``i`` to ``j`` of this grid, from the counter or from the finer path."""
        if self._fine is not None:
            n = self._factor
            fine = self._fine
            return _join(fine._generate(i * n, j * n), fine._widths(i * n, j * n), n)
        h = self._widths(i, j)
        W = self._normals(i, j, _philox.INCREMENT) * h.sqrt()
        if self._levy_area == "none":
            return Increments(W, None, None)
        H = self._normals(i, j, _philox.SPACE_TIME) * (h / 12).sqrt()
        U = h * (0.5 * W + H)
        if self._levy_area == "space-time":
            return Increments(W, U, None)
        return Increments(W, U, self._area(i, j, W, H, h))

    def _area(self, i: int, j: int, W: Tensor, H: Tensor, h: Tensor) -> Tensor:
        m = self._shape[1]
        noise = self._normals(i, j, _philox.AREA, channels=m * (m - 1) // 2)
        return levy_area(W, H, h, noise, self._levy_area)

    def _normals(self, i: int, j: int, stream: int, channels: int | None = None) -> Tensor:
        first = self._first_path
        return _philox.normals(
            self._seed,
            range(first, first + self._shape[0]),
            range(i, j),
            self._shape[1] if channels is None else channels,
            stream=stream,
            dtype=self._dtype,
            device=self._device,
        )

    def _widths(self, i: int, j: int) -> Tensor:
        nodes = torch.tensor(self._nodes[i : j + 1], dtype=torch.float64)
        return nodes.diff()[:, None, None].to(self._device, self._dtype)

    def _zeros(self, steps: int) -> Increments:
        W = torch.zeros(steps, *self._shape, dtype=self._dtype, device=self._device)
        A = (
            W.new_zeros(*W.shape, self._shape[1])
            if self._levy_area in ("davie", "foster")
            else None
        )
        return Increments(W, None if self._levy_area == "none" else W, A)

    @property
    def steps(self) -> int:
        """Number of steps of the grid."""
        return len(self._nodes) - 1

    @property
    def t0(self) -> float:
        """First node."""
        return self._nodes[0]

    @property
    def t1(self) -> float:
        """Last node."""
        return self._nodes[-1]

    @property
    def seed(self) -> int:
        """The seed that, with path, step and channel, decides every number."""
        return self._seed

    @property
    def first_path(self) -> int:
        """Global index of the first path of this batch."""
        return self._first_path

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the increments."""
        return self._dtype

    @property
    def device(self) -> torch.device:
        """Device of the increments."""
        return self._device

    @property
    def shape(self) -> tuple[int, int]:
        """``(B, m)``: paths and channels."""
        return self._shape

    @property
    def levy_area_approximation(self) -> str:
        """What ``levy_area`` was, under the name that torchsde asks for."""
        return self._levy_area

    def __repr__(self) -> str:
        return (
            f"BrownianPath(t0={self.t0:g}, t1={self.t1:g}, shape={self._shape}, "
            f"steps={self.steps}, seed={self._seed}, dtype={self._dtype}, "
            f"device={str(self._device)!r}, levy_area={self._levy_area!r}, "
            f"first_path={self._first_path})"
        )


def levy_area(W: Tensor, H: Tensor, h: Tensor, normals: Tensor, kind: str) -> Tensor:
    """Lévy area ``(..., m, m)`` given increments and space-time areas ``(..., m)`` over ``h``.

    ``normals (..., m (m - 1) / 2)`` are those of the entries above the diagonal.
    """
    m = W.shape[-1]
    rows, columns = torch.triu_indices(m, m, offset=1, device=W.device)
    if kind == "davie":
        std = h / math.sqrt(12)
    else:
        std = (h * h / 20 + h / 5 * (H[..., rows] ** 2 + H[..., columns] ** 2)).sqrt()
    upper = H[..., rows] * W[..., columns] - W[..., rows] * H[..., columns] + std * normals
    A = W.new_zeros(*W.shape, m)
    A[..., rows, columns] = upper
    A[..., columns, rows] = -upper
    return A


class WrappedBrownian(BaseBrownian):
    """Another Brownian motion that a subclass observes or changes on the way."""

    def __init__(self, bm: BaseBrownian) -> None:
        self._bm = bm

    def __call__(self, ta, tb=None, return_U=False, return_A=False):
        return self._bm(ta, tb, return_U=return_U, return_A=return_A)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._bm!r})"

    @property
    def dtype(self) -> torch.dtype:
        return self._bm.dtype

    @property
    def device(self) -> torch.device:
        return self._bm.device

    @property
    def shape(self) -> tuple[int, ...]:
        return self._bm.shape

    @property
    def levy_area_approximation(self) -> str:
        return self._bm.levy_area_approximation


def _join(parts: Increments, widths: Tensor, n: int) -> Increments:
    """Join every ``n`` consecutive steps into one (Chen's relation)."""
    W, U, A = (None if p is None else p.unflatten(0, (-1, n)) for p in parts)
    assert W is not None
    if U is None:
        return Increments(W.sum(1), None, None)
    before = W.cumsum(1) - W  # the path at the start of each step, from the start of its group
    U = (U + before * widths.unflatten(0, (-1, n))).sum(1)
    if A is not None:
        outer = before.unsqueeze(-1) * W.unsqueeze(-2)
        A = (A + 0.5 * (outer - outer.transpose(-1, -2))).sum(1)
    return Increments(W.sum(1), U, A)
