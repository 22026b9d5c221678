"""The layout of tokens: entities | relations and their inverses | special tokens.

Entities come first, so that an entity's token is its id, and scores of entities need the first rows only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a graph (§3.2: V = |E| + |R| + |S|, where R includes inverse relations)."""

    num_entities: int
    num_relations: int  # R, without inverses

    @property
    def first_relation(self) -> int:
        """The token of edge type 0."""
        return self.num_entities

    @property
    def end(self) -> int:
        """<eos>, directly after the relations, so that the tokens after an entity are one slice."""
        return self.num_entities + 2 * self.num_relations

    @property
    def mask(self) -> int:
        """<mask>, in place of an entity that the model must not see."""
        return self.end + 1

    @property
    def pad(self) -> int:
        """Padding of rows; no other token attends to it."""
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
