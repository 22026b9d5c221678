"""Arrays and JSON in one safetensors file: written atomically, checked when read. Numpy only.

Graph files, prefix trees and checkpoints all use this module. Any safetensors library can read the files, and
loading one runs no code. The state is JSON in the file's metadata, beside the format's version and a SHA-256 of
version, state and arrays.

The safetensors library is not used because it leaves a temporary file behind when it is killed, hides the system's
error number, and cannot map a file into memory for numpy.
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

import numpy as np
import numpy.typing as npt

from squire.core.files import replacing, sync_folder
from squire.errors import CheckpointError, SquireError

JSON: TypeAlias = "Mapping[str, JSON] | Sequence[JSON] | str | int | float | bool | None"
Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]

SUFFIX = ".safetensors"
DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class TensorFormat:
    """A kind of file: its version, and how it is read and written."""

    key: str  # the version is in the metadata under squire_KEY
    name: str  # for error messages
    version: int
    error: type[SquireError]
    remedy: str  # a sentence: what to do about a file that cannot be used
    verify: bool = False  # compare the checksum on reading; reads every byte
    mapped: bool = False  # map the file into memory instead of reading it; the arrays are read-only
    keep_previous: bool = False  # keep the file that is replaced as NAME.previous.safetensors


CHECKPOINT = TensorFormat(
    "checkpoint",
    "checkpoint",
    1,
    CheckpointError,
    "Restore it from a copy, or train again.",
    verify=True,
    keep_previous=True,
)


@dataclass(frozen=True, eq=False)
class TensorFile:
    """The content of a file, and which file it was."""

    arrays: dict[str, npt.NDArray[Any]]
    state: dict[str, Any]
    file: Path
    checksum: str  # SHA-256 of the content
    warning: str = ""  # why the previous file was used; empty if it was not

    def part(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays whose names start with `prefix`, by the rest of their names."""
        return {name.removeprefix(prefix): array for name, array in self.arrays.items() if name.startswith(prefix)}


def save_checkpoint(folder: Path, name: str, arrays: Arrays, state: Mapping[str, JSON]) -> Path:
    """Write the checkpoint `name` of a run folder; the one it replaces is kept."""
    return save_tensors(folder / f"{name}{SUFFIX}", CHECKPOINT, arrays, state)


def load_checkpoint(folder: Path, name: str, *, fallback: bool = False) -> TensorFile:
    """The checkpoint `name` of a run folder; with `fallback`, the previous one if it is damaged or missing."""
    file = folder / f"{name}{SUFFIX}"
    if not file.exists() and not _previous(file).exists():
        raise CheckpointError(_missing_checkpoint(folder, name))
    return load_tensors(file, CHECKPOINT, fallback=fallback)


def _missing_checkpoint(folder: Path, name: str) -> str:
    if not folder.is_dir():
        return f"{folder}: no such folder, so no checkpoint {name!r}. Give the folder of a run."
    names = sorted(file.name.removesuffix(SUFFIX) for file in folder.glob(f"*{SUFFIX}"))
    others = f"It has: {', '.join(names)}." if names else "It has no others."
    return f"{folder}: no checkpoint {name!r} ({name}{SUFFIX}). {others} Give the folder of a run."


# ------------------------------------------------------------------------------------------------- writing


def save_tensors(file: Path, form: TensorFormat, arrays: Arrays, state: Mapping[str, JSON]) -> Path:
    """Write one file. Whatever happens meanwhile, a complete file stays under its name if there was one before."""
    arrays = {key: np.asarray(array, order="C") for key, array in arrays.items()}
    header = _header(form, arrays, json.dumps(state))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if form.keep_previous:
            _replace_keeping(file, header, arrays)
        else:
            with replacing(file) as temporary:
                _write(temporary, header, arrays)
        sync_folder(file.parent)
    except OSError as error:
        size = len(header) + sum(array.nbytes for array in arrays.values())
        raise form.error(_save_message(file, form, error, size)) from error
    return file


def _write(file: Path, header: bytes, arrays: Arrays) -> None:
    with file.open("wb") as stream:
        stream.write(header)
        for key in _layout(arrays):
            stream.write(_bytes(arrays[key]))
        stream.flush()
        os.fsync(stream.fileno())


def _replace_keeping(file: Path, header: bytes, arrays: Arrays) -> None:
    """Replace `file` and keep the old one as the previous; at every moment `file` is complete."""
    partial = file.with_name(f"{file.name}.partial")  # a fixed name: the next save overwrites what a kill leaves
    kept = file.with_name(f"{file.name}.kept")
    try:
        _write(partial, header, arrays)
        with suppress(OSError):  # there is no old file, or the file system has no links: then none is kept
            kept.unlink(missing_ok=True)
            os.link(file, kept)
        os.replace(partial, file)
        if kept.exists():
            os.replace(kept, _previous(file))
    finally:
        for leftover in (partial, kept):
            with suppress(OSError):
                leftover.unlink(missing_ok=True)


def _previous(file: Path) -> Path:
    return file.with_name(f"{file.name.removesuffix(SUFFIX)}.previous{SUFFIX}")


def _save_message(file: Path, form: TensorFormat, error: OSError, size: int) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        what = f"no space for {size / 1e6:.1f} MB ({error.strerror})"
        advice = "Free some space and try again"
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        what = f"the folder cannot be written to ({error.strerror})"
        advice = "Make it writable, or choose another folder"
    else:
        what, advice = error.strerror or str(error), "Fix this and try again"
    previous = f"The previous {form.name} is intact." if file.exists() else f"There is no previous {form.name}."
    return f"{file}: the {form.name} could not be saved: {what}. {previous} {advice}."


