"""How long iterative training gathers paths (Algorithm 1, lines 6 to 15) at the paper's size.

    python benchmarks/iterate.py [FOLDER OF THE GRAPHS] [--run RUN] [--blocks 4]

All of NELL23K, k = 2 and k = 3, with a model trained for a few epochs (RUN, as in benchmarks/decode.py; trained if
it is not there). FB15K237 with a model that is not trained, to which all hypotheses are alike, so that each is
expanded: some blocks of queries, and the rest extrapolated. CPU seconds are of all threads. The last line is JSON.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from decode import train
from gemm import gemm_gflops
from measure import DEFAULT_FOLDER, Figures, in_child, report, run_child

from squire.core.run_files import RULES, RULES_TEXT, TRIES
from squire.core.team import ALONE
from squire.graph.loading import load_graph
from squire.model.recipe import Recipe, load_recipe
from squire.search.trained import TrainedModel, new_model
from squire.training.iterative import Facts, PathCollection

TARGETS = {
    "nell23k_aggregate_s": "< 180",
    "fb15k237_aggregate_s_extrapolated": "< 1800",
    "peak_mb": "< 2000",
}


def main() -> None:
    if run_child({"nell": nell23k, "fb": fb15k237}):
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help="one folder a graph in it")
    parser.add_argument("--run", type=Path, default=Path("runs/decode-6x256"), help="trained if it is not there")
    parser.add_argument("--blocks", type=int, default=4, help="of FB15K237, for each k")
    parser.add_argument("--beam", type=int, default=8)
    arguments = parser.parse_args()
    if not arguments.run.exists():
        train(arguments.folder / "NELL23K", arguments.run)
    figures = in_child("nell", arguments.run, arguments.beam)
    other = in_child("fb", arguments.folder / "FB15K237", arguments.blocks, arguments.beam)
    peak = max(figures["peak_mb"], other["peak_mb"])
    report(figures | other | {"peak_mb": peak}, TARGETS)


def nell23k(folder: str, beam: str) -> Figures:
    run = TrainedModel.load(Path(folder))
    recipe = with_beam(run.recipe, beam)
    facts = Facts.from_graph(run.graph)
    figures: Figures = {"queries": len(facts.queries), "facts": len(facts.triples), "beam": int(beam)}
    peaks = [gemm_gflops()]
    with tempfile.TemporaryDirectory() as scratch:
        for name in (RULES, RULES_TEXT, TRIES):
            if (run.folder / name).exists():
                shutil.copy(run.folder / name, scratch)
        for k in (2, 3):
            began, used = time.perf_counter(), time.process_time()
            collection = PathCollection(run.graph, recipe, Path(scratch), k, ALONE)
            collection.collect(run.model, lambda *_: None, lambda: False)
            figures[f"nell23k_k{k}_s"] = round(time.perf_counter() - began, 1)
            figures[f"nell23k_k{k}_cpu_s"] = round(time.process_time() - used, 1)
            peaks.append(gemm_gflops())
    for unit in ("s", "cpu_s"):
        figures[f"nell23k_aggregate_{unit}"] = round(sum(figures[f"nell23k_k{k}_{unit}"] for k in (2, 3)), 1)
    return figures | {"gemm_gflops": round(max(peaks), 1)}


def fb15k237(folder: str, blocks: str, beam: str) -> Figures:
    """Prefixes of a sample of blocks; then all facts completed, with the sample's prefixes in turn."""
    graph = load_graph(folder)
    recipe = with_beam(load_recipe("dense", ["model.layers=6", "paths.rules=false"]), beam)
    torch.manual_seed(0)
    model = new_model(graph, recipe).eval()
    facts = Facts.from_graph(graph)
    all_blocks = facts.blocks()
    figures: Figures = {"fb15k237_queries": len(facts.queries), "fb15k237_gemm_gflops": 0.0}
    total = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        for k in (2, 3):
            collection = PathCollection(graph, recipe, Path(scratch), k, ALONE)
            sample = all_blocks[:: max(1, len(all_blocks) // int(blocks))][: int(blocks)]
            began, used = time.perf_counter(), time.process_time()
            drawn = np.concatenate([collection.draw_prefixes(model, facts, *block) for block in sample])
            share = sum(last - first for first, last in sample) / len(facts.queries)
            seconds, cpu = (time.perf_counter() - began) / share, (time.process_time() - used) / share
            began = time.perf_counter()
            prefixes = drawn[np.arange(len(facts.triples)) % len(drawn)]
            collection.complete(facts.triples, prefixes, lambda *_: None)
            completing = time.perf_counter() - began
            figures[f"fb15k237_k{k}_search_s_extrapolated"] = round(seconds, 1)
            figures[f"fb15k237_k{k}_search_cpu_s_extrapolated"] = round(cpu, 1)
            figures[f"fb15k237_k{k}_complete_s"] = round(completing, 1)
            total += seconds + completing
            figures["fb15k237_gemm_gflops"] = max(figures["fb15k237_gemm_gflops"], round(gemm_gflops(), 1))
    return figures | {"fb15k237_aggregate_s_extrapolated": round(total, 1)}


def with_beam(recipe: Recipe, beam: str) -> Recipe:
    return replace(recipe, train=replace(recipe.train, iterate_beam=int(beam)))


if __name__ == "__main__":
    main()
