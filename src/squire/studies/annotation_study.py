"""How convincing are paths to a person (§4.5, Appendix C)? Questions, judgements, figures and agreement.

A folder holds the questions that were drawn and one file of judgements per annotator. Judgements are only ever
appended; the last one for a question counts. Judging needs neither torch nor a terminal, so the server can use it.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from squire.core.files import replacing
from squire.core.progress import progress_bar
from squire.core.run_files import ANNOTATION as ANNOTATION
from squire.errors import DataError, SettingError
from squire.evaluation.metrics import bootstrap
from squire.search.evidence import GRADES
from squire.studies.journal import Journal, JournalContent, read_journal
from squire.studies.questions import Question, draw_questions, drawn_signature
from squire.studies.reports import Report, code, escape, table, with_interval

ANNOTATOR = r"\w[\w .-]{0,49}"  # names of annotators, in file names of at most 255 bytes
QUESTIONS = "questions.jsonl"
SCORES = (1.0, 0.5, 0.0)
MEANINGS = {
    1.0: "reasonable: the path is sufficient to deduce the relation between head and answer",
    0.5: "partially reasonable: not sufficient, but in highly positive correlation with the fact",
    0.0: "unreasonable: irrelevant to the fact",
}  # Appendix C


def annotate(
    run: str | Path,
    out: str | Path | None = None,
    *,
    n: int = 100,
    annotator: str = "me",
    seed: int = 0,
    beam: int | None = None,
    progress: bool = True,
) -> Annotations:
    """Draws test questions until `n` of them have a path to judge, and opens an annotator's judgements of them.

    out: the folder of questions and judgements; by default the one in the run folder that the server uses.
    """
    folder = Path(out or Path(run) / ANNOTATION)
    with progress_bar("drawing questions", progress) as bar:
        draw_questions(
            Path(run), folder / QUESTIONS, seed, lambda question: "path" if question.evidence else "no path",
            Counter(path=n), beam, bar.stage,
        )  # fmt: skip
    return Annotations(folder, annotator)


@dataclass(frozen=True)
class Figures:
    """The two figures of §4.5, with their 95 % intervals."""

    questions: int
    score: float  # interpretability score: the mean times 100
    score_interval: tuple[float, float] | None
    reasonable: float  # reasonable rate: the share of 1, in percent
    reasonable_interval: tuple[float, float] | None

    @classmethod
    def from_judgements(cls, scores: Iterable[float]) -> Figures:
        given = np.array(list(scores), np.float64)
        if not len(given):
            return cls(0, 0.0, None, 0.0, None)
        columns = 100 * np.stack([given, given == 1.0], axis=1)
        (score, reasonable), intervals = columns.mean(0).tolist(), bootstrap(columns)
        return cls(len(given), score, intervals[0], reasonable, intervals[1])


@dataclass(frozen=True)
class AnnotationSummary(Report):
    """The figures of one annotator so far."""

    annotator: str
    signature: str
    judged: int
    to_judge: int  # questions that have a path
    all_questions: Figures  # the paper's: a question without a path counts as 0 (Appendix C, footnote)
    with_path: Figures  # judged questions only
    by_grade: dict[str, Figures]  # the same, by the grade of the path

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def markdown(self) -> str:
        figures = [
            ("all questions, 0 where no path leads to the answer (the paper's)", self.all_questions),
            ("questions with a path", self.with_path),
            *((f"– {grade}", one) for grade, one in self.by_grade.items()),
        ]
        rows = []
        for name, one in figures:
            cells = [(one.score, one.score_interval), (one.reasonable, one.reasonable_interval)]
            shown = [with_interval(value, own, ".1f") if own else f"{value:.1f}" for value, own in cells]
            rows.append((name, f"{one.questions:,}", *shown))
        return "\n".join([
            f"# Interpretability, judged by {escape(self.annotator)}\n",
            f"{self.judged:,} of {self.to_judge:,} paths are judged. In brackets: 95 % intervals.\n",
            table(("", "questions", "interpretability score", "reasonable rate (%)"), rows),
            code(self.signature),
        ])  # fmt: skip


def check_annotator(name: str) -> str:
    """The name of an annotator, which becomes part of a file's name; SettingError if it cannot."""
    if not re.fullmatch(ANNOTATOR, name):
        raise SettingError(
            f"annotator={name!r}: expected at most 50 letters, digits, spaces, dots and dashes, a letter first."
        )
    return name


