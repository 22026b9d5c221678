"""A model in closed form, as the search sees it."""

from __future__ import annotations

import torch
from naive_beam import Follow, Path
from torch import Tensor


class FakeSteps:
    """`beam.Steps` of any function of a query and a path; remembers who was fed."""

    def __init__(self, follow: Follow, num_entities: int) -> None:
        self.num_entities, self.device, self._follow = num_entities, torch.device("cpu"), follow
        self._levels: list[list[tuple[int, Path]]] = []

    def begin(self, heads: Tensor, relations: Tensor) -> Tensor:
        self._levels = [[(query, ()) for query in range(len(heads))]]
        return self._rows(self._levels[0], 0)

    def entities(self, level: int, parents: Tensor, relations: Tensor) -> tuple[Tensor, Tensor]:
        logits = self._feed(level, parents, relations) + 3.0  # not normalised: the search must do it
        return logits, torch.full((len(parents),), 3.0, dtype=torch.float64)

    def relations(self, level: int, parents: Tensor, entities: Tensor) -> Tensor:
        return self._feed(level, parents, entities)

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
        width = self.num_entities if level % 2 else len(self._follow(0, ()))
        rows = [self._follow(*node) for node in nodes]
        return torch.tensor(rows, dtype=torch.float64).view(len(nodes), width)
