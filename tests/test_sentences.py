"""Answers in plain words, and example questions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from small_run import fused_run

from squire.api import Run
from squire.core.run_files import EXAMPLES
from squire.reasoning import examples
from squire.reasoning.answers import Edge
from squire.reasoning.examples import example_questions
from squire.reasoning.sentences import claim, clauses, stated


def edge(head: str, relation: str, tail: str, *, backwards: bool = False, is_fact: bool = True) -> Edge:
    return Edge(head, relation, tail, backwards, is_fact, 0.5)


@pytest.mark.parametrize(
    ("relation", "confidence", "said"),
    [
        ("currency", 0.95, "The currency of A is very probably B"),
        ("currency", 0.6, "The currency of A is probably B"),
        ("borders", 0.2, "A possibly borders B"),
        ("located in", 0.01, "It is unlikely that A is located in B"),
        ("is a", 0.6, "A is probably a B"),
        ("gained independence from", 0.6, "A probably gained independence from B"),
        ("lies on", 0.6, "A probably lies on B"),
        ("/people/person/place_of_birth", None, "The place of birth of A is perhaps B"),
        ("http://example.org/isPartOf", None, "A is perhaps part of B"),
        ("member of", None, "A is perhaps a member of B"),
        ("formerly part of", None, "A was perhaps formerly part of B"),
        ("formerly part of", 0.6, "A was probably formerly part of B"),
        ("class", None, "The class of A is perhaps B"),
    ],
)
def test_a_claim_says_how_likely_it_is(relation: str, confidence: float | None, said: str) -> None:
    assert claim("A", relation, "B", confidence) == said


def test_a_fact_is_stated_and_an_improbable_step_is_doubted() -> None:
    assert stated("A", "currency", "B") == "The currency of A is B"
    assert clauses([Edge("A", "borders", "B", False, False, 0.05)]) == ("A perhaps borders B",)
    assert clauses([Edge("A", "borders", "B", False, False, 0.9)]) == ("A probably borders B",)


def test_clauses_leave_out_what_they_would_repeat() -> None:
    cases = [
        ([edge("Niger", "freed from", "France"), edge("France", "language", "French")],
         "Niger is freed from France, whose language is French"),
        ([edge("A", "in subregion", "C"), edge("B", "in subregion", "C", backwards=True), edge("B", "money", "M")],
         "A is in subregion C, like B, whose money is M"),
        ([edge("R", "flows through", "A", backwards=True), edge("R", "flows through", "G")],
         "R flows through A, as well as G"),
        ([edge("A", "borders", "B", is_fact=False), edge("C", "owns", "B", backwards=True)],
         "A probably borders B, and C owns B"),
    ]  # fmt: skip
    for path, said in cases:
        parts = clauses(path)
        assert len(parts) == len(path)  # one for each step, to light it up
        assert "".join(parts) == said


def test_examples_are_held_out_facts_and_kept_for_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(fused_run(), tmp_path / "run", ignore=shutil.ignore_patterns(EXAMPLES))
    monkeypatch.setattr(examples, "CONFIDENT", 0.0)
    monkeypatch.setattr(examples, "STRONG", 0.0)
    reasoner = Run(tmp_path / "run").reasoner
    chosen = example_questions(reasoner)
    graph = reasoner.graph
    held_out = {tuple(row) for split in (graph.valid, graph.test) for row in split.tolist()}
    for head, relation, tail in chosen:
        labels = graph.labels
        assert (labels.entity_id(head), labels.relation_id(relation), labels.entity_id(tail)) in held_out
    kept = json.loads((tmp_path / "run" / EXAMPLES).read_text(encoding="utf-8"))
    assert [tuple(one) for one in kept["examples"]] == chosen
    changed = {**kept, "examples": [["a", "b", "c"]]}
    (tmp_path / "run" / EXAMPLES).write_text(json.dumps(changed), encoding="utf-8")
    assert example_questions(reasoner) == [("a", "b", "c")]
    changed["fingerprints"] = {"fusion": "another"}
    (tmp_path / "run" / EXAMPLES).write_text(json.dumps(changed), encoding="utf-8")
    assert example_questions(reasoner) == chosen
