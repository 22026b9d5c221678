"""The rows that every result table carries: a relation's tail frequency, and the rules.

No test triple influences a score: frequencies and rules come from train, the other splits only filter.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from squire.errors import SettingError
from squire.evaluate.metrics import Metrics, Signature
from squire.evaluate.ranks import realistic_rank
from squire.graph.graph import SPLITS, Graph
from squire.graph.store import Ids
from squire.rules.apply import Candidates, RuleEngine, maximum, noisy_or

Scores = npt.NDArray[np.float64]
Aggregate = Callable[[Candidates], Scores]
AGGREGATES: dict[str, Aggregate] = {"max": maximum, "noisy-or": noisy_or}


def queries_of(graph: Graph, split: str, side: str) -> Ids:
    """The (head, edge relation, answer) to ask; for heads the inverse relation is asked.  (query, 3)"""
    triples = graph.triples(split)
    if side == "tail":
        return triples
    if side != "both":
        raise SettingError(f"--side {side}: expected tail or both.")
    inverse = triples[:, ::-1] + np.array([0, graph.num_relations, 0], np.int32)
    return np.concatenate([triples, inverse])


class TailFrequency:
    """How often each entity is the tail of a relation in train: the prior that a model must beat."""

    def __init__(self, graph: Graph) -> None:
        train = graph.train
        order = np.lexsort((train.tails, train.relations))
        self._tails = train.tails[order]
        self._offsets = np.searchsorted(train.relations[order], np.arange(2 * graph.num_relations + 1))
        self._num_entities = graph.num_entities

    def __call__(self, relation: int) -> Scores:
        """The share of each entity among the relation's tails.  (entity)"""
        own = self._tails[self._offsets[relation] : self._offsets[relation + 1]]
        counts = np.bincount(own, minlength=self._num_entities)
        return np.asarray(counts / max(len(own), 1))


def evaluate_frequency(
    graph: Graph, split: str, side: str = "tail", known_in: tuple[str, ...] = SPLITS
) -> Metrics:
    """The frequency row, filtered by what is known in these splits."""
    frequency, known = TailFrequency(graph), graph.known(*known_in)
    queries = queries_of(graph, split, side)
    ranks = np.empty(len(queries))
    for i, (head, relation, answer) in enumerate(queries.tolist()):
        ranks[i] = realistic_rank(frequency(relation), answer, known.tails_of(head, relation))
    return Metrics.of(ranks, Signature(graph.name, split, side, "frequency", filter="+".join(known_in)))


def evaluate_rules(
    graph: Graph,
    engine: RuleEngine,
    split: str,
    side: str = "tail",
    aggregate: str = "noisy-or",
    progress: Callable[[int, int], None] | None = None,
) -> Metrics:
    """The rules row: answers by their rules; ties, and what no rule reaches, by tail frequency."""
    if aggregate not in AGGREGATES:
        raise SettingError(f"--aggregate {aggregate}: expected {' or '.join(AGGREGATES)}.")
    frequency, known = TailFrequency(graph), graph.known(*SPLITS)
    queries = queries_of(graph, split, side)
    ranks: list[float] = []
    for candidates in engine.stream(queries[:, :2]):
        scores = _ordinals(AGGREGATES[aggregate](candidates))
        for query in range(len(candidates)):
            head, relation, answer = queries[len(ranks)].tolist()
            own = candidates.of(query)
            row = frequency(relation) / 2  # below 1, the distance of two rule scores
            row[candidates.answers[own]] += scores[own]
            ranks.append(realistic_rank(row, answer, known.tails_of(head, relation)))
        if progress:
            progress(len(ranks), len(queries))
    signature = Signature(graph.name, split, side, "rules+frequency", aggregation=f"{aggregate}{engine.best}")
    return Metrics.of(np.array(ranks), signature)


def _ordinals(scores: Scores) -> Scores:
    """1, 2, 3 … in the order of the scores; equal stay equal."""
    return np.unique(scores, return_inverse=True)[1].astype(np.float64) + 1
