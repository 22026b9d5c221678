"""A file that work is noted down in as it is done: one JSON line says which work, then one an entry.

Each line is on the disk before the next begins, so whoever is interrupted or killed has lost nothing but the line
that was being written, and goes on after the last whole one. What the entries mean is the business of each study.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squire.errors import DataError, SettingError


@dataclass(frozen=True)
class Notes:
    """What a journal holds."""

    header: dict[str, Any]
    entries: list[Any]
    size: int  # bytes of whole lines; what follows was cut off while it was written


class Journal:
    """A journal to go on with; made, if it is not there."""

    def __init__(self, file: Path, header: Mapping[str, Any], said: Mapping[str, Any] | None = None) -> None:
        """`header` must be the same when the work goes on; what is `said` beside it stays as it was at first."""
        self.file, self.header = file, {**header, **(said or {})}
        self.entries: list[Any] = []
        notes = read_journal(file) if file.exists() else None
        if notes is None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"")
            self._size = 0
            self._write(self.header)
        else:
            _must_agree(file, notes.header, header)
            self.header, self.entries, self._size = notes.header, notes.entries, notes.size
            os.truncate(file, notes.size)

    def append(self, entry: Any) -> None:
        self._write(entry)
        self.entries.append(entry)

    def _write(self, content: Any) -> None:
        with self.file.open("ab") as stream:
            if stream.tell() != self._size:  # else the work of two would be mixed
                raise SettingError(f"{self.file}: another process writes to it. To do: let it end, then go on.")
            self._size += stream.write(json.dumps(content, ensure_ascii=False).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())


def read_journal(file: Path) -> Notes | None:
    """The whole lines of a file; None if not even the first is whole."""
    try:
        *lines, _ = file.read_bytes().split(b"\n")  # the rest was never finished
    except FileNotFoundError:
        raise SettingError(f"{file}: no such file. To do: give a .jsonl file that a study has written.") from None
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(json.loads(line))
            if number == 1 and not isinstance(found[0], dict):
                raise ValueError
        except ValueError:
            raise DataError(
                f"{file}:{number}: not a line that a study has written: {line[:60]!r}. To do: remove the line, or "
                f"choose another output."
            ) from None
    return Notes(found[0], found[1:], sum(len(line) + 1 for line in lines)) if found else None


def _must_agree(file: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """What was noted must be of the same work; else two studies would end in one table."""
    for key in here:
        if there.get(key) != here[key]:
            raise SettingError(
                f"{file}: holds another study ({key} is {there.get(key)!r} there and {here[key]!r} here). "
                f"To do: choose another --output, or remove the file."
            )
