"""A hub costs no more than its budget: what is beyond is a sample, and nothing hangs or breaks."""

from __future__ import annotations

import atexit
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from graphs import make_graph
from test_mine import random_graph
from typer.testing import CliRunner

import squire
from squire.cli import app
from squire.graph.adjacency import Adjacency
from squire.graph.graph import Graph
from squire.model.recipe import load_recipe
from squire.ranking import features
from squire.ranking.features import CandidateFeatures, CandidateLists
from squire.ranking.fusion import FusionOptions, fit_fusion
from squire.ranking.networks import NetworkOptions
from squire.rules import application
from squire.rules.application import RuleEngine
from squire.rules.mining import MiningOptions, mine_rules
from squire.rules.rules import Rules
from squire.training.pipeline import fuse_run, new_run

ENTITIES, RELATIONS = 600, 4
NETWORKS = NetworkOptions(width=8, epochs=1, batch_size=256)
SMALL = FusionOptions(folds=3, ranker=NETWORKS, confidence=replace(NETWORKS, batch_size=4096))


def hub_graph(entities: int = ENTITIES) -> Graph:
    """One entity is linked to all others by every relation; the others have a few edges."""
    rng = np.random.default_rng(0)
    facts = [(f"e{i}", f"r{r}", "hub") for i in range(entities) for r in range(RELATIONS)]
    facts += [
        (f"e{h}", f"r{r}", f"e{t}")
        for h, r, t in zip(*rng.integers(0, [[ENTITIES], [RELATIONS], [ENTITIES]], (3, 900)), strict=True)
    ]
    facts = sorted(set(facts))
    held_out = [facts[i] for i in rng.choice(len(facts), 60, replace=False)]
    return make_graph({"train": set(facts) - set(held_out), "valid": held_out[:30], "test": held_out[30:]})


@cache
def hub_run() -> Path:
    """The folder of a run without a model, trained once for all tests. Nothing is added to it."""
    home = tempfile.TemporaryDirectory()
    atexit.register(home.cleanup)
    folder = Path(home.name) / "run"
    with new_run(folder, hub_graph(200), load_recipe("small", ["train.edge_passes=1"])):
        fuse_run(folder, SMALL)
    return folder


def test_a_hub_is_mined_fused_and_asked_about() -> None:
    run = squire.Run(hub_run())
    for question in (("hub", None), ("e1", None)):
        for relation in ("r0", "r3"):
            found = run.answer(question[0], relation, k=5)
            assert all(np.isfinite(answer.confidence or 0) for answer in found)
    assert run.answer(None, "r1", "hub", k=5).num_facts > 180
    assert run.check("e1", "r1", "hub").is_fact


def test_rules_look_at_a_sample_beyond_their_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    train = hub_graph().train
    hub = int(np.argmax(np.diff(train.offsets)))
    engine = RuleEngine(mine_rules(train, MiningOptions(length=2)).rules, train)
    queries = np.array([[hub, relation] for relation in range(2 * RELATIONS)], np.int32)
    every = engine.answer(queries)
    monkeypatch.setattr(application, "BUDGET", 100)  # each rule still may take 1,000 steps
    some = engine.answer(queries)
    assert len(some.answers) <= len(every.answers)
    for query in range(len(queries)):
        assert set(some.answers[some.rows(query)]) <= set(every.answers[every.rows(query)])


