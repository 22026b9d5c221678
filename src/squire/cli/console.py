"""Where commands print: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """Left to `main`, which answers it for everything that prints; Rich would end with exit code 1."""
        raise BrokenPipeError


# No emoji: a label may well be called ":cat:".
out = _Output(emoji=False)
errors = Console(stderr=True, emoji=False)


def print_json(data: object) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False))


class Bar:
    """One bar, fed by whatever form of progress the work reports."""

    def __init__(self, progress: Progress, title: str) -> None:
        self._progress, self._task = progress, progress.add_task(title, total=None)

    def __call__(self, done: int, total: int | None) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def stage(self, title: str, done: int, total: int | None) -> None:
        """Work of several stages, or of several files."""
        self._progress.update(self._task, description=title, completed=done, total=total)


class _Speed(ProgressColumn):
    """`12.3 questions/s`, as soon as it is known."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.1f} {self._unit}/s" if task.speed else "")


@contextmanager
def progress_bar(title: str, *, unit_bytes: bool = False, speed_of: str = "") -> Iterator[Bar]:
    """A bar on standard error that goes away when the work is done; `speed_of` what, it tells also how fast."""
    count = DownloadColumn() if unit_bytes else MofNCompleteColumn()
    speed = (_Speed(speed_of),) if speed_of else ()
    columns = (TextColumn("{task.description}"), BarColumn(), count, *speed, TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True) as progress:
        yield Bar(progress, title)


@contextmanager
def silent(wanted: bool) -> Iterator[None]:
    """Let nothing reach standard error, neither words nor bars; what the body raises is told as ever."""
    before, errors.quiet = errors.quiet, wanted or errors.quiet
    try:
        yield
    finally:
        errors.quiet = before