# ------------------------------------------------------------------------------------------------- the format


def _layout(arrays: Arrays) -> list[str]:
    """The names in the order of their bytes: wide types first, so that each starts at a multiple of its size."""
    return sorted(arrays, key=lambda key: (-arrays[key].itemsize, key))


def _header(form: TensorFormat, arrays: Arrays, state: str) -> bytes:
    """The safetensors header: its length (8 bytes), then JSON, padded with spaces to a multiple of 8."""
    metadata = {f"squire_{form.key}": str(form.version), "state": state}
    metadata["sha256"] = _checksum(form, arrays, metadata)
    content: dict[str, object] = {"__metadata__": metadata}
    start = 0
    for key in _layout(arrays):
        end = start + arrays[key].nbytes
        content[key] = {**_type(arrays[key]), "data_offsets": [start, end]}
        start = end
    text = json.dumps(content).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _type(array: npt.NDArray[Any]) -> dict[str, object]:
    if array.dtype.str not in DTYPE_NAMES:
        raise TypeError(f"a tensor file cannot hold an array of {array.dtype}")
    return {"dtype": DTYPE_NAMES[array.dtype.str], "shape": list(array.shape)}


def _checksum(form: TensorFormat, arrays: Arrays, metadata: Mapping[str, str]) -> str:
    """Of version and state, and of all arrays with their names and types, in the order of their names."""
    described = [metadata.get(f"squire_{form.key}"), metadata.get("state")]
    names = sorted(arrays)
    digest = hashlib.sha256(json.dumps([described, [[key, _type(arrays[key])] for key in names]]).encode())
    for key in names:
        digest.update(_bytes(arrays[key]))
    return digest.hexdigest()


def _bytes(array: npt.NDArray[Any]) -> memoryview:
    """The memory of a contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8).data


# ------------------------------------------------------------------------------------------------- reading


class _Unusable(Exception):
    """Why a file cannot be used; the previous file may be."""


def load_tensors(file: Path, form: TensorFormat, *, fallback: bool = False) -> TensorFile:
    """Inverse of `save_tensors`. With `fallback`, the previous file if this one is damaged or missing."""
    try:
        return _read(file, form)
    except _Unusable as reason:
        problem = f"{file}: {reason}."
    if not form.keep_previous:
        raise form.error(f"{problem} {form.remedy}")
    try:
        older = _read(_previous(file), form)
    except _Unusable as reason:
        raise form.error(
            f"{problem} The previous one, {_previous(file).name}, cannot be used either: {reason}. {form.remedy}"
        ) from None
    if fallback:
        return replace(older, warning=f"{problem} Used the previous one, {older.file.name}, instead.")
    raise form.error(
        f"{problem} The previous one, {older.file.name}, is intact. To use it, rename it to {file.name}."
    )


def _read(file: Path, form: TensorFormat) -> TensorFile:
    try:
        content = np.memmap(file, np.uint8, "r") if form.mapped else np.fromfile(file, np.uint8)
        metadata, entries, data = _parse(content)
        _check_version(file, form, metadata)
        arrays = {name: _array(data, entry) for name, entry in entries.items()}
        state = json.loads(metadata.get("state", "{}"))
        intact = not form.verify or metadata.get("sha256") == _checksum(form, arrays, metadata)
    except FileNotFoundError:
        raise _Unusable("no such file") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _Unusable(f"damaged or cut short ({error})") from None
    except OSError as error:
        raise form.error(f"{file}: cannot be read ({error.strerror or error}). Fix this and try again.") from None
    if not intact:
        raise _Unusable("damaged (wrong checksum)")
    return TensorFile(arrays, state, file, metadata.get("sha256", ""))


def _parse(content: npt.NDArray[np.uint8]) -> tuple[dict[str, str], dict[str, Any], npt.NDArray[np.uint8]]:
    """The metadata, the description of each array, and the data."""
    length = int.from_bytes(content[:8].tobytes(), "little")
    if 8 + length > len(content):
        raise ValueError("incomplete header")
    header = json.loads(content[8 : 8 + length].tobytes())
    return header.pop("__metadata__", {}), header, content[8 + length :]


def _array(data: npt.NDArray[np.uint8], entry: Mapping[str, Any]) -> npt.NDArray[Any]:
    start, end = entry["data_offsets"]
    if not 0 <= start <= end <= len(data):
        raise ValueError("the data ends too early")
    return data[start:end].view(DTYPES[entry["dtype"]]).reshape(entry["shape"])


def _check_version(file: Path, form: TensorFormat, metadata: Mapping[str, str]) -> None:
    version = metadata.get(f"squire_{form.key}")
    if version is None or not version.isdecimal():
        raise _Unusable(f"a safetensors file, but not a {form.name} saved by squire")
    versions = f"({form.name} version {version}, this squire reads version {form.version})"
    if int(version) > form.version:
        raise form.error(f"{file}: written by a newer squire {versions}. Upgrade squire-kg.")
    if int(version) < form.version:
        raise _Unusable(f"written by an older squire {versions}")


def read_checksum(file: Path, form: TensorFormat) -> str:
    """The checksum that was saved with a file; reads the header only."""
    try:
        with file.open("rb") as stream:
            metadata, _, _ = _parse(np.memmap(stream, np.uint8, "r"))
        return metadata["sha256"]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise form.error(f"{file}: not a {form.name} ({error}). {form.remedy}") from None
