"""What sizes cost is measured phase by phase, each in a process of its own, and never twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from graphs import facts_of
from matplotlib.figure import Figure
from small_run import TINY, family
from study_cases import study
from test_plots import PNG, drawn

from squire.core.run_files import GRAPH, METRICS, TRIES
from squire.errors import SettingError, SquireError
from squire.evaluation.baselines import rank_by_frequency, rank_by_rules
from squire.evaluation.paths import rank_by_paths
from squire.evaluation.queries import QuerySet
from squire.graph.graph import SPLITS, Graph
from squire.graph.loading import load_graph
from squire.model.recipe import Recipe, load_recipe, load_settings
from squire.rules.application import RuleEngine
from squire.rules.mining import MiningOptions, mine_rules
from squire.search.options import DecodingOptions
from squire.search.trained import TrainedModel
from squire.studies.costs import Pace, Seconds
from squire.studies.efficiency_study import JOURNAL, EfficiencyResult, Measurement, SizeResult
from squire.studies.graphs import discovery_order, sample_graph, synthetic_graph
from squire.training.preparation import prepare
from squire.training.trainer import Trainer, TrainingState

__all__ = ["drawn"]  # a fixture
SETTINGS = [*TINY, "train.epochs=3", "train.valid_queries=2"]
OPTIONS = [word for setting in SETTINGS for word in ("--set", setting)]
MINUTES = 600.0  # more than any machine needs


def silent(*_: object) -> None:
    pass


def a_recipe(*more: str) -> Recipe:
    return load_recipe("small", [*SETTINGS, *more])


def begun(
    folder: Path, graph: Graph | None = None, recipe: Recipe | None = None, minutes: float = MINUTES
) -> Measurement:
    return Measurement.begin(folder, {"made": 1}, graph or family(), recipe or a_recipe(), minutes, questions=5)


# ------------------------------------------------------------------------------------------------ made graphs


def test_a_made_graph_has_its_size_and_is_the_same_again() -> None:
    graph = synthetic_graph(4000, seed=1)
    assert graph == synthetic_graph(4000, seed=1)
    assert graph != synthetic_graph(4000, seed=2)
    assert 0.9 * 4000 < len(graph.train.triples) <= 4000
    assert graph.num_entities == 400
    held_out = facts_of(graph, "valid") | facts_of(graph, "test")
    assert not held_out & facts_of(graph, "train")
    assert len(held_out) == len(graph.valid) + len(graph.test) > 50
    with pytest.raises(SettingError, match="synthetic=50: expected 200 facts or more"):
        synthetic_graph(50)


def test_rules_are_planted_that_answer_what_is_held_out() -> None:
    graph = synthetic_graph(4000)
    rules = mine_rules(graph.train, MiningOptions(constants=False)).rules
    query_set = QuerySet.from_graph(graph, "valid")
    by_rules = rank_by_rules(graph, query_set, RuleEngine(rules, graph.train)).metrics()
    by_frequency = rank_by_frequency(graph, query_set).metrics()
    assert by_rules.mrr > 0.5
    assert by_frequency.mrr < 0.2


# ---------------------------------------------------------------------------------------------------- samples


def test_samples_grow_and_hold_all_facts_among_their_entities() -> None:
    graph = load_graph("world")
    smaller: set[str] = set()
    for share in (0.1, 0.4, 1.0):
        sample = sample_graph(graph, share, seed=3)
        entities, relations = set(sample.labels.entities), set(sample.labels.relations)
        assert smaller < entities
        smaller = entities
        assert len(sample.train.triples) >= share * len(graph.train.triples)
        assert facts_of(sample, "train") == {
            fact for fact in facts_of(graph, "train") if fact[0] in entities and fact[2] in entities
        }
        for split in SPLITS[1:]:
            assert facts_of(sample, split) == {
                (h, r, t)
                for h, r, t in facts_of(graph, split)
                if h in entities and t in entities and r in relations
            }
    assert facts_of(sample, "train") == facts_of(graph, "train")


def test_a_sample_is_about_as_dense_as_the_graph_and_hangs_together() -> None:
    graph = load_graph("world")
    whole = len(graph.train.triples) / graph.num_entities
    sample = sample_graph(graph, 0.25)
    assert whole / 1.6 < len(sample.train.triples) / sample.num_entities < whole * 1.6
    reached, left = {0}, [0]
    while left:
        new = set(sample.train.edges(left.pop())[1].tolist()) - reached
        reached |= new
        left += new
    assert len(reached) == sample.num_entities
    some = np.random.default_rng(0).choice(graph.train.triples, len(sample.train.triples), replace=False)
    assert len(some) / len(np.unique(some[:, ::2])) < 0.8 * whole  # what random facts would have been


def test_everything_is_discovered_once_by_an_edge_from_before_and_what_has_none_last() -> None:
    graph = load_graph("world")
    edges = graph.train
    place = discovery_order(edges, np.random.default_rng(0))
    assert sorted(place.tolist()) == list(range(graph.num_entities))
    starts = 0
    for entity in range(graph.num_entities):
        neighbours = edges.edges(entity)[1]
        starts += len(neighbours) > 0 and not (place[neighbours] < place[entity]).any()
    assert starts == 1  # world is one piece
    lonely = np.diff(edges.offsets) == 0
    if lonely.any():
        assert place[lonely].min() > place[~lonely].max()
    with pytest.raises(SettingError, match=r"sizes=1\.5: expected shares above 0 and at most 1"):
        sample_graph(graph, 1.5)


# -------------------------------------------------------------------------------------------------- measuring


def test_a_case_is_the_run_that_squire_train_makes_and_notes_each_phase(tmp_path: Path) -> None:
    case = begun(tmp_path / "case")
    case.measure(silent)
    assert case.done
    assert [note["phase"] for note in case.entries] == ["prepared", "trained", "block", "asked"]
    graph, recipe = load_settings(case.folder)
    other = tmp_path / "other"
    other.mkdir()
    trainer = Trainer(graph, recipe, prepare(graph, recipe, other, silent), other)
    trainer.fit(silent)
    assert (other / TRIES).read_bytes() == (case.folder / TRIES).read_bytes()

    def losses(folder: Path) -> list[float]:
        lines = map(json.loads, (folder / METRICS).read_text().splitlines())
        return [line["loss"] for line in lines if "loss" in line]

    assert losses(case.folder) == losses(other)
    prepared, trained, _, query_set = case.entries
    for phase in ("mining rules", "sampling paths", "prefix trees"):
        assert prepared[phase]["wall"] > 0
        assert prepared[phase]["cpu"] > 0
    assert prepared["graph"]["facts"] == len(graph.train.triples)
    assert (trained["step"], trained["finished"]) == (trainer.step, True)
    ours, frequency = query_set["rows"]
    run = TrainedModel.load(case.folder)
    asked_for = QuerySet.from_graph(graph, "valid", filter_splits=("train", "valid"))
    decoding = DecodingOptions.from_recipe(recipe, run.known_edges)
    assert ours["mrr"] == rank_by_paths(run.decoder, graph, asked_for, decoding, 0).metrics().mrr
    assert "split:valid" in ours["signature"]
    assert frequency["mrr"] == rank_by_frequency(graph, QuerySet.from_graph(graph, "valid")).metrics().mrr
    before = (case.folder / JOURNAL).read_text()
    Measurement(case.folder).measure(silent)
    assert (case.folder / JOURNAL).read_text() == before  # nothing was measured again


def test_interrupted_it_trains_on_for_the_minutes_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = begun(tmp_path)

    def stop(what: str, done: int, total: int | None) -> None:
        if (what, done) == ("training", 4):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        case.measure(stop)
    trained = case.last("trained")
    assert trained is not None
    assert not trained["finished"]
    assert not case.done
    limits: list[float | None] = []
    fit = Trainer.fit

    def remember(self: Trainer, watch: object, minutes: float | None = None, *more: object) -> bool:
        limits.append(minutes)
        return fit(self, watch, minutes, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Trainer, "fit", remember)
    Measurement(tmp_path).measure(silent)
    assert limits == [pytest.approx(600 - trained["seconds"] / 60)]
    again = Measurement(tmp_path)
    assert Counter(note["phase"] for note in again.entries) == {
        "prepared": 1,
        "trained": 2,
        "block": 1,
        "asked": 1,
    }
    row = SizeResult.from_measurement("made", "small", again)
    assert row.finished
    epoch, whole = row.seconds["an epoch"], row.seconds["the whole training"]
    assert epoch is not None
    assert whole == pytest.approx(3 * epoch)
    assert row.trained == sum(note["seconds"] for note in again.entries if note["phase"] == "trained")


def test_questions_that_are_noted_are_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squire.search.decoding.HYPOTHESES_AT_ONCE", 2 * 16)  # blocks of two questions
    graph = synthetic_graph(2000)
    whole = begun(tmp_path / "whole", graph)
    whole.measure(silent)
    parts = begun(tmp_path / "parts", graph)

    def stop(what: str, done: int, total: int | None) -> None:
        if (what, done) == ("answering", 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parts.measure(stop)
    assert not parts.done
    parts.measure(silent)
    blocks = [note["ranks"] for note in parts.entries if note["phase"] == "block"]
    assert [len(ranks) for ranks in blocks] == [2, 2, 1]
    first, second = whole.last("asked"), parts.last("asked")
    assert first is not None
    assert second is not None
    assert first["rows"] == second["rows"]


def test_another_recipe_or_limit_is_refused_by_name(tmp_path: Path) -> None:
    begun(tmp_path)
    with pytest.raises(SettingError, match=r"another study .*model\.dim is 16 there and 32 here"):
        begun(tmp_path, recipe=a_recipe("model.dim=32"))
    with pytest.raises(SettingError, match=r"another study .*minutes is 600.0 there and 2 here"):
        begun(tmp_path, minutes=2)


def test_without_steps_or_valid_facts_what_is_unknown_stays_empty(tmp_path: Path) -> None:
    case = begun(tmp_path, graph=family(valid=False), minutes=0)
    case.measure(silent)
    row = SizeResult.from_measurement("made", "small", case)
    known = {"mining rules", "sampling paths", "prefix trees"}
    assert {phase for phase, seconds in row.seconds.items() if seconds is not None} == known
    assert row.ours is None
    assert "made" in EfficiencyResult([row]).markdown()


def a_moment(epoch: int, step: int) -> TrainingState:
    return TrainingState(step, 8, 1, epoch, 1.0, 100.0 * step, None)


def test_pace_leaves_out_what_is_between_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs of three steps, two seconds each; a validation of a minute between them; then a step more."""
    now = iter([10.0, 12.0, 14.0, 76.0, 78.0, 80.0, 140.0])
    busy = iter([1.0, 2.0, 3.0, 40.0, 41.0, 42.0, 80.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    monkeypatch.setattr(time, "process_time", lambda: next(busy))
    pace = Pace()
    for step, epoch in enumerate([0, 0, 0, 1, 1, 1, 2], start=1):
        pace.record(a_moment(epoch, step))
    assert pace.step() == Seconds(2.0, 1.0)
    assert pace.epoch(3) == Seconds(6.0, 3.0)
    assert pace.epoch(4) is None
    assert pace.nodes_per_second() == 450.0
    assert (Pace().step(), Pace().epoch(3), Pace().nodes_per_second()) == (None, None, None)


def test_the_peak_of_a_process_is_its_own() -> None:
    """Neither that of the process that started it, nor less than what it has held."""
    ballast = np.ones(400_000_000 // 8)

    def child(code: str) -> float:
        script = f"from squire.studies.costs import peak_mb\n{code}\nprint(peak_mb())"
        return float(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout)

    bare = child("")
    assert bare < 300
    assert child("x = b'1' * 200_000_000") >= bare + 190
    assert len(ballast)


# ------------------------------------------------------------------------------------------------ the command


def test_the_command_measures_every_size_in_a_process_and_draws_them(tmp_path: Path, drawn: list[Figure]) -> None:
    family().save(tmp_path / "family.graph")
    command = [tmp_path / "family.graph", "--sizes", "1", "--synthetic", "300", "--recipe", "small", *OPTIONS]
    folder = tmp_path / "out"
    command += ["--questions", "5", "--minutes", "600"]
    result = study("efficiency", *command, "--out", folder)
    assert result.exit_code == 0, result.output
    rows = json.loads((folder / "efficiency.json").read_text())["rows"]
    assert [(row["kind"], row["name"]) for row in rows] == [("made", "made"), ("synthetic", "synthetic-300")]
    assert all(row["peak_mb"] > 50 for row in rows)
    table = (folder / "efficiency.md").read_text()
    for row in rows:
        assert f"| {row['name']} |" in table
        for figures in (row["ours"], row["frequency"]):
            assert f"`{figures['signature']}`" in table
    assert (folder / "efficiency.png").read_bytes().startswith(PNG)
    seconds, memory, quality = drawn[0].axes
    assert (seconds.get_xscale(), seconds.get_yscale(), memory.get_yscale()) == ("log", "log", "log")
    assert [axes.get_ylabel().split()[0] for axes in (seconds, memory, quality)] == ["seconds", "megabytes", "MRR"]
    assert {axes.get_xlabel() for axes in (seconds, memory, quality)} == {"facts in train"}
    (ours,) = (line for line in quality.lines if line.get_label() == "paths, synthetic")
    assert np.array(ours.get_xydata()).tolist() == [[rows[1]["facts"], rows[1]["ours"]["mrr"]]]
    notes = (folder / "made" / JOURNAL).read_text()
    again = study("efficiency", *command, "--out", folder, "--json")
    assert json.loads(again.stdout)["rows"] == rows
    assert (folder / "made" / JOURNAL).read_text() == notes


def test_a_process_that_fails_is_told_and_bad_sizes_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    case = folder / "synthetic-300"
    command = ["efficiency", "--synthetic", "300", "--recipe", "small", *OPTIONS, "--out", folder]
    case.mkdir(parents=True)
    (case / "recipe.json").write_text("{}")
    (case / GRAPH).write_text("no graph")
    failed = study(*command).exception
    assert isinstance(failed, SquireError)
    assert "measuring ended with code 1" in str(failed)
    failed = study("efficiency", "--synthetic", "many", "--out", folder).exception
    assert isinstance(failed, SettingError)
    assert "--synthetic many: expected numbers separated by commas" in str(failed)


def test_ctrl_c_waits_for_the_process_and_is_told_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terminal interrupts both; the process must have its time to save."""
    saved: list[str] = []

    def saves_slowly(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        signal.raise_signal(signal.SIGINT)
        saved.append(command[-1])
        return subprocess.CompletedProcess(command, 130)

    monkeypatch.setattr(subprocess, "run", saves_slowly)
    done = study("efficiency", "--synthetic", "300", "--out", tmp_path)
    assert done.exit_code == 130
    assert "run the same command to continue" in done.stderr
    assert saved == [str(tmp_path / "synthetic-300")]
