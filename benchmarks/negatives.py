"""How far the logarithm of the estimated normaliser is off, by how the competing entities are drawn.

    python benchmarks/negatives.py [FOLDER OF THE GRAPHS] [--graph NELL995]

For a model that knows no more than the prior, on three batches of 8,192 tokens: drawn evenly, by how often an
entity is a tail at all, and as `model.negative_sampling` does, by how often it is a tail of the batch's
relations. The last line is JSON.
"""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from measure import DEFAULT_FOLDER, Figures, report

from squire.core.relations import both_directions
from squire.graph.loading import load_graph
from squire.model.batches import Batches, Masking
from squire.model.negative_sampling import NegativeSampler, Reals, inclusion_probability
from squire.model.prior import Prior
from squire.model.recipe import ModelConfig
from squire.model.transformer import Transformer
from squire.model.vocabulary import Vocabulary
from squire.paths.sampling import sample_paths
from squire.paths.tries import build_tries

ROWS, DRAWS = 512, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help="one folder a graph in it")
    parser.add_argument("--graph", default="NELL995")
    arguments = parser.parse_args()
    graph = load_graph(arguments.folder / arguments.graph)
    size, rng = graph.num_entities, np.random.default_rng(0)
    vocab, negatives = Vocabulary(size, graph.num_relations), NegativeSampler(graph.train, 1)
    torch.manual_seed(0)
    model = Transformer(
        vocab, ModelConfig(layers=1, dim=64, feedforward=64), Prior.from_adjacency(graph.train)
    ).eval()
    paths = sample_paths(graph.train, both_directions(graph.train.triples, graph.num_relations), seed=0)
    even = np.full(size, 1 / size)
    anyhow = even + np.bincount(graph.train.tails, minlength=size) / graph.train.num_edges
    errors: dict[str, list[Reals]] = {}
    for batch in islice(Batches(build_tries(paths), vocab, 8192, Masking(0.15), seed=0).epoch(0), 3):
        targets, relations = batch.entities.token.numpy(), batch.entities.relation.numpy()
        some = torch.from_numpy(rng.choice(len(relations), min(ROWS, len(relations)), replace=False))
        with torch.no_grad():
            states = model(batch.tokens, batch.positions, batch.visible).flatten(0, 1)[batch.entities.source[some]]
            logits = model.logits(states, vocab.after_relation, batch.entities.relation[some])
            p = logits.softmax(1).numpy()  # (row, entity)
        ours = negatives.weights(targets, relations)
        for number in (512, 2048, 8192):
            for name, weights in {"even": even, "tails": anyhow, "ours": ours}.items():
                chances = inclusion_probability(np.where(ours > 0, weights, 0.0), number)
                chances[targets] = 1.0
                for _ in range(DRAWS):
                    drawn = np.flatnonzero(rng.random(size) < chances)
                    errors.setdefault(f"{name}_{number}", []).append(np.log(p[:, drawn] @ (1 / chances[drawn])))
    figures: Figures = {}
    for key, found in errors.items():
        error = np.concatenate(found)
        figures |= {f"{key}_bias": round(error.mean(), 3), f"{key}_rmse": round((error**2).mean() ** 0.5, 3)}
    report(figures, {})


if __name__ == "__main__":
    main()
