"""Kernels that find the candidates of one query after the other, by votes, walks and look-ups.

h is the query's head, r its relation; the other terms are those of the table in `features`. Sums follow the order
of the edges, so that results are reproducible.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from squire.core.compile import inner_kernel, int64, kernel
from squire.ranking._features import (
    FeatureColumns,
    FeatureScratch,
    GraphIndex,
    Profile,
    RuleCandidates,
    Sizes,
    add_row,
    fill_connections,
    fill_context,
    fill_frequency,
    fill_rules,
    fill_tails_and_names,
    fill_votes,
    likeness,
)
from squire.ranking._walks import WalkGraph, WalkScratch, WalkWeights, walk
from squire.rules._walks import inverse, noted_stride, span

Array = Any  # numba infers the types


@kernel
def describe(
    queries: Array,  # (query, 2): head and edge type; fastest if sorted by edge type
    wanted: Array,  # (query): an entity that is a candidate in any case, or -1
    index: GraphIndex,
    rule: RuleCandidates,
    graph: WalkGraph,
    weights: WalkWeights,
    sizes: Sizes,
    at: FeatureColumns,
    s: FeatureScratch,
    walk_scratch: WalkScratch,
    offsets: Array,  # (query + 1): output, where the candidates of each query start
    candidates: Array,  # (capacity): output, sorted
    features: Array,  # (capacity, feature): output, must be zero
    sampled: Array,  # (query): input, is the query's rule evidence from a sample? output, is any of its evidence?
) -> None:
    """The candidates of all queries and their features."""
    relation = int64(-1)
    for query in range(len(queries)):
        h, r = int64(queries[query, 0]), int64(queries[query, 1])
        if r != relation:
            _leave(s)
            _enter(r, index, sizes, s)
            relation = r
        s.sampled[0] = sampled[query]
        num_voted, total, close_total = _vote(h, r, index, sizes, s)
        num_signed, signature_total = _vote_by_likeness(
            h, r, index, index.signature, sizes, sizes.power, s.row, s.signature_vote, s.touched[2],
            s.sampled,
        )  # fmt: skip
        num_named, words_total = _vote_by_likeness(
            h, r, index, index.words, sizes, sizes.words_power, s.words_row, s.words_vote, s.touched[5],
            s.sampled,
        )  # fmt: skip
        num_one, num_two = _walk(h, index, sizes, s)
        num_far = walk(
            h, r, int64(-1), graph, weights, sizes.walk_steps, sizes.walk_least, False, walk_scratch, s.far,
            s.touched[6],
        )  # fmt: skip
        _chances(query, rule, s)
        of_rules = rule.answers[rule.offsets[query] : rule.offsets[query + 1]]
        first = offsets[query]
        counts = (num_voted, num_signed, num_named, num_far)
        last = _list(h, r, int64(wanted[query]), of_rules, counts, index, sizes, s, first, candidates)
        offsets[query + 1] = last
        _sort(candidates, first, last)
        totals = (total, close_total, signature_total)
        for i in range(first, last):
            t, x = candidates[i], features[i]
            fill_frequency(t, r, index, x[at.frequency :])
            fill_rules(t, query, rule, x[at.rules :])
            fill_votes(t, totals, s, x[at.similar :])
            fill_connections(h, t, r, index, sizes, s, x[at.connections :])
            fill_context(h, r, index, x[at.context :])
        x = features[first:last]
        fill_tails_and_names(
            h, r, s.touched[5, :num_named], words_total, index, sizes, s, candidates[first:last],
            x[:, at.tails :], x[:, at.names :],
        )  # fmt: skip
        sampled[query] = s.sampled[0]
        _clear(s, num_voted, num_signed, num_one, num_two, num_named, num_far)
    _leave(s)


# ------------------------------------------------------------------------------------------------- the relation


@inner_kernel
def _enter(r: int, index: GraphIndex, sizes: Sizes, s: FeatureScratch) -> None:
    first, last = index.tail_offsets[r], index.tail_offsets[r + 1]
    for i in range(first, min(last, first + sizes.typical_tails)):
        t, count = index.tail[i], float(index.tail_count[i])
        add_row(t, count, index.signature, s.profile)
        add_row(t, count, index.words, s.words_profile)
    _normalise(s.profile)
    _normalise(s.words_profile)


@inner_kernel
def _normalise(row: Array) -> None:
    total = 0.0
    for i in range(len(row)):
        total += row[i] * row[i]
    if total > 0:
        norm = np.sqrt(total)
        for i in range(len(row)):
            row[i] /= norm


@inner_kernel
def _leave(s: FeatureScratch) -> None:
    for b in range(len(s.profile)):
        s.profile[b] = 0
    for word in range(len(s.words_profile)):
        s.words_profile[word] = 0


# ---------------------------------------------------------------------------------------------------- the votes


@inner_kernel
def _similar(h: int, r: int, index: GraphIndex, sizes: Sizes, s: FeatureScratch) -> int:
    """The similarity to h of entities with a common neighbour that have the relation; returns their number."""
    num_relations = len(index.loops) // 2
    similar = s.touched[0]
    count = 0
    first, last = index.offsets[h], index.offsets[h + 1]
    skip = noted_stride(last - first, sizes.edges, s.sampled)
    most = max(sizes.steps // max((last - first) // skip, 1), 1)  # entities that one neighbour brings
    for edge in range(first + h % skip, last, skip):
        weight = index.rarity[index.attribute[edge]]
        if weight == 0:
            continue
        b = index.relations[edge]
        low, high = span(index.offsets, index.relations, index.tails[edge], inverse(b, num_relations))
        step = noted_stride(high - low, most, s.sampled)
        for other in range(low + h % step, high, step):
            m = index.tails[other]
            if m != h:
                if s.similarity[m] == 0:
                    similar[count] = m
                    count += 1
                s.similarity[m] += step * skip * weight * index.scale[h] * index.scale[m]
    having = 0
    for i in range(count):
        m = similar[i]
        low, high = span(index.offsets, index.relations, m, r)
        if low < high:
            similar[having] = m
            having += 1
        else:
            s.similarity[m] = 0
    return having


@inner_kernel
def _vote(h: int, r: int, index: GraphIndex, sizes: Sizes, s: FeatureScratch) -> tuple[int, float, float]:
    """Entities that share neighbours with h vote for their tails of r; returns number of tails and weights."""
    similar = s.touched[0]
    count = _similar(h, r, index, sizes, s)
    close = int64(0)
    for i in range(count):
        close = keep_best(s.similarity[similar[i]], similar[i], sizes.voters, close, s.best_score, s.best)
    least = s.best_score[close - 1] if close else 0.0  # including all ties with the last
    total, close_total, num_voted = 0.0, 0.0, 0
    most = max(sizes.steps // max(count, 1), sizes.voters)
    for i in range(count):
        m = similar[i]
        weight = s.similarity[m]
        total += weight
        if weight >= least:
            close_total += weight
        low, high = span(index.offsets, index.relations, m, r)
        step = noted_stride(high - low, most, s.sampled)
        for edge in range(low + h % step, high, step):
            t = index.tails[edge]
            if s.vote[t] == 0:
                s.touched[1, num_voted] = t
                num_voted += 1
            s.vote[t] += step * weight
            if weight >= least:
                s.close_vote[t] += step * weight
        s.similarity[m] = 0
    return num_voted, total, close_total


@inner_kernel
def _vote_by_likeness(
    h: int, r: int, index: GraphIndex, profile: Profile, sizes: Sizes, power: int, row: Array, votes: Array,
    touched: Array, sampled: Array,
) -> tuple[int, float]:  # fmt: skip
    """The same by similarity of rows.  row: (item), votes: (entity), touched: output, entities with votes"""
    count, total = 0, 0.0
    if profile.offsets[h] == profile.offsets[h + 1]:
        return count, total
    add_row(h, 1.0, profile, row)
    first, last = index.head_offsets[r], index.head_offsets[r + 1]
    skip = noted_stride(last - first, sizes.voters_heard, sampled)
    most = max(sizes.steps // max((last - first) // skip, 1), sizes.voters)  # tails of one voter
    for i in range(first + h % skip, last, skip):
        m = index.head[i]
        if m == h:
            continue
        weight = skip * likeness(m, profile, row) ** power
        if weight == 0:
            continue
        total += weight
        low, high = span(index.offsets, index.relations, m, r)
        step = noted_stride(high - low, most, sampled)
        for edge in range(low + h % step, high, step):
            t = index.tails[edge]
            if votes[t] == 0:
                touched[count] = t
                count += 1
            votes[t] += step * weight
    add_row(h, 0.0, profile, row)
    return count, total


@inner_kernel
def _walk(h: int, index: GraphIndex, sizes: Sizes, s: FeatureScratch) -> tuple[int, int]:
    """Where a random walk from h is after one step and after two."""
    num_one, num_two = 0, 0
    degree = index.offsets[h + 1] - index.offsets[h]
    for edge in range(index.offsets[h], index.offsets[h + 1]):
        a = index.tails[edge]
        if s.one[a] == 0:
            s.touched[3, num_one] = a
            num_one += 1
        s.one[a] += 1 / degree
    skip = noted_stride(num_one, sizes.edges, s.sampled)
    most = max(sizes.steps // max(num_one // skip, 1), 1)  # edges of one neighbour
    for i in range(h % skip, num_one, skip):
        a = s.touched[3, i]
        low, high = index.offsets[a], index.offsets[a + 1]
        step = noted_stride(high - low, most, s.sampled)
        share = skip * step * s.one[a] / (high - low)
        for edge in range(low + h % step, high, step):
            b = index.tails[edge]
            if s.two[b] == 0:
                s.touched[4, num_two] = b
                num_two += 1
            s.two[b] += share
    return num_one, num_two


@inner_kernel
def _chances(query: int, rule: RuleCandidates, s: FeatureScratch) -> None:
    """The noisy-or of the rules of each answer."""
    for i in range(rule.offsets[query], rule.offsets[query + 1]):
        wrong = 1.0
        for j in range(rule.confidence.shape[1]):
            wrong *= 1 - rule.confidence[i, j]
        s.chance[rule.answers[i]] = 1 - wrong


@inner_kernel
def _clear(
    s: FeatureScratch, num_voted: int, num_signed: int, num_one: int, num_two: int, num_named: int, num_far: int
) -> None:
    for i in range(num_voted):
        s.vote[s.touched[1, i]] = 0
        s.close_vote[s.touched[1, i]] = 0
    for i in range(num_signed):
        s.signature_vote[s.touched[2, i]] = 0
    for i in range(num_one):
        s.one[s.touched[3, i]] = 0
    for i in range(num_two):
        s.two[s.touched[4, i]] = 0
    for i in range(num_named):
        s.words_vote[s.touched[5, i]] = 0
    for i in range(num_far):
        s.far[s.touched[6, i]] = 0


# ----------------------------------------------------------------------------------------------- the candidates


@inner_kernel
def _list(
    h: int, r: int, wanted: int, of_rules: Array, counts: tuple[int, int, int, int], index: GraphIndex,
    sizes: Sizes, s: FeatureScratch, count: int, out: Array,
) -> int:  # fmt: skip
    """The union of the best candidates of each source, without known answers, and the wanted one."""
    start = count
    low, high = span(index.offsets, index.relations, h, r)
    if sizes.drop_linked:
        low, high = index.offsets[h], index.offsets[h + 1]
    for edge in range(low, high):
        s.known[index.tails[edge]] = True
    if index.loops[r] > 0 and not s.known[h]:  # if r links entities to themselves, h may be the answer
        count = _take(h, s, count, out)
    named = 0
    for i in range(index.tail_offsets[r], index.tail_offsets[r + 1]):
        if named == sizes.frequency:
            break
        if not s.known[index.tail[i]]:
            count = _take(index.tail[i], s, count, out)
            named += 1
    count = _take_best(of_rules, len(of_rules), s.chance, sizes.rules, s, count, out)
    count = _take_best(s.touched[1], counts[0], s.vote, sizes.vote, s, count, out)
    count = _take_best(s.touched[2], counts[1], s.signature_vote, sizes.signature, s, count, out)
    count = _take_best(s.touched[5], counts[2], s.words_vote, sizes.words, s, count, out)
    count = _take_best(s.touched[6], counts[3], s.far, sizes.walk, s, count, out)
    if wanted >= 0:
        count = _take(wanted, s, count, out)
    for i in range(start, count):
        s.taken[out[i]] = False
    for edge in range(low, high):
        s.known[index.tails[edge]] = False
    return count


@inner_kernel
def _take(t: int, s: FeatureScratch, count: int, out: Array) -> int:
    if s.taken[t]:
        return count
    s.taken[t] = True
    out[count] = t
    return count + 1


@inner_kernel
def _take_best(
    named: Array, number: int, score: Array, most: int, s: FeatureScratch, count: int, out: Array
) -> int:
    """Add the best that are not known.  named: (number), score: (entity)"""
    best = int64(0)
    for i in range(number):
        t = int64(named[i])
        if not s.known[t]:
            best = keep_best(score[t], t, most, best, s.best_score, s.best)
    for i in range(best):
        count = _take(s.best[i], s, count, out)
    return count


@inner_kernel
def _sort(values: Array, first: int, last: int) -> None:
    """Sorts values[first:last], a few hundred ids (Shell sort): np.sort took a second to compile."""
    gap = last - first
    while gap > 1:
        gap = max(gap * 5 // 11, 1)
        for i in range(first + gap, last):
            value, at = values[i], i
            while at >= first + gap and values[at - gap] > value:
                values[at] = values[at - gap]
                at -= gap
            values[at] = value


@inner_kernel
def keep_best(score: float, what: int, most: int, count: int, scores: Array, kept: Array) -> int:
    """Insert into a list of at most `most`, best first, ties by smaller number; returns its new length."""
    if count == most:
        if most == 0 or score < scores[count - 1] or (score == scores[count - 1] and what > kept[count - 1]):
            return count
        count -= 1
    at = count
    while at > 0 and (score > scores[at - 1] or (score == scores[at - 1] and what < kept[at - 1])):
        scores[at], kept[at] = scores[at - 1], kept[at - 1]
        at -= 1
    scores[at], kept[at] = score, what
    return count + 1
