"""A small graph with its paths, for tests of batches, loss, model and training."""

from __future__ import annotations

import numpy as np

from squire.core.relations import both_directions
from squire.graph.adjacency import Adjacency
from squire.model.vocabulary import Vocabulary
from squire.paths.sampling import sample_paths
from squire.paths.tries import Tries, build_tries, unfold

ENTITIES, RELATIONS = 12, 3
VOCAB = Vocabulary(ENTITIES, RELATIONS)
Sample = tuple[tuple[int, int], tuple[int, ...]]  # query tokens, path tokens with <eos>


def small_graph(triples: int = 40, seed: int = 0) -> Adjacency:
    rng = np.random.default_rng(seed)
    columns = (rng.integers(0, size, triples) for size in (ENTITIES, RELATIONS, ENTITIES))
    return Adjacency.build(np.stack(list(columns), axis=1).astype(np.int32), ENTITIES, RELATIONS)


def small_tries(graph: Adjacency) -> Tries:
    return build_tries(sample_paths(graph, both_directions(graph.triples, RELATIONS), seed=0))


def samples_of(tries: Tries) -> dict[Sample, int]:
    """Every path of the training set as tokens, with its weight."""
    paths = unfold(tries)
    found: dict[Sample, int] = {}
    for query, relations, entities, weight in zip(*paths, strict=True):
        head, relation = tries.queries[query].tolist()
        tokens = [
            token
            for r, e in zip(relations.tolist(), entities.tolist(), strict=True)
            if r >= 0
            for token in (r + VOCAB.first_relation, e)
        ]
        found[(head, relation + VOCAB.first_relation), (*tokens, VOCAB.end)] = int(weight)
    return found
