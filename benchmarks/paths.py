"""How long it takes to sample six evidence paths a triple, both ways, and to merge them into prefix trees.

    python benchmarks/paths.py [FOLDER OF THE GRAPHS] [--graphs FB15K237 …] [--min-confidence 0.01] [--no-rules]

The folder is the argument, or SQUIRE_DATA, or the shared one beside the project. Closed rules are mined first
and not timed; `--rules FOLDER` keeps them there (GRAPH.npz) and reads them again. Each graph runs in a process of
its own, after a warm-up on a tiny graph that pays for compilation; its peak memory is that of the whole process.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
from measure import DEFAULT_FOLDER, Figures, in_child, report, run_child

from squire.core.relations import both_directions
from squire.graph.adjacency import Adjacency
from squire.graph.loading import load_graph
from squire.paths.paths import SOURCES, Paths
from squire.paths.sampling import sample_paths
from squire.paths.tries import build_tries
from squire.rules.rules import ClosedIndex, Rules

GRAPHS = ("FB15K237", "NELL995", "FB15K237-20", "NELL23K")
TARGETS = {"fb15k237_s": "< 60", "nell995_s": "< 15", "fb15k237_tries_s": "< 30", "peak_mb": "< 2000"}


def main() -> None:
    if run_child({"mine": mine_step, "paths": paths_step}):
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help="one folder a graph in it")
    parser.add_argument("--graphs", nargs="+", default=GRAPHS, help="which of them")
    parser.add_argument("--rules", type=Path, help="folder where mined rules are kept")
    parser.add_argument("--no-rules", action="store_true", help="random paths only")
    parser.add_argument("--min-confidence", type=float, default=0.01, help="of the rules")
    parser.add_argument("--hops", type=int, default=3)
    arguments = parser.parse_args()
    figures: Figures = dict.fromkeys(TARGETS)
    with tempfile.TemporaryDirectory() as temporary:
        kept = arguments.rules or Path(temporary)
        kept.mkdir(parents=True, exist_ok=True)
        for name in arguments.graphs:
            graph = arguments.folder / name
            figures |= measure(graph, kept, arguments) if graph.is_dir() else {f"{prefix(name)}_s": None}
    report(figures | {"peak_mb": figures.get("fb15k237_peak_mb")}, TARGETS)


def prefix(name: str) -> str:
    return name.lower().replace("-", "_")


def measure(graph: Path, kept: Path, arguments: argparse.Namespace) -> Figures:
    """The figures of one graph, named after it."""
    rules = kept / f"{graph.name}.npz"
    if not arguments.no_rules and not rules.exists():
        in_child("mine", graph, rules)
    source = "-" if arguments.no_rules else rules
    figures = in_child("paths", graph, source, arguments.min_confidence, arguments.hops)
    for source in SOURCES:
        print(f"{graph.name:12} {source:7} by hops {figures[source]}")
    return {f"{prefix(graph.name)}_{name}": figure for name, figure in figures.items()}


def mine_step(graph: str, file: str) -> Figures:
    """Mine the closed rules of a graph and keep them."""
    from squire.rules.mining import MiningOptions, mine_rules

    began = time.perf_counter()
    rules = mine_rules(load_graph(graph).train, MiningOptions(constants=False)).rules
    np.savez(file, allow_pickle=False, **{column.name: getattr(rules, column.name) for column in fields(Rules)})
    return {"mine_s": round(time.perf_counter() - began, 1)}


def get_rules(file: str, min_confidence: float) -> Rules:
    with np.load(file) as arrays:
        columns = {column.name: arrays[column.name] for column in fields(Rules)}
    rules = Rules(**(columns | {"num_relations": int(columns["num_relations"])}))
    return rules.take(rules.is_closed & (rules.confidence >= min_confidence))


def paths_step(folder: str, file: str, min_confidence: str, hops: str) -> Figures:
    """Sample the paths of one graph and build its prefix trees."""
    rules = None if file == "-" else get_rules(file, float(min_confidence))
    index = None if rules is None else ClosedIndex.from_rules(rules)
    warm_up()
    graph = load_graph(folder)
    queries = both_directions(graph.train.triples, graph.num_relations)

    began = time.perf_counter()
    paths = sample_paths(graph.train, queries, index, hops=int(hops), seed=0)
    sampled = time.perf_counter()
    tries = build_tries(paths)
    built = time.perf_counter()
    return {
        "s": round(sampled - began, 2),
        "tries_s": round(built - sampled, 2),
        "tries_mb": round(tries.nbytes / 1e6, 1),
        "rules": 0 if rules is None else len(rules),
        "sequences": paths.num_sequences,
        "paths": len(paths),
        "queries": len(tries),
        "nodes": tries.num_nodes,
        **histogram(paths),
    }


def histogram(paths: Paths) -> dict[str, list[int]]:
    """Sequences by source and hops: a list from 0 hops on for each source."""
    return {
        name: np.bincount(
            paths.length[paths.source == source], paths.weight[paths.source == source], minlength=paths.hops + 1
        )
        .astype(int)
        .tolist()
        for source, name in enumerate(SOURCES)
    }


def warm_up() -> None:
    """Compile, or read from numba's cache, all that will run."""
    triples = np.array([(0, 0, 1), (1, 0, 2), (0, 0, 2)], np.int32)
    body = np.array([[0, 0, -1]], np.int32)
    rules = Rules.closed(1, body[:, 0], body, body[:, 0] + 5, body[:, 0] + 1)
    queries = both_directions(triples, 1)
    for index in (None, ClosedIndex.from_rules(rules)):
        build_tries(sample_paths(Adjacency.build(triples, 3, 1), queries, index, seed=0))


if __name__ == "__main__":
    main()
