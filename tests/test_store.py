"""The adjacency answers every look-up as a dictionary of sets would, and cannot be changed."""

from itertools import product

import numpy as np
import pytest
from graphs import make_graph
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveAdjacency, Triple

from squire.core.relations import inverse
from squire.errors import DataError
from squire.graph.adjacency import Adjacency, Ids, sort_unique
from squire.graph.graph import Graph
from squire.graph.labels import LabelIndex, Labels

ENTITIES, RELATIONS = 5, 3
# Few names, so that repeats, self-loops, parallel and opposite edges are common.
triple_lists = st.lists(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)),
    max_size=30,
)


def as_ids(triples: list[Triple]) -> Ids:
    return np.array(triples, np.int32).reshape(-1, 3)


def both(triples: list[Triple]) -> tuple[Adjacency, NaiveAdjacency]:
    return Adjacency.build(as_ids(triples), ENTITIES, RELATIONS), NaiveAdjacency(triples, RELATIONS)


@given(triple_lists)
def test_edges_of_a_head_in_order(triples: list[Triple]) -> None:
    adjacency, twin = both(triples)
    for head in range(ENTITIES):
        relations, tails = adjacency.edges(head)
        assert list(zip(relations.tolist(), tails.tolist(), strict=True)) == sorted(twin.by_head[head])


@given(triple_lists)
def test_tails_of_a_head_and_a_relation_or_its_inverse(triples: list[Triple]) -> None:
    adjacency, twin = both(triples)
    for head, relation in product(range(ENTITIES), range(2 * RELATIONS)):
        assert adjacency.tails_of(head, relation).tolist() == sorted(twin.by_head_relation[head, relation])


@given(triple_lists)
def test_relations_between_a_head_and_a_tail(triples: list[Triple]) -> None:
    adjacency, twin = both(triples)
    for head, tail in product(range(ENTITIES), repeat=2):
        assert adjacency.relations_between(head, tail).tolist() == sorted(twin.by_head_tail[head, tail])


@given(triple_lists)
def test_contains_exactly_the_edges(triples: list[Triple]) -> None:
    adjacency, twin = both(triples)
    everything = product(range(ENTITIES), range(2 * RELATIONS), range(ENTITIES))
    assert {edge for edge in everything if adjacency.contains(*edge)} == twin.edges


@given(triple_lists)
def test_starts_of_a_relation_are_the_heads_of_its_edges(triples: list[Triple]) -> None:
    adjacency, twin = both(triples)
    entities, offsets = adjacency.starts
    for relation in range(2 * RELATIONS):
        own = entities[offsets[relation] : offsets[relation + 1]].tolist()
        assert own == sorted({h for h, r, _ in twin.edges if r == relation})


@given(triple_lists)
def test_every_edge_can_be_walked_back(triples: list[Triple]) -> None:
    adjacency, _ = both(triples)
    assert adjacency.num_edges == 2 * len(set(triples))
    for head in range(ENTITIES):
        for relation, tail in zip(*(side.tolist() for side in adjacency.edges(head)), strict=True):
            assert adjacency.contains(tail, inverse(relation, RELATIONS), head)
            assert inverse(inverse(relation, RELATIONS), RELATIONS) == relation


@given(triple_lists)
def test_triples_come_back_sorted_and_once(triples: list[Triple]) -> None:
    adjacency, _ = both(triples)
    assert list(map(tuple, adjacency.triples.tolist())) == sorted(set(triples))
    assert sort_unique(as_ids(triples), ENTITIES, RELATIONS).tolist() == adjacency.triples.tolist()


