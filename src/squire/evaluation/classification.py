"""Triple classification: telling true facts from false ones, where a dataset has verified negatives.

A fact is called true if it scores above a threshold. Thresholds are chosen on valid, one for each relation that
has enough examples there. Facts are judged by train alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from squire.core.relations import both_directions
from squire.graph.adjacency import Ids
from squire.graph.graph import Graph
from squire.ranking.calibration import Bools, Floats
from squire.ranking.fusion import Fusion

ENOUGH = 20  # examples of a relation on valid for a threshold of its own


@dataclass(frozen=True)
class Classification:
    """How well one method tells true facts of test from false ones."""

    method: str
    accuracy: float
    f1: float
    facts: int
    negatives: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def has_negatives(graph: Graph) -> bool:
    """Whether valid and test have verified negatives."""
    return all(len(graph.negatives.get(split, ())) and len(graph.triples(split)) for split in ("valid", "test"))


def classify(fusion: Fusion, graph: Graph) -> tuple[Classification, ...]:
    """Classify the facts and negatives of test, by the fusion and by how frequent the ends are."""
    examples = {split: _examples(graph, split) for split in ("valid", "test")}
    methods: dict[str, Callable[[Ids], Floats]] = {
        "fused": fusion.log_odds,
        "frequency": partial(_frequency, graph),
    }
    out = []
    for method, score in methods.items():
        (valid, valid_truth), (test, truth) = examples["valid"], examples["test"]
        thresholds = fit_thresholds(score(valid), valid_truth, valid[:, 1], graph.num_relations)
        called = score(test) >= thresholds[test[:, 1]]
        right, both = np.mean(called == truth), np.sum(called & truth)
        f1 = 2 * both / max(int(called.sum() + truth.sum()), 1)
        out.append(Classification(method, float(right), float(f1), int(truth.sum()), int((~truth).sum())))
    return tuple(out)


def _examples(graph: Graph, split: str) -> tuple[Ids, Bools]:
    """Facts and negatives, (triple, 3), and which are true, (triple)."""
    facts, negatives = graph.triples(split), graph.negatives[split]
    truth = np.arange(len(facts) + len(negatives)) < len(facts)
    return np.concatenate([facts, negatives]), truth


def _frequency(graph: Graph, triples: Ids) -> Floats:
    """How often head and tail occur with the relation.  (triple)"""
    both = both_directions(triples, graph.num_relations)
    counts = [len(graph.train.tails_of(entity, edge_type)) for entity, edge_type, _ in both.tolist()]
    return np.asarray(np.log1p(counts).reshape(2, -1).sum(axis=0))


def fit_thresholds(score: Floats, is_true: Bools, relation: Ids, num_relations: int) -> Floats:
    """The threshold of each relation that gives the most right calls, or that of all.  (relation)"""
    out = np.full(num_relations, best_threshold(score, is_true))
    for one in np.unique(relation).tolist():
        own = relation == one
        if own.sum() >= ENOUGH:
            out[one] = best_threshold(score[own], is_true[own])
    return out


def best_threshold(score: Floats, is_true: Bools) -> float:
    """The threshold with the most right calls; in the middle between two scores.  (fact), (fact)"""
    order = np.argsort(score, kind="stable")
    ranked, truth = score[order], is_true[order]
    # Right calls if the first i facts are called false: false ones below, true ones above.
    right = np.concatenate([[0], np.cumsum(~truth)]) + truth.sum() - np.concatenate([[0], np.cumsum(truth)])
    allowed = np.concatenate([[True], ranked[1:] > ranked[:-1], [True]])  # equal scores are called alike
    best = int(np.argmax(np.where(allowed, right, -1)))
    if best == 0:
        return float(ranked[0] - 1)
    return float(ranked[-1] + 1) if best == len(ranked) else float((ranked[best - 1] + ranked[best]) / 2)
