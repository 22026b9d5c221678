"""Test questions that are answered right, and why: along edges of the graph, and by completing it (§4.5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from squire.studies.markdown import code, literal, table
from squire.studies.questions import Question, path_words

KINDS = {"grounded": "Without missing edges", "completed": "With missing edges"}
WRONG = "wrong"


@dataclass(frozen=True)
class Cases:
    """Examples of each kind, in the order in which they were drawn."""

    signature: str
    asked: int
    right: int  # at rank 1
    asserted: int  # of these, by nothing but the queried edge itself: no example of anything
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
        found = {kind: [question.as_dict() for question in own] for kind, own in self.examples.items()}
        return {**vars(self), "examples": found}

    def markdown(self) -> str:
        """The paper's table: answers underlined, missing edges bold."""
        parts = [
            "# Cases\n",
            f"Test questions whose right answer the model ranks first ({self.right:,} of {self.asked:,} asked; "
            f"{self.asserted:,} of them by the queried edge alone, which shows nothing), each with its best path. "
            "Answers are underlined. Edges that are not in the graph are bold.\n",
        ]
        for kind, title in KINDS.items():
            rows = [(literal(one.text), _path(one), _rule(one)) for one in self.examples[kind]]
            parts += [f"## {title}\n", table(("Query", "Path", "Rule"), rows) if rows else "None was found.\n"]
        return "\n".join([*parts, code(self.signature)])


def kind(question: Question) -> str:
    """The grade of the path to an answer that is right at rank 1."""
    return question.evidence.grade if question.rank == 1 and question.evidence else WRONG


def _path(question: Question) -> str:
    assert question.evidence is not None  # it has a kind
    return path_words(question.evidence, literal, "**{}**".format, "<u>{}</u>".format)


def _rule(question: Question) -> str:
    rule = question.evidence.rule if question.evidence else None
    return f"{literal(rule.text)} ({rule.confidence:.2f})" if rule else ""
