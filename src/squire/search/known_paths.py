"""Paths to answers that the search did not reach, to show how they are connected to the query.

An answer may rank high by rules, frequency or similar entities, and a reader still wants to see a path to it.
`connect` samples known paths from the whole graph (along rules first, as in training). `complete` is for answers
that no known path reaches: one edge, from the query's head to a neighbour of the answer, is inferred. In both
cases the model says which path is best, and how probable. Works on ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from squire.core.relations import inverse
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.paths.paths import EDGE, Paths
from squire.paths.sampling import sample_paths
from squire.rules.rules import ClosedIndex
from squire.search.decoding import PathRanking, rank_answers
from squire.search.evidence import edges_of
from squire.search.options import DecodingOptions, SearchEdges
from squire.search.scoring import score_paths
from squire.search.trained import LoadedRun, TrainedModel

PATHS_PER_ANSWER = 8
NEIGHBOURS, LINKS = 4, 3  # neighbours of an answer; relations tried to reach each of them
MOST_EDGES = 10_000  # of an answer that are looked at


Answers = Sequence[Sequence[int]]  # of each query


def connect(
    run: TrainedModel, rules: ClosedIndex, queries: Ids, answers: Answers, decoding: DecodingOptions
) -> PathRanking:
    """Paths of known edges to the answers of each query.  queries: (query, 2)"""
    parts = []
    for query, own in zip(queries.tolist(), answers, strict=True):
        paths = _sampled(run, rules, query, own, decoding.hops)
        tokens = np.stack([paths.relations, paths.entities], axis=2).reshape(len(paths), 2 * decoding.hops)
        parts.append(tokens[paths.source != EDGE])
    return _judged(run, queries, parts, decoding)


def known_paths(
    run: LoadedRun, rules: ClosedIndex, query: tuple[int, int], answers: Sequence[int], hops: int
) -> Iterator[tuple[int, list[int], list[int]]]:
    """Paths of known edges to these answers, other than the queried edge: the answer, edge types and entities."""
    paths = _sampled(run, rules, query, answers, hops)
    for path in np.flatnonzero(paths.source != EDGE).tolist():
        length = int(paths.length[path])
        relations, entities = (column[path, :length].tolist() for column in (paths.relations, paths.entities))
        yield entities[-1], relations, entities


def _sampled(
    run: LoadedRun, rules: ClosedIndex, query: tuple[int, int], answers: Sequence[int], hops: int
) -> Paths:
    triples = np.array([(*query, answer) for answer in answers], np.int32).reshape(-1, 3)
    return sample_paths(
        run.facts, triples, rules, hops=hops, per_triple=PATHS_PER_ANSWER, seed=0, threads=1, index=run.path_index
    )


def complete(run: TrainedModel, queries: Ids, answers: Answers, decoding: DecodingOptions) -> PathRanking:
    """Paths of two hops to the answers of each query, the first hop inferred and the second known.

    The first hop leads to one of the answer's neighbours of highest degree, by a relation that already leads there
    from elsewhere, preferably one that the head has.
    """
    parts = []
    for head, own in zip(queries[:, 0].tolist(), answers, strict=True):
        paths = list(_with_one_inferred(run.facts, head, own)) if decoding.hops > 1 else []
        tokens = np.full((len(paths), 2 * decoding.hops), -1)
        tokens[:, :4] = np.array(paths).reshape(-1, 4)[:, : tokens.shape[1]]
        parts.append(tokens)
    return _judged(run, queries, parts, decoding)


def _with_one_inferred(facts: Adjacency, head: int, answers: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Relation, neighbour, relation, answer."""
    for answer in answers:
        near = np.setdiff1d(facts.edges(answer)[1][:MOST_EDGES], [head, answer])
        degree = facts.offsets[near + 1] - facts.offsets[near]
        for neighbour in near[np.lexsort((near, -degree))][:NEIGHBOURS].tolist():
            known = facts.relations_between(neighbour, answer).tolist()
            for first in _links(facts, head, neighbour):
                yield from ((first, neighbour, last, answer) for last in known)


def _links(facts: Adjacency, head: int, goal: int) -> list[int]:
    """Relations by which `head` may lead to `goal`: the most frequent ones into it, those of `head` first."""
    out, count = np.unique(facts.edges(goal)[0], return_counts=True)
    relations = inverse(out, facts.num_relations)
    is_new = ~np.isin(relations, facts.edges(head)[0])
    chosen: list[int] = relations[np.lexsort((relations, -count, is_new))][:LINKS].tolist()
    return chosen


def _judged(
    run: TrainedModel, queries: Ids, parts: Sequence[Ids] | Sequence[Offsets], decoding: DecodingOptions
) -> PathRanking:
    """The allowed ones of these paths, with their probabilities.  parts: (path, 2 · hops) of each query"""
    query = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    paths = np.concatenate(parts, dtype=np.int64)
    if decoding.constraint and len(paths):
        allowed = _is_allowed(queries[query, 0], paths, decoding.constraint)
        query, paths = query[allowed], paths[allowed]
    found = score_paths(run.decoder, queries, query, paths, decoding.guidance)
    relations = torch.from_numpy(queries[:, 1].astype(np.int64)).to(run.device)
    return rank_answers(found, relations, replace(decoding, aggregate="sum"))


def _is_allowed(heads: Ids, paths: Ids | Offsets, constraint: SearchEdges) -> npt.NDArray[np.bool_]:
    """Whether all edges of a path are among those of the constraint.  (path), (path, 2 · hops) -> (path)"""
    edges = np.stack(edges_of(heads.astype(np.int64), paths.astype(np.int64)), axis=2)  # (path, hop, 3)
    there = edges[..., 1] >= 0
    starts, relations, tails = torch.from_numpy(edges[there]).to(constraint.tails.device).unbind(1)
    row, allowed = constraint.entities(starts, relations)
    is_known = np.zeros(len(starts), bool)
    is_known[row[allowed == tails[row]].numpy(force=True)] = True
    out = np.ones(there.shape, bool)
    out[there] = is_known
    return np.asarray(out.all(axis=1))
