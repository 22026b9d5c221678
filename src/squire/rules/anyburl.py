"""AnyBURL's text format, one rule per line: how rules are exchanged with AnyBURL and PyClause.

`body count <TAB> support <TAB> confidence <TAB> head <= atom, atom, …`, where an atom is `relation(X,A)`,
variables are single capitals and anything else is a constant. An inverse is written by swapping the arguments.

The format has no quotes, so labels with brackets, commas or arrows can make a line ambiguous. A rule is written
only if its line reads back as the same rule. Runs keep rules as arrays, which can hold any label.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from lzma import LZMAError
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from squire.core.files import create_bytes, open_bytes, replacing
from squire.core.relations import is_inverse
from squire.core.run_files import RULES, RULES_TEXT
from squire.errors import RuleError, UnknownName
from squire.graph.labels import LabelIndex, Labels
from squire.rules.rules import MAX_LENGTH, NONE, Rules

VARIABLE = re.compile(r"[A-Z]")
ATOM_END, BRACKET = re.compile(r"\),? *"), re.compile(r"\(")
REFLEXIVE = "me_myself_i"  # AnyBURL's constant for "the same entity", in graphs with self-loops

# Labels that may be read back as something else: a variable, part of the syntax, or without their leading space.
DOUBTFUL_ENTITY, DOUBTFUL_RELATION = r"^[A-Z]$|[\t\r\n(),]|<=", r"^ |[\t\r\n(),]|<="
LINE_SYNTAX = re.compile(r"[\t\r\n]")


@dataclass(frozen=True)
class RuleFile:
    """The rules of a file."""

    rules: Rules
    skipped: int  # rules of other forms: longer constant rules, rules without a body or with loops


@dataclass(frozen=True)
class _Atom:
    relation: int
    first: str
    second: str


class _Unsupported(Exception):
    """A well-formed rule of a form that we do not use."""


# ------------------------------------------------------------------------------------------------------- writing


def is_writable(rules: Rules, labels: Labels) -> npt.NDArray[np.bool_]:
    """Whether a rule's line reads back as the same rule.  (rule)"""
    entity = _matches(labels.entities, DOUBTFUL_ENTITY)
    relation = _matches(labels.relations, DOUBTFUL_RELATION)
    entity, relation = np.append(entity, False), np.append(np.tile(relation, 2), False)  # the last is for NONE
    doubtful = entity[rules.head_constant] | entity[rules.body_constant] | relation[rules.head]
    doubtful |= relation[rules.body].any(axis=1)
    fits = ~doubtful
    fits[doubtful] = [_reads_back(rules, i, labels) for i in np.flatnonzero(doubtful).tolist()]
    return fits


def _reads_back(rules: Rules, index: int, labels: Labels) -> bool:
    text = rule_text(rules, index, labels)
    try:
        read = None if LINE_SYNTAX.search(text) else _parse(text, labels)
    except (_Unsupported, RuleError, UnknownName):
        return False
    own = rules.head[index], rules.body[index].tolist(), rules.head_constant[index], rules.body_constant[index]
    return read == own


def _matches(labels: LabelIndex, pattern: str) -> npt.NDArray[np.bool_]:
    return np.array(pc.match_substring_regex(labels.array, pattern), bool)


def write_rules(rules: Rules, labels: Labels, path: Path) -> None:
    """Writes the rules in their order; the file appears whole or not at all."""
    if not is_writable(rules, labels).all():
        raise RuleError(
            f"{path}: some labels do not fit the format, or make a line ambiguous. Keep only the rules that are "
            "`is_writable`."
        )
    confidence = rules.confidence
    with create_bytes(path) as stream:
        for i in range(len(rules)):
            numbers = f"{rules.body_count[i]}\t{rules.support[i]}\t{confidence[i]:.6g}"
            stream.write(f"{numbers}\t{rule_text(rules, i, labels)}\n".encode())


