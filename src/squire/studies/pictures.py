"""The pictures of the studies: heat maps, bars, curves. Draws numbers; needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from squire.evaluation.metrics import Metrics
from squire.evaluation.plots import History, check_picture, plain, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from squire.studies.efficiency_table import Row

LONGEST = 24  # characters of a name
COLUMNS = 3  # heat maps beside each other
SMALL = {"fontsize": 7.5, "color": "0.35"}
STYLES = (("-", "o"), ("--", "s"), (":", "^"), ("-.", "D"))  # of kinds of graphs
PHASES = ("mining rules", "sampling paths", "prefix trees", "an epoch", "a question")
CHARACTERS_PER_INCH = 14  # of that size


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
    _sign(figure, signature)
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
    _sign(figure, str(metrics[0].signature))
    save(figure, file)


def draw_ablation(runs: Mapping[str, History], frequency: Metrics, heading: str, file: Path) -> None:
    """Valid MRR over the steps of each variant (Figure 6), and where iterations begin with new paths."""
    from matplotlib.figure import Figure  # late: it takes half a second

    check_picture(file)
    figure = Figure(figsize=(9, 5.4), dpi=120, layout="constrained")
    axes = figure.subplots()
    for number, (name, run) in enumerate(runs.items()):
        best = f", best {run.mrr[:, 1].max():.3f}" if len(run.mrr) else ""
        axes.plot(*run.mrr.T, color=f"C{number}", marker="o", markersize=3.5, linewidth=1.8, label=name + best)
        for iteration, step in enumerate(run.iterations, start=2):
            axes.axvline(step, color=f"C{number}", linestyle=":", linewidth=1.2)
            axes.annotate(
                f"iteration {iteration}", (step, 1), (3, -3), xycoords=("data", "axes fraction"),
                textcoords="offset points", va="top", fontsize=8, color="0.3",
            )  # fmt: skip
    label = f"tail frequency {frequency.mrr:.3f}"
    axes.axhline(frequency.mrr, color="0.4", linestyle="--", linewidth=1.2, label=label)
    axes.set_xlabel("optimisation steps")
    axes.set_ylabel("MRR on valid (0 to 1)")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlim(0, None)
    axes.margins(y=0.12)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(plain(heading), fontsize=11)
    figure.legend(frameon=False, loc="outside upper center", ncols=len(runs) + 1, fontsize=9)
    _sign(figure, *(run.signature for run in runs.values()))
    save(figure, file)


def draw_efficiency(kinds: Mapping[str, Sequence[Row]], file: Path) -> None:
    """Time and memory (logarithmic) and quality against the train facts; a line style a kind of graph."""
    from matplotlib.figure import Figure  # late: it takes half a second

    check_picture(file)
    figure = Figure(figsize=(13.5, 5), dpi=120, layout="constrained")
    time, memory, quality = figure.subplots(1, 3)
    for style, (kind, rows) in zip(STYLES, kinds.items(), strict=False):
        line = {"linestyle": style[0], "marker": style[1], "markersize": 5, "linewidth": 1.6}
        facts = [row.facts for row in rows]
        for number, phase in enumerate(PHASES):
            values = [row.seconds[phase] or np.nan for row in rows]
            time.plot(facts, values, color=f"C{number}", label=f"{phase}, {_short(kind)}", **line)
        memory.plot(facts, [row.peak_mb or np.nan for row in rows], color="C5", label=_short(kind), **line)
        for color, label, of in (("C0", "paths", "ours"), ("0.45", "tail frequency", "frequency")):
            mrr = [(getattr(row, of) or {"mrr": np.nan})["mrr"] for row in rows]
            quality.plot(facts, mrr, color=color, label=f"{label}, {_short(kind)}", **line)
    for axes, title, unit in (
        (time, "time by the clock", "seconds"),
        (memory, "memory: peak of a process for each size", "megabytes (10⁶ bytes)"),
        (quality, "quality on valid, as far as trained", "MRR (0 to 1)"),
    ):
        axes.set_xscale("log")
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("facts in train")
        axes.set_ylabel(unit)
        axes.grid(alpha=0.3, which="both" if axes is not quality else "major", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    time.set_yscale("log")
    memory.set_yscale("log")
    memory.set_ylim(100, max(10_000, 2 * memory.get_ylim()[1]))  # so that decades are seen as such
    memory.yaxis.set_major_formatter("{x:,.0f}")
    quality.set_ylim(0, None)
    for axes in (time, memory, quality):
        axes.legend(frameon=False, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    figure.supxlabel("signature of each point: in the table beside this picture", **SMALL)
    save(figure, file)


def _sign(figure: Figure, *signatures: str) -> None:
    """Below everything, each signature once, in lines that fit."""
    width = int(figure.get_figwidth() * CHARACTERS_PER_INCH)
    lines = []
    for signature in dict.fromkeys(filter(None, signatures)):
        line = ""
        for part in signature.split("|"):
            if line and len(line) + len(part) > width:
                lines.append(line)
                line = ""
            line += f"|{part}" if line else part
        lines.append(line)
    figure.supxlabel(plain("\n".join(lines)), **SMALL)


def _short(name: str) -> str:
    """Both ends of a long name: of `person/place_of_birth/citytown` either alone says too little."""
    half = LONGEST // 2
    return plain(name if len(name) <= LONGEST else f"{name[: half - 1]}…{name[-half:]}")
