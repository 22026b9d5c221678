"""Rules as parallel arrays of ids.

Closed rule     r(X,Y) ← b1(X,A1) ∧ … ∧ bn(A(n-1),Y)
Constant rules  r(X,c) ← b(X,d)      r(X,c) ← b(X,A)

Relations are edge types (`r + num_relations` walks r backwards), so the mirror images `r(c,Y) ← b(d,Y)` are
constant rules whose head is an inverse relation.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from squire.core.ragged import offsets_from
from squire.core.relations import inverse
from squire.core.tensors import TensorFormat, load_tensors, save_tensors
from squire.errors import RuleError
from squire.graph.adjacency import Ids, Offsets

MAX_LENGTH = 3
NONE = -1  # no such atom, no such constant

# Failures added to every rule, because a ratio of few instances is unreliable. Of 2, 5, 10 and 20, ten was the
# best or close to it on the valid splits of NELL23K, NELL995, FB15K237-20 and world (docs/LOG.md).
PSEUDO_COUNT = 10


FORMAT = TensorFormat("rules", "file of rules", 1, RuleError, "Mine the rules again.")


@dataclass(frozen=True, eq=False)
class Rules:
    """A set of rules, in any order."""

    num_relations: int  # of the graph, without inverses
    head: Ids  # (rule): edge type r; a closed rule's is never an inverse
    body: Ids  # (rule, MAX_LENGTH): edge types walked from X, then NONE
    head_constant: Ids  # (rule): c, or NONE for a closed rule
    body_constant: Ids  # (rule): d where the body ends, or NONE for Y (closed) or any A
    body_count: Offsets  # (rule): pairs (X, Y) that satisfy the body; for constant rules, X
    support: Offsets  # (rule): those of them that are in the graph
    error: npt.NDArray[np.float64]  # (rule): standard error of the confidence where counts are estimates, else 0

    def __len__(self) -> int:
        return len(self.head)

    @property
    def is_closed(self) -> npt.NDArray[np.bool_]:
        return np.equal(self.head_constant, NONE)

    @property
    def length(self) -> Offsets:
        """Atoms in the body.  (rule)"""
        atoms: Offsets = np.sum(self.body != NONE, axis=1, dtype=np.int64)
        return atoms

    @property
    def confidence(self) -> npt.NDArray[np.float64]:
        """Support over body count, as rule files state it.  (rule)"""
        return self.support / np.maximum(self.body_count, 1)

    @property
    def smoothed_confidence(self) -> npt.NDArray[np.float64]:
        """The confidence with PSEUDO_COUNT failures added, by which rules are ranked.  (rule)"""
        return self.support / (self.body_count + PSEUDO_COUNT)

    @cached_property
    def patterns(self) -> PatternConfidence:
        """Their confidence by pattern. Kept here, because runs that differ in facts share their rules."""
        return PatternConfidence.from_rules(self)

    def take(self, index: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Rules:
        """Some of the rules, in the order of `index`."""
        arrays = (getattr(self, column.name)[index] for column in fields(self)[1:])
        return Rules(self.num_relations, *arrays)

    def save(self, path: Path) -> None:
        """Writes the arrays to one file, atomically."""
        arrays = {column.name: getattr(self, column.name) for column in fields(self)[1:]}
        save_tensors(path, FORMAT, arrays, {"num_relations": self.num_relations})

    @classmethod
    def load(cls, path: Path) -> Rules:
        """Inverse of `save`."""
        content = load_tensors(path, FORMAT)
        return cls(int(content.state["num_relations"]), **content.arrays)

    @classmethod
    def concatenate(cls, num_relations: int, parts: list[Rules]) -> Rules:
        if not parts:
            return cls.empty(num_relations)
        arrays = [np.concatenate([getattr(p, column.name) for p in parts]) for column in fields(cls)[1:]]
        return cls(num_relations, *arrays)

    @classmethod
    def empty(cls, num_relations: int) -> Rules:
        none = np.empty(0, np.int32)
        return cls.closed(num_relations, none, np.empty((0, MAX_LENGTH), np.int32), none, none)

    @classmethod
    def closed(
        cls, num_relations: int, head: Ids, body: Ids, body_count: Ids | Offsets, support: Ids | Offsets
    ) -> Rules:
        """Closed rules with exact counts."""
        none = np.full(len(head), NONE, np.int32)
        counts = body_count.astype(np.int64), support.astype(np.int64)
        return cls(num_relations, head, body, none, none, *counts, np.zeros(len(head)))


@dataclass(frozen=True, eq=False)
class ClosedIndex:
    """Closed rules and their mirror images by head, those of the highest smoothed confidence first."""

    offsets: Offsets  # (2 * num_relations + 1): rules of edge type r are offsets[r]:offsets[r + 1]
    body: Ids  # (entry, MAX_LENGTH): edge types from head to tail, then NONE
    smoothed_confidence: npt.NDArray[np.float64]  # (entry), descending within a head
    rule: Offsets  # (entry): position in the rules

    @classmethod
    def from_rules(cls, rules: Rules) -> ClosedIndex:
        """Sorted; ties are broken by shorter bodies, then by relation ids, so that runs are reproducible."""
        head, body, rule = from_both_ends(rules)
        confidence = rules.smoothed_confidence[rule]
        order = np.lexsort((body_order(body, rules.num_relations), -confidence, head))
        offsets = offsets_from(np.bincount(head, minlength=2 * rules.num_relations))
        return cls(offsets, body[order], confidence[order], rule[order])


@dataclass(frozen=True, eq=False)
class PatternConfidence:
    """How often a relation pattern leads from a head to an answer: the smoothed confidence of the closed rule."""

    num_relations: int
    bodies: Offsets  # (body): the distinct bodies as numbers, sorted
    codes: Offsets  # (entry): head and position of the body as one number, sorted
    smoothed_confidence: npt.NDArray[np.float64]  # (entry)

    @classmethod
    def from_rules(cls, rules: Rules) -> PatternConfidence:
        head, body, rule = from_both_ends(rules)
        bodies, at = np.unique(body_order(body, rules.num_relations), return_inverse=True)
        codes, first = np.unique(head.astype(np.int64) * len(bodies) + at, return_index=True)
        return cls(rules.num_relations, bodies, codes, rules.smoothed_confidence[rule[first]])

    def look_up(self, head: Offsets, body: Offsets) -> npt.NDArray[np.float64]:
        """0 where there is no such rule.  (pattern), (pattern, hops) padded with NONE -> (pattern)"""
        found = np.zeros(len(head))
        if not len(self.codes):
            return found
        which = np.flatnonzero(np.all(body[:, MAX_LENGTH:] == NONE, axis=1))
        padded = np.full((len(which), MAX_LENGTH), NONE)
        padded[:, : body.shape[1]] = body[which, :MAX_LENGTH]
        numbers = body_order(padded, self.num_relations)
        at = np.searchsorted(self.bodies, numbers)
        codes = head[which] * len(self.bodies) + at
        place = np.searchsorted(self.codes, codes)
        is_rule = (self.bodies.take(at, mode="clip") == numbers) & (self.codes.take(place, mode="clip") == codes)
        found[which[is_rule]] = self.smoothed_confidence[place[is_rule]]
        return found


def from_both_ends(rules: Rules) -> tuple[Ids, Ids, Offsets]:
    """Each closed r(X,Y) ← b1 … bn, which also gives r⁻¹(Y,X) ← bn⁻¹ … b1⁻¹: head, body and rule.  (entry) each"""
    which = np.flatnonzero(rules.is_closed)
    head, body = rules.head[which], rules.body[which]
    heads = np.concatenate([head, inverse(head, rules.num_relations)])
    return heads, np.concatenate([body, mirrored(body, rules.num_relations)]), np.tile(which, 2)


def body_order(body: Ids, num_relations: int) -> Offsets:
    """A number for each body that grows with its length, then with its relations.  (body, MAX_LENGTH) -> (body)"""
    key: Offsets = np.sum(body != NONE, axis=1, dtype=np.int64)
    for atom in body.T:
        key = np.asarray(key * (2 * num_relations + 1) + atom + 1)
    return key


def mirrored(body: Ids, num_relations: int) -> Ids:
    """Bodies walked from the other end.  (rule, MAX_LENGTH)"""
    turned = body[:, ::-1]
    turned = np.where(turned == NONE, NONE, inverse(turned, num_relations)).astype(np.int32)
    order = np.argsort(turned == NONE, axis=1, kind="stable")  # the padding back to the end
    return np.take_along_axis(turned, order, axis=1)
