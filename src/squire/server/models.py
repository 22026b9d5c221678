"""A trained run as the service sees it: answers, suggestions, the model card, annotation.

Methods that decode are called from the decoding threads (`batching`), several at once; the data is constant.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from squire import Aggregate as Aggregate
from squire import Answer as Answer
from squire import Answers as Answers
from squire import Change as Change
from squire import Connections as Connections
from squire import Evidence as Evidence
from squire import FactCheck as FactCheck
from squire import (
    Graph,
    LabelIndex,
    Reasoner,
    Run,
    attention_of,
    check_fact,
    example_questions,
    find_connections,
    find_reasons,
    restrict,
)
from squire import Origin as Origin
from squire import RankedBy as RankedBy
from squire import Reasons as Reasons
from squire import __version__ as __version__
from squire.errors import SettingError, UnknownName
from squire.server.autocomplete import FITS, LabelSearch, fitting, open_questions
from squire.server.problems import Problem, as_json
from squire.studies import ANNOTATION, Annotations, Review
from squire.studies import SCORES as SCORES
from squire.studies import Decision as Decision

NEAREST = 3  # labels suggested instead of an unknown one
EXAMPLES = 6  # questions on a model card
REFIT = 10  # decisions after which confidence is fitted to them again
DOUBTS = 200  # facts of an entity that are judged

Query = tuple[int, int]  # entity, edge type
Way = Literal["out", "in", "both"]
WAYS: tuple[Way, ...] = get_args(Way)
Rows = Sequence[tuple[str, str, str]]  # facts as labels

_annotation_lock = threading.Lock()  # judgements are written one at a time: every request opens the files anew


@dataclass(frozen=True)
class Options:
    """How to answer; questions with equal options can share a batch."""

    k: int = 10
    grounded: bool = False
    new_only: bool = False
    beam: int | None = None
    aggregate: Aggregate | None = None
    ranking: RankedBy | None = None
    among: tuple[str, ...] | None = None
    type: str | None = None
    not_linked: bool = False


class Model:
    """A run under a name."""

    def __init__(self, name: str, reasoner: Reasoner) -> None:
        self.name, self._reasoner, self.graph = name, reasoner, reasoner.graph
        self.is_fused = reasoner.fusion is not None
        self._labels, self._folder, self._step = self.graph.labels, reasoner.run.folder, reasoner.step
        self._recipe: dict[str, Any] = reasoner.run.recipe.to_dict()

    @classmethod
    def load(cls, name: str, run: Any) -> Model:
        """Loads a run folder, or takes a loaded run, and warms it up: the first client need not wait."""
        reasoner = Reasoner.load(run) if isinstance(run, str | Path) else run.reasoner
        model = cls(name, reasoner)
        model.find_entities("a", 1)
        model.find_relations("a", None, None, 1)
        head, relation, _ = model.graph.train.triples[0].tolist()
        model.answer_all([(head, relation)], Options(k=1))
        _ = model._examples  # kept in the run folder from then on
        return model

    def query(self, head: str | None, relation: str, tail: str | None = None) -> Query:
        """The ids of a question, as in `Reasoner.query`, but suggesting the nearest labels in milliseconds."""
        edge_type = self._id(self._labels.relations, self._relation_search, relation)
        if head is not None:
            return self.entity_id(head), edge_type
        assert tail is not None
        return self.entity_id(tail), edge_type + self.graph.num_relations

    def entity_id(self, label: str) -> int:
        return self._id(self._labels.entities, self._entity_search, label)

    def _id(self, index: LabelIndex, search: LabelSearch, label: str) -> int:
        for candidate in (label, self._labels.expand(label)):
            if (found := index.find(candidate)) is not None:
                return found
        same = [i for i in search.same(label) if index[i].casefold() == label.casefold()]
        if len(same) == 1:
            return same[0]
        nearest = [self._labels.shorten(index[match.id]) for match in search.find(label, NEAREST)]
        raise UnknownName(index.kind, label, nearest)

    # ---------------------------------------------------------------------------- in the decoding threads

    def answer_all(self, queries: Sequence[Query], options: Options) -> list[bytes]:
        """The answers to each question as JSON, equal to the output of `squire answer --json`."""
        return [as_json(answers) for answers in self._answers(queries, options)]

    def _answers(self, queries: Sequence[Query], options: Options) -> Iterator[Answers]:
        reasoner = self._reasoner
        decoding = reasoner.decoding(grounded=options.grounded, beam=options.beam, aggregate=options.aggregate)
        ids = np.array(queries, np.int32).reshape(-1, 2)
        return reasoner.stream(
            ids, decoding, k=options.k, new_only=options.new_only, ranking=options.ranking,
            restriction=restrict(self.graph, self.graph.facts, options.among, options.type, options.not_linked),
        )  # fmt: skip

    def check(self, head: str, relation: str, tail: str, beam: int | None, facts: Rows = ()) -> bytes:
        """How likely a fact is, equal to the output of `squire check --json`."""
        return as_json(check_fact(self._reasoner.supposing(facts), head, relation, tail, beam))

    def connect(self, first: str, second: str, hops: int, facts: Rows = ()) -> bytes:
        """How two entities are connected, equal to the output of `squire connect --json`."""
        return as_json(find_connections(self._reasoner.supposing(facts), first, second, hops=hops))

    def why(self, head: str, relation: str, tail: str, facts: Rows = ()) -> bytes:
        """What an answer hangs on, equal to the output of `squire why --json`."""
        return as_json(find_reasons(self._reasoner.supposing(facts), head, relation, tail))

    def answer_if(self, asked: Any, facts: Rows) -> bytes:
        """The answers to a question if these facts were true."""
        supposed = Model(self.name, self._reasoner.supposing(facts))
        query = supposed._reasoner.query(asked.head, asked.relation, asked.tail)
        return supposed.answer_all([query], asked.options())[0]

    @property
    def _run(self) -> Run:
        run = Run(self._folder)
        run.reasoner = self._reasoner
        return run

    def change(self, action: str, facts: Rows) -> tuple[Change, Model]:
        """Adds facts to the graph or removes them, on disk, and gives the model that knows it."""
        run = self._run
        change = run.add(facts) if action == "add" else run.remove(facts)
        return change, Model(self.name, run.reasoner)

    def attention(self, query: Query, answer: str | None, layer: int | None, beam: int | None) -> bytes:
        """The output of `squire study attention --json`, for one layer if `layer` is given."""
        content = attention_of(self._reasoner, query, answer, beam).as_dict()
        layers = len(content["weights"])
        if layer is not None:
            if layer > layers:
                raise SettingError(f"layer={layer}: expected a number from 1 to {layers}.")
            content["weights"] = [content["weights"][layer - 1]]
        return as_json(content | {"layer": layer})

    # ------------------------------------------------------------------------------- suggestions and the graph

    @cached_property
    def _entity_search(self) -> LabelSearch:
        return LabelSearch([self._labels.shorten(label) for label in self._labels.entities], self._degrees)

    @cached_property
    def _relation_search(self) -> LabelSearch:
        return LabelSearch([self._labels.shorten(label) for label in self._labels.relations], self._fact_counts)

    @cached_property
    def _degrees(self) -> npt.NDArray[np.int64]:
        """(entity): edges, inverse ones included"""
        return np.diff(self.graph.facts.offsets)

    @cached_property
    def _fact_counts(self) -> npt.NDArray[np.int64]:
        """(relation): facts"""
        return np.bincount(self.graph.facts.triples[:, 1], minlength=self.graph.num_relations)

    def find_entities(self, text: str, limit: int) -> list[dict[str, Any]]:
        found = self._entity_search.find(text, limit)
        return [{"name": self._labels.entity(i), "degree": int(self._degrees[i])} for i, _ in found]

    def find_relations(self, text: str, head: str | None, tail: str | None, limit: int) -> list[dict[str, Any]]:
        """Among equally good matches, relations that fit the head and the tail come first."""
        share = np.ones(n := self.graph.num_relations)
        if head is not None:
            share = np.minimum(share, fitting(self.graph, self.entity_id(head))[:n])
        if tail is not None:
            share = np.minimum(share, fitting(self.graph, self.entity_id(tail))[n:])
        fits = share >= FITS
        found = sorted(self._relation_search.find(text, n), key=lambda match: (match.tier, not fits[match.id]))
        return [
            {"name": self._labels.relation(i), "facts": int(self._fact_counts[i]), "fits": bool(fits[i])}
            for i, _ in found[:limit]
        ]

    def neighbourhood(self, entity: str, *which: Any) -> dict[str, Any]:
        return neighbourhood(self.graph, self.entity_id(entity), *which)

    def doubt(self, entity: str, k: int) -> bytes:
        """The least likely facts of an entity, of which at most DOUBTS are judged."""
        label = self._labels.entities[self.entity_id(entity)]
        found = self._run.doubt(entity=label, most=DOUBTS, k=k, progress=False)
        facts = found.table.to_pylist()
        return as_json({"facts": facts, "judged": found.judged, "left_out": found.left_out})

    # ------------------------------------------------------------------------------------------ the model card

    def summary(self) -> dict[str, Any]:
        """The model's entry in the list of models."""
        graph = self.graph
        return {
            "name": self.name,
            "graph": graph.name,
            "entities": graph.num_entities,
            "relations": graph.num_relations,
            "facts": graph.facts.num_edges // 2,
            "fused": self.is_fused,
        }

    def card(self) -> dict[str, Any]:
        """What the model is, how good it is beside the baselines, and example questions."""
        graph = self.graph
        return self.summary() | {
            "step": self._step,
            "recipe": self._recipe,
            "version": __version__,
            "description": (
                f"Finds missing facts of {graph.name}: {graph.num_entities:,} entities, {graph.num_relations:,} "
                f"relations, {graph.facts.num_edges // 2:,} facts. Answers are ranked by their evidence; "
                f"paths are searched with a beam of {self._recipe['decode']['beam']}. {self._assumption()} See "
                f"how good the model is under quality, and compare it with the frequency row, which always "
                f"guesses the most frequent answers."
            ),
            "missing": self._reasoner.fusion.info.missing if self._reasoner.fusion else None,
            "quality": self._quality(),
            "examples": self._examples,
        }

    def _assumption(self) -> str:
        fusion = self._reasoner.fusion
        if fusion is None:
            return "Scores are not probabilities."
        share = f"{fusion.info.missing:.0%}"
        said = f"Confidence is the probability that a fact is true, if the graph lacks {share} of all true facts"
        counted = self._reasoner.decisions
        return (
            f"{said}; it takes {counted} decisions about its predictions into account." if counted else f"{said}."
        )

    def _quality(self) -> list[dict[str, Any]]:
        """The results of `squire evaluate` for what is served; those of another model or fusion are left out."""
        return [
            {key: value for key, value in content.items() if key not in ("run", "recipe", "outdated")}
            for content in Run(self._folder).evaluations(self._reasoner.fingerprints)
            if content["rows"] and not content["outdated"]
        ]

    @cached_property
    def _examples(self) -> list[dict[str, str]]:
        """Questions that the model answers well; without a confidence, questions that the graph leaves open."""
        if found := example_questions(self._reasoner, EXAMPLES):
            return [{"head": one.head, "relation": one.relation, "answer": one.tail} for one in found]
        return [
            {"head": self._labels.entity(head), "relation": self._labels.relation(relation)}
            for head, relation in open_questions(self.graph, EXAMPLES)
        ]

    # ------------------------------------------------------- annotation, in the files of `squire study annotate`

    def annotation_progress(self, annotator: str) -> dict[str, Any]:
        """How far an annotator is, and the next path to judge. Creates no file."""
        with _annotation_lock:
            return _progress(self._annotations(annotator))

    def judge(self, annotator: str, number: int, score: float) -> dict[str, Any]:
        """Records a judgement; it is on disk when this returns."""
        with _annotation_lock:
            study = self._annotations(annotator)
            if number not in study.to_judge:
                raise Problem(404, f"question {number}: no such question with a path to judge.")
            study.judge(number, score)
            return _progress(study)

    # ------------------------------------------------------------- review, in the files that `squire add` reads

    @cached_property
    def _review(self) -> Review:
        return Review(self._reasoner)

    def review(self, start: int) -> bytes:
        """Facts to decide about, and how many were decided."""
        cards, following = self._review.cards(start)
        return as_json({"cards": cards, "next": following, "progress": self._review.progress()})

    def decide(self, head: str, relation: str, tail: str, decision: Decision) -> dict[str, int]:
        """Records a decision; it is on disk when this returns."""
        with _annotation_lock:
            self._review.decide(head, relation, tail, decision)
            if len(self._review.decisions()) % REFIT == 0:
                self._reasoner = self._review.recalibrated()
            return self._review.progress()

    def _annotations(self, annotator: str) -> Annotations:
        folder = self._folder / ANNOTATION
        if not folder.is_dir():
            command = f"squire study annotate {self._folder} -n 100"
            raise Problem(
                404, f"there are no paths to judge yet. Draw some with `{command}` first, then quit with q."
            )
        return Annotations(folder, annotator)


