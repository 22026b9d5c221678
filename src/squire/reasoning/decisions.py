"""What people have decided about predictions (`studies.review`), and the confidence that follows from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from squire.core.run_files import REVIEW
from squire.errors import DataError, UnknownName
from squire.graph.adjacency import Ids
from squire.ranking.calibration import Bools
from squire.ranking.recalibration import MIN_DECISIONS, Recalibration

if TYPE_CHECKING:
    from squire.reasoning.reasoner import Reasoner

DECISIONS = "decisions.jsonl"
Fact = tuple[str, str, str]


def last_decisions(folder: Path) -> dict[Fact, dict[str, Any]]:
    """The last entry about each fact, with whole labels; facts whose decision was undone are left out."""
    file = folder / REVIEW / DECISIONS
    if not file.exists():
        return {}
    last: dict[Fact, dict[str, Any]] = {}
    *lines, _ = file.read_bytes().split(b"\n")  # after the last newline: nothing, or a line that was cut off
    for number, line in enumerate(lines[1:], start=2):
        try:
            entry = json.loads(line)
            last[tuple(entry["fact"])] = entry
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{file}:{number}: not a decision: {line[:60]!r}. Remove the line.") from None
    return {fact: entry for fact, entry in last.items() if entry["decision"] != "undo"}


def decided_predictions(reasoner: Reasoner) -> tuple[Ids, Bools]:
    """Predictions that were accepted or rejected, (fact, 3), and which of them were accepted, (fact)."""
    labels, known = reasoner.labels, reasoner.run.facts
    rows, accepted = [], []
    for (head, relation, tail), entry in last_decisions(reasoner.run.folder).items():
        if entry["decision"] not in ("accept", "reject"):
            continue
        try:
            fact = labels.entity_id(head), labels.relation_id(relation), labels.entity_id(tail)
        except UnknownName:
            continue  # gone since then
        # Accepted predictions may have been added; a doubtful fact was one from the beginning.
        if entry.get("predicted", not known.contains(*fact)):
            rows.append(fact)
            accepted.append(entry["decision"] == "accept")
    return np.array(rows, np.int32).reshape(-1, 3), np.array(accepted, bool)


def recalibrated(reasoner: Reasoner) -> Reasoner:
    """The reasoner with the confidence that people's decisions suggest, if there are enough of them."""
    if reasoner.fusion is None:
        return reasoner
    plain = reasoner.with_recalibration(None)
    facts, accepted = decided_predictions(reasoner)
    if len(facts) < MIN_DECISIONS:
        return plain
    known = facts[reasoner.run.facts.contains_each(*facts.T)]
    judge = plain.without(known) if len(known) else plain
    found = Recalibration.fit(np.array(judge.confidences(facts)), accepted)
    return reasoner.with_recalibration(found)
