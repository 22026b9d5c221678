"""Rules as text: AnyBURL's file format, one rule a line, so that rules travel between us, AnyBURL and PyClause.

`body count <TAB> support <TAB> confidence <TAB> head <= atom, atom, …`, where an atom is `relation(X,A)`,
variables are single capitals and anything else is a constant. An inverse is written by swapping the arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from squire.errors import RuleError, UnknownName
from squire.graph.names import Names
from squire.graph.streams import create_bytes, open_bytes
from squire.rules.rule import MAX_LENGTH, NONE, Rules

VARIABLE = re.compile(r"[A-Z]")
ATOM_END = re.compile(r"\),? *")


@dataclass(frozen=True)
class RuleFile:
    """The rules of a file, and those of forms we do not use."""

    rules: Rules
    skipped: int  # longer constant rules, rules without a body: valid in AnyBURL, but not applied here


@dataclass(frozen=True)
class _Atom:
    relation: int
    first: str
    second: str


class _Unsupported(Exception):
    """A well-formed rule of a form that we do not use."""


# ------------------------------------------------------------------------------------------------------- writing


def write_rules(rules: Rules, names: Names, path: Path) -> None:
    """Write the rules in the order they have; the file appears whole or not at all."""
    with create_bytes(path) as stream:
        for i in range(len(rules)):
            numbers = f"{rules.body_count[i]}\t{rules.support[i]}\t{rules.confidence[i]:.6g}"
            stream.write(f"{numbers}\t{rule_text(rules, i, names)}\n".encode())


def rule_text(rules: Rules, index: int, names: Names) -> str:
    """One rule as AnyBURL writes it."""
    r, c, d = int(rules.head[index]), int(rules.head_constant[index]), int(rules.body_constant[index])
    body = [b for b in rules.body[index].tolist() if b != NONE]
    if c == NONE:
        places = ["X", *"ABC"[: len(body) - 1], "Y"]
        atoms = [_atom(names, b, places[i], places[i + 1]) for i, b in enumerate(body)]
        return f"{_atom(names, r, 'X', 'Y')} <= {', '.join(atoms)}"
    variable = "X" if r < rules.num_relations else "Y"  # r(X,c) and its mirror image r(c,Y)
    end = "A" if d == NONE else names.entities[d]
    head = _atom(names, r, variable, names.entities[c])
    return f"{head} <= {_atom(names, body[0], variable, end)}"


def _atom(names: Names, relation: int, first: str, second: str) -> str:
    n = len(names.relations)
    if relation >= n:
        relation, first, second = relation - n, second, first
    return f"{names.relations[relation]}({first},{second})"


# ------------------------------------------------------------------------------------------------------- reading


def read_rules(path: Path, names: Names) -> RuleFile:
    """The rules of a file, in its order. A malformed line or an unknown name: RuleError with `file:line`."""
    rows: list[tuple[int, list[int], int, int, int, int]] = []
    skipped = 0
    for number, line in _lines(path):
        try:
            fields = line.split("\t")
            if len(fields) != 4:
                raise RuleError(f"expected 4 fields parted by tabs, found {len(fields)}")
            body_count, support = _count(fields[0]), _count(fields[1])
            if not 0 <= support <= body_count:
                raise RuleError(f"support {support} must lie between 0 and the body count {body_count}")
            rows.append((*_parse(fields[3], names), body_count, support))
        except _Unsupported:
            skipped += 1
        except (RuleError, UnknownName) as error:
            raise RuleError(f"{path}:{number}: {error} To do: mend or delete the line.") from None
    if not rows:
        return RuleFile(Rules.empty(len(names.relations)), skipped)
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    head, body, head_constant, body_constant = (column.astype(np.int32) for column in columns[:4])
    counts = columns[4].astype(np.int64), columns[5].astype(np.int64)
    exact = np.zeros(len(rows))
    rules = Rules(len(names.relations), head, body, head_constant, body_constant, *counts, exact)
    return RuleFile(rules, skipped)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with open_bytes(path) as stream:
            text = stream.read().decode()
    except FileNotFoundError:
        raise RuleError(f"{path}: no such file. To do: make it with 'squire mine GRAPH -o {path}'.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"{path}: cannot be read as UTF-8 text ({error}).") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.rstrip("\r")


def _count(field: str) -> int:
    if not field.strip().isdecimal():
        raise RuleError(f"expected a count, found {field!r}.")
    return int(field)


def _parse(text: str, names: Names) -> tuple[int, list[int], int, int]:
    """Head relation, padded body, head constant, body constant."""
    head_text, arrow, body_text = text.partition("<=")
    if not arrow:
        raise RuleError(f"expected 'head <= body', found {text!r}.")
    head = _parse_atom(head_text.strip(), names)
    body = list(_parse_body(body_text.strip(), names))
    if not body:
        raise _Unsupported
    constants = [not VARIABLE.fullmatch(end) for end in (head.first, head.second)]
    if not any(constants):
        return _parse_closed(head, body, len(names.relations))
    if all(constants) or len(body) != 1:
        raise _Unsupported
    return _parse_constant(head, body[0], names)


def _parse_closed(head: _Atom, body: list[_Atom], num_relations: int) -> tuple[int, list[int], int, int]:
    """Follow the chain from the head's first variable to its second, whatever the order of the atoms."""
    if len(body) > MAX_LENGTH:
        raise _Unsupported
    chain: list[int] = []
    at, left = head.first, body
    while left:
        step = next((atom for atom in left if at in (atom.first, atom.second)), None)
        if step is None:
            raise _Unsupported
        forward = step.first == at
        chain.append(step.relation if forward else step.relation + num_relations)
        at = step.second if forward else step.first
        left = [atom for atom in left if atom is not step]
    if at != head.second:
        raise _Unsupported
    return head.relation, chain + [NONE] * (MAX_LENGTH - len(chain)), NONE, NONE


