"""Models in closed form, as the search sees them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from naive_beam import Follow, Path
from torch import Tensor

Question = tuple[int, int]  # head, edge relation
Shares = Mapping[Path, float]  # of each path among those of a question


class FakeSteps:
    """`beam.Decoder` of any function of a query and a path; remembers who was fed."""

    def __init__(self, follow: Follow, num_entities: int) -> None:
        self.num_entities, self.device, self._follow = num_entities, torch.device("cpu"), follow
        self._levels: list[list[tuple[int, Path]]] = []

    def begin(self, heads: Tensor, relations: Tensor) -> Tensor:
        self._levels = [[(query, ()) for query in self.numbers(heads, relations)]]
        return self._rows(self._levels[0], 0)

    def numbers(self, heads: Tensor, relations: Tensor) -> list[int]:
        """How queries are called: by their place in the block."""
        return list(range(len(heads)))

    def entities(self, level: int, parents: Tensor, relations: Tensor) -> tuple[Tensor, Tensor]:
        logits = self._feed(level, parents, relations) + 3.0  # not normalised: the search must do it
        return logits, torch.full((len(parents),), 3.0, dtype=torch.float64)

    def relations(self, level: int, parents: Tensor, entities: Tensor) -> Tensor:
        return self._feed(level, parents, entities)

    def queried_edge(self, relations: Tensor) -> Tensor:
        logits, norm = self.entities(1, torch.arange(len(relations)), relations)
        return logits - norm[:, None]

    def skip(self, level: int, parents: Tensor, relations: Tensor) -> Tensor:
        self._feed(level, parents, relations)
        fed = len(self._levels[level])
        nodes = torch.arange(fed - len(parents), fed)
        return self._feed(level + 1, nodes, torch.full_like(nodes, self.num_entities))  # <mask>

    @property
    def fed(self) -> int:
        return sum(map(len, self._levels))

    def _feed(self, level: int, parents: Tensor, tokens: Tensor) -> Tensor:
        above = self._levels[level - 1]
        nodes = [
            (above[parent][0], (*above[parent][1], token))
            for parent, token in zip(parents.tolist(), tokens.tolist(), strict=True)
        ]
        if level == len(self._levels):
            self._levels.append([])
        self._levels[level] += nodes
        return self._rows(nodes, level)

    def _rows(self, nodes: list[tuple[int, Path]], level: int) -> Tensor:
        rows = [self._follow(*node) for node in nodes]
        width = self.num_entities if level % 2 or not rows else len(rows[0])
        return torch.tensor(rows, dtype=torch.float64).view(len(nodes), width)


def number(head: int, relation: int) -> int:
    """A question as one number."""
    return head * 1000 + relation


class QuestionSteps(FakeSteps):
    """The same of a question and a path, in whichever block the question comes."""

    def numbers(self, heads: Tensor, relations: Tensor) -> list[int]:
        return [number(*question) for question in zip(heads.tolist(), relations.tolist(), strict=True)]


def exactly(tables: Mapping[Question, Shares], num_entities: int, num_relations: int) -> QuestionSteps:
    """A model that gives each path, its end included, the share it has in its question's table, and others none.

    Each beginning of a path must have a share too: a model always lets a path end.
    """

    def follow(query: int, path: Path) -> list[float]:
        shares = tables[divmod(query, 1000)]
        assert all(longer[:-2] in shares for longer in shares if len(longer) > 2)
        size = num_entities if len(path) % 2 else 2 * num_relations + 1
        mass = [0.0] * size
        for other, share in shares.items():
            if other[: len(path)] == path:
                mass[size - 1 if other == path else other[len(path)]] += share
        return [math.log(own / sum(mass)) if own else -math.inf for own in mass]

    return QuestionSteps(follow, num_entities)
