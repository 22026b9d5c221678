"""Small graphs for tests: made from labels, written to files, read back as labels."""

import gzip
import lzma
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from squire.graph.graph import SPLITS, Graph
from squire.graph.labels import LabelIndex, Labels

LabelTriple = tuple[str, str, str]


def make_graph(splits: Mapping[str, Iterable[LabelTriple]], prefixes: Mapping[str, str] | None = None) -> Graph:
    """A graph from triples of labels by split."""
    listed = {split: list(triples) for split, triples in splits.items()}
    facts = [triple for triples in listed.values() for triple in triples]
    entities = LabelIndex((label for h, _, t in facts for label in (h, t)), "entity")
    relations = LabelIndex((r for _, r, _ in facts), "relation")
    labels = Labels(entities, relations, prefixes or {})
    ids = {
        split: np.array(
            [(labels.entity_id(h), labels.relation_id(r), labels.entity_id(t)) for h, r, t in triples], np.int32
        ).reshape(-1, 3)
        for split, triples in listed.items()
    }
    return Graph.build("made", labels, ids)


def facts_of(graph: Graph, *splits: str) -> set[LabelTriple]:
    """The label triples of these splits, of all by default."""
    labels = graph.labels
    return {
        (labels.entities[h], labels.relations[r], labels.entities[t])
        for split in splits or SPLITS
        for h, r, t in graph.triples(split).tolist()
    }


def compress(data: bytes, suffix: str) -> bytes:
    """As the suffix says: "", .gz, .xz or .zst."""
    if suffix == ".gz":
        return gzip.compress(data)
    if suffix == ".xz":
        return lzma.compress(data)
    if suffix == ".zst":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(data)
        return bytes(sink.getvalue().to_pybytes())
    return data


def write(path: Path, content: str | bytes) -> Path:
    """A file with this content, compressed if its name says so; folders are made."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(compress(data, path.suffix))
    return path


@contextmanager
def fresh_folder() -> Iterator[Path]:
    """A folder of its own for each example of a property (pytest's tmp_path is one for all of them)."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
