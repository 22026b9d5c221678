"""Example questions of a run, for those who see it first: held-out facts that it finds without knowing them.

They are kept in the run folder with the fingerprints of the model and the fusion, and chosen again for others.
"""

from __future__ import annotations

import json
import logging
from typing import NamedTuple

import numpy as np

from squire.core.files import create_bytes
from squire.core.run_files import EXAMPLES
from squire.graph.folds import removable
from squire.reasoning.answers import Answer
from squire.reasoning.reasoner import Reasoner

logger = logging.getLogger(__name__)
TRIED = 300  # held-out facts that are looked at
CONFIDENT = 0.6
STRONG = 0.3  # how often the rule is true, times the share of other answers: frequent ones are easy to guess
FEW = 3  # facts that answer a question at most, so that the example is one among few


class Example(NamedTuple):
    """A fact that the model finds if it is hidden."""

    head: str
    relation: str
    tail: str


def example_questions(reasoner: Reasoner, most: int = 6) -> list[Example]:
    """Confident, right answers to questions about held-out facts, one for each relation, along strong rules; the
    entities with the most facts first.

    None without a fusion, which gives the confidence, or without held-out facts.
    """
    if reasoner.fusion is None:
        return []
    file = reasoner.run.folder / EXAMPLES
    key = dict(reasoner.fingerprints)
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["fingerprints"] == key:
            return [Example(*one) for one in kept["examples"]][:most]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not there yet, or not ours
    chosen = _choose(reasoner, most)
    try:
        with create_bytes(file) as stream:
            stream.write(json.dumps({"fingerprints": key, "examples": chosen}, ensure_ascii=False).encode())
    except OSError as error:
        logger.debug("%s: not kept (%s)", file, error)
    return chosen


def _choose(reasoner: Reasoner, most: int) -> list[Example]:
    facts, graph = reasoner.run.facts, reasoner.graph
    held_out = np.concatenate([graph.valid, graph.test])
    held_out = held_out[facts.contains_each(*held_out.T)]
    if not len(held_out):
        return []
    tried = np.random.default_rng(0).permutation(len(held_out))[:TRIED]
    hidden = graph.adjacency(held_out[tried])
    numbers = np.flatnonzero(hidden.contains_each(*facts.triples.T))
    triples = facts.triples[removable(facts, numbers)]
    judge = reasoner.without(triples)
    answers = judge.candidates(triples[:, :2], judge.decoding(), k=1)
    degree = np.diff(facts.offsets)
    found = []
    for (head, relation, tail), best in zip(triples.tolist(), answers, strict=True):
        if best and best[0][0] == tail and len(facts.tails_of(head, relation)) <= FEW:
            frequent = np.mean(facts.triples[facts.triples[:, 1] == relation, 2] == tail)
            if _strength(best[0][1]) * (1 - float(frequent)) >= STRONG:
                found.append((int(degree[head]), head, relation, tail))
    chosen: dict[int, Example] = {}  # by relation
    heads = set()
    for _, head, relation, tail in sorted(found, reverse=True):
        if relation not in chosen and head not in heads:
            heads.add(head)
            edge = reasoner.edge((head, relation, tail))
            chosen[relation] = Example(edge.head, edge.relation, edge.tail)
    return list(chosen.values())[:most]


def _strength(answer: Answer) -> float:
    """How often the rule is true that leads to a confident answer over other entities; 0 if none does."""
    path = answer.evidence
    confident = answer.confidence is not None and answer.confidence >= CONFIDENT
    telling = confident and path.grade == "grounded" and len(path.edges) > 1
    return path.rule.confidence if telling and path.rule else 0.0
