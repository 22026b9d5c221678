"""How fast training is at the paper's size, against the machine's own limit: the GEMM peak of the same run.

    python benchmarks/train.py [FOLDER OF THE GRAPHS] [--steps 12]

Useful operations are those of the method: real tokens (no padding), visible pairs, classes that can follow;
forward and backward, three products for each. The peak is that of 32 bits, in which the authors' code computes and
by which its speed is scaled; ours multiplies in 16 bits where the processor has instructions for it. The epoch is
extrapolated from the steps measured. Then a step among 100,000 and a million entities, where a sample of them
competes and where all do. The last line is JSON.
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from gemm import AUTHORS_SEQUENCES_PER_SECOND, gemm_gflops, times_the_authors
from measure import DEFAULT_FOLDER, Figures, in_child, report, run_child

from squire.core.relations import both_directions
from squire.graph.adjacency import Adjacency
from squire.graph.loading import load_graph
from squire.model.batches import Batch, Batches, Masking
from squire.model.negative_sampling import NegativeSampler
from squire.model.precision import training_precision
from squire.model.prior import Prior
from squire.model.recipe import ModelConfig
from squire.model.transformer import Transformer
from squire.model.vocabulary import Vocabulary
from squire.paths.sampling import sample_paths
from squire.paths.tries import build_tries
from squire.rules.mining import MiningOptions, mine_rules
from squire.rules.rules import ClosedIndex

TARGETS = {"fraction_of_peak": "≥ 0.5", "times_the_authors": "≥ 40", "peak_mb": "< 2000"}
PAPER = ModelConfig(norm_first=False, activation="relu")
LARGE = ModelConfig(layers=3, dim=128, feedforward=256)


def main() -> None:
    if run_child({"train": train_step, "large": large_step}):
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help="one folder a graph in it")
    parser.add_argument("--steps", type=int, default=12, help="steps to measure")
    parser.add_argument("--nodes", type=int, default=8192, help="tokens in a batch")
    arguments = parser.parse_args()
    figures = in_child("train", arguments.folder / "NELL23K", arguments.steps, arguments.nodes)
    for size, short in ((100_000, "100k"), (1_000_000, "1m")):
        for drawn, name in ((8192, "sampled"), (0, "full")):
            step = in_child("large", size, drawn)
            figures |= {f"{name}_{key}_{short}": value for key, value in step.items()}
    report(figures, TARGETS)


def train_step(folder: str, steps: str, nodes: str) -> Figures:
    graph = load_graph(folder)
    rules = mine_rules(graph.train, MiningOptions(constants=False, min_confidence=0.01)).rules
    queries = both_directions(graph.train.triples, graph.num_relations)
    paths = sample_paths(graph.train, queries, ClosedIndex.from_rules(rules), seed=0)
    vocab = Vocabulary(graph.num_entities, graph.num_relations)
    batches = Batches(build_tries(paths), vocab, int(nodes), Masking(0.15), seed=0)
    torch.manual_seed(0)
    torch.set_flush_denormal(True)
    model = Transformer(vocab, PAPER, Prior.from_adjacency(graph.train))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    seconds: list[float] = []
    useful: list[float] = []
    peaks = [gemm_gflops()]
    for batch in batches.epoch(0):
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with training_precision(batch.tokens.device, PAPER.dim):
            loss = model.loss(batch, 0.8)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - began)
        useful.append(useful_gflop(batch, vocab))
        if len(seconds) > int(steps):
            break
    peaks.append(gemm_gflops())
    # The first step allocates; the median of the others is not moved by a neighbour's burst.
    rate = statistics.median(work / time for work, time in zip(useful[1:], seconds[1:], strict=True))
    epoch = statistics.median(seconds[1:]) * batches.num_batches(0)
    return {
        "gemm_gflops": round(max(peaks), 1),
        "useful_gflops": round(rate, 1),
        "fraction_of_peak": round(rate / max(peaks), 3),
        "step_s": round(statistics.median(seconds[1:]), 3),
        "nell23k_epoch_s": round(epoch, 1),
        "times_the_authors": times_the_authors(
            batches.total_weight / epoch, AUTHORS_SEQUENCES_PER_SECOND, max(peaks)
        ),
    }


def large_step(entities: str, drawn: str) -> Figures:
    """One step among so many entities, of a made graph with two facts an entity; all compete if none are drawn.

    `table_s` is the part that knows no rows: clipping and Adam, whose gradient of E is dense.
    """
    size, relations = int(entities), 50
    rng = np.random.default_rng(0)
    facts = [rng.integers(0, limit, 2 * size) for limit in (size, relations)]
    facts.append((size * rng.random(2 * size) ** 3).astype(np.int64))  # some are tails far more often than others
    graph = Adjacency.build(np.stack(facts, axis=1).astype(np.int32), size, relations)
    vocab = Vocabulary(size, relations)
    tries = build_tries(sample_paths(graph, both_directions(graph.triples[:: size // 500], relations), seed=0))
    negatives = NegativeSampler(graph, int(drawn)) if int(drawn) else None
    torch.manual_seed(0)
    torch.set_flush_denormal(True)
    model = Transformer(vocab, LARGE, Prior.from_adjacency(graph))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    batches = Batches(tries, vocab, 2048, Masking(0.15), 0, negatives)
    seconds: list[tuple[float, float]] = []
    began = time.perf_counter()
    for batch in islice(batches.epoch(0), 2 if negatives is None else 4):  # where all compete, a step takes long
        optimizer.zero_grad(set_to_none=True)
        with training_precision(batch.tokens.device, LARGE.dim):
            loss = model.loss(batch, 0.8)
        loss.backward()  # type: ignore[no-untyped-call]
        differentiated = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds.append((time.perf_counter() - began, time.perf_counter() - differentiated))
        began = time.perf_counter()  # so that the next step has its drawing
    step_s, table_s = min(seconds[1:])  # the first step allocates
    return {"step_s": round(step_s, 3), "table_s": round(table_s, 3)}


def useful_gflop(batch: Batch, vocab: Vocabulary) -> float:
    """Of one step: two operations a multiplication, three products for each (forward, and two backward)."""
    tokens = int((batch.tokens != vocab.pad).sum())
    pairs = int(batch.visible.sum()) - int((batch.tokens == vocab.pad).sum())
    d, f = PAPER.dim, PAPER.feedforward
    encoder = PAPER.layers * (tokens * (4 * d * d + 2 * d * f) + 2 * pairs * d)
    sources = len(batch.relations.source) + len(batch.entities.source)
    output = len(batch.entities.source) * vocab.num_entities + len(batch.relations.source) * (
        2 * vocab.num_relations + 1
    )
    return 3 * 2 * (encoder + sources * 2 * d * d + output * d) / 1e9


if __name__ == "__main__":
    main()
