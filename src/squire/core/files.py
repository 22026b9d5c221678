"""Reading and writing files: compression, blocks of whole lines, and atomic replacement."""

from __future__ import annotations

import errno
import lzma
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import pyarrow as pa

COMPRESSIONS = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}
BLOCK_BYTES = 16 << 20  # limits memory; 4 and 64 MB were a sixth slower


def format_suffix(path: Path) -> str:
    """The suffix that gives the format, without that of the compression: `train.TSV.gz` -> `.tsv`."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The decompressed content of a file."""
    compression = COMPRESSIONS.get(path.suffix.lower())
    if compression == "xz":
        with lzma.open(path) as stream:
            yield cast(IO[bytes], stream)
    else:
        with pa.input_stream(str(path), compression=compression) as stream:
            yield stream


def line_blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Blocks of a stream that end with a newline; one is added if the last line has none."""
    rest = b""
    while chunk := stream.read(BLOCK_BYTES):
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield rest + chunk[:cut]
            rest = chunk[cut:]
        else:
            rest += chunk
    if rest:
        yield rest + b"\n"


def ensure_creatable(path: Path) -> None:
    """Raise an OSError if `path` cannot be written, before the work begins."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = _beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        temporary.unlink()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _beside(path: Path) -> Path:
    return path.with_name(f".{os.getpid()}.{path.name}")  # the suffix gives the compression


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`, which is renamed to `path` only if the body succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path)
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the renames survive a power failure, where the system allows it."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot do this
            raise
    finally:
        os.close(descriptor)


@contextmanager
def create_bytes(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, compressed as its suffix says; it appears under its name only when it is complete."""
    compression = COMPRESSIONS.get(path.suffix.lower())
    with replacing(path) as temporary:
        if compression == "xz":
            with lzma.open(temporary, "wb") as stream:
                yield cast(IO[bytes], stream)
        else:
            with pa.output_stream(str(temporary), compression=compression) as stream:
                yield stream
