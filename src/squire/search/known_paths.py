"""Paths to answers that the search did not reach, to show how they are connected to the query.

An answer may rank high by rules, frequency or similar entities, and a reader still wants to see a path to it.
`connect` samples known paths from the whole graph (along rules first, as in training). `complete` is for answers
that no known path reaches: one edge, from the query's head to a neighbour of the answer, is inferred. In both
cases a search constrained to these edges lets the model say which path is best, and how probable. Works on ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from squire.core.relations import inverse, is_inverse
from squire.graph.adjacency import Adjacency
from squire.paths.paths import EDGE, Paths
from squire.paths.sampling import sample_paths
from squire.rules.rules import ClosedIndex
from squire.search.decoding import PathRanking, decode
from squire.search.options import DecodingOptions, SearchEdges
from squire.search.trained import TrainedModel

PATHS_PER_ANSWER = 4
NEIGHBOURS, LINKS = 4, 3  # neighbours of an answer; relations tried to reach each of them


def connect(
    run: TrainedModel,
    rules: ClosedIndex,
    query: tuple[int, int],
    answers: Sequence[int],
    decoding: DecodingOptions,
) -> PathRanking | None:
    """Paths of known edges to these answers, and to other entities on the way; None if there are none."""
    paths = _sampled(run.facts, rules, query, answers, decoding.hops)
    return _search_along(run, query, _facts_of_paths(paths, run.facts.num_relations), decoding)


def known_paths(
    facts: Adjacency, rules: ClosedIndex, query: tuple[int, int], answers: Sequence[int], hops: int
) -> Iterator[tuple[int, list[int], list[int]]]:
    """Paths of known edges to these answers, other than the queried edge: the answer, edge types and entities."""
    paths = _sampled(facts, rules, query, answers, hops)
    for path in np.flatnonzero(paths.source != EDGE).tolist():
        length = int(paths.length[path])
        relations, entities = (column[path, :length].tolist() for column in (paths.relations, paths.entities))
        yield entities[-1], relations, entities


def _sampled(
    facts: Adjacency, rules: ClosedIndex, query: tuple[int, int], answers: Sequence[int], hops: int
) -> Paths:
    triples = np.array([(*query, answer) for answer in answers], np.int32).reshape(-1, 3)
    return sample_paths(facts, triples, rules, hops=hops, per_triple=PATHS_PER_ANSWER, seed=0, threads=1)


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
    edges = []
    for answer in answers:
        near = np.setdiff1d(facts.edges(answer)[1], [head, answer])
        degree = facts.offsets[near + 1] - facts.offsets[near]
        for neighbour in near[np.lexsort((near, -degree))][:NEIGHBOURS].tolist():
            edges += [(head, relation, neighbour) for relation in _links(facts, head, neighbour)]
            known = facts.relations_between(neighbour, answer).tolist()
            edges += [(neighbour, relation, answer) for relation in known]
    used = _as_facts(np.array(edges, np.int32).reshape(-1, 3), facts.num_relations)
    return _search_along(run, query, used, decoding)


def _links(facts: Adjacency, head: int, goal: int) -> list[int]:
    """Relations by which `head` may lead to `goal`: the most frequent ones into it, those of `head` first."""
    out, count = np.unique(facts.edges(goal)[0], return_counts=True)
    relations = inverse(out, facts.num_relations)
    is_new = ~np.isin(relations, facts.edges(head)[0])
    chosen: list[int] = relations[np.lexsort((relations, -count, is_new))][:LINKS].tolist()
    return chosen


def _search_along(
    run: TrainedModel, query: tuple[int, int], facts: np.ndarray, decoding: DecodingOptions
) -> PathRanking | None:
    """Search along these facts only.  facts: (fact, 3)"""
    if not len(facts):
        return None
    if decoding.constraint:
        facts = facts[_is_allowed(facts, decoding.constraint, run.device)]
    edges = SearchEdges.from_adjacency(
        Adjacency.build(facts, run.graph.num_entities, run.graph.num_relations), run.device
    )
    # The beam is wide enough that no answer's paths crowd out those of another.
    beam = max(decoding.beam, 2 * len(facts))
    constrained = replace(decoding, prune=0.0, beam=beam, constraint=edges)
    return next(decode(run.decoder, np.array([query], np.int32), constrained))


def _is_allowed(facts: np.ndarray, constraint: SearchEdges, device: torch.device) -> np.ndarray:
    """(fact, 3) -> (fact)"""
    heads, relations, tails = torch.from_numpy(facts.astype(np.int64)).to(device).unbind(1)
    row, allowed = constraint.entities(heads, relations)
    out = np.zeros(len(facts), bool)
    out[row[allowed == tails[row]].numpy(force=True)] = True
    return out


def _facts_of_paths(paths: Paths, num_relations: int) -> np.ndarray:
    """The facts that paths use in either direction, without the queried edge itself.  (fact, 3)"""
    relations, tails = paths.relations, paths.entities
    heads = np.concatenate([paths.queries[paths.row, :1], tails[:, :-1]], axis=1)
    used = (relations >= 0) & (paths.source != EDGE)[:, None]
    return _as_facts(np.stack([heads[used], relations[used], tails[used]], axis=1), num_relations)


def _as_facts(edges: np.ndarray, num_relations: int) -> np.ndarray:
    """Edges as facts, with the relation forwards.  (edge, 3) -> (fact, 3)"""
    head, relation, tail = edges.T
    backwards = is_inverse(relation, num_relations)
    facts = np.where(backwards, tail, head), relation % num_relations, np.where(backwards, head, tail)
    return np.stack(facts, axis=1).astype(np.int32)
