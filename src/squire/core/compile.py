"""The decorators that compile every kernel of the package, and the folder that keeps their machine code.

numba's cache checks only the file that holds a function. Code inlined from another file can change without numba
noticing, and the old machine code would run. The kernels' cache folder is therefore named after a hash of all
kernel sources: when any of them changes, all are compiled anew.

A kernel module is a private module, `_name.py`, that imports this one. It takes its constants and tuple types from
itself or from other kernel modules; `tests/test_compile.py` checks this.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")

PACKAGE = Path(__file__).resolve().parents[1]
int64: Callable[[Any], int] = cast("Any", numba.int64)
"""Casts to a 64-bit integer in a kernel. Helpers called with a literal or an int32 would be compiled once more."""

KEPT_FOLDERS = 2  # of other versions, besides those used within KEPT_SECONDS
KEPT_SECONDS = 24 * 3600


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compiles a function on its first call, keeps the machine code on disk and releases the interpreter lock."""
    folder = _cache_folder()
    settings = cast("Any", numba.config)
    # numba chooses the folder while it decorates. Restoring the setting leaves other users of numba alone.
    previous, settings.CACHE_DIR = settings.CACHE_DIR, str(folder or "")
    try:
        return _compile(function, cache=folder is not None)
    finally:
        settings.CACHE_DIR = previous


def inner_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compiles a function that only kernels call, and that neither allocates nor returns arrays.

    Its machine code is kept as part of the kernels. Without a wrapper to call it from Python it compiles in half
    the time. Without numba's runtime no references are counted: counting those of shared arrays, with atomic
    instructions at every call, took most of the time of path sampling and grew with the number of threads.
    """
    return _compile(function, no_cpython_wrapper=True, _nrt=False)


def kernel_sources() -> list[Path]:
    """The files of all kernel modules, and this one."""
    private = sorted(PACKAGE.rglob("_[!_]*.py"))
    return [Path(__file__), *(path for path in private if b"squire.core.compile" in path.read_bytes())]


def _compile(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    """Divisions do not check for zero: the kernels divide by nothing that can be 0, and checks compile slowly."""
    njit = cast("Any", numba.njit)
    return cast(
        "Callable[P, R]", njit(nogil=True, no_cfunc_wrapper=True, error_model="numpy", **options)(function)
    )


@cache
def _cache_folder() -> Path | None:
    """The folder for this version of the kernels, or None where nothing can be kept."""
    for base in (_user_folder(), _temporary_folder()):
        if base is None:
            continue
        folder = base / _version()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            os.utime(folder)  # marks it as used
        except OSError:
            continue
        _remove_unused(base)
        return folder
    return None


def _user_folder() -> Path | None:
    """Below `NUMBA_CACHE_DIR` or `SQUIRE_CACHE` if one is set, else in the user's cache folder."""
    chosen = cast("Any", numba.config).CACHE_DIR
    if chosen:
        return Path(chosen) / "squire"
    try:
        base = os.environ.get("SQUIRE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "squire")
        return Path(base).expanduser() / "kernels"
    except RuntimeError:  # no home folder
        return None


def _temporary_folder() -> Path | None:
    """A folder of this user's own: machine code must not be loaded from a folder that somebody else made."""
    user = os.getuid() if hasattr(os, "getuid") else ""
    folder = Path(tempfile.gettempdir()) / f"squire-kernels-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder if user in ("", folder.stat().st_uid) else None
    except OSError:
        return None


def _version() -> str:
    """A hash of the kernel sources and of what compiles them: about 3 ms."""
    digest = hashlib.sha256(f"{numba.__version__} {sys.version}".encode())
    for path in kernel_sources():
        digest.update(str(path.relative_to(PACKAGE)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _remove_unused(base: Path) -> None:
    """Removes the folders of other versions, except recent ones: several checkouts may be in use."""
    by_age = sorted(base.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in by_age[1 + KEPT_FOLDERS :]:
        if folder.stat().st_mtime < time.time() - KEPT_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