def test_features_within_the_budget_are_exact_and_beyond_it_close(monkeypatch: pytest.MonkeyPatch) -> None:
    train = random_graph(300, 3, 6000)
    rules = mine_rules(train, MiningOptions(length=1)).rules
    queries = train.triples[::200, :2].copy()
    exact = CandidateFeatures(train, rules).describe(queries)
    monkeypatch.setattr(features, "STEPS", 10**9)
    monkeypatch.setattr(features, "EDGES", 10**9)
    same = CandidateFeatures(train, rules).describe(queries)
    assert np.array_equal(exact.features, same.features)
    monkeypatch.setattr(features, "STEPS", 1500)
    monkeypatch.setattr(features, "EDGES", 60)
    sampled = CandidateFeatures(train, rules).describe(queries)
    assert np.all(np.isfinite(sampled.features))
    assert not np.array_equal(sampled.offsets, exact.offsets) or not np.array_equal(
        sampled.features, exact.features
    )
    # The votes of a sample have the same expected sum.
    vote = features.COLUMN["vote"]
    totals = [
        np.array([part.features[part.rows(i), vote].sum() for i in range(len(part))]) for part in (exact, sampled)
    ]
    asked = totals[0] > 0
    assert np.sum(totals[1][asked]) == pytest.approx(np.sum(totals[0][asked]), rel=0.15)


@pytest.mark.parametrize(
    ("module", "name", "tiny"),
    [
        (features, "EDGES", 50),
        (features, "VOTERS_HEARD", 20),
        (features, "STEPS", 500),
        (application, "BUDGET", 100),
    ],
)
def test_a_question_is_marked_if_a_budget_made_a_sample_of_its_evidence(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, tiny: int
) -> None:
    train = hub_graph(3 * ENTITIES).train  # a rule may always take 1,000 steps
    rules = mine_rules(train, MiningOptions(length=2)).rules
    hub = int(np.argmax(np.diff(train.offsets)))
    queries = np.array([[hub, RELATIONS], [hub, RELATIONS]], np.int32)  # the second reuses what the first found
    assert not CandidateFeatures(train, rules).describe(queries).is_sampled(0)
    monkeypatch.setattr(module, name, tiny)
    found = CandidateFeatures(train, rules).describe(queries)
    assert found.is_sampled(0)
    assert found.is_sampled(1)
    assert CandidateLists.join([found, found]).take(np.arange(2)).is_sampled(0)


def test_a_question_without_hubs_is_not_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts without a link, of which one has a hub: each question of a block has its own mark."""
    facts = [(i, 0, 0) for i in range(1, 100)] + [(101, 1, 102), (102, 1, 103), (103, 1, 101), (104, 1, 102)]
    train = Adjacency.build(np.array(facts, np.int32), 105, 2)
    monkeypatch.setattr(features, "EDGES", 50)
    found = CandidateFeatures(train, Rules.empty(2)).describe(np.array([[101, 1], [0, 2], [103, 1]], np.int32))
    assert [found.is_sampled(i) for i in range(3)] == [False, True, False]


def test_answers_say_that_their_evidence_is_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    note = "estimated from a sample"
    ask = ["answer", str(hub_run()), "hub", "r0", "-k", "2"]
    for edges, sampled in ((10_000, False), (50, True)):
        monkeypatch.setattr(features, "EDGES", edges)
        run = squire.Run(hub_run())
        found = run.answer("hub", "r0", k=2)
        assert found.sampled == sampled
        assert [one["sampled"] for one in found.as_dict()["answers"]] == [sampled] * 2
        assert (note in repr(found)) == sampled
        assert run.check("hub", "r0", "e1").answer.sampled == sampled
        assert (note in CliRunner().invoke(app, ask).output) == sampled


def test_a_time_limit_is_kept_and_gives_a_fusion() -> None:
    graph = hub_graph(200)
    mined = mine_rules(graph.train, MiningOptions(minutes=1e-4))
    assert not mined.complete
    assert not mined.interrupted
    limited, unlimited = (fit_fusion(graph, replace(SMALL, minutes=minutes)) for minutes in (0.01, None))
    assert limited.info.queries < unlimited.info.queries
    (judged,) = limited.rank(graph.test[:3, :2])
    assert len(judged.scores)


def test_more_time_than_needed_changes_nothing() -> None:
    adjacency: Adjacency = random_graph(60, 4, 500)
    plain, timed = (mine_rules(adjacency, replace(MiningOptions(), minutes=minutes)) for minutes in (None, 60.0))
    assert timed.complete
    assert np.array_equal(plain.rules.support, timed.rules.support)