def rule_text(rules: Rules, index: int, labels: Labels) -> str:
    """One rule as AnyBURL writes it: `spouse(X,Y) <= spouse(Y,X)`."""
    n = rules.num_relations
    return _render(rules, index, lambda e: labels.entities[e], lambda r: labels.relations[r % n], FILE)


def readable(rules: Rules, index: int, labels: Labels) -> str:
    """One rule with shortened labels, for display: `spouse(X, Y) ⇐ spouse(Y, X)`."""
    return _render(rules, index, labels.entity, labels.relation, DISPLAY)


class _Style(NamedTuple):
    comma: str
    arrow: str
    conjunction: str
    anything: str  # the unbound variable of a constant rule


FILE, DISPLAY = _Style(",", " <= ", ", ", "A"), _Style(", ", " ⇐ ", " ∧ ", "anything")


def _render(
    rules: Rules, index: int, entity: Callable[[int], str], relation: Callable[[int], str], style: _Style
) -> str:
    r, c, d = int(rules.head[index]), int(rules.head_constant[index]), int(rules.body_constant[index])
    body = [b for b in rules.body[index].tolist() if b != NONE]

    def atom(edge_type: int, first: str, second: str) -> str:
        if is_inverse(edge_type, rules.num_relations):
            first, second = second, first
        return f"{relation(edge_type)}({first}{style.comma}{second})"

    if c == NONE:
        ends = ["X", *"AB"[: len(body) - 1], "Y"]
        atoms = [atom(b, ends[i], ends[i + 1]) for i, b in enumerate(body)]
        return f"{atom(r, 'X', 'Y')}{style.arrow}{style.conjunction.join(atoms)}"
    variable = "Y" if is_inverse(r, rules.num_relations) else "X"  # r(X,c) and its mirror image r(c,Y)
    end = style.anything if d == NONE else entity(d)
    return f"{atom(r, variable, entity(c))}{style.arrow}{atom(body[0], variable, end)}"


# ------------------------------------------------------------------------------------------------------- reading


def read_rules(path: Path, labels: Labels) -> RuleFile:
    """The rules of a file, in its order. A malformed line or unknown label raises RuleError with `file:line`."""
    rows: list[tuple[int, list[int], int, int, int, int]] = []
    skipped = 0
    for number, line in _lines(path):
        try:
            fields = line.split("\t")
            if len(fields) != 4:
                raise RuleError(f"expected 4 fields separated by tabs, found {len(fields)}.")
            body_count, support = _count(fields[0]), _count(fields[1])
            if support > body_count:
                raise RuleError(f"support {support} must not exceed the body count {body_count}.")
            _check_number(fields[2])
            rows.append((*_parse(fields[3], labels), body_count, support))
        except _Unsupported:
            skipped += 1
        except (RuleError, UnknownName) as error:
            raise RuleError(f"{path}:{number}: {error} Correct or delete the line.") from None
    if not rows:
        return RuleFile(Rules.empty(len(labels.relations)), skipped)
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    head, body, head_constant, body_constant = (column.astype(np.int32) for column in columns[:4])
    counts = columns[4].astype(np.int64), columns[5].astype(np.int64)
    exact = np.zeros(len(rows))
    rules = Rules(len(labels.relations), head, body, head_constant, body_constant, *counts, exact)
    return RuleFile(rules, skipped)


def read_run_rules(folder: Path, labels: Labels) -> Rules | None:
    """The rules in a run folder, if any: arrays, or text in an old run."""
    if (folder / RULES).exists():
        return Rules.load(folder / RULES)
    return read_rules(folder / RULES_TEXT, labels).rules if (folder / RULES_TEXT).exists() else None


def ensure_readable(path: Path) -> None:
    """Raises RuleError if there is no such file: a check that costs nothing, before the graph is loaded."""
    if not path.is_file():
        raise RuleError(f"{path}: no such file. Run `squire mine GRAPH -o {path}` first.")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    ensure_readable(path)
    try:
        with open_bytes(path) as stream:
            text = stream.read().decode("utf-8-sig")
    except (OSError, EOFError, LZMAError, UnicodeDecodeError) as error:
        raise RuleError(f"{path}: cannot be read as UTF-8 text ({error}).") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.rstrip("\r")


