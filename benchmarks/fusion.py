"""How fast a query is described and judged, on one core: candidates, features, scores, sources.

    python benchmarks/fusion.py [FOLDER OF THE GRAPHS] [--graph NELL23K] [--queries 2000]

The ranker has its untrained weights, which cost the same. The last line is JSON.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from measure import DEFAULT_FOLDER, Figures, in_child, report, run_child

from squire.graph.loading import load_graph
from squire.ranking.attribution import contributions
from squire.ranking.features import QUERIES_AT_ONCE, CandidateFeatures
from squire.ranking.networks import Network, NetworkOptions, Networks, count_columns
from squire.rules.mining import mine_rules

TARGETS = {"described_qps": "≥ 200", "peak_mb": "< 2000"}


def main() -> None:
    if run_child({"speed": speed}):
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help="one folder a graph in it")
    parser.add_argument("--graph", default="NELL23K")
    parser.add_argument("--queries", type=int, default=2000, help="of valid, timed")
    arguments = parser.parse_args()
    report(in_child("speed", arguments.folder / arguments.graph, arguments.queries), TARGETS)


def speed(folder: str, queries: str) -> Figures:
    torch.set_num_threads(1)
    graph = load_graph(Path(folder))
    evidence = CandidateFeatures(graph.train, mine_rules(graph.train).rules)
    columns, relations, options = count_columns(evidence.table), 2 * graph.num_relations, NetworkOptions()
    networks = [Network(columns, relations, options) for _ in range(options.networks)]
    ranker = Networks(evidence.table, torch.zeros(columns), torch.ones(columns), networks, options)
    asked = np.ascontiguousarray(graph.valid[: int(queries), :2])
    evidence.describe(asked[:1])  # compiles
    began = time.process_time()  # of this thread's work: other programs do not count
    listed = [evidence.describe(asked[i : i + QUERIES_AT_ONCE]) for i in range(0, len(asked), QUERIES_AT_ONCE)]
    described = time.process_time()
    for block in listed:
        ranker.scores(block.features, block.queries[block.query, 1])
    judged = time.process_time()
    rows = listed[0].features[:100]
    of_rows = np.repeat(asked[0, 1], len(rows))
    contributions(lambda x: ranker.scores(x, of_rows), rows, evidence.table)
    return {
        "described_qps": round(len(asked) / (described - began)),
        "judged_qps": round(len(asked) / (judged - described)),
        "sources_ms": round(1e3 * (time.process_time() - judged), 1),  # of up to a hundred candidates
        "candidates": round(sum(len(block.candidates) for block in listed) / len(asked)),  # a query
    }


if __name__ == "__main__":
    main()
