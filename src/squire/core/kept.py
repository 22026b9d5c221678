"""What is worked out of a run's graph: made once, kept in its folder, and mapped into memory.

A file belongs to one state of the graph, which its key names. Files of another state and damaged ones are made
again. Where they cannot be written, they are made each time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from squire.core.tensors import SUFFIX, TensorFormat, load_tensors, save_tensors
from squire.errors import CheckpointError

Array = TypeVar("Array", bound=npt.NDArray[Any])
Values = tuple[Any, ...]  # arrays, and whole numbers
# To be raised when a kept array gets another meaning.
FORMAT = TensorFormat("index", "index", 1, CheckpointError, "Delete it.", mapped=True)
logger = logging.getLogger(__name__)


def frozen(array: Array) -> Array:
    """The same array, no longer writable, so that it can be shared."""
    array.flags.writeable = False
    return array


@dataclass(frozen=True)
class Kept:
    """The folder of what was worked out of one state of a graph; without a folder nothing is kept."""

    folder: Path | None = None
    key: str = ""  # of this state
    _lock: RLock = field(default_factory=RLock, compare=False, repr=False)  # a file is made by one thread

    def get(self, name: str, make: Callable[[], Values]) -> Values:
        """What `make` gives, or has given before. Arrays are read-only: kernels are compiled for that once."""
        if self.folder is None:
            return _frozen(make())
        file = self.folder / f"{name}{SUFFIX}"
        with self._lock:
            try:
                found = load_tensors(file, FORMAT)
                if found.state["key"] == self.key:
                    return tuple(_value(found.arrays[str(i)]) for i in range(len(found.arrays)))
            except CheckpointError:
                pass  # missing or damaged
            values = _frozen(make())
            try:
                arrays = {str(i): np.asarray(value) for i, value in enumerate(values)}
                save_tensors(file, FORMAT, arrays, {"key": self.key})
            except CheckpointError as error:
                logger.debug("%s", error)
            return values


NOT_KEPT = Kept()


def _frozen(values: Values) -> Values:
    return tuple(frozen(value) if isinstance(value, np.ndarray) else value for value in values)


def _value(array: npt.NDArray[Any]) -> Any:
    """An array without numpy's class for mapped ones, which kernels do not know; or a number."""
    return np.asarray(array) if array.ndim else array.item()
