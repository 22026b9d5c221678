"""Ranks by the fusion, and the calibration of its rank scores for benchmark queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from squire.evaluation.queries import QuerySet
from squire.evaluation.ranks import Ranks, realistic_rank
from squire.graph.adjacency import Offsets
from squire.graph.graph import Graph
from squire.ranking.calibration import Bools, Floats, Reliability
from squire.ranking.fusion import FusedRanking, Fusion

SHOWN = (1, 10)  # calibration is reported for the first answer and for the first ten


@dataclass(frozen=True)
class Fused:
    """Ranks, and how reliable the rank scores of the first answers are."""

    ranking: Ranks
    reliability: dict[str, Reliability]  # of rank scores: "first 1", "first 10"


def rank_by_fusion(
    fusion: Fusion, graph: Graph, query_set: QuerySet, progress: Callable[[int, int], None] | None = None
) -> Fused:
    """Filtered ranks with realistic ties; entities that are not candidates tie behind all candidates."""
    ranks: list[float] = []
    shown: list[tuple[Floats, Bools]] = []  # rank score and truth of each query's first answers
    split = graph.known(query_set.split)
    is_new = np.zeros(len(query_set.queries), bool)  # repeated queries are counted once
    is_new[np.unique(query_set.queries[:, :2], axis=0, return_index=True)[1]] = True
    for block in fusion.rank(query_set.queries[:, :2]):
        first = len(ranks)
        queries = query_set.queries[first : first + len(block.lists)]
        is_true, counts = np.zeros((2, len(block.scores)), bool)  # (candidate): in the split; not a known fact
        for query, (head, relation, answer) in enumerate(queries.tolist()):
            own, known = block.lists.rows(query), query_set.filter.tails_of(head, relation)
            candidates = block.lists.candidates[own]
            is_true[own] = np.isin(candidates, split.tails_of(head, relation))
            counts[own] = is_true[own] | ~np.isin(candidates, known)
            scores = np.full(graph.num_entities, -np.inf)
            scores[candidates] = block.scores[own]
            ranks.append(realistic_rank(scores, answer, known))
        shown += _first(block, np.flatnonzero(counts), is_true, np.flatnonzero(is_new[first : len(ranks)]))
        if progress:
            progress(len(ranks), len(query_set.queries))
    aggregation = f"mlp{len(fusion.ranker.networks)}" + "+names" * fusion.info.use_names
    aggregation += "+model" * (fusion.pool is not None) + "+unlinked" * fusion.info.unlinked
    signature = query_set.signature("fused", aggregation=aggregation, seed=str(fusion.info.seed))
    return Fused(Ranks(signature, query_set.queries, np.array(ranks)), _reliability(shown))


def _first(
    block: FusedRanking, counts: Offsets, is_true: Bools, queries: Offsets
) -> Iterator[tuple[Floats, Bools]]:
    """Rank score and truth of the first answers of some queries; true means that the split has the fact.

    Other known answers are removed before rank scores are computed, as they are for ranks.
    counts: (candidate that counts); is_true: (candidate)
    """
    left = block.take(counts)
    truth = is_true[counts]
    for query in queries.tolist():
        own = left.lists.rows(query)
        order = np.argsort(-left.scores[own], kind="stable")[: max(SHOWN)]
        yield left.rank_score[own][order], truth[own][order]


def _reliability(shown: list[tuple[Floats, Bools]]) -> dict[str, Reliability]:
    out = {}
    for most in SHOWN:
        score, is_true = (np.concatenate([part[i][:most] for part in shown]) for i in range(2))
        out[f"first {most}"] = Reliability.from_answers(score, is_true)
    return out
