"""Journals: files that record a study's work as it is done, so that an interrupted study can continue.

The first line is a JSON object that identifies the work; every further line is one entry. Each line is on disk
before the next is begun, so a killed process loses at most the line it was writing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squire.errors import DataError, SettingError
from squire.graph.graph import SPLITS, Graph

if TYPE_CHECKING:
    from squire.graph.adjacency import Ids
    from squire.model.recipe import Recipe


@dataclass(frozen=True)
class JournalContent:
    """The complete lines of a journal."""

    header: dict[str, Any]
    entries: list[Any]
    size: int  # bytes of the complete lines; the rest of the file is a line that was cut off


class Journal:
    """A journal to append to; a new file is created, an existing one continued."""

    def __init__(self, file: Path, header: Mapping[str, Any], notes: Mapping[str, Any] | None = None) -> None:
        """An existing file must have the same `header`. `notes` are stored with it once and never compared."""
        self.file, self.header = file, {**header, **(notes or {})}
        self.entries: list[Any] = []
        content = read_journal(file) if file.exists() else None
        if content is None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"")
            self._size = 0
            self._write(self.header)
        else:
            for key, value in header.items():
                if content.header.get(key) != value:
                    raise SettingError(
                        f"{file}: holds another study ({key} is {content.header.get(key)!r} there and {value!r} "
                        "here). Choose another output, or remove the file."
                    )
            self.header, self.entries, self._size = content.header, content.entries, content.size
            os.truncate(file, content.size)

    def append(self, entry: Any) -> None:
        self._write(entry)
        self.entries.append(entry)

    def _write(self, content: Any) -> None:
        with self.file.open("ab") as stream:
            if stream.tell() != self._size:
                raise SettingError(
                    f"{self.file}: another process is writing to it. Wait for it to end, then retry."
                )
            self._size += stream.write(json.dumps(content, ensure_ascii=False).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())


def read_journal(file: Path) -> JournalContent | None:
    """Reads the complete lines of a journal; None if not even the first is complete."""
    try:
        *lines, _ = file.read_bytes().split(b"\n")  # after the last newline: nothing, or a line that was cut off
    except FileNotFoundError:
        raise SettingError(f"{file}: no such file. Expected a .jsonl file written by a study.") from None
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(json.loads(line))
            if number == 1 and not isinstance(found[0], dict):
                raise ValueError
        except ValueError:
            raise DataError(
                f"{file}:{number}: not a line of a study's journal: {line[:60]!r}. Remove the line, or choose "
                "another output."
            ) from None
    return JournalContent(found[0], found[1:], sum(len(line) + 1 for line in lines)) if found else None


def digest(*arrays: Ids) -> str:
    """A fingerprint of arrays, for the header of a journal."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(array.tobytes())
    return found.hexdigest()[:12]


def graph_digest(graph: Graph) -> str:
    """A fingerprint of all facts of a graph."""
    return digest(*(graph.triples(split) for split in SPLITS))


def flat_settings(recipe: Recipe) -> dict[str, Any]:
    """`{"train.seed": 0, …}`: one entry per setting, so that an error names the one that differs."""
    sections = {name: keys for name, keys in recipe.to_dict().items() if isinstance(keys, dict)}
    return {f"{name}.{key}": value for name, keys in sections.items() for key, value in keys.items()}
