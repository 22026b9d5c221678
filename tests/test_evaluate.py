"""Evaluation of models in closed form: figures worked out by hand, and twins made of lists and sets."""

from __future__ import annotations

import gc
import math
import tracemalloc
from collections import Counter
from collections.abc import Mapping
from itertools import groupby

import naive_beam
import numpy as np
import pytest
import torch
from fakes import Question, QuestionSteps, Shares, exactly, number
from graphs import make_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_rules import edges_of as all_edges
from training_cases import ENTITIES, RELATIONS, small_graph

from squire.errors import SettingError
from squire.evaluation.baselines import rank_by_frequency, rank_by_rules
from squire.evaluation.metrics import NAMES, Metrics, Signature
from squire.evaluation.paths import rank_by_paths
from squire.evaluation.queries import QuerySet, queries_of
from squire.evaluation.ranks import Ranks, categories
from squire.graph.graph import Graph
from squire.graph.labels import LabelIndex, Labels
from squire.rules.application import RuleEngine
from squire.rules.rules import Rules
from squire.search.evidence import GRADES
from squire.search.options import DecodingOptions, SearchEdges

SIGNATURE = Signature("g", "test", "tail", "m")
WIDE = DecodingOptions(beam=64, hops=2)  # all paths of the tables below

# ------------------------------------------------------------------------------------------- worked out by hand

GRAPH = make_graph(
    {
        "train": [("a", "r", "b"), ("a", "s", "c"), ("c", "r", "d"), ("e", "s", "f"), ("b", "s", "f")],
        "valid": [("a", "r", "e")],
        "test": [("a", "r", "d"), ("b", "r", "d"), ("c", "s", "a")],
    }
)
A, B, C, D, E, F = range(6)  # entities, as they are sorted
R, S, R_, S_ = range(4)  # edge relations: r, s, and their inverses
TABLES: Mapping[Question, Shares] = {
    (A, R): {
        (R, B): 0.30,  # a fact of train: no rival, and not graded
        (R, E): 0.24,  # a fact of valid: no rival; graded, since it is new to the model: asserted
        (S, C): 0.15,  # grounded
        (S, C, R, D): 0.10,  # grounded, and d's best path by Eq. 5
        (R, D): 0.01,
        (R, F): 0.20,  # asserted
    },
    (B, R): {(R, A): 0.3, (S, F): 0.3, (R, C): 0.2, (S, E): 0.2},  # asserted, grounded, asserted, completed
    (C, S): {(S, D): 0.26, (S, A): 0.26, (S, B): 0.26, (R_, B): 0.22},  # all asserted by their best path
}


def by_hand(decoding: DecodingOptions, sample: int | None = None) -> Ranks:
    return rank_by_paths(
        exactly(TABLES, 6, 2), GRAPH, QuerySet.from_graph(GRAPH, "test", sample=sample, seed=4), decoding, seed=7
    )


def test_ranks_by_all_paths() -> None:
    ranking = by_hand(WIDE)
    assert ranking.queries.tolist() == [[A, R, D], [B, R, D], [C, S, A]]
    assert ranking.ranks.tolist() == [
        3,  # b and e are known answers, so no rivals; f .20 and c .15 are better than d's .10 + .01
        5.5,  # four are reached; d is not, nor is b: the fifth or the sixth place
        2.5,  # b has .26 + .22, d as much as a: the second or the third place
    ]
    metrics = ranking.metrics()
    assert metrics.mrr == pytest.approx((1 / 3 + 1 / 5.5 + 1 / 2.5) / 3)
    assert (metrics.hits1, metrics.hits3, metrics.hits10) == pytest.approx((0, 2 / 3, 1))
    assert metrics.queries == 3


def test_ranks_by_the_best_path() -> None:
    assert by_hand(DecodingOptions(beam=64, hops=2, aggregate="max")).ranks.tolist() == [
        1,  # Eq. 5: d's path of five tokens has log .10 / 5 = −.46, f's of three log .20 / 3 = −.54, c's −.63
        5.5,
        2,  # a, b and d have .26 each: between the first place and the third
    ]


