"""Slow, obvious twins of the search: lists of paths, one hypothesis at a time, everything sorted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Path = tuple[int, ...]  # r1, e1, r2, e2 …
Follow = Callable[
    [int, Path], list[float]
]  # query, path so far -> log-probabilities; after an entity the end is last
Edges = set[tuple[int, int, int]]


@dataclass(frozen=True)
class Ended:
    path: Path
    log_probability: float


def is_simple(head: int, path: Path) -> bool:
    """No entity twice; a single edge may lead back to its head."""
    entities = (head, *path[1::2])
    return len(path) <= 2 or (len(set(entities[1:])) == len(entities) - 1 and head not in path[3::2])


def all_paths(follow: Follow, query: int, head: int, hops: int) -> list[Ended]:
    """Every simple path of at most so many hops, with its probability (Eq. 1)."""
    found: list[Ended] = []

    def walk(path: Path, score: float) -> None:
        after = follow(query, path)
        if len(path) % 2 == 0:
            if path:
                found.append(Ended(path, score + after[-1]))
            after = after[:-1] if len(path) < 2 * hops else []
        for token, value in enumerate(after):
            if is_simple(head, (*path, token)):
                walk((*path, token), score + value)

    walk((), 0.0)
    return found


def beam_search(
    follow: Follow,
    query: int,
    head: int,
    beam: int,
    hops: int,
    edges: Edges | None = None,
    least: float = -math.inf,
) -> list[Ended]:
    """The definition: at each step all continuations, sorted, cut; and nothing below the least that matters."""
    live: list[tuple[Path, float]] = [((), 0.0)]
    found: list[Ended] = []
    for step in range(2 * hops):
        after = {path: follow(query, path) for path, _ in live}
        if step % 2 == 0:
            found += [Ended(path, score + after[path][-1]) for path, score in live if path]
            after = {path: values[:-1] for path, values in after.items()}
        grown = [
            ((*path, token), score + value)
            for path, score in live
            for token, value in enumerate(after[path])
            if is_simple(head, (*path, token)) and (edges is None or _allowed(head, (*path, token), edges))
        ]
        grown.sort(key=lambda item: -item[1])
        live = [item for item in grown[:beam] if item[1] >= least]
    return found + [Ended(path, score + follow(query, path)[-1]) for path, score in live]


def least_that_matters(
    follow: Follow, query: int, relation: int, share: float, looked_at: int, known: set[int]
) -> float:
    """So large a share of the probability of the last new answer that is looked at, by the queried edge."""
    if not share:
        return -math.inf
    after = follow(query, (relation,))
    new = sorted((value for entity, value in enumerate(after) if entity not in known), reverse=True)
    new += [-math.inf] * len(known)
    return math.log(share) + follow(query, ())[relation] + new[: min(looked_at, len(after))][-1]


def _allowed(head: int, path: Path, edges: Edges) -> bool:
    nodes = (head, *path)
    here = nodes[-3] if len(path) % 2 == 0 else nodes[-2]
    return any(
        h == here and (r, t) == (path[-2], path[-1]) if len(path) % 2 == 0 else (h, r) == (here, path[-1])
        for h, r, t in edges
    )


def answers(paths: list[Ended], aggregate: str) -> dict[int, float]:
    """The score of every answer, by its best path (Eq. 5) or all of them (self-consistency)."""
    scores: dict[int, float] = {}
    for ended in paths:
        answer = ended.path[-1]
        if aggregate == "max":
            scores[answer] = max(scores.get(answer, -math.inf), ended.log_probability / (len(ended.path) + 1))
        else:
            scores[answer] = scores.get(answer, 0.0) + math.exp(ended.log_probability)
    return scores


def random_follow(seed: int, entities: int, relations: int) -> Follow:
    """A closed-form model: for every query and path its own distribution, drawn from a seed."""

    def follow(query: int, path: Path) -> list[float]:
        size = entities if len(path) % 2 else relations + 1
        logits = np.random.default_rng([seed, query, len(path), *path]).normal(scale=2, size=size)
        values: list[float] = (logits - np.logaddexp.reduce(logits)).tolist()
        return values

    return follow


def guided_follow(follow: Follow, head_of: Callable[[int], int], edges: Edges, share: float) -> Follow:
    """The same model, guided: after a relation with known tails, these have `share` of the probability."""

    def guided(query: int, path: Path) -> list[float]:
        free = follow(query, path)
        if len(path) % 2 == 0:
            return free
        here = (head_of(query), *path)[-2]
        known = {t for h, r, t in edges if (h, r) == (here, path[-1])}
        if not known:
            return free
        total = sum(math.exp(free[t]) for t in known)
        return [
            math.log((1 - share) * math.exp(value) + (share * math.exp(value) / total if t in known else 0))
            for t, value in enumerate(free)
        ]

    return guided
