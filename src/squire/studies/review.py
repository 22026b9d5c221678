"""Review: predicted and doubtful facts as cards, which a person accepts, rejects or skips.

Decisions are kept in the run folder; the last one about a fact counts. Two files follow from them: accepted facts
that the graph lacks (`squire add`) and rejected ones that it has (`squire remove`). When enough predictions are
decided, they correct the confidence of all (`reasoning.decisions`).
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from squire.completion.questions import HeadQuestions
from squire.core.files import create_bytes
from squire.core.run_files import REVIEW
from squire.errors import DataError, UnknownName
from squire.reasoning.decisions import DECISIONS, Fact, last_decisions, recalibrated
from squire.studies.journal import Journal

if TYPE_CHECKING:
    from squire.reasoning.reasoner import Reasoner

Decision = Literal["accept", "reject", "skip", "undo"]
LEAST = 0.3  # confidence of a prediction that is worth a look
BLOCK, BLOCKS = 24, 8  # questions about one relation that are asked together, and how often before giving up
STRIDES = (7919, 7907, 1)  # from block to block, so that relations take turns
DOUBTFUL = "doubtful.parquet"  # of `squire doubt`, if it was put into the folder


@dataclass(frozen=True)
class Card:
    """A fact to decide about."""

    head: str
    relation: str
    tail: str
    is_fact: bool  # the graph has it, but it is doubtful
    confidence: float | None
    why: str


class Review:
    """The cards of a run, and the decisions so far.

    >>> review = squire.studies.Review(squire.Run("runs/world").reasoner)
    >>> cards, following = review.cards(0)
    >>> review.decide(cards[0].head, cards[0].relation, cards[0].tail, "accept")
    """

    def __init__(self, reasoner: Reasoner) -> None:
        self._reasoner, self.folder = reasoner, reasoner.run.folder / REVIEW
        self._file = self.folder / DECISIONS
        self._questions: HeadQuestions | None = None

    # --------------------------------------------------------------------------------------------- cards

    def cards(self, start: int) -> tuple[list[Card], int | None]:
        """The next cards that are not decided yet, and where to go on; doubtful facts first, if there are any."""
        decided = self.decisions()
        if start == 0 and (found := [one for one in self._doubtful() if self._full(one) not in decided]):
            return found, 1
        facts = self._reasoner.run.facts
        self._questions = self._questions or HeadQuestions(facts, range(facts.num_relations), "typical")
        total = math.ceil(len(self._questions) / BLOCK)
        first, last = max(start, 1), min(max(start, 1) + BLOCKS, total + 1)
        for number in range(first, last):
            if found := [one for one in self._predicted(number - 1, total) if self._full(one) not in decided]:
                return found, number + 1 if number < total else None
        return [], last if last <= total else None

    def _predicted(self, block: int, blocks: int) -> Iterator[Card]:
        assert self._questions is not None
        reasoner, stride = self._reasoner, next(one for one in STRIDES if math.gcd(one, blocks) == 1)
        begin = block * stride % blocks * BLOCK
        queries = self._questions.between(begin, min(begin + BLOCK, len(self._questions)))
        for (head, relation), found in zip(
            queries.tolist(), reasoner.candidates(queries, reasoner.decoding(), k=1), strict=True
        ):
            for tail, answer in found:
                if answer.confidence is None or answer.confidence >= LEAST:
                    edge = reasoner.edge((head, relation, tail))
                    yield Card(edge.head, edge.relation, edge.tail, False, answer.confidence, answer.sentence)

    def _doubtful(self) -> Iterator[Card]:
        file = self.folder / DOUBTFUL
        try:
            table = pq.read_table(file, columns=["head", "relation", "tail", "confidence", "against"])
        except FileNotFoundError:
            return
        except (OSError, pa.ArrowException):
            raise DataError(f"{file}: not a file of `squire doubt`. Write it again, or remove it.") from None
        for head, relation, tail, confidence, against in zip(*table.to_pydict().values(), strict=True):
            if self._is_known((head, relation, tail)):
                yield Card(head, relation, tail, True, confidence, against)

    # --------------------------------------------------------------------------------------------- decisions

    def decisions(self) -> dict[Fact, Decision]:
        """What was decided last about each fact, with whole labels."""
        return {fact: entry["decision"] for fact, entry in last_decisions(self._reasoner.run.folder).items()}

    def decide(self, head: str, relation: str, tail: str, decision: Decision) -> None:
        """Records a decision; it is on disk when this returns, and so are the facts to add and to remove."""
        fact = self._whole(head, relation, tail)
        before = last_decisions(self._reasoner.run.folder).get(fact, {})
        predicted = before.get("predicted", not self._is_known(fact))  # it may have been added since
        self._journal().append({"fact": fact, "decision": decision, "predicted": predicted})
        decided = self.decisions()
        chosen = {want: [one for one in decided if decided[one] == want] for want in ("accept", "reject")}
        _write(self.folder / "accepted.csv", [one for one in chosen["accept"] if not self._is_known(one)])
        _write(self.folder / "rejected.csv", [one for one in chosen["reject"] if self._is_known(one)])

    def progress(self) -> dict[str, int]:
        """How often each decision was made, and how many of them confidence takes into account."""
        counts = Counter(self.decisions().values())
        made = {"accepted": counts["accept"], "rejected": counts["reject"], "skipped": counts["skip"]}
        return {**made, "counted": self._reasoner.decisions}

    def recalibrated(self) -> Reasoner:
        """The run with the confidence that the decisions so far suggest, if there are enough of them."""
        self._reasoner = recalibrated(self._reasoner)
        return self._reasoner

    def _journal(self) -> Journal:
        return Journal(self._file, {"study": "review"})

    def _full(self, card: Card) -> Fact:
        return self._whole(card.head, card.relation, card.tail)

    def _whole(self, head: str, relation: str, tail: str) -> Fact:
        labels = self._reasoner.labels
        ids = labels.entity_id(head), labels.relation_id(relation), labels.entity_id(tail)
        return labels.entities[ids[0]], labels.relations[ids[1]], labels.entities[ids[2]]

    def _is_known(self, fact: Fact) -> bool:
        """Whether the graph has it now; an entity may be gone since the decision."""
        try:
            labels, (head, relation, tail) = self._reasoner.labels, fact
            ids = labels.entity_id(head), labels.relation_id(relation), labels.entity_id(tail)
        except UnknownName:
            return False
        return self._reasoner.run.facts.contains(*ids)


def _write(file: Path, facts: Iterable[Fact]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(facts)
    with create_bytes(file) as stream:
        stream.write(text.getvalue().encode())
