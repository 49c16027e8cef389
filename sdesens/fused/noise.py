"""What a solver asks of a Brownian motion, out of normal numbers or as it was drawn elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sdesens import _philox
from sdesens.brownian import BaseBrownian, BrownianPath, levy_area
from sdesens.problem import Problem

_ASKED = {"srk": "space-time", "log_ode": "area"}


@dataclass(frozen=True)
class NoiseForm:
    """How the noise inputs of a step become what its solver asks for.

    Attributes:
        counters: for each input the channel word of its counter.
        of: ``of(noise (1, M), width)`` gives the increments ``(1, m)``, and with them what else
            the solver asks for.
        channels: number m of Brownian channels.
        drawn: whether the inputs are normal numbers; else they are increments and areas.
        what: the part of a key that tells this form from another.
    """

    counters: Sequence[int]
    of: Callable[[Tensor, Tensor], list[Tensor]]
    channels: int
    drawn: bool
    what: tuple


def noise_form(method: str, channels: int, area: str, drawn: bool) -> NoiseForm:
    """The form for a solver of torchsde; ``area`` is the Lévy area of the path."""
    m, asked = channels, _ASKED.get(method, "none")
    what = (method, channels, area if asked == "area" else None, drawn)
    if not drawn:
        size = {"none": m, "space-time": 2 * m, "area": m + m * m}[asked]
        return NoiseForm(range(size), lambda z, h: _given(z, m, asked), m, False, what)
    counters = [_philox.word(_philox.INCREMENT, c) for c in range(m)]
    if asked != "none":
        counters += [_philox.word(_philox.SPACE_TIME, c) for c in range(m)]
    if asked == "area":
        counters += [_philox.word(_philox.AREA, c) for c in range(m * (m - 1) // 2)]
    return NoiseForm(counters, lambda z, h: _made(z, h, m, asked, area), m, True, what)


def _given(z: Tensor, m: int, asked: str) -> list[Tensor]:
    rest = z[:, m:]
    extra = {"none": [], "space-time": [rest], "area": [rest.reshape(-1, m, m)]}[asked]
    return [z[:, :m], *extra]


def _made(z: Tensor, h: Tensor, m: int, asked: str, area: str) -> list[Tensor]:
    W = z[:, :m] * h.sqrt()
    if asked == "none":
        return [W]
    H = z[:, m : 2 * m] * (h / 12).sqrt()
    if asked == "space-time":
        return [W, h * (0.5 * W + H)]
    return [W, levy_area(W, H, h, z[:, 2 * m :], area)]


def widths(problem: Problem) -> Tensor | None:
    """``(steps,)`` time spanned by the noise of each step, if it can be drawn from the counter.

    None if the noise comes from elsewhere, or is that of several steps of a finer path.
    """
    bm = problem.bm
    return bm.widths_on(problem.grid.nodes) if isinstance(bm, BrownianPath) else None


def drawn_elsewhere(bm: BaseBrownian, nodes: Tensor, form: NoiseForm) -> Tensor:
    """Increments and areas of ``bm`` over the steps, ``(steps, inputs, B)``."""
    asked = _ASKED.get(form.what[0], "none")
    out = []
    for t0, t1 in zip(nodes[:-1].unbind(0), nodes[1:].unbind(0), strict=True):
        parts = bm(t0, t1, return_U=asked == "space-time", return_A=asked == "area")
        parts = parts if isinstance(parts, tuple) else (parts,)
        out.append(torch.cat([part.flatten(1) for part in parts], dim=1).T)
    return torch.stack(out).contiguous()
