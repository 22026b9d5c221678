"""What is behind the sources of one answer: the rules that fired, and the entities that voted. Ids only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from squire.core.relations import inverse
from squire.ranking.features import CandidateFeatures
from squire.rules.application import Grounding
from squire.rules.rules import NONE


class FiredRule(NamedTuple):
    """A rule that predicts the answer."""

    rule: int  # among `features.used_rules`
    confidence: float  # smoothed
    grounding: Grounding | None


class Voter(NamedTuple):
    """An entity like the head that has the answer."""

    entity: int
    similarity: float  # cosine, by neighbours
    shared: list[tuple[int, int]]  # edge type and tail, rarest first


def fired_rules(features: CandidateFeatures, head: int, relation: int, answer: int) -> list[FiredRule]:
    """The best rules for one answer, most confident first."""
    (found,) = features.answers_by_rules(np.array([[head, relation]], np.int32))
    at = np.flatnonzero(found.answers == answer)
    if not len(at):
        return []
    rules, confidences = found.rules[at[0]].tolist(), found.smoothed_confidence[at[0]].tolist()
    return [
        FiredRule(rule, confidence, features.engine.grounding(head, relation, answer, rule))
        for rule, confidence in zip(rules, confidences, strict=True)
        if rule != NONE and confidence > 0
    ]


def voters(features: CandidateFeatures, head: int, relation: int, answer: int, most: int = 5) -> list[Voter]:
    """The entities most similar to the head, by neighbours, that have this answer."""
    facts, index = features.adjacency, features.index
    holders = facts.tails_of(answer, inverse(relation, facts.num_relations))
    own, seen = slice(*facts.offsets[head : head + 2]), dict[int, float]()
    for attribute in index.attribute[own].tolist():
        seen[attribute] = float(index.rarity[attribute])
    found = []
    for entity in holders[holders != head].tolist():
        edges = range(*facts.offsets[entity : entity + 2].tolist())
        shared = sorted(
            ((seen[int(index.attribute[edge])], edge) for edge in edges if seen.get(int(index.attribute[edge]))),
            key=lambda one: (-one[0], one[1]),
        )
        similarity = sum(weight for weight, _ in shared) * float(index.scale[head] * index.scale[entity])
        if shared:
            what = [(int(facts.relations[edge]), int(facts.tails[edge])) for _, edge in shared]
            found.append(Voter(entity, similarity, what))
    return sorted(found, key=lambda voter: (-voter.similarity, voter.entity))[:most]
