"""A run on another graph: the same relations, entities that it has never seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs import make_graph
from service_cases import cli_json
from small_run import PREFIXES, family, fused_run

import squire
from squire.errors import SettingError
from squire.evaluation.inductive import with_relations
from squire.graph.graph import SPLITS, Graph


def renamed(prefix: str, *, without: str = "") -> Graph:
    """The family under other names, without the facts of one relation."""
    splits = {
        split: [
            (prefix + head, relation, prefix + tail)
            for head, relation, tail, _ in family().to_frame(split).itertuples(index=False)
            if relation != without
        ]
        for split in SPLITS
    }
    return make_graph(splits, PREFIXES)


def test_names_do_not_matter_but_all_entities_of_the_other_graph_compete() -> None:
    run = squire.Run(fused_run())
    ours = run.evaluate(graph=family(), progress=False)
    theirs = run.evaluate(graph=renamed("x "), progress=False)  # one letter is no word
    assert [row.signature.method for row in theirs.rows] == ["fused", "rules+frequency", "frequency"]
    for one, other in zip(ours.rows, theirs.rows, strict=True):
        assert (one.mrr, one.hits10, one.queries) == (other.mrr, other.hits10, other.queries)
    assert theirs.rows[0].queries == len(family().test)
    assert "model" not in theirs.rows[0].signature.aggregation


def test_relations_have_the_ids_of_the_training() -> None:
    other = renamed("y ", without="grandparent")  # now another relation has its id
    own = with_relations(replace(other, test=other.train.triples[:3]), family().labels.relations)
    for triple in own.train.triples[:5].tolist():
        assert own.labels.relation(triple[1]) in ("likes", "ex:parent")
    assert np.array_equal(own.train.triples[:, [0, 2]], other.train.triples[:, [0, 2]])


def test_the_command_evaluates_another_graph(tmp_path: object) -> None:
    file = f"{tmp_path}/other.graph"
    renamed("z ").save(file)
    content = cli_json("evaluate", fused_run(), "--graph", file)
    assert content["rows"][0]["mrr"] == squire.Run(fused_run()).evaluate(graph=file, progress=False).mrr
    assert not [name for name in content if name == "recipe"]


def test_what_cannot_be_asked_is_refused() -> None:
    run = squire.Run(fused_run())
    strange = Graph.from_triples([("a", "hates", "b")], test=[("b", "hates", "a")])
    with pytest.raises(SettingError, match="trained without its relations 'hates'"):
        run.evaluate(graph=strange, progress=False)
    with pytest.raises(SettingError, match="a model knows the entities of its training only"):
        run.evaluate(graph=renamed("x "), ranking="paths", progress=False)
