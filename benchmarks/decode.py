"""How fast answers are found at the paper's size: NELL23K's test questions by the paper's search with a beam of
512, with and without pruning, and by patterns of relations, which is what our recipes rank by.

    python benchmarks/decode.py [FOLDER OF THE GRAPHS] [--run RUN] [--queries 64] [--judged 400]

RUN is a run on NELL23K at the paper's size (6 layers, d = 256); if it is not there, it is trained for four epochs
first. The authors' speed is scaled by the GEMM peak of the run. Quality is judged on valid, with other questions
than are timed. The last line is JSON.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from gemm import AUTHORS_QUERIES_PER_SECOND, gemm_gflops, times_the_authors
from measure import DEFAULT_FOLDER, Figures, in_child, report, run_child

from squire.evaluation.paths import rank_by_paths
from squire.evaluation.queries import QuerySet
from squire.reasoning.reasoner import Reasoner
from squire.search.decoding import decode
from squire.search.options import DecodingOptions
from squire.search.trained import TrainedModel

BEAM, INTERACTIVE_BEAM = 512, 64
TARGETS = {
    "times_the_authors_beam512": "≥ 30",
    "times_the_authors_pruned": "≥ 100",
    "times_the_authors_patterns": "≥ 100",
    "mrr_cost_pruned": "≤ 0.001",
    "mrr_cost_patterns": "≤ 0.001",
    "answer_ms": "< 150",
    "peak_mb": "< 1000",
}


def main() -> None:
    if run_child({"speed": speed, "quality": quality}):
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help="one folder a graph in it")
    parser.add_argument("--run", type=Path, default=Path("runs/decode-6x256"), help="trained if it is not there")
    parser.add_argument("--queries", type=int, default=64, help="timed")
    parser.add_argument("--judged", type=int, default=400, help="questions of valid, for the quality")
    parser.add_argument(
        "--prune", type=float, default=0.2, help="share of the tenth new answer, below which a path is dropped"
    )
    arguments = parser.parse_args()
    if not arguments.run.exists():
        train(arguments.folder / "NELL23K", arguments.run)
    figures = in_child("speed", arguments.run, arguments.queries, arguments.prune)
    judged = in_child("quality", arguments.run, arguments.judged, arguments.prune)
    report(figures | {key: judged[key] for key in judged if key != "peak_mb"}, TARGETS)


def train(graph: Path, run: Path) -> None:
    settings = (
        "model.layers=6",
        "model.dim=256",
        "model.feedforward=512",
        "train.epochs=4",
        "train.iterate=false",
    )
    options = [word for setting in settings for word in ("--set", setting)]
    command = ["-m", "squire", "train", str(graph), "--out", str(run), "--recipe", "sparse", "--no-fuse", *options]
    subprocess.run([sys.executable, *command], check=True)


def searches(loaded: TrainedModel, prune: float) -> dict[str, DecodingOptions]:
    return {
        "beam512": loaded.decoding(aggregate="sum", beam=BEAM),
        "pruned": loaded.decoding(aggregate="sum", beam=BEAM, prune=prune),
        "patterns": loaded.decoding(aggregate="pool"),
    }


def speed(run: str, queries: str, prune: str) -> Figures:
    reasoner = Reasoner.load(run)
    loaded = reasoner.trained
    query_set = QuerySet.from_graph(loaded.graph, "test", sample=int(queries))
    peaks = [gemm_gflops()]
    rates = {}
    for name, decoding in searches(loaded, float(prune)).items():
        for _ in decode(loaded.decoder, query_set.queries[:1, :2], decoding):  # compiles
            pass
        began = time.perf_counter()
        for _ in decode(loaded.decoder, query_set.queries[:, :2], decoding):
            pass
        rates[name] = round(len(query_set.queries) / (time.perf_counter() - began), 2)
        peaks.append(gemm_gflops())
    return {
        "gemm_gflops": round(max(peaks), 1),
        **{f"qps_{name}": rate for name, rate in rates.items()},
        **{
            f"times_the_authors_{name}": times_the_authors(rate, AUTHORS_QUERIES_PER_SECOND, max(peaks))
            for name, rate in rates.items()
        },
        "answer_ms": round(1000 * _answer_seconds(reasoner, query_set), 1),
        "parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "prune": float(prune),
    }


def _answer_seconds(reasoner: Reasoner, query_set: QuerySet) -> float:
    """One question at a time, from words to words; the median."""
    labels = reasoner.labels
    times = []
    for head, relation, _ in query_set.queries[:21].tolist():
        words = labels.entities[head], labels.relations[relation]
        began = time.perf_counter()
        reasoner.answer(*words, beam=INTERACTIVE_BEAM)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def quality(run: str, judged: str, prune: str) -> Figures:
    loaded = TrainedModel.load(Path(run))
    query_set = QuerySet.from_graph(
        loaded.graph, "valid", filter_splits=("train", "valid"), sample=int(judged), seed=1
    )
    mrr = {
        name: rank_by_paths(loaded.decoder, loaded.graph, query_set, decoding, 0).metrics(intervals=False).mrr
        for name, decoding in searches(loaded, float(prune)).items()
    }
    return {
        **{f"mrr_{name}": round(value, 4) for name, value in mrr.items()},
        **{f"mrr_cost_{name}": round(mrr["beam512"] - mrr[name], 4) for name in ("pruned", "patterns")},
        "judged_queries": len(query_set.queries),
    }


if __name__ == "__main__":
    main()
