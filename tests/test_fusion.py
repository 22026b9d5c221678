"""The ranker and the whole fusion: it learns, it repeats, it can be saved, and it never looks at test."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import LabelTriple, make_graph

from squire.core.run_files import FUSION
from squire.core.tensors import load_checkpoint, save_checkpoint
from squire.errors import CheckpointError, SettingError
from squire.evaluation.baselines import rank_by_frequency
from squire.evaluation.fused import rank_by_fusion
from squire.evaluation.queries import QuerySet
from squire.evaluation.ranks import realistic_rank
from squire.graph.adjacency import Adjacency
from squire.graph.graph import Graph
from squire.graph.labels import LabelIndex, Labels
from squire.ranking import fusion
from squire.ranking.features import COLUMN, FEATURES, CandidateLists, Feature, absent, used_rules
from squire.ranking.fusion import Fusion, FusionOptions, fit_fusion
from squire.ranking.fusion_file import FILE_VERSION, has_fusion, load_fusion, save_fusion
from squire.ranking.hidden import HiddenFold, some_wrong
from squire.ranking.networks import Network, NetworkOptions, Networks, _list_loss, fit_ranker
from squire.rules.hiding import RuleSupport
from squire.rules.mining import Mined, MiningOptions, mine_rules

SMALL = NetworkOptions(width=8, epochs=3, batch_size=16)
OPTIONS = FusionOptions(seed=1, mining=MiningOptions(threads=1), ranker=SMALL)
FAMILIES = 60


def families(test: int = 5) -> Graph:
    """Grandparents are parents of parents; some grandparents are held out. All live in one of three towns."""
    train: list[LabelTriple] = []
    held_out: list[LabelTriple] = []
    for i in range(FAMILIES):
        train += [(f"a{i}", "parent", f"b{i}"), (f"b{i}", "parent", f"c{i}")]
        train += [(f"{who}{i}", "lives in", f"town {i % 3}") for who in "abc"]
        (held_out if i < 15 else train).append((f"a{i}", "grandparent", f"c{i}"))
    return make_graph({"train": train, "valid": held_out[:10], "test": held_out[10 : 10 + test]})


@pytest.fixture(scope="module")
def fitted() -> tuple[Graph, Fusion]:
    graph = families()
    return graph, fit_fusion(graph, OPTIONS)


def test_a_ranker_finds_the_column_that_tells_right_from_wrong() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 9, 200)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    features = rng.normal(size=(offsets[-1], 2)).astype(np.float32)
    right = np.array([a + np.argmin(features[a:b, 1]) for a, b in pairwise(offsets.tolist())])
    table = (Feature("noise", "rules", ""), Feature("truth", "rules", "", log=True))
    lists = CandidateLists(np.zeros((200, 2), np.int32), offsets, np.arange(offsets[-1], dtype=np.int32), features)
    ranker = fit_ranker(lists, right, np.ones(200), table, 2, options=replace(SMALL, epochs=10))
    scores = ranker.scores(features, np.zeros(len(features), np.int32))
    first = [a + np.argmax(scores[a:b]) for a, b in pairwise(offsets.tolist())]
    assert np.mean(first == right) > 0.9


def _lists_of(sizes: list[int], columns: int) -> CandidateLists:
    """Lists of this many candidates each, with random features; every query has head 0 and relation 0."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    features = np.random.default_rng(2).normal(size=(offsets[-1], columns)).astype(np.float32)
    candidates = np.concatenate([np.arange(size) for size in sizes]).astype(np.int32)
    return CandidateLists(np.zeros((len(sizes), 2), np.int32), offsets, candidates, features)


def test_a_list_keeps_its_right_candidate_and_some_wrong_ones_that_stand_for_all() -> None:
    lists = _lists_of([3, 40, 6, 200], 2)
    facts = Adjacency.build(np.array([[0, 0, 2]], np.int32), 200, 1)  # candidate 2 is right in every list
    some, stands_for = some_wrong(lists, facts, 5, [0])
    assert np.diff(some.offsets).tolist() == [3, 6, 6, 6]
    assert len(some.facts(facts)) == 4
    assert (np.diff(some.offsets) - 1) * stands_for == pytest.approx([2, 39, 5, 199])
    repeated, _ = some_wrong(lists, facts, 5, [0])
    assert np.array_equal(repeated.candidates, some.candidates)
    everything, ones = some_wrong(lists, facts, 200, [0])
    assert everything is lists
    assert np.all(ones == 1)


