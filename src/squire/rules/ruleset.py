"""A graph's rules as a person works with them: labels instead of ids, files, answers, examples."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np

from squire.core.frames import to_frame
from squire.core.relations import is_inverse
from squire.errors import SettingError, UnknownName
from squire.graph.graph import Graph
from squire.graph.loading import load_graph
from squire.rules.anyburl import (
    Sidecar,
    ensure_readable,
    is_writable,
    read_rules,
    readable,
    rule_text,
    write_rules,
)
from squire.rules.application import Grounding, RuleEngine, noisy_or
from squire.rules.mining import Mined, MiningOptions
from squire.rules.rules import NONE, Rules

if TYPE_CHECKING:
    import pandas

log = logging.getLogger(__name__)
HTML_ROWS = 10


@dataclass(frozen=True)
class Rule:
    """One rule, as text and numbers. `predictions` and `support` count pairs; see `Rules`."""

    index: int
    """Position in its rule set."""
    text: str
    """For example `grandparent(X, Y) ⇐ parent(X, A) ∧ parent(A, Y)`."""
    confidence: float
    """The share of its predictions that are facts of the graph."""
    smoothed_confidence: float
    """The confidence with ten failures added: what rules are ranked by."""
    support: int
    """Predictions that are facts of the graph."""
    predictions: int
    """Predictions in all; an estimate if `error` is above 0."""
    length: int
    """Atoms in the body."""
    error: float
    """The standard error of the confidence, 0 if the counts are exact."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class RuleAnswer:
    """An answer that rules give, with the best of them."""

    label: str
    score: float
    """The noisy-or of the smoothed confidences of its best rules."""
    is_fact: bool
    """Is it already in the train split?"""
    rule: str
    rule_smoothed_confidence: float
    path: str
    """An instance of the rule: `Austria ─borders→ Germany ─official language→ German`."""


