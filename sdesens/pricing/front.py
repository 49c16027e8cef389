"""The front door: ``greeks``."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from sdesens._checks import check_choice, check_count
from sdesens.fused.kernel import Moments
from sdesens.fused.system import Direction
from sdesens.montecarlo.estimates import Estimate
from sdesens.montecarlo.front import (
    SHARD_SIZE,
    check_run,
    counted,
    raise_if_not_finite,
    shards,
)
from sdesens.montecarlo.job import Job
from sdesens.montecarlo.moments import merge_all, standard_error
from sdesens.pricing.control import Control, adjusted, with_controls
from sdesens.pricing.estimators import ESTIMATORS, Key, Piece, plan
from sdesens.pricing.estimators.motions import antithetic as in_pairs
from sdesens.pricing.payoffs import Payoff
from sdesens.pricing.probe import check_lipschitz
from sdesens.pricing.report import Name, Report
from sdesens.pricing.scenario import Scenario


def greeks(
    model: Any,
    payoff: Payoff,
    x0: Tensor | Sequence[float],
    *,
    paths: int,
    steps: int,
    seed: int = 0,
    wrt: str | Sequence[str] = "all",
    order: int = 1,
    estimator: str = "auto",
    scheme: str = "auto",
    antithetic: bool = False,
    control: Payoff | Sequence[Payoff] = (),
    dtype: torch.dtype = torch.float64,
    shard_size: int = SHARD_SIZE,
    workers: int = 1,
    executor: Executor | None = None,
    progress: bool = False,
) -> Report:
    r"""The value of a payoff and its derivatives, each with a standard error.

    Every payoff says where it jumps and where it has kinks, and ``estimator="auto"`` takes for each
    number an estimator that is unbiased for it; the report names it. Asked for one that is not, it
    raises, with the reason and what to use.

    ========================  ============================================================
    ``"pathwise"``            the derivative of the payoff along the path; for payoffs
                              that do not jump, at order 2 for smooth ones
    ``"mixed"``               pathwise at order 1; at order 2 the pathwise derivative of
                              the payoff times a weight
    ``"conditional"``         pathwise, of the expectation of the payoff over the last
                              step; over all steps after the last date where the asset is
                              log-normal given the variance or the jumps (Romano-Touzi
                              mixing for Heston)
    ``"one-step-survival"``   pathwise, on paths that are made to survive every date of a
                              barrier
    ``"bismut"``              the payoff times the weight of Bismut, Elworthy and Li, made
                              of the tangent process and spread evenly over the steps up
                              to the next date; for all payoffs
    ``"likelihood-ratio"``    the same with the whole weight in each step: its variance
                              grows with the number of steps
    ========================  ============================================================

    ``"auto"``: one-step survival for barriers watched at dates; the conditional expectation in
    mixtures; pathwise for what does not jump, mixed at order 2; Bismut weights for what jumps; the
    conditional expectation where no weight can be made. All derivatives are those of the discrete
    scheme, exact in expectation: what remains is the bias of the scheme itself.

    Args:
        model: an :class:`~sdesens.SDE` under the pricing measure. Amounts are discounted by its
            ``rate``; by the path of its short rate if that is its state (Vasicek, CIR); else not.
        payoff: from :mod:`sdesens.pricing`.
        x0: ``(d,)``, the state today.
        paths: number of paths, at least 2; even if ``antithetic``.
        steps: number of equal steps up to the payoff's maturity, whose dates must be nodes.
        seed: seed of the noise; the same noise for all numbers.
        wrt: ``"all"`` (x0, the model's parameters, ``"maturity"``), or names: components,
            parameters, numbers of the payoff (``"strike"``), ``"maturity"`` (years; the number of
            steps fixed, dates moving along).
        order: 1, or 2 for all second derivatives of ``wrt`` as well.
        estimator: see above.
        scheme: ``"auto"`` takes the model's own first scheme (``"exact"``, ``"qe"``), else Euler;
            or the name of one, or of a fixed-step solver of torchsde.
        antithetic: run pairs on opposite noise. A pair is one sample to the standard error.
        control: payoffs whose value is known (``model.closed_form``), simulated beside and used as
            control variates for the price and every derivative. Only under schemes without
            discretisation bias (``"exact"``).
        dtype: of the paths, float64 or float32 (half the time, about 6 digits, and other noise);
            sums are float64.
        shard_size: paths simulated at once. Bits depend on it, and not on workers.
        workers: number of threads.
        executor: runs the shards in place of threads; any ``concurrent.futures.Executor`` that
            shares memory.
        progress: show a bar of paths.

    Returns:
        :class:`~sdesens.pricing.Report`.

    Raises:
        ValueError, TypeError: for bad arguments, before anything long is run.
        UnsupportedError: if the estimator is not right for the payoff; what to use instead.
        NotLipschitzError: if a payoff that the user calls Lipschitz is found not to be.
        ArithmeticError: if a mean is not finite.

    Source: Glasserman, *Monte Carlo Methods in Financial Engineering*, 2003, chapter 7; Broadie and
    Glasserman, *Estimating security price derivatives using simulation*, Manage. Sci. 42 (1996).

    Example:
        >>> import sdesens
        >>> from sdesens.models import BlackScholes
        >>> from sdesens.pricing import Digital
        >>> model = BlackScholes(rate=0.05, sigma=0.2)
        >>> report = sdesens.greeks(model, Digital(strike=100.0, maturity=1.0), [100.0],
        ...                         paths=20_000, steps=1, wrt=("spot", "sigma"))
        >>> abs(report.delta.value - 0.018762) < 4 * report.delta.stderr
        True
        >>> report.estimators["spot",]
        'bismut'
    """
    paths = _check_paths(paths, antithetic)
    order = _check_order(order)
    check_choice("estimator", estimator, ESTIMATORS)
    check_run(seed, shard_size, workers)
    scenario = Scenario.of(model, payoff, x0, steps=steps, scheme=scheme, dtype=dtype)
    directions = scenario.directions(wrt)
    pieces = plan(scenario, estimator, order, directions)
    controls = _controls(scenario, control, order, directions)
    check_lipschitz(scenario, seed)
    if controls:
        pieces = with_controls(pieces, controls, estimator, order, directions)
    samples = paths // 2 if antithetic else paths
    entries: dict[Name, Estimate] = {}
    estimators: dict[Name, str] = {}
    with tqdm(total=samples * len(pieces), unit="path", unit_scale=True, disable=not progress) as b:
        for piece in pieces:
            motion = in_pairs(piece.motion) if antithetic else piece.motion
            b.set_description("compiling")
            job = Job.moving(
                motion, piece.clock, scenario.problem.x0, piece.directions, seed, samples,
                shard_size,
            )  # fmt: skip
            b.set_description(piece.estimator)
            moments = merge_all(counted(shards(job, workers, executor), b))
            _check_finite(scenario, piece, job, moments)
            for key, estimate in _estimates(piece, job, moments, controls).items():
                name = tuple(scenario.label(d) for d in key)
                entries[name], estimators[name] = estimate, piece.estimator
    return Report(
        entries=entries,
        estimators=estimators,
        groups=_groups(scenario, directions),
        asset=None if scenario.asset is None else scenario.asset.name,
        model=type(model).__name__,
        payoff=str(payoff),
        scheme=scenario.scheme,
        steps=scenario.steps,
        paths=paths,
        seed=seed,
        antithetic=antithetic,
    )


def _check_paths(paths: int, antithetic: bool) -> int:
    paths = check_count("paths", paths, 4 if antithetic else 2)
    if antithetic and paths % 2:
        raise ValueError(f"paths must be even for antithetic pairs, got {paths}.")
    return paths


def _check_order(order: Any) -> int:
    if order not in (1, 2) or isinstance(order, bool):
        raise ValueError(f"order must be 1 or 2, got {order!r}.")
    return int(order)


def _controls(
    scenario: Scenario, control: Any, order: int, directions: Sequence[Direction]
) -> list[Control]:
    payoffs = [control] if isinstance(control, Payoff) else control
    if not isinstance(payoffs, Sequence) or not all(isinstance(p, Payoff) for p in payoffs):
        raise TypeError(
            f"control must be a payoff of sdesens.pricing, or several, got {control!r}."
        )
    return [Control.of(scenario, payoff, order, directions) for payoff in payoffs]


def _check_finite(scenario: Scenario, piece: Piece, job: Job, moments: Moments) -> None:
    """Raise :class:`ArithmeticError` if a mean or a variance is not finite, naming them."""
    places = {at: k for k, at in enumerate(job.layout.outputs)}
    bad = ~(torch.isfinite(moments.mean) & torch.isfinite(moments.products.diagonal()))
    names = [_name(scenario, key) for at, key in piece.keys.items() if bool(bad[places[at]])]
    if names:
        raise ArithmeticError(
            f"{names} by {piece.estimator!r}: not finite, as a path, its derivative or its weight "
            f"is not. A weight divides by the volatility of a step, and roots have no derivative "
            f"at 0 (a correlation of 1). Leave them out of wrt, or use another estimator, scheme "
            f"or number of steps."
        )
    raise_if_not_finite(moments)


def _name(scenario: Scenario, key: Key) -> str:
    return ", ".join(scenario.label(d) for d in key) or "price"


def _estimates(
    piece: Piece, job: Job, moments: Moments, controls: Sequence[Control]
) -> dict[tuple[Direction, ...], Estimate]:
    places = {key: k for k, key in enumerate(job.layout.outputs)}
    if controls:
        return adjusted(piece, places, moments, controls)
    errors = standard_error(moments)
    return {
        key: Estimate(moments.mean[places[at]].item(), errors[places[at]].item())
        for at, key in piece.keys.items()
    }


def _groups(
    scenario: Scenario, directions: Sequence[Direction]
) -> dict[str, tuple[Sequence[str], tuple[int, ...]]]:
    """Inputs of several entries, all of which were asked for."""
    out: dict[str, tuple[Sequence[str], tuple[int, ...]]] = {}
    for name, members in scenario.inputs.items():
        if not members or not set(members) <= set(directions):
            continue
        labels = [scenario.label(d) for d in members]
        if labels == [name]:
            continue
        which = members[0][0]
        shape = (len(members),)
        if which.partition(".")[0] in ("model", "payoff"):
            shape = tuple(scenario.holder.get_parameter(which).shape)
        out[name] = labels, shape
    return out