def _count(field: str) -> int:
    if not field.strip().isdecimal():
        raise RuleError(f"expected a count, found {field!r}.")
    if int(field) >= 2**63:
        raise RuleError(f"the count {field} is too large.")
    return int(field)


def _check_number(field: str) -> None:
    """Checks the confidence, which is otherwise not used: it follows from the counts."""
    try:
        float(field)
    except ValueError:
        raise RuleError(f"expected a confidence, found {field!r}.") from None


def _parse(text: str, labels: Labels) -> tuple[int, list[int], int, int]:
    """Head relation, padded body, head constant, body constant."""
    head, body_text = _parse_head(text, labels)
    body = list(_parse_body(body_text, labels))
    if not body:
        raise _Unsupported
    constants = [not VARIABLE.fullmatch(end) for end in (head.first, head.second)]
    if not any(constants):
        return _parse_closed(head, body, len(labels.relations))
    if all(constants) or len(body) != 1:
        raise _Unsupported
    return _parse_constant(head, body[0], labels)


def _parse_head(text: str, labels: Labels) -> tuple[_Atom, str]:
    """The head and the text of the body. Labels may contain `<=`: the first that leaves a valid head counts."""
    arrows = list(re.finditer("<=", text))
    for arrow in arrows:
        if atom := _parse_atom(text[: arrow.start()].strip(" "), labels):
            return atom, text[arrow.end() :].strip(" ")
    if not arrows:
        raise RuleError(f"expected 'head <= body', found {text!r}.")
    raise _atom_error(text[: arrows[0].start()].strip(" "), labels)


def _parse_closed(head: _Atom, body: list[_Atom], num_relations: int) -> tuple[int, list[int], int, int]:
    """Follows the chain from the head's first variable to its second, whatever the order of the atoms."""
    if len(body) > MAX_LENGTH:
        raise _Unsupported
    chain: list[int] = []
    at, left, passed = head.first, body, {head.first}
    while left:
        step = next((atom for atom in left if at in (atom.first, atom.second)), None)
        if step is None:
            raise _Unsupported
        forward = step.first == at
        chain.append(step.relation if forward else step.relation + num_relations)
        at = step.second if forward else step.first
        if at in passed or not VARIABLE.fullmatch(at):  # a loop, or a constant inside the chain
            raise _Unsupported
        passed.add(at)
        left = [atom for atom in left if atom is not step]
    if at != head.second:
        raise _Unsupported
    return head.relation, chain + [NONE] * (MAX_LENGTH - len(chain)), NONE, NONE


def _parse_constant(head: _Atom, body: _Atom, labels: Labels) -> tuple[int, list[int], int, int]:
    """r(X,c) ← b(X,d), in any combination of directions."""
    n = len(labels.relations)
    forward = bool(VARIABLE.fullmatch(head.first))
    variable, constant = (head.first, head.second) if forward else (head.second, head.first)
    if variable not in (body.first, body.second):
        raise _Unsupported
    ahead = body.first == variable
    end = body.second if ahead else body.first
    if end == variable:  # b(X,X) is not b(X,A)
        raise _Unsupported
    if REFLEXIVE in (constant, end) and REFLEXIVE not in labels.entities:
        raise _Unsupported
    return (
        head.relation + (0 if forward else n),
        [body.relation + (0 if ahead else n)] + [NONE] * (MAX_LENGTH - 1),
        labels.entity_id(constant),
        NONE if VARIABLE.fullmatch(end) else labels.entity_id(end),
    )


