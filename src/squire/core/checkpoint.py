"""Checkpoints that cannot be lost: one file is one checkpoint, tensors and state, whole or not there.

A checkpoint NAME is NAME.safetensors; the one it replaced stays as NAME.previous.safetensors. Files are readable
by any safetensors library and hold nothing that runs when it is loaded. The state is JSON in the file's metadata,
beside a SHA-256 of everything.

They are written here and not by the library: that one leaves one more temporary file behind whenever it is killed,
and its errors do not say which system error they were. What the tensors are for is the caller's business; the last
part turns optimizers into them and back. Nothing is ever pickled.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.optim import Optimizer

from squire.core.run_files import BEST, LAST
from squire.errors import CheckpointError, SettingError

JSON: TypeAlias = "Mapping[str, JSON] | Sequence[JSON] | str | int | float | bool | None"

FILE_VERSION = 1
SUFFIX = ".safetensors"
DIGITS = 12  # of a fingerprint
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What was saved, and where it was found."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]
    file: Path
    warning: str = ""  # why this is not the file that was asked for; empty if it is

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with this, without it."""
        return {
            name.removeprefix(prefix): tensor for name, tensor in self.tensors.items() if name.startswith(prefix)
        }


# ------------------------------------------------------------------------------------------------- writing


def save_checkpoint(folder: Path, name: str, tensors: Mapping[str, Tensor], state: Mapping[str, JSON]) -> Path:
    """Write one checkpoint; whatever happens meanwhile, the folder holds a whole one if it held one before."""
    file = _file(folder, name)
    on_cpu = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    header = _header(on_cpu, json.dumps(state))
    partial = file.with_name(f"{file.name}.partial")  # always the same: what a kill leaves, the next save takes
    kept = file.with_name(f"{file.name}.kept")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as stream:
            stream.write(header)
            for key in _layout(on_cpu):
                stream.write(_bytes(on_cpu[key]))
            stream.flush()
            os.fsync(stream.fileno())
        _publish(partial, file, kept)
    except OSError as error:
        size = len(header) + sum(tensor.nbytes for tensor in on_cpu.values())
        raise CheckpointError(_save_words(file, error, size)) from error
    finally:
        for leftover in (partial, kept):
            with suppress(OSError):
                leftover.unlink(missing_ok=True)
    return file


def _publish(partial: Path, file: Path, kept: Path) -> None:
    """The new checkpoint takes its name, then the old one its own; under `file` there is always a whole one."""
    with suppress(OSError):  # there is no old one, or the file system has no links: then none is kept
        kept.unlink(missing_ok=True)
        os.link(file, kept)
    os.replace(partial, file)
    if kept.exists():
        os.replace(kept, _previous(file))
    _sync_folder(file.parent)


def _sync_folder(folder: Path) -> None:
    """Make the renames survive a power cut, where the system lets us."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems know no such thing
            raise
    finally:
        os.close(descriptor)


def _save_words(file: Path, error: OSError, size: int) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        what = f"no room for {size / 1e6:.1f} MB ({error.strerror})"
        to_do = "free some space, then resume"
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        what = f"the folder cannot be written to ({error.strerror})"
        to_do = "allow writing to it, or choose another with --out"
    else:
        what = error.strerror or str(error)
        to_do = "mend this, then resume"
    before = "The checkpoint of before is intact." if file.exists() else "There is none of before."
    return f"{file}: the checkpoint could not be saved: {what}. {before} To do: {to_do}."


# ------------------------------------------------------------------------------------------------- the format


def _layout(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names in the order of their bytes: wide numbers first, so that each begins at a multiple of its size."""
    return sorted(tensors, key=lambda key: (-tensors[key].itemsize, key))


def _header(tensors: Mapping[str, Tensor], state: str) -> bytes:
    """The safetensors header: its length (8 bytes), then JSON, with spaces up to a multiple of 8."""
    about = {"squire_checkpoint": str(FILE_VERSION), "state": state}
    about["sha256"] = _checksum(tensors, about)
    content: dict[str, object] = {"__metadata__": about}
    start = 0
    for key in _layout(tensors):
        end = start + tensors[key].nbytes
        content[key] = {**_kind(tensors[key]), "data_offsets": [start, end]}
        start = end
    text = json.dumps(content).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _kind(tensor: Tensor) -> dict[str, object]:
    if tensor.dtype not in DTYPES:
        raise TypeError(f"a checkpoint cannot hold a tensor of {tensor.dtype}")
    return {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape)}


