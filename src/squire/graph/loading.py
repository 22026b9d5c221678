"""Graphs in and out: `load_graph` reads a file, a folder or a named dataset, `write_graph` writes.

Reads TSV, CSV, OpenKE folders, RDF, Parquet and `.graph` files, compressed or not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from lzma import LZMAError
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from squire.core.files import create_bytes, format_suffix
from squire.errors import DataError
from squire.graph.adjacency import Ids, sort_unique
from squire.graph.benchmarks import datasets
from squire.graph.checking import (
    Fault,
    Part,
    Report,
    check_parts,
    find_control_characters,
    find_duplicates,
    has_many_relations,
    position_in,
)
from squire.graph.formats import delimited
from squire.graph.formats.delimited import DELIMITED, ReadOptions
from squire.graph.formats.openke import OpenKELabels, is_openke, openke_file, read_openke, read_openke_labels
from squire.graph.formats.rdf import LINE_FORMATS, OTHER_FORMATS, read_rdf, term_of
from squire.graph.graph import FILE_SUFFIX, NEGATIVES, SPLITS, Graph
from squire.graph.labels import Labels
from squire.graph.triples import (
    HOLDOUT,
    ROLES,
    Block,
    block_from_object,
    divide,
    header_order,
    named_columns,
    number,
)

log = logging.getLogger("squire")

ALIASES = {
    "train": ("train", "training"),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test", "testing"),
}
OPTIONAL = tuple(NEGATIVES.values())
READABLE = {*(DELIMITED - {""}), ".csv", ".parquet", *LINE_FORMATS, *OTHER_FORMATS}
WRITABLE = (".tsv", ".nt", ".parquet")


def load_graph(
    source: str | Path,
    *,
    holdout: tuple[float, float] = HOLDOUT,
    seed: int = 0,
    order: str | None = None,
    header: bool | None = None,
    separator: str | None = None,
    literals: bool = False,
) -> Graph:
    """The graph in a file, a folder of train, valid and test, or a dataset given by its name.

    Faults that make the graph unusable raise a DataError; the others are logged as warnings.

    source: a path, or a name such as "world" or "FB15K237"
    holdout: the shares of valid and test when a single file is divided
    seed: of the division
    order: the order of the columns, e.g. "htr" for head, tail, relation; by default from the header
    header: whether the first line is a header; by default detected
    separator: between the columns; by default a comma in .csv, a tab elsewhere
    literals: keep RDF literals as entities

    >>> load_graph("world").name
    'world'
    """
    options = ReadOptions(order, header, separator, literals)
    graph, report = _read_graph(datasets.resolve(source), options, holdout, seed)
    report.raise_if_unusable()
    for line in report.lines(fatal=False):
        log.warning(line)
    assert graph is not None  # a usable report comes with a graph
    return graph


def is_divided(source: str | Path) -> bool:
    """Whether `load_graph` divides this source: a single file of triples."""
    path = datasets.resolve(source)
    return path.is_file() and path.suffix != FILE_SUFFIX


def check_graph(
    source: str | Path,
    *,
    order: str | None = None,
    header: bool | None = None,
    separator: str | None = None,
    literals: bool = False,
) -> Report:
    """Everything that is wrong or suspicious in a source; parameters as in `load_graph`.

    >>> check_graph("world").usable
    True
    """
    options = ReadOptions(order, header, separator, literals)
    return _read_graph(datasets.resolve(source), options, HOLDOUT, 0, thorough=True)[1]


@dataclass(frozen=True)
class FactRows:
    """Facts as labels, and where each of them is."""

    facts: list[tuple[str, str, str]]
    positions: list[int]
    file: Path | None  # None for Python objects

    def where(self, number: int) -> str:
        """`facts.tsv:7`, or `facts, row 6`: rows of objects are counted from 0."""
        position = self.positions[number]
        return position_in(self.file, position) if self.file else f"facts, row {position - 1}"


def read_facts(source: Any) -> FactRows:
    """The facts in a file of any format that `load_graph` reads, or in rows, a frame or a table.

    DataError says what is wrong with the file, and in which line.
    """
    file = Path(source) if isinstance(source, str | Path) else None
    if file is None:
        blocks = [block_from_object(source, "facts")]
    else:
        if not file.is_file():
            raise DataError(f"{file}: {'a folder. Give a file of facts' if file.is_dir() else 'no such file'}.")
        report = Report()
        blocks = _read_all({"train": file}, ReadOptions(), report, {}).get("train", [])
        report.raise_if_unusable()
        for line in report.lines(fatal=False):
            log.warning(line)
    facts: list[tuple[str, str, str]] = []
    for block in blocks:
        columns = (block.labels.take(pa.array(block.codes[:, i])).to_pylist() for i in range(3))
        facts += zip(*columns, strict=True)
    return FactRows(facts, [int(i) for block in blocks for i in block.positions], file)


def _read_graph(
    path: Path, options: ReadOptions, holdout: tuple[float, float], seed: int, thorough: bool = False
) -> tuple[Graph | None, Report]:
    """The graph, if the report finds it usable. `thorough` also looks for what is only suspicious."""
    report = Report()
    if path.suffix == FILE_SUFFIX and path.is_file():
        return _read_saved(path, report, thorough), report
    files = _find_splits(path, report)
    prefixes: dict[str, str] = {}
    blocks = _read_all(files, options, report, prefixes)
    if not report.usable:
        return None, report

    labels, parts = _number_parts(files, blocks, prefixes)
    del blocks
    pa.default_memory_pool().release_unused()  # else Arrow keeps 150 MB for five million triples
    splits_only = {split: part for split, part in parts.items() if split not in OPTIONAL}
    find_duplicates(splits_only, labels, report)
    find_control_characters(parts, labels, report)
    if has_many_relations(labels):
        assumed = (file for file in files.values() if not _has_known_order(file, options, report))
        if file := next(assumed, None):
            counts = f"{len(labels.relations):,} relations, {len(labels.entities):,} entities"
            report.add(Fault.ORDER, str(file), counts)
    if thorough:
        check_parts(splits_only, labels, report)
    splits = {split: part.triples for split, part in parts.items()}
    del parts, splits_only
    if path.is_file():
        triples = sort_unique(splits.pop("train"), len(labels.entities), len(labels.relations))
        splits = divide(triples, holdout, np.random.default_rng(seed))
        wanted = sum(round(share * len(triples)) for share in holdout)
        held_out = len(splits["valid"]) + len(splits["test"])
        if held_out < wanted:
            report.add(Fault.HOLDOUT, str(path), f"{held_out:,} of {wanted:,}")
    return Graph.build(_dataset_name(path), labels, splits, is_divided=path.is_file()), report


def _read_saved(path: Path, report: Report, thorough: bool) -> Graph:
    """A `.graph` file; the position of a triple is its number in its split."""
    graph = Graph.load(path)
    if thorough:
        parts = {}
        for split in SPLITS:
            triples = graph.triples(split)
            parts[split] = Part(path, triples, np.arange(1, len(triples) + 1), split)
            if not len(triples):
                report.add(Fault.EMPTY if split == "train" else Fault.EMPTY_SPLIT, f"{path}, {split}")
        find_control_characters(parts, graph.labels, report)
        check_parts(parts, graph.labels, report)
    return graph


def _has_known_order(file: Path, options: ReadOptions, report: Report) -> bool:
    """Whether the order of a file's columns is known, not just assumed."""
    suffix = format_suffix(file)
    if options.order is not None or is_openke(file) or suffix not in {*DELIMITED, ".csv", ".parquet"}:
        return True
    if suffix == ".parquet":
        return named_columns(delimited.parquet_columns(file)) is not None
    headers = report.findings.get(Fault.HEADER)
    return headers is not None and any(where.startswith(f"{file}:") for where in headers.examples)