def _parse_body(text: str, labels: Labels) -> Iterator[_Atom]:
    """The atoms of a body. Labels may contain brackets and commas: the first valid atom counts."""
    while text:
        ends = [match.end() for match in ATOM_END.finditer(text)]
        for end in ends:
            if atom := _parse_atom(text[:end].rstrip(" ,"), labels):
                yield atom
                text = text[end:]
                break
        else:
            raise _atom_error(text[: ends[0]].rstrip(" ,") if ends else text, labels)


def _parse_atom(text: str, labels: Labels) -> _Atom | None:
    """`relation(first,second)`: at least one is a variable, the other may be an entity. None if it is no atom.

    Labels may contain brackets and commas: the first reading in which all names are known counts.
    """
    for bracket in BRACKET.finditer(text) if text.endswith(")") else ():
        relation = _find(labels.relations, text[: bracket.start()], labels)
        if relation is not None:
            for first, second in _ends(text[bracket.end() : -1]):
                if _is_known(first, labels) and _is_known(second, labels):
                    return _Atom(relation, first, second)
    return None


def _ends(inside: str) -> list[tuple[str, str]]:
    """What stands in the brackets of an atom as two ends, one of them a variable; two ways for `I, Robot,Y`."""
    ends = []
    if VARIABLE.fullmatch(inside[:1]) and inside[1:2] == ",":
        ends.append((inside[0], inside[2:]))
    if VARIABLE.fullmatch(inside[-1:]) and inside[-2:-1] == ",":
        ends.append((inside[:-2], inside[-1]))
    return ends


def _is_known(end: str, labels: Labels) -> bool:
    """Whether it is a variable or the label of an entity."""
    return bool(VARIABLE.fullmatch(end)) or end == REFLEXIVE or _find(labels.entities, end, labels) is not None


def _find(index: LabelIndex, label: str, labels: Labels) -> int | None:
    """The id of a label or of its shortened form."""
    found = index.find(label)
    return index.find(labels.expand(label)) if found is None else found


def _atom_error(text: str, labels: Labels) -> RuleError | UnknownName:
    """Why a text is no atom. Apart from the parsing, because it takes long to find the nearest labels."""
    brackets = [bracket.start() for bracket in BRACKET.finditer(text)]
    if not brackets or not text.endswith(")"):
        return RuleError(f"expected 'relation(X,Y)', found {text!r}.")
    known = [i for i in brackets if _find(labels.relations, text[:i], labels) is not None]
    if not known:
        return _unknown(labels.relations, text[: brackets[0]], labels)
    ends = _ends(text[known[0] + 1 : -1])
    if not ends:
        return RuleError(f"expected a variable (a capital letter) in {text!r}.")
    first, second = ends[0]
    return _unknown(labels.entities, second if VARIABLE.fullmatch(first) else first, labels)


def _unknown(index: LabelIndex, label: str, labels: Labels) -> UnknownName:
    return UnknownName(index.kind, label, [labels.shorten(near) for near in index.nearest(label)])


# ------------------------------------------------------------------------------------------------------- sidecar


@dataclass(frozen=True)
class Sidecar:
    """What a rule file cannot say about itself, in `rules.tsv.json` beside `rules.tsv`."""

    graph: str  # its path or name
    options: dict[str, object] = field(default_factory=dict)
    complete: bool = True
    errors: dict[str, float] = field(default_factory=dict)  # text of a rule -> standard error of its confidence

    @staticmethod
    def path_of(rules: Path) -> Path:
        return rules.with_name(rules.name + ".json")

    def save(self, rules: Path) -> None:
        content = {
            "graph": self.graph,
            "options": self.options,
            "complete": self.complete,
            "estimated": self.errors,
        }
        with replacing(self.path_of(rules)) as temporary:
            temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, rules: Path) -> Sidecar | None:
        """The sidecar of a rule file, or None if there is none of ours."""
        try:
            content = json.loads(cls.path_of(rules).read_text(encoding="utf-8"))
            errors = {str(rule): float(error) for rule, error in content["estimated"].items()}
            return cls(str(content["graph"]), dict(content["options"]), bool(content["complete"]), errors)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
