"""Graphs in and out: one call reads a file or a folder of any format, one writes.

Reads TSV, CSV, OpenKE folders, RDF, Parquet and our own `.graph`, compressed or not. This is the room of file
names; how a format is parsed is the business of `readers` and `rdf`, what is suspicious that of `check`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from lzma import LZMAError
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from squire.core.files import create_bytes, format_suffix
from squire.errors import DataError
from squire.graph.adjacency import Ids, sort_unique
from squire.graph.checking import Part, check_parts, find_duplicates
from squire.graph.formats import delimited as readers
from squire.graph.formats.delimited import DELIMITED, Block, ReadOptions
from squire.graph.formats.openke import OpenKELabels, is_openke, openke_file, read_openke, read_openke_labels
from squire.graph.formats.rdf import LINE_FORMATS, OTHER_FORMATS, read_rdf, term_of
from squire.graph.graph import FILE_SUFFIX, SPLITS, Graph
from squire.graph.labels import LabelIndex, Labels
from squire.graph.report import Fault, Report
from squire.graph.splitting import divide

log = logging.getLogger("squire")

ALIASES = {
    "train": ("train", "training"),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test", "testing"),
}
READABLE = {*(DELIMITED - {""}), ".csv", ".parquet", *LINE_FORMATS, *OTHER_FORMATS}
WRITABLE = (".tsv", ".nt", ".parquet")


@dataclass(frozen=True)
class Holdout:
    """How a single file without splits is divided."""

    valid: float = 0.1
    test: float = 0.1
    seed: int = 0


def load_graph(path: str | Path, options: ReadOptions | None = None, holdout: Holdout | None = None) -> Graph:
    """The graph in a file or folder. Raises DataError on what makes it wrong, logs what it set right."""
    graph, report = read_graph(Path(path), options or ReadOptions(), holdout or Holdout())
    report.raise_if_unusable()
    for line in report.lines(fatal=False):
        log.warning(line)
    assert graph is not None  # a usable report comes with a graph
    return graph


def check_graph(path: str | Path, options: ReadOptions | None = None) -> Report:
    """Everything that is wrong or suspicious in a file or folder."""
    _, report = read_graph(Path(path), options or ReadOptions(), Holdout(), thorough=True)
    return report


def read_graph(
    path: Path, options: ReadOptions, holdout: Holdout, thorough: bool = False
) -> tuple[Graph | None, Report]:
    """The graph, if the report says that it is usable. `thorough` also looks for what is only suspicious."""
    report = Report()
    if not path.exists():
        raise DataError(f"{path}: no such file or folder.")
    if path.suffix == FILE_SUFFIX and path.is_file():
        return _read_saved(path, report, thorough), report
    files = _find_splits(path, report)
    prefixes: dict[str, str] = {}
    blocks = _read_all(files, options, report, prefixes)
    if not report.usable:
        return None, report

    labels, parts = _number_parts(files, blocks, prefixes)
    del blocks
    pa.default_memory_pool().release_unused()  # else Arrow keeps 150 MB of five million triples to itself
    find_duplicates(parts, labels, report)
    if thorough:
        check_parts(parts, labels, report)
    splits = {split: part.triples for split, part in parts.items()}
    del parts
    if path.is_file():
        splits["train"] = sort_unique(splits["train"], len(labels.entities), len(labels.relations))
        splits = _divide(splits.pop("train"), holdout, path, report)
    return Graph.build(_dataset_name(path), labels, splits), report


def _divide(triples: Ids, holdout: Holdout, path: Path, report: Report) -> dict[str, Ids]:
    shares = holdout.valid, holdout.test
    splits = divide(triples, shares, np.random.default_rng(holdout.seed))
    asked = sum(round(share * len(triples)) for share in shares)
    held_out = len(splits["valid"]) + len(splits["test"])
    if held_out < asked:
        report.add(Fault.HOLDOUT, str(path), f"{held_out:,} of {asked:,}")
    return splits


def _read_saved(path: Path, report: Report, thorough: bool) -> Graph:
    """A `.graph` file; a triple's place is its number in its split."""
    graph = Graph.load(path)
    if thorough:
        parts = {}
        for split in SPLITS:
            triples = graph.triples(split)
            parts[split] = Part(path, triples, np.arange(1, len(triples) + 1), split)
            if not len(triples):
                report.add(Fault.EMPTY if split == "train" else Fault.EMPTY_SPLIT, f"{path}, {split}")
        check_parts(parts, graph.labels, report)
    return graph


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
    for split, files in found.items():
        if len(files) > 1:
            names = " and ".join(file.name for file in files)
            raise DataError(f"{path}: {names} are both the {split} split. To do: keep one of them.")
        if not files:
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
        return readers.read_csv(file, options, report)
    if suffix == ".parquet":
        return readers.read_parquet(file, options, report)
    if suffix in LINE_FORMATS or suffix in OTHER_FORMATS:
        return read_rdf(file, options, report, prefixes)
    if suffix in DELIMITED:
        return readers.read_delimited(file, options, report)
    known = " ".join(sorted(READABLE))
    report.add(Fault.BROKEN, str(file), f"unknown format {suffix!r}; known: {known} (and .gz .xz .zst)")
    return iter(())


