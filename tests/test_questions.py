"""Which questions are asked: by heads that may have a relation, or by the lines of a file."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from complete_cases import a_reasoner, make_run
from graphs import make_graph, write
from hypothesis import given
from hypothesis import strategies as st

from squire.completion.questions import FileQuestions, HeadQuestions
from squire.errors import DataError, SettingError
from squire.graph.adjacency import Adjacency
from squire.ranking.context import Heads, heads_of

KINDS: list[Heads] = ["known", "typical", "all"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run")


def test_typical_heads_of_a_family() -> None:
    graph = make_graph({"train": [
        ("ann", "works at", "x"), ("bob", "works at", "x"), ("cid", "works at", "y"),  # two of three have a boss
        ("ann", "boss", "dot"), ("bob", "boss", "dot"),
        ("ann", "owns", "e"), ("f", "owns", "e"), ("g", "owns", "e"),  # one of three
        ("z", "likes", "ann"), ("z", "likes", "h"),  # of the liked, half have a boss
    ]})  # fmt: skip
    boss = graph.labels.relation_id("boss")
    known, typical = (heads_of(graph.train, boss, kind) for kind in KINDS[:2])
    assert [graph.labels.entities[i] for i in known] == ["ann", "bob"]
    assert [graph.labels.entities[i] for i in typical] == ["ann", "bob", "cid", "h"]
    assert len(heads_of(graph.train, boss, "all")) == graph.num_entities


triples = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3), st.integers(0, 7)), max_size=25)


def adjacency(facts: list[tuple[int, int, int]]) -> Adjacency:
    return Adjacency.build(np.array(facts, np.int32).reshape(-1, 3), 8, 4)


@given(triples, st.integers(0, 3))
def test_typical_heads_are_those_that_a_count_by_hand_finds(
    facts: list[tuple[int, int, int]], wanted: int
) -> None:
    having: dict[int, set[int]] = {r: set() for r in range(8)}
    for head, relation, tail in facts:
        having[relation].add(head)
        having[relation + 4].add(tail)
    likely = [who for who in having.values() if who and len(who & having[wanted]) >= 0.5 * len(who)]
    assert set(heads_of(adjacency(facts), wanted, "typical").tolist()) == set().union(*likely)


@given(triples, st.sampled_from(KINDS), st.integers(1, 9))
def test_questions_are_the_same_however_they_are_cut(
    facts: list[tuple[int, int, int]], heads: Heads, part: int
) -> None:
    graph = adjacency([*facts, (0, 1, 2)])
    questions = HeadQuestions(graph, [3, 0, 1, 2, 1], heads)
    cut = [questions.between(i, min(i + part, len(questions))) for i in range(0, len(questions), part)]
    expected = [[h, r] for r in range(4) for h in heads_of(graph, r, heads)]
    assert np.concatenate(cut).tolist() == expected


def test_a_billion_questions_take_no_memory() -> None:
    graph = Adjacency.build(np.array([[0, 0, 1]], np.int32), 10**6, 1000)
    tracemalloc.start()
    questions = HeadQuestions(graph, range(1000), "all")
    assert len(questions) == 10**9
    assert questions.between(123_999_999, 124_000_001).tolist() == [[999_999, 123], [0, 124]]
    assert tracemalloc.get_traced_memory()[1] < 100e6
    tracemalloc.stop()


def test_there_must_be_something_to_ask() -> None:
    with pytest.raises(SettingError, match=r"heads='known': no entity has such a relation. Use heads='all'"):
        HeadQuestions(adjacency([(0, 0, 1)]), [2], "known")


def test_a_file_asks_for_tails_and_for_heads(run: Path, tmp_path: Path) -> None:
    reasoner = a_reasoner(run)
    lines = "\ufeffp00\tknows\r\n\n?\tlikes\tp02\np01\tfoaf:name\t?\n_:blank\tlikes"
    labels, n = reasoner.labels, reasoner.graph.num_relations
    knows, likes = labels.relation_id("knows"), labels.relation_id("likes")
    expected = [
        [labels.entity_id("p00"), knows],
        [labels.entity_id("p02"), likes + n],
        [labels.entity_id("p01"), labels.relation_id("http://xmlns.com/foaf/0.1/name")],
        [labels.entity_id("_:blank"), likes],
    ]
    for name in ("asked.tsv", "asked.tsv.gz"):
        questions = FileQuestions(write(tmp_path / name, lines), reasoner.query)
        assert questions.between(0, len(questions)).tolist() == expected


def test_lines_that_make_no_sense_are_named_with_the_nearest_that_do(run: Path, tmp_path: Path) -> None:
    file = write(
        tmp_path / "asked.tsv", "p00\tknows\np0O\tknows\np00\tkowns\np00\np00\tknows\tp01\n?\tknows\np99\tx\n"
    )
    with pytest.raises(DataError) as caught:
        FileQuestions(file, a_reasoner(run).query)
    said = str(caught.value).splitlines()
    assert said[0].startswith(f"{file}:2: unknown entity 'p0O'. Nearest: 'p0")
    assert said[1] == f"{file}:3: unknown relation 'kowns'. Nearest: 'knows'."
    assert said[2].startswith(f"{file}:4: 1 columns instead of 2 or 3. Write head, relation")
    assert said[3].startswith(f"{file}:5: give either head or tail")
    assert said[4].startswith(f"{file}:6: give either head or tail")
    assert said[5:] == ["There may be more: the rest was not read."]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\n \n", r"asked.tsv: no question. Write one per line"),
        (b"p00\tknows\n\xff\tknows\n", r"asked.tsv:2: not UTF-8"),
        (None, r"asked.tsv: no such file"),
    ],
)
def test_a_file_that_asks_nothing(run: Path, tmp_path: Path, content: bytes | None, says: str) -> None:
    if content is not None:
        write(tmp_path / "asked.tsv", content)
    with pytest.raises(DataError, match=says):
        FileQuestions(tmp_path / "asked.tsv", a_reasoner(run).query)
