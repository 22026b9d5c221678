"""A fusion that also weighs the model's opinion: of hidden facts it comes from models that have not seen them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_run import copy_of_run, family, small_run
from typer.testing import CliRunner

from squire.cli import app
from squire.errors import CheckpointError, SettingError
from squire.ranking.features import CandidateFeatures
from squire.ranking.folds import hide
from squire.ranking.fusion import load_fusion
from squire.ranking.path_features import BEAM, PRUNE, TABLE, UNREACHED, PathScorer
from squire.reasoning.reasoner import Reasoner
from squire.rules.rules import Rules
from squire.search.decoding import decode
from squire.search.options import DecodingOptions
from squire.search.trained import TrainedModel
from squire.training.pipeline import SHADOWS, shadow_scorers


def command(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.exception or result.output
    return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with such a fusion."""
    folder = copy_of_run(tmp_path_factory.mktemp("shadowed") / "run", "train.epochs=5")
    command("fuse", folder, "--folds", 2, "--paths")
    return folder


def test_columns_say_what_the_search_says() -> None:
    run = TrainedModel.load(small_run())
    evidence = CandidateFeatures(run.graph.train, Rules.empty(run.graph.num_relations), scorers=[PathScorer(run)])
    queries = np.array([[head, relation] for head in range(4) for relation in range(3)], np.int32)
    (lists,) = evidence.stream(queries)
    columns = {feature.name: lists.features[:, i] for i, feature in enumerate(evidence.table)}
    decoding = DecodingOptions.from_recipe(run.recipe, run.known_edges, beam=BEAM, aggregate="sum", prune=PRUNE)
    found = [
        {int(ranked.entity[i]): (ranked, i) for i in range(ranked.rows(n).start, ranked.rows(n).stop)}
        for ranked in decode(run.decoder, queries, decoding)
        for n in range(len(ranked))
    ]
    reached = 0
    for at, (query, entity) in enumerate(zip(lists.query.tolist(), lists.candidates.tolist(), strict=True)):
        if entity not in found[query]:
            assert columns["path sum"][at] == pytest.approx(UNREACHED)
            assert columns["path count"][at] == 0
            continue
        ranked, i = found[query][entity]
        reached += 1
        assert np.exp(columns["path sum"][at]) == pytest.approx(ranked.score[i], rel=1e-3)
        assert np.expm1(columns["path count"][at]) == pytest.approx(np.diff(ranked.path_offsets)[i], rel=1e-4)
        reasons = ranked.score[i] * (1 - ranked.asserted[i])
        assert np.exp(columns["path reasons"][at]) == pytest.approx(max(reasons, 1e-9), rel=1e-3)
    assert reached > 5
    assert np.all(columns["path edge"] <= 0)


def test_a_shadow_has_not_seen_what_is_hidden(folder: Path) -> None:
    graph = family()
    shadows = [TrainedModel.load(shadow) for shadow in sorted((folder / SHADOWS).iterdir())]
    parts = list(hide(graph.train, 2, 0, False))
    assert {shadow.graph.train.num_edges for shadow in shadows} == {rest.num_edges for rest, _ in parts}
    for rest, hidden in parts:
        (shadow,) = (one for one in shadows if np.array_equal(one.graph.train.triples, rest.triples))
        assert len(hidden)
        assert not shadow.graph.train.contains_each(*hidden.T).any()
        assert shadow.recipe.train.epochs == 5


def test_a_shadow_that_is_trained_is_not_trained_again(folder: Path) -> None:
    run = TrainedModel.load(folder)
    before = {file: file.read_bytes() for file in (folder / SHADOWS).glob("*/metrics.jsonl")}
    make = shadow_scorers(run, lambda *_: None)
    for rest, _ in hide(run.graph.train, 2, 0, False):
        make(rest)
    assert {file: file.read_bytes() for file in before} == before


def test_the_fusion_weighs_paths_and_says_so(folder: Path) -> None:
    reasoner = Reasoner.load(folder)
    assert reasoner.fusion
    assert reasoner.fusion.features.table[-len(TABLE) :] == TABLE
    answer = reasoner.answer("cleo", "grandparent", k=1)[0]
    assert "paths" in {source.name for source in answer.sources}
    content = json.loads(command("evaluate", folder, "--json"))
    assert "method:fused" in content["rows"][0]["signature"]
    assert sum(content["evidence"].values()) == pytest.approx(1)


def test_without_its_model_such_a_fusion_is_refused(folder: Path) -> None:
    with pytest.raises(
        CheckpointError, match="was fitted to other features; now there are those without path best, path count"
    ):
        load_fusion(folder, family())


def test_with_another_model_such_a_fusion_is_refused(folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "run"
    shutil.copytree(folder, again)
    other = copy_of_run(tmp_path / "other", "train.epochs=6")
    for name in ("best.safetensors", "last.safetensors"):
        shutil.copy(other / name, again)
    with pytest.raises(CheckpointError, match=r"was fitted with another model\. Run `squire fuse` again\."):
        Reasoner.load(again)
    command("fuse", again)  # without the model's scores, it does not matter
    shutil.copy(folder / "best.safetensors", again)
    Reasoner.load(again)


def test_paths_need_a_model(tmp_path: Path) -> None:
    family().save(tmp_path / "family.graph")
    command("train", tmp_path / "family.graph", "--out", tmp_path / "run", "--no-model", "--no-fuse")
    result = CliRunner().invoke(app, ["fuse", str(tmp_path / "run"), "--paths"])
    assert isinstance(result.exception, SettingError)
    assert "has no model. Run `squire train" in str(result.exception)
