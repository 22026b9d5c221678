"""Correctly answered test questions with their paths: along edges of the graph, and with inferred edges (§4.5)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squire.core.progress import progress_bar
from squire.studies.questions import Question, draw_questions
from squire.studies.reports import Report, code, escape, table

KINDS = {"grounded": "Without missing edges", "completed": "With missing edges"}
WRONG = "wrong"


def cases(
    run: str | Path, out: str | Path, *, n: int = 10, seed: int = 0, beam: int | None = None, progress: bool = True
) -> Cases:
    """Draws test questions until `n` of each kind are answered correctly.

    `out` names the journal: the questions drawn so far are kept in `out` with the suffix .jsonl.
    """
    with progress_bar("drawing questions", progress) as bar:
        need = Counter(dict.fromkeys(KINDS, n))
        drawn = draw_questions(Path(run), Path(out).with_suffix(".jsonl"), seed, kind, need, beam, bar.stage)
    return Cases.from_questions(drawn.questions, n, drawn.signature)


@dataclass(frozen=True)
class Cases(Report):
    """Examples of each kind, in the order in which they were drawn."""

    signature: str
    asked: int
    right: int  # correct answers at rank 1
    asserted: int  # of these, the ones whose only evidence is the queried edge itself
    examples: dict[str, list[Question]]

    @classmethod
    def from_questions(cls, questions: Sequence[Question], n: int, signature: str) -> Cases:
        by_kind: defaultdict[str, list[Question]] = defaultdict(list)
        for question in questions:
            by_kind[kind(question)].append(question)
        right = len(questions) - len(by_kind[WRONG])
        shown = {name: by_kind[name][:n] for name in KINDS}
        return cls(signature, len(questions), right, len(by_kind["asserted"]), shown)

    def as_dict(self) -> dict[str, Any]:
        examples = {kind: [question.as_dict() for question in own] for kind, own in self.examples.items()}
        return {**vars(self), "examples": examples}

    def markdown(self) -> str:
        """The paper's table: answers underlined, missing edges bold."""
        parts = [
            "# Cases\n",
            f"Test questions whose correct answer the model ranks first ({self.right:,} of {self.asked:,} asked), "
            "each with its best path. Answers are underlined; edges that are not in the graph are bold. "
            f"{self.asserted:,} correct answers rest on the queried edge alone and are not shown.\n",
        ]
        for kind, title in KINDS.items():
            rows = [(escape(one.text), _path(one), _rule(one)) for one in self.examples[kind]]
            parts += [f"## {title}\n", table(("Query", "Path", "Rule"), rows) if rows else "None was found.\n"]
        return "\n".join([*parts, code(self.signature)])


def kind(question: Question) -> str:
    """The grade of the path if the correct answer has rank 1, else `WRONG`."""
    return question.evidence.grade if question.rank == 1 and question.evidence else WRONG


def _path(question: Question) -> str:
    return question.path(escape, "**{}**".format, "<u>{}</u>".format)


def _rule(question: Question) -> str:
    rule = question.evidence.rule if question.evidence else None
    return f"{escape(rule.text)} ({rule.confidence:.2f})" if rule else ""
