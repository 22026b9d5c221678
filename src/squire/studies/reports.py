"""How the results of studies are shown and saved: Markdown tables, JSON and pictures. Needs no torch."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from squire.core.files import replacing
from squire.errors import SettingError
from squire.evaluation.metrics import NAMES, Metrics
from squire.evaluation.plots import FORMATS, History, check_picture, plain, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from squire.studies.efficiency_study import SizeResult

FREQUENCY = "tail frequency"


class Report(ABC):
    """The result of a study: data, a page of Markdown and, for some studies, a picture."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """All figures, as plain values for JSON."""

    @abstractmethod
    def markdown(self) -> str:
        """The figures as tables, with the signatures of what they were measured on."""

    def draw(self, file: str | Path) -> None:
        """Draws the figures as a .png, .svg or .pdf file."""
        raise SettingError(f"{file}: this study has no picture. Choose a name that ends in .md or .json.")

    def save(self, file: str | Path) -> None:
        """Writes the page (.md), the data (.json) or the picture (.png, .svg, .pdf); the suffix decides."""
        file = Path(file)
        if file.suffix.lower() in FORMATS:
            self.draw(file)
        elif file.suffix in (".md", ".json"):
            with replacing(file) as temporary:
                page = file.suffix == ".md"
                text = self.markdown() if page else json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n"
                temporary.write_text(text, encoding="utf-8")
        else:
            raise SettingError(f"{file}: expected a name that ends in .md, .json, {', '.join(FORMATS)}.")


# ------------------------------------------------------------------------------------------------- Markdown


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the cells are Markdown already (see `escape`)."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def escape(text: str) -> str:
    """Text without markup or line breaks, for a Markdown table."""
    return re.sub(r"([\\`*_{}\[\]<>|~#])", r"\\\1", " ".join(text.split()))


def code(signature: str) -> str:
    """A signature on a line of its own: the bars in it would end the cell of a table."""
    return f"`{signature}`\n"


def with_interval(value: float, interval: Sequence[float], form: str = ".3f") -> str:
    """`0.270 (0.251 – 0.289)`: a figure and its 95 % interval."""
    low, high = interval
    return f"{value:{form}} ({low:{form}} – {high:{form}})"


def metric_cells(figures: Mapping[str, Any], names: Sequence[str] = NAMES) -> list[str]:
    """The cells of a row of metrics, each with its interval; `figures` is `Metrics.as_dict()`."""
    return [with_interval(figures[name], figures["intervals"][name]) for name in names]


# ------------------------------------------------------------------------------------------------- pictures

MAX_LABEL = 24  # characters
COLUMNS = 3  # heat maps in a row
SMALL = {"fontsize": 7.5, "color": "0.35"}
CHARACTERS_PER_INCH = 14  # of the small font
STYLES = (("-", "o"), ("--", "s"), (":", "^"), ("-.", "D"))  # line and marker of each series of graphs
DRAWN_PHASES = ("mining rules", "sampling paths", "prefix trees", "an epoch", "a question")


def _figure(file: Path, width: float, height: float) -> Figure:
    """A figure in inches; the name of the file that it is for is checked first."""
    from matplotlib.figure import Figure  # takes half a second to import

    check_picture(file)
    return Figure(figsize=(width, height), dpi=120, layout="constrained")


def _style(axes: Axes, title: str, **grid: Any) -> None:
    axes.set_title(plain(title), fontsize=11)
    axes.margins(y=0.12)
    axes.grid(alpha=0.3, **grid)
    axes.spines[["top", "right"]].set_visible(False)


def draw_attention(
    titles: Sequence[str],  # of the heat maps
    maps: npt.NDArray[np.float64],  # (map, token, token)
    tokens: Sequence[str],
    query_tokens: int,  # the first tokens are the query: they have a column, but no row
    heading: str,
    signature: str,
    file: Path,
) -> None:
    """Heat maps of the attention of each token of the path (row) to the query and the path (columns)."""
    words = [_short(token) for token in tokens]
    rows, columns = -(-len(maps) // COLUMNS), min(len(maps), COLUMNS)
    path_tokens = len(tokens) - query_tokens
    width, height = columns * (1.9 + 0.62 * len(tokens)), 1.2 + rows * (2.2 + 0.5 * path_tokens)
    figure = _figure(file, max(width, 7), height)
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    image = None
    for axes, title, weights in zip(grid, titles, maps, strict=False):
        shown = np.where(np.tri(len(tokens)) > 0, weights, np.nan)[query_tokens:]
        image = axes.imshow(shown, vmin=0, vmax=1, cmap="viridis", aspect="auto")
        axes.set_facecolor("0.93")  # later tokens, which cannot be attended to
        _write_values(axes, shown)
        axes.set_title(title, fontsize=10)
        axes.set_xticks(range(len(tokens)), words, rotation=40, ha="right", rotation_mode="anchor", fontsize=9)
        axes.set_yticks(range(path_tokens), words[query_tokens:], fontsize=9)
        axes.axvline(query_tokens - 0.5, color="white", linewidth=2)
        axes.set(xlabel="attention to: the query, then the path", ylabel="attention of: tokens of the path")
    for axes in grid[len(maps) :]:
        axes.set_axis_off()
    assert image is not None
    bar = figure.colorbar(image, ax=list(grid), fraction=0.03, pad=0.01)
    bar.set_label("attention (share of a row, 0 to 1)", fontsize=9)
    figure.suptitle(plain(heading), fontsize=11)
    _sign(figure, signature)
    save(figure, file)


def _write_values(axes: Axes, shown: npt.NDArray[np.float64]) -> None:
    for (row, column), value in np.ndenumerate(shown):
        if not np.isnan(value):
            color = "black" if value > 0.6 else "white"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=color)


def draw_constraints(
    names: Sequence[str], metrics: Sequence[Metrics], notes: Sequence[str], heading: str, file: Path
) -> None:
    """Bars of Hits@1 and MRR under every condition, with 95 % intervals and a note below each name."""
    figure = _figure(file, max(6.5, 2.2 * len(names)), 5)
    axes = figure.subplots()
    positions, width = np.arange(len(names)), 0.36
    for shift, (key, label) in enumerate((("hits1", "Hits@1"), ("mrr", "MRR"))):
        values = np.array([getattr(one, key) for one in metrics])
        low, high = np.array([(one.intervals or {})[key] for one in metrics]).T
        x = positions + (shift - 0.5) * width
        errors = np.maximum([values - low, high - values], 0)
        axes.bar(x, values, width, yerr=errors, capsize=4, label=label, color=f"C{shift}", alpha=0.85)
        for at, value, top in zip(x, values, high, strict=True):
            axes.annotate(f"{value:.3f}", (at, top), (0, 3), textcoords="offset points", ha="center", fontsize=8)
    labels = [f"{_short(name)}\n{note}" if note else _short(name) for name, note in zip(names, notes, strict=True)]
    axes.set(
        xticks=positions, xticklabels=labels, ylabel="Hits@1 and MRR (0 to 1), with 95 % intervals", ylim=(0, None)
    )
    axes.tick_params(axis="x", labelsize=9)
    axes.set_axisbelow(True)
    _style(axes, heading, axis="y")
    figure.legend(frameon=False, loc="outside upper right", ncols=2, fontsize=9)
    _sign(figure, str(metrics[0].signature))
    save(figure, file)


def draw_ablation(runs: Mapping[str, History], frequency: Metrics, heading: str, file: Path) -> None:
    """Valid MRR over the steps of each variant (Figure 6); dotted lines mark where an iteration begins."""
    figure = _figure(file, 9, 5.4)
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
    label = f"{FREQUENCY} {frequency.mrr:.3f}"
    axes.axhline(frequency.mrr, color="0.4", linestyle="--", linewidth=1.2, label=label)
    axes.set(xlabel="optimisation steps", ylabel="MRR on valid (0 to 1)", xlim=(0, None))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    _style(axes, heading)
    figure.legend(frameon=False, loc="outside upper center", ncols=len(runs) + 1, fontsize=9)
    _sign(figure, *(run.signature for run in runs.values()))
    save(figure, file)


def draw_efficiency(series: Mapping[str, Sequence[SizeResult]], file: Path) -> None:
    """Time, memory (both logarithmic) and quality against the train facts; one line style per series."""
    figure = _figure(file, 13.5, 5)
    time, memory, quality = figure.subplots(1, 3)
    for style, (name, rows) in zip(STYLES, series.items(), strict=False):
        line = {"linestyle": style[0], "marker": style[1], "markersize": 5, "linewidth": 1.6}
        facts = [row.facts for row in rows]
        for number, phase in enumerate(DRAWN_PHASES):
            values = [row.seconds[phase] or np.nan for row in rows]
            time.plot(facts, values, color=f"C{number}", label=f"{phase}, {_short(name)}", **line)
        memory.plot(facts, [row.peak_mb or np.nan for row in rows], color="C5", label=_short(name), **line)
        for color, label, key in (("C0", "paths", "ours"), ("0.45", FREQUENCY, "frequency")):
            mrr = [(getattr(row, key) or {"mrr": np.nan})["mrr"] for row in rows]
            quality.plot(facts, mrr, color=color, label=f"{label}, {_short(name)}", **line)
    for axes, title, unit in (
        (time, "wall-clock time", "seconds"),
        (memory, "peak memory of the process that measured each size", "megabytes (10⁶ bytes)"),
        (quality, "quality on valid, as far as trained", "MRR (0 to 1)"),
    ):
        axes.set(xscale="log", xlabel="facts in train", ylabel=unit)
        _style(axes, title, which="both" if axes is not quality else "major", linewidth=0.6)
        axes.legend(frameon=False, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    time.set(yscale="log")
    memory.set(yscale="log", ylim=(100, max(10_000, 2 * memory.get_ylim()[1])))  # at least two decades
    memory.yaxis.set_major_formatter("{x:,.0f}")
    quality.set_ylim(0, None)
    figure.supxlabel("the signature of each point is in the table beside this picture", **SMALL)
    save(figure, file)


KIND_COLOURS = {"ours": "#00796b", "embedding": "#5f7d9c", "rules": "#b07d2b", "walker": "#a05195"}


def draw_comparison(rows: Sequence[Mapping[str, Any]], failed: Sequence[str], heading: str, file: Path) -> None:
    """MRR against the seconds to learn, one circle per method, its area the peak memory."""
    figure = _figure(file, 9, 5.6)
    axes = figure.subplots()
    seconds = np.maximum([row["learning_s"] for row in rows], 0.1)
    mrr = np.array([row["rows"][0]["mrr"] for row in rows])
    memory = np.array([row["peak_mb"] or np.nan for row in rows])
    for kind, colour in KIND_COLOURS.items():
        own = np.array([row["kind"] == kind for row in rows])
        if own.any():
            sizes = 40 + 0.25 * np.nan_to_num(memory[own], nan=0.0)
            axes.scatter(seconds[own], mrr[own], s=sizes, color=colour, alpha=0.75, label=kind, linewidth=0)
    axes.set(xscale="log", xlabel="seconds to learn", ylabel="MRR (0 to 1)")
    _style(axes, heading, which="both", linewidth=0.6)
    axes.set_ylim(0, None)
    axes.set_xlim(seconds.min() / 10, seconds.max() * 3)  # labels are to the left
    names = [f"{row['method']}, {size:,.0f} MB" for row, size in zip(rows, memory, strict=True)]
    for x, y, level, name in zip(seconds, mrr, _levels(seconds, mrr), names, strict=True):
        line = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.6}
        axes.annotate(name, (x, y), (-12, level), textcoords="offset points", ha="right", va="center",
                      fontsize=8, arrowprops=line)  # fmt: skip
    figure.legend(frameon=False, loc="outside upper right", ncols=len(KIND_COLOURS), fontsize=9, markerscale=0.5)
    missing = f"not measured: {', '.join(failed)}" if failed else ""
    _sign(figure, "area: peak memory", missing, rows[0]["rows"][0]["signature"].replace(rows[0]["method"], "…", 1))
    save(figure, file)


def _levels(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> list[float]:
    """How far labels are moved up or down, in points, so that those of neighbouring points do not overlap."""
    line, height = 11.0, 300.0  # points: of a line of text, and of the axes
    levels = np.zeros(len(x))
    place = y / max(float(y.max()), 1e-9) * height
    order = np.argsort(place)
    for before, after in pairwise(order.tolist()):
        levels[after] = max(0.0, place[before] + levels[before] + line - place[after])
    return list(levels)


def _sign(figure: Figure, *signatures: str) -> None:
    """Writes each signature once below the figure, wrapped at its bars."""
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
    """Both ends of a long label: of `person/place_of_birth/citytown` neither end alone says enough."""
    half = MAX_LABEL // 2
    return plain(name if len(name) <= MAX_LABEL else f"{name[: half - 1]}…{name[-half:]}")
