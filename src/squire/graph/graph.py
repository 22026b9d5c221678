"""A knowledge graph: labels, the train edges, and the held-out triples. Immutable; saved as one `.graph` file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from squire.core.frames import to_frame
from squire.core.kept import NOT_KEPT, Kept, frozen
from squire.core.relations import is_inverse
from squire.core.tensors import JSON, TensorFormat, load_tensors, save_tensors
from squire.errors import DataError, SettingError
from squire.graph.adjacency import Adjacency, Ids, Offsets, sort_unique
from squire.graph.labels import LabelIndex, Labels
from squire.graph.statistics import Stats
from squire.graph.triples import HOLDOUT, ROLES, block_from_object, divide, number

SPLITS = ("train", "valid", "test")
NEGATIVES = {"valid": "valid_negatives", "test": "test_negatives"}  # files of triples that are known to be false
FILE_SUFFIX = ".graph"
FORMAT = TensorFormat("graph", "graph file", 2, DataError, "Write it again with `squire data convert`.")
EXAMPLE_FACTS = 5  # in a notebook


class Neighbours(NamedTuple):
    """The entities at the other end of one relation."""

    relation: str
    inverse: bool  # the relation points to the entity that was asked about
    entities: list[str]


@dataclass(frozen=True, eq=False)
class Graph:
    """A knowledge graph; heads, relations and tails are ids into `labels`.

    >>> facts = [("Vienna", "capital of", "Austria"), ("Austria", "borders", "Italy")]
    >>> graph = Graph.from_triples(facts, test=[("Rome", "capital of", "Italy")], name="example")
    >>> graph
    Graph 'example': 4 entities, 2 relations, 2 train facts, 0 valid, 1 test
    """

    name: str  # of the dataset; not part of equality
    labels: Labels
    train: Adjacency
    valid: Ids  # (triple, 3), sorted, distinct
    test: Ids  # (triple, 3), sorted, distinct
    negatives: Mapping[str, Ids] = field(default_factory=dict)  # by split: verified to be false, if there are any
    is_divided: bool = False  # valid and test were drawn from one set of facts, rather than given
    # For what is worked out of it. A copy with other facts (`replace`) has none.
    kept: Kept = field(default=NOT_KEPT, init=False, repr=False)

    @classmethod
    def build(cls, name: str, labels: Labels, splits: Mapping[str, Ids], is_divided: bool = False) -> Graph:
        """From triples of ids by split, or by NEGATIVES of a split; a missing one is empty."""
        size = len(labels.entities), len(labels.relations)
        none = np.empty((0, 3), np.int32)
        valid, test = (sort_unique(splits.get(split, none), *size) for split in SPLITS[1:])
        negatives = {split: sort_unique(splits[key], *size) for split, key in NEGATIVES.items() if key in splits}
        train = Adjacency.build(splits.get("train", none), *size)
        return cls(name, labels, train, valid, test, negatives, is_divided)

    @classmethod
    def from_triples(
        cls,
        train: Any,
        valid: Any = None,
        test: Any = None,
        *,
        name: str = "graph",
        holdout: tuple[float, float] = HOLDOUT,
        seed: int = 0,
    ) -> Graph:
        """From triples of labels: rows of (head, relation, tail), a pandas or polars frame, or an Arrow table.

        Of a table, the columns named like head, relation and tail (or subject, predicate and object) are used,
        else the first three. If neither `valid` nor `test` is given, `holdout` gives the shares of `train` that
        become valid and test.

        >>> Graph.from_triples([("Vienna", "capital of", "Austria")])
        Graph 'graph': 2 entities, 1 relation, 1 train fact, 0 valid, 0 test
        """
        given = {split: data for split, data in zip(SPLITS, (train, valid, test), strict=True) if data is not None}
        blocks = {split: block_from_object(data, split) for split, data in given.items()}
        if "train" not in blocks or not len(blocks["train"].codes):
            raise DataError("train: no triples.")
        labels, triples = number(blocks.values(), {})
        ends = np.cumsum([len(block.codes) for block in blocks.values()])
        splits = dict(zip(blocks, np.split(triples, ends[:-1]), strict=True))
        is_divided = list(splits) == ["train"]
        if is_divided:
            distinct = sort_unique(triples, len(labels.entities), len(labels.relations))
            splits = divide(distinct, holdout, np.random.default_rng(seed))
        return cls.build(name, labels, splits, is_divided)

    @property
    def num_entities(self) -> int:
        return len(self.labels.entities)

    @property
    def num_relations(self) -> int:
        """Without inverses."""
        return len(self.labels.relations)

    def triples(self, split: str) -> Ids:
        """The triples of a split, sorted by head, relation, tail.  (triple, 3)"""
        if split not in SPLITS:
            raise SettingError(f"split={split!r}: expected {', '.join(SPLITS[:-1])} or {SPLITS[-1]}.")
        return {"train": self.train.triples, "valid": self.valid, "test": self.test}[split]

    @cached_property
    def facts(self) -> Adjacency:
        """The edges of all splits: what the graph says when a person asks."""
        if not len(self.valid) + len(self.test):
            return replace(self.train, kept=self.kept)
        offsets, relations, tails = self.kept.get("facts", self._all_edges)
        return Adjacency(self.num_entities, self.num_relations, offsets, relations, tails, self.kept)

    def _all_edges(self) -> tuple[Offsets, Ids, Ids]:
        edges = self.known(*SPLITS)
        return edges.offsets, edges.relations, edges.tails

    def keeping(self, folder: Path, key: str) -> Graph:
        """The same graph; what is worked out of it is kept in a folder. `key` tells it from other graphs."""
        graph = replace(self)
        object.__setattr__(graph, "kept", Kept(folder, key))
        return graph

    def adjacency(self, triples: Ids) -> Adjacency:
        """These facts alone, among the same entities and relations.  triples: (fact, 3)"""
        return Adjacency.build(triples, self.num_entities, self.num_relations)

    def known(self, *splits: str) -> Adjacency:
        """The edges of these splits together: the filter of a ranking."""
        if splits == ("train",):
            return self.train
        held_out = [self.triples(split) for split in splits if split != "train"]
        own = self.adjacency(np.concatenate(held_out))
        return self.train.joined(own) if "train" in splits else own

    def edges_of(self, other: Graph) -> Adjacency:
        """The train edges of another graph in the ids of this one; edges with unknown labels are left out."""
        entities, relations = (
            np.array([-1 if (own := ours.find(label)) is None else own for label in theirs], np.int32)
            for ours, theirs in (
                (self.labels.entities, other.labels.entities),
                (self.labels.relations, other.labels.relations),
            )
        )
        heads, edges, tails = other.train.triples.T
        triples = np.stack([entities[heads], relations[edges], entities[tails]], axis=1)
        return self.adjacency(triples[(triples >= 0).all(axis=1)])

    def neighbours(self, entity: str) -> list[Neighbours]:
        """The facts about an entity, of all splits, by relation.

        >>> graph = Graph.from_triples([("Vienna", "capital of", "Austria"), ("Austria", "borders", "Italy")])
        >>> for relation, inverse, entities in graph.neighbours("Austria"):
        ...     print(relation, inverse, entities)
        borders False ['Italy']
        capital of True ['Vienna']
        """
        relations, tails = self.facts.edges(self.labels.entity_id(entity))
        return [
            Neighbours(
                self.labels.relation(relation),
                is_inverse(relation, self.num_relations),
                [self.labels.entity(tail) for tail in tails[relations == relation].tolist()],
            )
            for relation in np.unique(relations).tolist()
        ]

    def stats(self) -> Stats:
        """Entities, relations, facts and degrees (the paper's Table 1).

        >>> Graph.from_triples([("Vienna", "capital of", "Austria")]).stats().degree_mean
        0.5
        """
        return Stats.from_graph(self)

    def table(self, *splits: str) -> pa.Table:
        """The facts of these splits, or of all, as an Arrow table of head, relation, tail and split.

        >>> Graph.from_triples([("Vienna", "capital of", "Austria")]).table("train").to_pylist()
        [{'head': 'Vienna', 'relation': 'capital of', 'tail': 'Austria', 'split': 'train'}]
        """
        splits = splits or SPLITS
        triples = [self.triples(split) for split in splits]
        columns = self.labels.columns(np.concatenate(triples))
        split_of = np.repeat(np.array(splits), [len(own) for own in triples])
        return pa.table([*columns, pa.array(split_of)], [*ROLES, "split"])

    def to_frame(self, *splits: str) -> Any:
        """The same as a pandas frame.

        >>> list(Graph.from_triples([("Vienna", "capital of", "Austria")]).to_frame().columns)
        ['head', 'relation', 'tail', 'split']
        """
        return to_frame(self.table(*splits))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Graph)
            and self.labels.entities == other.labels.entities
            and self.labels.relations == other.labels.relations
            and self.train == other.train
            and np.array_equal(self.valid, other.valid)
            and np.array_equal(self.test, other.test)
        )

    def __repr__(self) -> str:
        facts = len(self.train.triples)
        return (
            f"Graph {self.name!r}: {self.num_entities:,} {'entity' if self.num_entities == 1 else 'entities'}, "
            f"{self.num_relations:,} relation{'s' * (self.num_relations != 1)}, {facts:,} train "
            f"fact{'s' * (facts != 1)}, {len(self.valid):,} valid, {len(self.test):,} test"
        )

    def _repr_html_(self) -> str:
        """For notebooks: the sizes, and a few facts."""
        chosen = self.train.triples[:: max(1, len(self.train.triples) // EXAMPLE_FACTS)][:EXAMPLE_FACTS]
        entity, relation = self.labels.entity, self.labels.relation
        facts = [(entity(head), relation(edge), entity(tail)) for head, edge, tail in chosen.tolist()]
        rows = "".join(f"<tr>{''.join(f'<td>{escape(label)}</td>' for label in fact)}</tr>" for fact in facts)
        header = "".join(f"<th>{role}</th>" for role in ROLES)
        return f"<p>{escape(repr(self))}</p><table><tr>{header}</tr>{rows}</table>"

    def renumbered(self) -> Graph:
        """The same graph with all labels in sorted order, wherever they were added."""
        array = self.labels.entities.array
        order = pc.sort_indices(array)
        new_id = np.empty(len(array), np.int32)
        new_id[order.to_numpy()] = np.arange(len(array), dtype=np.int32)
        splits = {split: self.triples(split).copy() for split in SPLITS}
        splits |= {NEGATIVES[split]: triples.copy() for split, triples in self.negatives.items()}
        for triples in splits.values():
            triples[:, [0, 2]] = new_id[triples[:, [0, 2]]]
        labels = replace(self.labels, entities=LabelIndex(array.take(order), "entity"))
        return Graph.build(self.name, labels, splits, self.is_divided)

    def save(self, path: str | Path) -> None:
        """Write everything to one file, atomically."""
        if not self.labels.entities.is_sorted:  # the file's labels are looked up by binary search
            self.renumbered().save(path)
            return
        arrays: dict[str, np.ndarray] = {
            "train.offsets": self.train.offsets,
            "train.relations": self.train.relations,
            "train.tails": self.train.tails,
            "valid": self.valid,
            "test": self.test,
            **{NEGATIVES[split]: triples for split, triples in self.negatives.items()},
        }
        for kind, labels in (("entities", self.labels.entities), ("relations", self.labels.relations)):
            arrays[f"{kind}.offsets"], arrays[f"{kind}.text"] = _label_arrays(labels.array)
        prefixes = dict(self.labels.prefixes)
        state: dict[str, JSON] = {"name": self.name, "prefixes": prefixes, "is_divided": self.is_divided}
        save_tensors(Path(path), FORMAT, arrays, state)

    @classmethod
    def load(cls, path: str | Path, indexes: Path | None = None) -> Graph:
        """Inverse of `save`. indexes: a folder for what is worked out of the graph."""
        found = load_tensors(Path(path), FORMAT)
        arrays = {name: frozen(array) for name, array in found.arrays.items()}
        try:
            entities, relations = (
                LabelIndex(_label_array(arrays[f"{kind}.offsets"], arrays[f"{kind}.text"]), singular)
                for kind, singular in (("entities", "entity"), ("relations", "relation"))
            )
            offsets, types, tails = (arrays[f"train.{part}"] for part in ("offsets", "relations", "tails"))
            train = Adjacency(len(entities), len(relations), offsets, types, tails)
            labels = Labels(entities, relations, found.state["prefixes"])
            state = found.state
            is_divided = bool(state.get("is_divided"))  # older files do not say
            negatives = {split: arrays[key] for split, key in NEGATIVES.items() if key in arrays}
            graph = cls(state["name"], labels, train, arrays["valid"], arrays["test"], negatives, is_divided)
            return graph.keeping(indexes, found.checksum) if indexes else graph
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
    labels.validate(full=True)  # offsets beyond the text would crash the process later
    return labels
