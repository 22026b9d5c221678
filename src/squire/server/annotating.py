"""Judging paths over HTTP, in the files of `squire study annotate`: whoever began there goes on here."""

from __future__ import annotations

import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from squire.core.run_files import ANNOTATION
from squire.server.problems import Problem
from squire.studies.annotation_study import QUESTIONS, Annotations

_writing = threading.Lock()  # one judgement after the other: files are opened anew for each


def standing(run: Path, annotator: str) -> dict[str, Any]:
    """How far an annotator is, and what comes next. Looking leaves no file behind."""
    with _writing:
        return _standing_of(Annotations(_folder(run), annotator))


def judge(run: Path, annotator: str, number: int, score: float) -> dict[str, Any]:
    """Note a judgement down; it is on the disk when this returns."""
    with _writing:
        study = Annotations(_folder(run), annotator)
        if number not in study.to_judge:
            raise Problem(404, f"question {number}: none that has a path to judge.")
        study.judge(number, score)
        return _standing_of(study)


def _standing_of(study: Annotations) -> dict[str, Any]:
    number = next((number for number in study.to_judge if number not in study.scores), None)
    following = None
    if number is not None:
        one = study.questions[number]
        assert one.evidence is not None  # it is to be judged
        question = {"head": one.head, "relation": one.relation, "tail": one.tail}
        following = {"number": number, "question": question, "evidence": asdict(one.evidence)}
    return {
        "annotator": study.annotator,
        "total": len(study.to_judge),
        "judged": len(study.scores),
        "next": following,
        "summary": study.summary().as_dict() if study.scores else None,
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
