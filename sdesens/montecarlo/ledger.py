"""Which shards are finished: kept on disk, if wanted, and named in errors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from sdesens.errors import CheckpointError, ShardError
from sdesens.fused.kernel import Moments
from sdesens.montecarlo.checkpoint import Checkpoint
from sdesens.montecarlo.specification import Specification

_PAUSE = 0.1  # seconds before a file is tried again, doubled each time


@dataclass
class Ledger:
    """The shards of a job that are finished.

    Attributes:
        specification: the job.
        checkpoint: where finished shards are kept, if anywhere.
        retries: how often a shard, or its file, is tried again.
        kept: number of shards on disk.
    """

    specification: Specification
    checkpoint: Checkpoint | None
    retries: int
    kept: int = field(default=0, init=False)

    def read(self, piece: int, index: int) -> Moments | None:
        """A shard of an earlier run."""
        if self.checkpoint is None:
            return None
        found = self.checkpoint.read(piece, index, self.specification.jobs[piece].paths_of(index))
        self.kept += found is not None
        return found

    def keep(self, piece: int, index: int, moments: Moments) -> None:
        """Write a shard to disk, trying again if that fails."""
        if self.checkpoint is None:
            return
        for attempt in range(self.retries + 1):
            try:
                self.checkpoint.write(piece, index, moments)
                self.kept += 1
                return
            except OSError as error:
                if attempt == self.retries:
                    raise CheckpointError(
                        f"{self.name(piece, index)} was computed but cannot be written to "
                        f"{self.checkpoint.folder}: {error}. {self._rest()} Make room and run "
                        f"again: only what is missing is computed."
                    ) from error
                time.sleep(_PAUSE * 2**attempt)

    def name(self, piece: int, index: int) -> str:
        """A shard in words."""
        jobs = self.specification.jobs
        of = f" of simulation {piece} of {len(jobs)}" if len(jobs) > 1 else ""
        return f"shard {index} of {jobs[piece].shards}{of}"

    def failed(self, piece: int, index: int, attempts: int, error: BaseException) -> ShardError:
        """The error of a shard that failed for good."""
        return ShardError(
            f"{self.name(piece, index)} failed {attempts} times, the last time by "
            f"{type(error).__name__}: {error}. {self._rest()}",
            piece=piece,
            shard=index,
            attempts=attempts,
        )

    def broken(self, piece: int, lost: Sequence[int], error: BaseException) -> ShardError:
        """The error of an executor whose processes are gone."""
        first, *others = sorted(lost)
        beside = f" or beside it ({others})" if others else ""
        return ShardError(
            f"a process of the executor died by {self.name(piece, first)}{beside}, and it starts "
            f"no other: {error} {self._rest()} Give workers=, which starts new ones, or a new "
            f"executor.",
            piece=piece,
            shard=first,
            attempts=1,
        )

    def _rest(self) -> str:
        if self.checkpoint is None:
            return "The other shards are lost; checkpoint= keeps them."
        return f"{self.kept} finished shards are kept in {self.checkpoint.folder}."
