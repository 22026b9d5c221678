"""One reader a format: a file in, blocks of label-coded triples out, every complaint in the report.

A reader goes on after a fault, so that one look shows all of them. It knows one file at a time: splits,
ids and what the triples mean together are the business of `io` and `check`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from squire.core.files import format_suffix, line_blocks, open_bytes
from squire.errors import SettingError
from squire.graph.adjacency import Ids, Offsets
from squire.graph.report import Fault, Report

DELIMITED = {".tsv", ".txt", ".tab", ""}
BOM = b"\xef\xbb\xbf"
ROWS_PER_BLOCK = 200_000

# What header lines call the three columns.
HEADER_WORDS = {
    "h": {
        "head",
        "h",
        "subject",
        "subj",
        "s",
        "source",
        "src",
        "from",
        "start",
        "head_id",
        "subject_id",
        "x_id",
    },
    "r": {"relation", "r", "rel", "predicate", "pred", "p", "property", "edge", "type", "relation_id"},
    "t": {"tail", "t", "object", "obj", "o", "target", "dst", "to", "end", "tail_id", "object_id", "y_id"},
}


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file where its name and first line do not tell."""

    order: str | None = None
    """The columns' order, a permutation of "hrt"; by default the header's, else head, relation, tail."""
    header: bool | None = None
    """Whether the first line is a header; by default detected from its words."""
    separator: str | None = None
    """What parts the fields; by default a comma in .csv, a tab elsewhere."""
    literals: bool = False
    """Keep RDF literals as entities instead of skipping them."""

    def __post_init__(self) -> None:
        if self.order is not None and sorted(self.order) != ["h", "r", "t"]:
            raise SettingError(f"--order {self.order}: expected the letters h, r and t in some order, e.g. htr.")
        if self.separator is not None and not re.fullmatch(r"[\x00-\x7f]", self.separator, re.DOTALL):
            raise SettingError(f"--separator {self.separator!r}: expected one ASCII character, e.g. ';'.")
        if self.separator in {"\r", "\n", '"'}:
            raise SettingError(
                f"--separator {self.separator!r}: line ends and quotes have a meaning of their own."
            )


@dataclass(frozen=True)
class Block:
    """Triples of a piece of a file."""

    labels: pa.Array  # large_string, entities and relations alike
    codes: Ids  # (triple, 3): head, relation, tail as positions in labels
    places: Offsets  # (triple): line, row or statement, from 1


def header_order(fields: Iterable[str]) -> str | None:
    """`subject, object, predicate` -> "htr"; None if these are not the words of a header."""
    order = ""
    for field in fields:
        order += next((role for role, words in HEADER_WORDS.items() if field.strip().casefold() in words), "?")
    return order if sorted(order) == ["h", "r", "t"] else None


def place_of(path: Path, number: int) -> str:
    """`file:line` where lines can be counted, else `file, row 7` or `file, statement 7`."""
    suffix = format_suffix(path)
    if suffix == ".parquet":
        return f"{path}, row {number}"
    return (
        f"{path}, statement {number}"
        if suffix in {".ttl", ".trig", ".rdf", ".xml", ".owl"}
        else f"{path}:{number}"
    )


def encode_rows(rows: list[tuple[str, str, str]], places: list[int], order: str = "hrt") -> Block:
    """A block from rows of three labels."""
    flat = pa.array([field for row in rows for field in row], pa.large_string()).dictionary_encode()
    return _block(flat, np.array(places, np.int64), order)


def _block(fields: pa.DictionaryArray, places: Offsets, order: str) -> Block:
    """From three fields a triple, one after the other.  fields: (3 * triple)"""
    codes = fields.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False).reshape(-1, 3)
    if order != "hrt":
        codes = codes[:, [order.index(role) for role in "hrt"]]
    return Block(fields.dictionary, codes, places)


@contextmanager
def open_past_bom(path: Path, report: Report) -> Iterator[IO[bytes]]:
    """The decompressed content of a file after its byte order mark, which is reported."""
    with open_bytes(path) as stream, io.BufferedReader(cast(io.RawIOBase, stream)) as buffered:
        if buffered.peek(len(BOM)).startswith(BOM):
            report.add(Fault.BOM, f"{path}:1")
            buffered.read(len(BOM))
        yield buffered