def _dataset_name(path: Path) -> str:
    resolved = path.resolve()
    return resolved.name if path.is_dir() else resolved.name.partition(".")[0]


def _find_splits(path: Path, report: Report) -> dict[str, Path]:
    """The file of each split. A single file is all `train`, to be divided later."""
    if path.is_file():
        return {"train": path}
    if openke_file(path, "entity").exists():
        found = {split: [file] if (file := openke_file(path, split)).exists() else [] for split in SPLITS}
    else:
        files = [file for file in sorted(path.iterdir()) if file.is_file() and format_suffix(file) in READABLE]
        found = {
            split: [file for file in files if file.name.casefold().partition(".")[0] in ALIASES[split]]
            for split in SPLITS
        }
        found |= {
            name: [file for file in files if file.name.casefold().partition(".")[0] == name] for name in OPTIONAL
        }
    for split, files in found.items():
        if len(files) > 1:
            names = " and ".join(file.name for file in files)
            raise DataError(f"{path}: {names} are both the {split} split. Keep one of them.")
        if not files and split not in OPTIONAL:
            report.add(Fault.MISSING_TRAIN if split == "train" else Fault.MISSING_SPLIT, f"{path}", split)
    return {split: files[0] for split, files in found.items() if files}


def _read_all(
    files: dict[str, Path], options: ReadOptions, report: Report, prefixes: dict[str, str]
) -> dict[str, list[Block]]:
    """The blocks of every split."""
    labels: OpenKELabels | None = None
    folder = next((file.parent for file in files.values() if is_openke(file)), None)
    if folder:
        with _reporting_breaks(folder, report):
            labels = read_openke_labels(folder, report)
    blocks: dict[str, list[Block]] = {}
    for split, file in files.items():
        before = report.errors
        with _reporting_breaks(file, report):
            reader = read_openke(file, labels, report) if folder else _reader(file, options, report, prefixes)
            blocks[split] = list(reader)
        if report.errors == before and not any(len(block.codes) for block in blocks[split]):
            report.add(Fault.EMPTY if split == "train" else Fault.EMPTY_SPLIT, str(file))
    return blocks


