"""Candidates and their features against dictionaries, on small random graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_fusion import NaiveEvidence
from test_walks import random_weights

from squire.errors import SettingError
from squire.graph.adjacency import Adjacency
from squire.ranking import features
from squire.ranking._walks import WalkWeights
from squire.ranking.features import (
    BEST_RULES,
    COLUMN,
    FEATURES,
    MIN_CONSTANT_SUPPORT,
    MIN_SUPPORT,
    RULES,
    SOURCES,
    CandidateFeatures,
    CandidateLists,
    absent,
    used_rules,
)
from squire.ranking.index import name_words, no_words
from squire.rules.application import RuleEngine
from squire.rules.mining import MiningOptions, mine_rules
from squire.rules.rules import NONE, PSEUDO_COUNT, Rules

ENTITIES, RELATIONS = 7, 2
MINING = MiningOptions(min_support=1, constant_support=1, threads=1)
TRIPLES = st.sets(
    st.tuples(
        st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)
    ),
    min_size=1,
    max_size=16,
)  # fmt: skip


NAMES = [
    "a city_Rome",
    "a city_Paris, city of light",
    "a river Tiber",
    "a river_Seine",
    "a Paris",
    "",
    "a 7_light 7",
]


def evidence_of(
    triples: set[tuple[int, int, int]], drop_linked: bool = False, walks: WalkWeights | None = None
) -> CandidateFeatures:
    adjacency = Adjacency.build(np.array(sorted(triples), np.int32), ENTITIES, RELATIONS)
    rules = mine_rules(adjacency, MINING).rules
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "LEAST_SHARE", 0.0)
        return CandidateFeatures(adjacency, rules, drop_linked, name_words(NAMES), walks=walks)


def twin_of(triples: set[tuple[int, int, int]], evidence: CandidateFeatures) -> NaiveEvidence:
    engine = RuleEngine(evidence.used_rules, evidence.adjacency, best=BEST_RULES)
    return NaiveEvidence(triples, ENTITIES, RELATIONS, engine, NAMES, evidence.walks)


QUERIES = np.array([(h, r) for h in range(ENTITIES) for r in range(2 * RELATIONS)], np.int32)


@settings(max_examples=60)
@given(TRIPLES, st.booleans(), st.none() | st.integers(0, 1000))
def test_candidates_and_features_are_those_of_the_twin(
    triples: set[tuple[int, int, int]], drop_linked: bool, seed: int | None
) -> None:
    evidence = evidence_of(triples, drop_linked, None if seed is None else random_weights(seed))
    twin, lists = twin_of(triples, evidence), evidence.describe(QUERIES)
    for query, (h, r) in enumerate(QUERIES.tolist()):
        own = lists.rows(query)
        candidates = lists.candidates[own].tolist()
        assert candidates == sorted(twin.candidates(h, r, drop_linked))
        for t, row in zip(candidates, lists.features[own], strict=True):
            expected = dict(zip(COLUMN, twin.features(h, r, t), strict=True))
            assert dict(zip(COLUMN, row.tolist(), strict=True)) == pytest.approx(expected, rel=1e-4, abs=1e-5)


@settings(max_examples=60)
@given(st.integers(0, 1000), st.sampled_from([1, 2]), st.booleans(), st.data())
def test_a_hidden_fact_is_no_support_of_the_rules_that_predict_it(
    seed: int, length: int, constants: bool, data: st.DataObject
) -> None:
    # So dense that rules have the support they need, and r1 follows from r0.
    rng = np.random.default_rng(seed)
    triples = {(h, 0, t) for h, t in rng.integers(0, ENTITIES, (10, 2)).tolist()}
    triples |= {(h, 1, t) for h, _, t in sorted(triples)[2:]} | {(0, 1, 1)}
    adjacency = Adjacency.build(np.array(sorted(triples), np.int32), ENTITIES, RELATIONS)
    mining = MiningOptions(min_support=1, constant_support=1, length=length, constants=constants, threads=1)
    rules = mine_rules(adjacency, mining).rules
    fact = data.draw(st.sampled_from(sorted(triples)))
    left = np.array(sorted(triples - {fact}), np.int32).reshape(-1, 3)
    remaining = Adjacency.build(left, ENTITIES, RELATIONS)
    hidden = Adjacency.build(np.array([fact], np.int32), ENTITIES, RELATIONS)
    counted = CandidateFeatures(remaining, rules, words=name_words(NAMES))
    evidence = CandidateFeatures(remaining, rules, words=name_words(NAMES), hidden=hidden)
    every_rule = RuleEngine(evidence.used_rules, remaining, best=len(rules) + 1)
    h, r, t = fact
    for query, answer in (((h, r), t), ((t, r + RELATIONS), h)):
        queries, wanted = np.array([query], np.int32), np.array([answer], np.int32)
        found, plain = (one.describe(queries, wanted) for one in (evidence, counted))
        assert np.array_equal(found.candidates, plain.candidates)
        own = found.candidates == answer
        other_columns = [i for i, feature in enumerate(FEATURES) if feature.source != RULES]
        assert np.array_equal(found.features[~own], plain.features[~own])
        assert np.array_equal(found.features[:, other_columns], plain.features[:, other_columns])
        if len(rules_for(every_rule, query, answer)) <= BEST_RULES:
            expected = NaiveEvidence._of_rules(naive_rules_without(every_rule, query, answer))
            first = COLUMN["noisy or of 5"]
            assert found.features[own][0, first : first + len(expected)] == pytest.approx(
                np.array(expected), rel=1e-4, abs=1e-6
            )


def rules_for(engine: RuleEngine, query: tuple[int, int], answer: int) -> list[int]:
    """The rules that predict an answer."""
    found = engine.answer(np.array([query], np.int32))
    return [rule for own in found.rules[found.answers == answer].tolist() for rule in own if rule != NONE]


def naive_rules_without(engine: RuleEngine, query: tuple[int, int], answer: int) -> list[tuple[float, int]]:
    """Smoothed confidence and kind of these rules, if each had one fact less to support it."""
    rules, out = engine.rules, []
    for rule in rules_for(engine, query, answer):
        support = int(rules.support[rule]) - 1
        if support >= (MIN_SUPPORT if rules.is_closed[rule] else MIN_CONSTANT_SUPPORT):
            constants = 4 if rules.body_constant[rule] == NONE else 3
            kind = int(rules.length[rule]) - 1 if rules.is_closed[rule] else constants
            out.append((support / (int(rules.body_count[rule]) + PSEUDO_COUNT), kind))
    return sorted(out, reverse=True)


def test_many_candidates_are_cut_to_the_best_of_each_source_and_known_ones_take_no_room() -> None:
    # Entity 0 asks; 1 … 299 are tails, the higher the more frequent; 0 knows the 150 most frequent.
    triples = [(300 + voter, 0, tail) for tail in range(1, 300) for voter in range(tail)]
    triples += [(0, 0, tail) for tail in range(150, 300)]
    adjacency = Adjacency.build(np.array(triples, np.int32), 600, 1)
    rules = mine_rules(adjacency, MiningOptions(length=1, constants=False, threads=1)).rules
    lists = CandidateFeatures(adjacency, rules).describe(np.array([[0, 0]], np.int32))
    assert set(range(30, 150)) <= set(lists.candidates.tolist())  # 120 by frequency
    assert lists.candidates.max() < 150


@pytest.mark.parametrize("answers_at_once", [5, 1_000_000])
def test_a_block_of_queries_gives_what_they_give_alone_in_any_order_on_any_thread(
    answers_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squire.rules.application.ANSWERS_AT_ONCE", answers_at_once)
    rng = np.random.default_rng(0)
    triples = {tuple(row) for row in rng.integers(0, [ENTITIES, RELATIONS, ENTITIES], (20, 3)).tolist()}
    evidence = evidence_of(triples)
    together = CandidateLists.join(list(evidence.stream(np.tile(QUERIES, (20, 1)), threads=2)))
    alone = CandidateLists.join([evidence.describe(QUERIES[i : i + 1]) for i in range(len(QUERIES))] * 20)
    assert np.array_equal(together.offsets, alone.offsets)
    assert np.array_equal(together.candidates, alone.candidates)
    assert np.array_equal(together.features, alone.features)


def test_words_that_most_names_have_and_identifiers_are_no_evidence() -> None:
    rows = name_words(["x:Upper Nile", "x:Lower Nile", "x:Nile", "x:Upper House", "x:Q5"])
    words = [rows.item[rows.offsets[i] : rows.offsets[i + 1]].tolist() for i in range(5)]
    assert words[0] == words[3] == [0]  # "upper", not "x" nor "nile", which three of five have
    assert words[1] == words[2] == words[4] == []
    for identifiers in (["/m/07y_7", "/m/05_7", "/m/07y", "/m/0c3"], ["Q1", "Q2", "Q3"], []):
        assert len(name_words(identifiers).item) == 0


def test_the_first_word_of_a_name_is_another_word_than_the_same_word_later() -> None:
    rows = name_words(["city Rome", "city Oslo", "Mexico City", "Oslo", "lake Como", "lake Iseo"])
    words = [set(rows.item[rows.offsets[i] : rows.offsets[i + 1]].tolist()) for i in range(6)]
    assert words[0] & words[1]
    assert not words[0] & words[2]


def test_names_need_not_be_looked_at() -> None:
    assert len(no_words(3).item) == 0
    assert no_words(3).offsets.tolist() == [0, 0, 0, 0]
    plain = evidence_of({(0, 0, 1), (1, 0, 2), (2, 1, 0)})
    blind = CandidateFeatures(plain.adjacency, plain.rules).describe(QUERIES)
    assert not blind.features[:, COLUMN["name vote"] : COLUMN["typical name"] + 1].any()


def test_the_table_has_a_source_and_a_sentence_for_every_feature() -> None:
    assert len(COLUMN) == len(FEATURES)
    assert all(feature.source in SOURCES and feature.sentence for feature in FEATURES)


def test_absent_evidence_looks_like_that_of_an_entity_of_which_nothing_is_known() -> None:
    # 5 has neither an edge nor a name: no source but the frequency rank's context says anything of it.
    triples = {(0, 0, 1), (1, 0, 2), (3, 0, 2), (2, 1, 4)}
    evidence = evidence_of(triples)
    row = np.array([twin_of(triples, evidence).features(0, 0, 5)], np.float32)
    assert absent(row, FEATURES) == pytest.approx(row, abs=1e-5)


def test_queries_of_another_graph_are_refused() -> None:
    with pytest.raises(SettingError, match="not in the graph"):
        evidence_of({(0, 0, 1)}).describe(np.array([[ENTITIES, 0]], np.int32))


def test_long_rules_are_applied_if_they_are_reliable_or_among_the_first_of_their_head() -> None:
    rng = np.random.default_rng(0)
    head, length = rng.integers(0, 3, 3000).astype(np.int32), rng.integers(1, 4, 3000)
    body = np.where(np.arange(3) < length[:, None], 0, NONE).astype(np.int32)
    support = (rng.random(3000) ** 4 * 1000).astype(np.int64)  # of 1,000: more than half above .01
    rules = Rules.closed(3, head, body, np.full(3000, 1000 - PSEUDO_COUNT), support)
    rules.support[head == 2] = 3  # nothing reliable, and nothing above a hundredth
    expected = []
    for number, confidence in enumerate(rules.smoothed_confidence.tolist()):
        rivals = (head == head[number]) & (length == 3) & (rules.smoothed_confidence > confidence)
        is_first = confidence >= 0.01 and rivals.sum() < 100
        if length[number] < 3 or confidence >= 0.1 or is_first:
            expected.append(number)
    found = used_rules(rules)
    long = found.length == 3
    of_head = [np.sort(found.support[long & (found.head == r)]) for r in range(3)]
    assert len(of_head[2]) == 0
    assert len(found) == pytest.approx(len(expected), abs=3)  # ties at the last place
    for r in range(2):
        own = [n for n in expected if length[n] == 3 and head[n] == r]
        assert set(of_head[r]) == set(rules.support[own].tolist())