def test_grades_of_the_first_new_answers() -> None:
    ranking = by_hand(WIDE)
    assert ranking.grades is not None
    assert dict(zip(GRADES, ranking.grades.tolist(), strict=True)) == {
        "grounded": 2 + 1,
        "completed": 1,
        "asserted": 2 + 2 + 3,
    }
    assert ranking.grade_shares() == pytest.approx({"grounded": 3 / 11, "completed": 1 / 11, "asserted": 7 / 11})


def test_what_the_signature_says() -> None:
    assert str(by_hand(WIDE).signature).startswith(
        "made|split:test|side:tail|method:paths|filter:train+valid+test|ties:realistic|beam:64|aggregation:sum|seed:7|v:"
    )
    edges = SearchEdges(GRAPH.train, name="x")
    decoding = DecodingOptions(beam=5, hops=1, aggregate="max", constraint=edges, edge_ends=True)
    assert "|beam:5|aggregation:max+edge-ends|seed:7|constraint:x|sample:2 of 3, seed 4|v:" in str(
        by_hand(decoding, sample=2).signature
    )
    assert "|aggregation:sum|seed:7|prune:0.25|v:" in str(
        by_hand(DecodingOptions(beam=5, hops=1, prune=0.25)).signature
    )


def test_only_ten_answers_are_graded_and_what_train_knows_is_none_of_them() -> None:
    """e00 has 14 answers: two of train, then ten asserted ones, the last two completed and grounded."""
    labels = [f"e{i:02}" for i in range(20)]
    train = [("e00", "r", "e01"), ("e00", "r", "e02"), ("e00", "s", "e14"), ("e18", "s", "e19")]
    train += [(label, "s", "e19") for label in labels[3:18]]
    graph = make_graph({"train": train, "test": [("e00", "r", "e05")]})
    path = [(0, i) for i in range(1, 13)] + [(1, 13), (1, 14)]
    shares: Shares = {pair: 2.0**-place for place, pair in enumerate(path, 1)}
    ranking = rank_by_paths(
        exactly({(0, 0): shares}, 20, 2),
        graph,
        QuerySet.from_graph(graph, "test"),
        DecodingOptions(64, hops=1),
        seed=0,
    )
    assert ranking.ranks.tolist() == [3]
    assert ranking.grades is not None
    assert ranking.grades.tolist() == [0, 0, 10]


# ------------------------------------------------------------------------------------------- against a twin


def random_graph(seed: int) -> Graph:
    triples = small_graph(triples=60, seed=seed).triples
    order = np.random.default_rng(seed).permutation(len(triples))
    parts = dict(zip(("test", "valid", "train"), np.split(triples[order], [8, 14]), strict=True))
    names = Labels(
        LabelIndex((f"e{i:02}" for i in range(ENTITIES)), "entity"),
        LabelIndex((f"r{i}" for i in range(RELATIONS)), "relation"),
    )
    return Graph.build("random", names, parts)


def twin_rank(scores: dict[int, float], answer: int, known: set[int]) -> float:
    """The mean of the first and the last place that the answer may have among those who are not known."""
    places = [
        scores.get(entity, -math.inf) for entity in range(ENTITIES) if entity == answer or entity not in known
    ]
    places.sort(reverse=True)
    own = scores.get(answer, -math.inf)
    first = places.index(own)
    return 1 + (first + first + places.count(own) - 1) / 2


