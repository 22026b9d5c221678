"""How two entities are connected, beside a brute-force search; and whom an answer may be."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from graphs import make_graph
from hypothesis import given
from hypothesis import strategies as st
from service_cases import cli_json, client, error_of
from small_run import fused_run
from typer.testing import CliRunner

import squire
from squire.cli import app
from squire.errors import DataError, SettingError, UnknownName
from squire.graph.adjacency import Adjacency
from squire.reasoning import connections
from squire.reasoning.connections import Expectation, paths_between, stride
from squire.reasoning.reasoner import Reasoner
from squire.reasoning.restrictions import entities_of_type, restrict
from squire.server.models import Model

triples = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 5)), min_size=1, max_size=14)


@cache
def run() -> squire.Run:
    return squire.Run(fused_run())


def walks(facts: Adjacency, start: int, length: int) -> list[list[int]]:
    """All walks of so many edges: start, edge type, entity, edge type …"""
    found = [[start]]
    for _ in range(length):
        found = [
            [*walk, r, t]
            for walk in found
            for r, t in zip(*map(np.ndarray.tolist, facts.edges(walk[-1])), strict=True)
        ]
    return found


@given(triples)
def test_all_simple_paths_are_found(rows: list[tuple[int, int, int]]) -> None:
    facts = Adjacency.build(np.array(rows, np.int32), 6, 2)
    expected = {
        (*walk[1::2], *walk[2:-1:2])
        for length in (1, 2, 3)
        for walk in walks(facts, 0, length)
        if walk[-1] == 1 and len(set(walk[0::2])) == length + 1
    }
    found = [(*pattern, *middle) for pattern, paths in paths_between(facts, 0, 1).items() for middle in paths]
    assert len(found) == len(set(found))
    assert set(found) == expected


@given(triples, st.integers(1, 3))
def test_what_is_expected_adds_up_to_all_walks(rows: list[tuple[int, int, int]], length: int) -> None:
    facts = Adjacency.build(np.array(rows, np.int32), 6, 2)
    expectation = Expectation(facts)
    everywhere = [tuple(walk[1::2]) for start in range(6) for walk in walks(facts, start, length)]
    for pattern in set(everywhere):
        total = sum(expectation.of(pattern, a, b) for a, b in product(range(6), repeat=2))
        assert total == pytest.approx(everywhere.count(pattern))


def test_grandparents_are_suggested_by_the_path_of_two_parents() -> None:
    found = run().connect("finn", "finn 2")
    assert "ex:parent → ex:parent" in [group.pattern for group in found.groups]
    held = [one for one in found.suggestions if (one.head, one.relation) == ("finn", "grandparent")]
    known = [one.entity for one in run().answer("finn", "grandparent").facts]
    assert (not held) == ("finn 2" in known)
    supposed = run().connect("zoe", "yves", facts=[("zoe", "ex:parent", "xena"), ("xena", "ex:parent", "yves")])
    (one,) = [one for one in supposed.suggestions if one.relation == "grandparent" and one.head == "zoe"]
    facts = [("zoe", "ex:parent", "xena"), ("xena", "ex:parent", "yves")]
    assert one.confidence == pytest.approx(run().check("zoe", "grandparent", "yves", facts=facts).confidence)
    assert all(edge.is_added for edge in supposed.groups[0].paths[0].edges)


def test_connect_needs_two_known_entities() -> None:
    with pytest.raises(UnknownName, match="'finn'"):
        run().connect("fin", "ada")
    with pytest.raises(SettingError, match="two entities"):
        run().connect("ada", "ada")


def test_command_and_service_say_the_same() -> None:
    content = cli_json("connect", fused_run(), "ada", "ben")
    assert content["groups"][0]["pattern"] == "likes"
    with client(Model.load("family", fused_run())) as service:
        body = {"first": "ada", "second": "ben"}
        assert service.post("/api/models/family/connect", json=body).json() == content
        assert error_of(service.post("/api/models/family/connect", json=body | {"first": "aada"}), 404)


# ------------------------------------------------------------------------------------------------- restrictions


def test_answers_are_among_those_chosen_and_keep_their_confidence() -> None:
    everything = {one.entity: one for one in run().answer("cleo", "grandparent", k=100)}
    names = ["eve 2", "ada 2", "hal", "ben 1"]
    found = run().answer("cleo", "grandparent", k=10, among=names)
    assert sorted(one.entity for one in found) == sorted(names)
    assert [one.rank for one in found] == [1, 2, 3, 4]
    for one in found:
        assert one.confidence is not None
        if one.entity in everything:
            assert one.confidence == everything[one.entity].confidence
            assert one.sources == everything[one.entity].sources
    order = [name for name in everything if name in names]
    assert [one.entity for one in found if one.entity in everything] == order


def test_an_unlisted_candidate_is_judged_as_by_a_check() -> None:
    reasoner = Reasoner.load(fused_run())
    query = np.array(reasoner.query("cleo", "grandparent"), np.int32)
    judged = reasoner.fused.rank_with(query, np.arange(reasoner.graph.num_entities))
    assert judged.lists.candidates.tolist() == list(range(reasoner.graph.num_entities))
    (alone,) = reasoner.fused.rank(query[None], wanted=np.array([3], np.int32))
    at = alone.lists.candidates == 3
    assert judged.scores[3] == pytest.approx(alone.scores[at][0])
    assert judged.confidence[3] == pytest.approx(alone.confidence[at][0])


def test_answers_are_not_linked_to_the_question() -> None:
    linked = {entity for _, _, entities in run().graph.neighbours("cleo") for entity in entities}
    for ranking in ("fused", "paths"):
        free = run().answer("cleo", "likes", k=100, ranking=ranking)
        found = run().answer("cleo", "likes", k=100, ranking=ranking, not_linked=True)
        expected = [one.entity for one in free if one.entity not in linked | {"cleo"}]
        assert [one.entity for one in found] == expected != [one.entity for one in free]


def test_types_are_values_of_is_a_or_where_such_entities_occur() -> None:
    graph = make_graph(
        {
            "train": [
                ("austria", "is a", "country"), ("france", "is a", "country"), ("vienna", "is a", "city"),
                ("austria", "borders", "italy"), ("france", "borders", "italy"), ("italy", "borders", "france"),
                ("paris", "capital of", "france"), ("vienna", "capital of", "austria"),
            ],
            "valid": [],
            "test": [],
        }
    )  # fmt: skip
    names = np.array(list(graph.labels.entities))
    found = {kind: set(names[entities_of_type(graph.labels, graph.facts, kind)]) for kind in ("country", "city")}
    assert found == {"country": {"austria", "france", "italy"}, "city": {"vienna", "paris"}}
    with pytest.raises(SettingError, match="no entity is of this type"):
        entities_of_type(graph.labels, graph.facts, "italy")


def test_files_of_candidates_work_for_answers_and_completion(tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("ada 2\nben 2\n")
    content = cli_json("answer", fused_run(), "cleo", "grandparent", "--among", tmp_path / "some.txt")
    assert sorted(one["entity"] for one in content["answers"]) == ["ada 2", "ben 2"]
    with client(Model.load("family", fused_run())) as service:
        body = {"head": "cleo", "relation": "grandparent", "among": ["ada 2", "ben 2"], "k": 5}
        assert service.post("/api/models/family/answer", json=body).json() == content
    table = run().complete(relations=["grandparent"], heads="known", among=["ada 2", "ben 2"], progress=False)
    assert set(table.to_frame()["tail"]) <= {"ada 2", "ben 2"}
    (tmp_path / "some.txt").write_text("ada 2\nbenn 2\n")
    done = CliRunner().invoke(
        app, ["answer", str(fused_run()), "cleo", "likes", "--among", str(tmp_path / "some.txt")]
    )
    assert "some.txt:2: unknown entity 'benn 2'. Nearest: 'ben 2'" in str(done.exception)
    assert isinstance(done.exception, DataError)
    assert restrict(run().graph, run().graph.facts) is None


def test_paths_near_hubs_are_a_sample_that_counts_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a", "r", f"x{i}") for i in range(60)] + [(f"x{i}", "s", f"y{i % 7}") for i in range(60)]
    rows += [(f"y{i}", "t", "b") for i in range(7)]
    graph = squire.Graph.from_triples(rows, holdout=(0, 0))
    a, b = (graph.labels.entity_id(name) for name in ("a", "b"))
    ((pattern, every),) = paths_between(graph.train, a, b).items()
    assert (len(every), stride(graph.train, a)) == (60, 1)
    monkeypatch.setattr(connections, "MIDDLE_EDGES", 50)
    some = paths_between(graph.train, a, b)[pattern]
    assert stride(graph.train, a) == 3
    assert len(some) * 3 == len(every)
    assert set(some) < set(every)
    group = connections.PathGroup(
        "r → s → t", ("r", "s", "t"), 60, 1.0, run().connect("ada", "ben").groups[0].paths, True
    )
    assert "about 60 paths" in repr(connections.Connections("a", "b", (group,), ()))
