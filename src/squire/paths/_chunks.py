"""Work on the items of an array in chunks that cost about the same. Knows nothing of what the work is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from squire.core.parallel import as_done
from squire.graph.adjacency import Offsets

CHUNKS = 32  # a thread: few enough to cost nothing, many enough to end together

Progress = Callable[[int, int], None]  # done, in all


def chunk_bounds(cost: Offsets, threads: int) -> list[int]:
    """Bounds of runs of items that cost about the same.  (item) -> [0, ..., items]"""
    if len(cost) == 0:
        return [0]
    total = np.cumsum(cost)
    cuts = np.searchsorted(total, np.linspace(0, total[-1], CHUNKS * threads + 1)[1:-1])
    return [int(cut) for cut in np.unique(np.concatenate([[0], cuts, [len(cost)]]))]


def run_chunks(
    do: Callable[[int, int], int],
    bounds: list[int],
    threads: int,
    total: int = 0,
    progress: Progress | None = None,
) -> None:
    """Call `do(first, last)` for every chunk; what it gives adds up to the progress made."""
    done = 0
    for _, progressed in as_done(lambda i: do(bounds[i], bounds[i + 1]), len(bounds) - 1, threads):
        done += progressed
        if progress is not None:
            progress(done, total)
