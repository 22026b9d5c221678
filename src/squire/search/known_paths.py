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


def connect(
    run: TrainedModel,
    rules: ClosedIndex,
    query: tuple[int, int],
    answers: Sequence[int],
    decoding: DecodingOptions,
) -> PathRanking | None:
    """Paths of known edges to these answers; None if there are none."""
    paths = _sampled(run, rules, query, answers, decoding.hops)
    tokens = np.stack([paths.relations, paths.entities], axis=2).reshape(len(paths), -1)
    return _judged(run, query, tokens[paths.source != EDGE], decoding)


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


def complete(
    run: TrainedModel, query: tuple[int, int], answers: Sequence[int], decoding: DecodingOptions
) -> PathRanking | None:
    """Paths of two hops to these answers, the first inferred and the second known; None if there are none.

    The first hop leads to one of the answer's neighbours of highest degree, by a relation that already leads there
    from elsewhere, preferably one that the head has.
    """
    if decoding.hops < 2:
        return None
    head, facts = query[0], run.facts
    paths = []
    for answer in answers:
        near = np.setdiff1d(facts.edges(answer)[1], [head, answer])
        degree = facts.offsets[near + 1] - facts.offsets[near]
        for neighbour in near[np.lexsort((near, -degree))][:NEIGHBOURS].tolist():
            known = facts.relations_between(neighbour, answer).tolist()
            paths += [
                (first, neighbour, last, answer) for first in _links(facts, head, neighbour) for last in known
            ]
    tokens = np.full((len(paths), 2 * decoding.hops), -1)
    tokens[:, :4] = np.array(paths).reshape(-1, 4)
    return _judged(run, query, tokens, decoding)


def _links(facts: Adjacency, head: int, goal: int) -> list[int]:
    """Relations by which `head` may lead to `goal`: the most frequent ones into it, those of `head` first."""
    out, count = np.unique(facts.edges(goal)[0], return_counts=True)
    relations = inverse(out, facts.num_relations)
    is_new = ~np.isin(relations, facts.edges(head)[0])
    chosen: list[int] = relations[np.lexsort((relations, -count, is_new))][:LINKS].tolist()
    return chosen


def _judged(
    run: TrainedModel, query: tuple[int, int], paths: Ids | Offsets, decoding: DecodingOptions
) -> PathRanking | None:
    """The allowed ones of these paths, with their probabilities.  paths: (path, 2 · hops)"""
    if decoding.constraint and len(paths):
        paths = paths[_is_allowed(query[0], paths, decoding.constraint)]
    if not len(paths):
        return None
    found = score_paths(run.decoder, query, paths, decoding.guidance)
    return rank_answers(found, torch.tensor([query[1]], device=run.device), replace(decoding, aggregate="sum"))


def _is_allowed(head: int, paths: Ids | Offsets, constraint: SearchEdges) -> npt.NDArray[np.bool_]:
    """Whether all edges of a path are among those of the constraint.  (path, 2 · hops) -> (path)"""
    edges = np.stack(edges_of(np.full(len(paths), head), paths.astype(np.int64)), axis=2)  # (path, hop, 3)
    there = edges[..., 1] >= 0
    heads, relations, tails = torch.from_numpy(edges[there]).to(constraint.tails.device).unbind(1)
    row, allowed = constraint.entities(heads, relations)
    is_known = np.zeros(len(heads), bool)
    is_known[row[allowed == tails[row]].numpy(force=True)] = True
    out = np.ones(there.shape, bool)
    out[there] = is_known
    return np.asarray(out.all(axis=1))
