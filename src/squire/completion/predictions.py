"""Predicted facts with their evidence, and the files that hold them: Parquet, TSV or N-Triples.

A file is joined from parts, each written atomically, so memory holds only a few parts at a time. In TSV, tabs,
line ends and backslashes become \\t, \\n, \\r and \\\\. N-Triples are those of RDF 1.2: each triple has a reifier
that carries confidence, evidence, rule and provenance as literals. It is an IRI made of the triple.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pyoxigraph as ox

from squire.core import __version__
from squire.core.files import create_bytes, format_suffix, replacing
from squire.core.frames import to_frame
from squire.errors import SettingError
from squire.graph.formats.rdf import REIFIER, VOCABULARY
from squire.graph.graph import Graph
from squire.graph.labels import Labels
from squire.graph.loading import Terms
from squire.reasoning.answers import Answer

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 10  # rows of a repr
SUFFIXES = (".parquet", ".tsv", ".nt")
REIFIES = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#reifies>"
PROVENANCE = "http://purl.org/dc/terms/provenance"
ROWS = 1 << 16  # per row group of a Parquet file, which bounds memory
CHUNK_BYTES = 1 << 20
SCHEMA = pa.schema(
    [
        ("head", pa.string()),
        ("relation", pa.string()),
        ("tail", pa.string()),
        ("rank", pa.int32()),  # among the new answers to the question, from 1
        ("score", pa.float64()),
        ("grade", pa.string()),
        ("path", pa.string()),
        ("rule", pa.string()),  # that the path follows, or null
        ("hops", pa.int32()),
        ("confidence", pa.float64()),  # probability that the fact is true, if ranked by the fusion
        ("basis", pa.string()),  # the sources behind the confidence
    ]
)
ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


@dataclass(frozen=True)
class Prediction:
    """A fact that is not in the graph, and why it might be true."""

    head: int
    relation: int  # of the graph, not an inverse
    tail: int
    answer: Answer


@dataclass(frozen=True)
class Predictions:
    """The predicted facts that `complete` wrote to a file."""

    file: Path
    count: int
    questions: int  # that were asked
    _table: pa.Table | None = None  # set if the file was temporary

    def __len__(self) -> int:
        return self.count

    @property
    def table(self) -> pa.Table:
        """The predictions as an Arrow table."""
        if self._table is not None:
            return self._table
        if format_suffix(self.file) != ".parquet":
            raise SettingError(f"{self.file}: only predictions in .parquet can be read back.")
        return pq.read_table(self.file)

    def to_parquet(self, file: str | Path) -> None:
        """Write the predictions to a Parquet file."""
        with create_bytes(Path(file)) as stream:
            pq.write_table(self.table, stream, compression="zstd")

    def to_frame(self) -> pd.DataFrame:
        """The predictions as a pandas data frame."""
        return to_frame(self.table)

    def in_memory(self) -> Predictions:
        """The same, independent of the file."""
        return replace(self, _table=self.table)

    def __repr__(self) -> str:
        lines = [f"{self.count:,} predictions from {self.questions:,} questions"]
        if self._table is not None:
            for row in self._table.slice(0, SHOWN).to_pylist():
                confidence = "" if row["confidence"] is None else f"  {row['confidence']:.0%}"
                lines.append(f"  {row['head']} · {row['relation']} · {row['tail']}{confidence}")
        return "\n".join(lines)


class Format(Protocol):
    """A file format of predictions."""

    def write(self, predictions: Sequence[Prediction], part: Path) -> None:
        """Write a part atomically."""

    def join(self, parts: Iterable[Path], file: Path) -> int:
        """Join all parts to one file atomically. Returns the number of predictions."""


def check_suffix(file: Path) -> None:
    """Raise SettingError if the suffix is not known."""
    if format_suffix(file) not in SUFFIXES:
        raise SettingError(f"output={str(file)!r}: expected a name that ends in {', '.join(SUFFIXES)}.")


def format_for(file: Path, graph: Graph) -> Format:
    """The format for a file's suffix."""
    check_suffix(file)
    suffix = format_suffix(file)
    if suffix == ".parquet":
        return _Parquet(graph.labels)
    if suffix == ".nt":
        return _Lines(partial(_statements, Terms(graph), graph.name), marker=REIFIES.encode())
    return _Lines(partial(_tsv_line, graph.labels), header="\t".join(SCHEMA.names) + "\n")


