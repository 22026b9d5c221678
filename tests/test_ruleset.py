"""RuleSet: rules with labels, as people use them."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from squire.errors import RuleError, SettingError, UnknownName
from squire.graph.graph import Graph
from squire.graph.labels import LabelIndex, Labels
from squire.graph.loading import load_graph
from squire.rules.anyburl import Sidecar
from squire.rules.mining import MiningOptions, mine_rules
from squire.rules.ruleset import RuleSet

# Grandparents are parents of parents; one of the five is not in the file.
FAMILY = [(f"{name}{i}", "parent", f"{name}{i + 1}") for name in "abcde" for i in range(2)]
FAMILY += [(f"{name}0", "grandparent", f"{name}2") for name in "abcd"]
TEXT = "grandparent(X, Y) ⇐ parent(X, A) ∧ parent(A, Y)"


@pytest.fixture
def family(tmp_path: Path) -> Path:
    file = tmp_path / "family.tsv"
    file.write_text("".join("\t".join(triple) + "\n" for triple in FAMILY))
    return file


@pytest.fixture
def graph(family: Path) -> Graph:
    labels = load_graph(family).labels
    ids = [(labels.entity_id(h), labels.relation_id(r), labels.entity_id(t)) for h, r, t in FAMILY]
    return Graph.build("family", labels, {"train": np.array(ids, np.int32)})


@pytest.fixture
def rules(graph: Graph, family: Path) -> RuleSet:
    options = MiningOptions(constants=False)
    return RuleSet.from_mined(graph, mine_rules(graph.train, options), options, str(family))


def test_a_rule_is_readable_and_has_its_counts(rules: RuleSet) -> None:
    own = rules.for_relation("grandparent")
    (rule,) = own
    assert str(rule) == rule.text == TEXT
    assert (rule.support, rule.predictions, rule.length, rule.error) == (4, 5, 2, 0.0)
    assert rule.confidence == 0.8
    assert rule.smoothed_confidence == pytest.approx(4 / 15)
    assert own[-1] == own[0]
    assert len(rules[:1]) == 1 < len(rules)
    with pytest.raises(IndexError):
        own[1]
    with pytest.raises(UnknownName, match="grandparent"):
        rules.for_relation("grandparents")


def test_rules_are_sorted_by_smoothed_confidence(rules: RuleSet) -> None:
    confidence = [rule.smoothed_confidence for rule in rules.sorted()]
    assert confidence == sorted(confidence, reverse=True)


def test_it_shows_itself(rules: RuleSet) -> None:
    assert repr(rules) == f"RuleSet of family: {len(rules)} rules ({len(rules)} closed, 0 with constants)"
    assert TEXT in rules._repr_html_()
    frame = rules.to_frame()
    assert len(frame) == len(rules)
    assert frame.set_index("text").loc[TEXT, "predictions"] == 5


def test_answers_come_with_rule_and_path(rules: RuleSet) -> None:
    first, *_ = rules.answer("e0", "grandparent")
    assert (first.label, first.is_fact, first.rule) == ("e2", False, TEXT)
    assert first.path == "e0 ─parent→ e1 ─parent→ e2"
    assert first.score == pytest.approx(4 / 15)
    assert first.rule_smoothed_confidence == pytest.approx(4 / 15)
    inverse, *_ = rules.answer(None, "grandparent", "e2", k=1)
    assert (inverse.label, inverse.path) == ("e0", "e2 ←parent─ e1 ←parent─ e0")
    assert not any(answer.is_fact for answer in rules.answer("a0", "grandparent"))
    assert [a.label for a in rules.answer("a0", "grandparent", include_known=True) if a.is_fact] == ["a2"]


def test_bad_questions_name_the_parameter(rules: RuleSet) -> None:
    with pytest.raises(SettingError, match="either head or tail"):
        rules.answer("a0", "grandparent", "a2")
    with pytest.raises(SettingError, match="either head or tail"):
        rules.answer(None, "grandparent")
    with pytest.raises(SettingError, match="k=0: expected 1 or more"):
        rules.answer("a0", "grandparent", k=0)


def test_examples_are_facts_with_their_path(rules: RuleSet) -> None:
    own = rules.for_relation("grandparent")
    assert own.examples(own[0], 2) == [f"{x}0 grandparent {x}2: {x}0 ─parent→ {x}1 ─parent→ {x}2" for x in "ab"]
    assert len(own.examples(0, 9)) == 4


def test_a_file_keeps_rules_options_and_estimates(rules: RuleSet, graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "rules.tsv"
    rules.rules.error[1] = 0.25
    rules.save(file)
    again = RuleSet.load(file, graph)
    assert list(again) == list(rules)
    assert (again.options["length"], again.complete, again.source) == (3, True, rules.source)
    assert len(RuleSet.load(file)) == len(rules)  # the graph is found by its path
    assert len(RuleSet.load(file, rules.source)) == len(rules)


def test_a_file_of_another_program_needs_the_graph(rules: RuleSet, graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "rules.tsv"
    rules.save(file)
    Sidecar.path_of(file).unlink()
    assert len(RuleSet.load(file, graph)) == len(rules)
    with pytest.raises(SettingError, match="Give it as `graph`"):
        RuleSet.load(file)
    with pytest.raises(RuleError, match="no such file"):
        RuleSet.load(tmp_path / "none.tsv")


def test_rules_that_the_format_cannot_hold_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    labels = Labels(LabelIndex([f"e{i}" for i in range(8)], "entity"), LabelIndex([" r", "s", "t"], "relation"))
    triples = [(i, r, i + 4) for i in range(4) for r in range(3)]
    graph = Graph.build("spaced", labels, {"train": np.array(triples, np.int32)})
    options = MiningOptions(length=1, constants=False)
    rules = RuleSet.from_mined(graph, mine_rules(graph.train, options), options)
    with caplog.at_level(logging.WARNING):
        rules.save(tmp_path / "rules.tsv")
    assert len(rules) == 6
    assert "4 rules left out" in caplog.text
    assert [rule.text for rule in RuleSet.load(tmp_path / "rules.tsv", graph)] == [
        "s(X, Y) ⇐ t(X, Y)",
        "t(X, Y) ⇐ s(X, Y)",
    ]
