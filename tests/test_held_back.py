"""A fusion that also weighs edge embeddings: by facts that were held back from them, and no others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_run import TINY, copy_of_run, family
from typer.testing import CliRunner

import squire
from squire.cli import app
from squire.core.run_files import LAST
from squire.core.tensors import load_checkpoint
from squire.graph.folds import FOLDS, held_back, hide
from squire.graph.graph import Graph
from squire.model.edges import EdgeEmbedding
from squire.model.recipe import Recipe, has_model, load_recipe
from squire.ranking.edge_features import EdgeScorer
from squire.ranking.features import FEATURES, CandidateFeatures, CandidateLists, absent
from squire.ranking.pooling import PENALTY, fit_pool
from squire.reasoning.reasoner import Reasoner
from squire.rules.rules import Rules
from squire.search.trained import TrainedModel
from squire.training.pipeline import weigh_edges
from squire.training.preparation import prepare
from squire.training.trainer import Trainer, TrainingState

HELD_BACK = ["train.hold_back=true", "model.edge_rank=4"]


def command(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.exception or result.output
    return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose edge embeddings have a say in its fusion."""
    folder = copy_of_run(tmp_path_factory.mktemp("held") / "run", "train.epochs=5", *HELD_BACK)
    command("fuse", folder)
    return folder


def ignore(_: TrainingState) -> None:
    pass


def train(graph: Graph, recipe: Recipe, folder: Path) -> dict[str, np.ndarray]:
    """The weights after training."""
    folder.mkdir()
    assert Trainer(graph, recipe, prepare(graph, recipe, folder, lambda *_: None), folder).fit(ignore)
    return load_checkpoint(folder, LAST).part("model.")


@pytest.mark.parametrize("fresh", ["true", "false"])
def test_what_is_held_back_never_reaches_the_model(tmp_path: Path, fresh: str) -> None:
    """It ends with the weights of a model whose graph never had these facts."""
    graph = family()
    settings = [*TINY, "train.epochs=3", "train.fact_passes=2", "train.sampled_entities=9", f"paths.fresh={fresh}"]
    rest, hidden = held_back(graph)
    assert len(hidden) > 0
    one = train(graph, load_recipe("small", [*settings, *HELD_BACK]), tmp_path / "held")
    nothing = load_recipe("small", [*settings, *HELD_BACK, "train.hold_back=false"])
    two = train(replace(graph, train=rest), nothing, tmp_path / "never")
    three = train(graph, nothing, tmp_path / "all")
    assert all(np.array_equal(array, two[name]) for name, array in one.items())
    assert not all(np.array_equal(array, three[name]) for name, array in one.items())


def test_it_is_the_first_fold_of_a_fusion() -> None:
    graph = family()
    rest, hidden = held_back(graph, seed=3)
    first = next(hide(graph.train, FOLDS, 3))
    assert np.array_equal(rest.triples, first[0].triples)
    assert np.array_equal(hidden, first[1])
    assert not rest.contains_each(*hidden.T).any()


def test_the_column_is_what_the_embeddings_of_the_model_say(folder: Path) -> None:
    run = TrainedModel.load(folder)
    queries = np.array([[head, relation] for head in range(4) for relation in range(3)], np.int32)
    (lists,) = CandidateFeatures(run.graph.train, Rules.empty(run.graph.num_relations)).stream(queries)
    scorer = EdgeScorer.load(folder)
    assert scorer
    assert run.model.edges is not None
    (column,) = scorer.scores(lists).T
    heads, relations = torch.from_numpy(queries.astype(np.int64)).T
    expected = run.model.edges.logits(heads, relations).softmax(1).log().detach().numpy()
    assert column == pytest.approx(expected[lists.query, lists.candidates], abs=1e-4)
    assert column.std() > 0.1


def random_lists(seed: int, lists: int = 60, candidates: int = 8) -> tuple[CandidateLists, np.ndarray]:
    """Lists with one right answer each, of which the first candidate is as good as any."""
    rng = np.random.default_rng(seed)
    offsets = np.arange(lists + 1) * candidates
    right = offsets[:-1] + rng.integers(0, candidates, lists)
    queries, size = np.zeros((lists, 2), np.int32), lists * candidates
    return CandidateLists(
        queries, offsets, np.arange(size, dtype=np.int32), np.zeros((size, 1), np.float32)
    ), right


