"""What the service tells of the graph itself: neighbourhoods, and relations that fit."""

from __future__ import annotations

import numpy as np
from graphs import make_graph
from hypothesis import given
from hypothesis import strategies as st

from squire.graph.graph import Graph
from squire.server.autocomplete import FITS, fitting, open_questions
from squire.server.models import neighbourhood


def hub() -> Graph:
    facts = [("hub", "often", f"n{i}") for i in range(9)]
    facts += [("hub", "rare", "n1"), ("n2", "to", "hub"), ("hub", "self", "hub")]
    return make_graph({"train": facts})


def test_no_relation_hides_the_others() -> None:
    graph = hub()
    found = neighbourhood(graph, graph.labels.entity_id("hub"), 5)
    assert [(edge["relation"], edge["way"]) for edge in found["edges"]] == [
        ("often", "out"), ("rare", "out"), ("self", "out"), ("to", "in"), ("often", "out"),
    ]  # fmt: skip
    assert found["edges"][3] == {"head": "n2", "relation": "to", "tail": "hub", "way": "in"}
    assert (found["entity"], found["left_out"]) == ("hub", 12 - 5)


def test_all_facts_are_shown_once_if_there_is_room() -> None:
    graph = hub()
    found = neighbourhood(graph, graph.labels.entity_id("hub"), 99)
    facts = [(edge["head"], edge["relation"], edge["tail"]) for edge in found["edges"]]
    assert len(facts) == len(set(facts)) == 12
    assert found["left_out"] == 0


def test_facts_of_all_splits_are_shown() -> None:
    graph = make_graph({"train": [("a", "r", "b")], "valid": [("c", "r", "a")], "test": [("a", "s", "c")]})
    found = neighbourhood(graph, graph.labels.entity_id("a"), 9)
    assert [(edge["head"], edge["relation"], edge["tail"]) for edge in found["edges"]] == [
        ("a", "r", "b"), ("a", "s", "c"), ("c", "r", "a"),
    ]  # fmt: skip


facts_of_four = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3))


@given(st.sets(facts_of_four, min_size=1, max_size=30), st.integers(1, 4))
def test_both_directions_are_one_edge_and_pages_of_a_group_are_all_of_it(
    facts: set[tuple[int, int, int]], limit: int
) -> None:
    graph = make_graph({"train": [("e0", "all", "e1"), *((f"e{h}", f"r{r}", f"e{t}") for h, r, t in facts)]})
    own = "e0"
    expected: dict[tuple[str, str], set[str]] = {("all", "out"): {"e1"}}
    for h, r, t in facts:
        if 0 in (h, t):
            way = "both" if h != t and (t, r, h) in facts else "out" if h == 0 else "in"
            expected.setdefault((f"r{r}", way), set()).add(f"e{t if h == 0 else h}")
    entity = graph.labels.entity_id(own)
    whole = neighbourhood(graph, entity, 99)
    assert {(one["relation"], one["way"]): one["count"] for one in whole["groups"]} == {
        group: len(others) for group, others in expected.items()
    }
    for (relation, way), others in expected.items():
        found: list[str] = []
        while True:
            page = neighbourhood(graph, entity, limit, len(found), relation, way)  # type: ignore[arg-type]
            assert page["groups"] == whole["groups"]
            assert {(one["relation"], one["way"]) for one in page["edges"]} <= {(relation, way)}
            if not page["edges"]:
                break
            found += (one["tail"] if one["head"] == own else one["head"] for one in page["edges"])
        assert sorted(found) == sorted(others)


def countries() -> Graph:
    """The currency of country 9 is missing, and that of country 8 held out."""
    facts = [(f"country {i}", "currency", f"money {i}") for i in range(9)]
    facts += [(f"country {i}", "borders", f"country {(i + 1) % 10}") for i in range(10)]
    facts += [(f"river {i}", "flows through", f"country {i}") for i in range(3)]
    return make_graph({"train": facts[:8] + facts[9:], "test": facts[8:9]})


def test_examples_are_questions_that_the_graph_leaves_open() -> None:
    graph = countries()
    found = [(graph.labels.entity(head), graph.labels.relation(edge)) for head, edge in open_questions(graph, 6)]
    assert ("country 9", "currency") in found
    assert not any(graph.facts.tails_of(*question).size for question in open_questions(graph, 6))
    assert len(open_questions(graph, 1)) == 1


def test_relations_of_the_same_kind_of_entity_fit() -> None:
    graph = countries()
    labels, n = graph.labels, graph.num_relations
    share = fitting(graph, labels.entity_id("country 9"))  # whose currency is missing
    fits = {labels.relations[number] for number in np.flatnonzero(share[:n] >= FITS).tolist()}
    assert fits == {"currency", "borders"}
    share = fitting(graph, labels.entity_id("river 0"))
    assert {labels.relations[number] for number in np.flatnonzero(share[:n] >= FITS).tolist()} == {"flows through"}


ends = st.integers(0, 5)


@given(st.sets(st.tuples(ends, st.integers(0, 2), ends), min_size=1, max_size=25), ends)
def test_shares_are_those_that_a_loop_counts(facts: set[tuple[int, int, int]], entity: int) -> None:
    every = [(f"e{i}", "all", "e0") for i in range(6)]  # so that all have an id
    graph = make_graph({"train": every + [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in facts]})
    train = graph.train
    has = [set(train.edges(one)[0].tolist()) for one in range(graph.num_entities)]
    own = has[entity]
    peers = [one for other, one in enumerate(has) if other != entity and one & own]
    alike = [(len(one & own) / len(one | own)) ** 2 for one in peers]
    expected = [
        1.0
        if relation in own
        else sum(weight for one, weight in zip(peers, alike, strict=True) if relation in one) / (sum(alike) + 1)
        for relation in range(2 * graph.num_relations)
    ]
    np.testing.assert_allclose(fitting(graph, entity), expected)
