"""Confidence of a fact: its formulas by brute force, its shares by counting, and graphs whose truth is known."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import LabelTriple, make_graph
from hypothesis import given
from hypothesis import strategies as st

from squire.core.ragged import offsets_from
from squire.graph.folds import can_be_hidden
from squire.graph.graph import Graph
from squire.model.recipe import load_recipe
from squire.ranking.confidence import (
    DEFAULT_MISSING,
    MOST_CERTAIN,
    MOST_LIKELY,
    MOST_MISSING,
    PRIOR_FACTS,
    Confidence,
    Shares,
    corrected,
    falling,
    missing_share,
    unseen_by,
)
from squire.ranking.confidence_fit import HIDDEN_PER_KNOT, Examples, fit_knots, hidden_loss, log_shares_of
from squire.ranking.features import CandidateLists
from squire.ranking.fusion import Fusion, FusionOptions, fit_fusion
from squire.rules.mining import MiningOptions
from squire.search.trained import LoadedRun

OPTIONS = FusionOptions(seed=1, folds=5, mining=MiningOptions(threads=1))
LOG_ODDS = st.floats(-12, 12)
SHARE = st.floats(0.01, 0.9)

# --------------------------------------------------------------------------------------------------- the formulas


@given(st.floats(-8, 8), SHARE, st.floats(0.05, 1), st.booleans())
def test_the_loss_is_the_likelihood_of_what_was_hidden(
    z: float, absent: float, part: float, is_hidden: bool
) -> None:
    labelled = absent * part
    p = 1 / (1 + math.exp(-z))
    probability = p * labelled / (p * absent + 1 - p)
    expected = -math.log(probability if is_hidden else 1 - probability)
    numbers = (torch.tensor([value], dtype=torch.float64) for value in (labelled, absent))
    found = hidden_loss(torch.tensor([z], dtype=torch.float64), torch.tensor([is_hidden]), log_shares_of(*numbers))
    assert found.item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


def confidence_of(shares: Shares, missing: float) -> Confidence:
    return Confidence(None, np.zeros((2, 0)), shares, missing)  # type: ignore[arg-type]  # the networks are not asked


def two_relations(valid: tuple[float, float] = (0, 0), test: tuple[float, float] = (0, 0)) -> Shares:
    facts = np.array([80.0, 200.0])
    return Shares(facts, facts, np.array(valid, float), np.array(test, float))


@given(LOG_ODDS, SHARE)
def test_the_confidence_of_a_missing_fact(z: float, share: float) -> None:
    found = confidence_of(two_relations(), share).of_missing(np.array([z]), np.array([1], np.int32))
    p = 1 / (1 + math.exp(-z))  # of being in the data
    true = p / (1 - share)
    expected = true * share / (true * share + 1 - true) if true < 1 else 1.0
    assert found[0] == pytest.approx(min(expected, MOST_LIKELY), rel=1e-6)


@given(LOG_ODDS, st.sampled_from([("valid",), ("test",), ("valid", "test")]), st.integers(0, 3))
def test_the_confidence_of_being_held_out(z: float, splits: tuple[str, ...], edge_type: int) -> None:
    shares = two_relations(valid=(10, 30), test=(5, 0))
    found = confidence_of(shares, 0.1).of_held_out(np.array([z]), np.array([edge_type], np.int32), splits)
    p, share = 1 / (1 + math.exp(-z)), shares.absent(splits)[edge_type % 2]
    assert found[0] == pytest.approx(min(p * share / (p * share + 1 - p), MOST_CERTAIN), rel=1e-6)


@given(st.lists(LOG_ODDS, min_size=2, max_size=10), SHARE, SHARE)
def test_confidence_rises_with_the_log_odds_and_with_the_missing_share(
    log_odds: list[float], one: float, other: float
) -> None:
    z, relation = np.sort(np.array(log_odds)), np.zeros(len(log_odds), np.int32)
    few, many = (confidence_of(two_relations(), share).of_missing(z, relation) for share in sorted((one, other)))
    assert np.all(np.diff(few) >= 0)
    assert np.all(few <= many + 1e-12)
    assert np.all((few >= 0) & (many <= MOST_LIKELY))


def lists_of(sizes: list[int]) -> CandidateLists:
    size = sum(sizes)
    features = np.zeros((size, 0), np.float32)
    queries = np.zeros((len(sizes), 2), np.int32)
    return CandidateLists(queries, offsets_from(sizes), np.arange(size, dtype=np.int32), features)


@given(st.lists(st.lists(st.tuples(st.integers(-5, 5), st.floats(0, 1)), max_size=8), max_size=4))
def test_confidences_never_rise_with_the_rank_and_keep_their_mean(lists: list[list[tuple[int, float]]]) -> None:
    scores = np.array([score for own in lists for score, _ in own], float)
    confidence = np.array([value for own in lists for _, value in own], float)
    made = lists_of([len(own) for own in lists])
    found = falling(confidence, made, scores)
    for query in range(len(lists)):
        rows = made.rows(query)
        ranked = found[rows][np.argsort(-scores[rows], kind="stable")]
        assert np.all(np.diff(ranked) <= 1e-12)
        assert found[rows].sum() == pytest.approx(confidence[rows].sum())
        before = confidence[rows][np.argsort(-scores[rows], kind="stable")]
        if np.all(np.diff(before) <= 0):
            assert np.array_equal(ranked, before)


# ------------------------------------------------------------------------------------------------------- shares


def chains(count: int = 40, valid: int = 4, test: int = 2) -> Graph:
    """Each a0 leads to b0 by r1 and by r2, b0 has a colour; some facts of r2 are held out."""
    train: list[LabelTriple] = []
    held_out: list[LabelTriple] = []
    for i in range(count):
        train += [(f"a{i}", "r1", f"b{i}"), (f"b{i}", "colour", f"colour {i % 3}")]
        (held_out if i < valid + test else train).append((f"a{i}", "r2", f"b{i}"))
    return make_graph({"train": train, "valid": held_out[:valid], "test": held_out[valid:]})


@pytest.mark.parametrize("unlinked", [False, True])
def test_shares_are_those_of_counting(unlinked: bool) -> None:
    graph = chains()
    shares = Shares.from_graph(graph, unlinked)
    hidden = graph.train.triples[can_be_hidden(graph.train, unlinked)]
    facts = [np.sum(hidden[:, 1] == r) for r in range(3)]
    r2 = graph.labels.relation_id("r2")
    assert shares.facts.tolist() == facts
    assert shares.valid.tolist() == [4.0 * (r == r2) for r in range(3)]
    assert shares.test.tolist() == [2.0 * (r == r2) for r in range(3)]  # like valid
    assert (facts[r2] == 0) == unlinked  # r1 has the same two ends

    def smoothed(part: list[float], whole: list[float]) -> list[float]:
        mean = sum(part) / sum(whole)
        return [(a + PRIOR_FACTS * mean) / (b + PRIOR_FACTS) for a, b in zip(part, whole, strict=True)]

    some = hidden[::3]
    count = [float(np.sum(some[:, 1] == r)) for r in range(3)]
    every = (shares.facts + shares.test).tolist()
    labelled, absent = shares.hidden(some)
    assert labelled == pytest.approx(smoothed(count, every))
    assert absent == pytest.approx(smoothed((count + shares.test).tolist(), every))
    held_out = (shares.valid + shares.test).tolist()
    both = (shares.facts + held_out).tolist()
    assert shares.absent(["valid", "test"]) == pytest.approx(smoothed(held_out, both))


def test_relations_lack_facts_as_they_do_in_valid_and_all_together_the_given_share() -> None:
    shares = two_relations(valid=(30, 10))
    missing = shares.missing(0.2)
    assert missing[0] > missing[1]
    facts = missing / (1 - missing) * shares.facts  # that are missing, beside those that are there
    assert facts.sum() / (facts + shares.facts).sum() == pytest.approx(0.2, rel=0.05)
    assert two_relations().missing(0.2).tolist() == [0.2, 0.2]
    assert two_relations(valid=(79, 1)).missing(0.9).max() == MOST_MISSING


def test_the_share_that_is_missing_is_that_of_given_splits() -> None:
    graph = chains()
    assert missing_share(graph) == pytest.approx(6 / 120)
    assert missing_share(replace(graph, is_divided=True)) == DEFAULT_MISSING
    assert missing_share(chains(valid=0, test=0)) == DEFAULT_MISSING


# ----------------------------------------------------------------------------------------- graphs with a truth


@cache
def governed() -> tuple[Graph, Fusion]:
    """Of 120 facts of r2, which r1 implies, a tenth is held out; each b has one colour."""
    graph = chains(120, valid=6, test=6)
    return graph, fit_fusion(graph, OPTIONS)


def confidence_in(fusion: Fusion, graph: Graph, head: str, relation: str, tail: str) -> float:
    query = np.array([[graph.labels.entity_id(head), graph.labels.relation_id(relation)]], np.int32)
    wanted = np.array([graph.labels.entity_id(tail)], np.int32)
    facts = graph.known("train", "valid")
    run = LoadedRun(Path(graph.name), graph, load_recipe("small"), fusion.features.rules, facts)
    (judged,) = fusion.on(run).rank(query, threads=1, wanted=wanted)
    return float(judged.confidence[judged.lists.candidates == wanted[0]][0])


def test_what_a_rule_implies_is_likely_and_another_value_is_not() -> None:
    graph, fusion = governed()
    hidden = [confidence_in(fusion, graph, f"a{i}", "r2", f"b{i}") for i in range(6, 12)]
    assert min(hidden) > 0.7
    second = [confidence_in(fusion, graph, f"b{i}", "colour", f"colour {(i + 1) % 3}") for i in range(30)]
    assert max(second) < 0.1
    third = [confidence_in(fusion, graph, f"a{i}", "r2", f"b{i + 1}") for i in range(30, 60)]
    assert max(third) < 0.1


def test_a_graph_of_ten_facts_gives_no_warning_and_nothing_absurd() -> None:
    facts = [(f"e{i}", "likes", f"t{(i + j) % 3}") for i in range(5) for j in range(2)]
    graph = Graph.from_triples(facts, holdout=(0, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fusion = fit_fusion(graph, OPTIONS)
        queries = np.array([(entity, edge) for entity in range(8) for edge in range(2)], np.int32)
        (judged,) = fusion.rank(queries, threads=1)
        confidence = judged.confidence
    assert len(confidence)
    assert np.all((confidence > 0) & (confidence < 0.5))


# ------------------------------------------------------------------------------- networks, and their correction


@given(st.integers(1, 8), st.integers(0, 10**6))
def test_every_question_is_unseen_by_a_network_and_always_the_same_ones(networks: int, head: int) -> None:
    queries = np.array([(head, relation) for relation in range(5)], np.int32)
    unseen = unseen_by(queries, networks)
    assert unseen.shape == (5, networks)
    assert unseen.any(axis=1).all()
    assert np.array_equal(unseen[2:3], unseen_by(queries[2:3], networks))


def test_each_network_sees_about_half_of_the_questions() -> None:
    queries = np.array([(head, relation) for head in range(500) for relation in range(4)], np.int32)
    assert np.all(np.abs(unseen_by(queries, 6).mean(axis=0) - 0.5) < 0.08)


def test_knots_undo_log_odds_that_are_too_high() -> None:
    rng = np.random.default_rng(0)
    size, share = 200_000, 0.05
    right = rng.normal(-1, 1.5, size)
    odds = np.exp(right)
    hidden = rng.random(size) < odds * share / (odds * share + 1)
    examples = Examples(
        np.zeros((size, 1), np.float32), np.ones((size, 1), bool), np.zeros(size, np.int32), hidden,
        np.ones(size), np.full(size, share), np.full(size, share),
    )  # fmt: skip
    said = 1.5 * right + 0.5
    knots = fit_knots(said, examples)
    assert knots.shape == (2, hidden.sum() // HIDDEN_PER_KNOT)
    assert np.all(np.diff(knots) >= 0)
    middle = (said > knots[0, 1]) & (said < knots[0, -2])
    assert np.abs(corrected(said, knots) - right)[middle].mean() < 0.25
    assert np.all(np.diff(corrected(np.linspace(-9, 9, 50), knots)) >= 0)


def test_few_hidden_facts_correct_nothing() -> None:
    few = Examples(
        np.zeros((9, 1), np.float32), np.ones((9, 1), bool), np.zeros(9, np.int32), np.ones(9, bool), np.ones(9),
        np.full(9, 0.1), np.full(9, 0.2),
    )  # fmt: skip
    z = np.linspace(-2, 2, 9)
    assert np.array_equal(corrected(z, fit_knots(z, few)), z)
