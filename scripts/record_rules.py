"""Record how well rules rank the test answers of some graphs: `results/rules-GRAPH.json`, signed.

    python scripts/record_rules.py NELL23K NELL995 FB15K237-20 FB15K237

Labels are those of `squire data list`, found below SQUIRE_DATA. Mines with the default options, chosen on
valid (docs/LOG.md), and evaluates once on test, beside the frequency row.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from dataclasses import asdict
from pathlib import Path

from squire.core.files import replacing
from squire.evaluation.baselines import rank_by_frequency, rank_by_rules
from squire.evaluation.metrics import Metrics
from squire.evaluation.queries import QuerySet
from squire.graph.loading import load_graph
from squire.rules.application import RuleEngine
from squire.rules.mining import MiningOptions, mine_rules

RESULTS = Path(__file__).resolve().parents[1] / "results"


def main() -> None:
    for name in sys.argv[1:]:
        content, rows = record(name)
        with replacing(RESULTS / f"rules-{name}.json") as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(name, *(f"{row.signature} MRR {row.mrr:.4f}" for row in rows), sep="\n  ")


def record(name: str) -> tuple[dict[str, object], list[Metrics]]:
    options = MiningOptions()
    graph = load_graph(name)
    began = time.perf_counter()
    rules = mine_rules(graph.train, options).rules
    mined = time.perf_counter()
    engine = RuleEngine(rules, graph.train)
    rows = [
        ranking.metrics()
        for query_set in (QuerySet.from_graph(graph, "test", "tail"), QuerySet.from_graph(graph, "test", "both"))
        for ranking in (rank_by_frequency(graph, query_set), rank_by_rules(graph, query_set, engine))
    ]
    content: dict[str, object] = {
        "command": f"python scripts/record_rules.py {name}",
        "rows": [row.as_dict() for row in rows],
        "rules": len(rules),
        "options": asdict(options),
        "mine_s": round(mined - began, 1),
        "evaluate_s": round(time.perf_counter() - mined, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
        "machine": {"cores": os.cpu_count(), "load_average": round(os.getloadavg()[0], 2)},
    }
    return content, rows


if __name__ == "__main__":
    main()
