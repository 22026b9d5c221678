"""Judgements are kept as they are made, counted as the paper counts, and compared."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from study_cases import HOSTILE, a_question, a_run, study, town

from squire.errors import DataError, SettingError
from squire.search.decoding import decode
from squire.studies import Annotations, agreement
from squire.studies.annotation_study import QUESTIONS, cohens_kappa
from squire.studies.journal import Journal
from squire.studies.questions import DrawnQuestions, Question, draw_questions

GRADES = ["completed", None, "grounded", "asserted", None, "grounded"]


def a_study(folder: Path) -> Path:
    """Six questions, two of which no path answers."""
    header = {"study": "questions", "model": "0", "draw": 0, "of": 9, "beam": 16}
    journal = Journal(folder / QUESTIONS, header, {"signature": "made|split:test"})
    for number, grade in enumerate(GRADES):
        journal.append(a_question(f"n{number}", grade).as_dict())
    return folder


def draw(file: Path, n: int, seed: int = 0) -> DrawnQuestions:
    return draw_questions(a_run(), file, seed, lambda one: "path" if one.evidence else "", Counter(path=n))


# ------------------------------------------------------------------------------------------------- drawing


def test_questions_are_test_facts_with_the_best_path_to_the_right_answer(tmp_path: Path) -> None:
    drawn = draw(tmp_path / "q.jsonl", 4)
    labels, graph = town().labels, town()
    facts = {tuple(fact) for fact in graph.test.tolist()}
    for one in drawn.questions:
        assert (labels.entity_id(one.head), labels.relation_id(one.relation), labels.entity_id(one.tail)) in facts
        if one.evidence:
            assert one.evidence.start == one.head
            assert one.evidence.edges[-1].goal == one.tail
    assert sum(one.evidence is not None for one in drawn.questions) == 4
    assert drawn.questions[-1].evidence is not None  # it stopped there
    assert drawn.signature.endswith(f"|draw:0|drawn:{len(drawn.questions)} of {len(facts)}")
    assert Question.from_dict(json.loads(json.dumps(drawn.questions[0].as_dict()))) == drawn.questions[0]


def test_the_seed_decides_and_more_go_on_from_what_was_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = draw(tmp_path / "a", 2), draw(tmp_path / "b", 5)
    assert draw(tmp_path / "c", 5, seed=1).questions != many.questions
    asked: list[int] = []

    def count(model: object, queries: np.ndarray, decoding: object) -> object:
        asked.append(len(queries))
        return decode(model, queries, decoding)  # type: ignore[arg-type]

    monkeypatch.setattr("squire.search.decoding.decode", count)
    assert draw(tmp_path / "a", 5).questions == many.questions
    assert asked == [len(town().test) - len(few.questions)]
    draw(tmp_path / "a", 5)
    assert len(asked) == 1  # nothing to ask


def test_who_interrupts_the_drawing_goes_on_with_it(tmp_path: Path) -> None:
    def interrupt(_: str, done: int, __: int | None) -> None:
        if done == 2:
            raise KeyboardInterrupt

    kind, need = (lambda one: "path" if one.evidence else ""), Counter(path=4)
    with pytest.raises(KeyboardInterrupt):
        draw_questions(a_run(), tmp_path / "q.jsonl", 0, kind, need, progress=interrupt)
    assert draw(tmp_path / "q.jsonl", 4).questions == draw(tmp_path / "whole.jsonl", 4).questions


def test_the_questions_of_another_seed_or_beam_are_not_mixed_in(tmp_path: Path) -> None:
    draw(tmp_path / "q.jsonl", 1)
    with pytest.raises(SettingError, match="draw is 0 there and 1 here"):
        draw(tmp_path / "q.jsonl", 1, seed=1)
    failed = study("annotate", a_run(), "-n", 1, "-o", tmp_path, "--beam", 3)
    assert failed.exception is None
    failed = study("annotate", a_run(), "-n", 1, "-o", tmp_path)
    assert "beam is 3 there and 16 here" in str(failed.exception)


# ------------------------------------------------------------------------------------------------- figures


def test_a_question_without_a_path_is_nought_as_in_appendix_c(tmp_path: Path) -> None:
    study = Annotations(a_study(tmp_path), "ann")
    assert study.to_judge == [0, 2, 3, 5]
    for number, score in ((0, 1.0), (2, 0.5), (3, 0.0), (5, 1.0)):
        study.judge(number, score)
    found = study.summary()
    assert (found.judged, found.to_judge) == (4, 4)
    assert found.all_questions.questions == 6
    assert found.all_questions.score == pytest.approx(100 * 2.5 / 6)
    assert found.all_questions.reasonable == pytest.approx(100 * 2 / 6)
    assert found.with_path.score == pytest.approx(100 * 2.5 / 4)
    assert found.with_path.reasonable == pytest.approx(100 * 2 / 4)
    assert {grade: one.score for grade, one in found.by_grade.items()} == {
        "grounded": 75.0, "completed": 100.0, "asserted": 0.0,
    }  # fmt: skip
    low, high = found.all_questions.score_interval or (0.0, 0.0)
    assert 0 <= low < found.all_questions.score < high <= 100
    assert found.signature == "made|split:test|draw:0|drawn:6 of 9|annotator:ann"


def test_before_the_end_only_questions_up_to_the_last_judged_count(tmp_path: Path) -> None:
    study = Annotations(a_study(tmp_path), "ann")
    assert study.summary().all_questions.questions == 0
    study.judge(0, 1.0)
    assert study.summary().all_questions.questions == 1  # question 1 has no path, but comes later
    study.judge(2, 1.0)
    assert study.summary().all_questions.score == pytest.approx(100 * 2 / 3)


def test_a_judgement_is_on_the_disk_at_once_and_the_last_counts(tmp_path: Path) -> None:
    study = Annotations(a_study(tmp_path), "ann")
    for number, score in ((0, 1.0), (2, 0.5), (0, 0.0)):
        study.judge(number, score)
        assert Annotations(tmp_path, "ann").scores == study.scores
    assert study.scores == {0: 0.0, 2: 0.5}
    assert Annotations(tmp_path, "ben").scores == {}


def test_what_is_no_judgement_is_refused(tmp_path: Path) -> None:
    study = Annotations(a_study(tmp_path), "ann")
    with pytest.raises(SettingError, match=r"score=0.7: expected 1, 0.5 or 0"):
        study.judge(0, 0.7)
    with pytest.raises(SettingError, match="question 1: no such question with a path"):
        study.judge(1, 1.0)
    with pytest.raises(SettingError, match=r"annotator='\.\./x'"):
        Annotations(tmp_path, "../x")
    study.judge(0, 1.0)
    with study.file(".jsonl").open("a") as stream:
        stream.write('{"question": 99, "score": 1.0}\n')
    with pytest.raises(DataError, match=r"judged by ann.jsonl:3: not a judgement"):
        Annotations(tmp_path, "ann")
    with pytest.raises(SettingError, match="no such file"):
        Annotations(tmp_path / "nowhere", "ann")


def test_the_table_has_all_questions(tmp_path: Path) -> None:
    study = Annotations(a_study(tmp_path), "ann")
    study.judge(2, 0.5)
    with study.export().open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["score"] for row in rows] == ["", "0.0", "0.5", "", "0.0", ""]
    assert rows[2]["path"] == "n2 —parent→ p —parent→ g"
    assert [row["grade"] for row in rows] == [grade or "" for grade in GRADES]


def test_the_store_needs_neither_torch_nor_a_terminal(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from squire.studies import Annotations; "
        "study = Annotations(Path(sys.argv[1]), 'web'); study.judge(0, 1.0); print(study.summary().judged); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'typer', 'rich')))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(a_study(tmp_path))], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


# ------------------------------------------------------------------------------------------------- conversation


def test_a_person_judges_goes_back_stops_and_goes_on(tmp_path: Path) -> None:
    command = ["annotate", a_run(), "-n", 4, "--annotator", "ann", "-o", tmp_path]
    first = study(*command, said="maybe\n?\n1\nb\n\n.5\nb\n0\nq\n")
    assert first.exit_code == 0, first.output
    assert "expected 1, 0.5, 0, b, q or ?" in first.stderr
    assert "(was 1)" in first.stderr
    assert "reasonable: the path is sufficient" in first.stderr
    numbers = Annotations(tmp_path, "ann").to_judge
    assert Annotations(tmp_path, "ann").scores == {numbers[0]: 1.0, numbers[1]: 0.0}
    second = study(*command, said="0.5\n")  # then the input ends
    assert "3 of 4" in second.stderr
    assert "2 of 4" not in second.stderr
    assert Annotations(tmp_path, "ann").scores == {numbers[0]: 1.0, numbers[1]: 0.0, numbers[2]: 0.5}
    last = study(*command, "--json", said="1\n")
    assert last.exit_code == 0, last.output
    summary = json.loads(last.stdout)
    assert (summary["judged"], summary["with_path"]["score"]) == (4, 62.5)
    assert json.loads((tmp_path / "judged by ann.json").read_text()) == summary
    assert "| questions with a path | 4 | 62.5 (" in (tmp_path / "judged by ann.md").read_text()
    assert summary["signature"] in (tmp_path / "judged by ann.md").read_text()
    assert (tmp_path / "judged by ann.csv").exists()
    again = study(*command)
    assert "of 4" not in again.stderr  # nothing left to ask


def test_nothing_that_could_sway_is_shown(tmp_path: Path) -> None:
    done = study("annotate", a_run(), "-n", 999, "-o", tmp_path, said="1\n" * 999)
    asked = "\n".join(line for line in done.stderr.splitlines() if "wrote" not in line and "drawing" not in line)
    for word in ("grounded", "completed", "asserted", "⇐", "0.", "rank"):
        assert word not in asked.partition("1 of ")[2].replace("0.5", ""), word
    assert f"({HOSTILE}, from, ?) Northland" in asked  # as it is


def test_ctrl_c_at_the_question_is_a_wish_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = iter(["1"])

    def typed() -> str:
        for one in said:
            return one
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", typed)
    done = study("annotate", a_run(), "-n", 3, "-o", tmp_path)
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "judged by me.json").read_text())["judged"] == 1


def test_too_few_questions_with_a_path_are_told(tmp_path: Path) -> None:
    done = study("annotate", a_run(), "-n", 500, "-o", tmp_path)
    assert done.exit_code == 0, done.output
    assert "test questions have a path" in done.stderr


# ------------------------------------------------------------------------------------------------- agreement


def test_kappa_is_cohens() -> None:
    # Cohen's own form for two categories: (0.7 − 0.5) / (1 − 0.5).
    counts = np.array([[20, 5], [10, 15]])
    assert cohens_kappa(counts, np.eye(2)) == pytest.approx(0.4)
    assert cohens_kappa(np.diag([3, 4, 5]), np.eye(3)) == pytest.approx(1.0)
    assert cohens_kappa(np.full((2, 2), 5), np.eye(2)) == pytest.approx(0.0)
    assert cohens_kappa(np.diag([7, 0, 0]), np.eye(3)) is None


def test_two_annotators_are_compared_where_both_have_judged(tmp_path: Path) -> None:
    ann, ben = (Annotations(a_study(tmp_path) if name == "ann" else tmp_path, name) for name in ("ann", "ben"))
    for number, one, other in ((0, 1.0, 1.0), (2, 0.5, 0.0), (3, 0.0, 0.0)):
        ann.judge(number, one)
        ben.judge(number, other)
    ann.judge(5, 1.0)  # ben did not
    found = agreement(ann.file(".jsonl"), ben.file(".jsonl"))
    assert found.annotators == ("ann", "ben")
    assert found.questions == 3
    assert found.observed == pytest.approx(2 / 3)
    assert found.counts == [[1, 0, 0], [0, 0, 1], [0, 0, 1]]
    expected = 1 / 3 * 1 / 3 + 1 / 3 * 2 / 3
    assert found.kappa == pytest.approx((2 / 3 - expected) / (1 - expected))
    # Half a point for (0.5, 0). By chance: (1, 1) 1/9, (0, 0) 2/9; for half a point (0.5, 1) 1/9, (0.5, 0) 2/9.
    expected = 3 / 9 + 0.5 * 3 / 9
    assert found.weighted_kappa == pytest.approx((2.5 / 3 - expected) / (1 - expected))
    done = study("agreement", ann.file(".jsonl"), ben.file(".jsonl"), "-o", tmp_path / "both.md")
    assert done.exit_code == 0, done.output
    assert f"Cohen's κ {found.kappa:.3f}" in (tmp_path / "both.md").read_text()
    assert json.loads((tmp_path / "both.json").read_text())["kappa"] == found.kappa


def test_what_cannot_be_compared_is_told(tmp_path: Path) -> None:
    ann = Annotations(a_study(tmp_path / "one"), "ann")
    other = a_study(tmp_path / "other")
    content = (other / QUESTIONS).read_text().replace('"draw": 0', '"draw": 1')
    (other / QUESTIONS).write_text(content)
    ben, cem = Annotations(other, "ben"), Annotations(tmp_path / "one", "cem")
    ann.judge(0, 1.0)
    ben.judge(0, 1.0)
    cem.judge(2, 1.0)
    with pytest.raises(SettingError, match="judgements of different questions"):
        agreement(ann.file(".jsonl"), ben.file(".jsonl"))
    with pytest.raises(SettingError, match="no question that both have judged"):
        agreement(ann.file(".jsonl"), cem.file(".jsonl"))
    with pytest.raises(DataError, match="holds no judgements"):
        agreement(ann.file(".jsonl"), tmp_path / "one" / QUESTIONS)
    assert "expected a name that ends in .md" in str(
        study("agreement", ann.file(".jsonl"), cem.file(".jsonl"), "-o", tmp_path / "x.txt").exception
    )