@dataclass(frozen=True, eq=False)
class RuleSet:
    """The rules of a graph, with the options they were mined with.

    >>> import squire
    >>> graph = squire.load_graph("world")
    >>> rules = squire.mine(graph, length=2, constants=False)
    >>> print(rules.for_relation("currency")[0])
    currency(X, Y) ⇐ sovereign state(X, A) ∧ currency(A, Y)
    >>> rules.answer("Saint Barthélemy", "currency", k=1)[0].path
    'Saint Barthélemy ─sovereign state→ France ─currency→ Euro'
    """

    graph: Graph = field(repr=False)
    rules: Rules
    options: dict[str, object] = field(default_factory=dict)
    """Mining options, empty for a rule file from another program."""
    complete: bool = True
    """False if mining was interrupted, or if its time was up."""
    source: str = ""
    """The path or name of the graph, from which `load` finds it again; by default its name."""
    interrupted: bool = False
    """True if mining was stopped by Ctrl-C."""

    @classmethod
    def from_mined(cls, graph: Graph, mined: Mined, options: MiningOptions, source: str = "") -> RuleSet:
        """The result of `mine_rules`, with its graph."""
        return cls(graph, mined.rules, asdict(options), mined.complete, source, mined.interrupted)

    # ------------------------------------------------------------------------------------------------- a sequence

    def __len__(self) -> int:
        return len(self.rules)

    @overload
    def __getitem__(self, index: int) -> Rule: ...
    @overload
    def __getitem__(self, index: slice) -> RuleSet: ...
    def __getitem__(self, index: int | slice) -> Rule | RuleSet:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        i = range(len(self))[index]  # negative indices, IndexError
        rules = self.rules
        return Rule(
            i,
            readable(rules, i, self.graph.labels),
            float(rules.support[i] / max(rules.body_count[i], 1)),
            float(self._smoothed_confidence[i]),
            int(rules.support[i]),
            int(rules.body_count[i]),
            int(np.count_nonzero(rules.body[i] != NONE)),
            float(rules.error[i]),
        )

    def __iter__(self) -> Iterator[Rule]:
        return (self[i] for i in range(len(self)))

    def take(self, index: np.ndarray) -> RuleSet:
        """Some of the rules, in the order of `index`."""
        return RuleSet(self.graph, self.rules.take(index), self.options, self.complete, self.source)

    def sorted(self) -> RuleSet:
        """The same rules, those of the highest smoothed confidence first."""
        return self.take(np.argsort(-self._smoothed_confidence, kind="stable"))

    def for_relation(self, label: str) -> RuleSet:
        """The rules that predict a relation, those of the highest smoothed confidence first."""
        relation = self.graph.labels.relation_id(label)
        return self.take(np.flatnonzero(self.rules.head % self.graph.num_relations == relation)).sorted()

    # --------------------------------------------------------------------------------------------------- display

    def __repr__(self) -> str:
        closed = int(np.count_nonzero(self.rules.is_closed))
        estimated = int(np.count_nonzero(self.rules.error))
        parts = [f"{closed:,} closed", f"{len(self) - closed:,} with constants"]
        parts += [f"{estimated:,} with estimated counts"] if estimated else []
        parts += [] if self.complete else ["incomplete: mining was interrupted"]
        return f"RuleSet of {self.graph.name}: {len(self):,} rules ({', '.join(parts)})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{rule.confidence:.2f}</td><td>{rule.support:,} of {rule.predictions:,}</td>"
            f"<td style='text-align:left'>{escape(rule.text)}</td></tr>"
            for rule in self.sorted()[:HTML_ROWS]
        )
        head = "<tr><th>confidence</th><th>support</th><th style='text-align:left'>rule</th></tr>"
        return f"<p>{escape(repr(self))}</p><table><thead>{head}</thead><tbody>{rows}</tbody></table>"

    def to_frame(self) -> pandas.DataFrame:
        """One row per rule, with the fields of `Rule` as columns."""
        return to_frame([vars(rule) for rule in self])

    # ---------------------------------------------------------------------------------------------------- files

    def save(self, path: str | Path) -> None:
        """Writes AnyBURL's text format, and `<path>.json` with the graph, the options and the estimates' errors.

        Rules whose labels the format cannot hold are left out, with a warning.
        """
        path, labels = Path(path), self.graph.labels
        fits = is_writable(self.rules, labels)
        rules = self.rules.take(fits)
        if not fits.all():
            log.warning(
                f"{path}: {np.count_nonzero(~fits):,} rules left out. The file format cannot hold labels with "
                "tabs or line ends, relations that begin with a space, entities of a single capital letter, or "
                "labels whose brackets, commas or arrows make a rule ambiguous."
            )
        write_rules(rules, labels, path)
        errors = {rule_text(rules, i, labels): float(rules.error[i]) for i in np.flatnonzero(rules.error).tolist()}
        Sidecar(self.source or self.graph.name, self.options, self.complete, errors).save(path)

    @classmethod
    def load(cls, path: str | Path, graph: Graph | str | Path | None = None) -> RuleSet:
        """Reads a rule file of squire, AnyBURL or PyClause.

        Without `graph`, the one that the file was mined from is loaded. Rules of forms that squire does not use
        are left out, with a warning.
        """
        path = Path(path)
        ensure_readable(path)
        sidecar = Sidecar.load(path)
        if not isinstance(graph, Graph):
            graph = _graph_of(path, sidecar, graph)
        read = read_rules(path, graph.labels)
        if read.skipped:
            log.warning(f"{path}: {read.skipped:,} rules of other forms left out.")
        if sidecar is None:
            return cls(graph, read.rules)
        if sidecar.errors:
            for i in range(len(read.rules)):
                read.rules.error[i] = sidecar.errors.get(rule_text(read.rules, i, graph.labels), 0.0)
        return cls(graph, read.rules, sidecar.options, sidecar.complete, sidecar.graph)

    # --------------------------------------------------------------------------------------------------- answers

    @cached_property
    def engine(self) -> RuleEngine:
        """The rules, ready to answer queries by id."""
        return RuleEngine(self.rules, self.graph.train)

    @cached_property
    def _smoothed_confidence(self) -> np.ndarray:
        return self.rules.smoothed_confidence

    def answer(
        self, head: str | None, relation: str, tail: str | None = None, k: int = 5, include_known: bool = False
    ) -> list[RuleAnswer]:
        """The best `k` answers to (head, relation, ?), or to (?, relation, tail) if `head` is None.

        Facts of the train split are left out unless `include_known`. Equal scores are ordered by how often an
        entity is the tail of the relation.
        """
        if (head is None) == (tail is None):
            raise SettingError("answer: give either head or tail, and None for the one to be found.")
        if k < 1:
            raise SettingError(f"k={k}: expected 1 or more.")
        labels, train = self.graph.labels, self.graph.train
        edge_type = labels.relation_id(relation) + (self.graph.num_relations if head is None else 0)
        given = labels.entity_id(head if head is not None else tail or "")
        found = self.engine.answer(np.array([(given, edge_type)], np.int32))
        is_fact = np.isin(found.answers, train.tails_of(given, edge_type))
        frequency = np.bincount(train.tails[train.relations == edge_type], minlength=self.graph.num_entities)
        scores = noisy_or(found)
        ranked = np.lexsort((-frequency[found.answers], -scores))
        answers = []
        for i in ranked[include_known | ~is_fact[ranked]][:k].tolist():
            answer, rule = int(found.answers[i]), int(found.rules[i, 0])
            grounding = self.engine.grounding(given, edge_type, answer, rule)
            answers.append(
                RuleAnswer(
                    labels.entity(answer),
                    float(scores[i]),
                    bool(is_fact[i]),
                    readable(self.rules, rule, labels),
                    float(found.smoothed_confidence[i, 0]),
                    self.path_text(grounding) if grounding else "",
                )
            )
        return answers

    def examples(self, rule: Rule | int, count: int = 1) -> list[str]:
        """Train facts that the rule predicts, each with a path: `a grandparent c: a ─parent→ b ─parent→ c`."""
        index = rule.index if isinstance(rule, Rule) else rule
        labels, train = self.graph.labels, self.graph.train
        r, c = int(self.rules.head[index]), int(self.rules.head_constant[index])
        found: list[str] = []
        for edge in np.flatnonzero(train.relations == r).tolist():
            if len(found) == count:
                break
            head, tail = int(train.heads[edge]), int(train.tails[edge])
            if c in (NONE, tail) and (grounding := self.engine.grounding(head, r, tail, index)):
                first, last = (tail, head) if is_inverse(r, self.graph.num_relations) else (head, tail)
                fact = labels.entity(first), labels.relation(r), labels.entity(last)
                found.append(f"{' '.join(fact)}: {self.path_text(grounding)}")
        return found

    def path_text(self, grounding: Grounding) -> str:
        """`Austria ─borders→ Germany ─official language→ German`."""
        labels = self.graph.labels
        text = labels.entity(grounding.entities[0])
        for relation, entity in zip(grounding.relations, grounding.entities[1:], strict=True):
            label = labels.relation(relation)
            text += f" ←{label}─ " if is_inverse(relation, self.graph.num_relations) else f" ─{label}→ "
            text += labels.entity(entity)
        return text


def _graph_of(path: Path, sidecar: Sidecar | None, source: str | Path | None) -> Graph:
    """The graph that the caller names, or the one that the file was mined from."""
    if source is not None:
        return load_graph(source)
    if sidecar is None:
        raise SettingError(f"{path} does not name its graph. Give it as `graph`.")
    try:
        return load_graph(sidecar.graph)
    except UnknownName:
        raise SettingError(
            f"{path} was mined from {sidecar.graph}, which is not here. Give it as `graph`."
        ) from None
