"""Kernels that apply rules to a query; see `_walks` for the terms."""

from __future__ import annotations

from typing import Any, NamedTuple

from squire.core.compile import inner_kernel, int64, kernel
from squire.rules._walks import Edges, Starts, edges_of, has_edge, inverse, lower_bound, noted_stride, reach

Array = Any


class ClosedRules(NamedTuple):
    """A `ClosedIndex` sorted by length and body within each head, so that bodies share their walks."""

    offsets: Array  # (2 * num_relations + 1)
    body: Array  # (entry, MAX_LENGTH)
    length: Array  # (entry)
    confidence: Array  # (entry): smoothed
    rule: Array  # (entry)


class ConstantRules(NamedTuple):
    """The constant rules, and the two orders in which they are looked up."""

    table: Array  # (constant rule, 5): head, body relation, head constant, body constant, rule
    confidence: Array  # (constant rule): smoothed
    by_body: Array  # (constant rule): rows of the table by head, body relation, body constant
    body_key: Array  # (constant rule): the same as one number, sorted
    by_target: Array  # (constant rule): rows of the table by head, head constant
    target_key: Array  # (constant rule): the same as one number, sorted


class ApplyScratch(NamedTuple):
    """Memory that is reused from query to query, zero at first."""

    seen: Array  # (entity)
    via: Array  # (entity)
    ends: Array  # (entity)
    reached: Array  # (entity)
    slot_of: Array  # (entity): 1 + its position among the answers; 0 between queries
    sampled: Array  # (1): whether rules of this query looked at a sample of the edges


class FoundAnswers(NamedTuple):
    """The answers of a query."""

    answers: Array  # (entity)
    rules: Array  # (entity, best): the rules of highest confidence, then -1
    confidence: Array  # (entity, best): smoothed


@kernel
def apply_query(
    head: int,
    query: int,  # edge type
    closed: ClosedRules,
    constants: ConstantRules,
    starts: Starts,
    edges: Edges,
    scratch: ApplyScratch,
    token: int,  # at least 0, and the largest in the scratch
    budget: int,  # steps; as it runs out, rules look at a sample of the edges
    found: FoundAnswers,
) -> tuple[int, int]:
    """Finds the answers of the rules to (head, query, ?). Gives their number and the last token used."""
    scratch.sampled[0] = False
    count, token = _by_closed(head, query, closed, edges, scratch, token, budget, found)
    num_relations = (len(closed.offsets) - 1) // 2
    count = _by_constants(head, query, num_relations, constants, edges, scratch, budget, count, found)
    count = _by_mirrors(head, query, num_relations, constants, starts, edges, scratch, budget, count, found)
    for i in range(count):
        scratch.slot_of[found.answers[i]] = 0
    return count, token


