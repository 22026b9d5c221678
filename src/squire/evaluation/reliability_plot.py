"""How far confidences can be believed, as a picture: what was said against what was true. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from squire.evaluation.plots import plain, save


def draw_reliability(reliability: Mapping[str, Mapping[str, Any]], signature: str, file: Path) -> None:
    """A panel for each set of answers; points as large as the share of answers in their bin."""
    from matplotlib.figure import Figure  # late: it takes half a second

    figure = Figure(figsize=(4.6 * len(reliability), 5), dpi=120, layout="constrained")
    panels = figure.subplots(1, len(reliability), squeeze=False)[0]
    for axes, (name, figures) in zip(panels, reliability.items(), strict=True):
        axes.plot([0, 1], [0, 1], color="0.5", linestyle="--", linewidth=1.2, label="what is said is true")
        total = max(sum(figures["count"]), 1)
        axes.plot(figures["confidence"], figures["truth"], color="C0", linewidth=1.5)
        sizes = [30 + 300 * count / total for count in figures["count"]]
        axes.scatter(
            figures["confidence"], figures["truth"], s=sizes, color="C0", zorder=3, label="answers, in bins"
        )
        axes.set_title(f"{name} of a question: calibration error {figures['error']:.3f}", fontsize=10)
        axes.set_xlabel("confidence (mean of a bin, 0 to 1)")
        axes.set_xlim(-0.03, 1.03)
        axes.set_ylim(-0.03, 1.03)
        axes.set_aspect("equal")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("share that was true (0 to 1)")
    panels[0].legend(frameon=False, fontsize=9, loc="upper left")
    figure.supxlabel(plain(signature), fontsize=6.5, color="0.35")
    save(figure, file)
