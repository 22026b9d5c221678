"""The questions of a completion: a relation for all heads that may have it, or the lines of a file.

A question is an entity and an edge type, inverse to ask for heads. Questions are numbered; those for heads are
generated on demand, so a billion of them take no memory.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from lzma import LZMAError
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from squire.core.files import line_blocks, open_bytes
from squire.core.ragged import offsets_from
from squire.errors import DataError, SettingError, UnknownName
from squire.graph.adjacency import Adjacency, AnyIds, Ids
from squire.ranking.context import Heads, heads_of

UNKNOWN = "?"  # marks what is asked for
COMPLAINTS = 5  # about a file, before reading stops
Ask = Callable[[str | None, str, str | None], tuple[int, int]]  # head, relation, tail, as labels -> a question


class Questions(Protocol):
    """Numbered questions."""

    def __len__(self) -> int: ...

    def between(self, first: int, end: int) -> Ids:
        """Some of the questions.  (question, 2): entity, edge type"""

    @property
    def about(self) -> dict[str, object]:
        """What identifies these questions, for JSON."""


# ------------------------------------------------------------------------------------------------- by heads


class HeadQuestions:
    """Relations, each asked of some entities: by relation, then by head."""

    def __init__(self, graph: Adjacency, relations: Sequence[int], heads: Heads) -> None:
        self._graph, self._relations, self._heads = graph, sorted(set(relations)), heads
        self._cached: tuple[int, AnyIds] = (-1, np.empty(0, np.int32))
        sizes = [len(self._heads_of(relation)) for relation in self._relations]
        self._offsets = offsets_from(sizes)  # (relation + 1)
        if not len(self):
            raise SettingError(f"heads={heads!r}: no entity has such a relation. Use heads='all'.")

    def __len__(self) -> int:
        return int(self._offsets[-1])

    def between(self, first: int, end: int) -> Ids:
        blocks = []
        low, high = np.searchsorted(self._offsets, first, "right") - 1, np.searchsorted(self._offsets, end, "left")
        for number in range(low, high):
            start, relation = int(self._offsets[number]), self._relations[number]
            heads = self._heads_of(relation)[max(first - start, 0) : end - start]
            blocks.append(np.stack([heads, np.full(len(heads), relation)], axis=1))
        return np.concatenate(blocks).astype(np.int32)

    @property
    def about(self) -> dict[str, object]:
        return {"heads": self._heads, "relations": self._relations}

    def _heads_of(self, relation: int) -> AnyIds:
        """Cached, since the next questions are about the same relation."""
        key = 0 if self._heads == "all" else relation
        if self._cached[0] != key:
            self._cached = key, heads_of(self._graph, relation, self._heads)
        return self._cached[1]


# ------------------------------------------------------------------------------------------------- from a file


class FileQuestions:
    """The lines of a TSV file: `head, relation` asks for tails, `?, relation, tail` for heads."""

    def __init__(self, file: Path, ask: Ask) -> None:
        self._ids = read_questions(file, ask)

    def __len__(self) -> int:
        return len(self._ids)

    def between(self, first: int, end: int) -> Ids:
        return self._ids[first:end]

    @property
    def about(self) -> dict[str, object]:
        return {"queries": hashlib.sha256(self._ids.tobytes()).hexdigest()}


def read_questions(file: Path, ask: Ask) -> Ids:
    """Read the questions of a file, compressed or not. DataError names the first few bad lines."""
    ids, complaints = array("i"), []
    for number, line in _lines(file):
        try:
            ids.extend(_question(line, ask))
        except (UnknownName, SettingError, UnicodeDecodeError) as error:
            words = "not UTF-8." if isinstance(error, UnicodeDecodeError) else str(error)
            complaints.append(f"{file}:{number}: {words}")
            if len(complaints) == COMPLAINTS:
                complaints.append("There may be more: the rest was not read.")
                break
    if complaints:
        raise DataError("\n".join(complaints))
    if not ids:
        raise DataError(f"{file}: no question. Write one per line: head and relation, separated by a tab.")
    return np.array(ids, np.int32).reshape(-1, 2)


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """The non-blank lines, with their numbers."""
    if not file.is_file():
        raise DataError(f"{file}: no such file.")
    number = 0
    try:
        with open_bytes(file) as stream:
            for block in line_blocks(stream):
                for line in block.removesuffix(b"\n").split(b"\n"):
                    number += 1
                    if number == 1:
                        line = line.removeprefix(b"\xef\xbb\xbf")
                    if line.strip():
                        yield number, line.removesuffix(b"\r")
    except (OSError, EOFError, LZMAError, pa.ArrowException) as error:
        raise DataError(f"{file}: cannot be read ({str(error).partition('. ')[0]}).") from None


def _question(line: bytes, ask: Ask) -> tuple[int, int]:
    fields = line.decode().split("\t")
    if len(fields) not in (2, 3):
        raise SettingError(
            f"{len(fields)} columns instead of 2 or 3. Write head, relation to ask for tails, or "
            f"{UNKNOWN}, relation, tail to ask for heads, separated by tabs."
        )
    head, relation, tail = (*fields, UNKNOWN)[:3]
    return ask(None if head == UNKNOWN else head, relation, None if tail == UNKNOWN else tail)
