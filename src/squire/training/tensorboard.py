"""The curves of a run for TensorBoard, where it is installed; elsewhere nothing.

Knows neither what the numbers mean nor when they come; metrics.jsonl has them too, whatever is installed.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any


class Curves:
    """Points of named curves, written below a folder; those of an earlier attempt after `step` are superseded."""

    def __init__(self, folder: Path, step: int, wanted: bool = True) -> None:
        self._writer: Any = None
        if wanted and find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter  # late: it takes a second

            self._writer = SummaryWriter(folder, purge_step=step + 1)

    def add(self, step: int, **values: float) -> None:
        """A point of each curve."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def __enter__(self) -> Curves:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._writer is not None:
            self._writer.close()
