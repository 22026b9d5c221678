"""Progress of long work: a callback that the work calls, and a bar for terminals and notebooks.

Functions that take long accept `progress`, a callback of (stage, done, total). The public functions draw it as a
bar on standard error, if that is a terminal or a notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn

Progress = Callable[[str, int, int | None], None]  # stage, done, total if known


def no_progress(stage: str, done: int, total: int | None) -> None:
    """Shows nothing."""


class ProgressBar:
    """A bar that is fed by any stage of the work. Without a display it does nothing."""

    def __init__(self, display: RichProgress | None = None, title: str = "") -> None:
        self._display = display
        self._task = None if display is None else display.add_task(title, total=None, numbers="")

    def stage(self, title: str, done: int, total: int | None = None, numbers: str = "") -> None:
        """Show how far a stage is; `numbers` is free text at the end of the line."""
        if self._display is not None and self._task is not None:
            self._display.update(self._task, description=title, completed=done, total=total, numbers=numbers)

    def of(self, title: str) -> Callable[[int, int | None], None]:
        """A callback of (done, total) for one stage."""
        return lambda done, total: self.stage(title, done, total)


@contextmanager
def progress_bar(
    title: str, show: bool = True, *, unit: str = "", in_bytes: bool = False
) -> Iterator[ProgressBar]:
    """A bar that disappears when the work is done. `unit` adds a speed, as in `12.3 questions/s`."""
    if not show:
        yield ProgressBar()
        return
    from rich.console import Console

    console = Console(stderr=True, emoji=False)
    if not (console.is_terminal or console.is_jupyter):
        yield ProgressBar()
        return
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    count = DownloadColumn() if in_bytes else MofNCompleteColumn()
    text = TextColumn("{task.description}", markup=False)
    speed = [_speed_column(unit)] if unit else []
    numbers = TextColumn("{task.fields[numbers]}", markup=False)
    columns = (text, BarColumn(), count, *speed, TimeRemainingColumn(), numbers)
    with RichProgress(*columns, console=console, transient=True) as display:
        yield ProgressBar(display, title)


def _speed_column(unit: str) -> ProgressColumn:
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.1f} {unit}/s" if task.speed else "")

    return Speed()
