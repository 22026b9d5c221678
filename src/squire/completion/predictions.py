"""Predicted facts with their evidence, and the files that hold them: Parquet, TSV or N-Triples.

A file is made of parts, each written whole or not at all, and joined at the end; nothing needs more memory than
some parts. In TSV, tabs, line ends and backslashes become \\t, \\n, \\r and \\\\. N-Triples has no place for
a score, so a comment above each triple tells it. Knows nothing of how facts are predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from squire.core.files import create_bytes, format_suffix, replacing
from squire.errors import SettingError
from squire.graph.graph import Graph
from squire.graph.labels import Labels
from squire.graph.loading import Terms
from squire.reasoning.answers import Answer

SUFFIXES = (".parquet", ".tsv", ".nt")
ROWS = 1 << 16  # in a row group of a Parquet file: what is in memory at once
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
        ("rule", pa.string()),  # that the path follows, else null
        ("hops", pa.int32()),
        ("confidence", pa.float64()),  # that it is true, if ranked by all evidence
        ("basis", pa.string()),  # what the confidence rests on
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


class Format(Protocol):
    """How predictions become a file."""

    def write(self, predictions: Sequence[Prediction], part: Path) -> None:
        """A part, whole or not at all."""

    def join(self, parts: Iterable[Path], file: Path) -> int:
        """All parts as one file, whole or not at all; gives the number of predictions."""


def check_suffix(file: Path) -> None:
    """SettingError if no format goes by this name."""
    if format_suffix(file) not in SUFFIXES:
        raise SettingError(f"--output {file}: expected a name that ends in {', '.join(SUFFIXES)}.")


def format_for(file: Path, graph: Graph) -> Format:
    """The format that the file's name tells."""
    check_suffix(file)
    suffix = format_suffix(file)
    if suffix == ".parquet":
        return _Parquet(graph.labels)
    if suffix == ".nt":
        return _Lines(partial(_statement, Terms(graph)), lines_each=2)
    return _Lines(partial(_tsv_line, graph.labels), header="\t".join(SCHEMA.names) + "\n")


def _row(prediction: Prediction, labels: Labels) -> tuple[object, ...]:
    """In the order of SCHEMA. LabelIndex in full, so that other tables can be joined with them."""
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
    """Formats of lines, whose parts only need to be put one after the other."""

    text: Callable[[Prediction], str]
    header: str = ""
    lines_each: int = 1

    def write(self, predictions: Sequence[Prediction], part: Path) -> None:
        with replacing(part) as temporary:
            temporary.write_bytes("".join(map(self.text, predictions)).encode())

    def join(self, parts: Iterable[Path], file: Path) -> int:
        lines = 0
        with create_bytes(file) as target:
            target.write(self.header.encode())
            for part in parts:
                with part.open("rb") as source:
                    while chunk := source.read(CHUNK_BYTES):
                        target.write(chunk)
                        lines += chunk.count(b"\n")
        return lines // self.lines_each


def _tsv_line(labels: Labels, prediction: Prediction) -> str:
    return "\t".join(map(_cell, _row(prediction, labels))) + "\n"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value).translate(ESCAPES)


def _statement(terms: Terms, prediction: Prediction) -> str:
    answer, evidence = prediction.answer, prediction.answer.evidence
    sure = answer.score if answer.confidence is None else answer.confidence
    comment = f"{sure:.6g} {evidence.grade}: {evidence.text}".translate(ESCAPES)
    head, tail = terms.head(prediction.head), terms.entity(prediction.tail)
    return f"# {comment}\n{head} {terms.relation(prediction.relation)} {tail} .\n"
