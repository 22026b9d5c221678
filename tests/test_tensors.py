"""A tensor file is restored bit for bit or refused with a clear message, and no failure loses the previous one."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file, save_file

from squire.core import tensors
from squire.core.tensors import (
    CHECKPOINT,
    TensorFormat,
    load_checkpoint,
    load_tensors,
    save_checkpoint,
    save_tensors,
)
from squire.errors import CheckpointError, DataError

Array = npt.NDArray[Any]
PLAIN = TensorFormat("plain", "plain file", 2, DataError, "Make it again.")


def save_step(folder: Path, step: int) -> Path:
    return save_checkpoint(folder, "last", {"weight": np.full((3, 5), float(step))}, {"step": step})


def step_of(folder: Path, **options: bool) -> int:
    """The step of the last checkpoint, whose tensor says the same as its state."""
    found = load_checkpoint(folder, "last", **options)
    assert bool((found.arrays["weight"] == found.state["step"]).all())
    return int(found.state["step"])


def flip(file: Path, at: int, bit: int = 1) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= bit
    file.write_bytes(content)


def same(one: Array, other: Array) -> bool:
    """Equal in every bit, NaN and -0 too."""
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


# ------------------------------------------------------------------------------------------------- round trip


def odd_arrays() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    grid = np.arange(12, dtype=np.float32).reshape(3, 4)
    return {
        "half": rng.random(5).astype(np.float16),
        "double": np.array([np.nan, -0.0, np.inf]),
        "long": np.array([-(2**63), 2**63 - 1]),
        "int": np.array([1, 2, 3], np.int32),
        "short": np.array([-5], np.int16),
        "byte": np.arange(7, dtype=np.uint8),
        "signed": np.array([-1], np.int8),
        "bool": np.array([True, False, True]),
        "scalar": np.array(3.5, np.float32),
        "empty": np.empty((0, 4), np.float32),
        "transposed": grid.T,
        "expanded": np.broadcast_to(np.ones(1), 4),
        "row of grid": grid[1],
        "grid": grid,
        "grid again": grid,
        'né "quoted"\n': np.zeros(1),
    }


def test_all_kinds_of_arrays_come_back_bit_for_bit(tmp_path: Path) -> None:
    arrays = odd_arrays()
    save_checkpoint(tmp_path, "last", arrays, {})
    found = load_checkpoint(tmp_path, "last").arrays
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert same(found[name], array), name
        assert found[name].flags.writeable  # torch takes no others


@pytest.mark.parametrize("mapped", [False, True])
def test_any_safetensors_library_reads_it(tmp_path: Path, mapped: bool) -> None:
    arrays = odd_arrays()
    form = TensorFormat("plain", "plain file", 2, DataError, "Make it again.", mapped=mapped)
    file = save_tensors(tmp_path / "new" / "x", form, arrays, {})
    for found in (load_file(file), load_tensors(file, form).arrays):
        assert all(same(found[name], array) for name, array in arrays.items())
    # Some of them map the file into memory, where a number must begin at a multiple of its size.
    content = file.read_bytes()
    first = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:first])
    starts = {name: first + header[name]["data_offsets"][0] for name in arrays}
    assert all(start % arrays[name].itemsize == 0 for name, start in starts.items())
    assert [file.name for file in file.parent.iterdir()] == ["x"]


def test_the_state_comes_back_as_it_was(tmp_path: Path) -> None:
    state: dict[str, Any] = {
        "step": 2**60 + 1,
        "mrr": 0.1 + 0.2,
        "best": None,
        "graph": 'né "w"\n',
        "history": [1.5, True, {"a": []}],
    }
    file = save_checkpoint(tmp_path, "last", {}, state)
    found = load_checkpoint(tmp_path, "last")
    assert found.state == state
    assert (found.file, found.warning, found.arrays) == (file, "", {})


def test_parts_are_the_tensors_of_a_prefix(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, "last", {"model.a": np.ones(1), "optimizer.model.a": np.zeros(1)}, {})
    assert list(load_checkpoint(tmp_path, "last").part("model.")) == ["a"]


def test_what_is_loaded_does_not_change_with_the_next_save(tmp_path: Path) -> None:
    save_step(tmp_path, 1)
    found = load_checkpoint(tmp_path, "last")
    for step in (2, 3, 4):
        save_step(tmp_path, step)
    assert bool((found.arrays["weight"] == 1).all())
    found.arrays["weight"] += 1  # nor does the file with what is loaded
    assert step_of(tmp_path) == 4


def test_only_the_last_two_files_are_left(tmp_path: Path) -> None:
    run = tmp_path / "new" / "run"
    for step in range(4):
        save_step(run, step)
    save_checkpoint(run, "best", {}, {})
    names = sorted(file.name for file in run.iterdir())
    assert names == ["best.safetensors", "last.previous.safetensors", "last.safetensors"]
    assert step_of(run) == 3
    assert load_checkpoint(run, "last.previous").state == {"step": 2}


def test_a_state_that_is_no_json_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    save_step(tmp_path, 1)
    unknown: Any = {"where": tmp_path}
    with pytest.raises(TypeError, match="not JSON serializable"):
        save_checkpoint(tmp_path, "last", {}, unknown)
    with pytest.raises(TypeError, match=r"cannot hold an array of complex64"):
        save_checkpoint(tmp_path, "last", {"z": np.zeros(1, np.complex64)}, {})
    assert step_of(tmp_path) == 1


# ------------------------------------------------------------------------------------------------- damage


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    file = save_checkpoint(
        tmp_path, "last", {"weight": np.random.default_rng(0).random(4), "n": np.array(3)}, {"step": 1}
    )
    whole = file.read_bytes()
    for at in range(len(whole)):
        for bit in (1, 2, 16):
            flip(file, at, bit)
            with pytest.raises(CheckpointError, match=r"last\.safetensors: .*(Restore it|Upgrade squire-kg)"):
                load_checkpoint(tmp_path, "last")
            file.write_bytes(whole)


def test_every_truncation_is_found(tmp_path: Path) -> None:
    file = save_checkpoint(tmp_path, "last", {"weight": np.random.default_rng(0).random(4)}, {"step": 1})
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"last\.safetensors: damaged or cut short"):
            load_checkpoint(tmp_path, "last")


def test_changed_weights_are_a_wrong_checksum(tmp_path: Path) -> None:
    file = save_step(tmp_path, 1)
    flip(file, -1)
    words = r"last\.safetensors: damaged \(wrong checksum\)\. .*last\.previous\.safetensors, cannot be .*: no such"
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(tmp_path, "last")


def test_a_damaged_file_names_the_whole_one_before_it_and_uses_it_only_if_allowed(tmp_path: Path) -> None:
    save_step(tmp_path, 1)
    flip(save_step(tmp_path, 2), -1)
    words = r"last\.safetensors: damaged .* one, last\.previous\.safetensors, is intact\. To use it, rename it"
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(tmp_path, "last")
    found = load_checkpoint(tmp_path, "last", fallback=True)
    assert found.state == {"step": 1}
    assert found.file.name == "last.previous.safetensors"
    assert re.search(r"last\.safetensors: damaged .*Used the previous one, last\.previous", found.warning)


def test_a_lost_file_falls_back_too(tmp_path: Path) -> None:
    save_step(tmp_path, 1)
    save_step(tmp_path, 2).unlink()
    with pytest.raises(CheckpointError, match=r"last\.safetensors: no such file\. The previous one, .* is intact"):
        load_checkpoint(tmp_path, "last")
    assert step_of(tmp_path, fallback=True) == 1


def test_the_fallback_is_not_used_for_a_whole_file(tmp_path: Path) -> None:
    save_step(tmp_path, 1)
    save_step(tmp_path, 2)
    assert step_of(tmp_path, fallback=True) == 2
    assert load_checkpoint(tmp_path, "last", fallback=True).warning == ""


def test_two_damaged_files_are_both_named(tmp_path: Path) -> None:
    save_step(tmp_path, 1)
    flip(save_step(tmp_path, 2), -1)
    flip(tmp_path / "last.previous.safetensors", -1)
    words = (
        r"last\.safetensors: damaged .*last\.previous\.safetensors, cannot be used either: damaged .*train again"
    )
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(tmp_path, "last", fallback=True)


def test_saving_after_a_fallback_mends_the_folder(tmp_path: Path) -> None:
    save_step(tmp_path, 1)
    flip(save_step(tmp_path, 2), -1)
    save_step(tmp_path, 3)
    assert step_of(tmp_path) == 3


def test_a_newer_checkpoint_asks_for_an_upgrade_whatever_the_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_step(tmp_path, 1)
    monkeypatch.setattr(tensors, "CHECKPOINT", replace(CHECKPOINT, version=2))
    save_step(tmp_path, 2)
    monkeypatch.undo()
    words = r"last\.safetensors: written by a newer squire \(checkpoint version 2, .* version 1\)\. Upgrade"
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(tmp_path, "last", fallback=True)


def test_an_older_file_says_what_to_do(tmp_path: Path) -> None:
    save_tensors(tmp_path / "x", replace(PLAIN, version=1), {}, {})
    words = r"x: written by an older squire \(plain file version 1, .* version 2\)\. Make it again\."
    with pytest.raises(DataError, match=words):
        load_tensors(tmp_path / "x", PLAIN)


def test_a_plain_file_keeps_no_previous_one_and_reports_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "x"
    with pytest.raises(DataError, match=r"x: no such file\. Make it again\."):
        load_tensors(file, PLAIN)
    for step in (1, 2):
        save_tensors(file, PLAIN, {"a": np.arange(9)}, {"step": step})
    assert load_tensors(file, PLAIN).state == {"step": 2}
    assert list(tmp_path.iterdir()) == [file]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"x: damaged or cut short \(the data ends too early\)\. Make it again\."):
        load_tensors(file, PLAIN)


def test_a_strange_safetensors_file_is_no_checkpoint(tmp_path: Path) -> None:
    save_file({"a": np.zeros(1)}, tmp_path / "last.safetensors")
    with pytest.raises(CheckpointError, match=r"last\.safetensors: a safetensors file, but not a checkpoint"):
        load_checkpoint(tmp_path, "last")


def test_a_file_that_cannot_be_opened_is_not_called_damaged(tmp_path: Path) -> None:
    save_step(tmp_path, 1)
    save_step(tmp_path, 2).unlink()
    (tmp_path / "last.safetensors").mkdir()
    with pytest.raises(CheckpointError, match=r"last\.safetensors: cannot be read \(Is a directory\)\. Fix this"):
        load_checkpoint(tmp_path, "last", fallback=True)


def test_what_is_not_there_is_said_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"gone: no such folder"):
        load_checkpoint(tmp_path / "gone", "last")
    with pytest.raises(CheckpointError, match=r"no checkpoint 'last' \(last\.safetensors\)\. It has no others"):
        load_checkpoint(tmp_path, "last")
    save_step(tmp_path, 1)
    with pytest.raises(CheckpointError, match=r"no checkpoint 'best' \(best\.safetensors\)\. It has: last\."):
        load_checkpoint(tmp_path, "best")


# ------------------------------------------------------------------------------------------------- failing saves


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, r"no space for 0\.0 MB \(No space left on device\)\. .*Free some space"),
        (errno.EROFS, r"the folder cannot be written to \(Read-only file system\)\. .*Make it writable"),
        (errno.EIO, r"Input/output error\. .*Fix this"),
    ],
)
def test_a_failing_save_says_why_and_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, words: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    save_step(tmp_path, 1)
    save_step(tmp_path, 2)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(
            CheckpointError, match=r"last\.safetensors: the checkpoint could not be saved: " + words
        ):
            save_step(tmp_path, 3)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    save_step(tmp_path, 4)
    assert step_of(tmp_path) == 4


def test_the_first_save_that_fails_does_not_promise_one_before(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file, not a folder")
    with pytest.raises(
        CheckpointError, match=r"could not be saved: File exists\. There is no previous checkpoint"
    ):
        save_step(tmp_path / "run", 1)


def test_a_read_only_folder_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_step(tmp_path, 1)

    def denied(path: Path, *_: object) -> None:  # not by chmod: root writes everywhere
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", denied)
        with pytest.raises(
            CheckpointError, match=r"the folder cannot be written to .*previous checkpoint is intact"
        ):
            save_step(tmp_path, 2)
    assert step_of(tmp_path) == 1


def test_a_file_system_without_links_saves_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    save_step(tmp_path, 1)
    save_step(tmp_path, 2)
    assert step_of(tmp_path) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["last.safetensors"]


FULL_DISK = """
import resource, sys
from pathlib import Path
import numpy as np
from squire.errors import CheckpointError
from squire.core.tensors import save_checkpoint