def test_a_pool_is_the_best_mixture() -> None:
    lists, right = random_lists(0)
    rng = np.random.default_rng(1)
    is_right = np.isin(np.arange(len(lists.candidates)), right)
    scores = 1.5 * is_right + rng.normal(size=len(is_right))
    features = np.stack([is_right + rng.normal(size=len(is_right)), rng.normal(size=len(is_right))], 1)
    scorer = EdgeScorer(EdgeEmbedding(4, 2, 2), "")
    pool = fit_pool(scorer, lists, right, scores, features.astype(np.float32))

    def loss(own: float, weights: np.ndarray) -> float:
        """The slow twin, with the penalty on standardised features."""
        pooled = own * scores + (features - features.mean(0)) @ weights
        each = [
            np.logaddexp.reduce(pooled[lists.rows(i)]) - pooled[answer] for i, answer in enumerate(right.tolist())
        ]
        return float(np.sum(each) + PENALTY * ((own - 1) ** 2 + ((weights * features.std(0)) ** 2).sum()))

    best = loss(pool.own, pool.weights)
    for change in (0.02, -0.02):
        assert loss(pool.own + change, pool.weights) > best
        for column in range(2):
            assert loss(pool.own, pool.weights + change * np.eye(2)[column]) > best
    assert pool.weights[0] > 0.5 > abs(pool.weights[1])


def test_a_few_lists_do_not_turn_the_ranking_over() -> None:
    """Two lists in which the symbolic score is wrong are chance, a hundred are not."""

    def own_weight(count: int) -> float:
        lists, right = random_lists(0, count)
        scores = np.where(np.isin(np.arange(len(lists.candidates)), right), -1.0, 0.0)
        features = np.zeros((len(scores), 2), np.float32)
        return fit_pool(EdgeScorer(EdgeEmbedding(4, 2, 2), ""), lists, right, scores, features).own

    assert 0 < own_weight(2) < 1
    assert own_weight(100) < 0


def test_the_fusion_weighs_the_model_and_says_so(folder: Path) -> None:
    reasoner = Reasoner.load(folder)
    fusion = reasoner.fused
    assert fusion.pool
    query = np.array([reasoner.query("cleo", "grandparent")], np.int32)
    (judged,) = fusion.rank(query)
    (symbolic,) = replace(fusion, pool=None).rank(query)
    assert np.array_equal(judged.symbolic, symbolic.scores)
    model = fusion.pool.scorer.scores(judged.lists)
    assert judged.scores == pytest.approx(
        fusion.pool.own * symbolic.scores + (model - fusion.pool.means) @ fusion.pool.weights
    )
    shares = judged.contributions()
    nothing = np.concatenate(
        [absent(judged.lists.features, FEATURES), np.tile(fusion.pool.means, (len(model), 1)).astype(np.float32)],
        1,
    )
    base = fusion.pool.pooled(
        fusion.ranker.scores(nothing[:, : len(FEATURES)], query[judged.lists.query, 1]),
        nothing[:, len(FEATURES) :],
    )
    assert sum(shares.values()) == pytest.approx(judged.scores - base, abs=1e-5)
    assert "model" in {source.name for source in reasoner.answer("cleo", "grandparent", k=1)[0].sources}
    assert np.array_equal(judged.log_odds, symbolic.log_odds)  # confidence does not depend on the model


def test_a_model_that_has_seen_a_fact_has_no_say_about_it(folder: Path) -> None:
    reasoner = Reasoner.load(folder)
    _, relation, tail = fact = reasoner.graph.train.triples[0].tolist()
    fusion, other = reasoner.without(reasoner.graph.train.triples[:1]).fused, [tail, relation]
    backwards = [tail, relation + reasoner.graph.num_relations]
    for judged in fusion.rank(np.array([fact[:2], backwards, other], np.int32)):
        assert judged.edge_features is not None
        assert fusion.pool
        is_absent = (judged.edge_features == fusion.pool.means.astype(np.float32)).all(axis=1)
        assert [bool(is_absent[judged.lists.rows(i)].all()) for i in range(3)] == [True, True, False]


