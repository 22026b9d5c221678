"""The pictures of the studies: attention as heat maps, constraints as bars. Draws numbers; needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from squire.evaluate.metrics import Metrics
from squire.plots import check_picture, plain, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST = 24  # characters of a name
COLUMNS = 3  # heat maps beside each other
SMALL = {"fontsize": 7.5, "color": "0.35"}


def draw_attention(
    titles: Sequence[str],  # of the heat maps
    maps: npt.NDArray[np.float64],  # (map, token, token)
    tokens: Sequence[str],
    query_tokens: int,  # the first so many are the query, which is looked at but does not look here
    heading: str,
    signature: str,
    file: Path,
) -> None:
    """From each token of the path (rows) to the query and the tokens up to it (columns)."""
    from matplotlib.figure import Figure  # late: it takes half a second

    check_picture(file)
    words = [_short(token) for token in tokens]
    rows, columns = -(-len(maps) // COLUMNS), min(len(maps), COLUMNS)
    looking = len(tokens) - query_tokens
    size = columns * (1.9 + 0.62 * len(tokens)), 1.2 + rows * (2.2 + 0.5 * looking)
    figure = Figure(figsize=(max(size[0], 7), size[1]), dpi=120, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    image = None
    for axes, title, weights in zip(grid, titles, maps, strict=False):
        seen = np.where(np.tri(len(tokens)) > 0, weights, np.nan)[query_tokens:]
        image = axes.imshow(seen, vmin=0, vmax=1, cmap="viridis", aspect="auto")
        axes.set_facecolor("0.93")  # what is not seen yet
        _write_values(axes, seen)
        axes.set_title(title, fontsize=10)
        axes.set_xticks(range(len(tokens)), words, rotation=40, ha="right", rotation_mode="anchor", fontsize=9)
        axes.set_yticks(range(looking), words[query_tokens:], fontsize=9)
        axes.axvline(query_tokens - 0.5, color="white", linewidth=2)
        axes.set_xlabel("seen: the query, then the path", fontsize=9)
        axes.set_ylabel("looking: tokens of the path", fontsize=9)
    for axes in grid[len(maps) :]:
        axes.set_axis_off()
    assert image is not None
    bar = figure.colorbar(image, ax=list(grid), fraction=0.03, pad=0.01)
    bar.set_label("attention (share of a row, 0 to 1)", fontsize=9)
    figure.suptitle(plain(heading), fontsize=11)
    figure.supxlabel(plain(signature), **SMALL)
    save(figure, file)


def _write_values(axes: Axes, seen: npt.NDArray[np.float64]) -> None:
    for (row, column), value in np.ndenumerate(seen):
        if not np.isnan(value):
            color = "black" if value > 0.6 else "white"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=color)


def draw_constraints(
    names: Sequence[str], metrics: Sequence[Metrics], notes: Iterable[str], heading: str, file: Path
) -> None:
    """Hits@1 and MRR of every condition, with 95 % intervals; a note below each name."""
    from matplotlib.figure import Figure  # late: it takes half a second

    check_picture(file)
    figure = Figure(figsize=(max(6.5, 2.2 * len(names)), 5), dpi=120, layout="constrained")
    axes = figure.subplots()
    places, width = np.arange(len(names)), 0.36
    for shift, (key, label) in enumerate((("hits1", "Hits@1"), ("mrr", "MRR"))):
        values = np.array([getattr(one, key) for one in metrics])
        low, high = np.array([(one.intervals or {})[key] for one in metrics]).T
        where = places + (shift - 0.5) * width
        beyond = np.maximum([values - low, high - values], 0)
        axes.bar(where, values, width, yerr=beyond, capsize=4, label=label, color=f"C{shift}", alpha=0.85)
        for x, value, top in zip(where, values, high, strict=True):
            axes.annotate(f"{value:.3f}", (x, top), (0, 3), textcoords="offset points", ha="center", fontsize=8)
    labels = [f"{_short(name)}\n{note}" if note else _short(name) for name, note in zip(names, notes, strict=True)]
    axes.set_xticks(places, labels, fontsize=9)
    axes.set_ylabel("Hits@1 and MRR (0 to 1), with 95 % intervals")
    axes.set_ylim(0, None)
    axes.margins(y=0.12)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, loc="outside upper right", ncols=2, fontsize=9)
    axes.set_title(plain(heading), fontsize=11)
    figure.supxlabel(plain(str(metrics[0].signature)), **SMALL)
    save(figure, file)


def _short(name: str) -> str:
    """Both ends of a long name: of `person/place_of_birth/citytown` either alone says too little."""
    half = LONGEST // 2
    return plain(name if len(name) <= LONGEST else f"{name[: half - 1]}…{name[-half:]}")
