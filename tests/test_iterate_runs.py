"""Runs with iterations: stopped anywhere, killed, or in two processes, they end as if nothing had happened."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from iterate_cases import BLOCK, ITERATE, TWO, gathered, make_blocks_small
from test_distributed import torchrun
from test_train import SMALL, a_graph, a_trainer, assert_same, ignore, weights_of
from typer.testing import CliRunner

from squire.cli import app
from squire.core.progress import Progress
from squire.core.run_files import LAST, METRICS, START, TRIES, iteration_folder, tries_file
from squire.core.tensors import load_checkpoint
from squire.paths.tries import Tries
from squire.training.iterative import Facts
from squire.training.trainer import TrainingState

TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    make_blocks_small(monkeypatch)


def interrupting(what: str, at: int) -> Progress:
    """A stage that is interrupted the `at`-th time it is shown."""
    seen: list[int] = []

    def stage(title: str, done: int, total: int | None) -> None:
        assert 0 <= done <= (total or 0)
        if title == what:
            seen.append(done)
            if len(seen) == at:
                os.kill(os.getpid(), signal.SIGINT)

    return stage


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in three iterations, never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        make_blocks_small(patch)
        assert a_trainer(folder, *ITERATE).fit(ignore)
    return folder


def lines_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]


def assert_same_runs(one: Path, other: Path) -> None:
    assert_same(weights_of(one), weights_of(other))
    for k in (2, 3):
        assert gathered(one, k) == gathered(other, k)
    ours, theirs = ([line | {"nodes_per_second": 0} for line in lines_of(folder)] for folder in (one, other))
    assert ours == theirs


def test_a_run_has_its_iterations_one_after_the_other(whole: Path) -> None:
    lines = lines_of(whole)
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, lines[-1]["step"] + 1))  # type: ignore[operator]
    epochs = {(line["iteration"], line["epoch"]) for line in lines if "loss" in line}
    assert sorted(epochs) == [(1, 0), (1, 1), (2, 2), (3, 3)]
    assert [line["iteration"] for line in lines if "valid" in line] == [1, 1, 2, 3]
    assert load_checkpoint(whole, LAST).state["iteration"] == 3
    weights = [Tries.load(tries_file(whole, k)).end.sum() for k in (1, 2, 3)]
    facts = len(Facts.from_graph(a_graph()).triples)
    assert weights == [6 * facts, 9 * facts, 12 * facts]


def test_each_iteration_has_a_schedule_of_its_own(tmp_path: Path) -> None:
    trainer = a_trainer(tmp_path, *ITERATE, "train.warmup=0.5")
    rates: dict[int, list[float]] = {}
    totals = set()

    def watch(now: TrainingState) -> None:
        rates.setdefault(now.iteration, []).append(trainer.optimizer.param_groups[0]["lr"])
        totals.add((now.iteration, now.total_steps))

    assert trainer.fit(watch)
    peak, share = trainer.recipe.train.learning_rate, trainer.recipe.train.iterate_learning_rate
    for iteration, own in rates.items():
        top = peak * (1.0 if iteration == 1 else share)
        assert 0.9 * top < max(own) <= top
        assert own[0] < 0.2 * top
        assert own[-1] < 0.2 * top
    ends = np.cumsum([len(own) for own in rates.values()])
    assert totals == set(zip(rates, ends.tolist(), strict=True))


def test_stopped_anywhere_and_resumed_it_ends_bit_for_bit_the_same(whole: Path, tmp_path: Path) -> None:
    in_two, in_three = (min(n["step"] for n in lines_of(whole) if n["iteration"] == k) for k in (2, 3))  # type: ignore[type-var]
    stops = [("iteration 2, first hops", 1), ("iteration 2, first hops", 3), ("iteration 2, continuing paths", 1)]
    stops += [("step", in_two), ("step", in_three - 1), ("iteration 3, first hops", 2), ("step", in_three + 2)]  # type: ignore[operator,list-item]
    for what, at in stops:
        trainer = a_trainer(tmp_path, *ITERATE)
        if any(tmp_path.glob("last*")):
            trainer.resume()

        def watch(now: TrainingState, what: str = what, at: int = at) -> None:
            if what == "step" and now.step == at:
                os.kill(os.getpid(), signal.SIGINT)

        stage = interrupting(what, at)
        assert not trainer.fit(watch, progress=stage), what
    trainer = a_trainer(tmp_path, *ITERATE)
    trainer.resume()
    assert trainer.fit(ignore)
    assert_same_runs(whole, tmp_path)
    # A run that is done stays as it is.
    trainer = a_trainer(tmp_path, *ITERATE)
    trainer.resume()
    assert trainer.fit(ignore)
    assert_same_runs(whole, tmp_path)


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import iterate_cases, test_train, squire.training.trainer as loop, squire.training.iterative as iterate
loop.SAVE_SECONDS, iterate.BLOCK, iterate.HYPOTHESES_AT_ONCE = 0.0, iterate_cases.BLOCK, 24
folder = Path(sys.argv[1])
trainer = test_train.a_trainer(folder, *iterate_cases.ITERATE)
if any(folder.glob("last*")):
    trainer.resume()
def tell(now):
    print("step", now.step, flush=True)
def stage(what, done, total):
    print(what, done, flush=True)
trainer.fit(tell, progress=stage)
print("done", flush=True)
"""


