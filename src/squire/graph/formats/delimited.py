"""Readers of TSV, CSV and Parquet: a file in, blocks of label-coded triples out, every fault in the report.

A reader carries on after a fault, so that one run shows all of them. It sees one file at a time; `loading` puts
the files of a dataset together.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from squire.core.files import line_blocks, open_bytes
from squire.errors import SettingError
from squire.graph.adjacency import Offsets
from squire.graph.checking import Fault, Report, position_in
from squire.graph.triples import Block, header_order, named_columns

DELIMITED = {".tsv", ".txt", ".tab", ""}
BOM = b"\xef\xbb\xbf"
ROWS_PER_BLOCK = 200_000


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file, as far as its name and first line do not tell."""

    order: str | None = None
    """The columns' order, a permutation of "hrt"; by default the header's, else head, relation, tail."""
    header: bool | None = None
    """Whether the first line is a header; by default detected from its words."""
    separator: str | None = None
    """What separates the fields; by default a comma in .csv, a tab elsewhere."""
    literals: bool = False
    """Keep RDF literals as entities instead of skipping them."""

    def __post_init__(self) -> None:
        if self.order is not None and sorted(self.order) != ["h", "r", "t"]:
            raise SettingError(f"order={self.order!r}: expected the letters h, r and t in some order, e.g. 'htr'.")
        if self.separator is not None and not re.fullmatch(r"[\x00-\x7f]", self.separator, re.DOTALL):
            raise SettingError(f"separator={self.separator!r}: expected one ASCII character, e.g. ';'.")
        if self.separator in {"\r", "\n", '"'}:
            raise SettingError(f"separator={self.separator!r}: line ends and quotes have other meanings.")


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
    """The header line, the blank lines above it, the data below it and the order it gives; None without one."""
    start = len(data) - len(data.lstrip(b"\r\n"))
    line, _, below = data[start:].partition(b"\n")
    top = line.decode(errors="replace").rstrip("\r")
    found = header_order(top.split(separator.decode()))
    if not top or options.header is False or (options.header is None and not found):
        return None
    return top, data.count(b"\n", 0, start), below, found


def _parse_lines(data: bytes, lines: Offsets, separator: bytes, order: str) -> Block:
    """Exactly three non-empty fields a line: without the separators, the bytes are Arrow's string layout."""
    content = np.frombuffer(data, np.uint8)
    is_mark = (content == separator[0]) | (content == ord("\n"))
    ends = np.flatnonzero(is_mark)  # (3 * line)
    offsets = np.zeros(len(ends) + 1, np.int64)
    offsets[1:] = ends - np.arange(len(ends))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content[~is_mark])]
    fields = pa.Array.from_buffers(pa.large_string(), len(ends), buffers)
    return Block.from_fields(fields.dictionary_encode(), lines, order)


def _good_lines(data: bytes, first: int, separator: bytes, path: Path, report: Report) -> tuple[bytes, Offsets]:
    """The lines with three non-empty UTF-8 fields, and their numbers; the others go to the report."""
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
        where, text = line_of(index)
        return where, f"found {fields[index]} columns in {text}"

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
    """Three fields a row with quoting as in RFC 4180; a row's position is the line on which it ends.

    CRLF is the line end of that standard, so it is not a fault here.
    """
    order = options.order or "hrt"
    with open_past_bom(path, report) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="surrogateescape", newline="")
        reader = csv.reader(text, delimiter=options.separator or ",", strict=True)
        rows: list[tuple[str, str, str]] = []
        positions: list[int] = []
        at_top = options.header is not False
        for row in _rows_of(reader, path, report):
            where = f"{path}:{reader.line_num}"
            if at_top and row:
                at_top = False
                found = header_order(row)
                if options.header or found:
                    report.add(Fault.HEADER, where, repr(",".join(row)))
                    order = options.order or found or "hrt"
                    continue
            fault, detail = _fault_of(row)
            if fault:
                report.add(fault, where, detail)
                continue
            rows.append((row[0], row[1], row[2]))
            positions.append(reader.line_num)
            if len(rows) == ROWS_PER_BLOCK:
                yield Block.from_rows(rows, positions, order)
                rows, positions = [], []
        if rows:
            yield Block.from_rows(rows, positions, order)


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
    """Three columns that are named like headers, or in the given order if there are only three."""
    with _open_parquet(path) as file:
        names = file.schema_arrow.names
        columns = named_columns(names) if options.order is None else None
        if columns is None and len(names) == len(set(names)) == 3:
            columns = [names[(options.order or "hrt").index(role)] for role in "hrt"]
        if columns is None:
            detail = f"its columns are {', '.join(names)}; name three of them head, relation, tail"
            report.add(Fault.COLUMNS, str(path), detail)
            return
        row = 1
        for batch in file.iter_batches(columns=columns, batch_size=ROWS_PER_BLOCK):
            yield _parquet_block([batch.column(name) for name in columns], row, path, report)
            row += len(batch)


def parquet_columns(path: Path) -> list[str]:
    """The names of the columns."""
    with _open_parquet(path) as file:
        return list(file.schema_arrow.names)


@contextmanager
def _open_parquet(path: Path) -> Iterator[pq.ParquetFile]:
    with open_bytes(path) as stream:
        yield pq.ParquetFile(pa.BufferReader(stream.read()) if path.suffix != ".parquet" else stream)


def _parquet_block(columns: list[pa.Array], row: int, path: Path, report: Report) -> Block:
    texts = [column.cast(pa.large_string()) for column in columns]
    empty = np.zeros(len(texts[0]), bool)
    for text in texts:
        empty |= pc.equal(text, "").fill_null(True).to_numpy(zero_copy_only=False)
    report.add_each(Fault.EMPTY_FIELD, np.flatnonzero(empty).tolist(), lambda i: (position_in(path, row + i), ""))
    keep = np.flatnonzero(~empty)
    return Block.from_columns([text.take(pa.array(keep)) for text in texts], row + keep)
