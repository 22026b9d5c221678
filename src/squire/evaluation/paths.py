"""How well the model ranks answers by its paths: beam search over all queries of a split, in blocks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from squire.evaluation.metrics import Signature
from squire.evaluation.queries import Asked
from squire.evaluation.ranking import Ranking
from squire.evaluation.ranks import realistic_rank
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.graph.graph import Graph
from squire.search.beam import Steps
from squire.search.decoding import Decoding, Ranked, decode
from squire.search.evidence import GRADES, grades, known_edges

FIRST = 10  # answers whose evidence is graded


def rank_by_paths(
    steps: Steps,
    graph: Graph,
    asked: Asked,
    how: Decoding,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> Ranking:
    """Filtered ranks with realistic ties; answers that no path reached tie behind all that were.

    `seed` is the one that the model was trained with, for the signature.
    """
    ranks: list[float] = []
    counts = np.zeros(len(GRADES), np.int64)
    for block in decode(steps, asked.queries[:, :2], how):
        queries = asked.queries[len(ranks) : len(ranks) + len(block)]
        ranks += ranks_of(block, queries, asked.known)
        counts += _count_grades(block, queries, graph)
        if progress:
            progress(len(ranks), len(asked.queries))
    return Ranking(paths_signature(asked, how, seed), asked.queries, np.array(ranks), counts)


def ranks_of(block: Ranked, queries: Ids, known: Adjacency) -> list[float]:
    """The rank of the right answer to each query of a block; `known` ones are no rivals.  queries: (query, 3)"""
    ranks = []
    for query, (head, relation, answer) in enumerate(queries.tolist()):
        own = block.of(query)
        scores = np.full(known.num_entities, -np.inf)
        scores[block.entity[own]] = block.score[own]
        ranks.append(realistic_rank(scores, answer, known.tails_of(head, relation)))
    return ranks


def paths_signature(asked: Asked, how: Decoding, seed: int, constraint: str = "") -> Signature:
    """Of figures that come from paths found this way; `seed` is the one of training."""
    return asked.signature(
        "paths",
        beam=str(how.beam),
        aggregation=how.aggregate + ("+edge-ends" if how.edge_ends else ""),
        known_share=f"{how.known_share:g}" if how.known_share else "",
        seed=str(seed),
        constraint=constraint or (how.constraint.name if how.constraint else ""),
        prune=f"{how.prune:g}" if how.prune else "",
    )


def _count_grades(block: Ranked, queries: Ids, graph: Graph) -> Offsets:
    """How the first new answers of each query are founded.  -> (grade)"""
    sizes = np.diff(block.offsets)
    of_query = np.repeat(np.arange(len(block)), sizes)
    asked = queries[of_query].astype(np.int64)  # (answer, 3)
    is_new = ~graph.train.contains_each(asked[:, 0], asked[:, 1], block.entity)
    before = np.append(0, np.cumsum(is_new))  # new answers before each
    place = before[:-1] - before[block.offsets[of_query]]
    shown = np.flatnonzero(is_new & (place < FIRST))
    best = block.best_path[shown]
    trail = block.trail[best]
    known = known_edges(graph.train, asked[shown, 0], trail)
    found = grades(known, asked[shown, 1], trail, block.hops[best])
    return np.bincount(found, minlength=len(GRADES))
