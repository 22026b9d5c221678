"""Which answers a rule set gives to `(head, relation, ?)`, by which rules, along which path.

Works on ids and arrays. How answers are ranked among others, and against what, is the business of evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from squire.core.parallel import thread_count
from squire.errors import SettingError
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.rules import _application as kernels
from squire.rules._walks import Edges, Starts
from squire.rules.rules import NONE, ClosedIndex, Rules

Scores = npt.NDArray[np.float64]
QUERIES_AT_ONCE = 256


@dataclass(frozen=True)
class Candidates:
    """The answers to some queries, each with its most trusted rules."""

    offsets: Offsets  # (query + 1)
    answers: Ids  # (answer)
    rules: Ids  # (answer, best): positions in the rule set, most trusted first, then NONE
    trust: Scores  # (answer, best): of these rules, then 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def rows(self, query: int) -> slice:
        return slice(int(self.offsets[query]), int(self.offsets[query + 1]))


@dataclass(frozen=True)
class Grounding:
    """One instance of a rule: the edges walked, and where they lead."""

    relations: tuple[int, ...]  # edge relations
    entities: tuple[int, ...]  # one more than relations


class RuleEngine:
    """A rule set made ready to answer queries on one graph."""

    def __init__(self, rules: Rules, adjacency: Adjacency, best: int = 5) -> None:
        constants = np.concatenate([rules.head_constant, rules.body_constant])
        if rules.num_relations != adjacency.num_relations or np.any(constants >= adjacency.num_entities):
            raise SettingError("the rules are of another graph: their relations or constants are not in this one.")
        self.rules, self.adjacency, self.best = rules, adjacency, best
        self._closed = _closed(rules)
        self._constants = _constants(rules, adjacency)
        self._edges = Edges(adjacency.offsets, adjacency.relations, adjacency.tails)
        self._starts = Starts(*adjacency.starts)

    def answer(self, queries: Ids) -> Candidates:
        """The candidates of all queries, on one thread.  queries: (query, 2) head and edge relation"""
        n = self.adjacency.num_entities
        if np.any(queries < 0) or np.any(queries >= [n, 2 * self.adjacency.num_relations]):
            raise SettingError("queries hold ids that are not in the graph.")
        scratch = kernels.Scratch(*np.full((5, n), -1, np.int64))
        room = (n, self.best)
        found = kernels.Found(np.empty(n, np.int32), np.empty(room, np.int32), np.empty(room))
        parts = [tuple(array[:0] for array in found)]
        token = 0
        for head, relation in queries.tolist():
            count, token = kernels.apply_query(
                head, relation, self._closed, self._constants, self._starts, self._edges, scratch, token, found
            )
            order = np.argsort(found.answers[:count], kind="stable")
            parts.append(tuple(array[order] for array in found))
        offsets = np.cumsum([len(part[0]) for part in parts])
        return Candidates(
            offsets.astype(np.int64), *(np.concatenate(column) for column in zip(*parts, strict=True))
        )

    def stream(self, queries: Ids, threads: int | None = None) -> Iterator[Candidates]:
        """The same for any number of queries, a block of them at a time and in order, on several threads."""
        blocks = [queries[i : i + QUERIES_AT_ONCE] for i in range(0, len(queries), QUERIES_AT_ONCE)]
        workers = thread_count(threads)
        with ThreadPoolExecutor(workers) as pool:
            # A few blocks ahead keep the threads busy; all of them at once would fill the memory.
            ahead = [pool.submit(self.answer, block) for block in blocks[: 2 * workers]]
            for i in range(len(blocks)):
                result = ahead.pop(0).result()
                if i + 2 * workers < len(blocks):
                    ahead.append(pool.submit(self.answer, blocks[i + 2 * workers]))
                yield result

    def grounding(self, head: int, relation: int, answer: int, rule: int) -> Grounding | None:
        """One path by which a rule gives an answer: for a closed rule from head to answer."""
        rules = self.rules
        body = [b for b in rules.body[rule].tolist() if b != NONE]
        if rules.is_closed[rule]:
            if relation != rules.head[rule]:  # the query is about the inverse: walk the mirror image
                body = [self.adjacency.inverse(b) for b in reversed(body)]
            path = np.empty(len(body), np.int32)
            found = kernels.ground(head, answer, np.array(body, np.int32), len(body), *self._edges, path)
            return Grounding(tuple(body), (head, *path.tolist())) if found else None
        forward = relation == rules.head[rule] and answer == rules.head_constant[rule]
        x, constant = (head, answer) if forward else (answer, head)
        ends = self.adjacency.tails_of(x, body[0])
        allowed = ends[(ends != x) & ((ends != constant) | (body[0] != rules.head[rule]))]
        if rules.body_constant[rule] != NONE:
            allowed = allowed[allowed == rules.body_constant[rule]]
        return Grounding((body[0],), (x, int(allowed[0]))) if len(allowed) else None


def _closed(rules: Rules) -> kernels.Closed:
    """Bodies that differ in their last hop only, side by side: they are walked together."""
    closed = ClosedIndex.from_rules(rules)
    relation = np.repeat(np.arange(len(closed.offsets) - 1), np.diff(closed.offsets))
    length = np.sum(closed.body != NONE, axis=1)
    order = np.lexsort((*closed.body.T[::-1], length, relation))
    return kernels.Closed(
        closed.offsets, closed.body[order], length[order], closed.trust[order], closed.rule[order]
    )


def _constants(rules: Rules, adjacency: Adjacency) -> kernels.Constants:
    """Constant rules twice: by head and body, and by head and what they predict."""
    which = np.flatnonzero(~rules.is_closed)
    columns = (rules.head, rules.body[:, 0], rules.head_constant, rules.body_constant)
    table = np.stack([*(column[which].astype(np.int64) for column in columns), which], axis=1)
    n, width = adjacency.num_entities, adjacency.num_entities + 1
    body_key = (table[:, 0] * 2 * rules.num_relations + table[:, 1]) * width + table[:, 3] + 1
    target_key = table[:, 0] * n + table[:, 2]
    by_body, by_target = np.argsort(body_key, kind="stable"), np.argsort(target_key, kind="stable")
    keys = by_body, body_key[by_body], by_target, target_key[by_target]
    return kernels.Constants(table, rules.trust[which], *keys)


# --------------------------------------------------------------------------------------------------- aggregation


def noisy_or(candidates: Candidates) -> Scores:
    """The probability that at least one of the rules is right, as if they were independent.  (answer)"""
    return np.asarray(1 - np.prod(1 - candidates.trust, axis=1))


def maximum(candidates: Candidates) -> Scores:
    """Ordinals in the order of the best rule, ties broken by the next, as AnyBURL does.  (answer)"""
    if not len(candidates.answers):
        return np.empty(0)
    ordinals = np.unique(candidates.trust, axis=0, return_inverse=True)[1]
    return np.asarray(ordinals.reshape(-1) + 1.0)