def _parse_constant(head: _Atom, body: _Atom, names: Names) -> tuple[int, list[int], int, int]:
    """r(X,c) ← b(X,d) with every combination of directions."""
    n = len(names.relations)
    forward = bool(VARIABLE.fullmatch(head.first))
    variable, constant = (head.first, head.second) if forward else (head.second, head.first)
    if variable not in (body.first, body.second):
        raise _Unsupported
    ahead = body.first == variable
    end = body.second if ahead else body.first
    return (
        head.relation + (0 if forward else n),
        [body.relation + (0 if ahead else n)] + [NONE] * (MAX_LENGTH - 1),
        names.entity(constant),
        NONE if VARIABLE.fullmatch(end) else names.entity(end),
    )


def _parse_body(text: str, names: Names) -> Iterator[_Atom]:
    """The atoms of a body. Labels may hold brackets and commas: the first cut that makes sense counts."""
    while text:
        problem: RuleError | UnknownName | None = None
        for end in (match.end() for match in ATOM_END.finditer(text)):
            try:
                atom = _parse_atom(text[:end].rstrip(" ,"), names)
            except (RuleError, UnknownName) as error:
                problem = problem or error
                continue
            yield atom
            text = text[end:]
            break
        else:
            raise problem or RuleError(f"expected 'relation(X,Y)', found {text!r}.")


def _parse_atom(text: str, names: Names) -> _Atom:
    """`relation(first,second)`, one of the two at least a variable, the other perhaps a known entity."""
    opens = [match.start() for match in re.finditer(r"\(", text)]
    if not opens or not text.endswith(")"):
        raise RuleError(f"expected 'relation(X,Y)', found {text!r}.")
    known = [i for i in opens if names.relations.find(text[:i]) is not None]
    cut = known[0] if known else opens[0]
    relation = names.relation(text[:cut])  # raises with the nearest names
    inside = text[cut + 1 : -1]
    if VARIABLE.fullmatch(inside[:1]) and inside[1:2] == ",":
        first, second = inside[0], inside[2:]
    elif VARIABLE.fullmatch(inside[-1:]) and inside[-2:-1] == ",":
        first, second = inside[:-2], inside[-1]
    else:
        raise RuleError(f"expected a variable (a capital letter) in {text!r}.")
    for end in (first, second):
        if not VARIABLE.fullmatch(end):
            names.entity(end)
    return _Atom(relation, first, second)
