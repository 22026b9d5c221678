"""How convincing are the paths to a person? The protocol of §4.5 and Appendix C: questions, judgements, figures.

A folder is a study: the questions that were drawn, and one file of judgements an annotator. Judgements are only
ever added, and the last one of a question counts. Knows neither terminal nor web page, and needs no model.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from squire.core.files import replacing
from squire.errors import DataError, SettingError
from squire.evaluation.metrics import bootstrap
from squire.search.evidence import GRADES
from squire.studies.journal import Journal, Notes, read_journal
from squire.studies.markdown import code, literal, table
from squire.studies.questions import Question, drawn_signature, path_words

QUESTIONS = "questions.jsonl"
SCORES = (1.0, 0.5, 0.0)
MEANINGS = {
    1.0: "reasonable: the path is sufficient to deduce the relation between head and answer",
    0.5: "partially reasonable: not sufficient, but in highly positive correlation with the fact",
    0.0: "unreasonable: irrelevant to the fact",
}  # Appendix C


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
class Summary:
    """What one annotator has found so far."""

    annotator: str
    signature: str
    judged: int
    to_judge: int  # questions that have a path
    all_questions: Figures  # as the paper counts: a question without a path is 0 (Appendix C, footnote)
    with_path: Figures  # only what was judged
    by_grade: dict[str, Figures]  # the same, by what the path rests on

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Annotations:
    """One annotator's judgements of the questions in a folder."""

    def __init__(self, folder: Path, annotator: str) -> None:
        if not re.fullmatch(r"[\w][\w .-]*", annotator):
            raise SettingError(f"--annotator {annotator}: expected letters, digits, spaces, dots, dashes.")
        about, self.questions = read_questions(folder / QUESTIONS)
        self.folder, self.annotator = folder, annotator
        self.signature = drawn_signature(about, len(self.questions))
        identity = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:12]
        header = {"study": "judgements", "annotator": annotator, "questions": identity}
        self._journal = Journal(self.file(".jsonl"), header, {"signature": about["signature"]})
        self.scores = _scores(self._journal.file, self._journal.entries, len(self.questions))

    @property
    def to_judge(self) -> list[int]:
        """The questions that have a path to judge, in order."""
        return [number for number, question in enumerate(self.questions) if question.evidence is not None]

    def judge(self, number: int, score: float) -> None:
        """Give a question a score; it is on the disk when this returns."""
        if score not in SCORES:
            raise SettingError(f"score {score:g}: expected 1, 0.5 or 0.")
        if number not in self.to_judge:
            raise SettingError(f"question {number}: none that has a path to judge.")
        self._journal.append({"question": number, "score": score})
        self.scores[number] = score

    def summary(self) -> Summary:
        """Figures over all questions up to the last judged one, whatever of these is not judged yet left out."""
        paths = {number: self.questions[number].evidence for number in sorted(self.scores)}
        last = max(self.scores, default=-1)
        unreached = [0.0 for question in self.questions[: last + 1] if question.evidence is None]
        by_grade = {
            grade: [self.scores[number] for number, path in paths.items() if path and path.grade == grade]
            for grade in GRADES
        }
        return Summary(
            self.annotator,
            f"{self.signature}|annotator:{self.annotator}",
            len(self.scores),
            len(self.to_judge),
            Figures.from_judgements([*self.scores.values(), *unreached]),
            Figures.from_judgements(self.scores.values()),
            {grade: Figures.from_judgements(scores) for grade, scores in by_grade.items() if scores},
        )

    def export(self) -> Path:
        """A CSV table of all questions, judged or not."""
        file = self.file(".csv")
        with replacing(file) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["question", "head", "relation", "answer", "rank", "grade", "path", "score"])
            for number, one in enumerate(self.questions):
                path = one.evidence
                words = [path.grade, path_words(path)] if path else ["", ""]
                score = self.scores.get(number, "" if path else 0.0)  # no path: 0, by the protocol
                writer.writerow([number, one.head, one.relation, one.tail, one.rank, *words, score])
        return file

    def file(self, suffix: str) -> Path:
        """Where this annotator's things are."""
        return self.folder / f"judged by {self.annotator}{suffix}"


def read_questions(file: Path) -> tuple[dict[str, Any], list[Question]]:
    """Which draw it was, and what was drawn."""
    notes = read_journal(file)
    if notes is None or notes.header.get("study") != "questions":
        raise DataError(f"{file}: holds no questions. To do: draw them with 'squire study annotate'.")
    return notes.header, [Question.from_dict(entry) for entry in notes.entries]


