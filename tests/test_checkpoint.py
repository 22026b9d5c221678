"""A checkpoint comes back bit for bit or is refused in clear words, and no mishap loses the one before."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from squire.core import checkpoint
from squire.core.checkpoint import load_checkpoint, save_checkpoint
from squire.errors import CheckpointError


def save_step(folder: Path, step: int) -> Path:
    return save_checkpoint(folder, "last", {"weight": torch.full((3, 5), float(step))}, {"step": step})


def step_of(folder: Path, **options: bool) -> int:
    """The step of the last checkpoint, whose tensor says the same as its state."""
    found = load_checkpoint(folder, "last", **options)
    assert bool((found.tensors["weight"] == found.state["step"]).all())
    return int(found.state["step"])


def flip(file: Path, at: int, bit: int = 1) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= bit
    file.write_bytes(content)


def same(one: Tensor, other: Tensor) -> bool:
    """Equal in every bit, NaN and -0 too."""
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))
    )


# ------------------------------------------------------------------------------------------------- round trip


def odd_tensors() -> dict[str, Tensor]:
    grid = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    return {
        "bf16": torch.randn(3).bfloat16(),
        "half": torch.randn(5).half(),
        "double": torch.tensor([float("nan"), -0.0, float("inf")], dtype=torch.float64),
        "long": torch.tensor([-(2**63), 2**63 - 1]),
        "int": torch.tensor([1, 2, 3], dtype=torch.int32),
        "short": torch.tensor([-5], dtype=torch.int16),
        "byte": torch.arange(7, dtype=torch.uint8),
        "signed": torch.tensor([-1], dtype=torch.int8),
        "bool": torch.tensor([True, False, True]),
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
        "transposed": grid.T,
        "expanded": torch.ones(1).expand(4),
        "row of grid": grid[1],
        "grid": grid,
        "grid again": grid,
        "a parameter": nn.Parameter(torch.randn(2)),
        'né "quoted"\n': torch.zeros(1),
    }


def test_all_kinds_of_tensors_come_back_bit_for_bit(tmp_path: Path) -> None:
    tensors = odd_tensors()
    save_checkpoint(tmp_path, "last", tensors, {})
    found = load_checkpoint(tmp_path, "last").tensors
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert same(found[name], tensor.detach().contiguous()), name
        assert not found[name].requires_grad


def test_any_safetensors_library_reads_it(tmp_path: Path) -> None:
    tensors = odd_tensors()
    file = save_checkpoint(tmp_path, "last", tensors, {})
    found = load_file(file)
    assert all(same(found[name], tensor.detach().contiguous()) for name, tensor in tensors.items())
    # Some of them map the file into memory, where a number must begin at a multiple of its size.
    content = file.read_bytes()
    first = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:first])
    starts = {name: first + header[name]["data_offsets"][0] for name in tensors}
    assert all(start % tensors[name].itemsize == 0 for name, start in starts.items())


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
    assert (found.file, found.warning, found.tensors) == (file, "", {})


def test_parts_are_the_tensors_of_a_prefix(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, "last", {"model.a": torch.ones(1), "optimizer.model.a": torch.zeros(1)}, {})
    assert list(load_checkpoint(tmp_path, "last").part("model.")) == ["a"]


def test_what_is_loaded_does_not_change_with_the_next_save(tmp_path: Path) -> None:
    save_step(tmp_path, 1)
    found = load_checkpoint(tmp_path, "last")
    for step in (2, 3, 4):
        save_step(tmp_path, step)
    assert bool((found.tensors["weight"] == 1).all())
    found.tensors["weight"] += 1  # nor does the file with what is loaded
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
    with pytest.raises(TypeError, match=r"cannot hold a tensor of torch\.complex64"):
        save_checkpoint(tmp_path, "last", {"z": torch.zeros(1, dtype=torch.complex64)}, {})
    assert step_of(tmp_path) == 1


# ------------------------------------------------------------------------------------------------- damage


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    file = save_checkpoint(tmp_path, "last", {"weight": torch.randn(4), "n": torch.tensor(3)}, {"step": 1})
    whole = file.read_bytes()
    for at in range(len(whole)):
        for bit in (1, 2, 16):
            flip(file, at, bit)
            with pytest.raises(CheckpointError, match=r"last\.safetensors: .*To do: "):
                load_checkpoint(tmp_path, "last")
            file.write_bytes(whole)


def test_every_truncation_is_found(tmp_path: Path) -> None:
    file = save_checkpoint(tmp_path, "last", {"weight": torch.randn(4)}, {"step": 1})
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"last\.safetensors: damaged or cut short"):
            load_checkpoint(tmp_path, "last")


def test_changed_weights_are_a_wrong_checksum(tmp_path: Path) -> None:
    file = save_step(tmp_path, 1)
    flip(file, -1)
    words = (
        r"last\.safetensors: damaged \(.*wrong checksum\)\. .*last\.previous\.safetensors, cannot help: not there"
    )
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(tmp_path, "last")


def test_a_damaged_file_names_the_whole_one_before_it_and_uses_it_only_if_allowed(tmp_path: Path) -> None:
    save_step(tmp_path, 1)
    flip(save_step(tmp_path, 2), -1)
    words = r"last\.safetensors: damaged .* before it, last\.previous\.safetensors, is whole\. To do: allow"
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(tmp_path, "last")
    found = load_checkpoint(tmp_path, "last", fallback=True)
    assert found.state == {"step": 1}
    assert found.file.name == "last.previous.safetensors"
    assert re.search(r"last\.safetensors: damaged .*Used the one before it, last\.previous", found.warning)


def test_a_lost_file_falls_back_too(tmp_path: Path) -> None:
    save_step(tmp_path, 1)
    save_step(tmp_path, 2).unlink()
    with pytest.raises(CheckpointError, match=r"last\.safetensors: not there\. The one before it, .* is whole"):
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
    words = r"last\.safetensors: damaged .*last\.previous\.safetensors, cannot help: damaged .*train anew"
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
    monkeypatch.setattr(checkpoint, "FILE_VERSION", 2)
    save_step(tmp_path, 2)
    monkeypatch.undo()
    words = r"last\.safetensors: written by a newer squire \(checkpoint version 2, .* up to 1\)\. To do: upgrade"
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(tmp_path, "last", fallback=True)


def test_a_strange_safetensors_file_is_no_checkpoint(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "last.safetensors")
    with pytest.raises(CheckpointError, match=r"last\.safetensors: a safetensors file, but not a checkpoint"):
        load_checkpoint(tmp_path, "last")


def test_a_file_that_cannot_be_opened_is_not_called_damaged(tmp_path: Path) -> None:
    save_step(tmp_path, 1)
    save_step(tmp_path, 2).unlink()
    (tmp_path / "last.safetensors").mkdir()
    with pytest.raises(
        CheckpointError, match=r"last\.safetensors: cannot be read \(Is a directory\)\. To do: mend"
    ):
        load_checkpoint(tmp_path, "last", fallback=True)


def test_what_is_not_there_is_said_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"gone: no such folder"):
        load_checkpoint(tmp_path / "gone", "last")
    with pytest.raises(CheckpointError, match=r"no checkpoint 'last' \(last\.safetensors\)\. There is no other"):
        load_checkpoint(tmp_path, "last")
    save_step(tmp_path, 1)
    with pytest.raises(CheckpointError, match=r"no checkpoint 'best' \(best\.safetensors\)\. There is: last\."):
        load_checkpoint(tmp_path, "best")


# ------------------------------------------------------------------------------------------------- failing saves


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, r"no room for 0\.0 MB \(No space left on device\)\. .*To do: free some space"),
        (errno.EROFS, r"the folder cannot be written to \(Read-only file system\)\. .*To do: allow writing"),
        (errno.EIO, r"Input/output error\. .*To do: mend this"),
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
    with pytest.raises(CheckpointError, match=r"could not be saved: File exists\. There is none of before"):
        save_step(tmp_path / "run", 1)


def test_a_read_only_folder_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_step(tmp_path, 1)

    def denied(path: Path, *_: object) -> None:  # not by chmod: root writes everywhere
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", denied)
        with pytest.raises(CheckpointError, match=r"the folder cannot be written to .*of before is intact"):
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
import torch
from squire.errors import CheckpointError
from squire.core.checkpoint import save_checkpoint

save_checkpoint(Path(sys.argv[1]), "last", {"weight": torch.full((3, 5), 1.0)}, {"step": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    save_checkpoint(Path(sys.argv[1]), "last", {"weight": torch.zeros(1_000_000)}, {"step": 2})
except CheckpointError as error:
    sys.stdout.write(str(error))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such limits")
def test_a_write_that_the_system_cuts_short_leaves_the_one_before(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, tmp_path], capture_output=True, text=True, check=True)
    assert "no room for 4.0 MB (File too large). The checkpoint of before is intact." in done.stdout
    assert step_of(tmp_path) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["last.safetensors"]


# Forks, so that torch is imported once; a child does nothing but save, so nearly every kill is amid a save.
KILLS = """
import json, os, random, signal, sys, time
from pathlib import Path
import torch
from squire.core.checkpoint import load_checkpoint, save_checkpoint

torch.set_num_threads(1)
folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
delays = random.Random(0)
names = ("last.safetensors.partial", "last.safetensors.kept")
steps, amid = [0], 0

def save(step):
    save_checkpoint(folder, "last", {"weight": torch.full((200_000,), float(step))}, {"step": step})

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
    assert (found.tensors["weight"] == found.state["step"]).all()
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
