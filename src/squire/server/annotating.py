"""Judging paths over HTTP, in the files of `squire study annotate`: whoever began there goes on here."""

from __future__ import annotations

import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from squire.core.run_files import ANNOTATION
from squire.server.problems import Problem
from squire.studies.annotations import QUESTIONS, Annotations, read_questions

_writing = threading.Lock()  # one judgement after the other: files are opened anew for each


def standing(run: Path, annotator: str) -> dict[str, Any]:
    """How far an annotator is, and what comes next. Looking leaves no file behind."""
    folder = _folder(run)
    with _writing:
        if not (folder / f"judged by {annotator}.jsonl").exists():
            questions = read_questions(folder / QUESTIONS)[1]
            to_judge = [number for number, one in enumerate(questions) if one.evidence]
            return _shape(annotator, questions, to_judge, {}, None)
        return _standing_of(Annotations(folder, annotator))


def judge(run: Path, annotator: str, number: int, score: float) -> dict[str, Any]:
    """Note a judgement down; it is on the disk when this returns."""
    with _writing:
        study = Annotations(_folder(run), annotator)
        if number not in study.to_judge:
            raise Problem(404, f"question {number}: none that has a path to judge.")
        study.judge(number, score)
        return _standing_of(study)


def _standing_of(study: Annotations) -> dict[str, Any]:
    summary = study.summary().as_dict() if study.scores else None
    return _shape(study.annotator, study.questions, study.to_judge, study.scores, summary)


def _shape(annotator: str, questions: Any, to_judge: list[int], scores: Any, summary: Any) -> dict[str, Any]:
    number = next((number for number in to_judge if number not in scores), None)
    following = None
    if number is not None:
        one = questions[number]
        question = {"head": one.head, "relation": one.relation, "tail": one.tail}
        following = {"number": number, "question": question, "evidence": asdict(one.evidence)}
    return {
        "annotator": annotator,
        "total": len(to_judge),
        "judged": len(scores),
        "next": following,
        "summary": summary,
    }


def _folder(run: Path) -> Path:
    folder = run / ANNOTATION
    if not (folder / QUESTIONS).exists():
        raise Problem(
            404,
            f"no paths were drawn for judging. To do: draw some with 'squire study annotate {run} -n 100', which "
            f"can be left with q.",
        )
    return folder
