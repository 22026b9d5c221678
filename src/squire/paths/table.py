"""Evidence paths as a Parquet table for people: one row per path, labels instead of ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from squire.core.files import replacing
from squire.core.ragged import offsets_from
from squire.core.relations import both_directions
from squire.errors import SettingError
from squire.graph.adjacency import Ids
from squire.graph.graph import Graph
from squire.graph.labels import Labels
from squire.paths.paths import NONE, RULE, SOURCES, Paths
from squire.paths.sampling import sample_paths
from squire.rules.rules import ClosedIndex, Rules

INVERSE = "⁻¹"  # after the label of a relation that is walked backwards
MAX_PER_FACT = 1000
ROWS = 1 << 17  # per row group, which is what is in memory at a time

SCHEMA = pa.schema(
    [
        ("head", pa.large_string()),
        ("relation", pa.large_string()),
        ("tail", pa.large_string()),
        ("path", pa.list_(pa.large_string())),  # relation, entity, …, relation, tail: τ of the paper's eq. 1
        ("source", pa.string()),
        ("confidence", pa.float64()),  # of the rule, else null
        ("weight", pa.int32()),  # how often the path was drawn
    ]
)


def sample_to_file(
    graph: Graph,
    file: Path,
    rules: Rules | None = None,
    *,
    hops: int = 3,
    per_fact: int = 6,
    confidence: float = 0.01,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, int]:
    """Sample evidence paths of every train fact and its inverse into a Parquet file.

    Rules below `confidence` are not followed. Returns the number of paths from each source.
    """
    if file.suffix != ".parquet":
        raise SettingError(f"output={str(file)!r}: expected a name that ends in .parquet.")
    if not 1 <= per_fact <= MAX_PER_FACT:
        raise SettingError(f"per_fact={per_fact}: expected 1 to {MAX_PER_FACT}.")
    if rules is not None:
        rules = rules.take(rules.is_closed & (rules.confidence >= confidence))
    queries = both_directions(graph.train.triples, graph.num_relations)
    index = ClosedIndex.from_rules(rules) if rules else None
    found = sample_paths(
        graph.train, queries, index, hops=hops, per_triple=per_fact, seed=seed, threads=threads, progress=progress
    )
    write_table(found, graph, rules, file)
    return {name: int(found.weight[found.source == i].sum()) for i, name in enumerate(SOURCES)}


def write_table(paths: Paths, graph: Graph, rules: Rules | None, file: Path) -> None:
    """Writes the paths; the file appears whole or not at all."""
    relations = edge_relation_labels(graph.labels)
    confidence = np.empty(0) if rules is None else rules.confidence
    with replacing(file) as temporary, pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as writer:
        for first in range(0, len(paths), ROWS):
            rows = slice(first, first + ROWS)
            columns = _columns(paths, rows, graph.labels.entities.array, relations, confidence)
            writer.write_table(pa.table(columns, schema=SCHEMA))


def edge_relation_labels(labels: Labels) -> pa.Array:
    """The label of every edge type, the inverses after all others.  (edge type)"""
    inverse = pa.array([label + INVERSE for label in labels.relations], pa.large_string())
    return pa.concat_arrays([labels.relations.array, inverse])


def _columns(
    paths: Paths, rows: slice, entities: pa.Array, relations: pa.Array, confidence: np.ndarray
) -> list[pa.Array]:
    head, relation, tail = paths.queries[paths.row[rows]].T
    by_rule = paths.source[rows] == RULE
    own = np.full(len(by_rule), np.nan)
    own[by_rule] = confidence[paths.rule[rows][by_rule]]
    return [
        entities.take(pa.array(head)),
        relations.take(pa.array(relation)),
        entities.take(pa.array(tail)),
        _path_labels(paths.relations[rows], paths.entities[rows], entities, relations),
        pa.array(SOURCES, pa.string()).take(pa.array(paths.source[rows])),
        pa.array(own, mask=~by_rule),
        pa.array(paths.weight[rows]),
    ]


def _path_labels(path_relations: Ids, path_entities: Ids, entities: pa.Array, relations: pa.Array) -> pa.Array:
    """The tokens of each path as a list of labels."""
    tokens = np.stack([path_relations + len(entities), path_entities], axis=2)  # (path, hop, 2)
    there = path_entities != NONE  # (path, hop)
    flat = pa.concat_arrays([entities, relations]).take(pa.array(tokens[there].ravel()))
    ends = offsets_from(2 * np.count_nonzero(there, axis=1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), flat)
