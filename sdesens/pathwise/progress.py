"""A progress bar over solver steps, counted where every solver passes: the noise."""

from __future__ import annotations

import torchsde
from tqdm.auto import tqdm


class Progress:
    """A tqdm bar of ``total`` solver steps, or nothing at all; a context manager."""

    def __init__(self, enabled: bool, total: int, label: str) -> None:
        self._bar = tqdm(total=total, desc=label, unit="step") if enabled else None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, steps: int = 1) -> None:
        """Count ``steps``."""
        if self._bar is not None:
            self._bar.update(steps)

    def watch(self, bm: torchsde.BaseBrownian) -> torchsde.BaseBrownian:
        """``bm``, counting one step a query."""
        return bm if self._bar is None else _Counted(bm, self)


class _Counted(torchsde.BaseBrownian):
    def __init__(self, bm: torchsde.BaseBrownian, progress: Progress) -> None:
        self._bm, self._progress = bm, progress

    def __call__(self, ta, tb=None, return_U=False, return_A=False):
        self._progress.advance()
        return self._bm(ta, tb, return_U=return_U, return_A=return_A)

    def __repr__(self) -> str:
        return repr(self._bm)

    dtype = property(lambda self: self._bm.dtype)
    device = property(lambda self: self._bm.device)
    shape = property(lambda self: self._bm.shape)
    levy_area_approximation = property(lambda self: self._bm.levy_area_approximation)
