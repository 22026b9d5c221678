"""What triples of ids tell about a dataset as a whole: repeats, leaks between splits, names train never saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from squire.graph.adjacency import Ids, Offsets, sort_unique
from squire.graph.formats.delimited import place_of
from squire.graph.labels import Names
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

    def describe(self, names: Names, index: int) -> tuple[str, str]:
        """Where a triple stands and what it says."""
        head, relation, tail = self.triples[index].tolist()
        words = (names.entities[head], names.relations[relation], names.entities[tail])
        return self.place(index), " ".join(map(names.shorten, words))


def find_duplicates(parts: Mapping[str, Part], names: Names, report: Report) -> None:
    """Triples that stand twice in one split."""
    for part in parts.values():
        keys = _keys(part.triples, names)
        ordered = np.sort(keys)
        repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if len(repeated):
            # Only now the order of lines matters, and only of these: an argsort of all is 5× the sort above.
            at = np.minimum(np.searchsorted(repeated, keys), len(repeated) - 1)
            rows = np.flatnonzero(repeated[at] == keys)
            first = np.unique(keys[rows], return_index=True)[1]
            _add(Fault.DUPLICATE, part, np.delete(rows, first), names, report)


def check_parts(parts: Mapping[str, Part], names: Names, report: Report) -> None:
    """Everything else that is suspicious but leaves the graph usable."""
    for part in parts.values():
        loops = part.triples[:, 0] == part.triples[:, 2]
        _add(Fault.SELF_LOOP, part, np.flatnonzero(loops), names, report)
    train = parts["train"].triples
    twins = _inverse_twins(parts, names)
    earlier: list[Ids] = [train]
    for split in ("valid", "test"):
        if split in parts:
            part = parts[split]
            before = np.concatenate([_keys(triples, names) for triples in earlier])
            leaks = np.isin(_keys(part.triples, names), before)
            _add(Fault.LEAK, part, np.flatnonzero(leaks), names, report)
            reversed_leaks = _inverse_leaks(part.triples, train, twins, names) & ~leaks
            _add(Fault.INVERSE_LEAK, part, np.flatnonzero(reversed_leaks), names, report)
            _find_unseen(part, np.concatenate(earlier), names, report)
            earlier.append(part.triples)


def _keys(triples: Ids, names: Names) -> Offsets:
    """One integer a triple."""
    keys: Offsets = triples[:, 0].astype(np.int64)
    keys *= len(names.relations)
    keys += triples[:, 1]
    keys *= len(names.entities)
    keys += triples[:, 2]
    return keys


def _add(fault: Fault, part: Part, rows: Offsets, names: Names, report: Report) -> None:
    report.add_each(fault, rows.tolist(), lambda row: part.describe(names, row))


def _find_unseen(part: Part, earlier: Ids, names: Names, report: Report) -> None:
    """Each entity and relation that train never mentions, once, at its first mention in the later splits."""
    mentioned = part.triples.reshape(-1)  # head, relation, tail, head, …
    kinds = (
        (Fault.UNSEEN_ENTITY, names.entities, np.arange(len(mentioned)) % 3 != 1, earlier[:, [0, 2]]),
        (Fault.UNSEEN_RELATION, names.relations, np.arange(len(mentioned)) % 3 == 1, earlier[:, 1]),
    )
    for fault, labels, own, seen in kinds:
        positions = np.flatnonzero(own & ~np.isin(mentioned, seen))
        firsts = np.sort(positions[np.unique(mentioned[positions], return_index=True)[1]])
        for position in firsts.tolist():
            report.add(fault, part.place(position // 3), names.shorten(labels[int(mentioned[position])]))


def _inverse_leaks(held_out: Ids, train: Ids, twins: Offsets, names: Names) -> np.ndarray:
    """For each held-out (h, r, t): does train hold (t, r', h) with r' the inverse twin of r?  (triple) bool

    A symmetric relation is its own twin.
    """
    rows, reverse = _reversed_pairs(held_out, train, names)
    is_twin = np.isin(held_out[rows, 1].astype(np.int64) * len(names.relations) + train[reverse, 1], twins)
    leaks = np.zeros(len(held_out), bool)
    leaks[rows[is_twin]] = True
    return leaks


def _inverse_twins(parts: Mapping[str, Part], names: Names) -> Offsets:
    """The pairs (r, r') of inverse twins, as r · relations + r'.

    Repeats count once, and a self-loop, which is its own reverse, not at all.
    """
    size = len(names.entities), len(names.relations)
    known, train = (
        proper[proper[:, 0] != proper[:, 2]]
        for proper in (
            sort_unique(np.concatenate([part.triples for part in parts.values()]), *size),
            sort_unique(parts["train"].triples, *size),
        )
    )
    rows, reverse = _reversed_pairs(known, train, names)
    pairs = known[rows, 1].astype(np.int64) * size[1] + train[reverse, 1]
    found, counts = np.unique(pairs, return_counts=True)
    facts = np.bincount(train[:, 1], minlength=size[1])[found % size[1]]
    twins: Offsets = found[(counts >= TWIN_SHARE * facts) & (counts >= TWIN_COUNT)]
    return twins


def _reversed_pairs(triples: Ids, train: Ids, names: Names) -> tuple[Offsets, Offsets]:
    """All (i, j) such that triples[i] leads from h to t and train[j] from t to h, by a sorted join."""
    size = len(names.entities)
    forward = triples[:, 0].astype(np.int64) * size + triples[:, 2]
    backward = train[:, 2].astype(np.int64) * size + train[:, 0]
    order = np.argsort(backward, kind="stable")
    low = np.searchsorted(backward, forward, "left", sorter=order)
    count = np.searchsorted(backward, forward, "right", sorter=order) - low
    rows = np.repeat(np.arange(len(triples)), count)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    return rows, order[np.repeat(low, count) + within]
