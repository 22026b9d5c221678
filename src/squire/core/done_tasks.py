"""Results of tasks that outlive an interruption, so that the next call makes only what is missing.

A result is known by a digest of what it depends on, not by its number. Files are added, never rewritten, and are
removed when the work is complete.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import time
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from squire.core.parallel import agreed, is_leader
from squire.core.ragged import offsets_from
from squire.core.tensors import SUFFIX, TensorFormat, load_tensors, save_tensors
from squire.errors import CheckpointError

Arrays: TypeAlias = tuple[npt.NDArray[Any], ...]
FORMAT = TensorFormat("tasks", "file of results", 1, CheckpointError, "Delete it.", verify=True, mapped=True)
SAVE_SECONDS = 60.0  # what a kill may lose
logger = logging.getLogger(__name__)


def digest(stage: str, *inputs: object) -> bytes:
    """Names the result of a task by its stage and what it depends on: arrays and numbers."""
    found = hashlib.blake2b(stage.encode(), digest_size=16)
    for value in inputs:
        found.update(np.ascontiguousarray(value).tobytes())
    return found.digest()


class DoneTasks:
    """Results by digest. With a folder, they are saved there every so often, and found by the next call.

    key: names the work; files of other work are removed. Under torchrun, the leader alone reads and writes.
    """

    def __init__(self, folder: Path | None = None, key: str = "") -> None:
        self._folder, self._key = folder, key
        self._known: dict[bytes, Arrays] = {}
        self._new: dict[str, list[bytes]] = {}  # by stage: not saved yet
        self._saved = time.monotonic()
        if folder is not None:
            for file in self._files() if is_leader() else ():
                self._read(file)
            self._known = agreed(self._known)
            if self._known:
                logger.info("going on with what was done before: %s tasks", f"{len(self._known):,}")

    def __contains__(self, name: bytes) -> bool:
        return name in self._known

    def __getitem__(self, name: bytes) -> Arrays:
        return self._known[name]

    def add(self, stage: str, name: bytes, result: Arrays) -> None:
        """Keep a result. All results of a stage have the same columns."""
        self._known[name] = result
        self._new.setdefault(stage, []).append(name)
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Write what was added since the last time."""
        self._saved = time.monotonic()
        if self._folder is None or not is_leader():
            self._new = {}
        for stage, names in list(self._new.items()):
            columns = list(zip(*(self._known[name] for name in names), strict=True))
            arrays = {str(i): np.concatenate(column) for i, column in enumerate(columns)}
            arrays["rows"] = np.array([[len(part) for part in column] for column in columns], np.int64)
            arrays["names"] = np.frombuffer(b"".join(names), np.uint8).reshape(len(names), -1)
            assert self._folder is not None
            number = max((int(file.stem) for file in self._files()), default=0) + 1
            file = self._folder / f"{number:06}{SUFFIX}"
            try:
                self._read(save_tensors(file, FORMAT, arrays, {"key": self._key}))
            except CheckpointError as error:
                logger.warning("%s Going on without; an interruption would lose what was done.", error)
                self._folder, self._new = None, {}
                return
            del self._new[stage]  # only now: Ctrl-C may have come before

    def remove(self) -> None:
        """Forget everything: the work is complete."""
        self._known, self._new = {}, {}
        if self._folder is not None and is_leader():
            shutil.rmtree(self._folder, ignore_errors=True)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob(f"[0-9]*{SUFFIX}")) if self._folder else []

    def _read(self, file: Path) -> None:
        """Take the results from a file, mapped into memory. A damaged file, or one of other work, is removed."""
        try:
            found = load_tensors(file, FORMAT)
        except CheckpointError:
            file.unlink(missing_ok=True)
            return
        if found.state.get("key") != self._key:
            file.unlink(missing_ok=True)
            return
        offsets = [offsets_from(rows) for rows in found.arrays["rows"]]
        for task, name in enumerate(found.arrays["names"]):
            self._known[name.tobytes()] = tuple(
                np.asarray(found.arrays[str(i)][own[task] : own[task + 1]]) for i, own in enumerate(offsets)
            )
