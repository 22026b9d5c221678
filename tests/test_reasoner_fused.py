"""Answers ranked by all evidence: how sure they are, what they rest on, and that each still has a path."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from small_run import HOSTILE, fused_run, known_facts, small_run
from typer.testing import CliRunner

from squire.cli import app
from squire.errors import SettingError
from squire.graph.adjacency import Adjacency
from squire.ranking.features import CandidateFeatures
from squire.reasoning.answers import Source, basis_of
from squire.reasoning.reasoner import Reasoner
from squire.search.known_paths import complete, connect
from squire.search.options import SearchEdges

QUESTION = ("cleo", "grandparent")
SOME_QUESTIONS = np.array([(entity, relation) for entity in range(5) for relation in range(3)], np.int32)


@cache
def reasoner() -> Reasoner:
    return Reasoner.load(fused_run())


def test_the_ranking_is_the_fusions() -> None:
    found = reasoner().answer(*QUESTION, k=50)
    fusion = reasoner().fusion
    assert fusion
    query = np.array([reasoner().query(*QUESTION)], np.int32)
    (judged,) = fusion.rank(query)
    order = np.argsort(-judged.scores, kind="stable")
    names = [reasoner().labels.entities[i] for i in judged.lists.candidates[order]]
    assert [answer.entity for answer in found] == names
    assert [answer.rank for answer in found] == list(range(1, len(names) + 1))
    assert [answer.confidence for answer in found] == judged.confidence[order].tolist()
    assert [answer.score for answer in found] == judged.rank_score[order].tolist()
    assert found.origin.ranking == "fused"


def test_features_come_from_all_facts_unless_held_out_ones_are_hidden() -> None:
    query = np.array([reasoner().query(*QUESTION)], np.int32)
    for hidden in (False, True):
        ours = Reasoner.load(fused_run(), hide_held_out=hidden)
        graph = ours.graph if hidden else replace(ours.graph, train=ours.graph.facts)
        fusion = ours.fusion
        assert fusion
        evidence = CandidateFeatures(
            graph.train,
            fusion.features.rules,
            fusion.info.unlinked,
            words=fusion.features.words,
            walks=fusion.features.walks,
        )
        (found,), expected = list(fusion.rank(query)), evidence.describe(query)
        assert np.array_equal(found.lists.candidates, expected.candidates)
        assert np.array_equal(found.lists.features, expected.features)
        known = [one.entity for one in ours.answer(*QUESTION).facts]
        assert known == ([] if hidden else ["cleo 2"])


def test_sources_add_up_to_what_the_ranker_adds_to_nothing() -> None:
    found = reasoner().answer(*QUESTION, k=3)
    fusion = reasoner().fusion
    assert fusion
    (judged,) = fusion.rank(np.array([reasoner().query(*QUESTION)], np.int32))
    shares = judged.contributions()
    order = np.argsort(-judged.scores, kind="stable")
    for answer, place in zip(found, order[:3], strict=True):
        assert {s.name: pytest.approx(s.contribution, abs=1e-6) for s in answer.sources} == {
            name: share[place] for name, share in shares.items()
        }
        sizes = [abs(source.contribution) for source in answer.sources]
        assert sizes == sorted(sizes, reverse=True)
        assert answer.basis == basis_of(answer.sources)


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"rules": 2.0, "frequency": 0.1}, "rules alone"),
        ({"frequency": 1.0, "rules": -3.0}, "frequency alone"),
        ({"frequency": 1.0, "rules": 2.0}, "rules and frequency"),
        ({"a": 1.0, "b": 2.0, "c": 3.0}, "c, b and a"),
        ({"rules": -1.0}, "nothing in particular"),
        ({}, "nothing in particular"),
    ],
)
def test_what_an_answer_rests_on_in_words(shares: dict[str, float], words: str) -> None:
    assert basis_of([Source(name, share) for name, share in shares.items()]) == words


def test_one_switch_gives_the_ranking_of_the_paths_back() -> None:
    plain, back = (
        Reasoner.load(small_run()).answer(*QUESTION, k=5),
        reasoner().answer(*QUESTION, k=5, ranking="paths"),
    )
    assert back.answers == plain.answers
    assert back.origin.ranking == plain.origin.ranking == "paths"
    assert back[0].confidence is None


def test_without_a_fusion_none_is_promised() -> None:
    with pytest.raises(SettingError, match=r"no fusion here\. Run `squire fuse"):
        Reasoner.load(small_run()).answer(*QUESTION, ranking="fused")


def test_evidence_leads_to_its_answer_and_says_what_is_known() -> None:
    facts = {(head, reasoner().labels.shorten(relation), tail) for head, relation, tail in known_facts()}
    for answer in reasoner().answer(*QUESTION, k=50):
        for path in (answer.evidence, *answer.further):
            assert path.start == "cleo"
            assert path.edges[-1].goal == answer.entity
            assert [edge.is_fact for edge in path.edges] == [
                (edge.head, edge.relation, edge.tail) in facts for edge in path.edges
            ]


def test_an_answer_that_no_path_reaches_shows_the_queried_edge() -> None:
    """At a beam of one the search finds almost nothing; known paths are found all the same, if any."""
    found = Reasoner.load(fused_run(), hide_held_out=True).answer(*QUESTION, k=50, beam=1)
    grades = {answer.entity: answer.evidence.grade for answer in found}
    assert grades["cleo 2"] == "grounded"
    for answer in found:
        if answer.evidence.grade == "asserted":
            (edge,) = answer.evidence.edges
            assert (edge.head, edge.relation, edge.tail, edge.is_fact) == (*QUESTION, answer.entity, False)


def test_connections_are_walked_on_known_edges_only() -> None:
    ours = reasoner()
    query, answer = ours.query(*QUESTION), ours.labels.entity_id("dan 1")
    queries = np.array([query], np.int32)
    ranked = connect(ours.trained, ours._closed_rules, queries, [[answer]], ours.decoding())
    own = [i for i in range(len(ranked.entity)) if ranked.entity[i] == answer]
    assert own
    paths = ours.evidence(query, ranked, slice(*ranked.path_offsets[[own[0], own[0] + 1]].tolist()))
    assert {path.grade for path in paths} == {"grounded"}
    alone = ours.labels.entity_id("cleo")
    assert not len(connect(ours.trained, ours._closed_rules, queries, [[alone]], ours.decoding()).entity)


def test_paths_of_several_questions_are_found_together_as_alone() -> None:
    ours = reasoner()
    query = ours.query(*QUESTION)
    queries = np.array([query, (query[0], 0), query], np.int32)
    answers = [[ours.labels.entity_id(name) for name in names] for names in (["dan 1", "cleo 2"], ["dan 1"], [])]
    together = connect(ours.trained, ours._closed_rules, queries, answers, ours.decoding())
    assert len(together) == 3
    for number in range(3):
        alone = connect(
            ours.trained, ours._closed_rules, queries[number : number + 1], answers[number : number + 1],
            ours.decoding(),
        )  # fmt: skip
        own = together.rows(number)
        assert together.entity[own].tolist() == alone.entity.tolist()
        assert together.score[own] == pytest.approx(alone.score)
        paths = slice(together.path_offsets[own.start], together.path_offsets[own.stop])
        assert np.array_equal(together.paths[paths], alone.paths)


def test_a_path_with_one_inferred_edge_leads_where_no_known_path_does() -> None:
    ours = reasoner()
    query, train = ours.query(*QUESTION), ours.graph.train
    wanted = [ours.labels.entity_id(name) for name in ("ada 1", "finn")]
    queries = np.array([query], np.int32)
    ranked = complete(ours.trained, queries, [wanted], ours.decoding())
    for answer in wanted:
        (own,) = np.flatnonzero(ranked.entity == answer).tolist()
        paths = ours.evidence(query, ranked, slice(*ranked.path_offsets[[own, own + 1]].tolist()))
        first, last = paths[0].edges
        assert paths[0].grade == "completed"
        assert (first.is_fact, last.is_fact) == (False, True)
        arrived = ours.labels.entity_id(first.head if first.backwards else first.tail)
        assert arrived in train.edges(answer)[1]
    assert not len(complete(ours.trained, queries, [wanted], replace(ours.decoding(), hops=1)).entity)
    assert not len(complete(ours.trained, queries, [[]], ours.decoding()).entity)


def test_paths_that_are_looked_for_keep_to_the_edges_that_may_be_walked() -> None:
    ours = reasoner()
    query, answer, train = ours.query(*QUESTION), ours.labels.entity_id("dan 1"), ours.graph.train
    only = SearchEdges(
        Adjacency.build(np.array([[0, 0, 1]], np.int32), train.num_entities, train.num_relations), name="one edge"
    )
    decoding = replace(ours.decoding(), aggregate="sum", constraint=only)
    ranked = connect(ours.trained, ours._closed_rules, np.array([query], np.int32), [[answer]], decoding)
    assert answer not in ranked.entity


def test_grounded_answers_have_grounded_evidence() -> None:
    found = reasoner().answer(*QUESTION, k=5, grounded=True)
    assert len(found)
    assert {answer.evidence.grade for answer in found} == {"grounded"}


def test_many_questions_at_once_are_answered_as_each_by_itself() -> None:
    names = ["cleo", "finn", HOSTILE, "ada"] * 3
    queries = np.array([reasoner().query(name, "grandparent") for name in names], np.int32)
    together = list(reasoner().stream(queries, reasoner().decoding(), k=4))
    for name, answers in zip(names, together, strict=True):
        alone = reasoner().answer(name, "grandparent", k=4)
        assert [(a.entity, a.evidence.text) for a in answers] == [(a.entity, a.evidence.text) for a in alone]


def test_the_command_says_how_sure_and_what_it_rests_on() -> None:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["answer", str(fused_run()), *QUESTION, *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    best = reasoner().answer(*QUESTION, k=1)[0]
    text = run("-k", "1")
    assert best.summary.endswith(f"% likely, {best.evidence.grade}")
    assert f"{best.entity}  {best.summary}" in text
    assert f"based on {best.basis}: " in text
    assert "likely" not in run("--ranking", "paths")
    content = json.loads(run("--json", "-k", "1"))
    assert content["origin"]["ranking"] == "fused"
    assert content["answers"][0]["confidence"] == best.confidence
    assert content["answers"][0]["sources"][0].keys() == {"name", "contribution"}


def test_bulk_predictions_of_a_wanted_precision_are_those_answers_that_are_sure_enough(tmp_path: Path) -> None:
    def run(*arguments: object) -> str:
        result = CliRunner().invoke(app, ["complete", *map(str, arguments)])
        assert result.exit_code == 0, result.exception or result.output
        return result.output

    run(fused_run(), "-o", tmp_path / "all.tsv", "--relation", "grandparent", "-k", 99, "--heads", "all")
    rows = [line.split("\t") for line in (tmp_path / "all.tsv").read_text().splitlines()]
    sure = rows[0].index("confidence")
    assert rows[0][sure:] == ["confidence", "basis"]
    confidences = sorted((float(row[sure]) for row in rows[1:]), reverse=True)
    half = confidences[: len(confidences) // 2]
    precision = sum(half) / len(half) - 1e-4  # the mean of what is kept is what should be true
    run(
        fused_run(), "-o", tmp_path / "sure.tsv", "--relation", "grandparent", "-k", 99, "--heads", "all",
        "--precision", precision,
    )  # fmt: skip
    kept = [line.split("\t") for line in (tmp_path / "sure.tsv").read_text().splitlines()]
    least = min(float(row[sure]) for row in kept[1:])
    assert kept == [rows[0], *(row for row in rows[1:] if float(row[sure]) >= least)]
    assert len(half) <= len(kept) - 1 < len(rows) - 1


def test_a_precision_needs_a_fusion_and_must_have_been_reached() -> None:
    with pytest.raises(SettingError, match=r"precision=0\.9: answers ranked by paths have no confidence"):
        Reasoner.load(small_run()).confidence_for(0.9, SOME_QUESTIONS, 3)
    with pytest.raises(SettingError, match=r"precision=1: the most confident answer is \d+% likely"):
        reasoner().confidence_for(1.0, SOME_QUESTIONS, 3)


def test_the_least_confidence_for_a_precision_leaves_answers_of_that_mean() -> None:
    fusion = reasoner().fusion
    assert fusion
    every = [one.confidence for one in fusion.rank(SOME_QUESTIONS)]
    confidences = -np.sort(-np.concatenate(every))
    for wanted in (confidences[0] - 1e-9, confidences[:3].mean(), confidences.mean()):
        least = reasoner().confidence_for(wanted, SOME_QUESTIONS, 10**6)
        most = max(n for n in range(1, len(confidences) + 1) if confidences[:n].mean() >= wanted)
        assert least == pytest.approx(confidences[most - 1])
