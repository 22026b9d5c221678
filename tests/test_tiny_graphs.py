"""Graphs that are too small for most things: each step works, or says why it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import LabelTriple, make_graph
from small_run import TINY

import squire
from squire.errors import SettingError

Splits = dict[str, list[LabelTriple]]
TWO_EPOCHS = [*TINY, "train.epochs=2"]
GRAPHS: dict[str, Splits] = {
    "one entity": {"train": [("a", relation, "a") for relation in "rs"]},
    "one entity, held out": {
        "train": [("a", relation, "a") for relation in "rst"],
        "valid": [("a", "u", "a")],
        "test": [("a", "v", "a")],
    },
    "one fact": {"train": [("a", "r", "b")]},
    "four facts": {"train": [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a"), ("a", "s", "c")]},
    "ten facts": {"train": [(f"e{i}", "rs"[i % 2], f"e{i + 1}") for i in range(9)], "test": [("e0", "r", "e2")]},
    "one relation": {"train": [(f"e{i}", "r", f"e{3 * i % 11}") for i in range(11)], "valid": [("e0", "r", "e5")]},
}

OTHERS = [
    ["model.typed=false", "model.edge_rank=0", "train.sampled_entities=0"],
    ["train.sampled_entities=1", "train.iterate=true"],
]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, []) for name in GRAPHS),
        *((name, settings) for name in ("one entity, held out", "ten facts") for settings in OTHERS),
    ],
)
def test_every_step_works_or_says_why_not(name: str, settings: list[str], tmp_path: Path) -> None:
    graph = make_graph(GRAPHS[name])
    head, relation, _ = GRAPHS[name]["train"][0]
    run = squire.train(graph, tmp_path / "run", settings=[*TWO_EPOCHS, *settings], progress=False)
    assert run.is_trained
    for options in ({}, {"grounded": True}, {"ranking": "paths"}):
        answers = run.answer(head, relation, **options)
        assert all(answer.entity in set(graph.labels.entities) for answer in answers)
    for split in ("valid", "test"):
        if graph.triples(split).size:
            assert 0 < run.evaluate(split=split, progress=False).mrr <= 1
        else:
            with pytest.raises(SettingError, match=f"made has no {split} triples"):
                run.evaluate(split=split, progress=False)
    assert len(run.complete(heads="all", progress=False)) >= 0
    rules = squire.mine(graph, progress=False)
    assert all(0 <= answer.score <= 1 for answer in rules.answer(head, relation))
    if not run.is_fused:
        for paths in (False, True):
            with pytest.raises(SettingError, match="too small for a fusion"):
                squire.fuse(run, edges=paths, progress=False)