# ---------------------------------------------------------------------------------------------- TSV, unquoted


def read_delimited(path: Path, options: ReadOptions, report: Report) -> Iterator[Block]:
    """Three fields a line, no quoting; array operations over whole blocks of bytes."""
    separator = (options.separator or "\t").encode()
    order, line = options.order or "hrt", 1
    with open_past_bom(path, report) as stream:
        for block in line_blocks(stream):
            data, first = block, line
            if line == 1 and (header := _find_header(block, separator, options)):
                top, above, data, found = header
                report.add_each(Fault.BLANK, range(above), lambda i: (f"{path}:{1 + i}", ""))
                report.add(Fault.HEADER, f"{path}:{1 + above}", repr(top))
                order, first = options.order or found or "hrt", above + 2
            if windows := data.count(b"\r\n"):
                at = first + data.count(b"\n", 0, data.find(b"\r\n"))
                report.add(Fault.CRLF, f"{path}:{at}", count=windows)
                data = data.replace(b"\r\n", b"\n")
            data, lines = _good_lines(data, first, separator, path, report)
            if len(lines):
                yield _parse_lines(data, lines, separator, order)
            line += block.count(b"\n")


def _find_header(data: bytes, separator: bytes, options: ReadOptions) -> tuple[str, int, bytes, str | None] | None:
    """The header line, the blank lines above it, the data below it, and the order it tells; None without one."""
    start = len(data) - len(data.lstrip(b"\r\n"))
    line, _, below = data[start:].partition(b"\n")
    top = line.decode(errors="replace").rstrip("\r")
    found = header_order(top.split(separator.decode()))
    if not top or options.header is False or (options.header is None and not found):
        return None
    return top, data.count(b"\n", 0, start), below, found


def _parse_lines(data: bytes, lines: Offsets, separator: bytes, order: str) -> Block:
    """Exactly three non-empty fields a line: taking out the separators leaves Arrow's own string layout."""
    content = np.frombuffer(data, np.uint8)
    is_mark = (content == separator[0]) | (content == ord("\n"))
    ends = np.flatnonzero(is_mark)  # (3 * line)
    offsets = np.zeros(len(ends) + 1, np.int64)
    offsets[1:] = ends - np.arange(len(ends))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content[~is_mark])]
    fields = pa.Array.from_buffers(pa.large_string(), len(ends), buffers)
    return _block(fields.dictionary_encode(), lines, order)


def _good_lines(data: bytes, first: int, separator: bytes, path: Path, report: Report) -> tuple[bytes, Offsets]:
    """The lines that hold three non-empty UTF-8 fields, and their numbers; the others go to the report."""
    content = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(content == ord("\n"))  # (line)
    starts = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
    separators = np.flatnonzero(content == separator[0])
    fields = np.diff(np.searchsorted(separators, ends), prepend=0) + 1  # (line)
    marks = np.sort(np.concatenate([separators, ends]), kind="stable")
    empty_at = marks[np.diff(marks, prepend=-1) == 1]
    has_empty = np.zeros(len(ends), bool)
    has_empty[np.searchsorted(ends, empty_at)] = True

    blank = starts == ends
    wrong = ~blank & (fields != 3)
    has_empty &= ~blank & ~wrong
    not_utf8 = np.zeros(len(ends), bool)
    if not is_utf8(data):
        not_utf8[:] = [not is_utf8(data[start:end]) for start, end in zip(starts, ends, strict=True)]

    def line_of(index: int) -> tuple[str, str]:
        text = data[starts[index] : ends[index]].decode(errors="replace")
        return f"{path}:{first + index}", repr(text[:80])

    def columns_of(index: int) -> tuple[str, str]:
        place, text = line_of(index)
        return place, f"found {fields[index]} columns in {text}"

    report.add_each(Fault.BLANK, np.flatnonzero(blank).tolist(), lambda i: (f"{path}:{first + i}", ""))
    report.add_each(Fault.COLUMNS, np.flatnonzero(wrong).tolist(), columns_of)
    report.add_each(Fault.EMPTY_FIELD, np.flatnonzero(has_empty).tolist(), line_of)
    report.add_each(Fault.ENCODING, np.flatnonzero(not_utf8).tolist(), line_of)

    good = np.flatnonzero(~(blank | wrong | has_empty | not_utf8))
    if len(good) < len(ends):
        data = b"".join(data[starts[i] : ends[i] + 1] for i in good)
    return data, first + good


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# ------------------------------------------------------------------------------------------------ CSV, quoted


