"""Kernels that compute the features of a candidate, one source after the other, and the tuples that kernels share.

h is the query's head, r its relation, t the candidate. `x` starts at the first feature of the source and is filled
in the order of the table in `features`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from squire.core.compile import inner_kernel, int64
from squire.rules._walks import lower_bound, noted_stride, span

Array = Any  # numba infers the types


class Profile(NamedTuple):
    """The weighted items (relations, words) of each entity, as a row of norm 1."""

    offsets: Array  # (entity + 1)
    item: Array  # (entity, item), flat
    weight: Array  # (entity, item), flat
    size: int  # number of distinct items


class GraphIndex(NamedTuple):
    """A graph in the form that votes and walks need."""

    offsets: Array  # (entity + 1): an `Adjacency`
    relations: Array  # (edge)
    tails: Array  # (edge)
    attribute: Array  # (edge): its relation and tail as one number
    rarity: Array  # (attribute): squared; 0 if only one entity has it
    scale: Array  # (entity): 1 / the norm of its attributes
    signature: Profile  # the edge types of each entity
    words: Profile  # the words of its name
    tail_offsets: Array  # (edge type + 1)
    tail: Array  # (edge type, tail), flat: the most frequent first
    tail_count: Array  # (edge type, tail), flat
    tail_above: Array  # (edge type, tail), flat: how many are more frequent
    tail_by_id: Array  # (edge type, tail), flat: the same tails by id
    tail_place: Array  # (edge type, tail), flat: where each of these is in `tail`
    head_offsets: Array  # (edge type + 1)
    head: Array  # (edge type, head), flat
    facts: Array  # (edge type)
    loops: Array  # (edge type): share of its facts that link an entity to itself


class RuleCandidates(NamedTuple):
    """The answers of rules, with the best rules of each."""

    offsets: Array  # (query + 1)
    answers: Array  # (answer), sorted within a query
    rules: Array  # (answer, best)
    confidence: Array  # (answer, best): smoothed
    kind: Array  # (rule)


class Sizes(NamedTuple):
    """How many candidates each source proposes, and how votes are weighted."""

    frequency: int
    rules: int
    vote: int
    signature: int
    words: int
    walk: int
    voters: int
    power: int  # exponent of the similarity of signatures, which is high for most pairs
    words_power: int  # exponent of the similarity of names
    own_tails: int
    least: float  # added to the probability of a walk
    drop_linked: bool
    edges: int  # of one entity that are looked at
    voters_heard: int  # of each vote
    steps: int  # that a vote or a walk may take: beyond it, a sample of the edges counts for all
    typical_tails: int  # the most frequent tails of a relation, which make its profile
    walk_steps: int
    walk_least: float  # probability of a walk that is followed


class FeatureColumns(NamedTuple):
    """The first column of each source."""

    frequency: int
    rules: int
    similar: int
    connections: int
    tails: int
    names: int
    context: int


class FeatureScratch(NamedTuple):
    """Working memory, all zero between queries except for what depends on the relation only."""

    profile: Array  # (edge type): the mean signature of the relation's tails, of norm 1
    words_profile: Array  # (word): the same for their names
    taken: Array  # (entity): is it a candidate?
    known: Array  # (entity): is it a known answer, and so no candidate?
    chance: Array  # (entity): noisy-or of its rules
    similarity: Array  # (entity)
    vote: Array  # (entity)
    close_vote: Array  # (entity)
    signature_vote: Array  # (entity)
    words_vote: Array  # (entity)
    one: Array  # (entity): probability that a walk is there after one step
    two: Array  # (entity): after two steps
    far: Array  # (entity): probability that a walk that was learned ends there
    wanted: Array  # (attribute): mean weight over the tails that h has
    wanted_signature: Array  # (edge type)
    wanted_words: Array  # (word)
    voted_words: Array  # (word): of the tails voted for by name
    row: Array  # (edge type): the signature of h
    words_row: Array  # (word): the name of h
    touched: Array  # (7, entity): where similarity, vote, signature_vote, one, two, words_vote and far are not 0
    best: Array  # (most)
    best_score: Array  # (most)
    sampled: Array  # (1): was a sample of the edges looked at, for this query?


@inner_kernel
def add_row(entity: int, share: float, profile: Profile, to: Array) -> None:
    """Add a share of an entity's row; a share of 0 sets its items to 0."""
    for j in range(profile.offsets[entity], profile.offsets[entity + 1]):
        b = profile.item[j]
        to[b] = to[b] + share * profile.weight[j] if share else 0.0


@inner_kernel
def likeness(entity: int, profile: Profile, row: Array) -> float:
    """The inner product of an entity's row and another row.  row: (item)"""
    total = 0.0
    for j in range(profile.offsets[entity], profile.offsets[entity + 1]):
        total += row[profile.item[j]] * profile.weight[j]
    return total


@inner_kernel
def fill_frequency(t: int, r: int, index: GraphIndex, x: Array) -> None:
    first, last = index.tail_offsets[r], index.tail_offsets[r + 1]
    x[1] = np.log1p(last - first)
    at = lower_bound(index.tail_by_id, first, last, t)
    if at < last and index.tail_by_id[at] == t:
        i = index.tail_place[at]
        x[0] = np.log1p(index.tail_count[i])
        x[1] = np.log1p(index.tail_above[i])
        x[2] = index.tail_count[i] / index.facts[r]
    x[3] = np.log1p(index.offsets[t + 1] - index.offsets[t])


