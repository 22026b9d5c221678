"""Pictures of runs: loss and valid MRR over the steps, from what a run folder holds. Draws, and prints nothing.

Needs no torch: the numbers are in metrics.jsonl, and the frequency row is counted from the run's own graph.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from squire.core.files import replacing
from squire.core.run_files import GRAPH, METRICS, RECIPE
from squire.errors import DataError, SettingError
from squire.evaluation.baselines import rank_by_frequency
from squire.evaluation.queries import QuerySet
from squire.graph.graph import Graph

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
SMOOTHED_SHARE = 0.02  # of all steps are averaged for the thick line
Points = npt.NDArray[np.float64]  # (point, 2): step, value


@dataclass(frozen=True, eq=False)
class History:
    """What there is to draw of a run."""

    name: str  # of its folder
    recipe: str  # its name; empty if the folder does not tell
    loss: Points
    mrr: Points  # empty before the first validation
    signature: str  # of the last validation; empty before the first
    frequency: float | None  # the MRR that a model must beat, filtered like the run's own; None without valid
    iterations: tuple[int, ...]  # the first step of each iteration of Algorithm 1, from the second on


def read_history(folder: Path) -> History:
    """The curves of the run in a folder, which may be training meanwhile."""
    lines = _metrics(folder)
    loss = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    valid = [line for line in lines if "valid" in line]
    if not loss:
        raise SettingError(f"{folder}: no step is logged yet. To do: plot again after the first step.")
    return History(
        folder.resolve().name,
        _recipe_name(folder / RECIPE),
        np.array(loss, np.float64),
        np.array([(line["step"], line["valid"]["mrr"]) for line in valid], np.float64).reshape(-1, 2),
        valid[-1]["valid"]["signature"] if valid else "",
        _frequency(folder / GRAPH),
        _iterations(lines),
    )


def _iterations(lines: Sequence[dict[str, Any]]) -> tuple[int, ...]:
    first: dict[int, int] = {}
    for line in lines:
        first.setdefault(line.get("iteration", 1), line["step"])
    return tuple(step for iteration, step in sorted(first.items()) if iteration > 1)


def _metrics(folder: Path) -> list[dict[str, Any]]:
    file = folder / METRICS
    if not file.exists():
        raise SettingError(
            f"{folder}: no run that has begun to train (no {METRICS}). To do: give the --out of 'squire train'."
        )
    *whole, _ = file.read_text(encoding="utf-8", errors="replace").split("\n")  # the rest is being written
    found = []
    for number, line in enumerate(whole, start=1):
        try:
            found.append(_checked(json.loads(line)))
        except (ValueError, KeyError, TypeError):
            raise DataError(
                f"{file}:{number}: not a line that a run has logged: {line[:80]!r}. To do: remove the line."
            ) from None
    return found


def _checked(line: dict[str, Any]) -> dict[str, Any]:
    """With numbers where numbers are due."""
    float(line["step"])
    float(line["loss"] if "loss" in line else line["valid"]["mrr"])
    return line


def _recipe_name(file: Path) -> str:
    if not file.exists():
        return ""
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["name"])
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{file}: not the recipe of a run. To do: restore it, or remove it.") from None


def _frequency(file: Path) -> float | None:
    """The frequency row on valid. Test is no part of the filter, as while training."""
    if not file.exists():
        return None
    graph = Graph.load(file)
    if not len(graph.valid):
        return None
    query_set = QuerySet.from_graph(graph, "valid", filter_splits=("train", "valid"))
    return rank_by_frequency(graph, query_set).metrics(intervals=False).mrr


def check_picture(file: Path) -> None:
    """SettingError for a file that cannot be a picture, before any work."""
    if file.suffix.lower() not in FORMATS:
        raise SettingError(f"--output {file}: expected a name that ends in {', '.join(FORMATS)}.")


def draw(runs: Sequence[History], file: Path) -> None:
    """One picture of one run or several; it appears whole or not at all."""
    from matplotlib.figure import Figure  # late: it takes half a second

    check_picture(file)
    watched = any(len(run.mrr) or run.frequency is not None for run in runs)
    figure = Figure(figsize=(9, 7 if watched else 4.5), dpi=120, layout="constrained")
    axes = figure.subplots(2 if watched else 1, sharex=True, squeeze=False)[:, 0]
    _draw_loss(axes[0], runs)
    if watched:
        _draw_mrr(axes[1], runs)
    for one in axes:
        one.grid(alpha=0.3)
        one.spines[["top", "right"]].set_visible(False)
        one.margins(x=0.01)
    axes[-1].set_xlabel("step")
    _draw_title(axes[0], runs)
    save(figure, file)


def save(figure: Figure, file: Path) -> None:
    """Whole or not at all."""
    with replacing(file) as temporary, warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes; that is no reason to speak of it.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(temporary, format=file.suffix[1:].lower())


def _draw_loss(axes: Axes, runs: Sequence[History]) -> None:
    """Each epoch ends in a dip: its last batch is small, and is divided by the weight of an average one."""
    one = len(runs) == 1
    for number, run in enumerate(runs):
        color, (steps, values) = f"C{number}", run.loss.T
        window = max(1, round(len(steps) * SMOOTHED_SHARE))
        raw, smooth = "each step" if one else None, f"mean of the last {window} steps" if one else _label(run)
        axes.plot(steps, values, color=color, alpha=0.25, linewidth=0.8, label=raw)
        axes.plot(steps, _running_mean(values, window), color=color, linewidth=1.8, label=smooth)
    axes.set_ylabel("loss (nats a token, mean over paths)")
    axes.legend(frameon=False, fontsize=9, loc="upper right")  # it falls


def _draw_mrr(axes: Axes, runs: Sequence[History]) -> None:
    for number, run in enumerate(runs):
        label = None
        if len(runs) == 1 and len(run.mrr):
            label = f"valid, best {run.mrr[:, 1].max():.3f}"
        axes.plot(*run.mrr.T, color=f"C{number}", marker="o", markersize=4, linewidth=1.8, label=label)
    for value in sorted({run.frequency for run in runs if run.frequency is not None}):
        label = f"tail frequency {value:.3f}"
        axes.axhline(value, color="0.4", linestyle="--", linewidth=1.2, label=label)
    axes.set_ylabel("MRR on valid (0 to 1)")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=9)


def _running_mean(values: npt.NDArray[np.float64], window: int) -> npt.NDArray[np.float64]:
    """Over the last `window` values, or as many as there are."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(sums))
    starts = np.maximum(ends - window, 0)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))


def _draw_title(axes: Axes, runs: Sequence[History]) -> None:
    """Which run by which recipe; below it, smaller, what the MRR was measured on and how."""
    signatures = [plain(text) for text in dict.fromkeys(run.signature for run in runs) if text]
    axes.set_title(_label(runs[0]) if len(runs) == 1 else f"{len(runs)} runs", pad=8 + 10 * len(signatures))
    small = {"fontsize": 7.5, "color": "0.35", "linespacing": 1.1}
    axes.text(0.5, 1.01, "\n".join(signatures), small, transform=axes.transAxes, ha="center", va="bottom")


def _label(run: History) -> str:
    """Begins with a word: matplotlib hides what begins with an underscore."""
    return plain(f"run {run.name}" + (f", recipe {run.recipe}" if run.recipe else ""))


def plain(text: str) -> str:
    """A dollar would begin a formula."""
    return text.replace("$", r"\$")