@given(triple_lists, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(triples: list[Triple], random: object) -> None:
    shuffled = list(triples)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert both(shuffled)[0] == both(triples)[0]


@given(triple_lists, triple_lists)
def test_equal_exactly_if_the_facts_are(one: list[Triple], other: list[Triple]) -> None:
    assert (both(one)[0] == both(other)[0]) == (set(one) == set(other))


@pytest.mark.parametrize("array", ["offsets", "relations", "tails", "heads", "triples"])
def test_arrays_cannot_be_written(array: str) -> None:
    adjacency, _ = both([(0, 1, 2), (2, 0, 2)])
    with pytest.raises(ValueError, match="read-only"):
        getattr(adjacency, array)[0] = 0


def test_looked_up_slices_cannot_be_written() -> None:
    adjacency, _ = both([(0, 1, 2)])
    for found in (*adjacency.edges(0), adjacency.tails_of(0, 1)):
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 0


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_triples_of_a_graph_cannot_be_written(split: str) -> None:
    graph = make_graph({"train": [("a", "r", "b")], "valid": [("a", "r", "a")], "test": [("b", "r", "b")]})
    with pytest.raises(ValueError, match="read-only"):
        graph.triples(split)[0, 0] = 1


def test_no_triples_give_no_edges() -> None:
    adjacency = Adjacency.build(as_ids([]), 0, 0)
    assert (adjacency.num_edges, adjacency.triples.shape) == (0, (0, 3))


def test_more_names_than_fit_a_key_are_refused() -> None:
    with pytest.raises(DataError, match=r"3,000,000,000 entities × 2 relations: too many"):
        Adjacency.build(as_ids([(0, 0, 1)]), 3_000_000_000, 1)


@given(triple_lists, triple_lists, triple_lists, st.sets(st.sampled_from(["train", "valid", "test"]), min_size=1))
def test_known_tails_over_chosen_splits(
    train: list[Triple], valid: list[Triple], test: list[Triple], chosen: set[str]
) -> None:
    names = Labels(LabelIndex("abcde", "entity"), LabelIndex("xyz", "relation"))
    splits = {"train": train, "valid": valid, "test": test}
    graph = Graph.build("made", names, {split: as_ids(triples) for split, triples in splits.items()})
    twin = NaiveAdjacency([triple for split in chosen for triple in splits[split]], RELATIONS)
    known = graph.known(*sorted(chosen))
    for head, relation in product(range(ENTITIES), range(2 * RELATIONS)):
        assert known.tails_of(head, relation).tolist() == sorted(twin.by_head_relation[head, relation])


@given(triple_lists, triple_lists)
def test_edges_that_are_added_or_removed_give_what_is_built_of_all(
    triples: list[Triple], others: list[Triple]
) -> None:
    adjacency, more = both(triples)[0], Adjacency.build(as_ids(others), ENTITIES + 2, RELATIONS)
    size = ENTITIES + 2, RELATIONS
    assert adjacency.grown(ENTITIES + 2).joined(more) == Adjacency.build(as_ids(triples + others), *size)
    left = [triple for triple in triples if triple not in others]
    assert adjacency.grown(ENTITIES + 2).without(more) == Adjacency.build(as_ids(left), *size)


@given(triple_lists)
def test_orders_are_those_of_a_sort(triples: list[Triple]) -> None:
    adjacency, twin = both(triples)
    edges = sorted(twin.edges)
    pairs = sorted({(head, relation) for head, relation, _ in edges})
    runs, ends = adjacency.runs, sorted({(relation, tail) for _, relation, tail in edges})
    assert list(zip(runs.heads.tolist(), runs.relations.tolist(), strict=True)) == pairs
    assert [edges[start][:2] for start in runs.starts[:-1].tolist()] == pairs
    assert np.repeat(np.arange(ENTITIES), np.diff(runs.offsets)).tolist() == [head for head, _ in pairs]
    by_tail = sorted((head, tail, relation) for head, relation, tail in edges)
    found = zip(adjacency.heads.tolist(), *(column.tolist() for column in adjacency.by_tail[::-1]), strict=True)
    assert list(found) == by_tail
    order, offsets = adjacency.ends
    types = np.repeat(np.arange(2 * RELATIONS), np.diff(offsets)).tolist()
    assert list(zip(types, runs.heads[order].tolist(), strict=True)) == ends
    for (_, relation, tail), run in zip(edges, adjacency.end_runs.tolist(), strict=True):
        assert pairs[run] == (tail, inverse(relation, RELATIONS))
    starts, offsets = adjacency.starts
    types = np.repeat(np.arange(2 * RELATIONS), np.diff(offsets)).tolist()
    assert list(zip(types, starts.tolist(), strict=True)) == sorted((r, h) for h, r in pairs)