@inner_kernel
def _allowance(budget: int, spent: int) -> int:
    """The steps of the next rule: so many at first that hardly any rule is cut, and always some."""
    return max((budget - spent) // 16, 1000)


@inner_kernel
def _by_closed(
    head: int,
    query: int,
    closed: ClosedRules,
    edges: Edges,
    scratch: ApplyScratch,
    token: int,
    budget: int,
    found: FoundAnswers,
) -> tuple[int, int]:
    """r(head,Y) ← b1(head,A) ∧ …: the entities that the bodies lead to."""
    tails = edges.tails
    seen, via, ends, reached, slot_of, sampled = scratch
    count, num_ends = int64(0), 0
    walked, spent = int64(-1), int64(0)  # the entry whose walk is in `ends` and `via`; steps
    for entry in range(closed.offsets[query], closed.offsets[query + 1]):
        body, length = closed.body[entry], closed.length[entry]
        if walked < 0 or not _same_walk(closed, walked, entry):
            token += 1
            most = _allowance(budget, spent)
            num_ends, steps = reach(head, body, length, edges, seen, via, token, ends, most, sampled)
            walked, spent = entry, spent + steps
        token += 1
        most = _allowance(budget, spent)
        skip = noted_stride(num_ends, most, sampled)
        most = max(most // max(num_ends // skip, 1), 1)  # edges of one end
        for end in range(0, num_ends, skip):
            b = ends[end]
            low, high = edges_of(edges, b, body[length - 1])
            step = noted_stride(high - low, most, sampled)
            spent += 1 + (high - low) // step
            for edge in range(low, high, step):
                y = int64(tails[edge])
                if reached[y] != token and y != head and y != b and y != via[b]:
                    reached[y] = token
                    count = _offer(y, closed.rule[entry], closed.confidence[entry], slot_of, count, found)
    return count, token


@inner_kernel
def _same_walk(closed: ClosedRules, one: int, other: int) -> bool:
    """Whether two bodies differ only in their last hop."""
    if closed.length[one] != closed.length[other]:
        return False
    for hop in range(closed.length[one] - 1):
        if closed.body[one, hop] != closed.body[other, hop]:
            return False
    return True


@inner_kernel
def _by_constants(
    head: int,
    query: int,
    num_relations: int,
    constants: ConstantRules,
    edges: Edges,
    scratch: ApplyScratch,
    budget: int,
    count: int,
    found: FoundAnswers,
) -> int:
    """r(head,c) ← b(head,d): the rules whose body the head satisfies."""
    offsets, relations, tails, _ = edges
    slot_of, width, previous = scratch.slot_of, len(offsets), -1  # the key of a body's entity is + 1, or 0 for any
    most = max(budget // 64, 1000)  # look-ups take longer than steps
    skip = noted_stride(offsets[head + 1] - offsets[head], most, scratch.sampled)
    for edge in range(offsets[head], offsets[head + 1], skip):
        b, d = int64(relations[edge]), tails[edge]
        if d == head:
            continue
        for any_end in range(2):
            if any_end and b == previous:
                continue
            key = (query * 2 * num_relations + b) * width + (0 if any_end else d + 1)
            i = lower_bound(constants.body_key, 0, len(constants.body_key), key)
            while i < len(constants.body_key) and constants.body_key[i] == key:
                row = constants.by_body[i]
                c = constants.table[row, 2]
                if c != head and (not any_end or b != query or _has_other(edges, head, b, c)):
                    count = _offer(c, constants.table[row, 4], constants.confidence[row], slot_of, count, found)
                i += 1
        previous = b
    return count


@inner_kernel
def _by_mirrors(
    head: int,
    query: int,
    num_relations: int,
    constants: ConstantRules,
    starts: Starts,
    edges: Edges,
    scratch: ApplyScratch,
    budget: int,
    count: int,
    found: FoundAnswers,
) -> int:
    """r⁻¹(Y,head) ← b(Y,d): the entities that satisfy the body of a rule that predicts the head."""
    offsets, tails = edges.offsets, edges.tails
    mirror, spent = inverse(query, num_relations), int64(0)
    key = mirror * (len(offsets) - 1) + head
    i = lower_bound(constants.target_key, 0, len(constants.target_key), key)
    while i < len(constants.target_key) and constants.target_key[i] == key:
        row = constants.by_target[i]
        b, d = constants.table[row, 1], constants.table[row, 3]
        if d >= 0:
            low, high = edges_of(edges, d, inverse(b, num_relations))
            candidates = tails
        else:
            low, high = starts.offsets[b], starts.offsets[b + 1]
            candidates = starts.entities
        step = noted_stride(high - low, _allowance(budget, spent), scratch.sampled)
        spent += (high - low) // step
        for j in range(low, high, step):
            y = int64(candidates[j])
            if y == head or y == d:
                continue
            if d < 0 and not _has_other(edges, y, b, head if b == mirror else -1):
                continue
            count = _offer(y, constants.table[row, 4], constants.confidence[row], scratch.slot_of, count, found)
        i += 1
    return count


@kernel
def count_constant_support(facts: Array, constants: ConstantRules, edges: Edges, out: Array) -> None:
    """Adds to each constant rule how many facts it predicts.  facts: (fact, 3); out: (rule)"""
    for fact in range(len(facts)):
        x, r, c = int64(facts[fact, 0]), int64(facts[fact, 1]), int64(facts[fact, 2])
        if x == c:
            continue
        key = r * (len(edges.offsets) - 1) + c
        i = lower_bound(constants.target_key, 0, len(constants.target_key), key)
        while i < len(constants.target_key) and constants.target_key[i] == key:
            row = constants.by_target[i]
            b, d = constants.table[row, 1], constants.table[row, 3]
            if d >= 0:
                out[constants.table[row, 4]] += x != d and has_edge(edges, x, b, d)
            else:
                out[constants.table[row, 4]] += _has_other(edges, x, b, c if b == r else -1)
            i += 1


@inner_kernel
def _has_other(edges: Edges, head: int, relation: int, tail: int) -> bool:
    """Whether `head` has an edge of this relation to an entity other than itself and `tail`."""
    low, high = edges_of(edges, head, relation)
    for edge in range(low, high):
        if edges.tails[edge] != tail and edges.tails[edge] != head:
            return True
    return False


@inner_kernel
def _offer(answer: int, rule: int, confidence: float, slot_of: Array, count: int, found: FoundAnswers) -> int:
    """Inserts a rule among the best of an answer; ties go to the smaller rule number."""
    answers, top_rules, top_confidence = found
    best = top_rules.shape[1]
    slot = slot_of[answer] - 1
    if slot < 0:
        slot = count
        slot_of[answer], answers[slot] = slot + 1, answer
        top_rules[slot, :], top_confidence[slot, :] = -1, 0.0
        count += 1
    at = best
    while at > 0 and (
        top_rules[slot, at - 1] < 0
        or confidence > top_confidence[slot, at - 1]
        or (confidence == top_confidence[slot, at - 1] and rule < top_rules[slot, at - 1])
    ):
        at -= 1
    if at < best:
        for i in range(best - 1, at, -1):
            top_rules[slot, i], top_confidence[slot, i] = top_rules[slot, i - 1], top_confidence[slot, i - 1]
        top_rules[slot, at], top_confidence[slot, at] = rule, confidence
    return count


@kernel
def ground(x: int, y: int, body: Array, length: int, edges: Edges, path: Array) -> bool:
    """Finds the first simple path from x to y along a body; writes the entities after x to `path`."""
    if length == 1:
        path[0] = y
        return x != y and has_edge(edges, x, body[0], y)
    low, high = edges_of(edges, x, body[0])
    for edge in range(low, high):
        a = edges.tails[edge]
        if a == x or a == y:
            continue
        path[0] = a
        if length == 2:
            if has_edge(edges, a, body[1], y):
                path[1] = y
                return True
            continue
        low2, high2 = edges_of(edges, a, body[1])
        for edge2 in range(low2, high2):
            b = edges.tails[edge2]
            if b != x and b != y and b != a and has_edge(edges, b, body[2], y):
                path[1], path[2] = b, y
                return True
    return False
