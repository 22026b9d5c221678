"""Slow, obvious twin of `squire.ranking.walks`: every walk on its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from naive import NaiveAdjacency, Triple

from squire.ranking._walks import WalkWeights

Choice = tuple[str, int, int]  # "start", "step" or "stop", the last type (-1 at the start), the type or the kind


class NaiveWalks:
    """Walks over the edges of some triples."""

    def __init__(self, triples: set[Triple], num_relations: int, weights: WalkWeights, steps: int = 6) -> None:
        self.edges = NaiveAdjacency(triples, num_relations).edges
        self.weights, self.num_relations, self.steps = weights, num_relations, steps

    def inverse(self, r: int) -> int:
        return (r + self.num_relations) % (2 * self.num_relations)

    def choices(self, q: int, x: int, came: Triple | None) -> tuple[dict[Choice, float], dict[int, list[Triple]]]:
        """The weight of everything that can be done at x, and the edges of each type that can be taken."""
        possible = defaultdict(list)
        back = (came[2], self.inverse(came[1]), came[0]) if came else None
        for edge in sorted(self.edges):
            if edge[0] == x and edge != back:
                possible[edge[1]].append(edge)
        start, step, after, stop = self.weights
        if came is None:
            return {("start", -1, b): float(start[q, b]) for b in possible}, possible
        a = came[1]
        out = {("step", a, b): float(step[q, b] * after[a, b]) for b in possible}
        kind = int(any(edge[0] == x and edge[1] == self.inverse(q) for edge in self.edges))
        out["stop", a, kind] = float(stop[q, a, kind])
        return out, possible

    def ends(self, h: int, q: int) -> dict[int, float]:
        """The probability that a walk ends at each entity but h."""
        out: dict[int, float] = defaultdict(float)
        at: dict[tuple[int, Triple | None], float] = {(h, None): 1.0}
        for taken in range(self.steps + 1):
            then: dict[tuple[int, Triple | None], float] = defaultdict(float)
            for (x, came), mass in at.items():
                weights, possible = self.choices(q, x, came)
                for (what, _, b), weight in weights.items():
                    part = mass * weight / sum(weights.values())
                    if what == "stop" and x != h:
                        out[x] += part
                    elif what != "stop" and taken < self.steps:
                        for edge in possible[b]:
                            then[edge[2], edge] += part / len(possible[b])
            at = then
        return out

    def walks(self, h: int, q: int) -> Iterator[tuple[int, float, list[tuple[Choice, dict[Choice, float]]]]]:
        """Of every walk that stops: where, its probability, and its choices with what could have been chosen."""
        waiting: list[tuple[int, Triple | None, float, list[tuple[Choice, dict[Choice, float]]]]] = [
            (h, None, 1, [])
        ]
        while waiting:
            x, came, mass, made = waiting.pop()
            weights, possible = self.choices(q, x, came)
            for choice, weight in weights.items():
                part, then = mass * weight / sum(weights.values()), [*made, (choice, weights)]
                if choice[0] == "stop" and x != h:
                    yield x, part, then
                elif choice[0] != "stop" and len(made) < self.steps:
                    part /= len(possible[choice[2]])
                    waiting += [(edge[2], edge, part, then) for edge in possible[choice[2]]]

    def counts(self, h: int, q: int, t: int) -> tuple[dict[Choice, float], dict[Choice, float]]:
        """Of walks to t, as often as they are probable: choices made, and chances of each if its weight were 1."""
        made: dict[Choice, float] = defaultdict(float)
        chances: dict[Choice, float] = defaultdict(float)
        found = [(mass, choices) for end, mass, choices in self.walks(h, q) if end == t]
        for mass, choices in found:
            share = mass / sum(mass for mass, _ in found)
            for choice, weights in choices:
                made[choice] += share
                for other in weights:
                    chances[other] += share / sum(weights.values())
        return made, chances