def test_kill_9_while_gathering_then_resume_ends_bit_for_bit_the_same(whole: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(TESTS)]
    at = 3 * BLOCK
    for kill_at in (
        f"iteration 2, first hops {at}",
        "iteration 2, sampling paths",
        f"iteration 3, first hops {at}",
        None,
    ):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if kill_at is not None and line.startswith(kill_at):
                    process.kill()
        assert process.returncode == (0 if kill_at is None else -signal.SIGKILL), kill_at
    assert_same_runs(whole, tmp_path)


def test_a_lost_checkpoint_goes_back_to_the_one_that_ended_the_iteration(whole: Path, tmp_path: Path) -> None:
    """The last file is damaged right after the paths were gathered: what was gathered fits what goes on."""
    trainer = a_trainer(tmp_path, *ITERATE)
    assert not trainer.fit(ignore, progress=interrupting("iteration 2, first hops", 2))
    last = tmp_path / f"{LAST}.safetensors"
    last.write_bytes(last.read_bytes()[:100])
    trainer = a_trainer(tmp_path, *ITERATE)
    assert trainer.resume().warning
    assert trainer.fit(ignore)
    assert_same_runs(whole, tmp_path)


# ------------------------------------------------------------------------------------------------- two processes


def test_two_processes_gather_the_paths_of_one(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    trainer = a_trainer(one, *TWO)
    assert not trainer.fit(ignore, progress=interrupting("iteration 2, first hops", 2))
    shutil.copytree(one, two)
    trainer = a_trainer(one, *TWO)
    trainer.resume()
    assert trainer.fit(ignore)
    ended = torchrun(str(TESTS / "team_iterating.py"), str(two))
    assert ended.returncode == 0, ended.stderr
    # From the same weights the same paths; after a training of two, whose sums are rounded otherwise, like ones.
    assert gathered(one) == gathered(two)
    assert lines_of(two)[-1]["iteration"] == 3
    drawn = [json.loads(line) for line in (two / "drawn.jsonl").read_text().splitlines()]
    facts = Facts.from_graph(a_graph())
    firsts = [first for first, _ in facts.blocks()]
    for k, left in ((2, firsts[2:]), (3, firsts)):  # two were drawn before
        assert sorted(line["first"] for line in drawn if line["iteration"] == k) == left
    shares = Counter(line["rank"] for line in drawn if line["iteration"] == 3)
    assert abs(shares[0] - shares[1]) <= 1
    assert Tries.load(tries_file(two, 3)).end.sum() == 12 * len(facts.triples)
    assert {file.name for file in iteration_folder(two, 3).iterdir()} == {
        file.name for file in iteration_folder(one, 3).iterdir()
    }


# ------------------------------------------------------------------------------------------------- the switch


def test_off_it_is_the_first_iteration_and_nothing_else(whole: Path, tmp_path: Path) -> None:
    assert a_trainer(tmp_path, *ITERATE, "train.iterate=false").fit(ignore)
    plain, first = load_checkpoint(tmp_path, LAST), load_checkpoint(iteration_folder(whole, 2), START)
    assert_same(plain.arrays, first.arrays)
    assert plain.state | {"recipe": 0} == first.state | {"recipe": 0}
    assert not any(tmp_path.glob("iteration-*"))
    assert (tmp_path / TRIES).read_bytes() == (whole / TRIES).read_bytes()


def test_with_paths_of_one_hop_there_is_nothing_to_iterate(tmp_path: Path) -> None:
    for name in ("true", "false"):
        (tmp_path / name).mkdir()
        trainer = a_trainer(tmp_path / name, *ITERATE, f"train.iterate={name}", "paths.hops=1")
        assert trainer.fit(ignore)
        assert not any((tmp_path / name).glob("iteration-*"))
    assert_same(weights_of(tmp_path / "true"), weights_of(tmp_path / "false"))


def test_the_command_iterates_stops_and_resumes(tmp_path: Path) -> None:
    facts, out = tmp_path / "facts.tsv", tmp_path / "run"
    facts.write_text("".join(f"a{i % 7}\tr{i % 2}\tb{i % 5}\n" for i in range(35)))
    sets = [part for key in (*SMALL, *ITERATE) for part in ("--set", key)]
    runner = CliRunner()
    first = runner.invoke(app, ["train", str(facts), "--out", str(out), *sets, "--minutes", "0"])
    assert first.exit_code == 0, first.output
    assert "iteration 1 of 3, stopped at step 0 of" in first.output
    last = runner.invoke(app, ["train", str(facts), "--out", str(out), "--resume"])
    assert last.exit_code == 0, last.output
    assert "trained:" in last.output
    assert [line["iteration"] for line in lines_of(out) if "loss" in line][-1] == 3
