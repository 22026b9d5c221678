"""What triples of ids tell about a dataset as a whole: repeats, leaks between splits, labels train never saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from squire.graph.adjacency import Ids, Offsets, sort_unique
from squire.graph.formats.delimited import place_of
from squire.graph.labels import Labels
from squire.graph.report import Fault, Report

# r' is the inverse twin of r if this share of its train facts stands reversed in r, in whichever split, and at
# least two do: then whoever sees r' can read r off.
TWIN_SHARE = 0.8
TWIN_COUNT = 2


@dataclass(frozen=True)
class Part:
    """One split as it was read."""

    file: Path
    triples: Ids  # (triple, 3), in the order of the file, repeats included
    places: Offsets  # (triple): line, row or statement
    within: str = ""  # the part of a file that holds several

    def place(self, index: int) -> str:
        """Where a triple stands."""
        number = int(self.places[index])
        return f"{self.file}, {self.within} triple {number}" if self.within else place_of(self.file, number)

    def describe(self, labels: Labels, index: int) -> tuple[str, str]:
        """Where a triple stands and what it says."""
        head, relation, tail = self.triples[index].tolist()
        words = (labels.entities[head], labels.relations[relation], labels.entities[tail])
        return self.place(index), " ".join(map(labels.shorten, words))


def find_duplicates(parts: Mapping[str, Part], labels: Labels, report: Report) -> None:
    """Triples that stand twice in one split."""
    for part in parts.values():
        keys = _keys(part.triples, labels)
        ordered = np.sort(keys)
        repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if len(repeated):
            # Only now the order of lines matters, and only of these: an argsort of all is 5× the sort above.
            at = np.minimum(np.searchsorted(repeated, keys), len(repeated) - 1)
            rows = np.flatnonzero(repeated[at] == keys)
            first = np.unique(keys[rows], return_index=True)[1]
            _add(Fault.DUPLICATE, part, np.delete(rows, first), labels, report)


def check_parts(parts: Mapping[str, Part], labels: Labels, report: Report) -> None:
    """Everything else that is suspicious but leaves the graph usable."""
    for part in parts.values():
        loops = part.triples[:, 0] == part.triples[:, 2]
        _add(Fault.SELF_LOOP, part, np.flatnonzero(loops), labels, report)
    train = parts["train"].triples
    twins = _inverse_twins(parts, labels)
    earlier: list[Ids] = [train]
    for split in ("valid", "test"):
        if split in parts:
            part = parts[split]
            before = np.concatenate([_keys(triples, labels) for triples in earlier])
            leaks = np.isin(_keys(part.triples, labels), before)
            _add(Fault.LEAK, part, np.flatnonzero(leaks), labels, report)
            reversed_leaks = _inverse_leaks(part.triples, train, twins, labels) & ~leaks
            _add(Fault.INVERSE_LEAK, part, np.flatnonzero(reversed_leaks), labels, report)
            _find_unseen(part, np.concatenate(earlier), labels, report)
            earlier.append(part.triples)


def _keys(triples: Ids, labels: Labels) -> Offsets:
    """One integer a triple."""
    keys: Offsets = triples[:, 0].astype(np.int64)
    keys *= len(labels.relations)
    keys += triples[:, 1]
    keys *= len(labels.entities)
    keys += triples[:, 2]
    return keys


def _add(fault: Fault, part: Part, rows: Offsets, labels: Labels, report: Report) -> None:
    report.add_each(fault, rows.tolist(), lambda row: part.describe(labels, row))


def _find_unseen(part: Part, earlier: Ids, labels: Labels, report: Report) -> None:
    """Each entity and relation that train never mentions, once, at its first mention in the later splits."""
    mentioned = part.triples.reshape(-1)  # head, relation, tail, head, …
    kinds = (
        (Fault.UNSEEN_ENTITY, labels.entities, np.arange(len(mentioned)) % 3 != 1, earlier[:, [0, 2]]),
        (Fault.UNSEEN_RELATION, labels.relations, np.arange(len(mentioned)) % 3 == 1, earlier[:, 1]),
    )
    for fault, index, own, seen in kinds:
        positions = np.flatnonzero(own & ~np.isin(mentioned, seen))
        firsts = np.sort(positions[np.unique(mentioned[positions], return_index=True)[1]])
        for position in firsts.tolist():
            report.add(fault, part.place(position // 3), labels.shorten(index[int(mentioned[position])]))


def _inverse_leaks(held_out: Ids, train: Ids, twins: Offsets, labels: Labels) -> np.ndarray:
    """For each held-out (h, r, t): does train hold (t, r', h) with r' the inverse twin of r?  (triple) bool

    A symmetric relation is its own twin.
    """
    rows, reverse = _reversed_pairs(held_out, train, labels)
    is_twin = np.isin(held_out[rows, 1].astype(np.int64) * len(labels.relations) + train[reverse, 1], twins)
    leaks = np.zeros(len(held_out), bool)
    leaks[rows[is_twin]] = True
    return leaks


def _inverse_twins(parts: Mapping[str, Part], labels: Labels) -> Offsets:
    """The pairs (r, r') of inverse twins, as r · relations + r'.

    Repeats count once, and a self-loop, which is its own reverse, not at all.
    """
    size = len(labels.entities), len(labels.relations)
    known, train = (
        proper[proper[:, 0] != proper[:, 2]]
        for proper in (
            sort_unique(np.concatenate([part.triples for part in parts.values()]), *size),
            sort_unique(parts["train"].triples, *size),
        )
    )
    rows, reverse = _reversed_pairs(known, train, labels)
    pairs = known[rows, 1].astype(np.int64) * size[1] + train[reverse, 1]
    found, counts = np.unique(pairs, return_counts=True)
    facts = np.bincount(train[:, 1], minlength=size[1])[found % size[1]]
    twins: Offsets = found[(counts >= TWIN_SHARE * facts) & (counts >= TWIN_COUNT)]
    return twins


def _reversed_pairs(triples: Ids, train: Ids, labels: Labels) -> tuple[Offsets, Offsets]:
    """All (i, j) such that triples[i] leads from h to t and train[j] from t to h, by a sorted join."""
    size = len(labels.entities)
    forward = triples[:, 0].astype(np.int64) * size + triples[:, 2]
    backward = train[:, 2].astype(np.int64) * size + train[:, 0]
    order = np.argsort(backward, kind="stable")
    low = np.searchsorted(backward, forward, "left", sorter=order)
    count = np.searchsorted(backward, forward, "right", sorter=order) - low
    rows = np.repeat(np.arange(len(triples)), count)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    return rows, order[np.repeat(low, count) + within]