def test_embeddings_judge_entities_that_were_added(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "run"
    shutil.copytree(folder, own)
    run = squire.Run(own)
    before = run.answer("ada", "likes", k=30)
    new = [("zoe", "likes", "ben"), ("cleo", "likes", "zoe")]
    supposed = run.answer("zoe", "likes", k=5, facts=new)
    run.add(new)
    asked, again = (one.answer("zoe", "likes", k=5) for one in (run, squire.Run(own)))
    assert [(a.entity, a.score) for a in asked] == [(a.entity, a.score) for a in again]
    assert [(a.entity, a.score) for a in asked] == [(a.entity, a.score) for a in supposed]
    judged = {a.entity: {source.name for source in a.sources} for a in run.answer("ada", "likes", k=30)}
    assert "model" in judged["zoe"]  # as an answer
    assert {a.entity for a in before} <= {*judged}


def test_evaluation_shows_both_rankings(folder: Path) -> None:
    content = json.loads(command("evaluate", folder, "--json"))
    methods = [row["signature"].split("method:")[1].split("|")[0] for row in content["rows"]]
    assert methods == ["fused", "paths", "rules+frequency", "frequency"]
    assert sum(content["evidence"].values()) == pytest.approx(1)
    alone = json.loads(command("evaluate", folder, "--json", "--ranking", "fused"))
    assert alone["rows"][0] == content["rows"][0]
    assert "method:paths" not in str(alone["rows"])


def test_other_embeddings_have_no_say(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    again = tmp_path / "run"
    shutil.copytree(folder, again)
    other = copy_of_run(tmp_path / "other", "train.epochs=1", *HELD_BACK, "train.seed=1")
    shutil.copy(other / "edges.safetensors", again)
    with caplog.at_level("WARNING"):
        assert Reasoner.load(again).fused.pool is None
    assert (
        "the edge embeddings have changed since they were weighed, and have no say. Run `squire fuse"
        in caplog.text
    )
    assert weigh_edges(again)
    assert Reasoner.load(again).fused.pool
    assert weigh_edges(again) is None  # nothing to do


@pytest.mark.parametrize(
    ("settings", "options"),
    [(HELD_BACK, ["--no-edges"]), ([*HELD_BACK, "train.hold_back=false"], []), ([HELD_BACK[0]], [])],
)
def test_embeddings_that_are_unwanted_or_have_seen_everything_have_no_say(
    tmp_path: Path, settings: list[str], options: list[str]
) -> None:
    folder = copy_of_run(tmp_path / "run", "train.epochs=1", *settings)
    command("fuse", folder, *options)
    assert Reasoner.load(folder).fused.pool is None


@pytest.fixture
def train_family(tmp_path: Path) -> Callable[..., Path]:
    """Trains a run on the family graph."""

    def make(name: str, *options: str) -> Path:
        family().save(tmp_path / "family.graph")
        settings = [part for key in (*TINY, "train.epochs=2") for part in ("--set", key)]
        command(
            "train", tmp_path / "family.graph", "--out", tmp_path / name, "--recipe", "small", *settings, *options
        )
        return tmp_path / name

    return make


def test_a_fusion_has_embeddings_without_a_model_and_a_model_starts_from_them(
    train_family: Callable[..., Path],
) -> None:
    alone, whole = train_family("alone", "--no-model"), train_family("whole")
    assert not has_model(alone)
    pools = [Reasoner.load(folder).fused.pool for folder in (alone, whole)]
    assert pools[0]
    assert pools[1]
    assert pools[0].scorer.fingerprint == pools[1].scorer.fingerprint
    assert np.array_equal(pools[0].weights, pools[1].weights)
    command("train", "--out", alone, "--resume")
    states = [load_checkpoint(folder, LAST).part("model.") for folder in (alone, whole)]
    assert all(np.array_equal(array, states[1][name]) for name, array in states[0].items())


def test_on_a_large_graph_the_passes_are_left_to_training(
    train_family: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("squire.training.pipeline.EDGE_OPERATIONS", 1.0)
    with caplog.at_level("INFO"):
        folder = train_family("run", "--no-model")
    assert "left to training a model" in caplog.text
    assert Reasoner.load(folder).fused.pool is None
    command("train", "--out", folder, "--resume")
    assert Reasoner.load(folder).fused.pool


def test_too_few_held_back_facts_leave_the_fusion_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = copy_of_run(tmp_path / "run", "train.epochs=1", *HELD_BACK)
    graph = family()
    monkeypatch.setattr("squire.ranking.fusion.held_back", lambda *_: (graph.train, graph.train.triples[:0]))
    with caplog.at_level("WARNING"):
        command("fuse", folder)
    assert "The fusion does not use the edge embeddings." in caplog.text
    assert Reasoner.load(folder).fused.pool is None
