"""Whom an answer may be: some entities, those of a type, or those that are not linked to the question's entity.

Confidence stays that of the fact; ranks are among the entities that are allowed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from squire.core.files import open_bytes
from squire.errors import DataError, SettingError, UnknownName
from squire.graph.adjacency import Adjacency, AnyIds
from squire.graph.graph import Graph
from squire.graph.labels import Labels

Flags = npt.NDArray[np.bool_]
TYPE_RELATIONS = ("is a", "instance of", "instanceof", "type", "isa", "a", "p31", "generalizations")
TYPICAL = 0.5  # share of those that occur somewhere which have the type, so that the others may have it, too
COMPLAINTS = 5


@dataclass(frozen=True, eq=False)
class Restriction:
    """Which entities may be answers."""

    allowed: Flags | None = None  # (entity); None for all
    listed: AnyIds | None = None  # the same as ids, if somebody chose each of them
    not_linked: bool = False

    def allows(self, facts: Adjacency, head: int, candidates: AnyIds) -> Flags:
        """Which of the candidates of a question about `head` may be answers.  (candidate)"""
        keep = np.ones(len(candidates), bool) if self.allowed is None else self.allowed[candidates]
        if self.not_linked:
            keep &= ~np.isin(candidates, facts.edges(head)[1]) & (candidates != head)
        return keep

    @property
    def about(self) -> dict[str, object]:
        """What identifies it, for JSON."""
        allowed = b"" if self.allowed is None else np.packbits(self.allowed).tobytes()
        return {
            "among": hashlib.sha256(allowed).hexdigest()[:16] if allowed else "",
            "not_linked": self.not_linked,
        }


def restrict(
    graph: Graph,
    facts: Adjacency,
    among: Sequence[str] | str | Path | None = None,
    kind: str | None = None,
    not_linked: bool = False,
) -> Restriction | None:
    """The restriction to entities of a list or file, to those of a type, and to those not linked; or None."""
    if among is None and kind is None and not not_linked:
        return None
    listed, allowed = None, None
    if among is not None:
        listed = np.unique(np.array(_entities(graph.labels, among), np.int32))
        allowed = np.zeros(graph.num_entities, bool)
        allowed[listed] = True
    if kind is not None:
        of_type = entities_of_type(graph.labels, facts, kind)
        allowed = of_type if allowed is None else allowed & of_type
        listed = None if listed is None else listed[allowed[listed]]
    return Restriction(allowed, listed, not_linked)


def _entities(labels: Labels, among: Sequence[str] | str | Path) -> list[int]:
    if isinstance(among, str | Path):
        rows, where = _lines(Path(among)), f"{among}:"
    else:
        rows, where = list(enumerate(among)), "among, row "
    found, complaints = [], []
    for number, label in rows:
        try:
            found.append(labels.entity_id(label))
        except UnknownName as error:
            complaints.append(f"{where}{number}: {error}")
            if len(complaints) == COMPLAINTS:
                break
    if complaints:
        raise DataError("\n".join(complaints))
    if not found:
        raise SettingError(f"among={str(among)!r}: no entities. Give one per line.")
    return found


def _lines(file: Path) -> list[tuple[int, str]]:
    try:
        with open_bytes(file) as stream:
            text = stream.read().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read ({error}). Give a text file with one entity per line.") from None
    return [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def entities_of_type(labels: Labels, facts: Adjacency, name: str) -> Flags:
    """Entities that have this value of a relation like `is a`, and those without any that occur where these do.

    (entity)
    """
    kind, n = labels.entity_id(name), facts.num_relations
    relations, members = facts.edges(kind)
    incoming = relations >= n  # inverse edges lead to those that have the type
    relations, members = relations[incoming] - n, members[incoming]
    own = [r for r in np.unique(relations).tolist() if _is_type_relation(labels.relation(r))]
    if not own:
        used = ", ".join(repr(labels.relation(r)) for r in np.unique(relations).tolist()) or "none"
        raise SettingError(
            f"type={name!r}: no entity is of this type. Relations like {TYPE_RELATIONS[0]!r} are looked at; those "
            f"that lead to it: {used}."
        )
    typed = np.zeros(facts.num_entities, bool)  # have any type
    typed[facts.heads[np.isin(facts.relations, own)]] = True
    found = np.zeros(facts.num_entities, bool)
    found[members[np.isin(relations, own)]] = True
    entities, offsets = facts.starts
    similar = found.copy()
    for edge_type in range(2 * n):
        holders = entities[offsets[edge_type] : offsets[edge_type + 1]]
        known = holders[typed[holders]]
        if edge_type % n not in own and len(known) and found[known].mean() >= TYPICAL:
            similar[holders[~typed[holders]]] = True
    similar[kind] = False
    return similar


def _is_type_relation(label: str) -> bool:
    short = label.casefold().replace("_", " ").rstrip("/")
    for mark in ("#", "/", ":"):
        short = short.rpartition(mark)[2]
    return short in TYPE_RELATIONS
