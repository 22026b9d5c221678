"""Slow, obvious twins of `squire.ranking`: votes, walks and features of one candidate, by dictionaries."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
from naive import NaiveAdjacency, Triple
from naive_walks import NaiveWalks

from squire.ranking._walks import WalkWeights
from squire.rules.application import RuleEngine
from squire.rules.rules import NONE


class NaiveEvidence:
    """Twin of `Evidence`, for one query at a time."""

    def __init__(
        self,
        triples: set[Triple],
        num_entities: int,
        num_relations: int,
        engine: RuleEngine,
        names: list[str],
        walks: WalkWeights | None = None,
    ) -> None:
        self.far = NaiveWalks(triples, num_relations, walks) if walks else None
        self.graph = NaiveAdjacency(triples, num_relations)
        self.n, self.engine = num_entities, engine
        self.edges = self.graph.edges
        self.degree = Counter(h for h, _, _ in self.edges)
        self.facts = Counter(r for _, r, _ in self.edges)
        self.tails: dict[int, Counter[int]] = defaultdict(Counter)
        for _, r, t in self.edges:
            self.tails[r][t] += 1
        owners = Counter((r, t) for _, r, t in self.edges)
        self.rows = {h: {a: math.log(self.n / owners[a]) for a in own} for h, own in self.graph.by_head.items()}
        self.shared = {a for a, count in owners.items() if count > 1}
        having = Counter(r for _, r in self.graph.by_head_relation)
        self.signatures: dict[int, dict[int, float]] = defaultdict(dict)
        for (h, r), own in self.graph.by_head_relation.items():
            self.signatures[h][r] = (1 + math.log(len(own))) * math.log(self.n / (having[r] + 1))
        self.labels = naive_words(names)

    def similarity(self, a: int, b: int) -> float:
        """Cosine of the attributes; what one entity alone has counts in the norms only."""
        one, other = self.rows.get(a, {}), self.rows.get(b, {})
        norms = [math.sqrt(max(sum(w * w for w in row.values()), 1e-12)) for row in (one, other)]
        return sum(one[x] * other[x] for x in one if x in other and x in self.shared) / (norms[0] * norms[1])

    def likeness(self, one: dict[int, float], other: dict[int, float]) -> float:
        norms = [max(math.sqrt(sum(w * w for w in row.values())), 1e-9) for row in (one, other)]
        return sum(one[x] * other[x] for x in one if x in other) / (norms[0] * norms[1])

    def voters(self, h: int, r: int) -> list[int]:
        return [m for m, relation in self.graph.by_head_relation if relation == r and m != h]

    def votes(self, h: int, r: int) -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
        """By similarity, by the similarity of the 20 nearest (a share), by signature (a share)."""
        weight = {m: self.similarity(h, m) for m in self.voters(h, r)}
        nearest = sorted((w for w in weight.values() if w > 0), reverse=True)[:20]
        close = {m: w for m, w in weight.items() if w > 0 and w >= nearest[-1] - 1e-12}
        signed = {m: self.likeness(self.signatures[h], self.signatures[m]) ** 8 for m in weight}

        def poll(weights: dict[int, float]) -> dict[int, float]:
            out: dict[int, float] = defaultdict(float)
            for m, w in weights.items():
                for t in self.graph.by_head_relation[m, r]:
                    out[t] += w
            return out

        self.total = sum(weight.values())
        near, signs = sum(close.values()), sum(signed.values())
        return (
            poll(weight),
            {t: w / (near + 1e-3) for t, w in poll(close).items()},
            {t: w / (signs + 1e-6) for t, w in poll(signed).items()},
        )

    def votes_by_name(self, h: int, r: int) -> tuple[dict[int, float], float]:
        """And the sum of the voters' weights."""
        out: dict[int, float] = defaultdict(float)
        total = 0.0
        for m in self.voters(h, r):
            weight = self.alike_by_name(h, m) ** 2
            total += weight
            for t in self.graph.by_head_relation[m, r]:
                out[t] += weight
        return {t: weight for t, weight in out.items() if weight > 0}, total

    def alike_by_name(self, a: int, b: int) -> float:
        return sum(weight * self.labels[b].get(word, 0.0) for word, weight in self.labels[a].items())

    def walk(self, h: int, steps: int) -> dict[int, float]:
        at = {h: 1.0}
        for _ in range(steps):
            then: dict[int, float] = defaultdict(float)
            for x, chance in at.items():
                for _, t in self.graph.by_head.get(x, ()):
                    then[t] += chance / self.degree[x]
            at = then
        return at

    def candidates(self, h: int, r: int, drop_linked: bool = False) -> set[int]:
        """On graphs so small that every source names all it knows."""
        vote, _, signed = self.votes(h, r)
        known = {t for b, t in self.graph.by_head.get(h, ()) if b == r or drop_linked}
        loops = {h} if any(b == r and a == t for a, b, t in self.edges) else set()
        named = set(self.tails[r]) | set(self.rules(h, r)) | {t for t in vote if vote[t] > 0}
        return (
            named
            | {t for t in signed if signed[t] > 0}
            | set(self.votes_by_name(h, r)[0])
            | loops
            | self._far(h, r).keys()
        ) - known

    def _far(self, h: int, r: int) -> dict[int, float]:
        return self.far.ends(h, r) if self.far else {}

    def rules(self, h: int, r: int) -> dict[int, list[tuple[float, int]]]:
        """Smoothed confidence and kind of the best rules of each answer."""
        found, rules = self.engine.answer(np.array([[h, r]], np.int32)), self.engine.rules
        out = {}
        for answer, own in zip(found.answers.tolist(), found.rules.tolist(), strict=True):
            out[answer] = [
                (
                    float(rules.smoothed_confidence[i]),
                    int(rules.length[i]) - 1 if rules.is_closed[i] else 4 if rules.body_constant[i] == NONE else 3,
                )
                for i in own
                if i != NONE
            ]
        return out

    def features(self, h: int, r: int, t: int) -> list[float]:
        tails, vote = self.tails[r], self.votes(h, r)
        own = sorted(self.graph.by_head_relation.get((h, r), ()))
        heads = sum(relation == r for _, relation in self.graph.by_head_relation)
        profile: dict[int, float] = defaultdict(float)
        for tail, count in tails.items():
            norm = max(math.sqrt(sum(w * w for w in self.signatures[tail].values())), 1e-9)
            for relation, w in self.signatures[tail].items():
                profile[relation] += count * w / norm
        loops = sum(b == r and x == y for x, b, y in self.edges)
        named, named_total = self.votes_by_name(h, r)
        called: dict[tuple[bool, str], float] = defaultdict(float)
        for tail, count in tails.items():
            for word, w in self.labels[tail].items():
                called[word] += count * w
        called_norm = max(math.sqrt(sum(w * w for w in called.values())), 1e-9)
        return [
            math.log1p(tails[t]),
            math.log1p(sum(count > tails[t] for count in tails.values())),
            tails[t] / self.facts[r] if self.facts[r] else 0.0,
            math.log1p(self.degree[t]),
            *self._of_rules(self.rules(h, r).get(t, [])),
            vote[0].get(t, 0.0),
            vote[0].get(t, 0.0) / (self.total + 1e-3),
            vote[1].get(t, 0.0),
            vote[2].get(t, 0.0),
            len(self.graph.by_head_tail.get((h, t), ())),
            math.log(self.walk(h, 2).get(t, 0.0) + 1e-6),
            math.log(self.walk(h, 3).get(t, 0.0) + 1e-6),
            float(t == h),
            loops / self.facts[r] if t == h else 0.0,
            math.log(self._far(h, r).get(t, 0.0) + 1e-6),
            sum(self.similarity(t, x) for x in own) / max(len(own), 1),
            sum(self.likeness(self.signatures[t], self.signatures[x]) for x in own) / max(len(own), 1),
            self.likeness(self.signatures[t], profile),
            named.get(t, 0.0),
            named.get(t, 0.0) / (named_total + 1e-3),
            sum(vote * self.alike_by_name(t, x) for x, vote in named.items()) / (named_total + 1e-3),
            self.alike_by_name(h, t),
            sum(self.alike_by_name(t, x) for x in own) / max(len(own), 1),
            sum(w * called.get(word, 0.0) for word, w in self.labels[t].items()) / called_norm,
            math.log1p(self.degree[h]),
            len(own),
            math.log1p(self.facts[r]),
            math.log1p(len(tails)),
            self.facts[r] / max(heads, 1),
        ]

    @staticmethod
    def _of_rules(rules: list[tuple[float, int]]) -> list[float]:
        confidence = [x for x, _ in rules]
        of_kind = [[x for x, kind in rules if kind == k] for k in range(5)]
        return [
            1 - math.prod(1 - x for x in confidence[:5]),
            1 - math.prod(1 - x for x in confidence),
            *(confidence + [0.0] * 5)[:5],
            len(confidence),
            sum(confidence),
            *(max(own, default=0.0) for own in of_kind),
            *(len(own) for own in of_kind),
        ]


def naive_words(names: list[str]) -> list[dict[tuple[bool, str], float]]:
    """Twin of `name_words`: of each name the weights of its words, which other names have too."""
    rows = []
    for name in names:
        split = _split(name)
        words = [word for i, word in enumerate(split) if word not in split[:i]]
        in_names = {word: sum(word in _split(other) for other in names) for word in words}
        telling = [word for word in words if in_names[word] <= len(names) / 2]
        rows.append([(i == 0, word) for i, word in enumerate(telling)])
    owners = Counter(word for row in rows for word in row)
    out = []
    for row in rows:
        weight = {word: math.log(len(names) / owners[word]) for word in row}
        norm = max(math.sqrt(sum(w * w for w in weight.values())), 1e-9)
        out.append({word: w / norm for word, w in weight.items() if owners[word] > 1})
    return out


def _split(name: str) -> list[str]:
    words = "".join(letter if letter.isalnum() else " " for letter in name.casefold()).split()
    return [word for word in words if len(word) > 1 and not any(letter.isdigit() for letter in word)]
