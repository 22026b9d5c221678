"""Answers and paths as plain sentences: what is claimed, and one clause for each step of the path.

    The official language of Niger is probably French: Niger gained independence from France, whose official
    language is French.

Relations are labels of any kind. Some are verbs ("borders", "flows through"), some lack their "is" ("located in",
"member of"), all others are taken for nouns ("currency").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

PREPOSITIONS = {
    "at", "by", "for", "from", "in", "into", "near", "of", "on", "over", "since", "through", "to", "under", "with",
    "within",
}  # fmt: skip
PAST = {"formerly", "previously", "once"}
VERBS = {"is", "are", "was", "were", "has", "had", "does", "did", "can", "borders"}
WHOLE = {"member of": "is a member of", "citizen of": "is a citizen of", "shore on": "has a shore on"}
# From this confidence on, the word that says how sure we are.
UNLIKELY, LIKELY = 0.1, 0.5
ADVERBS = ((0.9, "very probably"), (LIKELY, "probably"), (UNLIKELY, "possibly"))


class Fact(Protocol):
    """A fact as a step of a path; not in the graph if inferred."""

    @property
    def head(self) -> str: ...
    @property
    def relation(self) -> str: ...
    @property
    def tail(self) -> str: ...
    @property
    def is_fact(self) -> bool: ...
    @property
    def probability(self) -> float: ...


def stated(head: str, relation: str, tail: str) -> str:
    """`The currency of Spain is Euro`: a fact of the graph."""
    return _capital(_statement(head, relation, tail))


def claim(head: str, relation: str, tail: str, confidence: float | None) -> str:
    """`The currency of Spain is probably Euro`; `perhaps` if nobody knows how likely it is."""
    if confidence is None:
        return _capital(_statement(head, relation, tail, "perhaps"))
    adverb = next((word for least, word in ADVERBS if confidence >= least), None)
    if adverb is None:
        return f"It is unlikely that {_statement(head, relation, tail)}"
    return _capital(_statement(head, relation, tail, adverb))


def clauses(path: Sequence[Fact]) -> tuple[str, ...]:
    """One clause for each fact of a path; together they are a sentence without its full stop.

    What a clause repeats is left out: "Niger gained independence from France", ", whose capital is Paris".
    """
    found: list[str] = []
    last = ""  # the entity named last
    before: Fact | None = None
    for fact in path:
        alike = before is not None and before.relation == fact.relation and before.is_fact and fact.is_fact
        if before is None:
            text = _statement(fact.head, fact.relation, fact.tail, _doubt(fact))
        elif alike and before.tail == fact.tail:
            text = f", like {fact.head}"
        elif alike and before.head == fact.head and last != fact.head:
            text = f", as well as {fact.tail}"
        elif last == fact.head:
            text = f", {_relative(fact.relation, fact.tail, _doubt(fact))}"
        else:
            text = f", and {_statement(fact.head, fact.relation, fact.tail, _doubt(fact))}"
        last = fact.head if text.startswith(", like ") else fact.tail
        before = fact
        found.append(text)
    return tuple(found)


def _doubt(fact: Fact) -> str:
    if fact.is_fact:
        return ""
    return "probably" if fact.probability >= LIKELY else "perhaps"


def _statement(head: str, relation: str, tail: str, adverb: str = "") -> str:
    verb = _verb(relation)
    if verb is None:
        return _joined("the", _noun(relation), "of", head, "is", adverb, tail)
    return _joined(head, *_modified(verb, adverb), _article(verb, tail))


def _relative(relation: str, tail: str, adverb: str) -> str:
    """`which borders France`, `whose currency is Euro`"""
    verb = _verb(relation)
    if verb is None:
        return _joined("whose", _noun(relation), "is", adverb, tail)
    return _joined("which", *_modified(verb, adverb), _article(verb, tail))


def _article(verb: str, tail: str) -> str:
    """`is a` has its article before the tail: `an island`"""
    if not verb.endswith(" a"):
        return tail
    return f"{'an' if tail[:1].lower() in 'aeiou' else 'a'} {tail}"


def _modified(verb: str, adverb: str) -> tuple[str, ...]:
    """`is probably in`, `probably borders`"""
    verb = verb.removesuffix(" a")
    first, _, rest = verb.partition(" ")
    return (first, adverb, rest) if first in ("is", "was", "are", "were") else (adverb, verb)


def _verb(relation: str) -> str | None:
    """The relation as a verb, with the "is" that it may lack; None if it is a noun."""
    name = _noun(relation)
    words = name.lower().split()
    if not words or name in WHOLE:
        return WHOLE.get(name)
    first = words[0]
    if first in VERBS or _is_inflected(first, len(words) > 1):
        return name
    if first.endswith("ed") and len(words) > 2:  # "gained independence from", but "located in"
        return name
    be = "was" if first in PAST else "is"
    return f"{be} {name}" if {first, words[-1]} & PREPOSITIONS else None


def _is_inflected(word: str, has_object: bool) -> bool:
    """`flows through`, `likes`; not `class` or `series of`, as far as one can tell."""
    ends = len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return ends if has_object else ends and not word.endswith(("ors", "ers", "ies", "ages", "ings"))


def _noun(relation: str) -> str:
    """`/people/person/place_of_birth` -> `place of birth`, `http://x.org/isPartOf` -> `is part of`"""
    name = re.split(r"[/#:]", relation.rstrip("/#:"))[-1].replace("_", " ").strip()
    is_camel_case = re.fullmatch(r"[a-z]+(?:[A-Z][a-z]+)+", name)
    return re.sub(r"(?=[A-Z])", " ", name).lower() if is_camel_case else name


def _joined(*words: str) -> str:
    return " ".join(word for word in words if word)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text.startswith("the ") else text
