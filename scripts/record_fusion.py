"""Record how well a fusion ranks the test answers of some graphs: `results/fused-GRAPH.json`, signed.

    python scripts/record_fusion.py NELL23K NELL995 FB15K237-20 FB15K237

Names are those of `squire data list`, found below SQUIRE_DATA. Fits with the default options and seed 0, chosen on
valid (docs/LOG.md), and evaluates once on test. Calibration is fitted on valid; its error on test is the one that
counts. The rows of rules and frequency stand in `results/rules-GRAPH.json`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from dataclasses import asdict
from pathlib import Path

from squire.evaluate.asked import Asked
from squire.evaluate.baselines import rank_by_frequency
from squire.evaluate.fused import rank_by_fusion
from squire.evaluate.metrics import Metrics
from squire.fusion.fit import fit_fusion
from squire.graph import datasets
from squire.graph.io import load_graph
from squire.graph.streams import replacing

RESULTS = Path(__file__).resolve().parents[1] / "results"
ASKED = (("valid", "tail"), ("test", "tail"), ("test", "both"))
PRECISIONS = (0.5, 0.8, 0.9)


def main() -> None:
    for name in sys.argv[1:]:
        content, rows = record(name)
        with replacing(RESULTS / f"fused-{name}.json") as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(name, *(f"{row.signature} MRR {row.mrr:.4f}" for row in rows), sep="\n  ")


def record(name: str) -> tuple[dict[str, object], list[Metrics]]:
    graph = load_graph(datasets.resolve(name))
    began = time.perf_counter()
    fusion = fit_fusion(graph)
    fitted = time.perf_counter()
    asked = {(split, side): Asked.of(graph, split, side) for split, side in ASKED}
    found = {which: rank_by_fusion(fusion, graph, questions) for which, questions in asked.items()}
    rows = [fused.ranking.metrics() for fused in found.values()]
    rows += [rank_by_frequency(graph, questions).metrics() for questions in asked.values()]
    content: dict[str, object] = {
        "command": f"python scripts/record_fusion.py {name}",
        "rows": [row.as_dict() for row in rows],
        "reliability": {f"{split}, {side}": fused.reliability_figures() for (split, side), fused in found.items()},
        "thresholds": {str(share): fusion.calibration.threshold_for(share) for share in PRECISIONS},
        "about": asdict(fusion.about),
        "ranker": asdict(fusion.ranker.options),
        "rules": len(fusion.evidence.rules),
        "fit_s": round(fitted - began, 1),
        "evaluate_s": round(time.perf_counter() - fitted, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
        "machine": {"cores": os.cpu_count(), "load_average": round(os.getloadavg()[0], 2)},
    }
    return content, rows


if __name__ == "__main__":
    main()
