"""Known paths to answers that a search did not reach: what links the question to them, if anything does.

An answer may rank high by rules, by frequency or by similar entities, and a reader still wants to see how it is
connected. Paths are drawn among all of the graph (rules first, as in training), then judged by the same search,
bound to their edges. Works on ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from squire.constraint import EdgeConstraint
from squire.decode import Decoding, Ranked, decode
from squire.graph.store import Adjacency
from squire.paths.paths import EDGE, Paths
from squire.paths.sample import sample_paths
from squire.rules.rule import ClosedIndex
from squire.run import Run

PATHS_EACH = 4


def connect(
    run: Run, rules: ClosedIndex, query: tuple[int, int], answers: Sequence[int], how: Decoding
) -> Ranked | None:
    """Paths of known edges to these answers, and to others that lie on them; None if there are none."""
    asked = np.array([(*query, answer) for answer in answers], np.int32).reshape(-1, 3)
    train = run.graph.train
    paths = sample_paths(train, asked, rules, hops=how.hops, per_triple=PATHS_EACH, seed=0, threads=1)
    edges = _edges(paths, train.num_relations)
    if not len(edges):
        return None
    found = Adjacency.build(edges, train.num_entities, train.num_relations)
    bound = replace(how, prune=0.0, constraint=EdgeConstraint.of(found, run.device))
    return next(decode(run.steps, np.array([query], np.int32), bound))


def _edges(paths: Paths, num_relations: int) -> np.ndarray:
    """The facts that paths walk, whichever way; not those that are the queried edge.  (edge, 3)"""
    relations, tails = paths.relations, paths.entities
    heads = np.concatenate([paths.queries[paths.row, :1], tails[:, :-1]], axis=1)
    walked = (relations >= 0) & (paths.source != EDGE)[:, None]
    head, relation, tail = heads[walked], relations[walked], tails[walked]
    backwards = relation >= num_relations
    facts = np.where(backwards, tail, head), relation % num_relations, np.where(backwards, head, tail)
    return np.stack(facts, axis=1).astype(np.int32)
