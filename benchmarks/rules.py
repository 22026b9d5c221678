"""How fast rules are mined and applied, how much memory that takes, and how the cost grows with the graph.

    python benchmarks/rules.py [FOLDER OF THE GRAPHS]

The folder is the argument, or SQUIRE_DATA, or the shared one beside the project. Each step runs in a process of
its own, after a warm-up that pays for compilation. The last line is JSON.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from measure import DEFAULT_FOLDER, Figures, in_child, report, run_child

from squire.graph.adjacency import Adjacency
from squire.graph.loading import load_graph
from squire.rules.application import RuleEngine
from squire.rules.mining import MiningOptions, mine_rules
from squire.studies.graphs import random_facts

TARGETS = {"nell23k_s": "< 30", "fb15k237_s": "< 300", "apply_qps": "≥ 500", "peak_mb": "< 2000"}
CLOSED = MiningOptions(constants=False)


def main() -> None:
    if run_child({"mine": mine_step, "apply": apply_step, "synthetic": synthetic_step}):
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help="one folder a graph in it")
    folder = parser.parse_args().folder
    figures: Figures = {"nell23k_s": None, "fb15k237_s": None, "apply_qps": None, "peak_mb": None}
    peaks = []
    if (folder / "NELL23K").is_dir():
        nell = in_child("mine", folder / "NELL23K", "all")
        figures |= {"nell23k_s": nell["s"], "nell23k_rules": nell["rules"]}
        figures["apply_qps"] = in_child("apply", folder / "NELL23K")["qps"]
        peaks.append(nell["peak_mb"])
    if (folder / "FB15K237").is_dir():
        fb = in_child("mine", folder / "FB15K237", "closed")
        figures |= {"fb15k237_s": fb["s"], "fb15k237_rules": fb["rules"], "fb15k237_estimated": fb["estimated"]}
        peaks.append(fb["peak_mb"])
    for edges in (100_000, 1_000_000):
        made = in_child("synthetic", edges)
        figures |= {f"synthetic_{edges}_{name}": figure for name, figure in made.items()}
        peaks.append(made["peak_mb"])
    report(figures | {"peak_mb": max(peaks)}, TARGETS)


def mine_step(folder: str, types: str) -> Figures:
    warm_up()
    graph = load_graph(folder)
    return timed(graph.train, MiningOptions() if types == "all" else CLOSED)


def timed(graph: Adjacency, options: MiningOptions) -> Figures:
    began = time.perf_counter()
    rules = mine_rules(graph, options).rules
    seconds = time.perf_counter() - began
    return {"s": round(seconds, 2), "rules": len(rules), "estimated": int(np.count_nonzero(rules.error))}


def apply_step(folder: str) -> Figures:
    """Closed rules on the test queries, candidates and their rules included."""
    graph = load_graph(folder)
    engine = RuleEngine(mine_rules(graph.train, CLOSED).rules, graph.train)
    queries = graph.test[:, :2]
    engine.answer(queries[:1])
    began = time.perf_counter()
    answered = sum(len(candidates) for candidates in engine.stream(queries))
    return {"qps": round(answered / (time.perf_counter() - began))}


def synthetic_step(edges: str) -> Figures:
    """A made graph of so many edges, 20 an entity at the most common, with hubs."""
    warm_up()
    count = int(edges)
    rng = np.random.default_rng(0)
    entities = count // 10
    graph = Adjacency.build(random_facts(rng, count, entities, 100), entities, 100)
    return timed(graph, MiningOptions())


def warm_up() -> None:
    """Compile, or read from numba's cache, all that will run."""
    triples = np.array([(0, 0, 1), (1, 0, 2), (0, 0, 2), (0, 1, 1), (1, 1, 2), (0, 1, 2)], np.int32)
    mine_rules(Adjacency.build(triples, 3, 2), MiningOptions(constant_support=1))


if __name__ == "__main__":
    main()
