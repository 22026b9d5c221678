"""A test question, and the path by which the model finds the right answer. Knows neither torch nor files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from squire.reasoning.answers import Edge, Evidence, FollowedRule

Words = Callable[[str], str]


@dataclass(frozen=True)
class Question:
    """(head, relation, ?), to which `tail` is the right answer."""

    head: str
    relation: str
    tail: str
    rank: float  # of the right answer, filtered
    evidence: Evidence | None  # the best path that leads to it; None if none does

    @property
    def text(self) -> str:
        return f"({self.head}, {self.relation}, ?)"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Question:
        """Inverse of `as_dict`."""
        path = content["evidence"]
        if path is not None:
            rule = FollowedRule(**path["rule"]) if path["rule"] else None
            # Older files have `known` for `is_fact`.
            edges = ({"is_fact" if key == "known" else key: edge[key] for key in edge} for edge in path["edges"])
            path = Evidence(**{**path, "edges": tuple(Edge(**edge) for edge in edges), "rule": rule})
        return cls(**{**content, "evidence": path})


def drawn_signature(header: Mapping[str, Any], count: int) -> str:
    """Of figures over the first so many questions of a journal."""
    return f"{header['signature']}|draw:{header['draw']}|drawn:{count} of {header['of']}"


def path_words(path: Evidence, name: Words = str, missing: Words = str, goal: Words = str) -> str:
    """`Lycoming County ←contains— Pennsylvania —currency→ US Dollar`, as in the case study of §4.5.

    How names are written, and, after that, relations of edges that are not in the graph, and the answer.
    """
    parts = [name(path.start)]
    for place, edge in enumerate(path.edges, start=1):
        relation = name(edge.relation) if edge.is_fact else missing(name(edge.relation))
        parts.append(f"←{relation}—" if edge.backwards else f"—{relation}→")
        parts.append(goal(name(edge.goal)) if place == len(path.edges) else name(edge.goal))
    return " ".join(parts)
