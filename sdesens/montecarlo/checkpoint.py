"""The finished shards of a job on disk: one file each, whole or not there."""

from __future__ import annotations

import json
import os
import time
import uuid
import warnings
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from sdesens.errors import CheckpointError, CheckpointWarning
from sdesens.fused.kernel import Moments
from sdesens.montecarlo.specification import Specification

FORMAT = 1
_STALE = 3600  # seconds after which a file set aside belongs to nobody
_SPECIFICATION = "specification.json"


class Checkpoint:
    """The folder of one job: ``specification.json`` and a file a shard, all of them JSON.

    Every file names the job it belongs to and carries a hash of what it says. Nothing is executed
    or unpickled when one is read. Several runs of the job may share the folder.
    """

    def __init__(self, folder: Path, digest: str) -> None:
        self.folder, self._digest = folder, digest

    @classmethod
    def open(cls, directory: str | os.PathLike[str], specification: Specification) -> Checkpoint:
        """The folder of a job inside ``directory``, made if need be.

        Raises:
            CheckpointError: if it cannot be made or written, holds another job, or comes from a
                newer version.
        """
        folder = Path(directory) / specification.digest[:20]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            checkpoint = cls(folder, specification.digest)
            checkpoint._claim(specification.contents)
            checkpoint._sweep()
        except OSError as error:
            raise CheckpointError(f"the checkpoint folder {folder} cannot be used: {error}.") from (
                error
            )
        return checkpoint

    def _claim(self, contents: dict[str, Any]) -> None:
        """Write what the job is, or see that it is the one that is there."""
        path = self.folder / _SPECIFICATION
        there = _parsed(path.read_bytes()) if path.exists() else None
        if there is not None:
            self._refuse_newer(path, there)
            if there.get("specification") != json.loads(json.dumps(contents)):
                raise CheckpointError(
                    f"{path} describes another job than this one, though the folder has its name: "
                    f"it was changed. Remove the folder, or give another one."
                )
            return
        document = {"format": FORMAT, "specification": contents}
        self._put(path, json.dumps(document, indent=1))

    def _sweep(self) -> None:
        """Remove what a killed run had set aside."""
        for path in self.folder.glob(".*.tmp"):
            if time.time() - path.stat().st_mtime > _STALE:
                path.unlink(missing_ok=True)

    def path(self, piece: int, index: int) -> Path:
        """The file of a shard."""
        return self.folder / f"{piece:02d}-{index:08d}.json"

    def read(self, piece: int, index: int, paths: int) -> Moments | None:
        """A shard of so many paths, or None if it is not there, not whole, or of another job.

        Raises:
            CheckpointError: if it comes from a newer version.
        """
        path = self.path(piece, index)
        try:
            document = _parsed(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            return self._damaged(path, str(error))
        why = "it is cut off or not JSON"
        if document is not None:
            self._refuse_newer(path, document)
            why = self._damage(document, piece, index)
        if document is None or why:
            return self._damaged(path, why)
        if document["paths"] != paths:
            return None  # the last shard of a run of fewer paths, or of more
        mean = torch.tensor(document["mean"], dtype=torch.float64)
        products = torch.tensor(document["products"], dtype=torch.float64)
        return Moments(paths, mean, products.view(len(mean), len(mean)))

    def _damage(self, document: dict[str, Any], piece: int, index: int) -> str:
        """What is wrong with a file; empty if nothing is."""
        told = document.pop("sha256", None)
        if told != digest_of_file(document):
            return "its hash is not that of its content"
        if document.get("specification") != self._digest:
            return "it belongs to another job"
        if (document["simulation"], document["shard"]) != (piece, index):
            return "it belongs to another shard"
        return ""

    def write(self, piece: int, index: int, moments: Moments) -> None:
        """Keep a shard; when this returns it is on disk.

        Raises:
            OSError: if it cannot be written; what was there is left as it was.
        """
        document: dict[str, Any] = {
            "format": FORMAT,
            "specification": self._digest,
            "simulation": piece,
            "shard": index,
            "paths": moments.count,
            "mean": moments.mean.tolist(),
            "products": moments.products.tolist(),
        }
        self._put(
            self.path(piece, index), json.dumps({**document, "sha256": digest_of_file(document)})
        )

    def _put(self, path: Path, text: str) -> None:
        """Write aside, flush to the disk, rename: a file is whole or not there."""
        aside = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            with aside.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
        directory = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(directory)  # the name too
        finally:
            os.close(directory)

    def _damaged(self, path: Path, why: str) -> None:
        warnings.warn(
            f"{path} is not used: {why}. Its shard is computed again.",
            CheckpointWarning,
            stacklevel=2,
        )

    def _refuse_newer(self, path: Path, document: dict[str, Any]) -> None:
        if isinstance(document.get("format"), int) and document["format"] > FORMAT:
            raise CheckpointError(
                f"{path} has format {document['format']}, of a newer version of sdesens; this one "
                f"reads {FORMAT}. Use that version, or another folder."
            )


def _parsed(content: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(content)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def digest_of_file(document: dict[str, Any]) -> str:
    """The hash that a file carries of the rest of it."""
    return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
