"""The model's probabilities of given paths, without a search: each shared prefix is fed to the model once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from squire.graph.adjacency import Ids, Offsets
from squire.search.beam import Decoder, FinishedPaths
from squire.search.options import Guidance


@torch.no_grad()
def score_paths(
    decoder: Decoder,
    queries: Ids,  # (query, 2): head and edge type
    query: Offsets,  # (path): which one it belongs to
    paths: Ids | Offsets,  # (path, 2 · hops): relation, entity, …, then −1
    guidance: Guidance | None = None,
) -> FinishedPaths:
    """Some paths, as a search would have found them."""
    tokens, of = (torch.from_numpy(np.asarray(ids, np.int64)).to(decoder.device) for ids in (paths, query))
    hops = (tokens >= 0).sum(1) // 2
    heads, relations = torch.from_numpy(queries.astype(np.int64)).to(decoder.device).T
    log_probability = torch.zeros(len(tokens), tokens.shape[1] + 1, dtype=torch.float32, device=decoder.device)
    follow = decoder.begin(heads, relations)
    node = of.clone()  # (path): the node of its last token fed, among those of its level
    end_of = heads  # (node): the entity there
    left = torch.arange(len(tokens), device=decoder.device)  # paths that go on
    for hop in range(tokens.shape[1] // 2):
        left = left[hops[left] > hop]
        if not len(left):
            break
        at, before, after = _step(node[left], tokens[left, 2 * hop])
        log_probability[left, 2 * hop] = follow[before, after][at].float()
        logits, norm = decoder.entities(2 * hop + 1, before, after)
        if guidance:
            guidance.apply(end_of[before], after, logits, norm)
        at, before, end_of = _step(at, tokens[left, 2 * hop + 1])
        log_probability[left, 2 * hop + 1] = (logits[before, end_of] - norm[before])[at].float()
        follow = decoder.relations(2 * hop + 2, before, end_of)
        node[left] = at
        ended = hops[left] == hop + 1
        log_probability[left[ended], 2 * hop + 2] = follow[at[ended], -1].float()
    return FinishedPaths(of, tokens, hops, log_probability)


def _step(node: Tensor, token: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct continuations of nodes: which one each path takes, (path), their nodes and tokens."""
    distinct, at = torch.unique(torch.stack([node, token], 1), dim=0, return_inverse=True)
    return at, distinct[:, 0], distinct[:, 1]
