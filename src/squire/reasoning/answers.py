"""Answers as a person reads them: labels, edges, grades. In a notebook they draw themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, overload

from squire.reasoning.drawing import Step, draw_path, rounded

FURTHER = 4  # paths of an answer that are shown beside its best
NEARLY_ALL = 0.9


@dataclass(frozen=True)
class Edge:
    """One step of a path as the fact that it walks; `backwards` if from the fact's tail to its head."""

    head: str
    relation: str
    tail: str
    backwards: bool
    is_fact: bool  # in the graph; else the model infers it
    probability: float  # that the model gives to where the step leads, given all before it

    @property
    def goal(self) -> str:
        """Where the step leads."""
        return self.head if self.backwards else self.tail

    @property
    def arrow(self) -> str:
        """`──borders──▶`, or `╌╌borders 0.82╌╌▶` if it is inferred; `◀──borders──` if it is walked backwards."""
        line, label = ("──", self.relation) if self.is_fact else ("╌╌", f"{self.relation} {self.probability:.2f}")
        return f"◀{line}{label}{line}" if self.backwards else f"{line}{label}{line}▶"


@dataclass(frozen=True)
class FollowedRule:
    """The mined rule that a path is an instance of."""

    text: str
    confidence: float
    support: int


@dataclass(frozen=True)
class Evidence:
    """A path from the question to the answer."""

    edges: tuple[Edge, ...]
    grade: str  # grounded, completed or asserted
    probability: float  # of the whole path, its end included (Eq. 2)
    score: float  # the geometric mean of its tokens' probabilities: exp of Eq. 5
    rule: FollowedRule | None

    @property
    def start(self) -> str:
        return self.edges[0].tail if self.edges[0].backwards else self.edges[0].head

    @property
    def text(self) -> str:
        """`Austria ──borders──▶ Germany ╌╌official language 0.82╌╌▶ German`"""
        return " ".join([self.start, *(f"{edge.arrow} {edge.goal}" for edge in self.edges)])

    def svg(self) -> str:
        """A small picture: known edges solid, inferred ones dashed with their probability."""
        steps = [
            Step(edge.relation, edge.goal, edge.backwards, None if edge.is_fact else edge.probability)
            for edge in self.edges
        ]
        return draw_path(self.start, steps)


@dataclass(frozen=True)
class Source:
    """A kind of evidence, and how much it moved an answer."""

    name: str  # paths, rules, frequency, similar entities …
    contribution: float  # to the logarithm of the odds against the other candidates; below 0 it speaks against


def basis_of(sources: Sequence[Source]) -> str:
    """What an answer rests on, in words: the fewest sources that make up nine tenths of what speaks for it."""
    speaking = sorted((source for source in sources if source.contribution > 0), key=lambda s: -s.contribution)
    left = NEARLY_ALL * sum(source.contribution for source in speaking)
    names = []
    for source in speaking:
        if left <= 0:
            break
        names.append(source.name)
        left -= source.contribution
    if len(names) < 2:
        return f"{names[0]} alone" if names else "nothing in particular"
    return f"{', '.join(names[:-1])} and {names[-1]}"


@dataclass(frozen=True)
class Answer:
    """An entity, and why."""

    rank: int
    entity: str
    # By which answers are ranked: the sum of all paths' probabilities, or (max) the best one's score; or by all
    # evidence (fused), its share among all candidates.
    score: float
    is_fact: bool  # is it a fact of the graph already?
    evidence: Evidence  # the best path
    further: tuple[Evidence, ...]  # others, best first
    paths: int  # how many lead here in all
    asserted: float  # the share of their probability that the queried edge itself has, with no further reason
    confidence: float | None = None  # calibrated probability that it is true; None if ranked by paths alone
    sources: tuple[Source, ...] = ()  # what the confidence rests on, strongest first; empty if ranked by paths
    basis: str = ""  # the same in words: "rules and similar entities", "frequency alone"

    def html(self) -> str:
        """An item of a list, its evidence drawn."""
        sure = f"{self.confidence:.0%} sure" if self.confidence is not None else rounded(self.score, 3)
        about = escape(f"{sure}, {self.evidence.grade}")
        followed = self.evidence.rule
        rule = f"<small>rule: {escape(followed.text)} {followed.confidence:.2f}</small>" if followed else ""
        picture = f'<div style="overflow-x: auto">{self.evidence.svg()}</div>'  # a long path scrolls by itself
        return f'<li style="margin-bottom: 1em"><b>{escape(self.entity)}</b> {about}{picture}{rule}</li>'


@dataclass(frozen=True)
class Origin:
    """Who answered, and how: what is needed to have the same answers again."""

    run: str  # its folder
    step: int  # of training, at which the model was saved
    graph: str
    beam: int
    hops: int
    aggregate: str
    prune: float
    known_share: float  # with which probability a step went where known edges lead
    edge_ends: bool  # is the queried edge itself always a whole path?
    constraint: str  # edges that paths are bound to: "graph" if grounded, empty for none
    version: str
    ranking: str = "paths"  # or "fused": by all evidence


@dataclass(frozen=True)
class Answers(Sequence[Answer]):
    """What is found for one question, best first. In a notebook it draws itself."""

    head: str | None  # None: asked for
    relation: str
    tail: str | None
    origin: Origin
    answers: tuple[Answer, ...]

    @property
    def question(self) -> str:
        return f"({self.head or '?'}, {self.relation}, {self.tail or '?'})"

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the fields of these classes by their names (docs/answers.md)."""
        return asdict(self)

    def _repr_html_(self) -> str:
        rows = "".join(answer.html() for answer in self.answers) or "<li>no answer</li>"
        return f"<p><b>{escape(self.question)}</b></p><ol>{rows}</ol>"

    def __len__(self) -> int:
        return len(self.answers)

    @overload
    def __getitem__(self, index: int) -> Answer: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Answer]: ...
    def __getitem__(self, index: int | slice) -> Answer | Sequence[Answer]:
        return self.answers[index]