save_checkpoint(Path(sys.argv[1]), "last", {"weight": np.full((3, 5), 1.0)}, {"step": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    save_checkpoint(Path(sys.argv[1]), "last", {"weight": np.zeros(1_000_000, np.float32)}, {"step": 2})
except CheckpointError as error:
    sys.stdout.write(str(error))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such limits")
def test_a_write_that_the_system_cuts_short_leaves_the_one_before(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, tmp_path], capture_output=True, text=True, check=True)
    assert "no space for 4.0 MB (File too large). The previous checkpoint is intact." in done.stdout
    assert step_of(tmp_path) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["last.safetensors"]


# Forks, so that numpy is imported once; a child does nothing but save, so nearly every kill is amid a save.
KILLS = """
import json, os, random, signal, sys, time
from pathlib import Path
import numpy as np
from squire.core.tensors import load_checkpoint, save_checkpoint

folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
delays = random.Random(0)
names = ("last.safetensors.partial", "last.safetensors.kept")
steps, amid = [0], 0

def save(step):
    save_checkpoint(folder, "last", {"weight": np.full(200_000, float(step))}, {"step": step})

save(0)
for _ in range(rounds):
    child = os.fork()
    if child == 0:
        step = steps[-1]
        while True:
            step += 1
            save(step)
    time.sleep(delays.uniform(0.01, 0.04))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    amid += any((folder / name).exists() for name in names)
    found = load_checkpoint(folder, "last")
    assert (found.arrays["weight"] == found.state["step"]).all()
    steps.append(found.state["step"])
save(steps[-1] + 1)
sys.stdout.write(json.dumps([steps, amid]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_kill_9_at_any_moment_leaves_a_whole_checkpoint_and_no_rubbish(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLS, tmp_path, "40"], stdout=subprocess.PIPE, check=True)
    steps, amid = json.loads(done.stdout)
    assert steps == sorted(steps)  # none goes back
    assert amid > 0  # else nothing was tested
    assert step_of(tmp_path) == steps[-1] + 1
    assert {file.name for file in tmp_path.iterdir()} <= {"last.safetensors", "last.previous.safetensors"}
