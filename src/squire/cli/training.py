"""How training looks in a terminal: one bar for steps and for the gathering of paths between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from squire.cli.console import errors

if TYPE_CHECKING:  # it would load torch
    from squire.training.preparation import Stage
    from squire.training.trainer import Moment, Trainer, Watch


@contextmanager
def training_bar(trainer: Trainer, title: str = "") -> Iterator[tuple[Watch, Stage]]:
    """What `Trainer.fit` should tell of its steps, and of its gathering."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}"),
    )  # fmt: skip
    iterations = len(trainer.phases)
    with Progress(*columns, console=errors) as progress:
        task = progress.add_task(title, total=trainer.total_steps, completed=trainer.step, numbers="")

        def show(what: str, done: int, total: int, numbers: str = "") -> None:
            progress.update(task, description=title + what, completed=done, total=total, numbers=numbers)

        def watch(now: Moment) -> None:
            mrr = "–" if now.valid_mrr is None else f"{now.valid_mrr:.3f}"
            numbers = f"loss {now.loss:.3f}, {now.nodes_per_second:,.0f} nodes/s, MRR {mrr}"
            where = f"{which_iteration(now.iteration, iterations)}epoch {now.epoch + 1}"
            show(where, now.step, now.total_steps, numbers)

        yield watch, show


def which_iteration(number: int, of: int) -> str:
    """Said only where there are several."""
    return f"iteration {number} of {of}, " if of > 1 else ""
