"""What is wrong with an input, how bad it is, where, and what to do: the same words for `check` and `load`.

Readers and checks add what they find to a `Report`; nobody raises half-way, so that one look shows everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from squire.errors import DataError

EXAMPLES_KEPT = 5


class Fault(Enum):
    """Each kind of fault: does it make the graph wrong, what is it, what to do."""

    MISSING_TRAIN = (True, "no train split", "name the file train.txt (or .tsv, .csv, .nt, .parquet …)")
    EMPTY = (True, "no triples in the file", "check that the file is complete")
    BROKEN = (
        True,
        "the file cannot be read",
        "check that the file is complete and of the format its name says",
    )
    COLUMNS = (True, "wrong number of columns", "three fields a line; --separator tells what parts them")
    EMPTY_FIELD = (True, "empty field", "fill it or delete the line")
    ENCODING = (True, "not UTF-8", "convert the file, e.g. iconv -f latin1 -t utf-8")
    SYNTAX = (True, "syntax error", "mend the line")
    MISSING_SPLIT = (
        False,
        "missing split",
        "add the file if you want to evaluate; a split left out is empty",
    )
    EMPTY_SPLIT = (False, "empty split", "add triples if you want to evaluate")
    HOLDOUT = (
        False,
        "fewer triples held out than asked: train needs the others to know every name",
        "choose smaller shares with --holdout, or give the splits as files",
    )
    HEADER = (False, "header line, not read as a triple", "--no-header if it is a triple")
    BOM = (False, "byte order mark, ignored", "")
    CRLF = (False, "Windows line end, read as an ordinary one", "")
    BLANK = (False, "blank line, ignored", "")
    LITERAL = (False, "literal as object, skipped", "--literals keeps them as entities")
    QUOTED = (False, "statement about a statement, skipped", "nothing to do: a triple of names is needed")
    DUPLICATE = (False, "duplicate triple, kept once", "")
    SELF_LOOP = (False, "self-loop: head and tail are the same, kept", "delete it if it means nothing")
    LEAK = (False, "triple of a later split that an earlier one holds too", "delete it: it is no test")
    INVERSE_LEAK = (
        False,
        "held-out triple whose reverse stands in train, under the relation's inverse twin",
        "delete it or one of the twin relations: the answer can be read off",
    )
    UNSEEN_ENTITY = (
        False,
        "entity that train never mentions",
        "nothing can be learnt of it; expect rank = chance",
    )
    UNSEEN_RELATION = (False, "relation that train never mentions", "nothing can be learnt of it")

    def __init__(self, fatal: bool, says: str, advice: str) -> None:
        self.fatal, self.says, self.advice = fatal, says, advice

    @property
    def to_do(self) -> str:
        """The advice as a sentence; nothing where nothing is to be done."""
        return f" To do: {self.advice}." if self.advice else ""


@dataclass
class Finding:
    """One kind of fault in one input."""

    count: int = 0
    examples: list[str] = field(default_factory=list)  # the first few: "file:line: detail"


class Report:
    """All findings of one input, by kind."""

    def __init__(self) -> None:
        self.findings: dict[Fault, Finding] = {}

    def add(self, fault: Fault, place: str, detail: str = "", count: int = 1) -> None:
        """`place` is `file:line`, or what comes nearest to it."""
        finding = self.findings.setdefault(fault, Finding())
        finding.count += count
        if len(finding.examples) < EXAMPLES_KEPT:
            finding.examples.append(f"{place}: {detail}" if detail else place)

    def add_each(self, fault: Fault, items: Iterable[int], describe: Callable[[int], tuple[str, str]]) -> None:
        """Count all items, but describe (place, detail) only those whose words are kept."""
        items = list(items)
        for item in items[:EXAMPLES_KEPT]:
            self.add(fault, *describe(item))
        if len(items) > EXAMPLES_KEPT:
            self.findings[fault].count += len(items) - EXAMPLES_KEPT

    @property
    def errors(self) -> int:
        """How many faults make the graph wrong."""
        return sum(finding.count for fault, finding in self.findings.items() if fault.fatal)

    @property
    def usable(self) -> bool:
        return self.errors == 0

    def lines(self, fatal: bool) -> list[str]:
        """One line a finding, of the wanted severity: what, how often, where first, what to do."""
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
