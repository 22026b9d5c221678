"""Ranks by the model's paths: beam search over all queries, in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from squire.evaluation.metrics import Signature
from squire.evaluation.queries import QuerySet
from squire.evaluation.ranks import Ranks, realistic_rank
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.graph.graph import Graph
from squire.search.beam import Decoder
from squire.search.decoding import PathRanking, decode
from squire.search.evidence import GRADES, grades, known_edges
from squire.search.options import DecodingOptions

FIRST = 10  # answers per query whose evidence is graded


def rank_by_paths(
    decoder: Decoder,
    graph: Graph,
    query_set: QuerySet,
    decoding: DecodingOptions,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> Ranks:
    """Filtered ranks with realistic ties; answers that no path reaches tie behind all others.

    `seed` is the one of training, for the signature.
    """
    blocks = decode(decoder, query_set.queries[:, :2], decoding)
    return rank_blocks(blocks, graph, query_set, paths_signature(query_set, decoding, seed), progress)


def rank_blocks(
    blocks: Iterable[PathRanking],
    graph: Graph,
    query_set: QuerySet,
    signature: Signature,
    progress: Callable[[int, int], None] | None = None,
) -> Ranks:
    """The same for the answers of any search, in blocks of queries, with the grades of their evidence."""
    ranks: list[float] = []
    counts = np.zeros(len(GRADES), np.int64)
    for block in blocks:
        queries = query_set.queries[len(ranks) : len(ranks) + len(block)]
        ranks += ranks_of(block, queries, query_set.filter)
        counts += _count_grades(block, queries, graph)
        if progress:
            progress(len(ranks), len(query_set.queries))
    return Ranks(signature, query_set.queries, np.array(ranks), counts)


def ranks_of(block: PathRanking, queries: Ids, filter: Adjacency) -> list[float]:
    """The filtered rank of the right answer to each query of a block.  queries: (query, 3)"""
    ranks = []
    for query, (head, relation, answer) in enumerate(queries.tolist()):
        own = block.rows(query)
        scores = np.full(filter.num_entities, -np.inf)
        scores[block.entity[own]] = block.score[own]
        ranks.append(realistic_rank(scores, answer, filter.tails_of(head, relation)))
    return ranks


def paths_signature(query_set: QuerySet, decoding: DecodingOptions, seed: int, constraint: str = "") -> Signature:
    """The signature of figures from paths; `seed` is the one of training."""
    pooled = decoding.aggregate == "pool"
    return query_set.signature(
        "paths",
        beam=str(decoding.beam),
        aggregation=decoding.aggregate
        + ("+edge-ends" if decoding.edge_ends and not pooled else "")
        + ("+names" if decoding.names else "")
        + ("+unlinked" if decoding.unlinked and pooled else ""),
        known_share=f"{decoding.known_share:g}" if decoding.known_share and not pooled else "",
        edge_weight=f"{decoding.edge_weight:g}" if pooled else "",
        seed=str(seed),
        constraint=constraint or (decoding.constraint.name if decoding.constraint else ""),
        prune=f"{decoding.prune:g}" if decoding.prune else "",
    )


def _count_grades(block: PathRanking, queries: Ids, graph: Graph) -> Offsets:
    """Counts of the grades of evidence of each query's first new answers.  -> (grade)"""
    sizes = np.diff(block.offsets)
    of_query = np.repeat(np.arange(len(block)), sizes)
    query = queries[of_query].astype(np.int64)  # (answer, 3)
    is_new = ~graph.train.contains_each(query[:, 0], query[:, 1], block.entity)
    before = np.append(0, np.cumsum(is_new))  # new answers before each
    place = before[:-1] - before[block.offsets[of_query]]
    shown = np.flatnonzero(is_new & (place < FIRST))
    best = block.best_path[shown]
    path_ids = block.paths[best]
    known = known_edges(graph.train, query[shown, 0], path_ids)
    found = grades(known, query[shown, 1], path_ids, block.hops[best])
    return np.bincount(found, minlength=len(GRADES))