class Annotations:
    """One annotator's judgements of the questions in a folder. The first judgement creates the file."""

    def __init__(self, folder: str | Path, annotator: str) -> None:
        self.folder, self.annotator = Path(folder), check_annotator(annotator)
        content = _read(self.folder / QUESTIONS, "questions")
        header, self.questions = content.header, [Question.from_dict(entry) for entry in content.entries]
        self.signature = drawn_signature(header, len(self.questions))
        identity = hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()[:12]
        own = {"study": "judgements", "annotator": annotator, "questions": identity}
        self._open = partial(Journal, self.file(".jsonl"), own, {"signature": header["signature"]})
        self._journal = self._open() if self.file(".jsonl").exists() else None
        entries = self._journal.entries if self._journal else []
        self.scores = _scores(self.file(".jsonl"), entries, len(self.questions))  # by number of the question

    @property
    def to_judge(self) -> list[int]:
        """The numbers of the questions that have a path to judge, in order."""
        return [number for number, question in enumerate(self.questions) if question.evidence is not None]

    def judge(self, number: int, score: float) -> None:
        """Records a score for a question; it is on disk when this returns."""
        if score not in SCORES:
            raise SettingError(f"score={score:g}: expected 1, 0.5 or 0.")
        if number not in self.to_judge:
            raise SettingError(f"question {number}: no such question with a path to judge.")
        self._journal = self._journal or self._open()
        self._journal.append({"question": number, "score": score})
        self.scores[number] = score

    def summary(self) -> AnnotationSummary:
        """Figures over the judged questions, and over those without a path up to the last judged one."""
        paths = {number: self.questions[number].evidence for number in sorted(self.scores)}
        last = max(self.scores, default=-1)
        unreached = [0.0 for question in self.questions[: last + 1] if question.evidence is None]
        by_grade = {
            grade: [self.scores[number] for number, path in paths.items() if path and path.grade == grade]
            for grade in GRADES
        }
        return AnnotationSummary(
            self.annotator,
            f"{self.signature}|annotator:{self.annotator}",
            len(self.scores),
            len(self.to_judge),
            Figures.from_judgements([*self.scores.values(), *unreached]),
            Figures.from_judgements(self.scores.values()),
            {grade: Figures.from_judgements(scores) for grade, scores in by_grade.items() if scores},
        )

    def export(self) -> Path:
        """Writes a CSV table of all questions, judged or not."""
        file = self.file(".csv")
        with replacing(file) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["question", "head", "relation", "answer", "rank", "grade", "path", "score"])
            for number, one in enumerate(self.questions):
                grade = one.evidence.grade if one.evidence else ""
                score = self.scores.get(number, "" if one.evidence else 0.0)  # no path: 0, as in Appendix C
                writer.writerow([number, one.head, one.relation, one.tail, one.rank, grade, one.path(), score])
        return file

    def file(self, suffix: str) -> Path:
        """The file of this annotator with this suffix."""
        return self.folder / f"judged by {self.annotator}{suffix}"


def _read(file: Path, study: str) -> JournalContent:
    content = read_journal(file)
    if content is None or content.header.get("study") != study:
        raise DataError(f"{file}: holds no {study}. Expected a .jsonl file of `squire study annotate`.")
    return content


def _scores(file: Path, entries: Iterable[Any], questions: float = math.inf) -> dict[int, float]:
    found = {}
    for line, entry in enumerate(entries, start=2):
        try:
            number, score = int(entry["question"]), float(entry["score"])
            if score not in SCORES or not 0 <= number < questions:
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise DataError(f"{file}:{line}: not a judgement: {entry!r}. Remove the line.") from None
        found[number] = score
    return found


# ------------------------------------------------------------------------------------------------- agreement


@dataclass(frozen=True)
class Agreement(Report):
    """How far two annotators agree on the questions that both have judged."""

    annotators: tuple[str, str]
    signature: str
    questions: int
    observed: float  # share of equal scores
    kappa: float | None  # Cohen's: 1 is perfect, 0 is chance; None if chance alone gives perfect agreement
    weighted_kappa: float | None  # the same, with half a point for scores one grade apart
    counts: list[list[int]]  # (score of the first, score of the second), both in the order of SCORES

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def markdown(self) -> str:
        first, second = map(escape, self.annotators)
        rows = [(f"{first}: {one:g}", *map(str, row)) for one, row in zip(SCORES, self.counts, strict=True)]
        kappas = ["undefined" if one is None else f"{one:.3f}" for one in (self.kappa, self.weighted_kappa)]
        return "\n".join([
            f"# Agreement of {first} and {second}\n",
            f"Both judged {self.questions:,} questions: {self.observed:.1%} alike, Cohen's κ {kappas[0]}, "
            f"linearly weighted {kappas[1]}.\n",
            table(("", *(f"{second}: {one:g}" for one in SCORES)), rows),
            code(self.signature),
        ])  # fmt: skip


def agreement(first: str | Path, second: str | Path) -> Agreement:
    """Compares two annotators' files of judgements (.jsonl) of the same questions."""
    files = Path(first), Path(second)
    one, other = (_read(file, "judgements") for file in files)
    if one.header["questions"] != other.header["questions"]:
        raise SettingError(f"{first} and {second}: judgements of different questions. Use files of one folder.")
    scores, others = _scores(files[0], one.entries), _scores(files[1], other.entries)
    counts = np.zeros((len(SCORES), len(SCORES)), np.int64)
    for number in scores.keys() & others.keys():
        counts[SCORES.index(scores[number]), SCORES.index(others[number])] += 1
    if not counts.sum():
        raise SettingError(f"{first} and {second}: no question that both have judged.")
    distance = np.abs(np.subtract.outer(SCORES, SCORES))
    return Agreement(
        (one.header["annotator"], other.header["annotator"]),
        one.header["signature"],
        int(counts.sum()),
        float(np.trace(counts) / counts.sum()),
        cohens_kappa(counts, np.eye(len(SCORES))),
        cohens_kappa(counts, 1 - distance),
        counts.tolist(),
    )


def cohens_kappa(counts: npt.NDArray[np.int64], credit: npt.NDArray[np.float64]) -> float | None:
    """(observed − expected) / (1 − expected), where expected is the credit of independent annotators.

    counts, credit: (score of the first, score of the second)
    """
    shares = counts / counts.sum()
    chance = np.outer(shares.sum(1), shares.sum(0))
    observed, expected = float((shares * credit).sum()), float((chance * credit).sum())
    return None if np.isclose(expected, 1.0) else (observed - expected) / (1 - expected)
