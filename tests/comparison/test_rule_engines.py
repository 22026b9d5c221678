"""Our rule application gives the answers and scores of other engines, for the same rule file and aggregation.

The engines: a SPARQL store, for which each rule is a query, and PyClause, where it is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyoxigraph as ox
import pytest
from study_cases import town

from squire.graph.graph import Graph
from squire.graph.loading import load_graph
from squire.rules.anyburl import read_rules, write_rules
from squire.rules.application import RuleEngine, noisy_or
from squire.rules.mining import MiningOptions, mine_rules
from squire.rules.rules import NONE, PSEUDO_COUNT, Rules
from squire.studies.graphs import sample_graph

BEST = 5


def graphs() -> list[Graph]:
    return [town(), sample_graph(load_graph("world"), 0.08, seed=1)]


def rules_of(graph: Graph, folder: Path) -> Rules:
    """Mined, written to a rule file and read back, so that both engines have what a file can say."""
    named = graph_with_plain_names(graph)
    options = MiningOptions(min_confidence=0.05, constant_support=2, constant_confidence=0.1)
    mined = mine_rules(graph.train, options).rules
    write_rules(mined, named.labels, folder / "rules.tsv")
    return read_rules(folder / "rules.tsv", named.labels).rules


def graph_with_plain_names(graph: Graph) -> Graph:
    """The same ids, named e12 and r3."""
    from squire.graph.labels import LabelIndex, Labels

    entities = LabelIndex([f"e{i}" for i in range(graph.num_entities)], "entity")
    relations = LabelIndex([f"r{i}" for i in range(graph.num_relations)], "relation")
    splits = {split: graph.triples(split) for split in ("train", "valid", "test")}
    return Graph.build(graph.name, Labels(entities, relations), splits)


def our_scores(graph: Graph, rules: Rules, queries: np.ndarray) -> np.ndarray:
    """Noisy-or of the best rules; −inf where none predicts an entity.  (query, entity)"""
    found = np.full((len(queries), graph.num_entities), -np.inf)
    candidates = RuleEngine(rules, graph.train, BEST).answer(queries)
    scores = noisy_or(candidates)
    for query in range(len(queries)):
        own = candidates.rows(query)
        found[query, candidates.answers[own]] = scores[own]
    return found


# ------------------------------------------------------------------------------------------------ SPARQL


class SparqlEngine:
    """Rules as SPARQL queries over a store of the train facts."""

    def __init__(self, graph: Graph, rules: Rules) -> None:
        self.graph, self.rules, self.store = graph, rules, ox.Store()
        for h, r, t in graph.train.triples.tolist():
            self.store.add(ox.Quad(self.name("e", h), self.name("r", r), self.name("e", t)))
        self.pairs = [self._pairs(rule) for rule in range(len(rules))]  # (X, Y) that each rule predicts

    @staticmethod
    def name(kind: str, number: int) -> ox.NamedNode:
        return ox.NamedNode(f"http://example.org/{kind}{number}")

    def atom(self, edge_type: int, start: str, end: str) -> str:
        relation = edge_type % self.graph.num_relations
        if edge_type >= self.graph.num_relations:
            start, end = end, start
        return f"{start} {self.name('r', relation)} {end} ."

    def _pairs(self, rule: int) -> set[tuple[int, int]]:
        rules = self.rules
        body = [b for b in rules.body[rule].tolist() if b != NONE]
        if rules.is_closed[rule]:
            nodes = ["?x", *(f"?a{i}" for i in range(1, len(body))), "?y"]
            atoms = [self.atom(b, nodes[i], nodes[i + 1]) for i, b in enumerate(body)]
            # A grounding is a simple path: no entity twice.
            apart = " && ".join(f"{a} != {b}" for i, a in enumerate(nodes) for b in nodes[i + 1 :])
            query = f"SELECT DISTINCT ?x ?y WHERE {{ {' '.join(atoms)} FILTER({apart}) }}"
            return {(x, y) for x, y in self.answers(query, "x", "y")}
        constant = self.name("e", int(rules.head_constant[rule]))
        end = "?a" if rules.body_constant[rule] == NONE else str(self.name("e", int(rules.body_constant[rule])))
        apart = f"?x != {constant} && ?x != {end}"
        if body[0] == rules.head[rule]:  # not by the very edge that is predicted
            apart += f" && {end} != {constant}"
        query = f"SELECT DISTINCT ?x WHERE {{ {self.atom(body[0], '?x', end)} FILTER({apart}) }}"
        return {(x, int(rules.head_constant[rule])) for (x,) in self.answers(query, "x")}

    def answers(self, query: str, *variables: str) -> Iterator[tuple[int, ...]]:
        solutions: Any = self.store.query(query)
        for row in solutions:
            yield tuple(int(row[name].value.rsplit("/e", 1)[1]) for name in variables)

    def scores(self, queries: np.ndarray) -> np.ndarray:
        n, found = self.graph.num_relations, np.full((len(queries), self.graph.num_entities), -np.inf)
        confidence = self.rules.support / (self.rules.body_count + PSEUDO_COUNT)
        for query, (head, relation) in enumerate(queries.tolist()):
            of_answer: dict[int, list[float]] = {}
            for rule, pairs in enumerate(self.pairs):
                own = int(self.rules.head[rule])
                for x, y in pairs:
                    if (relation, head) == (own, x):
                        of_answer.setdefault(y, []).append(confidence[rule])
                    elif (relation, head) == ((own + n) % (2 * n), y):
                        of_answer.setdefault(x, []).append(confidence[rule])
            for answer, confidences in of_answer.items():
                best = sorted(confidences, reverse=True)[:BEST]
                found[query, answer] = 1 - np.prod(1 - np.array(best))
        return found


def some_queries(graph: Graph, count: int = 60) -> np.ndarray:
    """Of train and test, in both directions."""
    rng = np.random.default_rng(0)
    triples = np.concatenate([graph.train.triples, graph.test])
    triples = triples[rng.choice(len(triples), min(count, len(triples)), replace=False)]
    backward = np.stack([triples[:, 2], triples[:, 1] + graph.num_relations], axis=1)
    return np.unique(np.concatenate([triples[:, :2], backward]), axis=0).astype(np.int32)


@pytest.mark.parametrize("number", [0, 1])
def test_answers_and_scores_are_those_of_a_sparql_store(number: int, tmp_path: Path) -> None:
    graph = graphs()[number]
    rules, queries = rules_of(graph, tmp_path), some_queries(graph)
    ours, theirs = our_scores(graph, rules, queries), SparqlEngine(graph, rules).scores(queries)
    assert np.isfinite(ours).sum() > 100
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


# ---------------------------------------------------------------------------------------------- PyClause


def test_answers_and_scores_are_those_of_pyclause(tmp_path: Path) -> None:
    """For closed rules of one and two atoms, on which both agree what an instance is."""
    pytest.importorskip("c_clause")
    from squire.studies.pyclause import PyClauseEngine

    graph = graphs()[1]
    rules = rules_of(graph, tmp_path)
    rules = rules.take(rules.is_closed & (rules.length < 3))
    write_rules(rules, graph_with_plain_names(graph).labels, tmp_path / "closed.tsv")
    data = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in graph.train.triples.tolist()]
    loose = {"b_min_support": 1, "b_min_preds": 1, "b_min_conf": 0.0, "b_num_unseen": PSEUDO_COUNT}
    engine = PyClauseEngine(
        data, str(tmp_path / "closed.tsv"), graph.num_entities, graph.num_relations, BEST, **loose
    )
    queries = some_queries(graph)
    np.testing.assert_allclose(our_scores(graph, rules, queries), engine.scores(queries), rtol=1e-6)
