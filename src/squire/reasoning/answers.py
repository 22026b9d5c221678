"""Answers with their evidence, as labels. In a notebook they draw themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, overload

from squire.core.frames import to_frame
from squire.reasoning.drawing import Step, draw_path, percent, rounded
from squire.reasoning.sentences import UNLIKELY, clauses, stated

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 10  # answers of a repr
FACTS = 20  # facts that are listed before the answers
FACT = "fact"  # the grade of a fact's evidence, which is the fact itself
FURTHER = 4  # paths of an answer that are kept besides the best
NEARLY_ALL = 0.9


@dataclass(frozen=True)
class Edge:
    """One step of a path, as the fact it follows; `backwards` if from the fact's tail to its head."""

    head: str
    relation: str
    tail: str
    backwards: bool
    is_fact: bool  # in the graph; otherwise inferred by the model
    probability: float  # of this step by the model, given all before it
    is_added: bool = False  # a fact that was added after training, or supposed in the question

    @property
    def goal(self) -> str:
        """The entity the step leads to."""
        return self.head if self.backwards else self.tail

    @property
    def fact(self) -> str:
        """`Austria · borders · Italy`"""
        return f"{self.head} · {self.relation} · {self.tail}"

    @property
    def arrow(self) -> str:
        """`──borders──▶`, or `╌╌borders 0.82╌╌▶` if inferred; `◀──borders──` if backwards."""
        line, label = ("──", self.relation) if self.is_fact else ("╌╌", f"{self.relation} {self.probability:.2f}")
        return f"◀{line}{label}{line}" if self.backwards else f"{line}{label}{line}▶"


@dataclass(frozen=True)
class FollowedRule:
    """The mined rule that a path follows."""

    text: str
    confidence: float
    support: int
    sampled: bool = field(default=False, kw_only=True)  # both are estimates, from a sample of a large graph

    @property
    def share(self) -> str:
        """The confidence as text: `0.83`, or `about 0.83`."""
        return f"{'about ' * self.sampled}{self.confidence:.2f}"


@dataclass(frozen=True)
class Evidence:
    """A path from the question to the answer."""

    edges: tuple[Edge, ...]
    grade: str  # grounded, completed or asserted; fact if it is the fact itself
    probability: float | None  # of the whole path, including its end (Eq. 2); None without a model
    score: float | None  # the geometric mean of its tokens' probabilities: exp of Eq. 5
    rule: FollowedRule | None
    clauses: tuple[str, ...] = ()  # in plain words, one for each edge; joined, a sentence without its full stop

    def __post_init__(self) -> None:
        object.__setattr__(self, "clauses", clauses(self.edges))

    @property
    def start(self) -> str:
        return self.edges[0].tail if self.edges[0].backwards else self.edges[0].head

    @property
    def text(self) -> str:
        """`Austria ──borders──▶ Germany ╌╌official language 0.82╌╌▶ German`"""
        return " ".join([self.start, *(f"{edge.arrow} {edge.goal}" for edge in self.edges)])

    @property
    def added(self) -> tuple[Edge, ...]:
        """The steps along facts that were added after training, or supposed."""
        return tuple(edge for edge in self.edges if edge.is_added)

    def svg(self) -> str:
        """A small picture: known edges are solid, inferred ones dashed with their probability."""
        steps = [
            Step(edge.relation, edge.goal, edge.backwards, None if edge.is_fact else edge.probability)
            for edge in self.edges
        ]
        return draw_path(self.start, steps)


@dataclass(frozen=True)
class Source:
    """A source of evidence, and how much it contributed to an answer."""

    name: str  # paths, rules, frequency, similar entities …
    contribution: float  # to the log odds against the other candidates; negative if it speaks against


def basis_of(sources: Sequence[Source]) -> str:
    """The main sources in words: the fewest that make up nine tenths of the positive contributions."""
    positive = sorted((source for source in sources if source.contribution > 0), key=lambda s: -s.contribution)
    left = NEARLY_ALL * sum(source.contribution for source in positive)
    names = []
    for source in positive:
        if left <= 0:
            break
        names.append(source.name)
        left -= source.contribution
    if len(names) < 2:
        return f"{names[0]} alone" if names else "nothing in particular"
    return f"{', '.join(names[:-1])} and {names[-1]}"