def read_csv(path: Path, options: ReadOptions, report: Report) -> Iterator[Block]:
    """Three fields a row with quoting as in RFC 4180; a row's place is the line on which it ends.

    CRLF is that standard's own line end, so no fault here.
    """
    order = options.order or "hrt"
    with open_past_bom(path, report) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="surrogateescape", newline="")
        reader = csv.reader(text, delimiter=options.separator or ",", strict=True)
        rows: list[tuple[str, str, str]] = []
        places: list[int] = []
        at_top = options.header is not False
        for row in _rows_of(reader, path, report):
            place = f"{path}:{reader.line_num}"
            if at_top and row:
                at_top = False
                found = header_order(row)
                if options.header or found:
                    report.add(Fault.HEADER, place, repr(",".join(row)))
                    order = options.order or found or "hrt"
                    continue
            fault, detail = _fault_of(row)
            if fault:
                report.add(fault, place, detail)
                continue
            rows.append((row[0], row[1], row[2]))
            places.append(reader.line_num)
            if len(rows) == ROWS_PER_BLOCK:
                yield encode_rows(rows, places, order)
                rows, places = [], []
        if rows:
            yield encode_rows(rows, places, order)


def _rows_of(reader: Iterator[list[str]], path: Path, report: Report) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:
        report.add(Fault.SYNTAX, f"{path}:{getattr(reader, 'line_num', 0)}", str(error))


def _fault_of(row: list[str]) -> tuple[Fault | None, str]:
    if not row:
        return Fault.BLANK, ""
    text = ",".join(row)
    if not text.isascii() and any("\udc80" <= char <= "\udcff" for char in text):
        return Fault.ENCODING, repr(text[:80])
    if len(row) != 3:
        return Fault.COLUMNS, f"found {len(row)} columns in {text[:80]!r}"
    return (None, "") if all(row) else (Fault.EMPTY_FIELD, repr(text[:80]))


# ---------------------------------------------------------------------------------------------------- Parquet


def read_parquet(path: Path, options: ReadOptions, report: Report) -> Iterator[Block]:
    """Three columns, named as headers are, or in the given order if there are just three."""
    with open_bytes(path) as stream:
        file = pq.ParquetFile(pa.BufferReader(stream.read()) if path.suffix != ".parquet" else stream)
        names = file.schema_arrow.names
        by_role = {role: [n for n in names if n.casefold() in words] for role, words in HEADER_WORDS.items()}
        if options.order is None and all(len(found) == 1 for found in by_role.values()):
            columns = [by_role[role][0] for role in "hrt"]
        elif len(names) == len(set(names)) == 3:
            columns = [names[(options.order or "hrt").index(role)] for role in "hrt"]
        else:
            detail = f"its columns are {', '.join(names)}; name three of them head, relation, tail"
            report.add(Fault.COLUMNS, str(path), detail)
            return
        row = 1
        for batch in file.iter_batches(columns=columns, batch_size=ROWS_PER_BLOCK):
            yield _parquet_block([batch.column(name) for name in columns], row, path, report)
            row += len(batch)


def _parquet_block(columns: list[pa.Array], row: int, path: Path, report: Report) -> Block:
    texts = [column.cast(pa.large_string()) for column in columns]
    empty = np.zeros(len(texts[0]), bool)
    for text in texts:
        empty |= pc.equal(text, "").fill_null(True).to_numpy(zero_copy_only=False)
    report.add_each(Fault.EMPTY_FIELD, np.flatnonzero(empty).tolist(), lambda i: (place_of(path, row + i), ""))
    keep = np.flatnonzero(~empty)
    fields = pa.concat_arrays([text.take(pa.array(keep)) for text in texts]).dictionary_encode()
    codes = fields.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False).reshape(3, -1).T
    return Block(fields.dictionary, codes, row + keep)