def _progress(study: Annotations) -> dict[str, Any]:
    number = next((number for number in study.to_judge if number not in study.scores), None)
    following = None
    if number is not None:
        one = study.questions[number]
        question = {"head": one.head, "relation": one.relation, "tail": one.tail}
        following = {"number": number, "question": question, "evidence": one.evidence}
    return {
        "annotator": study.annotator,
        "total": len(study.to_judge),
        "judged": len(study.scores),
        "next": following,
        "summary": study.summary().as_dict() if study.scores else None,
    }


def neighbourhood(
    graph: Graph, entity: int, limit: int, start: int = 0, relation: str | None = None, way: Way | None = None
) -> dict[str, Any]:
    """Edges of an entity, taking turns over its relations so that a frequent one does not hide the others.

    A relation that is a fact in both directions is one edge. `relation` and `way`: only those edges. Groups are of
    all edges, largest first.
    """
    labels, n = graph.labels, graph.num_relations
    types, others = graph.facts.edges(entity)
    is_out, pair = types < n, types % n * np.int64(graph.num_entities) + others  # (edge) each
    is_twice = np.isin(pair, pair[is_out]) & np.isin(pair, pair[~is_out])
    is_both = is_twice & (others != entity)  # a fact that links an entity to itself is two edges, but one way
    kind = np.where(is_both, 2, ~is_out) * n + types % n  # out, in, both
    distinct = np.flatnonzero(is_out | ~is_twice)
    kinds, counts = np.unique(kind[distinct], return_counts=True)
    if relation is not None:
        distinct = distinct[kind[distinct] % n == labels.relation_id(relation)]
    if way is not None:
        distinct = distinct[kind[distinct] // n == WAYS.index(way)]
    distinct = distinct[np.argsort(kind[distinct], kind="stable")]
    sorted_kind = kind[distinct]
    turn = np.arange(len(distinct)) - np.searchsorted(sorted_kind, sorted_kind)
    chosen = distinct[np.lexsort((sorted_kind, turn))[start : start + limit]]
    own, edges = labels.entity(entity), []
    for one in chosen.tolist():
        end, of = labels.entity(int(others[one])), int(kind[one])
        head, tail = (end, own) if WAYS[of // n] == "in" else (own, end)
        edges.append({"head": head, "relation": labels.relation(of % n), "tail": tail, "way": WAYS[of // n]})
    return {
        "entity": own,
        "degree": len(types),
        "edges": edges,
        "left_out": len(distinct) - len(chosen),
        "groups": [
            {"relation": labels.relation(of % n), "way": WAYS[of // n], "count": -int(count)}
            for count, of in sorted(zip(-counts, kinds, strict=True))
        ],
    }
