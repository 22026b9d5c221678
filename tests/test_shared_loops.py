"""Under torchrun, mining, fusing and evaluating give the same bytes as in one process."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from test_distributed import torchrun
from test_hubs import hub_graph

import squire
from squire.core.parallel import agreed, as_done, in_order, is_leader, one_ahead, sharing
from squire.core.run_files import FUSION


class Pair:
    """One of two processes, of which the other runs in another thread."""

    def __init__(self, rank: int, barrier: threading.Barrier, board: dict[int, Any]) -> None:
        self.rank, self.size, self._barrier, self._board = rank, 2, barrier, board

    def gather(self, value: Any) -> list[Any]:
        self._board[self.rank] = value
        self._barrier.wait(10)
        found = [self._board[rank] for rank in range(2)]
        self._barrier.wait(10)
        return found


def in_two(work: Any) -> list[Any]:
    """What `work` gives in each of two processes that share their loops."""
    barrier, board, out = threading.Barrier(2), {}, [None, None]

    def run(rank: int) -> None:
        with sharing(Pair(rank, barrier, board)):
            out[rank] = work(rank)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return out


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 2, 11])
def test_each_task_is_done_once_and_all_processes_have_all_results(threads: int, count: int) -> None:
    done: list[int] = []

    def task(i: int) -> int:
        done.append(i)
        return sum(in_order(lambda j: i * j, 3, 1))  # a loop within a task is not shared

    def work(rank: int) -> Any:
        return list(in_order(task, count, threads)), dict(as_done(task, count, threads)), agreed(rank), is_leader()

    first, second = in_two(work)
    every = [3 * i for i in range(count)]
    assert first == (every, dict(enumerate(every)), 0, True)
    assert second == (every, dict(enumerate(every)), 0, False)
    assert sorted(done) == sorted([*range(count), *range(count)])  # once for each of the two loops


def test_loops_of_items_that_are_made_ahead_are_shared_too() -> None:
    done: list[int] = []

    def items() -> Any:
        for first in (0, 10):
            yield list(in_order(lambda i: done.append(first + i) or first + i, 4, 1))  # noqa: B023

    first, second = in_two(lambda rank: list(one_ahead(items())))
    assert first == second == [[0, 1, 2, 3], [10, 11, 12, 13]]
    assert sorted(done) == [0, 1, 2, 3, 10, 11, 12, 13]


def test_a_time_limit_leaves_out_the_same_tasks_everywhere() -> None:
    first, second = in_two(lambda rank: dict(as_done(lambda i: i, 10, 1, until=0.0)))
    assert first == second == {0: 0, 1: 1}


# --------------------------------------------------------------------------------------------- real processes


def without_times(file: Path) -> str:
    return re.sub(r'"(run|threads)": [^,}]*', "", file.read_text())


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    hub_graph().save(folder / "hub.graph")
    return folder / "hub.graph"


def test_two_processes_mine_the_rules_of_one(graph: Path, tmp_path: Path) -> None:
    squire.mine(graph, save_to=tmp_path / "one.tsv", progress=False)
    ended = torchrun("-m", "squire", "mine", str(graph), "-o", str(tmp_path / "two.tsv"))
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "two.tsv").read_bytes() == (tmp_path / "one.tsv").read_bytes()
    assert ended.stderr.count("closed") == 1  # one of them speaks


def test_two_processes_fuse_and_evaluate_like_one(graph: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    squire.train(graph, one, model=False, progress=False)
    shutil.copytree(one, two)
    (two / f"{FUSION}.safetensors").unlink()
    found = squire.Run(one).evaluate(progress=False)
    ended = torchrun("-m", "squire", "fuse", str(two))
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("fused: learned from") == ended.stdout.count("ordinary, first 10") == 1
    file = f"{FUSION}.safetensors"
    assert (two / file).read_bytes() == (one / file).read_bytes()
    ended = torchrun("-m", "squire", "evaluate", str(two))
    assert ended.returncode == 0, ended.stderr
    written = {folder: folder / "evaluation-fused-test.json" for folder in (one, two)}
    assert without_times(written[two]) == without_times(written[one])
    assert ended.stdout.count(f"{found.rows[0].mrr:.3f}") >= 1


def test_a_mistake_is_told_once(tmp_path: Path) -> None:
    ended = torchrun("-m", "squire", "mine", str(tmp_path / "none.tsv"), "-o", str(tmp_path / "rules.tsv"))
    assert ended.returncode == 1
    assert ended.stderr.count("error: ") == 1


def test_ctrl_c_keeps_the_rules_found_so_far_and_they_are_the_same(graph: Path, tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, squire\n"
        "from squire.rules import mining\n"
        "count = mining.kernels.count_bodies\n"
        "def interrupted(*arguments):\n"
        "    if os.environ['RANK'] == '1' and arguments[2] == 3:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return count(*arguments)\n"
        "mining.kernels.count_bodies = interrupted\n"
        "rules = squire.mine(sys.argv[1], threads=1, progress=False)\n"
        "assert rules.interrupted and len(rules)\n"
        "open(f\"{sys.argv[2]}/{os.environ['RANK']}\", 'w').write(str(len(rules)))\n"
    )
    script = tmp_path / "mine.py"
    script.write_text(code)
    ended = torchrun(str(script), str(graph), str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "0").read_text() == (tmp_path / "1").read_text() != "0"
