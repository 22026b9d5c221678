"""Applying rules: the answers to `(head, relation, ?)`, the rules that give them, and the paths. Ids only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from squire.core.parallel import in_order, thread_count
from squire.core.ragged import offsets_from
from squire.core.relations import inverse
from squire.errors import SettingError
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.rules import _application as kernels
from squire.rules._walks import Starts
from squire.rules.edges import walked_edges
from squire.rules.rules import NONE, Rules, body_order, from_both_ends

Scores = npt.NDArray[np.float64]
QUERIES_AT_ONCE = 256
ANSWERS_AT_ONCE = 1_000_000  # with their rules, 60 to 120 MB
BUDGET = 2_000_000  # steps of a query: some 100 ms at most, which only hubs take


@dataclass(frozen=True)
class Candidates:
    """The answers to some queries, each with its rules of highest confidence."""

    offsets: Offsets  # (query + 1)
    answers: Ids  # (answer)
    rules: Ids  # (answer, best): positions in the rules, highest confidence first, then NONE
    smoothed_confidence: Scores  # (answer, best): of these rules, then 0
    sampled: npt.NDArray[np.bool_]  # (query): did rules look at a sample of a hub's edges?

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def rows(self, query: int) -> slice:
        return slice(int(self.offsets[query]), int(self.offsets[query + 1]))


@dataclass(frozen=True)
class Grounding:
    """One instance of a rule: a path of edges."""

    relations: tuple[int, ...]  # edge types
    entities: tuple[int, ...]  # one more than relations


class RuleEngine:
    """Applies rules to the queries of one graph."""

    def __init__(self, rules: Rules, adjacency: Adjacency, best: int = 5) -> None:
        constants = np.concatenate([rules.head_constant, rules.body_constant])
        if rules.num_relations != adjacency.num_relations or np.any(constants >= adjacency.num_entities):
            raise SettingError("the rules belong to another graph: this one lacks their relations or constants.")
        self.rules, self.adjacency, self.best = rules, adjacency, best
        self._closed = _closed(rules)
        self._constants = constant_rules(rules, adjacency)
        self._edges = walked_edges(adjacency)
        self._starts = Starts(*adjacency.starts)

    def answer(self, queries: Ids) -> Candidates:
        """The candidates of all queries, on one thread.  queries: (query, 2), head and edge type"""
        (found,) = self.answer_in_parts(queries, most=math.inf)
        return found

    def answer_in_parts(self, queries: Ids, most: float | None = None) -> Iterator[Candidates]:
        """The same, a part of the queries after the other: a question about a hub can have very many answers.

        most: answers after which a part ends.
        """
        most = ANSWERS_AT_ONCE if most is None else most
        n = self.adjacency.num_entities
        if np.any(queries < 0) or np.any(queries >= [n, 2 * self.adjacency.num_relations]):
            raise SettingError("queries contain ids that are not in the graph.")
        scratch = kernels.ApplyScratch(*(*np.zeros((5, n), np.int64), np.zeros(1, bool)))
        shape = (n, self.best)
        found = kernels.FoundAnswers(np.empty(n, np.int32), np.empty(shape, np.int32), np.empty(shape))
        parts, token, rows, previous, sampled = list[Any](), 0, 0, None, list[bool]()
        for head, relation in queries.tolist():
            if parts and (head, relation) == previous:  # hubs are asked about many times
                parts.append(parts[-1])
                sampled.append(sampled[-1])
            else:
                count, token = kernels.apply_query(
                    head, relation, self._closed, self._constants, self._starts, self._edges, scratch, token,
                    BUDGET, found,
                )  # fmt: skip
                order = np.argsort(found.answers[:count], kind="stable")
                parts.append(tuple(array[order] for array in found))
                sampled.append(bool(scratch.sampled[0]))
            previous, rows = (head, relation), rows + len(parts[-1][0])
            if rows >= most:
                yield _joined(parts, sampled, found)
                parts, sampled, rows = [], [], 0
        if parts or not len(queries):
            yield _joined(parts, sampled, found)

    def stream(self, queries: Ids, threads: int | None = None) -> Iterator[Candidates]:
        """The same for any number of queries, in order and in blocks, on several threads."""
        at_once = max(1, min(QUERIES_AT_ONCE, ANSWERS_AT_ONCE // max(self.adjacency.num_entities, 1)))

        def answer_block(i: int) -> Candidates:
            return self.answer(queries[i * at_once : (i + 1) * at_once])

        return in_order(answer_block, -(-len(queries) // at_once), thread_count(threads))

    def grounding(self, head: int, relation: int, answer: int, rule: int) -> Grounding | None:
        """One path by which a rule gives an answer. A closed rule's leads from head to answer."""
        rules = self.rules
        body = [b for b in rules.body[rule].tolist() if b != NONE]
        if rules.is_closed[rule]:
            if relation != rules.head[rule]:  # the query asks for the inverse: walk the mirror image
                body = [inverse(b, rules.num_relations) for b in reversed(body)]
            path = np.empty(len(body), np.int32)
            found = kernels.ground(head, answer, np.array(body, np.int32), len(body), self._edges, path)
            return Grounding(tuple(body), (head, *path.tolist())) if found else None
        forward = relation == rules.head[rule] and answer == rules.head_constant[rule]
        x, constant = (head, answer) if forward else (answer, head)
        ends = self.adjacency.tails_of(x, body[0])
        allowed = ends[(ends != x) & ((ends != constant) | (body[0] != rules.head[rule]))]
        if rules.body_constant[rule] != NONE:
            allowed = allowed[allowed == rules.body_constant[rule]]
        return Grounding((body[0],), (x, int(allowed[0]))) if len(allowed) else None


