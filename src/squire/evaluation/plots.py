"""Plots: the training curves of runs, and confidence against truth. Needs no torch."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
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
SMOOTHED_SHARE = 0.02  # share of the steps that the smoothed line averages over
Points = npt.NDArray[np.float64]  # (point, 2): step, value


@dataclass(frozen=True, eq=False)
class History:
    """The training curves of a run."""

    name: str  # of the folder
    recipe: str  # name; empty if unknown
    loss: Points
    mrr: Points  # empty before the first validation
    signature: str  # of the last validation; empty before the first
    frequency: float | None  # MRR of the tail frequency on valid, with the same filter; None without valid
    iterations: tuple[int, ...]  # the first step of each iteration of Algorithm 1, from the second on


def read_history(folder: Path) -> History:
    """Read the curves of a run, which may still be training."""
    lines = _metrics(folder)
    loss = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    valid = [line for line in lines if "valid" in line]
    if not loss:
        raise SettingError(f"{folder}: no step is logged yet. Plot again after the first step.")
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
            f"{folder}: no training curves here (no {METRICS}). Give a folder made by `squire train`."
        )
    *whole, _ = file.read_text(encoding="utf-8", errors="replace").split("\n")  # the last line may be incomplete
    found = []
    for number, line in enumerate(whole, start=1):
        try:
            found.append(_checked(json.loads(line)))
        except (ValueError, KeyError, TypeError):
            raise DataError(
                f"{file}:{number}: not a line of training metrics: {line[:80]!r}. Remove the line."
            ) from None
    return found


def _checked(line: dict[str, Any]) -> dict[str, Any]:
    """Raise if numbers are missing."""
    float(line["step"])
    float(line["loss"] if "loss" in line else line["valid"]["mrr"])
    return line


def _recipe_name(file: Path) -> str:
    if not file.exists():
        return ""
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["name"])
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{file}: not the recipe of a run. Restore or remove it.") from None


def _frequency(file: Path) -> float | None:
    """MRR of the tail frequency on valid. Test is not part of the filter, as in training."""
    if not file.exists():
        return None
    graph = Graph.load(file)
    if not len(graph.valid):
        return None
    query_set = QuerySet.from_graph(graph, "valid", filter_splits=("train", "valid"))
    return rank_by_frequency(graph, query_set).metrics(intervals=False).mrr


def check_picture(file: Path) -> None:
    """Raise SettingError if the file name has no known image suffix."""
    if file.suffix.lower() not in FORMATS:
        raise SettingError(f"output={str(file)!r}: expected a name that ends in {', '.join(FORMATS)}.")


def draw(runs: Sequence[History], file: Path) -> None:
    """Draw the curves of one or several runs; the file is written atomically."""
    from matplotlib.figure import Figure  # imported late: takes half a second

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
    """Write the figure atomically."""
    with replacing(file) as temporary, warnings.catch_warnings():
        # Characters that the font lacks are drawn as boxes, without a warning.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(temporary, format=file.suffix[1:].lower())


def _draw_loss(axes: Axes, runs: Sequence[History]) -> None:
    """Each epoch ends in a dip: its last batch is small but divided by the weight of an average one."""
    one = len(runs) == 1
    for number, run in enumerate(runs):
        color, (steps, values) = f"C{number}", run.loss.T
        window = max(1, round(len(steps) * SMOOTHED_SHARE))
        raw, smooth = "each step" if one else None, f"mean of the last {window} steps" if one else _label(run)
        axes.plot(steps, values, color=color, alpha=0.25, linewidth=0.8, label=raw)
        axes.plot(steps, _running_mean(values, window), color=color, linewidth=1.8, label=smooth)
    axes.set_ylabel("loss (nats per token, mean over paths)")
    axes.legend(frameon=False, fontsize=9, loc="upper right")


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
    """Mean of the last `window` values, or of as many as there are."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(sums))
    starts = np.maximum(ends - window, 0)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))


def _draw_title(axes: Axes, runs: Sequence[History]) -> None:
    """The run and its recipe; below, smaller, the signature of the MRR."""
    signatures = [plain(text) for text in dict.fromkeys(run.signature for run in runs) if text]
    axes.set_title(_label(runs[0]) if len(runs) == 1 else f"{len(runs)} runs", pad=8 + 10 * len(signatures))
    small = {"fontsize": 7.5, "color": "0.35", "linespacing": 1.1}
    axes.text(0.5, 1.01, "\n".join(signatures), small, transform=axes.transAxes, ha="center", va="bottom")


def _label(run: History) -> str:
    """Starts with a word, since matplotlib hides labels that start with an underscore."""
    return plain(f"run {run.name}" + (f", recipe {run.recipe}" if run.recipe else ""))


def plain(text: str) -> str:
    """Escape dollar signs, which would start a formula."""
    return text.replace("$", r"\$")


# ------------------------------------------------------------------------------------------------- calibration


def draw_reliability(reliability: Mapping[str, Mapping[str, Any]], signature: str, file: Path) -> None:
    """A panel per set of answers, with points as large as the share of answers in their bin."""
    from matplotlib.figure import Figure  # imported late: takes half a second

    rows = -(-len(reliability) // 2)
    figure = Figure(figsize=(9.2, 5 * rows), dpi=120, layout="constrained")
    panels = figure.subplots(rows, 2, squeeze=False).ravel()[: len(reliability)]
    for axes, (name, figures) in zip(panels, reliability.items(), strict=True):
        axes.plot([0, 1], [0, 1], color="0.5", linestyle="--", linewidth=1.2, label="perfectly calibrated")
        total = max(sum(figures["count"]), 1)
        axes.plot(figures["confidence"], figures["truth"], color="C0", linewidth=1.5)
        sizes = [30 + 300 * count / total for count in figures["count"]]
        axes.scatter(
            figures["confidence"], figures["truth"], s=sizes, color="C0", zorder=3, label="answers, in bins"
        )
        axes.set_title(f"{name}: calibration error {figures['error']:.3f}", fontsize=10)
        axes.set_xlabel("says (mean of a bin, 0 to 1)")
        axes.set_xlim(-0.03, 1.03)
        axes.set_ylim(-0.03, 1.03)
        axes.set_aspect("equal")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("share that was true (0 to 1)")
    panels[0].legend(frameon=False, fontsize=9, loc="upper left")
    figure.supxlabel(plain(signature), fontsize=6.5, color="0.35")
    save(figure, file)