def test_the_loss_is_the_cross_entropy_of_lists_in_which_wrong_candidates_are_repeated() -> None:
    lists, right = _lists_of([4, 7, 2], 2), np.array([1, 4, 12])
    torch.manual_seed(0)
    table = (Feature("one", "rules", ""), Feature("two", "rules", ""))
    network = Network(2, 2, SMALL).eval()
    networks = Networks(table, torch.zeros(2), torch.ones(2), [network], SMALL)
    times = np.array([3, 1, 2])
    columns = networks.small_columns(lists.features)
    loss = _list_loss(columns, network, lists, right, np.log(times).astype(np.float32), np.array([2, 0, 1]))
    scores = networks.scores(lists.features, np.zeros(13, np.int32))
    expected = []
    for i, answer in enumerate(right.tolist()):
        own = scores[lists.rows(i)]
        wrong = np.delete(own, answer - lists.offsets[i])
        expected.append(np.log(np.exp(scores[answer]) + times[i] * np.exp(wrong).sum()) - scores[answer])
    assert loss.item() == pytest.approx(np.mean(expected), abs=1e-3)


def test_more_questions_get_fewer_wrong_candidates_and_a_wider_ranker(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, seen = families(), []

    def note(lists: CandidateLists, *arguments: Any) -> Networks:
        seen.append(np.diff(lists.offsets).max() - 1)
        return fit_ranker(lists, *arguments)

    monkeypatch.setattr(fusion, "fit_ranker", note)
    options = replace(OPTIONS, folds=3, ranker=None, confidence=SMALL)
    few = fit_fusion(graph, options)
    monkeypatch.setattr(fusion, "WIDE_LISTS", few.info.lists)
    monkeypatch.setattr(fusion, "TRAINING_CANDIDATES", 3 * 2 * len(graph.train.triples))
    many = fit_fusion(graph, options)
    assert (few.ranker.options.width, many.ranker.options.width) == (NetworkOptions.width, fusion.WIDE)
    assert seen[0] > seen[1] == 3
    assert few.info.queries == many.info.queries
    monkeypatch.setattr(fusion, "LARGE", len(graph.train.triples))
    monkeypatch.setattr(fusion, "QUERIES_OF_LARGE", 100)
    assert fit_fusion(graph, options).info.queries == 100


def test_fusion_ranks_held_out_answers_better_than_frequency(fitted: tuple[Graph, Fusion]) -> None:
    graph, fusion = fitted
    query_set = QuerySet.from_graph(graph, "test")
    fused = rank_by_fusion(fusion, graph, query_set)
    assert fused.ranking.metrics().mrr > 2 * rank_by_frequency(graph, query_set).metrics().mrr
    assert str(fused.ranking.signature).startswith("made|split:test|side:tail|method:fused")
    assert "seed:1" in str(fused.ranking.signature)
    assert sum(fused.reliability["first 1"].count) == len(query_set.queries)


def test_ranks_are_those_of_scores_over_all_entities(fitted: tuple[Graph, Fusion]) -> None:
    graph, fusion = fitted
    query_set = QuerySet.from_graph(graph, "valid", "both")
    expected = []
    for head, relation, answer in query_set.queries.tolist():
        (ranked,) = fusion.rank(np.array([[head, relation]], np.int32))
        scores = np.full(graph.num_entities, -np.inf)
        scores[ranked.lists.candidates] = ranked.scores
        expected.append(realistic_rank(scores, answer, query_set.filter.tails_of(head, relation)))
        assert np.all(np.diff(ranked.rank_score[np.argsort(-ranked.scores, kind="stable")]) <= 1e-12)
        assert 0 <= ranked.rank_score.min() <= ranked.rank_score.max() <= 1
        assert np.all(np.diff(ranked.confidence[np.argsort(-ranked.scores, kind="stable")]) <= 0)
    assert rank_by_fusion(fusion, graph, query_set).ranking.ranks == pytest.approx(np.array(expected))


def test_sources_add_up(fitted: tuple[Graph, Fusion]) -> None:
    graph, fusion = fitted
    (ranked,) = fusion.rank(graph.valid[:3, :2])
    shares = ranked.contributions()
    assert set(shares) == {"frequency", "rules", "similar entities", "connections", "tail similarity", "names"}
    relations = ranked.lists.queries[ranked.lists.query, 1]
    nothing = fusion.ranker.scores(absent(ranked.lists.features, FEATURES), relations)
    assert sum(shares.values()) == pytest.approx(ranked.scores - nothing, abs=1e-5)


def test_test_facts_influence_nothing_and_a_seed_repeats(fitted: tuple[Graph, Fusion], tmp_path: Path) -> None:
    _, fusion = fitted
    test = families().test.copy()
    test[:, 2] = np.roll(test[:, 2], 1)  # as many other facts: how many there are tells what share is missing
    other = fit_fusion(replace(families(), test=test), OPTIONS)
    files = [save_fusion(one, tmp_path / name) for one, name in ((fusion, "one"), (other, "other"))]
    assert files[0].read_bytes() == files[1].read_bytes()
    changed = save_fusion(fit_fusion(families(), replace(OPTIONS, seed=2)), tmp_path / "seed")
    assert changed.read_bytes() != files[0].read_bytes()


def test_rules_are_mined_once_and_those_of_a_fold_lack_the_support_of_its_hidden_facts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mined: list[Adjacency] = []
    folds: list[HiddenFold] = []

    def mine(adjacency: Adjacency, *rest: Any) -> Mined:
        mined.append(adjacency)
        return mine_rules(adjacency, *rest)

    def hide(_: Any, *arguments: Any) -> HiddenFold:
        folds.append(made(*arguments))
        return folds[-1]

    made = HiddenFold.of

    monkeypatch.setattr("squire.ranking.fusion.mine_rules", mine)
    monkeypatch.setattr(HiddenFold, "of", classmethod(hide))
    graph = families()
    fusion = fit_fusion(graph, replace(OPTIONS, folds=3))
    assert mined == [graph.train]
    assert len(folds) == 3
    support = RuleSupport(fusion.features.rules, graph.train, OPTIONS.mining)
    for fold in folds:
        features = fold.features()
        assert not features.adjacency.contains_each(*fold.hidden.T).any()
        left = support.without(fold.hidden)
        assert left.support.sum() < fusion.features.rules.support.sum()
        expected = used_rules(left)
        assert np.array_equal(features.rules.support, expected.support)
        assert np.array_equal(features.rules.body, expected.body)


def test_a_saved_fusion_is_the_same_when_it_is_loaded(fitted: tuple[Graph, Fusion], tmp_path: Path) -> None:
    graph, fusion = fitted
    assert not has_fusion(tmp_path)
    save_fusion(fusion, tmp_path)
    assert has_fusion(tmp_path)
    loaded = load_fusion(tmp_path, graph)
    assert loaded.info == fusion.info
    (before,), (after,) = (one.rank(graph.test[:, :2]) for one in (fusion, loaded))
    assert np.array_equal(before.lists.features, after.lists.features)
    assert np.array_equal(before.scores, after.scores)
    assert np.array_equal(before.confidence, after.confidence)


def test_a_fusion_of_another_graph_or_of_other_features_is_refused(
    fitted: tuple[Graph, Fusion], tmp_path: Path
) -> None:
    graph, fusion = fitted
    save_fusion(fusion, tmp_path)
    with pytest.raises(CheckpointError, match=r"another graph.*squire fuse"):
        load_fusion(tmp_path, replace(graph, train=graph.known("train", "valid")))
    shouted = Labels(
        LabelIndex((f"{label} {label[0]}x." for label in graph.labels.entities), "entity"), graph.labels.relations
    )
    with pytest.raises(CheckpointError, match="names are not the same"):
        load_fusion(tmp_path, replace(graph, labels=shouted))
    checkpoint = load_checkpoint(tmp_path, FUSION)
    for key, value, words in (
        ("features", [*COLUMN, "astrology"], "without astrology"),
        ("fusion", FILE_VERSION + 1, f"version {FILE_VERSION + 1}"),
        ("ranker", {"width": 9}, "another shape"),
    ):
        save_checkpoint(tmp_path, FUSION, checkpoint.arrays, {**checkpoint.state, key: value})
        with pytest.raises(CheckpointError, match=words):
            load_fusion(tmp_path, graph)


def test_where_nothing_can_be_hidden_it_says_so() -> None:
    with pytest.raises(SettingError, match="too small for a fusion"):
        fit_fusion(make_graph({"train": [("a", "r", "b"), ("c", "r", "d")]}), OPTIONS)


def test_linked_pairs_are_not_proposed_where_valid_has_none(fitted: tuple[Graph, Fusion]) -> None:
    train = [(f"{i}", r, f"{(i + d) % 40}") for i in range(40) for d, r in ((1, "r"), (1, "s"), (3, "r"))]
    valid = [(f"{i}", "s", f"{i + 3}") for i in range(0, 20) if i % 2]
    apart = [(f"{i}", "r", f"{(i + 7) % 40}") for i in range(12)]
    graph = make_graph({"train": train, "valid": apart})
    fusion = fit_fusion(graph, OPTIONS)
    assert fusion.info.unlinked
    (ranked,) = fusion.rank(graph.valid[:, :2])
    query_set = ranked.lists.queries[ranked.lists.query]
    pairs = zip(query_set[:, 0].tolist(), ranked.lists.candidates.tolist(), strict=True)
    assert not any(len(graph.train.relations_between(h, t)) for h, t in pairs)
    questions = QuerySet.from_graph(graph, "valid")
    assert "+unlinked" in rank_by_fusion(fusion, graph, questions).ranking.signature.aggregation
    as_others = fit_fusion(graph, replace(OPTIONS, unlinked=False))  # does not use this trait of the benchmark
    assert not as_others.info.unlinked
    (ranked,) = as_others.rank(graph.valid[:, :2])
    heads = ranked.lists.queries[ranked.lists.query, 0].tolist()
    pairs = zip(heads, ranked.lists.candidates.tolist(), strict=True)
    assert any(len(graph.train.relations_between(h, t)) for h, t in pairs)
    linked = fit_fusion(make_graph({"train": train, "valid": valid}), OPTIONS)
    assert not linked.info.unlinked


def test_nothing_becomes_a_candidate_for_being_the_answer(fitted: tuple[Graph, Fusion]) -> None:
    graph, fusion = fitted
    query_set = QuerySet.from_graph(graph, "test")
    (lists,) = (ranked.lists for ranked in fusion.rank(query_set.queries[:, :2]))
    # The same questions with other answers: the head itself, which this relation never links to itself, and one
    # that no source names. Both tie behind all candidates, which are those of before.
    everyone = np.arange(graph.num_entities, dtype=np.int32)
    others = [
        np.setdiff1d(everyone, [*lists.candidates[lists.rows(i)], h, *graph.train.tails_of(h, r)])[0]
        for i, (h, r) in enumerate(query_set.queries[:, :2].tolist())
    ]
    for answers in (query_set.queries[:, 0], np.array(others)):
        queries = np.column_stack([query_set.queries[:, :2], answers])
        ranks = rank_by_fusion(
            fusion, graph, replace(query_set, queries=queries, filter=graph.train)
        ).ranking.ranks
        for query, (head, relation, answer) in enumerate(queries.tolist()):
            candidates = lists.candidates[lists.rows(query)]
            assert answer not in candidates
            unreached = graph.num_entities - len(candidates) - len(graph.train.tails_of(head, relation))
            assert ranks[query] == len(candidates) + (1 + unreached) / 2
