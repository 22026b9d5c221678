"""Hidden parts of train: what may be hidden, and that nothing of it remains."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import make_graph
from hypothesis import given
from hypothesis import strategies as st

from squire.errors import SettingError
from squire.graph.adjacency import Adjacency
from squire.graph.folds import can_be_hidden, hide, is_linked, pairs_look_unlinked, removable
from squire.graph.graph import Graph

ENTITIES, RELATIONS = 8, 3
TRIPLES = st.sets(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)),
    max_size=40,
)


def adjacency_of(triples: set[tuple[int, int, int]]) -> Adjacency:
    return Adjacency.build(np.array(sorted(triples), np.int32).reshape(-1, 3), ENTITIES, RELATIONS)


def links(triples: set[tuple[int, int, int]], head: int, tail: int) -> int:
    return sum({h, t} == {head, tail} for h, _, t in triples)


@given(TRIPLES, st.integers(2, 4), st.booleans())
def test_what_is_hidden_is_gone_and_both_its_ends_keep_an_edge(
    triples: set[tuple[int, int, int]], folds: int, unlinked: bool
) -> None:
    seen: set[tuple[int, int, int]] = set()
    for remaining, hidden_ids in hide(adjacency_of(triples), folds, 1, unlinked):
        hidden = {tuple(row) for row in hidden_ids.tolist()}
        assert {tuple(row) for row in remaining.triples.tolist()} == triples - hidden
        assert not hidden & seen
        seen |= hidden
        for head, relation, tail in hidden:
            assert not remaining.contains(head, relation, tail)
            assert not remaining.contains(tail, relation + RELATIONS, head)
            assert len(remaining.edges(head)[0])
            assert len(remaining.edges(tail)[0])
            assert not unlinked or links(triples, head, tail) == 1
    assert seen <= triples


@given(TRIPLES, st.booleans())
def test_what_can_be_hidden_is_what_can_be_removed_alone(
    triples: set[tuple[int, int, int]], unlinked: bool
) -> None:
    adjacency = adjacency_of(triples)
    for i, possible in enumerate(can_be_hidden(adjacency, unlinked).tolist()):
        alone = bool(removable(adjacency, np.array([i])))
        assert possible == (alone and not (unlinked and is_linked(adjacency)[i]))


@given(TRIPLES)
def test_a_triple_is_linked_if_another_one_has_the_same_ends(triples: set[tuple[int, int, int]]) -> None:
    adjacency = adjacency_of(triples)
    expected = [links(triples, head, tail) > 1 for head, _, tail in adjacency.triples.tolist()]
    assert is_linked(adjacency).tolist() == expected


def test_folds_repeat_with_their_seed_and_hide_what_they_can() -> None:
    # Everybody has many edges, so all can be hidden but where a fold would strip an entity.
    triples = {(h, r, t) for h in range(ENTITIES) for r in range(RELATIONS) for t in range(ENTITIES) if h != t}
    one, same, other = (
        [hidden.tolist() for _, hidden in hide(adjacency_of(triples), 4, seed)] for seed in (0, 0, 1)
    )
    assert one == same != other
    assert sum(len(hidden) for hidden in one) == len(triples)


def test_pairs_look_unlinked_if_no_valid_pair_is_linked_though_train_pairs_are() -> None:
    train = [(f"{i}", r, f"{i + 1}") for i in range(40) for r in ("r", "s")]

    def graph(valid: list[tuple[str, str, str]]) -> Graph:
        return make_graph({"train": train, "valid": valid})

    apart = [(f"{i}", "r", f"{i + 2}") for i in range(20)]
    assert pairs_look_unlinked(graph(apart))
    assert not pairs_look_unlinked(graph([*apart, ("0", "t", "1")]))  # one is linked
    assert not pairs_look_unlinked(graph([("1", "t", "0")]))  # in the other direction
    assert not pairs_look_unlinked(graph([]))  # nobody knows
    assert not pairs_look_unlinked(make_graph({"train": train[::2], "valid": apart}))  # no train pair is either


def test_one_fold_is_refused() -> None:
    with pytest.raises(SettingError, match=r"folds=1: expected 2"):
        next(hide(adjacency_of({(0, 0, 1)}), 1))
