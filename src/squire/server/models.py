"""A trained run as the service sees it. The one module that knows the reasoner.

What decodes must be called from one thread only (`batcher`); the rest reads what never changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from squire.errors import SettingError, UnknownName
from squire.graph.graph import Graph
from squire.graph.labels import LabelIndex
from squire.reasoning.answers import Answers
from squire.reasoning.attention import attention_of
from squire.reasoning.reasoner import RankedBy, Reasoner
from squire.search.options import Aggregate
from squire.server.kinds import FITS, fitting
from squire.server.problems import as_json
from squire.server.search import NameSearch

Query = tuple[int, int]
NEAREST = 3  # names that are proposed for an unknown one


@dataclass(frozen=True)
class Options:
    """How a question is to be answered; questions with equal options can be answered together."""

    k: int = 10
    grounded: bool = False
    include_known: bool = False
    beam: int | None = None
    aggregate: Aggregate | None = None
    ranking: RankedBy | None = None


class Model:
    """A run under a name."""

    def __init__(self, name: str, reasoner: Reasoner) -> None:
        self.name, self._reasoner = name, reasoner
        self.graph: Graph = reasoner.graph
        self.folder, self.step = reasoner.run.folder, reasoner.run.step
        self.recipe: dict[str, Any] = reasoner.run.recipe.to_dict()

    @classmethod
    def load(cls, name: str, folder: Path) -> Model:
        model = cls(name, Reasoner.load(folder))
        model.warm_up()
        return model

    def warm_up(self) -> None:
        """What is built or compiled when it is first needed is so now, not while the first client waits."""
        self.find_entities("a", 1)
        self.find_relations("a", None, None, 1)
        head, relation, _ = self.graph.train.triples[0].tolist()
        self.answer_all([(head, relation)], Options(k=1))

    @property
    def fused(self) -> bool:
        """Can it rank by all evidence?"""
        return self._reasoner.fusion is not None

    def query(self, head: str | None, relation: str, tail: str | None = None) -> Query:
        """The ids of a question, as `Reasoner.query`, but with nearest names found in milliseconds."""
        for label in (head, tail):
            if label is not None:
                self.entity(label)
        self._number(self.graph.labels.relations, self.relations, relation)
        return self._reasoner.query(head, relation, tail)

    def entity(self, label: str) -> int:
        """The id of an entity."""
        return self._number(self.graph.labels.entities, self.entities, label)

    def _number(self, index: LabelIndex, search: NameSearch, label: str) -> int:
        labels = self.graph.labels
        for candidate in (label, labels.expand(label)):
            if (found := index.find(candidate)) is not None:
                return found
        nearest = [labels.shorten(index[match.number]) for match in search.find(label, NEAREST)]
        raise UnknownName(index.kind, label, nearest)

    def entity_label(self, entity: int) -> str:
        return self.graph.labels.entity(entity)

    def relation_label(self, relation: int) -> str:
        return self.graph.labels.relation(relation)

    # ------------------------------------------------------------------------------------- for one thread only

    def answer_all(self, queries: Sequence[Query], options: Options) -> list[bytes]:
        """The answers to each question as JSON, the same as of `squire answer --json`."""
        return [as_json(found) for found in self._answers(queries, options)]

    def _answers(self, queries: Sequence[Query], options: Options) -> Iterator[Answers]:
        """The one place that asks the reasoner."""
        reasoner = self._reasoner
        decoding = reasoner.decoding(grounded=options.grounded, beam=options.beam, aggregate=options.aggregate)
        asked = np.array(queries, np.int32).reshape(-1, 2)
        return reasoner.stream(
            asked, decoding, k=options.k, include_known=options.include_known, ranking=options.ranking
        )

    def explain(self, query: Query, tail: int, beam: int | None) -> bytes:
        """Where an answer stands among those that are not in the graph, and its evidence."""
        everything = Options(k=self.graph.num_entities, include_known=True, beam=beam)
        (found,) = self._answers([query], everything)
        label, new = self.entity_label(tail), 0
        rank = answer = None
        for one in found:
            if one.entity == label:
                rank = new + 1
                answer = replace(one, rank=rank)
                break
            new += not one.is_fact
        is_fact = self.graph.train.contains(*query, tail)
        question = {"head": found.head, "relation": found.relation, "tail": label}
        standing = {"is_fact": is_fact, "rank": rank, "answer": answer}
        return as_json({"question": question, **standing, "origin": found.origin})

    def attention(self, query: Query, answer: str | None, layer: int | None, beam: int | None) -> bytes:
        """What `squire study attention --json` prints; of one layer, if one is named."""
        content = attention_of(self._reasoner, query, answer, beam).as_dict()
        layers = len(content["weights"])
        if layer is not None:
            if layer > layers:
                raise SettingError(f"layer {layer}: expected a number from 1 to {layers}.")
            content["weights"] = [content["weights"][layer - 1]]
        return as_json(content | {"layer": layer})

    # ---------------------------------------------------------------------------------------------------- names

    @cached_property
    def entities(self) -> NameSearch:
        labels = self.graph.labels
        return NameSearch([labels.shorten(name) for name in labels.entities], self.degrees)

    @cached_property
    def relations(self) -> NameSearch:
        labels = self.graph.labels
        return NameSearch([labels.shorten(name) for name in labels.relations], self.fact_counts)

    @cached_property
    def degrees(self) -> npt.NDArray[np.int64]:
        """(entity): edges in train, inverse ones included"""
        return np.diff(self.graph.train.offsets)

    @cached_property
    def fact_counts(self) -> npt.NDArray[np.int64]:
        """(relation): facts in train"""
        return np.bincount(self.graph.train.triples[:, 1], minlength=self.graph.num_relations)

    def find_entities(self, text: str, limit: int) -> list[dict[str, Any]]:
        return [
            {"name": self.entity_label(entity), "degree": int(self.degrees[entity])}
            for entity, _ in self.entities.find(text, limit)
        ]

    def find_relations(self, text: str, head: str | None, tail: str | None, limit: int) -> list[dict[str, Any]]:
        """With a head or a tail: of equally good matches, relations that entities of its kind have come first."""
        share = np.ones(n := self.graph.num_relations)
        if head is not None:
            share = np.minimum(share, fitting(self.graph.train, self.entity(head))[:n])
        if tail is not None:
            share = np.minimum(share, fitting(self.graph.train, self.entity(tail))[n:])
        found = self.relations.find(text, n)
        found.sort(key=lambda match: (match.tier, share[match.number] < FITS))  # stable: else as they were
        return [
            {
                "name": self.relation_label(relation),
                "facts": int(self.fact_counts[relation]),
                "fits": bool(share[relation] >= FITS),
            }
            for relation, _ in found[:limit]
        ]
