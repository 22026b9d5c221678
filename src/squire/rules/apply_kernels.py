"""Answering a query by rules, only @njit. See `kernels` for the terms."""

from __future__ import annotations

from typing import Any

from numba import njit

from squire.rules.kernels import has_edge, lower_bound, reach, span

Array = Any


@njit(cache=True, nogil=True)
def apply_query(
    head: int,
    query: int,  # edge relation
    best: int,  # rules to keep for each answer
    closed_offsets: Array,  # ClosedIndex: (2R + 1), (entry, MAX_LENGTH), (entry), (entry)
    closed_body: Array,
    closed_trust: Array,
    closed_rule: Array,
    by_body: Array,  # (constant rule): rows of `constant`, sorted by head, body relation, body constant
    by_body_key: Array,  # (constant rule)
    by_target: Array,  # (constant rule): rows of `constant`, sorted by head, head constant
    by_target_key: Array,
    constant: Array,  # (constant rule, 5): head, body relation, head constant, body constant, rule
    constant_trust: Array,
    starts: Array,  # (edge relation, start), flat
    start_offsets: Array,
    offsets: Array,
    relations: Array,
    tails: Array,
    scratch: Array,  # (5, entity): seen, via, ends, reached, slot_of; the first and the last two start at -1
    token: int,  # above all earlier ones
    answers: Array,  # (entity): receives the answers
    top_rules: Array,  # (entity, best): receives their most trusted rules, then -1
    top_trust: Array,
) -> tuple[int, int]:
    """All answers that the rules give for (head, query, ?). Gives their number and the last token used."""
    num_relations, num_entities = (len(closed_offsets) - 1) // 2, len(offsets) - 1
    seen, via, ends, reached, slot_of = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    count = 0
    for entry in range(closed_offsets[query], closed_offsets[query + 1]):
        body, length = closed_body[entry], 0
        while length < len(body) and body[length] >= 0:
            length += 1
        token += 1
        num_ends, _ = reach(head, body, length, offsets, relations, tails, seen, via, token, ends)
        for end in range(num_ends):
            b = ends[end]
            low, high = span(offsets, relations, b, body[length - 1])
            for edge in range(low, high):
                y = tails[edge]
                if reached[y] != token and y != head and y != b and y != via[b]:
                    reached[y] = token
                    count = _offer(
                        y,
                        closed_rule[entry],
                        closed_trust[entry],
                        best,
                        count,
                        slot_of,
                        answers,
                        top_rules,
                        top_trust,
                    )

    # r(head,c) ← b(head,d): which bodies does the head satisfy?
    width = num_entities + 1
    previous = -1
    for edge in range(offsets[head], offsets[head + 1]):
        b, d = relations[edge], tails[edge]
        if d == head:
            continue
        for any_end in range(2):
            if any_end and b == previous:
                continue
            key = (query * 2 * num_relations + b) * width + (0 if any_end else d + 1)
            i = lower_bound(by_body_key, 0, len(by_body_key), key)
            while i < len(by_body_key) and by_body_key[i] == key:
                row = by_body[i]
                c = constant[row, 2]
                if c != head and (not any_end or b != query or _has_other(offsets, relations, tails, head, b, c)):
                    count = _offer(
                        c,
                        constant[row, 4],
                        constant_trust[row],
                        best,
                        count,
                        slot_of,
                        answers,
                        top_rules,
                        top_trust,
                    )
                i += 1
        previous = b

    # The mirror: r⁻¹(Y,head) ← b(Y,d): who satisfies the bodies of rules that predict the head?
    mirror = query + num_relations if query < num_relations else query - num_relations
    key = mirror * num_entities + head
    i = lower_bound(by_target_key, 0, len(by_target_key), key)
    while i < len(by_target_key) and by_target_key[i] == key:
        row = by_target[i]
        b, d = constant[row, 1], constant[row, 3]
        if d >= 0:
            low, high = span(offsets, relations, d, b + num_relations if b < num_relations else b - num_relations)
            source = tails
        else:
            low, high = start_offsets[b], start_offsets[b + 1]
            source = starts
        for j in range(low, high):
            y = source[j]
            if y == head or y == d:
                continue
            if d < 0 and not _has_other(offsets, relations, tails, y, b, head if b == mirror else -1):
                continue
            count = _offer(
                y, constant[row, 4], constant_trust[row], best, count, slot_of, answers, top_rules, top_trust
            )
        i += 1
    for i in range(count):
        slot_of[answers[i]] = -1
    return count, token


@njit(cache=True, nogil=True)
def _has_other(offsets: Array, relations: Array, tails: Array, head: int, relation: int, tail: int) -> bool:
    """Has `head` an edge of this relation to an entity that is neither itself nor `tail`?"""
    low, high = span(offsets, relations, head, relation)
    for edge in range(low, high):
        if tails[edge] != tail and tails[edge] != head:
            return True
    return False


@njit(cache=True, nogil=True)
def _offer(
    answer: int,
    rule: int,
    trust: float,
    best: int,
    count: int,
    slot_of: Array,
    answers: Array,
    top_rules: Array,
    top_trust: Array,
) -> int:
    """Note that a rule gives an answer: insert it among the answer's best, ties by the smaller rule number."""
    slot = slot_of[answer]
    if slot < 0:
        slot = count
        slot_of[answer], answers[slot] = slot, answer
        top_rules[slot, :], top_trust[slot, :] = -1, 0.0
        count += 1
    at = best
    while at > 0 and (
        top_rules[slot, at - 1] < 0
        or trust > top_trust[slot, at - 1]
        or (trust == top_trust[slot, at - 1] and rule < top_rules[slot, at - 1])
    ):
        at -= 1
    if at < best:
        for i in range(best - 1, at, -1):
            top_rules[slot, i], top_trust[slot, i] = top_rules[slot, i - 1], top_trust[slot, i - 1]
        top_rules[slot, at], top_trust[slot, at] = rule, trust
    return count


@njit(cache=True, nogil=True)
def ground(
    x: int, y: int, body: Array, length: int, offsets: Array, relations: Array, tails: Array, path: Array
) -> bool:
    """The first simple path from x to y along a body, written to `path` (the entities after x)."""
    if length == 1:
        path[0] = y
        return x != y and has_edge(offsets, relations, tails, x, body[0], y)
    low, high = span(offsets, relations, x, body[0])
    for edge in range(low, high):
        a = tails[edge]
        if a == x or a == y:
            continue
        path[0] = a
        if length == 2:
            if has_edge(offsets, relations, tails, a, body[1], y):
                path[1] = y
                return True
            continue
        low2, high2 = span(offsets, relations, a, body[1])
        for edge2 in range(low2, high2):
            b = tails[edge2]
            if b != x and b != y and b != a and has_edge(offsets, relations, tails, b, body[2], y):
                path[1], path[2] = b, y
                return True
    return False
