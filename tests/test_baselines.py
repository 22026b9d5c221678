"""Ranks with realistic ties, the frequency row, and what a signature says."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import make_graph

from squire.evaluation.baselines import TailFrequency, rank_by_frequency, rank_by_rules
from squire.evaluation.metrics import Metrics, Signature
from squire.evaluation.queries import QuerySet, queries_of
from squire.evaluation.ranks import realistic_rank
from squire.graph.graph import SPLITS
from squire.rules.application import RuleEngine
from squire.rules.mining import mine_rules

NOTHING = np.empty(0, np.int32)


@pytest.mark.parametrize(
    ("scores", "known", "rank"),
    [
        ([3.0, 2.0, 1.0], [], 2.0),  # one above
        ([3.0, 2.0, 1.0], [0], 1.0),  # the one above is a known answer
        ([3.0, 2.0, 1.0], [0, 1], 1.0),  # the answer itself among the known
        ([2.0, 2.0, 2.0], [], 2.0),  # between first and third
        ([2.0, 2.0, 2.0], [1, 2], 1.5),  # between first and second
        ([0.0, 0.0, 5.0, 0.0, 0.0], [], 3.5),  # never reached: in the middle of the unreached
    ],
)
def test_rank_is_the_mean_of_the_best_and_the_worst(scores: list[float], known: list[int], rank: float) -> None:
    assert realistic_rank(np.array(scores), 1, np.array(known, np.int32)) == rank


def test_metrics_are_means_over_ranks() -> None:
    metrics = Metrics.from_ranks(np.array([1.0, 2.0, 4.0, 11.0]), Signature("g", "test", "tail", "m"))
    assert metrics.mrr == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 11) / 4)
    assert (metrics.hits1, metrics.hits3, metrics.hits10) == (0.25, 0.5, 0.75)
    assert str(metrics.signature).startswith(
        "g|split:test|side:tail|method:m|filter:train+valid+test|ties:realistic"
    )


def test_frequency_counts_tails_and_for_inverses_heads() -> None:
    graph = make_graph({"train": [("a", "r", "x"), ("b", "r", "x"), ("b", "r", "y"), ("b", "s", "a")]})
    frequency, labels = TailFrequency(graph), graph.labels
    assert frequency(labels.relation_id("r"))[labels.entity_id("x")] == pytest.approx(2 / 3)
    assert frequency(labels.relation_id("r"))[labels.entity_id("a")] == 0
    assert frequency(labels.relation_id("r") + graph.num_relations)[labels.entity_id("b")] == pytest.approx(2 / 3)


def test_heads_are_asked_for_as_tails_of_the_inverse() -> None:
    graph = make_graph({"train": [("a", "r", "b")], "test": [("b", "r", "a")]})
    assert queries_of(graph, "test", "both").tolist() == [[1, 0, 0], [0, 1, 1]]


def test_rules_rank_by_rule_and_the_rest_by_frequency() -> None:
    train = [("a", "r", "x"), ("a", "s", "x"), ("b", "r", "x"), ("b", "s", "x"), ("c", "s", "y"), ("d", "q", "z")]
    graph = make_graph({"train": train, "test": [("c", "r", "y"), ("d", "s", "x")]})
    engine = RuleEngine(mine_rules(graph.train).rules, graph.train)
    query_set = QuerySet.from_graph(graph, "test")
    frequency = rank_by_frequency(graph, query_set).metrics()
    rules = rank_by_rules(graph, query_set, engine).metrics()
    assert frequency.mrr == pytest.approx((1 / 4.5 + 1) / 2)  # y ties with a, b, c, d, z behind x
    assert rules.mrr == 1.0  # r(X,Y) ⇐ s(X,Y) reaches y; no rule reaches x from d, but it is the usual tail of s


def test_the_filter_is_what_the_signature_says() -> None:
    train = [("a", "r", "x"), ("b", "r", "x"), ("c", "r", "y")]
    graph = make_graph({"train": train, "valid": [("d", "r", "y")], "test": [("d", "r", "x")]})
    without_test, with_test = (
        rank_by_frequency(graph, QuerySet.from_graph(graph, "valid", filter_splits=splits)).metrics()
        for splits in (("train", "valid"), SPLITS)
    )
    assert without_test.mrr == 0.5  # x, a fact of test, is a rival
    assert "|filter:train+valid|" in str(without_test.signature)
    assert with_test.mrr == 1


def test_held_out_triples_change_no_score() -> None:
    train = [("a", "r", "x"), ("a", "s", "x"), ("b", "r", "y"), ("b", "s", "y"), ("c", "s", "y"), ("c", "q", "x")]
    ranks = []
    for valid in ([], [("x", "r", "y"), ("y", "r", "x"), ("x", "s", "a")]):
        graph = make_graph({"train": train, "valid": valid, "test": [("c", "r", "y")]})
        engine = RuleEngine(mine_rules(graph.train).rules, graph.train)
        query_set = QuerySet.from_graph(graph, "test")
        rankings = rank_by_frequency(graph, query_set), rank_by_rules(graph, query_set, engine)
        ranks.append([ranking.ranks.tolist() for ranking in rankings])
    assert ranks[0] == ranks[1]
