"""Locks, interrupts and memory: one process at a time in a folder, and Ctrl-C only when work can stop."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

from squire.core.run_files import LOCK
from squire.errors import SettingError

try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None  # type: ignore[assignment]


@contextmanager
def locked(folder: Path, doing: str = "training", wait: float = 0.0) -> Iterator[None]:
    """Hold the lock of a folder, which is created if necessary. The system releases it even after a kill.

    wait: seconds to wait for whoever holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as file:
        if fcntl is not None:
            until = time.monotonic() + wait
            while not _lock(file):
                if time.monotonic() >= until:
                    advice = "Wait for it, stop it, or choose another folder."
                    raise SettingError(f"{folder}: another process is {doing} there. {advice}")
                time.sleep(0.02)
        yield


def _lock(file: IO[str]) -> bool:
    """Take the lock, if nobody else has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


def machine_memory() -> float:
    """The bytes of memory of this machine; infinite where the system does not tell."""
    if not hasattr(os, "sysconf"):  # Windows
        return math.inf
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def has_companions() -> bool:
    """Whether torchrun has started several processes. Known without torch, which takes seconds to import."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


@contextmanager
def interruptions(patient: bool) -> Iterator[list[int]]:
    """Collect Ctrl-C instead of raising it, so that the work can stop cleanly.

    A second Ctrl-C is raised at once, unless `patient`.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = signal.getsignal(signal.SIGINT)

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if not patient:
            signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, receive)
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, before)
