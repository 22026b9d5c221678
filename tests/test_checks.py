"""Checks of single facts: judged without themselves, consistent with answers, with sentences a layman reads."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import product
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from graphs import LabelTriple, make_graph
from small_run import HOSTILE, family, fused_run, known_facts, small_run
from typer.testing import CliRunner

import squire
from squire.cli import app
from squire.errors import SettingError, UnknownName
from squire.graph.adjacency import Adjacency
from squire.ranking.context import relation_index
from squire.ranking.features import CandidateLists
from squire.ranking.fusion import FusedRanking
from squire.reasoning.checks import Objections, check_fact
from squire.reasoning.reasoner import Reasoner


@cache
def reasoner() -> Reasoner:
    return Reasoner.load(fused_run())


def ids_of(*fact: str) -> tuple[int, int, int]:
    labels = reasoner().labels
    return labels.entity_id(fact[0]), labels.relation_id(fact[1]), labels.entity_id(fact[2])


# ------------------------------------------------------------------------------------------------ the judgement


def test_a_check_agrees_with_the_answer_to_the_question() -> None:
    for head, relation in (("cleo", "likes"), ("ada 1", "grandparent")):
        answers = reasoner().answer(head, relation, k=50)
        assert len(answers)
        for one in answers:
            check = check_fact(reasoner(), head, relation, one.entity)
            assert not check.is_fact
            assert check.confidence == check.answer.confidence == one.confidence
            assert (check.answer.rank, check.answer.score) == (one.rank, one.score)
            assert check.answer.basis == one.basis
            assert check.origin == answers.origin


def test_every_entity_can_be_checked() -> None:
    entities = reasoner().labels.entities
    for head, tail in product(("cleo", "ada 1"), entities):
        check = check_fact(reasoner(), head, "likes", tail)
        assert (check.head, check.relation, check.tail) == (head, "likes", tail)
        assert 0 <= check.confidence <= 1
        assert check.answer.entity == tail
        assert check.answer.rank >= 1


def test_a_known_fact_is_judged_as_if_the_graph_never_had_it() -> None:
    graph = family()
    ours = reasoner()
    assert ours.fusion
    for split in ("valid", "test"):  # rules were not mined from these
        for triple in graph.triples(split):
            left = ours.run.facts.triples
            left = left[~np.all(left == triple, axis=1)]
            remaining = Adjacency.build(left, graph.num_entities, graph.num_relations)
            run = replace(ours.run, facts=remaining)
            ignorant = Reasoner(run, ours.fusion.on(run))
            head, relation, tail = (column[0].as_py() for column in graph.labels.columns(triple[None]))
            known, unknown = (check_fact(one, head, relation, tail) for one in (ours, ignorant))
            assert (known.is_fact, unknown.is_fact) == (True, False)
            assert replace(known, is_fact=False) == unknown


def test_a_fact_of_train_is_no_evidence_for_itself() -> None:
    for head, relation, tail in sorted(known_facts()):
        check = check_fact(reasoner(), head, relation, tail)
        assert check.is_fact
        shown = (check.answer.evidence, *check.answer.further)
        edges = {(edge.head, edge.relation, edge.tail) for path in shown for edge in path.edges if edge.is_fact}
        assert (check.head, check.relation, check.tail) not in edges


def test_a_check_changes_nothing() -> None:
    before, facts = reasoner().answer("cleo", "likes", k=5), reasoner().run.facts
    check_fact(reasoner(), "cleo", "likes", "dan")
    assert reasoner().run.facts is facts
    assert reasoner().answer("cleo", "likes", k=5) == before


def test_facts_are_left_out_in_both_directions() -> None:
    fact = ids_of("cleo", "likes", "dan")
    ignorant = reasoner().without(np.array([fact], np.int32))
    assert ignorant.fusion
    for facts in (ignorant.run.facts, ignorant.fusion.features.adjacency):
        assert not facts.contains(*fact)
        assert facts.num_edges == reasoner().run.facts.num_edges - 2
        assert not len(facts.tails_of(fact[2], fact[1] + reasoner().graph.num_relations))


@pytest.mark.parametrize(
    ("fact", "error", "words"),
    [
        (("cleo", "likes", 5), SettingError, "tail=5: expected a label, as text"),
        ((None, "likes", "dan"), SettingError, "head=None: expected a label, as text"),
        (("cleo", "likes", "danny"), UnknownName, "unknown entity 'danny'. Nearest: 'dan"),
        (("cleo", "like", "dan"), UnknownName, "unknown relation 'like'. Nearest: 'likes'"),
    ],
)
def test_mistakes_are_named(fact: tuple[str, str, str], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        squire.Run(fused_run()).check(*fact)


def test_without_a_fusion_there_is_no_confidence() -> None:
    with pytest.raises(SettingError, match=r"no fusion here, so there is no confidence. Run `squire fuse"):
        squire.Run(small_run()).check("cleo", "likes", "dan")


# ------------------------------------------------------------------------------------------------ the sentences


def objections_to(facts: list[LabelTriple], *fact: str) -> list[str]:
    graph = make_graph({"train": facts})
    labels = graph.labels
    found = Objections(graph.train, relation_index(graph.train), labels)
    return found.to_fact(labels.entity_id(fact[0]), labels.relation_id(fact[1]), labels.entity_id(fact[2]))


COUNTRIES = [
    fact
    for i in range(20)
    for fact in (
        (f"country {i}", "drives on", "right" if i % 2 else "left"),
        (f"country {i}", "capital", f"city {i}"),
        (f"city {i}", "lies on", f"river {i % 4}"),
        (f"city {i}", "lies on", f"lake {i % 4}"),
    )
]


def test_a_value_that_is_there_already_is_named() -> None:
    (sentence,) = objections_to(COUNTRIES, "country 1", "drives on", "left")
    assert sentence == (
        "The graph already says: country 1 · drives on · right. "
        "Of 19 other entities with such a fact, none has another."
    )
    head, tail = objections_to(COUNTRIES, "country 1", "capital", "city 2")
    assert "country 1 · capital · city 1." in head
    assert "country 2 · capital · city 2." in tail


def test_a_fact_of_the_graph_is_no_objection_to_itself() -> None:
    for fact in COUNTRIES:
        assert objections_to(COUNTRIES, *fact) == []
    twice = [*COUNTRIES, ("country 1", "drives on", "left")]
    for side, other in (("left", "right"), ("right", "left")):
        (sentence,) = objections_to(twice, "country 1", "drives on", side)
        assert sentence.startswith(f"The graph already says: country 1 · drives on · {other}. Of 19 ")
        assert "none has another" in sentence
    (sentence,) = objections_to(twice, "country 2", "drives on", "right")
    assert "1 has another" in sentence


def test_one_more_value_is_no_objection_where_several_are_usual() -> None:
    borders = [(f"c{i}", "borders", f"c{i + j}") for i in range(30) for j in range(1, 1 + i % 6)]
    assert objections_to(borders, "c1", "borders", "c9") == []
    few = [("a", "r", "x"), ("b", "r", "y")]
    assert not any("already" in sentence for sentence in objections_to(few, "a", "r", "y"))


def test_ends_of_another_kind_are_named() -> None:
    (sentence,) = objections_to(COUNTRIES, "river 1", "drives on", "left")
    assert sentence == (
        "There is no other fact river 1 · drives on · …, and entities like river 1 rarely have one."
    )
    sentences = objections_to(COUNTRIES, "country 1", "drives on", "river 1")
    assert (
        "There is no other fact … · drives on · river 1, and entities like river 1 rarely have one." in sentences
    )


def test_an_entity_with_no_other_fact_is_said_to_be_unknown() -> None:
    lonely = [*COUNTRIES, ("nowhere", "drives on", "left")]
    assert objections_to(lonely, "nowhere", "drives on", "left") == ["The graph says nothing else about nowhere."]


@pytest.mark.parametrize(
    ("confidence", "sentences"),
    [
        ([0.2, 0.7, 0.3, 0.21, 0.25], ["Likelier: b (70%), c (30%), e (25%)."]),
        ([0.2, 0.1, 0.0, 0.2, 0.1], []),
        ([0.001, 0.01, 0.03, 0.002, 0.001], ["Likelier: c (3%)."]),
        ([0.6, 0.9, 0.8, 0.1, 0.1], []),  # several can be true
    ],
)
def test_likelier_answers_are_named_with_their_likelihood(confidence: list[float], sentences: list[str]) -> None:
    graph = make_graph({"train": [("a", "r", "b"), ("c", "r", "d"), ("e", "r", "a")]})
    objections = Objections(graph.train, relation_index(graph.train), graph.labels)
    ids = np.array([graph.labels.entity_id(name) for name in "abcde"], np.int32)
    lists = CandidateLists(np.zeros((1, 2), np.int32), np.array([0, 5]), ids, np.zeros((5, 0), np.float32))
    judged = SimpleNamespace(lists=lists, scores=np.array(confidence), confidence=np.array(confidence))
    assert objections.likelier(cast(FusedRanking, judged), int(ids[0])) == sentences


# ----------------------------------------------------------------------------------------------------- shown


def test_a_check_shows_itself() -> None:
    check = squire.Run(fused_run()).check("cleo", "likes", "dan")
    lines = repr(check).splitlines()
    assert lines[0] == "(cleo, likes, dan)"
    assert lines[1] == f"  {check.summary}"
    assert check.summary.startswith("in the graph; without it, ")
    assert lines[2:] == [f"  for: {check.answer.evidence.text}"] * (check.answer.evidence.grade != "asserted") + [
        f"  against: {sentence}" for sentence in check.against
    ]
    hostile = squire.Run(fused_run()).check(HOSTILE, "likes", "dan")
    assert HOSTILE in repr(hostile)
    assert HOSTILE not in hostile._repr_html_()
    assert replace(check, is_fact=False, confidence=0.001).summary == "not in the graph, <1% likely"


def test_the_command_prints_the_check_or_its_json() -> None:
    command = ["check", str(fused_run()), "cleo", "likes", "dan"]
    check = squire.Run(fused_run()).check("cleo", "likes", "dan")
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    for words in ("(cleo, likes, dan)", check.summary, f"rank {check.answer.rank}", *check.against):
        assert words in shown.output
    assert check.answer.evidence.edges[0].goal in shown.output
    told = CliRunner().invoke(app, [*command, "--json"])
    assert json.loads(told.output) == json.loads(json.dumps(check.as_dict()))
