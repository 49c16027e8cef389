"""A motion run as it stands, in torch, from starts that may differ: for probes of a few paths."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sdesens.fused.evaluate import drawn
from sdesens.fused.kernel import Run
from sdesens.fused.system import Motion
from sdesens.montecarlo.simulation import Clock


def walked(motion: Motion, clock: Clock, x0: Tensor, seed: int) -> Sequence[Tensor]:
    """The outputs of ``motion``, each ``(P,)``, from the starts ``x0 (P, d)`` in its dtype.

    The noise is that of the compiled engine; derivatives in anything pass through.
    """
    assert motion.start is not None and motion.finish is not None
    dtype, paths = x0.dtype, x0.shape[0]
    times, rates = clock.times()
    none = torch.zeros(0)
    run = Run(none, times, rates, clock.flags[1:], none, paths, seed)
    y = motion.start(x0)
    for k in range(clock.steps):
        noise = drawn(motion.counters, run, dtype, range(k, k + 1), range(paths))[0].T
        y = motion.step(*times[k].to(dtype).unbind(0), y, noise, run.flags[k].to(dtype))
    return motion.finish(times[-1, 1], y)
