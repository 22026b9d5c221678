"""One piece of work at a time in a folder. The system holds the lock, so a killed run leaves none behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from squire.core.run_files import LOCK
from squire.errors import SettingError

try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None  # type: ignore[assignment]


@contextmanager
def locked(folder: Path, option: str = "--out", doing: str = "training") -> Iterator[None]:
    """The folder, made if need be, is ours for as long as the body lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SettingError(
                    f"{option} {folder}: another process is {doing} there. To do: wait for it, stop it, or choose "
                    f"another {option}."
                ) from None
            except OSError:  # a file system without locks
                pass
        yield