@dataclass(frozen=True)
class Answer:
    """An entity that may answer the question, with its evidence; or one that does, by a fact of the graph.

    A fact is not ranked: its rank is 0, its score 1, and it has no confidence.
    """

    rank: int
    entity: str
    # The rank score: the total probability of its paths, or (max) the score of the best one; if fused, the
    # probability of this answer among all candidates.
    score: float
    is_fact: bool  # in the graph
    evidence: Evidence  # the best path
    further: tuple[Evidence, ...]  # other paths, best first
    paths: int  # number of all paths that lead here
    asserted: float  # share of their probability that is the queried edge itself, with no other evidence
    # Calibrated probability that the answer is true; None if ranked by paths, and for facts.
    confidence: float | None = None
    sources: tuple[Source, ...] = ()  # contributions, strongest first; empty if ranked by paths
    basis: str = ""  # the main sources: "rules and similar entities", "frequency alone"
    claim: str = ""  # "The currency of Spain is probably Euro"
    sampled: bool = False  # near hubs, votes, walks and rules looked at a sample of the edges

    @classmethod
    def from_fact(cls, edge: Edge) -> Answer:
        """The answer that a fact of the graph gives."""
        evidence = Evidence((edge,), FACT, None, None, None)
        said = stated(edge.head, edge.relation, edge.tail)
        return cls(0, edge.goal, 1.0, True, evidence, (), 1, 0.0, claim=said)

    @property
    def sentence(self) -> str:
        """The claim and its reason: its best path in words, or its main sources if it has none."""
        if self.is_fact:
            return f"{self.claim}, says the graph."
        if self.evidence.grade != "asserted":
            unlikely = self.confidence is not None and self.confidence < UNLIKELY
            return f"{self.claim}{', although ' if unlikely else ': '}{''.join(self.evidence.clauses)}."
        return (
            f"{self.claim}, by {self.basis}." if self.basis else f"{self.claim}, says the model, without a path."
        )

    @property
    def summary(self) -> str:
        """`83% likely, grounded`; without a confidence, the score."""
        if self.is_fact:
            return "in the graph"
        sure = f"{percent(self.confidence)} likely" if self.confidence is not None else rounded(self.score, 3)
        about = f"{sure}, {self.evidence.grade}"
        if self.confidence is None and self.evidence.grade != "asserted" and self.asserted >= 0.5:
            about += f", but {self.asserted:.0%} asserted"
        return about

    def html(self) -> str:
        """A list item with the evidence drawn."""
        about = escape(self.summary)
        followed = self.evidence.rule
        rule = f"<small>rule: {escape(followed.text)} {followed.share}</small>" if followed else ""
        picture = f'<div style="overflow-x: auto">{self.evidence.svg()}</div>'  # a long path scrolls
        return f'<li style="margin-bottom: 1em"><b>{escape(self.entity)}</b> {about}{picture}{rule}</li>'


@dataclass(frozen=True)
class Origin:
    """The run and the settings behind some answers."""

    run: str  # the run folder
    step: int  # of training, at which the model was saved
    graph: str
    beam: int
    hops: int
    aggregate: str
    prune: float
    known_share: float  # probability of following known edges
    edge_ends: bool  # whether a path always ends after the queried relation
    constraint: str  # edges that paths may use: "graph" if grounded, empty for all
    version: str
    ranking: str = "paths"  # or "fused"
    decisions: int = 0  # of people about predictions, which confidence takes into account


@dataclass(frozen=True, repr=False)
class Answers(Sequence[Answer]):
    """The answers to one question: what the graph says, and candidates, best first.

    As a sequence it holds the candidates, so `answers[0]` is the best of them. `print` shows everything, and a
    notebook draws it.
    """

    head: str | None  # None if asked for
    relation: str
    tail: str | None
    origin: Origin
    facts: tuple[Answer, ...]  # the first of those in the graph; none if only new answers are wanted
    num_facts: int  # all that are in the graph
    answers: tuple[Answer, ...]  # candidates that are not in the graph

    @property
    def question(self) -> str:
        return f"({self.head or '?'}, {self.relation}, {self.tail or '?'})"

    @property
    def known(self) -> str:
        """The facts in words: `French · Italian … and 1,234 more`; empty without any."""
        left = self.num_facts - len(self.facts)
        more = f" … and {left:,} more" if self.facts and left else ""
        return " · ".join(one.entity for one in self.facts) + more

    @property
    def sampled(self) -> bool:
        """Whether evidence rests on a sample of the edges of hubs."""
        return any(one.sampled for one in self.answers)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, with the fields of these classes (docs/answers.md)."""
        return asdict(self)

    def to_frame(self) -> pd.DataFrame:
        """One row per answer, the facts first."""
        return to_frame(
            [
                {
                    "rank": one.rank,
                    "entity": one.entity,
                    "confidence": one.confidence,
                    "score": one.score,
                    "is_fact": one.is_fact,
                    "grade": one.evidence.grade,
                    "path": one.evidence.text,
                    "basis": one.basis,
                }
                for one in (*self.facts, *self.answers)
            ]
        )

    def __repr__(self) -> str:
        lines = [self.question, *([f"     The graph says: {self.known}"] if self.facts else [])]
        for one in self.answers[:SHOWN]:
            lines += [f"{one.rank:3}. {one.entity}  {one.summary}", f"       {one.evidence.text}"]
            lines += [f"       new since training: {edge.fact}" for edge in one.evidence.added]
        if len(self.answers) > SHOWN:
            lines.append(f"     … and {len(self.answers) - SHOWN} more")
        if self.sampled:
            lines.append("     Some evidence is estimated from a sample of the edges near hubs.")
        return "\n".join(lines if self.answers else [*lines, "     no new answer"])

    def _repr_html_(self) -> str:
        known = f"<p>The graph says: <b>{escape(self.known)}</b></p>" if self.facts else ""
        rows = "".join(answer.html() for answer in self.answers) or "<li>no new answer</li>"
        return f"<p><b>{escape(self.question)}</b></p>{known}<ol>{rows}</ol>"

    def __len__(self) -> int:
        return len(self.answers)

    @overload
    def __getitem__(self, index: int) -> Answer: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Answer]: ...
    def __getitem__(self, index: int | slice) -> Answer | Sequence[Answer]:
        return self.answers[index]
