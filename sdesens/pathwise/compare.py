"""Run every mode and a central difference on one Brownian path, and say where they part."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from sdesens.autodiff import per_sample_jacobian
from sdesens.brownian import BaseBrownian
from sdesens.errors import CoupledSamplesError, UnsupportedError
from sdesens.pathwise.directions import Derivatives, Inputs
from sdesens.pathwise.front import MODES, check_wrt, parameters_of, raise_if_not_finite, run_mode
from sdesens.pathwise.result import Sensitivities
from sdesens.prepare import prepare
from sdesens.problem import Problem
from sdesens.solve import integrate

CENTRAL = "central difference"
_MODE_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-3}
_CENTRAL_TOLERANCE = {torch.float64: 1e-6, torch.float32: 3e-2}


@dataclass(frozen=True)
class Disagreement:
    """The largest difference between two ways of computing one derivative.

    Attributes:
        first: name of the one way.
        second: of the other; may be ``"central difference"``.
        quantity: ``"x"``, ``"dx0"`` or ``"dparams['name']"``.
        difference: largest absolute difference, relative to the largest entry of the quantity (or,
            for a derivative near zero, to about a thousandth of the largest ``|x|``).
        tolerance: what it is held against.
        time_index: index into ``ts`` of where it is.
        sample: the sample.
        index: the remaining indices, ``(out, in, ...)``.
    """

    first: str
    second: str
    quantity: str
    difference: float
    tolerance: float
    time_index: int
    sample: int
    index: tuple[int, ...]

    @property
    def within(self) -> bool:
        """Whether the difference is within the tolerance; NaN is not."""
        return self.difference <= self.tolerance


@dataclass(frozen=True, repr=False)
class ModeComparison:
    """What :func:`compare_modes` found; print it for a table.

    Attributes:
        results: what each mode returned.
        central: central differences, keyed as in ``Sensitivities.derivatives()``.
        refused: modes that do not apply, with the reason.
        disagreements: one for each pair of ways and each quantity, the largest first.
        coupled: whether moving one sample moves the drift or diffusion of another.
    """

    results: dict[str, Sensitivities]
    central: dict[str, Tensor]
    refused: dict[str, str]
    disagreements: list[Disagreement]
    coupled: bool

    @property
    def worst(self) -> Disagreement:
        """The largest difference in units of its tolerance."""
        return self.disagreements[0]

    @property
    def agree(self) -> bool:
        """Whether every difference is within its tolerance and no samples are coupled."""
        return not self.coupled and all(d.within for d in self.disagreements)

    def __str__(self) -> str:
        some = next(iter(self.results.values()))
        T, B, d = some.x.shape
        lines = [f"{some.method}, dt={some.dt:g}, T={T}, B={B}, d={d}, {some.x.dtype}"]
        lines.append(f"{'quantity':<20} {'between':<30} {'difference':>10} {'allowed':>8}  where")
        for row in self.disagreements:
            where = f"ts[{row.time_index}]={some.ts[row.time_index].item():g}, sample {row.sample}"
            where += f", {list(row.index)}"
            pair = f"{row.first} - {row.second}"
            mark = "" if row.within else "  <-- DISAGREE"
            lines.append(
                f"{row.quantity:<20} {pair:<30} {row.difference:>10.1e} {row.tolerance:>8.0e}  "
                f"{where}{mark}"
            )
        lines += [f"{mode}: not run. {reason}" for mode, reason in self.refused.items()]
        if self.coupled:
            lines.append(
                "The samples are COUPLED: drift or diffusion of one depends on another. No mode's "
                "dx0 is then the derivative of a sample in its own start; the central difference "
                "moves one sample at a time."
            )
        agreement = "All agree." if self.agree else "NOT all agree: trust none before knowing why."
        return "\n".join([*lines, agreement])

    __repr__ = __str__


def compare_modes(
    sde: Any,
    x0: Tensor,
    ts: Tensor | Sequence[float],
    *,
    wrt: str | Sequence[str] = ("x0",),
    method: str | None = None,
    dt: float | None = None,
    bm: BaseBrownian | None = None,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
) -> ModeComparison:
    """Check the derivatives of your own model: all modes and a central difference, on one path.

    The central difference is two plain solves for each entry of each input (and, if samples are
    coupled, for each sample), so ask for few parameters at a time. Its step is
    ``eps^(1/3) max(1, |value|)``.

    Models for which the modes differ: a ``no_grad`` or ``detach`` inside the drift (reverse mode
    does not see past it), a custom autograd Function whose rules contradict each other, samples
    that are coupled. The report says so and picks none.

    Args:
        sde, x0, ts, wrt, method, dt, bm, seed, options, names: as in :func:`sensitivities`.

    Returns:
        :class:`ModeComparison`; ``.agree`` is the verdict, ``.worst`` the largest difference and
        where, and ``print`` shows the table. Differences are relative to the largest entry of a
        quantity and held against 1e-10 between modes and 1e-6 from the central difference
        (float32: 1e-3 and 3e-2).

    Raises:
        As :func:`sensitivities`, but a mode that does not apply is listed in ``.refused``, and
        coupled samples are reported, not raised.

    Example:
        >>> import torch, sdesens
        >>> from sdesens.models import GeometricBrownianMotion
        >>> gbm = GeometricBrownianMotion(mu=0.05, sigma=0.2)
        >>> x0 = torch.full((4, 1), 100.0, dtype=torch.float64)
        >>> report = sdesens.compare_modes(gbm, x0, [0.0, 0.5, 1.0], dt=0.1, seed=0,
        ...                                wrt=("x0", "sigma"))
        >>> report.agree
        True
    """
    wrt = check_wrt(wrt)
    problem = prepare(
        sde, x0, ts, method=method, dt=dt, bm=bm, seed=seed, options=options, names=names
    )
    with torch.no_grad():
        plain = integrate(problem, x0=problem.x0.detach())
    problem = replace(problem, coupled=problem.coupled or _coupled_on(problem, plain))
    inputs = Inputs.of(problem, "x0" in wrt, parameters_of(problem, wrt))
    results, refused = {}, {}
    for mode in MODES:
        try:
            results[mode] = run_mode(problem, inputs, mode, chunk_size=None, progress=False)
        except UnsupportedError as error:
            refused[mode] = str(error)
    for result in results.values():
        raise_if_not_finite(result)
    with torch.no_grad():
        central = _central_differences(problem, inputs)
    rows = list(_disagreements(results, plain, central))
    rows.sort(key=lambda row: -_severity(row))
    return ModeComparison(results, central, refused, rows, problem.coupled)


def _coupled_on(problem: Problem, path: Tensor) -> bool:
    """Whether the gradients of drift or diffusion mix samples, at three times of the path."""
    last = len(path) - 1
    for k in {0, last // 2, max(last - 1, 0)}:
        for function in (problem.view.f, problem.view.g):
            at = partial(function, problem.ts[k])
            try:
                per_sample_jacobian(at, path[k].detach(), check=True)
            except CoupledSamplesError:
                return True
            except (ValueError, RuntimeError):
                continue  # it does not depend on the state in a way autograd sees
    return False


def _severity(row: Disagreement) -> float:
    ratio = row.difference / row.tolerance
    return math.inf if math.isnan(ratio) else ratio


def _disagreements(
    results: dict[str, Sensitivities], plain: Tensor, central: Derivatives
) -> Iterator[Disagreement]:
    dtype = plain.dtype
    modes, by_central = _MODE_TOLERANCE[dtype], _CENTRAL_TOLERANCE[dtype]
    # A central difference of a derivative that is zero is rounding, about eps^(2/3) |x|.
    largest = plain.abs().max().item() if plain.numel() else 0.0
    floor = 30 * torch.finfo(dtype).eps ** (2 / 3) / by_central * largest
    for mode, result in results.items():
        yield _largest(mode, "torchsde.sdeint", "x", result.x, plain, modes)
        for name, value in result.derivatives().items():
            yield _largest(mode, CENTRAL, _label(name), value, central[name], by_central, floor)
    for first, second in combinations(results, 2):
        others = results[second].derivatives()
        for name, value in results[first].derivatives().items():
            yield _largest(first, second, _label(name), value, others[name], modes, floor)


def _label(name: str) -> str:
    return "dx0" if name == "x0" else f"dparams[{name!r}]"


def _largest(
    first: str,
    second: str,
    quantity: str,
    a: Tensor,
    b: Tensor,
    tolerance: float,
    floor: float = 0.0,
) -> Disagreement:
    difference = (a - b).detach().abs()
    if difference.numel() == 0:
        return Disagreement(first, second, quantity, 0.0, tolerance, 0, 0, ())
    worst = int(difference.nan_to_num(nan=float("inf")).argmax())
    time, sample, *rest = (int(i) for i in torch.unravel_index(torch.tensor(worst), a.shape))
    largest = b.detach().abs().max().item()
    scale = (floor if largest < floor else largest) or 1.0  # NaN stays NaN
    value = difference.flatten()[worst].item() / scale
    return Disagreement(first, second, quantity, value, tolerance, time, sample, tuple(rest))


def _central_differences(problem: Problem, inputs: Inputs) -> Derivatives:
    columns: list[Tensor] = []
    x0 = problem.x0.detach()
    step = torch.finfo(x0.dtype).eps ** (1 / 3)
    if inputs.x0:
        columns += [_in_x0(problem, x0, j, step) for j in range(inputs.d)]
    for name, value, unit in inputs.parameter_directions():
        move = unit * step * value.detach().abs().clamp(min=1)
        up, down = value.detach() + move, value.detach() - move
        ends = []
        for moved in (up, down):
            with inputs.places.holding({name: moved}):
                ends.append(integrate(problem, x0=x0))
        columns.append((ends[0] - ends[1]) / (up - down).sum().to(x0.dtype))
    return inputs.derivatives(columns)


def _in_x0(problem: Problem, x0: Tensor, j: int, step: float) -> Tensor:
    """Central difference in component ``j``; sample by sample if they are coupled."""
    move = torch.zeros_like(x0)
    move[:, j] = step * x0[:, j].abs().clamp(min=1)
    if not problem.coupled:
        up, down = x0 + move, x0 - move
        ends = integrate(problem, x0=up), integrate(problem, x0=down)
        return (ends[0] - ends[1]) / (up - down)[:, j, None]
    out = x0.new_zeros(problem.ts.shape[0], *x0.shape)
    for b in range(x0.shape[0]):
        only = torch.zeros_like(move)
        only[b] = move[b]
        up, down = x0 + only, x0 - only
        ends = integrate(problem, x0=up), integrate(problem, x0=down)
        out[:, b] = (ends[0] - ends[1])[:, b] / (up - down)[b, j]
    return out
