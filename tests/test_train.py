"""A run can be stopped, killed and resumed at any moment, and ends as if it had not been."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import make_graph
from typer.testing import CliRunner

from squire.cli import app
from squire.core import processes
from squire.core.processes import locked
from squire.core.run_files import BEST, LAST, LOCK, METRICS, RULES
from squire.core.tensors import load_checkpoint
from squire.errors import SettingError, TrainingError
from squire.evaluation.paths import rank_by_paths
from squire.evaluation.queries import QuerySet
from squire.graph.graph import Graph
from squire.model.decoder import TransformerDecoder
from squire.model.recipe import Recipe, load_recipe
from squire.rules.rules import PatternConfidence, Rules
from squire.search.options import DecodingOptions, SearchEdges
from squire.training.preparation import prepare
from squire.training.trainer import Trainer, TrainingState

SMALL = ["model.layers=1", "model.dim=16", "model.feedforward=32", "model.heads=2", "train.epochs=4"]
SMALL += ["train.batch_nodes=128", "train.learning_rate=0.003"]


def a_graph() -> Graph:
    rng = random.Random(0)
    people = [f"p{i}" for i in range(30)]
    train = {(a, "knows", rng.choice(people)) for a in people for _ in range(3)}
    train |= {(b, "known by", a) for a, _, b in train}
    held = sorted(train)[::15]
    return make_graph({"train": train - set(held), "valid": held[::2], "test": held[1::2]})


def a_recipe(*overrides: str) -> Recipe:
    return load_recipe("small", [*SMALL, *overrides])


def a_trainer(folder: Path, *overrides: str) -> Trainer:
    graph, recipe = a_graph(), a_recipe(*overrides)
    return Trainer(graph, recipe, prepare(graph, recipe, folder, lambda *_: None), folder)


def weights_of(folder: Path) -> dict[str, np.ndarray]:
    return load_checkpoint(folder, LAST).part("model.")


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert set(one) == set(other)
    for name, array in one.items():
        assert np.array_equal(array, other[name]), name


def ignore(_: TrainingState) -> None:
    pass


def test_a_stopped_and_resumed_run_ends_bit_for_bit_like_one_that_was_not(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    assert a_trainer(tmp_path / "whole").fit(ignore)

    parts = tmp_path / "parts"
    parts.mkdir()
    trainer = a_trainer(parts)
    assert not trainer.fit(ignore, minutes=0)  # before the first step
    for stop_after in (1, 5, 11):
        trainer = a_trainer(parts)
        trainer.resume()
        assert trainer.step < stop_after

        def interrupt(now: TrainingState, at: int = stop_after) -> None:
            if now.step == at:
                os.kill(os.getpid(), signal.SIGINT)

        assert not trainer.fit(interrupt)
        assert trainer.step == stop_after  # the step was finished, then saved
    trainer = a_trainer(parts)
    trainer.resume()
    assert trainer.fit(ignore)
    assert_same(weights_of(tmp_path / "whole"), weights_of(parts))
    assert (tmp_path / "whole" / METRICS).read_text().count('"mrr"') == 4
    steps = [json.loads(line)["step"] for line in (parts / METRICS).read_text().splitlines() if "loss" in line]
    assert steps == list(range(1, trainer.total_steps + 1))


def test_a_resumed_run_draws_the_same_competing_entities(tmp_path: Path) -> None:
    sampled = ["train.sampled_entities=4", "train.epochs=2"]
    for name in ("whole", "parts", "all"):
        (tmp_path / name).mkdir()
    assert a_trainer(tmp_path / "whole", *sampled).fit(ignore)

    def interrupt(now: TrainingState) -> None:
        if now.step == 5:
            os.kill(os.getpid(), signal.SIGINT)

    assert not a_trainer(tmp_path / "parts", *sampled).fit(interrupt)
    trainer = a_trainer(tmp_path / "parts", *sampled)
    trainer.resume()
    assert trainer.fit(ignore)
    assert_same(weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts"))
    # And they were drawn: where all compete, the weights are others.
    assert a_trainer(tmp_path / "all", "train.epochs=2").fit(ignore)
    one, other = weights_of(tmp_path / "whole"), weights_of(tmp_path / "all")
    assert not np.array_equal(one["embedding.weight"], other["embedding.weight"])


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import test_train, squire.training.trainer as loop
loop.SAVE_SECONDS = 0.0
folder = Path(sys.argv[1])
trainer = test_train.a_trainer(folder)
if any(folder.glob("last*")):
    trainer.resume()
def tell(now):
    print(now.step, flush=True)
trainer.fit(tell)
print("done", flush=True)
"""


