"""The front door: ``greeks``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from sdesens._checks import check_choice, check_count
from sdesens.montecarlo.accuracy import Target
from sdesens.montecarlo.arguments import check_run
from sdesens.montecarlo.execution import Terms
from sdesens.montecarlo.job import SHARD_SIZE
from sdesens.pricing.estimators import ESTIMATORS
from sdesens.pricing.payoffs import Payoff
from sdesens.pricing.report import Report
from sdesens.pricing.scenario import Scenario
from sdesens.pricing.valuation import Valuation


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
    executor: Any = None,
    checkpoint: str | PathLike[str] | None = None,
    target_stderr: float | Mapping[Any, float] | None = None,
    retries: int = 2,
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
        workers: number of processes, or of what ``executor`` names.
        executor: what runs the shards: ``"serial"``, ``"threads"``, ``"processes"``, ``"dask"`` (a
            cluster on this machine), ``"ray"`` (that of ``ray.init()``), the address of a Dask
            scheduler, a ``dask.distributed.Client``, a
            :class:`~sdesens.montecarlo.RayExecutor`, or any ``concurrent.futures.Executor``.
        checkpoint: a folder for finished shards. A run that was stopped goes on where it was, and
            one of more paths where the first ended, to the same bits.
        target_stderr: stop where the standard error of the price is this, or that of every
            ``{key: stderr}``, keys as in the report; ``paths`` is then the most. The number of
            paths depends on the samples, a bias of the order of 1 / paths.
        retries: how often a shard that fails, or whose worker dies, is tried again.
        progress: show a bar of paths.

    Returns:
        :class:`~sdesens.pricing.Report`.

    Raises:
        ValueError, TypeError: for bad arguments, before anything long is run.
        UnsupportedError: if the estimator is not right for the payoff; what to use instead.
        NotLipschitzError: if a payoff that the user calls Lipschitz is found not to be.
        ArithmeticError: if a mean is not finite.
        ShardError: if a shard fails more often than ``retries``; finished ones stay on disk.
        CheckpointError: if ``checkpoint`` cannot be used.

    Warns:
        AccuracyWarning: if ``paths`` do not reach ``target_stderr``.

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
    check_run(seed, shard_size)
    terms = Terms.of(executor, workers, checkpoint, retries)
    scenario = Scenario.of(model, payoff, x0, steps=steps, scheme=scheme, dtype=dtype)
    valuation = Valuation.of(
        scenario, wrt, order, estimator, control, antithetic=antithetic, seed=seed
    )
    target = Target.of(target_stderr, "price", valuation.blank())
    samples = paths // 2 if antithetic else paths
    total = samples * len(valuation.pieces)
    with tqdm(total=total, unit="path", unit_scale=True, disable=not progress) as bar:
        bar.set_description("compiling")
        job = valuation.job(samples, shard_size)
        bar.set_description("simulating")
        return terms.estimate(job, lambda parts: valuation.report(job, parts), target, bar.update)


def _check_paths(paths: int, antithetic: bool) -> int:
    paths = check_count("paths", paths, 4 if antithetic else 2)
    if antithetic and paths % 2:
        raise ValueError(f"paths must be even for antithetic pairs, got {paths}.")
    return paths


def _check_order(order: Any) -> int:
    if order not in (1, 2) or isinstance(order, bool):
        raise ValueError(f"order must be 1 or 2, got {order!r}.")
    return int(order)
