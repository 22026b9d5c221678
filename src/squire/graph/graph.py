"""A knowledge graph: labels, the train edges, and the held-out triples. Immutable; saved as one file.

The file is a safetensors file: arrays and a little JSON, nothing that runs when it is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from squire.core.tensors import TensorFormat, load_tensors, save_tensors
from squire.errors import DataError
from squire.graph.adjacency import Adjacency, Ids, frozen, sort_unique
from squire.graph.labels import LabelIndex, Labels

SPLITS = ("train", "valid", "test")
FILE_SUFFIX = ".graph"
FORMAT = TensorFormat("graph", "graph file", 2, DataError, "Write it again with `squire data convert`.")


@dataclass(frozen=True, eq=False)
class Graph:
    """What is known (`train`) and what was held out; heads, relations and tails are ids into `labels`."""

    name: str  # of the dataset, for signatures; no part of equality
    labels: Labels
    train: Adjacency
    valid: Ids  # (triple, 3), sorted, distinct
    test: Ids  # (triple, 3), sorted, distinct

    @classmethod
    def build(cls, name: str, labels: Labels, splits: Mapping[str, Ids]) -> Graph:
        """From triples of ids by split; a split left out is empty."""
        size = len(labels.entities), len(labels.relations)
        none = np.empty((0, 3), np.int32)
        held_out = (sort_unique(splits.get(split, none), *size) for split in SPLITS[1:])
        return cls(name, labels, Adjacency.build(splits.get("train", none), *size), *held_out)

    @property
    def num_entities(self) -> int:
        return len(self.labels.entities)

    @property
    def num_relations(self) -> int:
        """Without inverses."""
        return len(self.labels.relations)

    def triples(self, split: str) -> Ids:
        """The triples of a split, sorted by head, relation, tail.  (triple, 3)"""
        return {"train": self.train.triples, "valid": self.valid, "test": self.test}[split]

    def known(self, *splits: str) -> Adjacency:
        """The edges of these splits together: the filter of a ranking."""
        if splits == ("train",):
            return self.train
        together = np.concatenate([self.triples(split) for split in splits])
        return Adjacency.build(together, self.num_entities, self.num_relations)

    def edges_of(self, other: Graph) -> Adjacency:
        """The train edges of another graph between our labels, in our ids."""
        entities, relations = (
            np.array([-1 if (own := ours.find(label)) is None else own for label in theirs], np.int32)
            for ours, theirs in (
                (self.labels.entities, other.labels.entities),
                (self.labels.relations, other.labels.relations),
            )
        )
        heads, edges, tails = other.train.triples.T
        triples = np.stack([entities[heads], relations[edges], entities[tails]], axis=1)
        return Adjacency.build(triples[(triples >= 0).all(axis=1)], self.num_entities, self.num_relations)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Graph)
            and self.labels.entities == other.labels.entities
            and self.labels.relations == other.labels.relations
            and self.train == other.train
            and np.array_equal(self.valid, other.valid)
            and np.array_equal(self.test, other.test)
        )

    __hash__ = None  # type: ignore[assignment]

    def save(self, path: Path) -> None:
        """Write everything to one file, whole or not at all."""
        arrays: dict[str, np.ndarray] = {
            "train.offsets": self.train.offsets,
            "train.relations": self.train.relations,
            "train.tails": self.train.tails,
            "valid": self.valid,
            "test": self.test,
        }
        for kind, labels in (("entities", self.labels.entities), ("relations", self.labels.relations)):
            arrays[f"{kind}.offsets"], arrays[f"{kind}.text"] = _label_arrays(labels.array)
        save_tensors(path, FORMAT, arrays, {"name": self.name, "prefixes": dict(self.labels.prefixes)})

    @classmethod
    def load(cls, path: Path) -> Graph:
        """Inverse of `save`."""
        found = load_tensors(path, FORMAT)
        arrays = {name: frozen(array) for name, array in found.arrays.items()}
        try:
            entities, relations = (
                LabelIndex(_label_array(arrays[f"{kind}.offsets"], arrays[f"{kind}.text"]), singular)
                for kind, singular in (("entities", "entity"), ("relations", "relation"))
            )
            edges = (arrays[f"train.{part}"] for part in ("offsets", "relations", "tails"))
            train = Adjacency(len(entities), len(relations), *edges)
            labels = Labels(entities, relations, found.state["prefixes"])
            return cls(found.state["name"], labels, train, arrays["valid"], arrays["test"])
        except (KeyError, TypeError, pa.ArrowInvalid) as error:
            raise DataError(f"{path}: not a complete graph file ({error}). {FORMAT.remedy}") from None


def _label_arrays(labels: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Arrow's own buffers as arrays: (label + 1) offsets and the UTF-8 text."""
    if len(labels) == 0:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    labels = pa.concat_arrays([labels]) if labels.offset else labels
    _, offsets, text = labels.buffers()
    ends = np.frombuffer(offsets, np.int64, count=len(labels) + 1)
    return ends, np.frombuffer(text, np.uint8, count=int(ends[-1]))


def _label_array(offsets: np.ndarray, text: np.ndarray) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    labels = pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)
    labels.validate(full=True)  # offsets that lead out of the text would end in a crash, not in an exception
    return labels