def test_kill_9_then_resume_ends_bit_for_bit_the_same(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    a_trainer(tmp_path / "whole").fit(ignore)
    killed = tmp_path / "killed"
    killed.mkdir()
    command = [sys.executable, "-c", KILLED, str(killed), str(Path(__file__).parent)]
    for kill_after in (3, 9, None):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip() == str(kill_after):
                    process.kill()
        assert process.returncode == (0 if kill_after is None else -signal.SIGKILL)
    assert_same(weights_of(tmp_path / "whole"), weights_of(killed))


def test_the_seed_decides_and_another_seed_differs(tmp_path: Path) -> None:
    ends = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / name).mkdir()
        a_trainer(tmp_path / name, f"train.seed={seed}", "train.epochs=1").fit(ignore)
        ends.append(weights_of(tmp_path / name)["embedding.weight"])
    assert np.array_equal(ends[0], ends[1])
    assert not np.array_equal(ends[0], ends[2])


def test_a_loss_that_is_no_number_stops_with_the_step_and_the_last_good_state(tmp_path: Path) -> None:
    trainer = a_trainer(tmp_path)

    def break_it(now: TrainingState) -> None:
        if now.step == 3:
            with torch.no_grad():
                trainer.model.embedding.weight.fill_(float("nan"))

    with pytest.raises(
        TrainingError, match=r"the loss is nan at step 3. The last good checkpoint is .*last.safetensors"
    ):
        trainer.fit(break_it)
    assert np.isfinite(weights_of(tmp_path)["embedding.weight"]).all()


def test_the_best_weights_by_valid_are_kept(tmp_path: Path) -> None:
    trainer = a_trainer(tmp_path)
    trainer.fit(ignore)
    best = load_checkpoint(tmp_path, BEST)
    logged = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines() if "valid" in line]
    assert best.state["best_mrr"] == trainer.best_mrr == max(line["valid"]["mrr"] for line in logged)
    trainer.model.load_state_dict({k: torch.from_numpy(v) for k, v in best.part("model.").items()})
    query_set = QuerySet.from_graph(trainer.graph, "valid", filter_splits=("train", "valid"))
    patterns = PatternConfidence.from_rules(Rules.load(tmp_path / RULES))
    known = SearchEdges(trainer.graph.train)
    decoding = DecodingOptions.from_recipe(trainer.recipe, known, beam=32, patterns=patterns)
    again = rank_by_paths(TransformerDecoder(trainer.model), trainer.graph, query_set, decoding, seed=0)
    assert again.metrics().mrr == trainer.best_mrr
    assert "made|split:valid|side:tail|method:paths|filter:train+valid|" in logged[0]["valid"]["signature"]


def test_test_triples_change_neither_weights_nor_selection(tmp_path: Path) -> None:
    ends = []
    for name, test in (("with", None), ("without", [])):
        folder = tmp_path / name
        folder.mkdir()
        graph, recipe = a_graph(), a_recipe()
        if test is not None:
            graph = Graph(graph.name, graph.labels, graph.train, graph.valid, graph.test[:0])
        trainer = Trainer(graph, recipe, prepare(graph, recipe, folder, lambda *_: None), folder)
        trainer.fit(ignore)
        ends.append((load_checkpoint(folder, BEST).part("model."), trainer.best_mrr))
    assert_same(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]


