"""How the model ranks answers as bare edges: the entity distribution after `h, r, r`, one step of decoding.

Quick, so training can watch it; answers with evidence need the whole decoding.
"""

from __future__ import annotations

import numpy as np
import torch

from squire.evaluate.asked import queries_of
from squire.evaluate.metrics import Metrics, Signature
from squire.evaluate.ranks import realistic_rank
from squire.graph.graph import SPLITS, Graph
from squire.model import Transformer

QUERIES_AT_ONCE = 256


@torch.no_grad()
def evaluate_edges(
    model: Transformer,
    graph: Graph,
    split: str,
    side: str = "tail",
    known_in: tuple[str, ...] = SPLITS,
    seed: int = 0,
) -> Metrics:
    """MRR and Hits of `p(t | h, r, τ₁ = r)`, filtered by what is known in these splits."""
    training = model.training
    model.eval()
    known = graph.known(*known_in)
    queries = queries_of(graph, split, side)
    device = model.embedding.weight.device
    ranks: list[float] = []
    places = torch.arange(3, device=device)
    visible = torch.ones(3, 3, dtype=torch.bool, device=device).tril()
    visible[0, 1] = True
    for first in range(0, len(queries), QUERIES_AT_ONCE):
        block = queries[first : first + QUERIES_AT_ONCE]
        relations = torch.from_numpy(block[:, 1].astype(np.int64)).to(device)
        heads = torch.from_numpy(block[:, 0].astype(np.int64)).to(device)
        tokens = torch.stack([heads, *[relations + model.vocab.first_relation] * 2], dim=1)
        size = len(block)
        states = model(tokens, places.expand(size, 3), visible.expand(size, 3, 3))[:, -1]
        scores = model.logits(states, model.vocab.after_relation, relations).double().cpu().numpy()
        for row, (head, relation, answer) in zip(scores, block.tolist(), strict=True):
            ranks.append(realistic_rank(row, answer, known.tails_of(head, relation)))
    model.train(training)
    how = {"filter": "+".join(known_in), "beam": "1", "aggregation": "edge", "seed": str(seed)}
    return Metrics.of(np.array(ranks), Signature(graph.name, split, side, "model-edge", **how))