def _scores(file: Path, entries: Iterable[Any], questions: int | None = None) -> dict[int, float]:
    found = {}
    for line, entry in enumerate(entries, start=2):
        try:
            number, score = int(entry["question"]), float(entry["score"])
            if score not in SCORES or number < 0 or (questions is not None and number >= questions):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise DataError(f"{file}:{line}: not a judgement: {entry!r}. To do: remove the line.") from None
        found[number] = score
    return found


def summary_markdown(summary: Summary) -> str:
    """The two figures of §4.5, as the paper counts and otherwise."""
    rows = [
        ("all questions, 0 where no path leads to the answer (the paper's)", summary.all_questions),
        ("questions with a path", summary.with_path),
        *((f"– {grade}", figures) for grade, figures in summary.by_grade.items()),
    ]
    lines = [
        (
            name,
            f"{one.questions:,}",
            _with_interval(one.score, one.score_interval),
            _with_interval(one.reasonable, one.reasonable_interval),
        )
        for name, one in rows
    ]
    return "\n".join(
        [
            f"# Interpretability, judged by {literal(summary.annotator)}\n",
            f"{summary.judged:,} of {summary.to_judge:,} paths are judged. In brackets: 95 % intervals.\n",
            table(("", "questions", "interpretability score", "reasonable rate (%)"), lines),
            code(summary.signature),
        ]
    )


def _with_interval(value: float, interval: tuple[float, float] | None) -> str:
    return f"{value:.1f}" + (f" ({interval[0]:.1f} – {interval[1]:.1f})" if interval else "")


# ------------------------------------------------------------------------------------------------- agreement


@dataclass(frozen=True)
class Agreement:
    """How far two annotators agree on the questions that both have judged."""

    annotators: tuple[str, str]
    signature: str
    questions: int
    observed: float  # share of equal scores
    kappa: float | None  # Cohen's: 1 is perfect, 0 what chance gives; None where chance alone gives perfection
    weighted_kappa: float | None  # the same, with half a point for scores that are one grade apart
    counts: list[list[int]]  # (score of the first, score of the second), both in the order of SCORES

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def agreement(first: Path, second: Path) -> Agreement:
    """Of two files of judgements of the same questions."""
    notes = [_judgements(file) for file in (first, second)]
    if notes[0].header["questions"] != notes[1].header["questions"]:
        raise SettingError(
            f"{first} and {second}: judgements of different questions. To do: give two files of one folder."
        )
    scores = [_scores(file, one.entries) for file, one in zip((first, second), notes, strict=True)]
    counts = _counts(*scores)
    if not counts.sum():
        raise SettingError(f"{first} and {second}: no question that both have judged.")
    far = np.abs(np.subtract.outer(SCORES, SCORES))
    return Agreement(
        (notes[0].header["annotator"], notes[1].header["annotator"]),
        notes[0].header["signature"],
        int(counts.sum()),
        float(np.trace(counts) / counts.sum()),
        cohens_kappa(counts, np.eye(len(SCORES))),
        cohens_kappa(counts, 1 - far),
        counts.tolist(),
    )


def agreement_markdown(found: Agreement) -> str:
    first, second = map(literal, found.annotators)
    rows = [(f"{first}: {one:g}", *map(str, row)) for one, row in zip(SCORES, found.counts, strict=True)]
    kappas = ["undefined" if one is None else f"{one:.3f}" for one in (found.kappa, found.weighted_kappa)]
    return "\n".join(
        [
            f"# Agreement of {first} and {second}\n",
            f"{found.questions:,} questions that both have judged: {found.observed:.1%} alike, Cohen's κ "
            f"{kappas[0]}, linearly weighted {kappas[1]}.\n",
            table(("", *(f"{second}: {one:g}" for one in SCORES)), rows),
            code(found.signature),
        ]
    )


def cohens_kappa(counts: npt.NDArray[np.int64], credit: npt.NDArray[np.float64]) -> float | None:
    """(observed − expected) / (1 − expected); expected of two who judge as often so, but independently.

    counts, credit: (score of the first, score of the second)
    """
    shares = counts / counts.sum()
    chance = np.outer(shares.sum(1), shares.sum(0))
    observed, expected = float((shares * credit).sum()), float((chance * credit).sum())
    return None if np.isclose(expected, 1.0) else (observed - expected) / (1 - expected)


def _judgements(file: Path) -> Notes:
    notes = read_journal(file)
    if notes is None or notes.header.get("study") != "judgements":
        raise DataError(f"{file}: holds no judgements. To do: give a .jsonl file of 'squire study annotate'.")
    return notes


def _counts(first: Mapping[int, float], second: Mapping[int, float]) -> npt.NDArray[np.int64]:
    counts = np.zeros((len(SCORES), len(SCORES)), np.int64)
    for number in first.keys() & second.keys():
        counts[SCORES.index(first[number]), SCORES.index(second[number])] += 1
    return counts