def _reader(file: Path, options: ReadOptions, report: Report, prefixes: dict[str, str]) -> Iterator[Block]:
    """The reader of a file, by its format."""
    suffix = format_suffix(file)
    if suffix == ".csv":
        return delimited.read_csv(file, options, report)
    if suffix == ".parquet":
        return delimited.read_parquet(file, options, report)
    if suffix in LINE_FORMATS or suffix in OTHER_FORMATS:
        return read_rdf(file, options, report, prefixes)
    if suffix in DELIMITED:
        return delimited.read_delimited(file, options, report)
    known = " ".join(sorted(READABLE))
    report.add(Fault.BROKEN, str(file), f"unknown format {suffix!r}; known: {known} (and .gz .xz .zst)")
    return iter(())


@contextmanager
def _reporting_breaks(path: Path, report: Report) -> Iterator[None]:
    """Report a file that cannot be read or ends early, instead of raising."""
    try:
        yield
    except (OSError, EOFError, LZMAError, pa.ArrowException) as error:
        report.add(Fault.BROKEN, str(path), str(error).partition("\n")[0])


def _number_parts(
    files: dict[str, Path], blocks: dict[str, list[Block]], prefixes: dict[str, str]
) -> tuple[Labels, dict[str, Part]]:
    """The splits as ids."""
    labels, triples = number(chain.from_iterable(blocks.values()), prefixes)
    parts, start = {}, 0
    for split, file in files.items():
        positions = [block.positions for block in blocks[split]] or [np.empty(0, np.int64)]
        size = sum(map(len, positions))
        parts[split] = Part(file, triples[start : start + size], np.concatenate(positions))
        start += size
    return labels, parts


# ---------------------------------------------------------------------------------------------------- writing


def write_graph(graph: Graph, target: str | Path, suffix: str = ".tsv") -> list[Path]:
    """Write a `.graph` file, one file of all triples, or a folder of splits; returns the files.

    The suffix of `target` gives the format; a target without one is a folder of files with this `suffix`.
    """
    target = Path(target)
    if target.suffix == FILE_SUFFIX:
        graph.save(target)
        return [target]
    if target.suffix and not target.is_dir():
        write_triples(graph, SPLITS, target)
        return [target]
    files = [target / f"{split}{suffix}" for split in SPLITS]
    for split, file in zip(SPLITS, files, strict=True):
        write_triples(graph, [split], file)
    return files


def write_triples(graph: Graph, splits: Iterable[str], file: Path) -> None:
    """Write the triples of these splits to one file; its suffix gives format and compression."""
    suffix = format_suffix(file)
    triples = np.concatenate([graph.triples(split) for split in splits])
    if suffix == ".parquet":
        _write_parquet(graph.labels, triples, file)
    elif suffix == ".nt":
        _write_ntriples(graph, triples, file)
    elif suffix in DELIMITED:
        _write_tsv(graph.labels, triples, file)
    else:
        raise DataError(f"{file}: cannot write {suffix!r}. Choose one of {' '.join(WRITABLE)}.")


def _write_parquet(labels: Labels, triples: Ids, file: Path) -> None:
    table = pa.table(labels.columns(triples), list(ROLES))
    with create_bytes(file) as stream:
        pq.write_table(table, stream)


def _write_tsv(labels: Labels, triples: Ids, file: Path) -> None:
    for index in (labels.entities, labels.relations):
        bad = pc.index(pc.match_substring_regex(index.array, r"[\t\r\n]"), True).as_py()
        if bad >= 0:
            raise DataError(
                f"{file}: the {index.kind} {index[bad]!r} contains a tab or a line end, which TSV cannot hold. "
                "Write .parquet or .nt instead."
            )
    tab = pa.scalar("\t", pa.large_string())
    lines = pc.binary_join_element_wise(*labels.columns(triples), tab).to_pylist()
    # A first line that looks like a header or a byte order mark gets a real header above it.
    if lines and (header_order(lines[0].split("\t")) or lines[0].startswith("\ufeff")):
        lines.insert(0, "head\trelation\ttail")
    with create_bytes(file) as stream:
        stream.write("".join(f"{line}\n" for line in lines).encode())


class Terms:
    """The labels of a graph as N-Triples terms."""

    def __init__(self, graph: Graph) -> None:
        self._labels = graph.labels
        # RDF allows no literal as a head, and a label must be the same term in every split.
        self._as_head = np.zeros(graph.num_entities, bool)
        for split in SPLITS:
            self._as_head[graph.triples(split)[:, 0]] = True

    def entity(self, number: int) -> str:
        return term_of(self._labels.entities[number], may_be_literal=not self._as_head[number])

    def head(self, number: int) -> str:
        """The same, for an entity that may not be a head in the graph."""
        return term_of(self._labels.entities[number])

    def relation(self, number: int) -> str:
        return term_of(self._labels.relations[number], may_be_blank=False)


def _write_ntriples(graph: Graph, triples: Ids, file: Path) -> None:
    terms = Terms(graph)
    entities = [terms.entity(number) for number in range(graph.num_entities)]
    relations = [terms.relation(number) for number in range(graph.num_relations)]
    with create_bytes(file) as stream:
        for head, relation, tail in triples.tolist():
            stream.write(f"{entities[head]} {relations[relation]} {entities[tail]} .\n".encode())