@inner_kernel
def fill_rules(t: int, query: int, rule: RuleCandidates, x: Array) -> None:
    last = rule.offsets[query + 1]
    i = lower_bound(rule.answers, rule.offsets[query], last, t)
    if i == last or rule.answers[i] != t:
        return
    wrong = 1.0
    for j in range(rule.confidence.shape[1]):
        confidence = rule.confidence[i, j]
        if rule.rules[i, j] < 0:
            break
        wrong *= 1 - confidence
        if j < 5:
            x[0] = 1 - wrong
            x[2 + j] = confidence
        x[7] += 1
        x[8] += confidence
        kind = rule.kind[rule.rules[i, j]]
        x[9 + kind] = max(x[9 + kind], confidence)
        x[14 + kind] += 1
    x[1] = 1 - wrong


@inner_kernel
def fill_votes(t: int, totals: tuple[float, float, float], s: FeatureScratch, x: Array) -> None:
    # A constant is added to the sums, so that a single, hardly similar voter does not decide.
    x[0] = s.vote[t]
    x[1] = s.vote[t] / (totals[0] + 1e-3)
    x[2] = s.close_vote[t] / (totals[1] + 1e-3)
    x[3] = s.signature_vote[t] / (totals[2] + 1e-6)


@inner_kernel
def fill_connections(h: int, t: int, r: int, index: GraphIndex, sizes: Sizes, s: FeatureScratch, x: Array) -> None:
    degree = index.offsets[h + 1] - index.offsets[h]
    three = 0.0  # walked backwards from t: the graph has every edge in both directions
    low, high = index.offsets[t], index.offsets[t + 1]
    step = noted_stride(high - low, sizes.edges, s.sampled)
    for edge in range(low + t % step, high, step):
        b = index.tails[edge]
        if s.two[b] > 0:
            three += step * s.two[b] / (index.offsets[b + 1] - index.offsets[b])
    x[0] = np.rint(s.one[t] * degree)
    x[1] = np.log(s.two[t] + sizes.least)
    x[2] = np.log(three + sizes.least)
    x[3] = t == h
    x[4] = index.loops[r] if t == h else 0.0
    x[5] = np.log(s.far[t] + sizes.least)


@inner_kernel
def fill_tails_and_names(
    h: int, r: int, voted: Array, words_total: float, index: GraphIndex, sizes: Sizes, s: FeatureScratch,
    candidates: Array, x: Array, y: Array,
) -> None:  # fmt: skip
    """voted: (tail with a vote by name); x, y: (candidate, feature)"""
    low, high = span(index.offsets, index.relations, h, r)
    high = min(high, low + sizes.own_tails)
    for i in range(low, high):
        _want(int64(index.tails[i]), 1 / (high - low), index, sizes, s)
    add_row(h, 1.0, index.words, s.words_row)
    for t in voted:
        add_row(t, s.words_vote[t], index.words, s.voted_words)
    for i in range(len(candidates)):
        t = candidates[i]
        alike = 0.0
        if low < high:
            first, last = index.offsets[t], index.offsets[t + 1]
            step = noted_stride(last - first, sizes.edges, s.sampled)
            for edge in range(first + t % step, last, step):
                alike += step * s.wanted[index.attribute[edge]]
        x[i, 0] = alike * index.scale[t]
        x[i, 1] = likeness(t, index.signature, s.wanted_signature)
        x[i, 2] = likeness(t, index.signature, s.profile)
        y[i, 0] = s.words_vote[t]
        y[i, 1] = s.words_vote[t] / (words_total + 1e-3)
        y[i, 2] = likeness(t, index.words, s.voted_words) / (words_total + 1e-3)
        y[i, 3] = likeness(t, index.words, s.words_row)
        y[i, 4] = likeness(t, index.words, s.wanted_words)
        y[i, 5] = likeness(t, index.words, s.words_profile)
    add_row(h, 0.0, index.words, s.words_row)
    for t in voted:
        add_row(t, 0.0, index.words, s.voted_words)
    for i in range(low, high):
        _want(int64(index.tails[i]), 0.0, index, sizes, s)


@inner_kernel
def _want(tail: int, share: float, index: GraphIndex, sizes: Sizes, s: FeatureScratch) -> None:
    """Add a share of a tail's rows to the wanted ones; a share of 0 sets its items to 0."""
    low, high = index.offsets[tail], index.offsets[tail + 1]
    step = noted_stride(high - low, sizes.edges, s.sampled)
    for edge in range(low + tail % step, high, step):
        a = index.attribute[edge]
        s.wanted[a] = s.wanted[a] + step * share * index.rarity[a] * index.scale[tail] if share else 0.0
    add_row(tail, share, index.signature, s.wanted_signature)
    add_row(tail, share, index.words, s.wanted_words)


@inner_kernel
def fill_context(h: int, r: int, index: GraphIndex, x: Array) -> None:
    low, high = span(index.offsets, index.relations, h, r)
    heads = index.head_offsets[r + 1] - index.head_offsets[r]
    x[0] = np.log1p(index.offsets[h + 1] - index.offsets[h])
    x[1] = high - low
    x[2] = np.log1p(index.facts[r])
    x[3] = np.log1p(index.tail_offsets[r + 1] - index.tail_offsets[r])
    x[4] = index.facts[r] / max(heads, 1)
