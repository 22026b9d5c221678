"""What work costs: wall-clock and CPU seconds, the pace of training, peak memory. Needs no torch."""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from squire.training.trainer import TrainingState

STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Seconds:
    """Wall-clock time, and CPU time of all threads, which means more on a busy machine."""

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
        """The median of wall and of CPU seconds; None if there are none."""
        if not found:
            return None
        return cls(statistics.median(one.wall for one in found), statistics.median(one.cpu for one in found))


class Pace:
    """The seconds of a step and of an epoch, without validations and checkpoints between epochs."""

    def __init__(self) -> None:
        self._ended: dict[int, list[Seconds]] = defaultdict(list)  # by epoch: when its steps ended
        self._nodes_per_second: list[float] = []

    def record(self, now: TrainingState) -> None:
        self._ended[now.epoch].append(Seconds.now())
        self._nodes_per_second.append(now.nodes_per_second)

    def step(self) -> Seconds | None:
        """The median step."""
        return Seconds.median(
            [after - before for ends in self._ended.values() for before, after in pairwise(ends)]
        )

    def epoch(self, steps_per_epoch: int) -> Seconds | None:
        """The median epoch; None if none was completed."""
        complete = [ends for ends in self._ended.values() if len(ends) >= max(steps_per_epoch, 2)]
        # From the end of the first step to that of the last; the first step is taken to be average.
        return Seconds.median([(ends[-1] - ends[0]) * (len(ends) / (len(ends) - 1)) for ends in complete])

    def nodes_per_second(self) -> float | None:
        speeds = self._nodes_per_second[1:] or self._nodes_per_second  # the first step allocates memory
        return statistics.median(speeds) if speeds else None


def peak_mb() -> float | None:
    """The peak memory of this process in megabytes; None where the system does not tell.

    Read from /proc where there is one: `getrusage` also counts the process that started this one.
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
    """The number of cores and the load, without which times mean little."""
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return {"cores": os.cpu_count(), "load_average": load}
