"""Indexes are made once, kept in the run folder, and made again when they no longer belong to the graph."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
from test_hubs import hub_run

import squire
from squire.core.kept import Kept
from squire.core.run_files import INDEXES
from squire.reasoning.reasoner import Reasoner

ASKED = ("e1", "r1")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    shutil.copytree(hub_run(), tmp_path / "run", ignore=shutil.ignore_patterns(INDEXES))
    return tmp_path / "run"


def answer(run: Path) -> str:
    """What a new process would say."""
    return json.dumps(squire.Run(run).answer(*ASKED).as_dict()["answers"])


def files(run: Path) -> dict[str, int]:
    return {str(file.relative_to(run)): file.stat().st_mtime_ns for file in (run / INDEXES).rglob("*.safetensors")}


def test_the_second_load_makes_nothing_and_says_the_same(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, made = answer(run), files(run)
    assert len(made) > 5
    monkeypatch.setattr(
        "squire.core.kept.save_tensors", lambda *_: pytest.fail("an index that is there was made again")
    )
    assert answer(run) == first
    assert files(run) == made
    index = Reasoner.load(run).fused.features.index
    assert not index.attribute.flags.writeable
    assert isinstance(index.attribute.base, np.memmap)


def test_a_changed_graph_has_indexes_of_its_own(run: Path) -> None:
    before, made = answer(run), files(run)
    squire.Run(run).add([("new", "r0", "hub"), ("e1", "r1", "new")])
    changed = answer(run)
    assert changed != before
    assert files(run).keys() > made.keys()
    assert answer(run) == changed
    squire.Run(run).add([("newer", "r2", "hub")])
    further = answer(run)
    shutil.rmtree(run / INDEXES)
    assert answer(run) == further
    squire.Run(run).remove([("new", "r0", "hub"), ("e1", "r1", "new"), ("newer", "r2", "hub")])
    assert answer(run) == before


def test_damaged_files_are_made_again(run: Path) -> None:
    first = answer(run)
    for number, file in enumerate(sorted((run / INDEXES).rglob("*.safetensors"))):
        content = file.read_bytes()
        file.write_bytes((b"", content[: len(content) // 2], b"x" * 100)[number % 3])
    assert answer(run) == first
    assert answer(run) == first


def test_a_folder_that_cannot_be_written_is_not_needed(run: Path) -> None:
    first = answer(run)
    shutil.rmtree(run / INDEXES)
    (run / INDEXES).write_text("in the way")  # even root cannot make a folder here
    assert answer(run) == first
    run.chmod(run.stat().st_mode & ~stat.S_IWUSR)
    assert answer(run) == first
    run.chmod(run.stat().st_mode | stat.S_IWUSR)


def test_numbers_and_arrays_of_any_shape_come_back(tmp_path: Path) -> None:
    def make() -> tuple[object, ...]:
        return np.empty((0, 3), np.int32), np.arange(6.0).reshape(2, 3), 7

    kept = Kept(tmp_path, "key")
    for found in (kept.get("name", make), kept.get("name", lambda: pytest.fail("made again"))):
        assert [np.asarray(value).tolist() for value in found] == [np.asarray(value).tolist() for value in make()]
        assert found[0].shape == (0, 3)
        assert isinstance(found[2], int)
    assert Kept(tmp_path, "another").get("name", lambda: (1,)) == (1,)
