"""Graphs from Python objects, and how they show themselves."""

from __future__ import annotations

import doctest
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from graphs import facts_of

from squire.core import ragged, relations
from squire.errors import DataError, SettingError, UnknownName
from squire.graph import graph as graph_module
from squire.graph import loading
from squire.graph.graph import Graph
from squire.graph.loading import load_graph

FACTS = [("Vienna", "capital of", "Austria"), ("Austria", "borders", "Italy"), ("Rome", "capital of", "Italy")]


class Exported:
    """A table of another library, which offers nothing but Arrow's interface."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def arrow(names: tuple[str, ...] = ("head", "relation", "tail"), order: str = "012") -> pa.Table:
    return pa.table({name: [fact[int(i)] for fact in FACTS] for name, i in zip(names, order, strict=True)})


TABLES: dict[str, Any] = {
    "lists": [list(fact) for fact in FACTS],
    "a generator": (fact for fact in FACTS),
    "an array": np.array(FACTS),
    "arrow": arrow(),
    "arrow, named": arrow(("object", "Subject", "predicate"), "201"),
    "arrow, first three": pa.table({**dict(zip("abc", arrow().columns, strict=True)), "d": [1, 2, 3]}),
    "arrow, dictionaries": pa.table([column.dictionary_encode() for column in arrow().columns], ["x", "y", "z"]),
    "interchange": Exported(arrow()),
    "pandas": pd.DataFrame(FACTS),
    "pandas, named": pd.DataFrame(FACTS, columns=["s", "p", "o"])[["o", "p", "s"]],
    "pandas, categories": pd.DataFrame(FACTS, columns=["s", "p", "o"]).astype("category"),
}


@pytest.mark.parametrize("name", TABLES)
def test_every_kind_of_table_gives_the_same_graph(name: str) -> None:
    graph = Graph.from_triples(TABLES[name], holdout=(0, 0))
    assert facts_of(graph) == set(FACTS)
    assert graph == Graph.from_triples(FACTS, holdout=(0, 0))


def test_polars_frames_are_read() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(FACTS, schema=["head", "relation", "tail"], orient="row")
    assert facts_of(Graph.from_triples(frame, holdout=(0, 0))) == set(FACTS)


def test_splits_that_are_given_are_kept() -> None:
    graph = Graph.from_triples(FACTS[:2], test=FACTS[2:], name="mine")
    assert (graph.name, len(graph.train.triples), len(graph.valid), len(graph.test)) == ("mine", 2, 0, 1)
    assert Graph.from_triples(FACTS[:2], valid=[], test=[]).train == Graph.from_triples(FACTS[:2]).train


def test_the_holdout_divides_as_in_a_file(tmp_path: Any) -> None:
    facts = [(f"e{i % 7}", f"r{i % 2}", f"e{i % 5}") for i in range(70)]
    path = tmp_path / "x.tsv"
    path.write_text("".join("\t".join(fact) + "\n" for fact in facts))
    some: list[dict[str, Any]] = [{}, {"seed": 4}, {"holdout": (0.3, 0.1)}]
    for options in some:
        assert Graph.from_triples(facts, **options) == load_graph(path, **options)
    assert len(Graph.from_triples(facts, holdout=(0.3, 0.1)).valid) > 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "train: no triples"),
        (None, "train: no triples"),
        ([("a", "b")], r"train, row 0: expected \(head, relation, tail\), found \('a', 'b'\)"),
        (["abc"], r"train, row 0: expected \(head, relation, tail\), found 'abc'"),
        ([("a", "r", "b"), 7], r"train, row 1: expected \(head, relation, tail\), found 7"),
        ([("a", "r", "b"), (5, "r", "b")], r"train: head=5 in row 1: labels are text"),
        ([("a", None, "b")], r"train: relation=None in row 0: labels are text"),
        ([("a", "r", "")], r"train: tail='' in row 0: a label cannot be empty"),
        ([("a", "r\0", "b")], r"train: relation='r.x00' in row 0: a label cannot contain a NUL"),
        (pa.table({"h": ["a"], "r": ["r"], "t": ["\0"]}), r"train: tail='.x00' in row 0: a label cannot contain"),
        (
            "world",
            r"expected rows of \(head, relation, tail\) or a table, found str\. To read a file, use load_graph",
        ),
        ({"head": ["a"]}, r"or a table, found dict\.$"),
        (7, r"or a table, found int\."),
        (arrow().select([0, 1]), r"train: its columns are head, relation; expected three different ones"),
        (pa.table({"a": ["x"], "b": ["r"], "c": [5]}), r"train: tail=5 in row 0: labels are text"),
        (pa.table({"a": ["x", ""], "b": ["r", "r"], "c": ["y", "z"]}), r"train: head='' in row 1"),
        (pa.table({"a": ["x", None], "b": ["r", "r"], "c": ["y", "z"]}), r"train: head=None in row 1"),
        (pd.DataFrame({"a": ["x", 3.5], "b": "r", "c": "y"}), r"train: head=3\.5 in row 1: labels are text"),
    ],
)
def test_what_is_no_table_of_labels_is_refused(data: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        Graph.from_triples(data)


@pytest.mark.parametrize("holdout", [(0.5, 0.5), (0.1,), 0.1, "much", (-0.1, 0.1)])
def test_a_wrong_holdout_is_named(holdout: Any) -> None:
    with pytest.raises(SettingError, match=r"holdout=.*expected two shares"):
        Graph.from_triples(FACTS, holdout=holdout)


def test_a_graph_shows_itself() -> None:
    graph = Graph.from_triples([("<a>", "r", "b"), *FACTS], name="<mine>", holdout=(0, 0))
    assert repr(graph) == "Graph '<mine>': 6 entities, 3 relations, 4 train facts, 0 valid, 0 test"
    html = graph._repr_html_()
    assert "&lt;a&gt;" in html
    assert "<a>" not in html
    assert html.count("<tr>") == 5


def test_a_frame_has_every_fact_and_its_split() -> None:
    graph = Graph.from_triples(FACTS[:2], test=FACTS[2:])
    frame = graph.to_frame()
    assert list(frame.columns) == ["head", "relation", "tail", "split"]
    assert {tuple(row) for row in frame.itertuples(index=False)} == {
        *((*fact, "train") for fact in FACTS[:2]),
        *((*fact, "test") for fact in FACTS[2:]),
    }
    assert len(graph.to_frame("test")) == 1
    with pytest.raises(SettingError, match=r"split='tests': expected train, valid or test"):
        graph.to_frame("tests")


def test_without_pandas_a_frame_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SettingError, match=r"to_frame needs pandas .*: pip install pandas"):
        Graph.from_triples(FACTS).to_frame()


def test_neighbours_are_grouped_by_relation() -> None:
    for graph in (Graph.from_triples(FACTS, holdout=(0, 0)), Graph.from_triples(FACTS[:1], FACTS[1:2], FACTS[2:])):
        assert graph.neighbours("Italy") == [("borders", True, ["Austria"]), ("capital of", True, ["Rome"])]
    with pytest.raises(UnknownName, match="Nearest: 'Italy'"):
        graph.neighbours("Itly")


def test_loading_needs_no_torch() -> None:
    code = "import sys; from squire.graph.loading import load_graph; load_graph('world')\n"
    code += "sys.exit(' '.join({'polars', 'torch'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stderr.strip() == ""


@pytest.mark.parametrize("module", [graph_module, loading, relations, ragged])
def test_the_examples_of_the_docstrings_work(module: Any) -> None:
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed
