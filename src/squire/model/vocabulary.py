"""The token layout: entities | relations and their inverses | specials. Ids below become tokens here and above.

Entities come first, so an entity's token is its id; a model that scores entities only reads the first rows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Vocabulary:
    """Tokens of a graph (the paper's V = |E| + |R| + |S|, §3.2, with inverse relations among R)."""

    num_entities: int
    num_relations: int  # of the graph, without inverses

    @property
    def first_relation(self) -> int:
        """The token of edge relation 0."""
        return self.num_entities

    @property
    def end(self) -> int:
        """<eos>: right after the relations, so that what can follow an entity is one slice."""
        return self.num_entities + 2 * self.num_relations

    @property
    def mask(self) -> int:
        """<mask>: stands for an entity that the model may not see."""
        return self.end + 1

    @property
    def pad(self) -> int:
        """Fills rows; nothing attends to it."""
        return self.end + 2

    def __len__(self) -> int:
        return self.end + 3

    @property
    def after_entity(self) -> slice:
        """The tokens that can follow an entity or the query: relations and <eos>."""
        return slice(self.first_relation, self.end + 1)

    @property
    def after_relation(self) -> slice:
        """The tokens that can follow a relation: entities."""
        return slice(0, self.num_entities)