def _joined(parts: list[Any], sampled: list[bool], found: kernels.FoundAnswers) -> Candidates:
    """The answers of queries that follow each other."""
    offsets = offsets_from([len(part[0]) for part in parts])
    none = tuple(array[:0] for array in found)
    answers, rules, confidence = (np.concatenate(column) for column in zip(none, *parts, strict=True))
    return Candidates(offsets, answers, rules, confidence, np.array(sampled, bool))


def _closed(rules: Rules) -> kernels.ClosedRules:
    """Sorted so that bodies that differ only in their last hop are neighbours: they are walked together."""
    head, body, rule = from_both_ends(rules)
    order = np.lexsort((body_order(body, rules.num_relations), head))
    body, rule = body[order], rule[order]
    offsets = offsets_from(np.bincount(head, minlength=2 * rules.num_relations))
    length = np.sum(body != NONE, axis=1)
    return kernels.ClosedRules(offsets, body, length, rules.smoothed_confidence[rule], rule)


def constant_rules(rules: Rules, adjacency: Adjacency) -> kernels.ConstantRules:
    """Constant rules in two orders: by head and body, and by head and predicted constant."""
    which = np.flatnonzero(~rules.is_closed)
    columns = (rules.head, rules.body[:, 0], rules.head_constant, rules.body_constant)
    table = np.stack([*(column[which].astype(np.int64) for column in columns), which], axis=1)
    n, width = adjacency.num_entities, adjacency.num_entities + 1
    body_key = (table[:, 0] * 2 * rules.num_relations + table[:, 1]) * width + table[:, 3] + 1
    target_key = table[:, 0] * n + table[:, 2]
    by_body, by_target = np.argsort(body_key, kind="stable"), np.argsort(target_key, kind="stable")
    keys = by_body, body_key[by_body], by_target, target_key[by_target]
    return kernels.ConstantRules(table, rules.smoothed_confidence[which], *keys)


# --------------------------------------------------------------------------------------------------- aggregation


def noisy_or(candidates: Candidates) -> Scores:
    """The probability that at least one of the rules is right, assuming independence.  (answer)"""
    return np.asarray(1 - np.prod(1 - candidates.smoothed_confidence, axis=1))


def maximum(candidates: Candidates) -> Scores:
    """Ordinals by the best rule, ties broken by the next best, as AnyBURL does.  (answer)"""
    if not len(candidates.answers):
        return np.empty(0)
    ordinals = np.unique(candidates.smoothed_confidence, axis=0, return_inverse=True)[1]
    return np.asarray(ordinals.reshape(-1) + 1.0)