def _checksum(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> str:
    """Of version and state, and of all tensors with their names and kinds, in the order of the names."""
    said = [about.get("squire_checkpoint"), about.get("state")]
    digest = hashlib.sha256(json.dumps([said, [[key, _kind(tensors[key])] for key in sorted(tensors)]]).encode())
    for key in sorted(tensors):
        digest.update(_bytes(tensors[key]))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor, not a copy of it."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


# ------------------------------------------------------------------------------------------------- reading


class _Damaged(Exception):
    """Why a file is not the checkpoint it should be; another one may be."""


def load_checkpoint(folder: Path, name: str, *, fallback: bool = False) -> Checkpoint:
    """Inverse of `save_checkpoint`, verified. With `fallback`, the one before it if it is damaged or not there."""
    file = _file(folder, name)
    if not file.exists() and not _previous(file).exists():
        raise CheckpointError(_missing_words(folder, name))
    try:
        return _read(file)
    except _Damaged as damage:
        found = f"{file}: {damage}."
    try:
        older = _read(_previous(file))
    except _Damaged as damage:
        raise CheckpointError(
            f"{found} The one before it, {_previous(file).name}, cannot help: {damage}. To do: restore one of "
            "them from a copy, or train anew."
        ) from None
    if fallback:
        return replace(older, warning=f"{found} Used the one before it, {older.file.name}, instead.")
    raise CheckpointError(
        f"{found} The one before it, {older.file.name}, is whole. To do: allow the fallback to it, or rename it "
        f"to {file.name}."
    )


def _read(file: Path) -> Checkpoint:
    """One file, verified."""
    try:
        file.open("rb").close()  # the library takes a file that may not be read for one that is not there
        with safe_open(file, framework="pt") as content:
            about = content.metadata() or {}
            _check_version(file, about.get("squire_checkpoint"))
            tensors = {key: content.get_tensor(key) for key in content.keys()}  # noqa: SIM118
        whole = about.get("sha256") == _checksum(tensors, about)
    except FileNotFoundError:
        raise _Damaged("not there") from None
    except (SafetensorError, TypeError, ValueError) as error:
        raise _Damaged(f"damaged or cut short ({error})") from None
    except OSError as error:
        raise CheckpointError(
            f"{file}: cannot be read ({error.strerror or error}). To do: mend this, then resume."
        ) from None
    if not whole:
        raise _Damaged("damaged (its bytes are not those that were written: wrong checksum)")
    return Checkpoint(tensors, json.loads(about["state"]), file)


def _check_version(file: Path, version: str | None) -> None:
    if version is None or not version.isdecimal():
        raise _Damaged("a safetensors file, but not a checkpoint saved by squire")
    if int(version) > FILE_VERSION:
        raise CheckpointError(
            f"{file}: written by a newer squire (checkpoint version {version}, this one reads up to "
            f"{FILE_VERSION}). To do: upgrade squire-kg."
        )


def _missing_words(folder: Path, name: str) -> str:
    if not folder.is_dir():
        return f"{folder}: no such folder, so no checkpoint {name!r}. To do: give the folder of a run."
    names = sorted(file.name.removesuffix(SUFFIX) for file in folder.glob(f"*{SUFFIX}"))
    there = f"There is: {', '.join(names)}." if names else "There is no other."
    return f"{folder}: no checkpoint {name!r} ({name}{SUFFIX}). {there} To do: give the folder of a run."


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}{SUFFIX}"


def _previous(file: Path) -> Path:
    return file.with_name(f"{file.name.removesuffix(SUFFIX)}.previous{SUFFIX}")


def fingerprint(folder: Path) -> str:
    """First digits of the checksum of a run's model. Reads the file's header only."""
    for name in (BEST, LAST):
        file = folder / f"{name}.safetensors"
        if file.exists():
            try:
                with safe_open(file, framework="numpy") as content:
                    return str(content.metadata()["sha256"][:DIGITS])
            except (SafetensorError, KeyError, TypeError) as error:
                raise CheckpointError(
                    f"{file}: not a checkpoint ({error}). To do: restore it, or train anew."
                ) from None
    raise SettingError(f"{folder}: no model here. To do: make one with 'squire train GRAPH --out {folder}'.")


# ------------------------------------------------------------------------------------------------- optimizers


def optimizer_tensors(optimizer: Optimizer, names: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What Adam or AdamW remembers of each parameter, as NAME.step, NAME.exp_avg, NAME.exp_avg_sq.

    `names` is `dict(model.named_parameters())`. Learning rates and the like are no part of it: they come from the
    recipe and the step.
    """
    return {
        f"{name}.{slot}": value
        for name, parameter in names.items()
        for slot, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(optimizer: Optimizer, names: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Inverse of `optimizer_tensors`, for an optimizer of the same parameters, in any order, on any device."""
    remembered: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, slot = key.rpartition(".")
        _check_slot(key, tensor, names.get(name))
        remembered.setdefault(name, {})[slot] = tensor.clone()
    name_of = {parameter: name for name, parameter in names.items()}
    groups = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = {
        number: remembered[name_of[parameter]]
        for number, parameter in enumerate(groups)
        if name_of[parameter] in remembered
    }
    # torch knows what belongs on which device, and numbers parameters in the order of the groups.
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _check_slot(key: str, tensor: Tensor, parameter: Tensor | None) -> None:
    if parameter is None:
        raise CheckpointError(f"optimizer state {key!r} is of no parameter of this model. {_OTHER_MODEL}")
    if tensor.dim() and tensor.shape != parameter.shape:
        raise CheckpointError(
            f"optimizer state {key!r} has shape {tuple(tensor.shape)}, its parameter {tuple(parameter.shape)}. "
            f"{_OTHER_MODEL}"
        )


_OTHER_MODEL = "To do: resume with the recipe and the graph that the run began with."
