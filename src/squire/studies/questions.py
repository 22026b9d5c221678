"""Test questions, drawn in random order, each with the best path by which the model reaches the correct answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from squire.core.progress import Progress, no_progress
from squire.evaluation.queries import QuerySet
from squire.reasoning.answers import Edge, Evidence, FollowedRule
from squire.studies.journal import Journal

if TYPE_CHECKING:  # they load torch, which reading questions does not need
    from squire.graph.adjacency import Ids
    from squire.reasoning.reasoner import Reasoner
    from squire.search.options import DecodingOptions

Format = Callable[[str], str]


@dataclass(frozen=True)
class Question:
    """(head, relation, ?) with its correct answer, `tail`."""

    head: str
    relation: str
    tail: str
    rank: float  # of the correct answer, filtered
    evidence: Evidence | None  # the best path to the correct answer; None if no path reaches it

    @property
    def text(self) -> str:
        return f"({self.head}, {self.relation}, ?)"

    def path(self, label: Format = str, inferred: Format = str, answer: Format = str) -> str:
        """`Lycoming County ←contains— Pennsylvania —currency→ US Dollar`, as in the case study of §4.5.

        `label` formats every label; `inferred`, in addition, relations that are not in the graph; `answer` the
        last entity. Empty if there is no path.
        """
        if self.evidence is None:
            return ""
        parts = [label(self.evidence.start)]
        for edge in self.evidence.edges:
            relation = label(edge.relation) if edge.is_fact else inferred(label(edge.relation))
            parts += [f"←{relation}—" if edge.backwards else f"—{relation}→", label(edge.goal)]
        return " ".join([*parts[:-1], answer(parts[-1])])

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Question:
        """Inverse of `as_dict`."""
        path = content["evidence"]
        if path is not None:
            rule = FollowedRule(**path["rule"]) if path["rule"] else None
            renamed = {"known": "is_fact"}  # as version 0.1 wrote it
            edges = [
                Edge(**{renamed.get(key, key): value for key, value in edge.items()}) for edge in path["edges"]
            ]
            path = Evidence(**{**path, "edges": tuple(edges), "rule": rule})
        return cls(**{**content, "evidence": path})


@dataclass(frozen=True)
class DrawnQuestions:
    """Test questions in the order in which they were drawn."""

    questions: list[Question]
    signature: str


def draw_questions(
    run: Path,
    file: Path,  # the journal
    seed: int,
    kind: Callable[[Question], str],
    need: Counter[str],  # how many questions of each kind
    beam: int | None = None,
    progress: Progress = no_progress,
) -> DrawnQuestions:
    """Draws test questions until there are enough of each kind, or none are left.

    Questions in the journal are reused. If they suffice, the model is not loaded.
    """
    from squire.core.run_files import fingerprint
    from squire.evaluation.paths import paths_signature
    from squire.model.recipe import load_settings
    from squire.reasoning.reasoner import Reasoner
    from squire.search.options import DecodingOptions, SearchEdges
    from squire.search.trained import TrainedModel

    graph, recipe = load_settings(run)
    query_set = QuerySet.from_graph(graph, "test")
    decoding = DecodingOptions.from_recipe(recipe, SearchEdges(graph.train), beam=beam)
    signature = paths_signature(query_set, decoding, recipe.train.seed)
    header = {"study": "questions", "model": fingerprint(run), "draw": seed, "of": len(query_set.queries)}
    # The signature holds squire's version. After an upgrade people must still be able to continue judging.
    journal = Journal(file, {**header, "beam": decoding.beam}, {"signature": str(signature)})
    questions = [Question.from_dict(entry) for entry in journal.entries]
    found = Counter(map(kind, questions))
    queries = np.random.default_rng(seed).permutation(query_set.queries)
    if not need <= found and len(questions) < len(queries):
        reasoner = Reasoner(TrainedModel.load(run))
        decoding = replace(decoding, patterns=reasoner.run.rules.patterns)
        for question in _search(reasoner, query_set, queries[len(questions) :], decoding):
            journal.append(question.as_dict())
            questions.append(question)
            found[kind(question)] += 1
            progress("searching", len(questions), len(queries))
            if need <= found:
                break
    return DrawnQuestions(questions, drawn_signature(journal.header, len(questions)))


def drawn_signature(header: Mapping[str, Any], count: int) -> str:
    """The signature of figures over the first `count` questions of a journal."""
    return f"{header['signature']}|draw:{header['draw']}|drawn:{count} of {header['of']}"


def _search(
    reasoner: Reasoner, query_set: QuerySet, queries: Ids, decoding: DecodingOptions
) -> Iterator[Question]:
    from squire.evaluation.paths import ranks_of
    from squire.search.decoding import decode

    labels, done = reasoner.labels, 0
    for block in decode(reasoner.trained.decoder, queries[:, :2], decoding):
        own = queries[done : done + len(block)]
        done += len(block)
        for number, rank in enumerate(ranks_of(block, own, query_set.filter)):
            head, relation, tail = own[number].tolist()
            path = block.best_path_to(number, tail)
            found = None if path is None else reasoner.evidence((head, relation), block, slice(path, path + 1))[0]
            yield Question(labels.entity(head), labels.relation(relation), labels.entity(tail), rank, found)
