"""Record what bounds a fusion: its MRR on valid against the number of facts that it may use.

    python scripts/record_fusion_curve.py NELL23K FB15K237-20

Of train a share is kept (drawn by a seed), everything is fitted on it, and the same questions of valid are asked
with the same filter. Writes results/fusion-curve.json and docs/images/fusion-curve.png: a point a share, a curve a
graph, beside the tail frequency of the same facts. Labels are found below SQUIRE_DATA.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from squire.core.files import replacing
from squire.evaluation.baselines import rank_by_frequency
from squire.evaluation.fused import rank_by_fusion
from squire.evaluation.plots import plain, save
from squire.evaluation.queries import QuerySet
from squire.graph.adjacency import Adjacency
from squire.graph.graph import Graph
from squire.graph.loading import load_graph
from squire.ranking.fusion import FusionOptions, fit_fusion

HOME = Path(__file__).resolve().parents[1]
SHARES = (0.25, 0.5, 0.75, 1.0)
SEED = 0
FOLDS = 5  # a curve compares shares with each other; fewer parts take fewer minings


@dataclass(frozen=True)
class Point:
    share: float
    facts: int
    fused: float  # MRR
    frequency: float
    signature: str


def main() -> None:
    names = sys.argv[1:]
    curves = {name: curve(load_graph(name)) for name in names}
    content = {
        "command": f"python scripts/record_fusion_curve.py {' '.join(names)}",
        "seed": SEED,
        "curves": {name: [asdict(point) for point in points] for name, points in curves.items()},
        "machine": {"cores": os.cpu_count(), "load_average": round(os.getloadavg()[0], 2)},
    }
    with replacing(HOME / "results" / "fusion-curve.json") as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    draw(curves, HOME / "docs" / "images" / "fusion-curve.png")


def curve(graph: Graph) -> list[Point]:
    query_set = QuerySet.from_graph(
        graph, "valid"
    )  # with the filter of all facts, also of those that are not kept
    points = []
    for share in SHARES:
        part = reduced(graph, share)
        fused = rank_by_fusion(fit_fusion(part, FusionOptions(SEED, FOLDS)), part, query_set).ranking.metrics()
        frequency = rank_by_frequency(part, query_set).metrics()
        points.append(Point(share, len(part.train.triples), fused.mrr, frequency.mrr, str(fused.signature)))
        print(graph.name, points[-1], flush=True)
    return points


def reduced(graph: Graph, share: float) -> Graph:
    """With a share of the train facts."""
    triples = graph.train.triples
    kept = np.sort(np.random.default_rng(SEED).permutation(len(triples))[: round(share * len(triples))])
    return replace(graph, train=Adjacency.build(triples[kept], graph.num_entities, graph.num_relations))


def draw(curves: dict[str, list[Point]], file: Path) -> None:
    figure = Figure(figsize=(7.5, 5), dpi=120, layout="constrained")
    axes = figure.subplots()
    for i, (name, points) in enumerate(curves.items()):
        facts = [point.facts for point in points]
        axes.plot(facts, [point.fused for point in points], marker="o", color=f"C{i}", label=f"{name}, fused")
        axes.plot(
            facts, [point.frequency for point in points], marker="o", color=f"C{i}", linestyle="--", alpha=0.6,
            label=f"{name}, tail frequency",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks(facts_shown := [5_000, 10_000, 20_000, 50_000], [f"{n:,}" for n in facts_shown])
    axes.minorticks_off()
    axes.set_xlabel("facts of train that may be used (logarithmic)")
    axes.set_ylabel("MRR on valid, tails (0 to 1)")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    signatures = "\n".join(points[-1].signature for points in curves.values())
    figure.supxlabel(plain(signatures), fontsize=6.5, color="0.35")
    save(figure, file)


if __name__ == "__main__":
    main()
