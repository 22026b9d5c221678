"""What is wrong with an input: how serious it is, where, and what to do. `check` and `load` use the same words.

Readers and checks add what they find to a `Report` and carry on, so that one run shows everything. The second half
checks a dataset as a whole: repeats, leaks between splits, labels that train never mentions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from squire.core.files import format_suffix
from squire.core.ragged import ranges
from squire.errors import DataError
from squire.graph.adjacency import Ids, Offsets, sort_unique
from squire.graph.labels import Labels

EXAMPLES_KEPT = 5
STATEMENT_FORMATS = {".ttl", ".trig", ".rdf", ".xml", ".owl"}  # their statements have no lines of their own

# r' is the inverse twin of r if at least this share of the train facts of r', and at least two of them, occur
# reversed under r in any split: then r can be read off r'.
TWIN_SHARE = 0.8
TWIN_COUNT = 2

# More relations than these look like a column of entities. FB15K237 has 61 entities to a relation, world 53.
RELATION_SHARE = 0.5  # of the number of entities
RELATION_COUNT = 20


class Fault(Enum):
    """Each kind of fault: whether it makes the graph unusable, what it is, and what to do."""

    MISSING_TRAIN = (True, "no train split", "name the file train.txt (or .tsv, .csv, .nt, .parquet …)")
    EMPTY = (True, "no triples in the file", "check that the file is complete")
    BROKEN = (
        True,
        "the file cannot be read",
        "check that the file is complete and has the format that its name says",
    )
    COLUMNS = (
        True,
        "wrong number of columns",
        "each line needs three fields; `separator` is the character between them",
    )
    EMPTY_FIELD = (True, "empty field", "fill it or delete the line")
    ENCODING = (True, "not UTF-8", "convert the file, e.g. iconv -f latin1 -t utf-8")
    SYNTAX = (True, "syntax error", "correct the line")
    NUL = (
        True,
        "NUL character in a name",
        "check that the file is complete text; convert UTF-16, e.g. iconv -f utf-16 -t utf-8",
    )
    MISSING_SPLIT = (False, "missing split", "add the file if you want to evaluate; a missing split is empty")
    EMPTY_SPLIT = (False, "empty split", "add triples if you want to evaluate")
    HOLDOUT = (
        False,
        "fewer triples held out than requested: train needs the others to cover every entity and relation",
        "choose smaller shares for `holdout`, or provide the splits as files",
    )
    HEADER = (False, "header line, not read as a triple", "set `header` to False if it is a triple")
    BOM = (False, "byte order mark, ignored", "")
    CRLF = (False, "Windows line end, read as an ordinary one", "")
    BLANK = (False, "blank line, ignored", "")
    LITERAL = (False, "literal as object, skipped", "set `literals` to True to keep them as entities")
    QUOTED = (False, "statement about a statement, skipped", "")
    CONTROL = (False, "control character in a name, kept", "delete it: nobody can see or type it")
    ORDER = (
        False,
        "many relations for so few entities, in columns without a known header",
        "check the order of the columns, and set `order`, e.g. htr, if it is not head, relation, tail",
    )
    DUPLICATE = (False, "duplicate triple, kept once", "")
    SELF_LOOP = (False, "self-loop: head and tail are the same, kept", "delete it if it is meaningless")
    LEAK = (False, "triple of a later split that is also in an earlier one", "delete it: it tests nothing")
    INVERSE_LEAK = (
        False,
        "held-out triple whose reverse is in train, under the relation's inverse twin",
        "delete it or one of the twin relations: the answer can be read off",
    )
    UNSEEN_ENTITY = (
        False,
        "entity that train never mentions",
        "nothing can be learned about it; expect the rank of chance",
    )
    UNSEEN_RELATION = (False, "relation that train never mentions", "nothing can be learned about it")

    def __init__(self, fatal: bool, says: str, advice: str) -> None:
        self.fatal, self.says, self.advice = fatal, says, advice

    @property
    def to_do(self) -> str:
        """The advice as a sentence; empty if there is none."""
        return f" {self.advice[0].upper()}{self.advice[1:]}." if self.advice else ""


# Tabs are no fault: they separate, or a quoted field contains them on purpose.
CONTROL_CHARACTERS = {Fault.NUL: r"\x00", Fault.CONTROL: r"[\x01-\x08\x0a-\x1f]"}


@dataclass
class Finding:
    """One kind of fault in one input."""

    count: int = 0
    examples: list[str] = field(default_factory=list)  # the first few: "file:line: detail"


class Report:
    """All findings of one input, by kind."""

    def __init__(self) -> None:
        self.findings: dict[Fault, Finding] = {}

    def add(self, fault: Fault, where: str, detail: str = "", count: int = 1) -> None:
        """`where` is `file:line`, or the nearest thing to it."""
        finding = self.findings.setdefault(fault, Finding())
        finding.count += count
        if len(finding.examples) < EXAMPLES_KEPT:
            finding.examples.append(f"{where}: {detail}" if detail else where)

    def add_each(self, fault: Fault, items: Iterable[int], describe: Callable[[int], tuple[str, str]]) -> None:
        """Count all items, but describe (where, detail) only the first few."""
        items = list(items)
        for item in items[:EXAMPLES_KEPT]:
            self.add(fault, *describe(item))
        if len(items) > EXAMPLES_KEPT:
            self.findings[fault].count += len(items) - EXAMPLES_KEPT

    @property
    def errors(self) -> int:
        """The number of faults that make the graph unusable."""
        return sum(finding.count for fault, finding in self.findings.items() if fault.fatal)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        findings = [
            {
                "kind": fault.name.lower(),
                "fatal": fault.fatal,
                "count": found.count,
                "examples": found.examples,
                "says": fault.says,
                "advice": fault.advice,
            }
            for fault, found in self.findings.items()
        ]
        return {"usable": self.usable, "findings": findings}

    @property
    def usable(self) -> bool:
        return self.errors == 0

    def lines(self, fatal: bool) -> list[str]:
        """One line for each kind of fault of this severity: what, how often, where first, what to do."""
        return [
            f"{finding.examples[0]}: {fault.says}"
            + (f" (and {finding.count - 1:,} more like it)" if finding.count > 1 else "")
            + f".{fault.to_do}"
            for fault, finding in self.findings.items()
            if fault.fatal == fatal
        ]

    def raise_if_unusable(self) -> None:
        if not self.usable:
            raise DataError("\n".join(self.lines(fatal=True)))


def position_in(path: Path, number: int) -> str:
    """`file:line` where lines can be counted, else `file, row 7` or `file, statement 7`."""
    suffix = format_suffix(path)
    if suffix == ".parquet":
        return f"{path}, row {number}"
    return f"{path}, statement {number}" if suffix in STATEMENT_FORMATS else f"{path}:{number}"


# ------------------------------------------------------------------------------------------------- whole datasets


@dataclass(frozen=True)
class Part:
    """One split as it was read."""

    file: Path
    triples: Ids  # (triple, 3), in the order of the file, repeats included
    positions: Offsets  # (triple): line, row or statement
    within: str = ""  # the split, in a file that has several

    def where(self, index: int) -> str:
        """The position of a triple."""
        number = int(self.positions[index])
        return f"{self.file}, {self.within} triple {number}" if self.within else position_in(self.file, number)

    def describe(self, labels: Labels, index: int) -> tuple[str, str]:
        """The position of a triple and its text, in which control characters are visible."""
        head, relation, tail = self.triples[index].tolist()
        text = f"{labels.entity(head)} {labels.relation(relation)} {labels.entity(tail)}"
        return self.where(index), re.sub(r"[\x00-\x1f]", lambda found: repr(found[0])[1:-1], text)


def find_duplicates(parts: Mapping[str, Part], labels: Labels, report: Report) -> None:
    """Triples that occur twice in one split."""
    for part in parts.values():
        keys = _keys(part.triples, labels)
        ordered = np.sort(keys)
        repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if len(repeated):
            # The order of lines matters only for these: an argsort of all is 5× as slow as the sort above.
            at = np.minimum(np.searchsorted(repeated, keys), len(repeated) - 1)
            rows = np.flatnonzero(repeated[at] == keys)
            first = np.unique(keys[rows], return_index=True)[1]
            _add(Fault.DUPLICATE, part, np.delete(rows, first), labels, report)


def find_control_characters(parts: Mapping[str, Part], labels: Labels, report: Report) -> None:
    """Triples whose names contain control characters."""
    for fault, pattern in CONTROL_CHARACTERS.items():
        entity, relation = (
            np.array(pc.match_substring_regex(index.array, pattern), bool)
            for index in (labels.entities, labels.relations)
        )
        if entity.any() or relation.any():
            for part in parts.values():
                head, edge, tail = part.triples.T
                rows = np.flatnonzero(entity[head] | relation[edge] | entity[tail])
                _add(fault, part, rows, labels, report)


def has_many_relations(labels: Labels) -> bool:
    """Whether there are so many relations that they may be entities from another column."""
    return len(labels.relations) > max(RELATION_COUNT, RELATION_SHARE * len(labels.entities))


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
    """One integer for each triple."""
    keys: Offsets = triples[:, 0].astype(np.int64)
    keys *= len(labels.relations)
    keys += triples[:, 1]
    keys *= len(labels.entities)
    keys += triples[:, 2]
    return keys


def _add(fault: Fault, part: Part, rows: Offsets, labels: Labels, report: Report) -> None:
    report.add_each(fault, rows.tolist(), lambda row: part.describe(labels, row))


def _find_unseen(part: Part, earlier: Ids, labels: Labels, report: Report) -> None:
    """Each entity and relation that train never mentions, once, where it is first mentioned."""
    mentioned = part.triples.reshape(-1)  # head, relation, tail, head, …
    kinds = (
        (Fault.UNSEEN_ENTITY, labels.entities, np.arange(len(mentioned)) % 3 != 1, earlier[:, [0, 2]]),
        (Fault.UNSEEN_RELATION, labels.relations, np.arange(len(mentioned)) % 3 == 1, earlier[:, 1]),
    )
    for fault, index, own, seen in kinds:
        positions = np.flatnonzero(own & ~np.isin(mentioned, seen))
        firsts = np.sort(positions[np.unique(mentioned[positions], return_index=True)[1]])
        for position in firsts.tolist():
            report.add(fault, part.where(position // 3), labels.shorten(index[int(mentioned[position])]))


def _inverse_leaks(held_out: Ids, train: Ids, twins: Offsets, labels: Labels) -> npt.NDArray[np.bool_]:
    """For each held-out (h, r, t): is (t, r', h) in train, with r' the inverse twin of r?  (triple)

    A symmetric relation is its own twin.
    """
    rows, reverse = _reversed_pairs(held_out, train, labels)
    is_twin = np.isin(held_out[rows, 1].astype(np.int64) * len(labels.relations) + train[reverse, 1], twins)
    leaks = np.zeros(len(held_out), bool)
    leaks[rows[is_twin]] = True
    return leaks


def _inverse_twins(parts: Mapping[str, Part], labels: Labels) -> Offsets:
    """The pairs (r, r') of inverse twins, as r · relations + r'.

    Repeats count once. A self-loop is its own reverse and does not count.
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
    """All (i, j) where triples[i] leads from h to t and train[j] from t to h, by a sorted join."""
    size = len(labels.entities)
    forward = triples[:, 0].astype(np.int64) * size + triples[:, 2]
    backward = train[:, 2].astype(np.int64) * size + train[:, 0]
    order = np.argsort(backward, kind="stable")
    low = np.searchsorted(backward, forward, "left", sorter=order)
    count = np.searchsorted(backward, forward, "right", sorter=order) - low
    return np.repeat(np.arange(len(triples)), count), order[ranges(low, count)]