@settings(max_examples=25)
@given(
    seed=st.integers(0, 999),
    width=st.sampled_from([2, 9, 40]),
    aggregate=st.sampled_from(["sum", "max"]),
    at_once=st.sampled_from([1, 100, 10_000]),
)
def test_ranks_and_grades_are_those_of_lists_and_sets(seed: int, width: int, aggregate: str, at_once: int) -> None:
    graph = random_graph(seed)
    follow = naive_beam.random_follow(seed, ENTITIES, 2 * RELATIONS)
    decoding = DecodingOptions(width, aggregate, hops=2)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("squire.search.decoding.HYPOTHESES_AT_ONCE", at_once)
        ranking = rank_by_paths(
            QuestionSteps(follow, ENTITIES), graph, QuerySet.from_graph(graph, "test", "both"), decoding, seed=0
        )
    edges = {
        split: all_edges({(h, r, t) for h, r, t in graph.triples(split).tolist()}, RELATIONS)
        for split in ("train", "valid", "test")
    }
    assert {tuple(query) for query in ranking.queries.tolist()} == edges["test"]
    ranks, grades = [], Counter[str]()
    for head, relation, answer in ranking.queries.tolist():
        paths = naive_beam.beam_search(follow, number(head, relation), head, width, 2)
        scores = naive_beam.answers(paths, aggregate)
        known = {t for split in edges.values() for h, r, t in split if (h, r) == (head, relation)}
        ranks.append(twin_rank(scores, answer, known))
        new = [e for e in sorted(scores, key=lambda e: -scores[e]) if (head, relation, e) not in edges["train"]]
        for entity in new[:10]:
            own = [ended for ended in paths if ended.path[-1] == entity]
            path = max(own, key=lambda ended: ended.log_probability / (len(ended.path) + 1)).path
            nodes = (head, *path[1::2])
            walked = list(zip(nodes, path[::2], nodes[1:], strict=False))
            if all(edge in edges["train"] for edge in walked):
                grades["grounded"] += 1
            else:
                grades["asserted" if path[::2] == (relation,) else "completed"] += 1
    assert ranking.ranks.tolist() == ranks
    assert ranking.grades is not None
    assert dict(zip(GRADES, ranking.grades.tolist(), strict=True)) == {grade: grades[grade] for grade in GRADES}


# ------------------------------------------------------------------------------------------- what is asked


def test_heads_are_asked_as_tails_of_the_inverse() -> None:
    both = queries_of(GRAPH, "test", "both").tolist()
    assert both == [[A, R, D], [B, R, D], [C, S, A], [D, R_, A], [D, R_, B], [A, S_, C]]


def test_a_sample_is_drawn_by_its_seed_and_told() -> None:
    graph = random_graph(0)
    everything = {tuple(query) for query in queries_of(graph, "test", "both").tolist()}
    one, same, other = (QuerySet.from_graph(graph, "test", "both", sample=7, seed=seed) for seed in (1, 1, 2))
    assert one.queries.tolist() == same.queries.tolist() != other.queries.tolist()
    assert len({tuple(query) for query in one.queries.tolist()} & everything) == 7
    assert one.sample == "7 of 16, seed 1"
    whole = QuerySet.from_graph(graph, "test", "both", sample=16)
    assert (len(whole.queries), whole.sample) == (16, "")


