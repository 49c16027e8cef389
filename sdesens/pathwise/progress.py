"""A progress bar over solver steps, counted where every solver passes: the noise."""

from __future__ import annotations

from tqdm.auto import tqdm

from sdesens.brownian import BaseBrownian, WrappedBrownian


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

    def watch(self, bm: BaseBrownian) -> BaseBrownian:
        """``bm``, counting one step a query."""
        return bm if self._bar is None else _Counted(bm, self)


class _Counted(WrappedBrownian):
    def __init__(self, bm: BaseBrownian, progress: Progress) -> None:
        super().__init__(bm)
        self._progress = progress

    def __call__(self, ta, tb=None, return_U=False, return_A=False):
        self._progress.advance()
        return self._bm(ta, tb, return_U=return_U, return_A=return_A)
