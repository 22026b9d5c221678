"""Walks of up to six steps that have learned which edge types lead to the answers of a question.

Sparse, deep graphs have answers that no rule of three atoms reaches. A walk chooses the next edge type by the
question and by the type of its last edge: a soft rule of any length. Its weights make it end at the answers of
some known facts, each hidden while it is asked about. They are found by expectation maximisation: count the
choices of all walks that lead to the answer, as often as they are probable; the new weight of a choice is how
often it was made, divided by how often it would have been made with weight 1.
"""

from __future__ import annotations

import numpy as np

from squire.core.parallel import in_order, thread_count
from squire.core.ragged import order_of
from squire.core.relations import both_directions
from squire.graph.adjacency import Adjacency, Ids
from squire.graph.folds import can_be_hidden
from squire.ranking import _walks as kernels
from squire.ranking._walks import WalkCounts, WalkGraph, WalkScratch, WalkWeights

STEPS = 6
LEAST_SHARE = 5e-4  # of the probability that is followed: a step looks at 2,000 edges at most
FACTS, ROUNDS = 2000, 4  # to learn from, in both directions
FACTS_AT_ONCE = 250
MOST_RELATIONS = 500  # weights are as many as pairs of edge types: 40 MB
USUAL = 0.1  # weight of a choice of which nothing is known; counts as one example


def initial_weights(num_relations: int) -> WalkWeights:
    """All choices weigh the same."""
    n = 2 * num_relations
    return WalkWeights(np.ones((n, n)), np.ones((n, n)), np.ones((n, n)), np.ones((n, n, 2)))


def fit_walks(adjacency: Adjacency, seed: int = 0, threads: int | None = None) -> WalkWeights | None:
    """The weights that lead to known facts; deterministic for a seed. None for too many relations."""
    if adjacency.num_relations > MOST_RELATIONS:
        return None
    weights = initial_weights(adjacency.num_relations)
    for _ in range(ROUNDS):
        weights = refit_walks(weights, adjacency, seed, threads)
    return weights


def refit_walks(
    weights: WalkWeights, adjacency: Adjacency, seed: int = 0, threads: int | None = None
) -> WalkWeights:
    """One more round. If the graph lacks some of the facts, what these had counted for is gone."""
    facts = both_directions(some_facts(adjacency, FACTS, seed), adjacency.num_relations)
    return updated(count_choices(facts, adjacency, weights, threads)) if len(facts) else weights


def some_facts(adjacency: Adjacency, most: int, seed: int) -> Ids:
    """Random facts whose ends have other edges; as many of each relation, as far as it has so many."""
    triples = adjacency.triples[can_be_hidden(adjacency, unlinked=False)]
    triples = triples[np.random.default_rng([seed, 23]).permutation(len(triples))]
    triples = triples[order_of(triples[:, 1], adjacency.num_relations)]
    first = np.searchsorted(triples[:, 1], np.arange(adjacency.num_relations))
    place = np.arange(len(triples)) - first[triples[:, 1]]  # among those of its relation
    return triples[np.sort(np.argsort(place, kind="stable")[:most])]


def count_choices(
    facts: Ids, adjacency: Adjacency, weights: WalkWeights, threads: int | None = None
) -> WalkCounts:
    """The choices of walks that lead to facts of the graph, in both directions.  facts: (fact, 3)"""
    graph = walk_graph(adjacency)
    edges = adjacency.positions(facts)
    n = 2 * adjacency.num_relations
    shapes = [(n, n)] * 6 + [(n, n, 2)] * 2

    def count(i: int) -> WalkCounts:
        counts = WalkCounts(*(np.zeros(shape) for shape in shapes))
        rows = slice(i * FACTS_AT_ONCE, (i + 1) * FACTS_AT_ONCE)
        score, touched = np.zeros(adjacency.num_entities), np.zeros(adjacency.num_entities, np.int64)
        scratch = new_walk_scratch(graph, STEPS + 2)
        kernels.count_choices(
            facts[rows], edges[rows], graph, weights, STEPS, LEAST_SHARE, scratch, score, touched, counts
        )
        return counts

    total = WalkCounts(*(np.zeros(shape) for shape in shapes))
    for counts in in_order(count, -(-len(facts) // FACTS_AT_ONCE), thread_count(threads)):
        for own, more in zip(total, counts, strict=True):
            own += more
    return total


def updated(counts: WalkCounts) -> WalkWeights:
    """The weights that the counts suggest."""
    return WalkWeights(
        (counts.start + USUAL) / (counts.start_chances + 1),
        (counts.step + USUAL) / (counts.step_chances + 1),
        (counts.after + 1) / (counts.after_chances + 1),
        (counts.stop + USUAL) / (counts.stop_chances + 1),
    )


def walk_graph(adjacency: Adjacency) -> WalkGraph:
    """The graph in the form that walks need."""
    runs = adjacency.runs
    return WalkGraph(runs.offsets, runs.heads, runs.relations, runs.starts, adjacency.end_runs, adjacency.back)


def new_walk_scratch(graph: WalkGraph, layers: int = 2) -> WalkScratch:
    """Zeroed working memory of one thread. With two layers, nothing can be counted."""
    runs, edges, most = len(graph.heads), len(graph.back), int(1 / LEAST_SHARE) + 2
    widest = int(np.diff(graph.offsets).max(initial=0))
    counting = layers > 2
    return WalkScratch(
        mass=np.zeros((layers, edges)),
        state=np.zeros((layers, runs)),
        edges=np.zeros((layers, min(edges, most)), np.int64),
        states=np.zeros((layers, min(runs, most)), np.int64),
        num_edges=np.zeros(layers, np.int64),
        num_states=np.zeros(layers, np.int64),
        chance=np.zeros(widest),
        possible=np.zeros(widest, np.int64),
        rest=np.zeros((layers * counting, edges * counting)),
        any_rest=np.zeros(runs * counting),
        back_share=np.zeros(runs * counting),
    )