def _row(prediction: Prediction, labels: Labels) -> tuple[object, ...]:
    """In the order of SCHEMA. Labels are not shortened, so that other tables can be joined."""
    answer, evidence = prediction.answer, prediction.answer.evidence
    return (
        labels.entities[prediction.head],
        labels.relations[prediction.relation],
        labels.entities[prediction.tail],
        answer.rank,
        answer.score,
        evidence.grade,
        evidence.text,
        evidence.rule.text if evidence.rule else None,
        len(evidence.edges),
        answer.confidence,
        answer.basis or None,
    )


class _Parquet:
    def __init__(self, labels: Labels) -> None:
        self._labels = labels

    def write(self, predictions: Sequence[Prediction], part: Path) -> None:
        rows = [dict(zip(SCHEMA.names, _row(one, self._labels), strict=True)) for one in predictions]
        with replacing(part) as temporary:
            pq.write_table(pa.Table.from_pylist(rows, SCHEMA), temporary)

    def join(self, parts: Iterable[Path], file: Path) -> int:
        total = waiting = 0
        tables: list[pa.Table] = []
        with create_bytes(file) as stream, pq.ParquetWriter(stream, SCHEMA, compression="zstd") as writer:
            for part in parts:
                tables.append(pq.read_table(part, schema=SCHEMA))
                waiting += len(tables[-1])
                if waiting >= ROWS:
                    writer.write_table(pa.concat_tables(tables))
                    total, waiting, tables = total + waiting, 0, []
            if tables:
                writer.write_table(pa.concat_tables(tables))
        return total + waiting


@dataclass(frozen=True)
class _Lines:
    """Line formats, whose parts are concatenated."""

    text: Callable[[Prediction], str]
    header: str = ""
    marker: bytes = b""  # what each prediction has in exactly one line

    def write(self, predictions: Sequence[Prediction], part: Path) -> None:
        with replacing(part) as temporary:
            temporary.write_bytes("".join(map(self.text, predictions)).encode())

    def join(self, parts: Iterable[Path], file: Path) -> int:
        count = 0
        with create_bytes(file) as target:
            target.write(self.header.encode())
            for part in parts:
                with part.open("rb") as source:
                    while lines := source.readlines(CHUNK_BYTES):
                        target.writelines(lines)
                        count += sum(self.marker in line for line in lines)
        return count


def _tsv_line(labels: Labels, prediction: Prediction) -> str:
    return "\t".join(map(tsv_cell, _row(prediction, labels))) + "\n"


def tsv_cell(value: object) -> str:
    """A value as one cell of a TSV line."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value).translate(ESCAPES)


def _statements(terms: Terms, graph: str, prediction: Prediction) -> str:
    """The triple, its reifier, and what is said about it."""
    answer, evidence = prediction.answer, prediction.answer.evidence
    head, tail = terms.head(prediction.head), terms.entity(prediction.tail)
    triple = f"{head} {terms.relation(prediction.relation)} {tail}"
    reifier = f"<{REIFIER}{hashlib.sha256(triple.encode()).hexdigest()[:24]}>"
    about: dict[str, str | float | None] = {
        f"{VOCABULARY}confidence": answer.confidence,
        f"{VOCABULARY}score": answer.score,
        f"{VOCABULARY}rank": answer.rank,
        f"{VOCABULARY}grade": evidence.grade,
        f"{VOCABULARY}path": evidence.text,
        f"{VOCABULARY}rule": evidence.rule.text if evidence.rule else None,
        f"{VOCABULARY}basis": answer.basis or None,
        PROVENANCE: f"predicted from the graph {graph} by squire {__version__}",
    }
    lines = [f"{triple} .", f"{reifier} {REIFIES} <<( {triple} )>> ."]
    lines += [f"{reifier} <{key}> {ox.Literal(value)} ." for key, value in about.items() if value is not None]
    return "".join(f"{line}\n" for line in lines)
