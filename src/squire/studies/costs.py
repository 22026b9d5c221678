"""What work costs: seconds by name, the peak of memory, and beside what else it ran."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Seconds:
    """By the clock, and of the processor (all threads): on a busy machine only the latter says much."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Seconds:
        return cls(time.perf_counter(), time.process_time())

    def __sub__(self, before: Seconds) -> Seconds:
        return Seconds(self.wall - before.wall, self.cpu - before.cpu)

    def __mul__(self, factor: float) -> Seconds:
        return Seconds(self.wall * factor, self.cpu * factor)

    @classmethod
    def median(cls, found: Sequence[Seconds]) -> Seconds | None:
        """Of each apart; None if there are none."""
        if not found:
            return None
        return cls(statistics.median(one.wall for one in found), statistics.median(one.cpu for one in found))


class Clock:
    """What named pieces of work took."""

    def __init__(self) -> None:
        self.seconds: dict[str, Seconds] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began = Seconds.now()
        yield
        self.seconds[name] = Seconds.now() - began


def peak_mb() -> float | None:
    """The most memory that this process has held; None where the system does not tell.

    From /proc where there is one: `getrusage` also counts the process that started this one.
    """
    if STATUS.exists():
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
    try:
        import resource
        import sys
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def machine() -> dict[str, Any]:
    """Without which times mean little."""
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return {"cores": os.cpu_count(), "load_average": load}
