"""Draw MRR on the four benchmarks beside the baselines and the paper, and how it rose on valid while training.

    python scripts/plot_results.py              # docs/images/results.png and curves.png

Our figures come from results/*.json, published ones from the table below.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

HOME = Path(__file__).resolve().parents[1]
GRAPHS = ("NELL23K", "FB15K237-20", "NELL995", "FB15K237")
# Test MRR of tails: SQUIRE with self-consistency and the best embedding model, both from the paper's tables.
PUBLISHED = {
    "NELL23K": (0.244, 0.279),
    "FB15K237-20": (0.253, 0.274),
    "NELL995": (0.519, 0.543),
    "FB15K237": (0.433, 0.451),
}
NAMES = (
    "tail frequency",
    "SQUIRE (paper)",
    "best embedding model (paper)",
    "rules (ours)",
    "paths alone (ours)",
    "all evidence (ours)",
)
COLOURS = ("#c9ccd1", "#8aa6c1", "#5f7d9c", "#bfe3d8", "#7fc8b4", "#00796b")


@dataclass(frozen=True)
class Measured:
    """Our results on the test tails of a graph."""

    frequency: float
    rules: float
    fused: float  # mean over seeds
    deviation: float | None  # over seeds; None for a single one
    hits1: float
    hits10: float
    errors: tuple[float, float]  # calibration error of the first answers, and of the first ten


def measured(graph: str) -> Measured:
    rules, fused = (read(f"{kind}-{graph}") for kind in ("rules", "fused"))
    mrr = fused["mrr"]["test, tail"]
    best = row(fused, graph, "fused")
    reliability = fused["reliability"]["test, tail"]
    return Measured(
        frequency=row(rules, graph, "frequency")["mrr"],
        rules=row(rules, graph, "rules+frequency")["mrr"],
        fused=mrr["mean"],
        deviation=mrr["deviation"] if mrr["seeds"] > 1 else None,
        hits1=best["hits1"],
        hits10=best["hits10"],
        errors=(reliability["first 1"]["error"], reliability["first 10"]["error"]),
    )


def read(name: str) -> Any:
    return json.loads((HOME / "results" / f"{name}.json").read_text(encoding="utf-8"))


def row(content: dict[str, Any], graph: str, method: str, side: str = "tail") -> dict[str, Any]:
    """The first row of a method on test, by default on the tails."""
    start = f"{graph}|split:test|side:{side}|method:{method}|"
    found: dict[str, Any] = next(row for row in content["rows"] if row["signature"].startswith(start))
    return found


def path_rows(graph: str) -> list[dict[str, Any]]:
    """The rows of the ranking by paths, one for each seed."""
    files = sorted((HOME / "results").glob(f"run-{graph}*.json"))
    return [row(read(file.stem)["paths"], graph, "paths") for file in files if is_run_of(file.stem, graph)]


def main() -> None:
    draw_results()
    draw_curves()


def draw_curves() -> None:
    """Valid MRR after each epoch of the recorded runs; a run of another seed has the same colour."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6), dpi=160, layout="constrained")
    for number, graph in enumerate(GRAPHS):
        files = sorted((HOME / "results").glob(f"run-{graph}*.json"))
        runs = [json.loads(file.read_text(encoding="utf-8")) for file in files if is_run_of(file.stem, graph)]
        for run in runs:
            curve = [point["mrr"] for point in run.get("valid", [])]
            label = graph if run is runs[0] else None
            axes.plot(range(1, len(curve) + 1), curve, "o-", ms=3, color=f"C{number}", label=label)
    axes.set(xlabel="epoch", ylabel="MRR by paths, sample of valid, tails")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(HOME / "docs" / "images" / "curves.png")


def is_run_of(stem: str, graph: str) -> bool:
    """Not that of a graph whose name begins with this one."""
    return stem == f"run-{graph}" or stem.startswith(f"run-{graph}-seed-")


def draw_results() -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 3.6), dpi=160)
    width = 0.14
    for place, graph in enumerate(GRAPHS):
        ours = measured(graph)
        by_paths = mean(one["mrr"] for one in path_rows(graph))
        values = (ours.frequency, *PUBLISHED[graph], ours.rules, by_paths, ours.fused)
        for number, (name, value, colour) in enumerate(zip(NAMES, values, COLOURS, strict=True)):
            x = place + (number - 2.5) * width
            axes.bar(x, value, width * 0.94, color=colour, label=None if place else name)
            bold = "bold" if number == len(NAMES) - 1 else "normal"
            axes.text(x, value + 0.008, f"{value:.3f}".lstrip("0"), ha="center", fontsize=6.8, fontweight=bold)
    axes.set_xticks(range(len(GRAPHS)), GRAPHS)
    axes.set_ylabel("MRR, filtered, test tails")
    axes.set_ylim(0, 0.66)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", length=0)
    figure.legend(loc="outside upper center", ncols=6, frameon=False, fontsize=7.5, columnspacing=1)
    figure.tight_layout(rect=(0, 0, 1, 0.93))
    figure.savefig(HOME / "docs" / "images" / "results.png")


if __name__ == "__main__":
    main()
