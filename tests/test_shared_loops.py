"""Under torchrun, mining, fusing and evaluating give the same bytes as in one process."""

from __future__ import annotations

import json
import shutil
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import make_graph
from test_distributed import torchrun

import squire
from squire.core.parallel import agreed, as_done, in_order, is_leader, one_ahead, sharing
from squire.core.run_files import FUSION
from squire.graph.graph import Graph


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
    barrier, out = threading.Barrier(2), [None, None]
    board: dict[int, Any] = {}

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

    def task(first: int, i: int) -> int:
        done.append(first + i)
        return first + i

    def items() -> Any:
        for first in (0, 10):
            yield list(in_order(partial(task, first), 4, 1))

    first, second = in_two(lambda rank: list(one_ahead(items())))
    assert first == second == [[0, 1, 2, 3], [10, 11, 12, 13]]
    assert sorted(done) == [0, 1, 2, 3, 10, 11, 12, 13]


def test_a_time_limit_leaves_out_the_same_tasks_everywhere() -> None:
    first, second = in_two(lambda rank: dict(as_done(lambda i: i, 10, 1, until=0.0)))
    assert first == second == {0: 0, 1: 1}


# --------------------------------------------------------------------------------------------- real processes

SCRIPT = """
import os, signal, sys
from pathlib import Path
import squire
from squire.rules import mining

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
squire.mine(folder / "a.graph", save_to=folder / "two.tsv", progress=False)
run = squire.fuse(folder / "two", progress=False)
squire.Run(folder / "two").evaluate(progress=False)

count = mining.kernels.count_support
def interrupt(*arguments):
    if rank == 1 and arguments[1] == 3:  # bodies of three atoms
        os.kill(os.getpid(), signal.SIGINT)
    return count(*arguments)
mining.kernels.count_support = interrupt
rules = squire.mine(folder / "a.graph", threads=1, progress=False)
assert rules.interrupted
(folder / f"interrupted-{rank}").write_text(str(len(rules)))
"""


KILLED = """
import os, signal, sys
import squire
from squire.core import done_tasks
from squire.rules import mining

done_tasks.SAVE_SECONDS = 0.0  # after each task
count = mining.kernels.count_support
def kill(*arguments):
    if os.environ["RANK"] == "1" and arguments[1] == 3:  # bodies of three atoms
        os.kill(os.getpid(), signal.SIGKILL)
    return count(*arguments)
mining.kernels.count_support = kill
squire.fuse(sys.argv[1], progress=False)
"""


def a_graph() -> Graph:
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, [[40], [3], [40]], (3, 500))
    facts = sorted({(f"e{h}", f"r{r}", f"e{t}") for h, r, t in zip(*drawn.tolist(), strict=True)})
    facts += [(tail, "back", head) for head, relation, tail in facts if relation == "r0"]
    order = rng.permutation(len(facts)).tolist()
    parts = {"valid": order[:30], "test": order[30:60], "train": order[60:]}
    return make_graph({split: [facts[i] for i in numbers] for split, numbers in parts.items()})


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes leave, beside the work of one."""
    folder = tmp_path_factory.mktemp("shared")
    a_graph().save(folder / "a.graph")
    squire.mine(folder / "a.graph", save_to=folder / "one.tsv", progress=False)
    squire.train(folder / "a.graph", folder / "one", model=False, progress=False)
    shutil.copytree(folder / "one", folder / "two")
    (folder / "two" / f"{FUSION}.safetensors").unlink()
    squire.Run(folder / "one").evaluate(progress=False)
    (folder / "script.py").write_text(SCRIPT)
    ended = torchrun(str(folder / "script.py"), str(folder))
    assert ended.returncode == 0, ended.stderr
    return folder


def test_two_processes_mine_the_rules_of_one(done: Path) -> None:
    assert (done / "two.tsv").read_bytes() == (done / "one.tsv").read_bytes()


def test_two_processes_fuse_and_evaluate_like_one(done: Path) -> None:
    one, two = ((done / name / f"{FUSION}.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two
    first, second = (
        json.loads((done / name / "evaluation-fused-test.json").read_text()) for name in ("one", "two")
    )
    assert first | {"run": ""} == second | {"run": ""}


def test_ctrl_c_in_one_process_stops_all_with_the_same_rules(done: Path) -> None:
    found = [int((done / f"interrupted-{rank}").read_text()) for rank in (0, 1)]
    assert found[0] == found[1]
    assert 0 < found[0] < len(squire.RuleSet.load(done / "one.tsv", done / "a.graph"))


def test_a_mistake_is_told_once(tmp_path: Path) -> None:
    ended = torchrun("-m", "squire", "mine", str(tmp_path / "none.tsv"), "-o", str(tmp_path / "rules.tsv"))
    assert ended.returncode == 1
    assert ended.stderr.count("error: ") == 1


def test_what_was_done_is_gone_on_with_after_a_process_was_killed(
    done: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(done / "one", done / "killed")
    (done / "killed" / f"{FUSION}.safetensors").unlink()
    (done / "kill.py").write_text(KILLED)
    assert torchrun(str(done / "kill.py"), str(done / "killed")).returncode != 0
    assert not (done / "killed" / f"{FUSION}.safetensors").exists()
    with caplog.at_level("INFO", "squire"):
        squire.fuse(done / "killed", progress=False)
    assert "going on with what was done before" in caplog.text
    one, killed = ((done / name / f"{FUSION}.safetensors").read_bytes() for name in ("one", "killed"))
    assert one == killed
