"""Paths to answers that a search did not reach: what links the question to them, if anything does.

An answer may rank high by rules, by frequency or by similar entities, and a reader still wants to see how it is
connected. `connect` draws known paths among all of the graph (rules first, as in training); `complete` is for
answers that no known path reaches: one edge, from the question's head to a neighbour of the answer, is inferred.
Both are judged by the same search, bound to their edges: the model says which is best, and how probable. Works on
ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from squire.core.relations import inverse, is_inverse
from squire.graph.adjacency import Adjacency
from squire.paths.paths import EDGE, Paths
from squire.paths.sampling import sample_paths
from squire.rules.rules import ClosedIndex
from squire.search.beam import Constraint
from squire.search.constraints import EdgeConstraint
from squire.search.decoding import DecodingOptions, PathRanking, decode
from squire.search.trained import TrainedModel

PATHS_EACH = 4
NEIGHBOURS, LINKS = 4, 3  # of an answer; relations by which each of them may be reached


def connect(
    run: TrainedModel,
    rules: ClosedIndex,
    query: tuple[int, int],
    answers: Sequence[int],
    decoding: DecodingOptions,
) -> PathRanking | None:
    """Paths of known edges to these answers, and to others that lie on them; None if there are none."""
    asked = np.array([(*query, answer) for answer in answers], np.int32).reshape(-1, 3)
    train = run.graph.train
    paths = sample_paths(train, asked, rules, hops=decoding.hops, per_triple=PATHS_EACH, seed=0, threads=1)
    return _along(run, query, _edges(paths, train.num_relations), decoding)


def complete(
    run: TrainedModel, query: tuple[int, int], answers: Sequence[int], decoding: DecodingOptions
) -> PathRanking | None:
    """Paths of two hops to these answers, the first inferred, the second known; None if there are none.

    The first arrives at one of the best known neighbours of an answer, by a relation that leads there already, if
    possible one that the head has.
    """
    if decoding.hops < 2:
        return None
    head, train = query[0], run.graph.train
    edges = []
    for answer in answers:
        near = np.setdiff1d(train.edges(answer)[1], [head, answer])
        degree = train.offsets[near + 1] - train.offsets[near]
        for neighbour in near[np.lexsort((near, -degree))][:NEIGHBOURS].tolist():
            edges += [(head, relation, neighbour) for relation in _links(train, head, neighbour)]
            known = train.relations_between(neighbour, answer).tolist()
            edges += [(neighbour, relation, answer) for relation in known]
    return _along(run, query, _facts(np.array(edges, np.int32).reshape(-1, 3), train.num_relations), decoding)


def _links(train: Adjacency, head: int, goal: int) -> list[int]:
    """Relations by which `head` may lead to `goal`: such as lead there from others, those that it has first."""
    out, count = np.unique(train.edges(goal)[0], return_counts=True)
    relations = inverse(out, train.num_relations)
    is_new = ~np.isin(relations, train.edges(head)[0])
    chosen: list[int] = relations[np.lexsort((relations, -count, is_new))][:LINKS].tolist()
    return chosen


def _along(
    run: TrainedModel, query: tuple[int, int], facts: np.ndarray, decoding: DecodingOptions
) -> PathRanking | None:
    """What the search finds if it may walk these facts only.  facts: (fact, 3)"""
    if not len(facts):
        return None
    if decoding.constraint:
        facts = facts[_may_be_walked(facts, decoding.constraint, run.device)]
    found = Adjacency.build(facts, run.graph.num_entities, run.graph.num_relations)
    # A beam so wide that no answer's paths crowd out those of another.
    beam = max(decoding.beam, 2 * len(facts))
    bound = replace(decoding, prune=0.0, beam=beam, constraint=EdgeConstraint.from_adjacency(found, run.device))
    return next(decode(run.decoder, np.array([query], np.int32), bound))


def _may_be_walked(facts: np.ndarray, constraint: Constraint, device: torch.device) -> np.ndarray:
    """(fact, 3) -> (fact)"""
    heads, relations, tails = torch.from_numpy(facts.astype(np.int64)).to(device).unbind(1)
    row, allowed = constraint.entities(heads, relations)
    out = np.zeros(len(facts), bool)
    out[row[allowed == tails[row]].numpy(force=True)] = True
    return out


def _edges(paths: Paths, num_relations: int) -> np.ndarray:
    """The facts that paths walk, whichever way; not those that are the queried edge.  (edge, 3)"""
    relations, tails = paths.relations, paths.entities
    heads = np.concatenate([paths.queries[paths.row, :1], tails[:, :-1]], axis=1)
    walked = (relations >= 0) & (paths.source != EDGE)[:, None]
    return _facts(np.stack([heads[walked], relations[walked], tails[walked]], axis=1), num_relations)


def _facts(edges: np.ndarray, num_relations: int) -> np.ndarray:
    """Edges as facts, with the relation forwards.  (edge, 3) -> (fact, 3)"""
    head, relation, tail = edges.T
    backwards = is_inverse(relation, num_relations)
    facts = np.where(backwards, tail, head), relation % num_relations, np.where(backwards, head, tail)
    return np.stack(facts, axis=1).astype(np.int32)
