"""Bytes of a file, compressed or not, in blocks of whole lines. Knows nothing of what the lines mean."""

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
BLOCK_BYTES = 16 << 20  # bounds memory; 4 and 64 MB were a sixth slower


def format_suffix(path: Path) -> str:
    """The suffix that tells the format, whatever the compression: `train.TSV.gz` -> `.tsv`."""
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
    """The stream cut into blocks that end with a newline; one is added to a last line without."""
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
    """OSError if `path` cannot be written: better now than after an hour of work."""
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
    return path.with_name(f".{os.getpid()}.{path.name}")  # the suffix stays: it tells the compression


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`; it becomes `path` only if the body ends well, so no half file is seen."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path)
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def create_bytes(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, compressed as its suffix says, that appears under its name only when whole."""
    compression = COMPRESSIONS.get(path.suffix.lower())
    with replacing(path) as temporary:
        if compression == "xz":
            with lzma.open(temporary, "wb") as stream:
                yield cast(IO[bytes], stream)
        else:
            with pa.output_stream(str(temporary), compression=compression) as stream:
                yield stream