def test_training_works_off_the_main_thread(tmp_path: Path) -> None:
    done: list[bool] = []
    trainer = a_trainer(tmp_path, "train.epochs=1")
    thread = threading.Thread(target=lambda: done.append(trainer.fit(ignore)))
    thread.start()
    thread.join()
    assert done == [True]


def test_a_checkpoint_holds_no_random_state_and_what_is_drawn_meanwhile_changes_nothing(tmp_path: Path) -> None:
    ends = []
    for name in ("calm", "drawing"):
        (tmp_path / name).mkdir()

        def draw(now: TrainingState, name: str = name) -> None:
            if name == "drawing":
                torch.rand(now.step)

        a_trainer(tmp_path / name, "train.epochs=1").fit(draw)
        ends.append(load_checkpoint(tmp_path / name, LAST))
    assert_same(ends[0].part("model."), ends[1].part("model."))
    assert {name.partition(".")[0] for name in ends[0].arrays} == {"model", "optimizer"}
    assert "random" not in ends[0].state


def test_two_cannot_train_in_one_folder_at_once(facts: Path, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    out = tmp_path / "run"
    command = ["train", str(facts), "--out", str(out), "--no-fuse"]
    sets = [part for key in SMALL for part in ("--set", key)]
    runner = CliRunner()
    with locked(out):
        for more in ([], sets):
            result = runner.invoke(app, [*command, *more])
            assert isinstance(result.exception, SettingError)
            assert f"{out}: another process is training there." in str(result.exception)
        assert [file.name for file in out.iterdir()] == [LOCK]
    assert runner.invoke(app, [*command, *sets, "--minutes", "0"]).exit_code == 0  # the file alone is no hindrance
    with locked(out):
        result = runner.invoke(app, [*command, "--resume"])
    assert "another process is training there" in str(result.exception)
    assert runner.invoke(app, [*command, "--resume"]).exit_code == 0


def test_a_file_system_without_locks_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path), locked(tmp_path):
        pass
    monkeypatch.setattr(processes, "fcntl", None)  # Windows
    with locked(tmp_path), locked(tmp_path):
        pass


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    file = tmp_path / "facts.tsv"
    file.write_text("".join(f"a{i % 7}\tr{i % 2}\tb{i % 5}\n" for i in range(35)))
    return file


def test_the_command_trains_stops_and_resumes(facts: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    sets = [part for key in SMALL for part in ("--set", key)]
    runner = CliRunner()
    first = runner.invoke(app, ["train", str(facts), "--out", str(out), *sets, "--minutes", "0"])
    assert first.exit_code == 0, first.output
    assert "recipe small" in first.output
    assert "--resume" in first.output
    again = runner.invoke(app, ["train", str(facts), "--out", str(out), *sets])
    assert isinstance(again.exception, SettingError)
    assert "not empty" in str(again.exception)
    last = runner.invoke(app, ["train", str(facts), "--out", str(out), "--resume"])
    assert last.exit_code == 0, last.output
    assert "trained:" in last.output
    names = {file.name for file in out.iterdir()}
    assert {"graph.graph", "recipe.json", "rules.safetensors", "tries.safetensors", "metrics.jsonl"} <= names


def test_a_model_that_does_not_fit_into_memory_is_refused(facts: Path, tmp_path: Path) -> None:
    for size, words in (("model.dim=100000000", "expected 1 to 16,384"), ("model.layers=100", "this machine has")):
        command = ["train", str(facts), "--out", str(tmp_path / "run"), "--set", "model.feedforward=65536"]
        result = CliRunner().invoke(app, [*command, "--set", "model.dim=16384", "--set", size])
        assert isinstance(result.exception, SettingError)
        assert words in str(result.exception)
        assert not (tmp_path / "run").exists()


def test_there_must_be_a_run_to_resume(facts: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", str(facts), "--out", str(tmp_path / "none"), "--resume"])
    assert isinstance(result.exception, SettingError)
    assert "no run here" in str(result.exception)
