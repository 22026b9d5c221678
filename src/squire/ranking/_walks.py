"""Kernels of walks that choose the next edge by its type, the type of the last one and the question.

A walk about (h, q) begins at h. At an entity it either stops or chooses one of the types of its edges, and then
any edge of this type. It never goes back along the edge that it came by. That it has come along an edge is kept at
the inverse of this edge, so the walks that have come to an entity by one type are a run of its edges: a state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from squire.core.compile import inner_kernel, int64, kernel
from squire.rules._walks import inverse

Array = Any  # numba infers the types


class WalkGraph(NamedTuple):
    """The edges by runs: those of one head and one type."""

    offsets: Array  # (entity + 1): the runs of each entity
    heads: Array  # (run)
    types: Array  # (run)
    starts: Array  # (run + 1): the edges of each run
    ends: Array  # (edge): the run that holds its inverse
    back: Array  # (edge): its inverse


class WalkWeights(NamedTuple):
    """How much each choice weighs. Its probability is its share among what is possible at the entity."""

    start: Array  # (question, type): the first edge
    step: Array  # (question, type): another edge; times `after`
    after: Array  # (last type, type)
    stop: Array  # (question, last type, 2): to stop at an entity that is no known tail of the question, or is one


class WalkCounts(NamedTuple):
    """Of walks that lead to the answer: how often each choice was made, and how often it would be by weight 1."""

    start: Array
    start_chances: Array
    step: Array
    step_chances: Array
    after: Array
    after_chances: Array
    stop: Array
    stop_chances: Array


class WalkScratch(NamedTuple):
    """Working memory, all zero between walks. A layer is a number of steps."""

    mass: Array  # (layer, edge): probability that the walk has come by this edge's inverse
    state: Array  # (layer, run): its sum over the run
    edges: Array  # (layer, most): where `mass` is not zero
    states: Array  # (layer, most): where `state` is not zero
    num_edges: Array  # (layer)
    num_states: Array  # (layer)
    chance: Array  # (type): of the runs of the entity that is looked at
    possible: Array  # (type): how many of their edges can be taken
    rest: Array  # (layer, edge): probability that a walk that has come so ends at the answer
    any_rest: Array  # (run): the same if the edge that it came by could be taken again
    back_share: Array  # (run): probability of each edge of the run


@inner_kernel
def _choose(
    x: int, came: int, q: int, hidden: int, graph: WalkGraph, weights: WalkWeights, s: WalkScratch
) -> tuple[float, float, int]:
    """Fills `chance` and `possible` for the runs of x; returns the total weight, that of stopping, and its kind.

    came: the state, or -1 at the start; hidden: an edge that is not there, nor its inverse, or -1
    """
    num_relations = len(weights.start) // 2
    first, last = graph.offsets[x], graph.offsets[x + 1]
    total, kind, asked = 0.0, int64(0), inverse(q, num_relations)
    for run in range(first, last):
        b, count = graph.types[run], graph.starts[run + 1] - graph.starts[run]
        if hidden >= 0:
            count -= (graph.ends[hidden] == run) + (graph.ends[graph.back[hidden]] == run)
        if b == asked and count > 0:
            kind = int64(1)
        count -= run == came
        weight = 0.0
        if count > 0:
            weight = weights.start[q, b]
            if came >= 0:
                weight = weights.step[q, b] * weights.after[inverse(graph.types[came], num_relations), b]
        s.possible[run - first], s.chance[run - first] = count, weight
        total += weight
    stop = 0.0
    if came >= 0:
        stop = weights.stop[q, inverse(graph.types[came], num_relations), kind]
        total += stop
    for i in range(last - first):
        s.chance[i] /= total
    return total, stop, kind


@inner_kernel
def walk(
    h: int, q: int, hidden: int, graph: WalkGraph, weights: WalkWeights, steps: int, least: float, keep: bool,
    s: WalkScratch, score: Array, touched: Array,
) -> int:  # fmt: skip
    """The probability that a walk ends at each entity but h; returns at how many.

    Shares up to `least` are not followed, so a step looks at 1 / least edges at most. Two layers are enough,
    unless they are to be kept.  score: (entity), touched: output, entities with a score
    """
    count = 0
    for k in range(steps + 1 if steps else 0):  # without any, there are no weights either
        here, there = k % len(s.mass), (k + 1) % len(s.mass)
        num_states, num_edges = 0, 0
        for i in range(s.num_states[here] if k else 1):
            came = int64(s.states[here, i]) if k else int64(-1)
            x = int64(graph.heads[came]) if k else h
            mass = s.state[here, came] if k else 1.0
            total, stop, _ = _choose(x, came, q, hidden, graph, weights, s)
            if stop > 0 and x != h:  # h may be an answer, but walks say nothing about it
                if score[x] == 0:
                    touched[count] = x
                    count += 1
                score[x] += mass * stop / total
            first = graph.offsets[x]
            for run in range(first, graph.offsets[x + 1] if k < steps else first):
                if s.possible[run - first] <= 0:
                    continue
                share = s.chance[run - first] / s.possible[run - first]
                if mass * share <= least:
                    continue
                for edge in range(graph.starts[run], graph.starts[run + 1]):
                    if hidden >= 0 and (edge == hidden or edge == graph.back[hidden]):
                        continue
                    part = (mass - s.mass[here, edge] if run == came else mass) * share
                    if part <= least:
                        continue
                    to, end = graph.back[edge], graph.ends[edge]
                    if s.mass[there, to] == 0:
                        s.edges[there, num_edges] = to
                        num_edges += 1
                    if s.state[there, end] == 0:
                        s.states[there, num_states] = end
                        num_states += 1
                    s.mass[there, to] += part
                    s.state[there, end] += part
        if k and not keep:
            _clear_layer(here, s)
        s.num_states[there], s.num_edges[there] = num_states, num_edges
    return count


@inner_kernel
def _clear_layer(layer: int, s: WalkScratch) -> None:
    for i in range(s.num_states[layer]):
        s.state[layer, s.states[layer, i]] = 0
    for i in range(s.num_edges[layer]):
        s.mass[layer, s.edges[layer, i]] = 0


@kernel
def count_choices(
    facts: Array,  # (fact, 3): in the graph, but hidden while they are asked about
    edges: Array,  # (fact): the edge of each
    graph: WalkGraph,
    weights: WalkWeights,
    steps: int,
    least: float,
    s: WalkScratch,  # steps + 2 layers
    score: Array,  # (entity): zero
    touched: Array,  # (entity)
    counts: WalkCounts,  # output
) -> float:
    """Count the choices of the walks that lead from h to t, as often as they are probable; returns how many do."""
    found = 0.0
    for i in range(len(facts)):
        h, q, t = int64(facts[i, 0]), int64(facts[i, 1]), int64(facts[i, 2])
        number = walk(h, q, int64(edges[i]), graph, weights, steps, least, True, s, score, touched)
        if score[t] > 0:  # never if t is h
            found += 1
            for k in range(steps, -1, -1):
                _count_layer(k, h, q, t, int64(edges[i]), graph, weights, steps, least, score[t], s, counts)
        for k in range(1, steps + 2):
            for j in range(s.num_edges[k]):
                s.rest[k, s.edges[k, j]] = 0
            _clear_layer(k, s)
        for j in range(number):
            score[touched[j]] = 0
    return found


@inner_kernel
def _count_layer(
    k: int, h: int, q: int, t: int, hidden: int, graph: WalkGraph, weights: WalkWeights, steps: int, least: float,
    total_score: float, s: WalkScratch, counts: WalkCounts,
) -> None:  # fmt: skip
    """The choices after k steps, given the `rest` after k + 1, and the rest after k."""
    num_relations = len(weights.start) // 2
    for i in range(s.num_states[k] if k else 1):
        came = int64(s.states[k, i]) if k else int64(-1)
        x, mass = (int64(graph.heads[came]), s.state[k, came]) if k else (h, 1.0)
        total, stop, kind = _choose(x, came, q, hidden, graph, weights, s)
        a = inverse(int64(graph.types[came]), num_relations) if k else int64(-1)
        rest, visits, back_share = 0.0, 0.0, 0.0
        if k and x == t:
            rest = stop / total
            visits = mass * rest / total_score
            counts.stop[q, a, kind] += visits
        first = graph.offsets[x]
        for run in range(first, graph.offsets[x + 1] if k < steps else first):
            if s.possible[run - first] <= 0:
                continue
            share = s.chance[run - first] / s.possible[run - first]
            if mass * share <= least:
                continue
            one, made = 0.0, 0.0
            for edge in range(graph.starts[run], graph.starts[run + 1]):
                if hidden >= 0 and (edge == hidden or edge == graph.back[hidden]):
                    continue
                after = s.rest[k + 1, graph.back[edge]]
                one += after
                made += (mass - s.mass[k, edge] if run == came else mass) * after
            rest += share * one
            made *= share / total_score
            b = graph.types[run]
            if k:
                counts.step[q, b] += made
                counts.after[a, b] += made
            else:
                counts.start[q, b] += made
            visits += made
            if run == came:
                back_share = share
        if visits > 0:
            each = visits / total
            for run in range(first, graph.offsets[x + 1]):
                if s.possible[run - first] > 0:
                    b = graph.types[run]
                    if k:
                        counts.step_chances[q, b] += each * weights.after[a, b]
                        counts.after_chances[a, b] += each * weights.step[q, b]
                    else:
                        counts.start_chances[q, b] += each
            if k:
                counts.stop_chances[q, a, kind] += each
        if k:
            s.any_rest[came], s.back_share[came] = rest, back_share
    for i in range(s.num_edges[k] if k else 0):
        edge = s.edges[k, i]
        came = graph.ends[graph.back[edge]]
        s.rest[k, edge] = s.any_rest[came] - s.back_share[came] * s.rest[k + 1, graph.back[edge]]