@contextmanager
def _reporting_breaks(place: Path, report: Report) -> Iterator[None]:
    """A file that cannot be read or breaks off is reported, not raised."""
    try:
        yield
    except (OSError, EOFError, LZMAError, pa.ArrowException) as error:
        report.add(Fault.BROKEN, str(place), str(error).partition("\n")[0])


def _number_parts(
    files: dict[str, Path], blocks: dict[str, list[Block]], prefixes: dict[str, str]
) -> tuple[Labels, dict[str, Part]]:
    """The splits in ids."""
    labels, triples = _number(list(chain.from_iterable(blocks.values())), prefixes)
    parts, start = {}, 0
    for split, file in files.items():
        places = [block.places for block in blocks[split]] or [np.empty(0, np.int64)]
        size = sum(map(len, places))
        parts[split] = Part(file, triples[start : start + size], np.concatenate(places))
        start += size
    return labels, parts


def _number(blocks: list[Block], prefixes: dict[str, str]) -> tuple[Labels, Ids]:
    """Ids by sorted label, and the triples of all blocks in these ids.  (triple, 3)"""
    encoded = pa.concat_arrays([block.labels for block in blocks]).dictionary_encode()
    labels, code_of = encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False)
    triples = np.empty((sum(len(block.codes) for block in blocks), 3), np.int32)
    row = first = 0
    for block in blocks:
        triples[row : row + len(block.codes)] = code_of[first + block.codes]
        row, first = row + len(block.codes), first + len(block.labels)

    kinds: dict[str, LabelIndex] = {}
    for kind, columns in (("entity", [0, 2]), ("relation", [1])):
        occurs = np.zeros(len(labels), bool)
        for column in columns:
            occurs[triples[:, column]] = True
        used = np.flatnonzero(occurs)
        own = labels.take(pa.array(used))
        order = pc.sort_indices(own).to_numpy()
        id_of = np.full(len(labels), -1, np.int32)
        id_of[used[order]] = np.arange(len(used), dtype=np.int32)
        for column in columns:
            triples[:, column] = id_of[triples[:, column]]
        kinds[kind] = LabelIndex(own.take(pa.array(order)), kind)
    return Labels(kinds["entity"], kinds["relation"], prefixes), triples


# ---------------------------------------------------------------------------------------------------- writing


def write_graph(graph: Graph, target: Path, suffix: str = ".tsv") -> list[Path]:
    """Write to a `.graph` file, to one file of all triples, or to a folder of splits; gives what was written."""
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
    """Write the triples of these splits to one file, whose suffix tells format and compression."""
    suffix = format_suffix(file)
    triples = np.concatenate([graph.triples(split) for split in splits])
    if suffix == ".parquet":
        _write_parquet(graph.labels, triples, file)
    elif suffix == ".nt":
        _write_ntriples(graph, triples, file)
    elif suffix in DELIMITED:
        _write_tsv(graph.labels, triples, file)
    else:
        raise DataError(f"{file}: cannot write {suffix!r}. To do: choose one of {' '.join(WRITABLE)}.")


def _columns(labels: Labels, triples: Ids) -> list[pa.Array]:
    parts = (labels.entities.array, labels.relations.array, labels.entities.array)
    return [column.take(pa.array(triples[:, i])) for i, column in enumerate(parts)]


def _write_parquet(labels: Labels, triples: Ids, file: Path) -> None:
    table = pa.table(dict(zip(("head", "relation", "tail"), _columns(labels, triples), strict=True)))
    with create_bytes(file) as stream:
        pq.write_table(table, stream)


def _write_tsv(labels: Labels, triples: Ids, file: Path) -> None:
    for index in (labels.entities, labels.relations):
        bad = pc.index(pc.match_substring_regex(index.array, r"[\t\r\n]"), True).as_py()
        if bad >= 0:
            raise DataError(
                f"{file}: the {index.kind} {index[bad]!r} holds a tab or a line end, which TSV cannot. "
                f"To do: write .parquet or .nt."
            )
    tab = pa.scalar("\t", pa.large_string())
    lines = pc.binary_join_element_wise(*_columns(labels, triples), tab).to_pylist()
    # A first line that would be taken for a header, or for a byte order mark, gets a real header above it.
    if lines and (readers.header_order(lines[0].split("\t")) or lines[0].startswith("\ufeff")):
        lines.insert(0, "head\trelation\ttail")
    with create_bytes(file) as stream:
        stream.write("".join(f"{line}\n" for line in lines).encode())


class Terms:
    """The names of a graph as N-Triples writes them."""

    def __init__(self, graph: Graph) -> None:
        self._labels = graph.labels
        # RDF allows no literal as a head; a name must be the same term in every split.
        self._as_head = np.zeros(graph.num_entities, bool)
        for split in SPLITS:
            self._as_head[graph.triples(split)[:, 0]] = True

    def entity(self, number: int) -> str:
        return term_of(self._labels.entities[number], may_be_literal=not self._as_head[number])

    def head(self, number: int) -> str:
        """The same, also for an entity that is no head in the graph."""
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
