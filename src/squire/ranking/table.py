"""The features of a candidate answer, in one table: what each is called, where it comes from, what it says.

A feature belongs to a source of evidence, and a reader is told how much each source contributed. `absent` is the
value of a candidate for which the source says nothing: a number, or the name of the column that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Features = npt.NDArray[np.float32]  # (candidate, feature)

FREQUENCY, RULES, SIMILAR = "frequency", "rules", "similar entities"
CONNECTIONS, TAILS, NAMES, PATHS, CONTEXT = "connections", "tail similarity", "names", "paths", "context"
SOURCES = (FREQUENCY, RULES, SIMILAR, CONNECTIONS, TAILS, NAMES, PATHS, CONTEXT)

LEAST = 1e-6  # walk probabilities below it count as this
NOWHERE = float(np.log(LEAST))
BEST = 10  # rules of an answer that are looked at
KINDS = ("of one hop", "of two hops", "of three hops", "with two constants", "with one constant")


@dataclass(frozen=True)
class Feature:
    """One column."""

    name: str
    source: str
    sentence: str  # what its value says; h is the query's head, r its relation, t the candidate
    absent: float | str | None = 0.0  # None for context, which is never absent
    log: bool = False  # also shown to the ranker as a logarithm: differences of small shares matter


def _rule_features() -> list[Feature]:
    rows = [
        ("noisy or of 5", "the chance that one of the 5 best rules for t is right, were they independent"),
        ("noisy or of 10", "the same of the 10 best rules"),
        *((f"rule {i}", f"smoothed confidence of the best rule number {i}") for i in range(1, 6)),
        ("rules", f"rules that give t, at most {BEST}"),
        ("sum of trust", f"smoothed confidence of the {BEST} best rules, added up"),
        *((f"best {kind}", f"smoothed confidence of the best rule {kind}") for kind in KINDS),
        *((f"rules {kind}", f"how many of the {BEST} best rules are {kind}") for kind in KINDS),
    ]
    return [Feature(name, RULES, sentence, log=True) for name, sentence in rows]


FEATURES: tuple[Feature, ...] = (
    Feature("log frequency", FREQUENCY, "log of how often t is a tail of r, plus one"),
    Feature("frequency rank", FREQUENCY, "log of how many are more often a tail of r, plus one", "tails of r"),
    Feature("frequency", FREQUENCY, "share of t among the tails of r", log=True),
    Feature("degree", FREQUENCY, "log of the number of edges of t, plus one"),
    *_rule_features(),
    Feature("vote", SIMILAR, "who shares neighbours with h votes for its tails of r, by similarity", log=True),
    Feature("vote share", SIMILAR, "the share of t in this vote", log=True),
    Feature("vote of 20", SIMILAR, "the share of t in the vote of the 20 most similar", log=True),
    Feature("signature vote", SIMILAR, "the share of t in a vote of those with relations like its own", log=True),
    Feature("edges", CONNECTIONS, "edges between h and t"),
    Feature("two steps", CONNECTIONS, "log chance that a random walk of two steps from h ends at t", NOWHERE),
    Feature("three steps", CONNECTIONS, "log chance that a random walk of three steps from h ends at t", NOWHERE),
    Feature("itself", CONNECTIONS, "1 if t is h"),
    Feature("loops", CONNECTIONS, "if t is h, the share of the facts of r that link an entity to itself"),
    Feature("like tails", TAILS, "mean similarity of t, by neighbours, to the tails of r that h has"),
    Feature("like tails by relations", TAILS, "the same by relations"),
    Feature("typical tail", TAILS, "similarity of t, by relations, to the tails of r as a whole"),
    Feature("name vote", NAMES, "whose name shares words with that of h votes for its tails of r", log=True),
    Feature("name vote share", NAMES, "the share of t in this vote", log=True),
    Feature("like voted names", NAMES, "mean likeness of the name of t to those of the tails voted for", log=True),
    Feature("like name", NAMES, "likeness of the names of h and t", log=True),
    Feature("like tails by name", NAMES, "mean likeness of the name of t to those of the tails of r that h has"),
    Feature("typical name", NAMES, "likeness of the name of t to those of the tails of r as a whole"),
    Feature("edges of h", CONTEXT, "log of the number of edges of h, plus one", None),
    Feature("tails of h", CONTEXT, "tails of r that h has", None),
    Feature("facts of r", CONTEXT, "log of the number of facts of r, plus one", None),
    Feature("tails of r", CONTEXT, "log of the number of entities that are a tail of r, plus one", None),
    Feature("tails a head", CONTEXT, "tails of r that a head of r has, on average", None),
)  # fmt: skip

COLUMN = {feature.name: i for i, feature in enumerate(FEATURES)}


def absent(features: Features, table: Sequence[Feature]) -> Features:
    """What the same candidates would look like if no source had anything to say of them."""
    column = {feature.name: i for i, feature in enumerate(table)}
    out = features.copy()
    for i, feature in enumerate(table):
        if isinstance(feature.absent, str):
            out[:, i] = features[:, column[feature.absent]]
        elif feature.absent is not None:
            out[:, i] = feature.absent
    return out
