"""Examples show right answers, and mark exactly the edges that the graph does not have."""

from __future__ import annotations

import json
from pathlib import Path

from graphs import facts_of
from study_cases import HOSTILE, a_path, a_question, a_run, study, town

from squire.studies.case_study import Cases
from squire.studies.questions import Question
from squire.studies.reports import escape, table


def test_only_right_answers_are_examples_and_the_asserted_are_counted() -> None:
    questions = [
        a_question("a", "grounded"),
        a_question("b", "completed", rank=2.0),
        a_question("c", "asserted"),
        a_question("d", None, rank=30.0),
        a_question("e", "completed"),
        a_question("f", "grounded", rank=1.5),  # a tie
        a_question("g", "grounded"),
    ]
    found = Cases.from_questions(questions, 1, "signed")
    assert {kind: [one.head for one in own] for kind, own in found.examples.items()} == {
        "grounded": ["a"], "completed": ["e"],
    }  # fmt: skip
    assert (found.asked, found.right, found.asserted) == (7, 4, 1)
    assert [one.head for one in Cases.from_questions(questions, 5, "").examples["grounded"]] == ["a", "g"]


def test_missing_edges_are_bold_and_answers_underlined() -> None:
    path = a_path(("b", "contains", "a", True), ("b", "currency", "c", False), backwards=(0,), grade="completed")
    question = Question("a", "currency", "c", 1.0, path)
    text = Cases.from_questions([question], 1, "signed").markdown()
    assert "| (a, currency, ?) | a ←contains— b —**currency**→ <u>c</u> |" in text
    assert text.endswith("`signed`\n")
    assert "None was found." in text  # of the other kind
    assert question.path() == "a ←contains— b —currency→ c"


def test_no_name_can_break_a_table() -> None:
    for name in (HOSTILE, "a\nb", "`x`", "[l](u)", "**b**", "\\|"):
        row = table(("one",), [(escape(name),)]).splitlines()[2]
        assert row.replace("\\\\", "").replace("\\|", "").count("|") == 2
        assert "**" not in row
        assert "<u" not in row.replace("\\<", "")


def test_the_files_tell_what_the_graph_has_and_has_not(tmp_path: Path) -> None:
    file = tmp_path / "new" / "cases.md"
    done = study("cases", a_run(), "-n", 2, "-o", file)
    assert done.exit_code == 0, done.output
    data, known, test = json.loads(file.with_suffix(".json").read_text()), facts_of(town(), "train"), facts_of(
        town(), "test"
    )  # fmt: skip
    shown = 0
    for kind, own in data["examples"].items():
        assert len(own) <= 2
        for one in own:
            shown += 1
            assert one["rank"] == 1
            assert (one["head"], one["relation"], one["tail"]) in test
            edges = one["evidence"]["edges"]
            in_graph = [(edge["head"], edge["relation"], edge["tail"]) in known for edge in edges]
            assert in_graph == [edge["is_fact"] for edge in edges]
            assert all(in_graph) == (kind == "grounded")
            assert escape(one["head"]) in file.read_text()
    assert shown, "the run has learned nothing to show"
    assert data["signature"] in file.read_text()
    before = file.read_text(), file.with_suffix(".jsonl").read_text()
    assert study("cases", a_run(), "-n", 2, "-o", file).exit_code == 0
    assert (file.read_text(), file.with_suffix(".jsonl").read_text()) == before


def test_too_few_examples_are_told(tmp_path: Path) -> None:
    done = study("cases", a_run(), "-n", 400, "-o", tmp_path / "cases.md")
    assert done.exit_code == 0, done.output
    assert "only " in done.stderr
    assert "expected a name that ends in .md" in str(study("cases", a_run(), "-o", tmp_path / "x.txt").exception)
