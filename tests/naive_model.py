"""Slow, obvious twins of training on prefix trees: one path at a time, dense targets, no cleverness."""

from __future__ import annotations

import torch

from squire.model.transformer import Transformer

Path = list[int]  # tokens: r1, t1, …, rn, t, <eos>


def logits_after(model: Transformer, query: tuple[int, int], prefix: Path) -> torch.Tensor:
    """The logits of all tokens after a query and the beginning of a path, computed on its own (Eq. 3)."""
    tokens = torch.tensor([[*query, *prefix]])
    size = tokens.shape[1]
    visible = torch.ones(1, size, size, dtype=torch.bool).tril()
    visible[0, 0, 1] = True  # the query is seen by all, also r by h
    state = model(tokens, torch.arange(size)[None], visible)[0, -1]
    logits: torch.Tensor = model.embedding.weight @ state
    if model.prior is not None and model.prior_scale is not None and len(prefix) % 2:
        relation = prefix[-1] - model.vocab.first_relation
        own = slice(int(model.prior.offsets[relation]), int(model.prior.offsets[relation + 1]))
        added = torch.zeros_like(logits)
        added[model.prior.entities[own]] = model.prior.values[own] * model.prior_scale[relation]
        logits = logits + added
    if model.edges is not None and model.edge_scale is not None and len(prefix) % 2:
        start = prefix[-2] if len(prefix) > 1 else query[0]
        relation = prefix[-1] - model.vocab.first_relation
        entity, edge_type = (complex_rows(table) for table in (model.edges.entity, model.edges.relation))
        for tail in range(model.vocab.num_entities):
            score = (entity[start] * edge_type[relation] * entity[tail].conj()).sum().real
            logits[tail] += model.edge_scale[relation] * score
    return logits


def complex_rows(table: torch.Tensor) -> torch.Tensor:
    """(row, 2 · rank) -> (row, rank), complex"""
    real, imaginary = table.detach().chunk(2, 1)
    return torch.complex(real.contiguous(), imaginary.contiguous())


def path_loss(model: Transformer, query: tuple[int, int], path: Path, smoothing: float) -> torch.Tensor:
    """Eq. 4 for one sample (q, τ)."""
    total = torch.zeros(())
    for k, target in enumerate(path):
        logits = logits_after(model, query, path[:k])
        if model.config.typed:
            classes = model.vocab.after_relation if k % 2 else model.vocab.after_entity
            logits, target = logits[classes], target - classes.start
        alpha = torch.full_like(logits, (1 - smoothing) / (len(logits) - 1))
        alpha[target] = smoothing
        total = total - (alpha * logits.log_softmax(0)).sum()
    return total / len(path)