@pytest.mark.parametrize(
    ("split", "side", "message"),
    [
        ("tests", "tail", "split='tests': expected valid or test."),
        ("train", "tail", "split='train': train facts are known"),
        ("test", "head", "side='head': expected tail or both."),
        ("valid", "tail", "split='valid': made has no valid triples."),
    ],
)
def test_what_cannot_be_asked(split: str, side: str, message: str) -> None:
    graph = make_graph({"train": [("a", "r", "b")], "test": [("b", "r", "a")]})
    with pytest.raises(SettingError, match=message):
        queries_of(graph, split, side)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prune": 2.0}, "prune=2: expected a share from 0 to less than 1."),
        ({"prune": -0.5}, "prune=-0.5: expected a share"),
        (
            {"prune": 0.5, "aggregate": "max"},
            "prune=0.5: only works with aggregate='sum' and without a constraint",
        ),
        ({"beam": 0}, "beam=0: expected 1 to 100,000."),
        ({"aggregate": "mean"}, "aggregate='mean': expected 'sum', 'max' or 'pool'."),
    ],
)
def test_searches_that_make_no_sense(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        DecodingOptions(**settings)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------- tables


def test_categories_by_hand() -> None:
    graph = make_graph(
        {
            "train": [
                ("a", "capital", "b"), ("c", "capital", "d"),
                ("a", "child", "b"), ("a", "child", "c"), ("d", "child", "e"),  # 3 facts, 2 heads: 1.5 tails each
                ("b", "lives in", "a"), ("c", "lives in", "a"), ("d", "lives in", "e"),
                ("a", "knows", "b"), ("a", "knows", "c"), ("d", "knows", "b"), ("d", "knows", "c"),
            ]
        }
    )  # fmt: skip
    assert dict(zip([*graph.labels.relations, "…"], categories(graph).tolist(), strict=False)) == {
        "capital": 0, "child": 1, "knows": 3, "lives in": 2, "…": 0,
    }  # fmt: skip
    assert categories(graph)[4:].tolist() == [0, 2, 3, 1]  # the inverses: the other way round


@given(seed=st.integers(0, 50))
def test_categories_are_those_of_dictionaries(seed: int) -> None:
    graph = random_graph(seed)
    edges = all_edges({(h, r, t) for h, r, t in graph.train.triples.tolist()}, RELATIONS)
    for relation, found in enumerate(categories(graph).tolist()):
        own = [(h, t) for h, r, t in edges if r == relation]
        tails, heads = (
            len(own) / max(len(set(ends)), 1) >= 1.5 for ends in ([h for h, _ in own], [t for _, t in own])
        )
        assert found == tails + 2 * heads


@given(seed=st.integers(0, 50))
def test_rows_by_relation_and_category_take_the_ranks_apart(seed: int) -> None:
    graph = random_graph(seed)
    queries = queries_of(graph, "test", "both")
    ranks = np.random.default_rng(seed).integers(1, 12, len(queries)) / 2 + 0.5
    ranking = Ranks(SIGNATURE, queries, ranks)
    relations = [f"r{i}" for i in range(RELATIONS)]
    relations += [f"{name} (inverse)" for name in relations]
    kinds = [("1-1", "1-n", "n-1", "n-n")[kind] for kind in categories(graph).tolist()]
    for rows, called in ((ranking.by_relation(graph), relations), (ranking.by_category(graph), kinds)):
        named = sorted((called[r], rank) for (_, r, _), rank in zip(queries.tolist(), ranks.tolist(), strict=True))
        parts = {name: [rank for _, rank in part] for name, part in groupby(named, lambda pair: pair[0])}
        assert {name: row.queries for name, row in rows.items()} == {n: len(part) for n, part in parts.items()}
        for name, part in parts.items():
            assert rows[name].mrr == pytest.approx(sum(1 / rank for rank in part) / len(part))
            assert rows[name].hits3 == pytest.approx(sum(rank <= 3 for rank in part) / len(part))
    counts = [row.queries for row in ranking.by_relation(graph).values()]
    assert counts == sorted(counts, reverse=True)


def test_without_paths_there_are_no_grades_and_without_answers_no_shares() -> None:
    queries = queries_of(GRAPH, "test", "tail")
    assert Ranks(SIGNATURE, queries, np.ones(3)).grade_shares() == {}
    assert set(Ranks(SIGNATURE, queries, np.ones(3), np.zeros(3, np.int64)).grade_shares().values()) == {0.0}


def test_without_rules_the_rules_row_is_the_frequency_row() -> None:
    graph = random_graph(3)
    query_set = QuerySet.from_graph(graph, "test", "both")
    engine = RuleEngine(Rules.empty(RELATIONS), graph.train)
    assert (
        rank_by_rules(graph, query_set, engine).ranks.tolist()
        == rank_by_frequency(graph, query_set).ranks.tolist()
    )


# ------------------------------------------------------------------------------------------- a constraint


def test_edges_of_another_graph_are_matched_by_name_and_by_train_alone() -> None:
    other = make_graph(
        {
            "train": [("d", "s", "a"), ("a", "r", "new"), ("a", "other", "b"), ("f", "s", "b")],
            "valid": [("a", "r", "c")],
            "test": [("a", "r", "d")],
        }
    )
    assert GRAPH.edges_of(other).triples.tolist() == [[D, S, A], [F, S, B]]
    assert GRAPH.edges_of(GRAPH) == GRAPH.train


def test_a_constraint_asks_for_nothing_that_is_not_there() -> None:
    edges = SearchEdges(GRAPH.train)
    rows, tails = edges.entities(torch.tensor([A, A, F, B]), torch.tensor([R, R_, S_, S]))
    assert list(zip(rows.tolist(), tails.tolist(), strict=True)) == [(0, B), (2, B), (2, E), (3, F)]


def test_constrained_paths_reach_less() -> None:
    ranking = by_hand(DecodingOptions(64, hops=2, constraint=SearchEdges(GRAPH.train)))
    assert ranking.ranks[0] == 2  # of a: b is known, c .15, d .10; e and f only by edges that are not there
    assert ranking.grades is not None
    assert ranking.grades[1:].tolist() == [0, 0]


# ------------------------------------------------------------------------------------------- intervals


def metrics_of(ranks: np.ndarray) -> Metrics:
    return Metrics.from_ranks(ranks.astype(np.float64), SIGNATURE, intervals=True)


def test_an_interval_holds_its_figure_and_is_the_same_each_time() -> None:
    ranks = np.random.default_rng(0).integers(1, 30, 200)
    metrics = metrics_of(ranks)
    assert metrics == metrics_of(ranks)
    assert metrics.intervals is not None
    assert list(metrics.intervals) == list(NAMES)
    for name, (low, high) in metrics.intervals.items():
        assert 0 <= low < getattr(metrics, name) < high <= 1


def test_an_interval_of_four_times_the_queries_is_half_as_wide() -> None:
    ranks = np.random.default_rng(0).integers(1, 30, 4000)

    def width(queries: int) -> float:
        intervals = metrics_of(ranks[:queries]).intervals
        assert intervals is not None
        low, high = intervals["mrr"]
        return high - low

    assert width(4000) == pytest.approx(width(1000) / 2, rel=0.15)
    assert width(1000) == pytest.approx(2 * 1.96 * (1 / ranks[:1000]).std() / 1000**0.5, rel=0.15)


def test_intervals_hold_the_truth_about_19_times_of_20() -> None:
    truth = np.mean([1 / rank for rank in range(1, 11)])
    rng, held = np.random.default_rng(0), 0
    for _ in range(200):
        intervals = metrics_of(rng.integers(1, 11, 60)).intervals
        assert intervals is not None
        low, high = intervals["mrr"]
        held += int(low <= truth <= high)
    assert 180 <= held <= 198


def test_no_queries_no_interval() -> None:
    metrics = metrics_of(np.empty(0))
    assert (metrics.queries, metrics.mrr, metrics.intervals) == (0, 0.0, None)
    assert "intervals" not in metrics.as_dict()


# ------------------------------------------------------------------------------------------- memory


def test_memory_does_not_grow_with_the_number_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight queries a block: neither arrays nor tensors of the blocks that are done may stay."""
    monkeypatch.setattr("squire.search.decoding.HYPOTHESES_AT_ONCE", 8 * 20)
    graph, decoding = random_graph(0), DecodingOptions(beam=20, hops=2)
    steps = QuestionSteps(naive_beam.random_follow(0, ENTITIES, 2 * RELATIONS), ENTITIES)
    queries = np.tile(queries_of(graph, "test", "tail"), (16, 1))
    tensors, held, peaks = [], [], []

    def progress(done: int, total: int) -> None:
        gc.collect()
        tensors.append(sum(type(thing) is torch.Tensor for thing in gc.get_objects()))
        now, peak = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        held.append(now)
        peaks.append(peak)

    tracemalloc.start()
    query_set = QuerySet("random", "test", "tail", queries, graph.train, "train", "")
    rank_by_paths(steps, graph, query_set, decoding, seed=0, progress=progress)
    tracemalloc.stop()
    assert len(held) == 16
    assert max(tensors[2:]) <= tensors[1]
    # A block's answers take some 30 kB: fourteen that stay, 420. Ranks and the test's own notes take 2 kB a block.
    assert max(held[2:]) < held[1] + 100_000
    assert max(peaks[2:]) < peaks[1] + 100_000
