"""OpenKE folders: labels in `entity2id.txt` and `relation2id.txt`, triples of ids in `train2id.txt` and the like.

Like the other readers, it carries on after a fault and reports all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from squire.core.files import COMPRESSIONS
from squire.graph.checking import Fault, Report
from squire.graph.formats.delimited import is_utf8, open_past_bom
from squire.graph.triples import Block

MAX_IDS = 2**31


@dataclass(frozen=True)
class OpenKELabels:
    """The labels of an OpenKE folder by id."""

    entities: list[str]
    relations: list[str]


def openke_file(folder: Path, kind: str) -> Path:
    """`train2id.txt` and the like, compressed or not; its plain name if there is none."""
    names = (f"{kind}2id.txt{compression}" for compression in ("", *COMPRESSIONS))
    return next((folder / name for name in names if (folder / name).is_file()), folder / f"{kind}2id.txt")


def is_openke(file: Path) -> bool:
    return file == openke_file(file.parent, file.name.partition("2id.")[0])


def read_openke_labels(folder: Path, report: Report) -> OpenKELabels | None:
    """From `entity2id.txt` and `relation2id.txt`: a count, then lines of `label id`. None after a fault."""
    before = report.errors
    labels = [_labels_by_id(openke_file(folder, kind), report) for kind in ("entity", "relation")]
    return OpenKELabels(*labels) if report.errors == before else None


def read_openke(path: Path, labels: OpenKELabels | None, report: Report) -> Iterator[Block]:
    """A count, then lines of `head tail relation` ids; without labels only to find its faults."""
    if labels is None:
        labels, sizes = OpenKELabels([], []), [MAX_IDS] * 3
    else:
        sizes = [len(labels.entities), len(labels.entities), len(labels.relations)]
    rows, positions = [], []
    for number, fields in _openke_lines(path, report):
        found = " ".join(fields)
        if len(fields) != 3:
            report.add(Fault.COLUMNS, f"{path}:{number}", f"found {len(fields)} columns in {found[:80]!r}")
        elif not all(_is_id(f, size) for f, size in zip(fields, sizes, strict=True)):
            detail = f"expected ids below {sizes[0]} {sizes[1]} {sizes[2]}, found {found[:80]}"
            report.add(Fault.SYNTAX, f"{path}:{number}", detail)
        else:
            head, tail, relation = map(int, fields)
            rows.append((head, len(labels.entities) + relation, tail))
            positions.append(number)
    names = pa.array(labels.entities + labels.relations, pa.large_string())
    yield Block(names, np.array(rows, np.int32).reshape(-1, 3), np.array(positions, np.int64))


def _is_id(field: str, size: int) -> bool:
    return field.isascii() and field.isdecimal() and int(field) < size


def _labels_by_id(path: Path, report: Report) -> list[str]:
    """The labels in the order of their ids, from lines of `label id`."""
    labels: dict[int, str] = {}
    id_of: dict[str, int] = {}
    before = report.errors
    for number, fields in _openke_lines(path, report):
        label, own = " ".join(fields[:-1]), fields[-1]
        where = f"{path}:{number}"
        if len(fields) < 2 or not _is_id(own, MAX_IDS) or int(own) in labels:
            report.add(Fault.SYNTAX, where, "expected a label and an id of its own")
        elif not label:
            report.add(Fault.EMPTY_FIELD, where, f"id {own} has no label")
        elif label in id_of:
            report.add(Fault.SYNTAX, where, f"ids {id_of[label]} and {own} have the same label {label!r}")
        else:
            labels[int(own)], id_of[label] = label, int(own)
    missing = next((i for i in range(len(labels)) if i not in labels), None)
    if missing is not None and report.errors == before:
        report.add(Fault.SYNTAX, str(path), f"ids must run from 0 without gaps, but {missing} is missing")
    return [labels[i] for i in sorted(labels)]


def _openke_lines(path: Path, report: Report) -> Iterator[tuple[int, list[str]]]:
    """Numbered lines, split at white space, after the first line, whose count is checked."""
    with open_past_bom(path, report) as stream:
        lines = stream.read().split(b"\n")
    if not lines[-1]:
        lines.pop()  # the last line ends with a newline
    windows = [number for number, line in enumerate(lines, 1) if line.endswith(b"\r")]
    if windows:
        report.add(Fault.CRLF, f"{path}:{windows[0]}", count=len(windows))
    count = 0
    for number, raw in enumerate(lines[1:], 2):
        if not raw.strip():
            report.add(Fault.BLANK, f"{path}:{number}")
            continue
        count += 1
        line = raw.decode(errors="replace").rstrip()
        if not is_utf8(raw):
            report.add(Fault.ENCODING, f"{path}:{number}", repr(line[:80]))
        else:
            yield number, line.split("\t") if "\t" in line else line.split()
    declared = lines[0].decode(errors="replace").strip() if lines else ""
    if declared != str(count):
        report.add(Fault.SYNTAX, f"{path}:1", f"says {declared!r} lines follow, found {count}")
