"""Rules as they would be if some facts had been hidden from the miner, without mining again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from squire.core.relations import both_directions
from squire.graph.adjacency import Adjacency, AnyIds, Ids, Offsets
from squire.rules import _application as kernels
from squire.rules.application import constant_rules
from squire.rules.edges import walked_edges
from squire.rules.mining import MiningOptions, body_keys, find_support
from squire.rules.rules import Rules
from squire.rules.work import Progress, Work


class RuleSupport:
    """Which facts support which rules, given the graph from which they were mined and the options."""

    def __init__(self, rules: Rules, adjacency: Adjacency, options: MiningOptions) -> None:
        self.rules, self.adjacency, self.options = rules, adjacency, options
        keys, length = body_keys(rules.body, rules.num_relations), np.where(rules.is_closed, rules.length, 0)
        self._sorted = []  # for each length and head: body keys in order, and their rules
        for one in range(1, options.length + 1):
            which = np.flatnonzero(length == one)
            which = which[np.lexsort((keys[which], rules.head[which]))]
            cuts = np.searchsorted(rules.head[which], np.arange(1, rules.num_relations))
            self._sorted.append(list(zip(np.split(keys[which], cuts), np.split(which, cuts), strict=True)))
        self._constants = constant_rules(rules, adjacency)

    def without(self, hidden: Ids, progress: Progress | None = None) -> Rules:
        """The rules that still hold without the support of hidden facts.  hidden: (triple, 3)

        Hidden facts may still be part of bodies. Hiding facts at random lowers the number of instances of a body
        and how many of them are facts by the same share, so the confidence stays the same.
        """
        return self.left(self.of(hidden, progress))

    def left(self, lost: AnyIds) -> Rules:
        """The rules that still hold if they lose so much support.  (rule)"""
        rules, options = self.rules, self.options
        left = replace(rules, support=rules.support - lost)
        least = np.where(rules.is_closed, options.min_support, options.constant_support)
        least_confidence = np.where(rules.is_closed, options.min_confidence, options.constant_confidence)
        found = (left.support >= least) & (left.confidence >= least_confidence)
        constant = ~rules.is_closed
        if np.count_nonzero(constant) == options.max_constants:
            # Only the best were kept. Those that would not have been among them must go: otherwise a hidden fact
            # would be predicted by rules that are there because of it.
            found &= rules.is_closed | (left.smoothed_confidence >= rules.smoothed_confidence[constant].min())
        return left.take(found)

    def of(self, facts: Ids, progress: Progress | None = None) -> Offsets:
        """How many of the facts each rule predicts.  facts: (triple, 3); result: (rule)"""
        out = np.zeros(len(self.rules), np.int64)
        options, work = replace(self.options, min_support=1), Work(self.options.threads, progress)
        for length, by_head in enumerate(self._sorted, 1):
            heads, keys, support, _ = find_support(self.adjacency, facts, length, options, work)
            for head in np.unique(heads):
                found, (own, rules) = heads == head, by_head[head]
                at = np.searchsorted(own, keys[found])
                known = np.flatnonzero(np.append(own, -1)[at] == keys[found])
                out[rules[at[known]]] = np.rint(support[found][known])
        edges = walked_edges(self.adjacency)
        both = both_directions(facts, self.adjacency.num_relations)
        kernels.count_constant_support(both, self._constants, edges, out)
        return out
