"""Record how well a fusion ranks the test answers of some graphs: `results/fused-GRAPH.json`, signed.

    python scripts/record_fusion.py --seeds 3 NELL23K NELL995 FB15K237-20 world
    python scripts/record_fusion.py --folds 14 FB15K237
    python scripts/record_fusion.py --without-names NELL995
    python scripts/record_fusion.py --linked FB15K237-20      # results/fused-linked-GRAPH.json

Labels are those of `squire data list`, found below SQUIRE_DATA. Fits with the default options, chosen on valid
(docs/LOG.md), and evaluates on test; with --without-names also once without the names of entities. Calibration is
fitted on valid; its error on test, that of the first seed, is the one that counts, and is drawn as
docs/images/reliability-GRAPH.png. With --linked, the fusion does not use that no held-out pair of FB15K237 and
FB15K237-20 has an edge in train, a trait of how these benchmarks were made. The rows of rules and frequency stand
in `results/rules-GRAPH.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

from squire.core.files import replacing
from squire.evaluation.baselines import rank_by_frequency
from squire.evaluation.fused import Fused, rank_by_fusion
from squire.evaluation.metrics import Metrics
from squire.evaluation.plots import draw_reliability
from squire.evaluation.queries import QuerySet
from squire.graph.folds import FOLDS
from squire.graph.graph import Graph
from squire.graph.loading import load_graph
from squire.model.recipe import load_recipe, recipe_for
from squire.ranking.fusion import Fusion, FusionOptions
from squire.training.pipeline import fuse_run, new_run

HOME = Path(__file__).resolve().parents[1]
TAILS, ALL = (("valid", "tail"), ("test", "tail")), (("valid", "tail"), ("test", "tail"), ("test", "both"))
Which = tuple[str, str]  # split and side


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--folds", type=int, default=FOLDS)
    parser.add_argument("--linked", action="store_true")
    parser.add_argument("--without-names", action="store_true")
    arguments = parser.parse_args()
    options = FusionOptions(folds=arguments.folds, unlinked=False if arguments.linked else None)
    kind = "fused-linked" if arguments.linked else "fused"
    for name in arguments.graphs:
        content, rows = record(load_graph(name), arguments.seeds, options, kind, arguments.without_names)
        parts = (
            ("" if arguments.folds == FOLDS else f" --folds {arguments.folds}")
            + " --linked" * arguments.linked
            + " --without-names" * arguments.without_names
        )
        command = f"python scripts/record_fusion.py --seeds {arguments.seeds}{parts} {name}"
        with replacing(HOME / "results" / f"{kind}-{name}.json") as temporary:
            temporary.write_text(json.dumps({"command": command, **content}, indent=1) + "\n", encoding="utf-8")
        print(name, *(f"{row.signature} MRR {row.mrr:.4f}" for row in rows), sep="\n  ", flush=True)


def record(
    graph: Graph, seeds: int, options: FusionOptions, kind: str, without_names: bool
) -> tuple[dict[str, object], list[Metrics]]:
    began = time.perf_counter()
    fusion = fit(graph, options)
    fitted = time.perf_counter()
    query_set = {which: QuerySet.from_graph(graph, *which) for which in ALL}
    found = {which: rank_by_fusion(fusion, graph, questions) for which, questions in query_set.items()}
    evaluated = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    load = os.getloadavg()[0]
    tails = [{which: found[which].ranking.metrics() for which in TAILS}]
    tails += [ranked(fit(graph, replace(options, seed=seed)), graph, query_set) for seed in range(1, seeds)]
    without = []
    if without_names:
        without = list(ranked(fit(graph, replace(options, use_names=False)), graph, query_set).values())
    if kind == "fused":
        draw(found["test", "tail"], HOME / "docs" / "images" / f"reliability-{graph.name}.png")
    rows = [found["test", "both"].ranking.metrics(), *(row for by in tails for row in by.values()), *without]
    rows += [rank_by_frequency(graph, questions).metrics() for questions in query_set.values()]
    content: dict[str, object] = {
        "rows": [row.as_dict() for row in rows],
        "mrr": {f"{split}, {side}": spread([by[split, side].mrr for by in tails]) for split, side in TAILS},
        "reliability": {f"{split}, {side}": _figures(fused) for (split, side), fused in found.items()},
        "about": asdict(fusion.info),
        "ranker": asdict(fusion.ranker.options),
        "rules": len(fusion.features.rules),
        "fit_s": round(fitted - began, 1),
        "evaluate_s": round(evaluated - fitted, 1),
        "peak_mb": round(peak),
        "machine": {"cores": os.cpu_count(), "load_average": round(load, 2)},
    }
    return content, rows


def fit(graph: Graph, options: FusionOptions) -> Fusion:
    """As `squire train --no-model` fits it."""
    recipe = load_recipe(recipe_for(graph.stats()), [f"train.seed={options.seed}"])
    with TemporaryDirectory() as temporary, new_run(Path(temporary) / "run", graph, recipe):
        return fuse_run(Path(temporary) / "run", options)


def ranked(fusion: Fusion, graph: Graph, query_set: dict[Which, QuerySet]) -> dict[Which, Metrics]:
    return {which: rank_by_fusion(fusion, graph, query_set[which]).ranking.metrics() for which in TAILS}


def spread(values: list[float]) -> dict[str, float]:
    return {"mean": mean(values), "deviation": stdev(values) if len(values) > 1 else 0.0, "seeds": len(values)}


def _figures(fused: Fused) -> dict[str, dict[str, Any]]:
    return {name: curve.as_dict() for name, curve in fused.reliability.items()}


def draw(fused: Fused, file: Path) -> None:
    draw_reliability(_figures(fused), str(fused.ranking.signature), file)


if __name__ == "__main__":
    main()
