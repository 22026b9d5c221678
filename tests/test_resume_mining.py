"""Mining that was stopped goes on where it was, and ends with the rules of mining that was not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import make_graph
from test_mine import random_graph
from test_shared_loops import in_two
from typer.testing import CliRunner

import squire
from squire.cli import app
from squire.core import done_tasks, parallel
from squire.core.done_tasks import DoneTasks, digest
from squire.core.parallel import as_done
from squire.graph.adjacency import Adjacency
from squire.graph.graph import Graph
from squire.ranking import fusion
from squire.ranking.fusion_file import load_fusion
from squire.rules import _mining, mining, work
from squire.rules.hiding import RuleSupport
from squire.rules.mining import Mined, MiningOptions, mine_rules, mining_folder, mining_of
from squire.rules.rules import Rules

COLUMNS = ("head", "body", "head_constant", "body_constant", "body_count", "support", "error")


class Clock:
    """Time that passes by a second whenever somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for module in (parallel, work, done_tasks):
        monkeypatch.setattr(module, "time", found)
    monkeypatch.setattr(mining, "GROUPS_PER_TASK", 2)  # many tasks, of which few fit into the time
    monkeypatch.setattr(mining, "TARGETS_PER_TASK", 8)
    return found


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each part of the work was done, by what it was given."""
    made: Counter[str] = Counter()

    def counted(task: Any, count: int, *args: Any, **options: Any) -> Any:
        for i, result in as_done(task, count, *args, **options):
            made["tasks"] += 1
            yield i, result

    monkeypatch.setattr(work, "as_done", counted)
    return made


def same(first: Rules, second: Rules) -> bool:
    return all(np.array_equal(getattr(first, column), getattr(second, column)) for column in COLUMNS)


def until_complete(adjacency: Adjacency, options: MiningOptions, file: Path, most: int = 500) -> list[Mined]:
    """What each of several calls finds."""
    found: list[Mined] = []
    while not found or not found[-1].complete:
        assert len(found) < most
        found.append(mine_rules(adjacency, options, done=mining_of(file, adjacency, options)))
    return found


@pytest.mark.parametrize("budget", [5e10, 2000.0], ids=["exact", "estimated"])
@pytest.mark.parametrize("minutes", [0.1, 0.5, 1.0])
def test_many_short_calls_find_the_rules_of_a_long_one(
    tmp_path: Path, clock: Clock, budget: float, minutes: float
) -> None:
    adjacency = random_graph(60, 4, 400)
    whole = mine_rules(adjacency, MiningOptions(threads=1, budget=budget))
    options = MiningOptions(threads=1, budget=budget, minutes=minutes)
    found = until_complete(adjacency, options, tmp_path / "rules.tsv")
    assert len(found) > 1
    assert same(found[-1].rules, whole.rules)
    assert all(not mined.interrupted for mined in found)


def test_what_time_does_not_allow_is_estimated_until_it_does(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "STEPS_PER_SECOND", 2.0)
    monkeypatch.setattr(mining, "PILOT_STARTS", 4)
    monkeypatch.setattr(mining, "GROUPS_PER_TASK", 8)
    adjacency = random_graph(60, 20, 600)
    options = MiningOptions(threads=1, constants=False, minutes=1.0)
    found = until_complete(adjacency, options, tmp_path / "rules.tsv")
    assert len(found) > 1
    assert any(mined.rules.error.any() for mined in found[:-1])
    assert not found[-1].rules.error.any()
    assert same(found[-1].rules, mine_rules(adjacency, MiningOptions(constants=False)).rules)


def test_nothing_that_was_completed_is_done_again(tmp_path: Path, clock: Clock, tasks: Counter[str]) -> None:
    adjacency, options = random_graph(60, 4, 400), MiningOptions(threads=1)
    whole = mine_rules(adjacency, options)
    every, stopped_after = tasks["tasks"], 9

    def interrupt(stage: str, done: int, total: int) -> None:
        if tasks["tasks"] == stopped_after:
            raise KeyboardInterrupt

    tasks.clear()
    first = mine_rules(adjacency, options, interrupt, mining_of(tmp_path / "rules.tsv", adjacency, options))
    assert first.interrupted
    tasks.clear()
    second = mine_rules(adjacency, options, done=mining_of(tmp_path / "rules.tsv", adjacency, options))
    assert second.complete
    assert same(second.rules, whole.rules)
    assert tasks["tasks"] == every - stopped_after


def test_another_graph_or_other_options_begin_anew(tmp_path: Path) -> None:
    adjacency, other = random_graph(60, 4, 400), random_graph(60, 4, 400, seed=1)
    options, file = MiningOptions(length=2), tmp_path / "rules.tsv"

    def keep(own: Adjacency, with_options: MiningOptions) -> DoneTasks:
        done = mining_of(file, own, with_options)
        mine_rules(own, with_options, done=done)
        done.save()
        return done

    keep(adjacency, options)
    for own, chosen in ((other, options), (adjacency, MiningOptions(length=2, min_support=3))):
        done = mining_of(file, own, chosen)
        assert not done._known
        assert same(mine_rules(own, chosen, done=done).rules, mine_rules(own, chosen).rules)
        keep(adjacency, options)
    assert mining_of(file, adjacency, MiningOptions(length=2, threads=3, minutes=7))._known
    keep(adjacency, options).remove()
    assert not mining_folder(file).exists()


def test_a_damaged_file_is_made_again_and_the_others_are_used(tmp_path: Path) -> None:
    done = DoneTasks(tmp_path / "work", "key")
    for i in range(3):
        done.add("squares", digest("squares", i), (np.arange(i), np.full((1, 2), i, np.int32)))
        done.save()
    files = sorted((tmp_path / "work").iterdir())
    files[0].write_bytes(files[0].read_bytes()[:-3])
    again = DoneTasks(tmp_path / "work", "key")
    assert [digest("squares", i) in again for i in range(3)] == [False, True, True]
    numbers, pair = again[digest("squares", 2)]
    assert numbers.tolist() == [0, 1]
    assert pair.tolist() == [[2, 2]]
    again.add("squares", digest("squares", 0), (np.arange(0), np.zeros((1, 2), np.int32)))
    again.save()
    assert all(digest("squares", i) in DoneTasks(tmp_path / "work", "key") for i in range(3))


def test_results_are_saved_every_so_often(tmp_path: Path, clock: Clock) -> None:
    done = DoneTasks(tmp_path / "work", "key")
    for i in range(200):  # a second each
        done.add("numbers", digest("numbers", i), (np.array([i]),))
    saved = DoneTasks(tmp_path / "work", "key")
    assert [digest("numbers", i) in saved for i in (0, 100, 199)] == [True, True, False]


def test_processes_exchange_results_before_the_end(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "EXCHANGE_SECONDS", 5.0)
    done: list[int] = []
    seen: dict[int, list[int]] = {0: [], 1: []}

    def task(i: int) -> int:
        done.append(i)
        return i * i

    def collect(rank: int) -> dict[int, int]:
        found = {}
        for i, result in as_done(task, 30, 1):
            seen[rank].append(len(done))
            found[i] = result
        return found

    first, second = in_two(collect)
    assert first == second == {i: i * i for i in range(30)}
    assert sorted(done) == list(range(30))
    assert seen[0][0] < 30  # the first results came when others were still to be made


def test_two_processes_resume_what_the_leader_saved(tmp_path: Path, tasks: Counter[str]) -> None:
    adjacency, options = random_graph(60, 4, 400), MiningOptions(threads=1, length=2)
    file = tmp_path / "rules.tsv"

    def mine(rank: int) -> tuple[Mined, int]:
        own = mining_of(file, adjacency, options)
        before = len(own._known)
        mined = mine_rules(adjacency, options, done=own)
        own.save()
        return mined, before

    (first, none), _ = in_two(mine)
    (leaders, known), (others, same_known) = in_two(mine)
    assert none == 0
    assert known == same_known > 0
    assert same(first.rules, leaders.rules)
    assert same(leaders.rules, others.rules)


# ------------------------------------------------------------------------------------------ files and run folders


def a_graph() -> Graph:
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, [[40], [3], [40]], (3, 400)).tolist()
    facts = sorted({(f"e{h}", f"r{r}", f"e{t}") for h, r, t in zip(*drawn, strict=True)})
    return make_graph({"train": facts[40:], "valid": facts[:20], "test": facts[20:40]})


def test_the_same_command_goes_on_and_leaves_the_rule_file_alone(tmp_path: Path, clock: Clock) -> None:
    a_graph().save(tmp_path / "a.graph")
    squire.mine(tmp_path / "a.graph", save_to=tmp_path / "whole.tsv", threads=1, progress=False)
    rules, found = tmp_path / "rules.tsv", []
    for _ in range(200):
        ended = CliRunner().invoke(
            app, ["mine", str(tmp_path / "a.graph"), "-o", str(rules), "--minutes", "1", "--threads", "1"]
        )
        assert ended.exit_code == 0
        found.append("the same command goes on" in ended.output)
        assert found[-1] == mining_folder(rules).exists()
        if not found[-1]:
            break
    assert found == [True] * (len(found) - 1) + [False]
    assert len(found) > 1
    assert rules.read_bytes() == (tmp_path / "whole.tsv").read_bytes()


def test_a_fusion_that_ran_out_of_time_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of questions is made up, so that the first call has too little and the second has enough."""
    graph, run, effort = a_graph(), tmp_path / "run", [0.01]
    monkeypatch.setattr(fusion, "_effort", lambda *arguments: effort[0])
    folder = mining_folder(run / "fusion")
    first = squire.train(graph, run, model=False, minutes=60, progress=False)
    assert not first.is_finished
    assert folder.exists()
    limited = load_fusion(run, graph)
    assert not limited.info.complete
    effort[0] = 1.0
    tasks: list[str] = []

    def count(task: Any, count: int, *args: Any, **options: Any) -> Any:
        for done in as_done(task, count, *args, **options):
            tasks.append("task")
            yield done

    monkeypatch.setattr(fusion, "RuleSupport", _with(tasks, RuleSupport))
    monkeypatch.setattr(work, "as_done", count)
    second = squire.train(None, run, resume=True, model=False, minutes=60, progress=False)
    assert tasks[0] == "mined"  # without any task before
    assert second.is_finished
    assert not folder.exists()
    assert load_fusion(run, graph).info.complete
    assert load_fusion(run, graph).info.queries > limited.info.queries
    third = squire.train(None, run, resume=True, model=False, minutes=60, progress=False)  # nothing is left to do
    assert third.is_finished
    whole = squire.train(graph, tmp_path / "whole", model=False, progress=False)
    assert same(load_fusion(run, graph).features.rules, load_fusion(whole.folder, graph).features.rules)


def _with(log: list[str], kind: Any) -> Any:
    def made(*arguments: Any) -> Any:
        log.append("mined")
        return kind(*arguments)

    return made


def test_ctrl_c_while_fusing_keeps_what_was_mined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, run = a_graph(), tmp_path / "run"

    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_mining, "count_constants", interrupted)
        with pytest.raises(KeyboardInterrupt):
            squire.train(graph, run, model=False, progress=False)
    assert any(mining_folder(run / "fusion").iterdir())
    squire.fuse(run, progress=False)
    whole = squire.train(graph, tmp_path / "whole", model=False, progress=False)
    assert same(load_fusion(run, graph).features.rules, load_fusion(whole.folder, graph).features.rules)
    assert not mining_folder(run / "fusion").exists()
