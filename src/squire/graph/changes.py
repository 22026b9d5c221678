"""Facts that were added to a run's graph, or removed from it, after training.

Each change is a file of its own, `changes/00000001.json`. It appears whole or not at all and is never changed, so
a kill leaves the run as it was. The graph is that of the training with all changes applied. Its entities keep
their ids, and new ones come after them, so that rules, fusion and model stay valid.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from squire.core.files import replacing, sync_folder
from squire.core.kept import frozen
from squire.core.processes import locked
from squire.core.run_files import CHANGES
from squire.errors import DataError, UnknownName
from squire.graph.adjacency import Adjacency, Ids
from squire.graph.graph import Graph
from squire.graph.labels import Labels
from squire.graph.loading import FactRows, read_facts

Action = Literal["add", "remove"]
Fact = tuple[str, str, str]  # head, relation, tail
COMPLAINTS = 5  # about one file
PATIENCE = 10.0  # seconds that a change waits for another one, which takes a fraction of a second


@dataclass(frozen=True)
class Changes:
    """The facts that a graph has more, and those that it has less, than when it was trained on."""

    added: frozenset[Fact] = frozenset()
    removed: frozenset[Fact] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)

    @property
    def key(self) -> str:
        """Tells these changes from others."""
        return sha256(json.dumps([sorted(self.added), sorted(self.removed)]).encode()).hexdigest()

    def then(self, action: Action, facts: Iterable[Fact]) -> Changes:
        """These changes and one more. Facts that are added must not be in the graph, and others must be."""
        more = frozenset(facts)
        if action == "add":
            return Changes(self.added | (more - self.removed), self.removed - more)
        return Changes(self.added - more, self.removed | (more - self.added))

    def apply(self, base: Graph, labels: Labels | None = None) -> Graph:
        """The graph with these changes: new facts are in train, new entities after all others.

        labels: number entities by these instead; facts about others are left out.
        """
        if not self and labels is None:
            return base
        if labels is None:
            ends = {entity for head, _, tail in self.added for entity in (head, tail)}
            new = sorted(entity for entity in ends if entity not in base.labels.entities)
            labels = replace(base.labels, entities=base.labels.entities.extended(new))
        size = len(labels.entities), len(labels.relations)
        added, gone = (Adjacency.build(_ids(facts, labels), *size) for facts in (self.added, self.removed))
        train = base.train.grown(size[0]).without(gone).joined(added)
        valid, test = (frozen(own[~gone.contains_each(*own.T)]) for own in (base.valid, base.test))
        return replace(base, labels=labels, train=train, valid=valid, test=test)


def _ids(facts: Collection[Fact], labels: Labels) -> Ids:
    """The facts as ids, without those whose labels do not exist.  (fact, 3)"""
    entity, relation = labels.entities.find, labels.relations.find
    rows = [(entity(h), relation(r), entity(t)) for h, r, t in facts]
    return np.array([row for row in rows if None not in row], np.int32).reshape(-1, 3)


# ------------------------------------------------------------------------------------------------- one change


@dataclass(frozen=True, repr=False)
class Change:
    """What `add` or `remove` did."""

    action: Action
    facts: tuple[Fact, ...]  # that were added or removed
    known: int = 0  # facts of the input that the graph already had
    new_entities: tuple[str, ...] = ()
    time: str = field(default="", compare=False)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "action": self.action,
            "facts": len(self.facts),
            "known": self.known,
            "new_entities": list(self.new_entities),
            "time": self.time,
        }

    def __repr__(self) -> str:
        count, did = len(self.facts), "added" if self.action == "add" else "removed"
        parts = [f"{count:,} fact{'s' * (count != 1)} {did}"]
        if self.known:
            parts.append(f"{self.known:,} already in the graph")
        if self.new_entities:
            shown = ", ".join(self.new_entities[:COMPLAINTS])
            more = len(self.new_entities) - COMPLAINTS
            parts.append(f"new: {shown}" + (f" and {more:,} more" if more > 0 else ""))
        return "; ".join(parts)


def check_facts(base: Graph, changes: Changes, action: Action, given: Any) -> Change:
    """The change that a file or rows of facts would make; DataError names what is wrong with them, and where."""
    rows = given if isinstance(given, FactRows) else read_facts(given)
    found: dict[Fact, None] = {}
    new: dict[str, None] = {}
    complaints: list[str] = []
    known, held_out = 0, base.known("valid", "test")

    def is_in_base(fact: Fact) -> bool:
        found = _ids([fact], base.labels).tolist()  # none if a label is new
        return any(own.contains(*ids) for ids in found for own in (base.train, held_out))

    added_entities = {end for head, _, tail in changes.added for end in (head, tail)}
    for number, row in enumerate(rows.facts):
        try:
            fact = _resolve(row, base.labels, added_entities, may_be_new=action == "add")
            is_there = fact in changes.added or (fact not in changes.removed and is_in_base(fact))
            if action == "remove" and not is_there:
                raise DataError(f"({', '.join(row)}) is not in the graph.")
        except (UnknownName, DataError) as error:
            complaints.append(f"{rows.where(number)}: {error}")
            if isinstance(error, UnknownName) and error.kind == "relation":
                complaints[-1] += " A run keeps the relations that it was trained with: train again to add one."
            if len(complaints) == COMPLAINTS:
                complaints.append("There may be more: the rest was not looked at.")
                break
            continue
        if action == "add" and is_there:
            known += 1
            continue
        found[fact] = None
        ends = (fact[0], fact[2])
        new |= dict.fromkeys(end for end in ends if end not in base.labels.entities and end not in added_entities)
    if complaints:
        raise DataError("\n".join(complaints))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Change(action, tuple(found), known, tuple(new) if action == "add" else (), now)


def _resolve(row: Fact, labels: Labels, added: set[str], *, may_be_new: bool) -> Fact:
    """The labels of a fact as the graph has them; prefixes are expanded."""
    if "\0" in "".join(row):
        raise DataError("a NUL character in a name.")
    if not all(name.strip() for name in row):
        raise DataError("a name of nothing but spaces.")
    head, tail = (_entity(label, labels, added, may_be_new) for label in (row[0], row[2]))
    return head, labels.relations[labels.relation_id(row[1])], tail


def _entity(label: str, labels: Labels, added: set[str], may_be_new: bool) -> str:
    expanded = labels.expand(label)
    for candidate in (label, expanded):
        if candidate in labels.entities or candidate in added:
            return candidate
    if may_be_new:
        return expanded if label.partition(":")[0] in labels.prefixes else label
    raise UnknownName("entity", label, [labels.shorten(near) for near in labels.entities.nearest(label)])


# ------------------------------------------------------------------------------------------------- the journal


def change_files(folder: Path) -> list[Path]:
    """The changes of a run, oldest first."""
    return sorted((folder / CHANGES).glob("[0-9]*.json"))


def load_changes(folder: Path, most: int | None = None) -> Changes:
    """All changes of a run together, or the first ones."""
    return reduce(_then_file, change_files(folder)[:most], Changes())


def _then_file(changes: Changes, file: Path) -> Changes:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["action"] not in get_args(Action):
            raise ValueError(f"action {content['action']!r}")
        return changes.then(content["action"], [_fact(row) for row in content["facts"]])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: not a change ({error}). Restore it from a copy, or delete it.") from None


def _fact(row: Any) -> Fact:
    head, relation, tail = row
    if not all(isinstance(name, str) for name in row):
        raise ValueError(f"fact {row!r}")
    return head, relation, tail


def record_change(folder: Path, base: Graph, action: Action, given: Any) -> Change:
    """Add facts to the graph of a run, or remove them: all of them, or none if one is wrong."""
    with locked(folder / CHANGES, "changing facts", wait=PATIENCE):
        try:
            change = check_facts(base, load_changes(folder), action, given)
        except DataError as error:
            raise DataError(f"{error}\nNothing was changed.") from None
        if change.facts:
            last = max((int(file.stem) for file in change_files(folder)), default=0)
            content = {"action": action, "time": change.time, "facts": change.facts}
            file = folder / CHANGES / f"{last + 1:08}.json"
            with replacing(file) as temporary, temporary.open("w", encoding="utf-8") as stream:
                json.dump(content, stream, ensure_ascii=False)
                stream.flush()
                os.fsync(stream.fileno())
            sync_folder(folder / CHANGES)
    return change
