"""Asks a run test questions, in an order that a seed draws, until a study has enough, and notes them down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from squire.core.checkpoint import fingerprint
from squire.evaluation.paths import paths_signature, ranks_of
from squire.evaluation.queries import QuerySet
from squire.graph.adjacency import Ids
from squire.reasoning.reasoner import Reasoner
from squire.search.constraints import EdgeConstraint
from squire.search.decoding import DecodingOptions, PathRanking, decode
from squire.search.trained import TrainedModel, load_settings
from squire.studies.journal import Journal
from squire.studies.questions import Question, drawn_signature

Kind = Callable[[Question], str]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Drawn:
    """Test questions in the order in which they were drawn."""

    questions: list[Question]
    signature: str  # of figures over them


def draw_questions(
    folder: Path,
    file: Path,  # the journal
    seed: int,
    kind: Kind,
    need: Counter[str],  # so many of each kind
    beam: int | None = None,
    progress: Progress | None = None,
) -> Drawn:
    """Questions out of test until there are enough of each kind, or no more. What is noted is not asked again.

    Without new questions the model is not even loaded.
    """
    graph, recipe = load_settings(folder)
    query_set, decoding = (
        QuerySet.from_graph(graph, "test"),
        DecodingOptions.from_recipe(recipe, EdgeConstraint.from_adjacency(graph.train), beam=beam),
    )
    signature = paths_signature(query_set, decoding, recipe.train.seed)
    header = {"study": "questions", "model": fingerprint(folder), "draw": seed, "of": len(query_set.queries)}
    # An upgrade of squire changes the signature, which must not keep people from judging what they have begun.
    journal = Journal(file, {**header, "beam": decoding.beam}, {"signature": str(signature)})
    questions = [Question.from_dict(entry) for entry in journal.entries]
    found = Counter(map(kind, questions))
    queries = np.random.default_rng(seed).permutation(query_set.queries)
    if not need <= found and len(questions) < len(queries):
        reasoner = Reasoner(TrainedModel.load(folder))
        for question in _ask(reasoner, query_set, queries[len(questions) :], decoding):
            journal.append(question.as_dict())
            questions.append(question)
            found[kind(question)] += 1
            if progress:
                progress(len(questions), len(queries))
            if need <= found:
                break
    return Drawn(questions, drawn_signature(journal.header, len(questions)))


def _ask(reasoner: Reasoner, query_set: QuerySet, queries: Ids, decoding: DecodingOptions) -> Iterator[Question]:
    done = 0
    for block in decode(reasoner.run.decoder, queries[:, :2], decoding):
        own = queries[done : done + len(block)]
        for number, rank in enumerate(ranks_of(block, own, query_set.filter)):
            yield _question(reasoner, block, number, own[number].tolist(), rank)
        done += len(block)


def _question(reasoner: Reasoner, block: PathRanking, number: int, query: list[int], rank: float) -> Question:
    head, relation, tail = query
    labels, path = reasoner.labels, block.best_path_to(number, tail)
    evidence = None if path is None else reasoner.evidence((head, relation), block, slice(path, path + 1))[0]
    ends = labels.entity(head), labels.entity(tail)
    return Question(ends[0], labels.relation(relation), ends[1], rank, evidence)
