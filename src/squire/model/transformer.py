"""The transformer (§3.2, Eq. 2–3, Appendix A): one file, readable top to bottom.

    p(· | q, τ_<k) = Softmax( MLP( Enc(h, r, τ_<k) ) · E )

An encoder in which all tokens attend to the query, and a path token also to the tokens before it; in a row of
prefix trees these are its ancestors (`visible`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from squire.model.batches import Batch
from squire.model.edges import EdgeEmbedding
from squire.model.loss import trie_loss
from squire.model.prior import Prior
from squire.model.recipe import ModelConfig
from squire.model.vocabulary import Vocabulary

MASKED_OUT = -1e9
Cache = Callable[[Tensor], Tensor]  # new keys and values -> all: (row, column, 2, head, dim / heads) both


class Dropout(nn.Module):
    """Dropout that draws 16 bits per element, since PyTorch's took a fifth of a training step on a CPU."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.drop_below = round(probability * 2**16)  # out of 2**16, which gives five digits

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.drop_below == 0:
            return x
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        kept = draws.view(torch.int16)[: x.numel()].view(x.shape) >= self.drop_below - 2**15
        # Converting bytes to floats is three times as fast as converting booleans.
        return x * kept.view(torch.uint8).to(x.dtype).mul_(2**16 / (2**16 - self.drop_below))


class Layer(nn.Module):
    """An encoder layer: attention to visible tokens, then a feed-forward network, each with a residual."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.norm_first = config.heads, config.norm_first
        self.to_qkv = nn.Linear(config.dim, 3 * config.dim)
        self.from_heads = nn.Linear(config.dim, config.dim)
        self.widen = nn.Linear(config.dim, config.feedforward)
        self.narrow = nn.Linear(config.feedforward, config.dim)
        self.norm_attention, self.norm_feedforward = nn.LayerNorm(config.dim), nn.LayerNorm(config.dim)
        self.dropout = Dropout(config.dropout)
        self.activation: nn.Module = nn.GELU() if config.activation == "gelu" else nn.ReLU()

    def forward(self, x: Tensor, bias: Tensor | None, cache: Cache | None = None) -> Tensor:
        """x: (row, column, dim); bias: (row, 1, column, column), very negative where the second is not visible.

        `cache` takes the keys and values of x, and returns those of all tokens that x attends to.
        """
        if self.norm_first:
            x = x + self.dropout(self.attend(self.norm_attention(x), bias, cache))
            out: Tensor = x + self.dropout(self.transform(self.norm_feedforward(x)))
        else:
            x = self.norm_attention(x + self.dropout(self.attend(x, bias, cache)))
            out = self.norm_feedforward(x + self.dropout(self.transform(x)))
        return out

    def attend(self, x: Tensor, bias: Tensor | None, cache: Cache | None) -> Tensor:
        rows, columns, dim = x.shape
        qkv = self.to_qkv(x).view(rows, columns, 3, self.heads, dim // self.heads)
        q, own = qkv.split([1, 2], dim=2)  # slices would each have a gradient as large as qkv
        k, v = (cache(own) if cache else own).permute(2, 0, 3, 1, 4)  # (row, head, column, dim / heads) each
        q = q.squeeze(2).transpose(1, 2)
        if on_cpu := x.device.type == "cpu":  # its attention is slower in 16 bits
            q, k, v = q.float(), k.float(), v.float()
        with torch.autocast(x.device.type, enabled=torch.is_autocast_enabled(x.device.type) and not on_cpu):
            seen = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        out: Tensor = self.from_heads(seen.transpose(1, 2).reshape(rows, columns, dim))
        return out

    def transform(self, x: Tensor) -> Tensor:
        out: Tensor = self.narrow(self.dropout(self.activation(self.widen(x))))
        return out


class Transformer(nn.Module):
    """Enc, MLP and E. Callers choose the classes that can come next (`vocab.after_…`)."""

    def __init__(self, vocab: Vocabulary, config: ModelConfig, prior: Prior | None = None) -> None:
        super().__init__()
        self.vocab, self.config, self.prior = vocab, config, prior
        self.embedding = nn.Embedding(len(vocab), config.dim)  # E, tied: input and output
        self.positions = nn.Embedding(2 + 2 * config.max_hops, config.dim)  # h, r, then the depth in the path
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.last_norm = nn.LayerNorm(config.dim) if config.norm_first else nn.Identity()
        self.mlp = nn.Sequential(nn.Linear(config.dim, config.dim), nn.ReLU(), nn.Linear(config.dim, config.dim))
        self.input_dropout, self.output_dropout = (
            nn.Dropout(config.input_dropout),
            nn.Dropout(config.output_dropout),
        )
        self.prior_scale = nn.Parameter(torch.ones(2 * vocab.num_relations)) if prior is not None else None
        self.edges, self.edge_scale = None, None
        if config.edge_rank:
            self.edges = EdgeEmbedding(vocab.num_entities, 2 * vocab.num_relations, config.edge_rank)
            self.edge_scale = nn.Parameter(torch.ones(2 * vocab.num_relations))
        # Logits are products of two such vectors; with unit variance they would be too large at first.
        nn.init.normal_(self.embedding.weight, std=config.dim**-0.5)
        nn.init.normal_(self.positions.weight, std=config.dim**-0.5)

    def grown(self, num_known: int, linked: Sequence[Tensor], edges: EdgeEmbedding | None) -> Transformer:
        """The same model, with new entities after the first `num_known`.

        A new one is taken for the mean of the known ones that it is linked to, or for <mask> if there are none.
        linked: ids, for each new one. edges: with those of the new ones. Other weights are shared.
        """
        vocab = Vocabulary(num_known + len(linked), self.vocab.num_relations)
        with torch.device("meta"):
            model = Transformer(vocab, self.config, self.prior)
        state, old = self.state_dict(), self.embedding.weight.detach()
        rows = [old[near].mean(0) if len(near) else old[self.vocab.mask] for near in linked]
        new = torch.stack(rows) if rows else old[:0]
        state["embedding.weight"] = torch.cat([old[:num_known], new, old[self.vocab.first_relation :]])
        if edges is not None:
            state["edges.entity"] = edges.entity
        model.load_state_dict(state, assign=True)
        return model.train(self.training)

    def forward(self, tokens: Tensor, positions: Tensor, visible: Tensor) -> Tensor:
        """MLP(Enc(·)) of every token.  (row, column) × 2, (row, column, column) -> (row, column, dim)"""
        return self._encode(self.embedding(tokens), positions, visible)

    def _encode(self, embedded: Tensor, positions: Tensor, visible: Tensor) -> Tensor:
        x = self._with_positions(embedded, positions)
        bias = torch.zeros(visible.shape, dtype=x.dtype, device=x.device).masked_fill_(~visible, MASKED_OUT)
        for layer in self.layers:
            x = layer(x, bias[:, None])
        return self.states(x)

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """The input of the first layer.  (…) × 2 -> (…, dim)"""
        return self._with_positions(self.embedding(tokens), positions)

    def _with_positions(self, embedded: Tensor, positions: Tensor) -> Tensor:
        # Tied embeddings are usually scaled by √dim: small enough as classes, large enough as input.
        out: Tensor = self.input_dropout(embedded) * self.config.dim**0.5 + self.positions(positions)
        return out

    def states(self, x: Tensor) -> Tensor:
        """The states that are compared with the classes: MLP of the last layer's output.  (…, dim) -> (…, dim)"""
        out: Tensor = self.output_dropout(self.mlp(self.last_norm(x)))
        return out

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the prior along with the module. As buffers it would be sent between processes in each step."""
        if self.prior is not None:
            self.prior = replace(self.prior, **{name: fn(tensor) for name, tensor in vars(self.prior).items()})
        moved: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return moved

    def logits(
        self, states: Tensor, classes: slice, relations: Tensor | None = None, entities: Tensor | None = None
    ) -> Tensor:
        """Scores of some classes; if these are entities, `entities` and `relations` are the edges before them.

        (state, dim), (state) × 2 -> (state, class)
        """
        logits = states @ self.embedding.weight[classes].T
        if self.edges is not None and relations is not None and entities is not None:
            logits.addmm_(self._edge_states(entities, relations), self.edges.entity.T)  # no second copy
        if self.prior is not None and relations is not None and self.prior_scale is not None:
            row, column, value = self.prior.entries(relations)
            logits.index_put_((row, column), value * self.prior_scale[relations[row]], accumulate=True)
        return logits

    def _edge_states(self, entities: Tensor, relations: Tensor) -> Tensor:
        """(edge) × 2 -> (edge, 2 · rank)"""
        assert self.edges is not None
        assert self.edge_scale is not None
        return self.edges.states(entities, relations) * self.edge_scale[relations][:, None]

    def loss(self, batch: Batch, smoothing: float) -> Tensor:
        """The mean loss per path (Eq. 4): over the possible tokens if typed, else over all, as in the paper.

        If the batch has sampled entities (typed models only), these stand for all entities.
        """
        relations, entities, vocab = batch.relations, batch.entities, self.vocab
        after_entity = vocab.after_entity if self.config.typed else slice(None)
        after_relation = vocab.after_relation if self.config.typed else slice(None)
        table, prior, counts, num_entities = self.embedding.weight, self.prior, None, None
        relations = replace(relations, token=relations.token - (after_entity.start or 0))
        if batch.sampled is None:
            embedded = self.embedding(batch.tokens)
            relation_classes, entity_classes = table[after_entity], table[after_relation]
        else:
            sample, counts, num_entities = batch.sampled.entities, batch.sampled.counts, vocab.num_entities
            entities = replace(entities, token=torch.searchsorted(sample, entities.token))
            prior = self.prior.among(sample) if self.prior is not None else None
            # A single look-up, since each has a gradient as large as the table, mostly zeros.
            after = torch.arange(after_entity.start, after_entity.stop, device=sample.device)
            parts = [batch.tokens.flatten(), after, sample]
            rows = self.embedding(torch.cat(parts)).split([len(part) for part in parts])
            embedded, relation_classes, entity_classes = rows[0].view(*batch.tokens.shape, -1), rows[1], rows[2]
        states = self._encode(embedded, batch.positions, batch.visible).flatten(0, 1)  # (row · column, dim)
        states = states.to(table.dtype)  # the layers may run in 16 bits
        before_entities = states[entities.source]
        if self.edges is not None:
            own = self.edges.entity if batch.sampled is None else self.edges.entity[batch.sampled.entities]
            entity_classes = torch.cat([entity_classes, own], 1)
            edge_states = self._edge_states(batch.edge_starts(), entities.relation)
            before_entities = torch.cat([before_entities, edge_states], 1)
        total = trie_loss(states[relations.source], relation_classes, relations, smoothing) + trie_loss(
            before_entities,
            entity_classes,
            entities,
            smoothing,
            prior,
            self.prior_scale,
            counts,
            num_entities,
        )
        return total / batch.weight

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        """Also load checkpoints from before version 0.2, which called the positions `places`."""
        if (old := f"{prefix}places.weight") in state_dict:
            state_dict[f"{prefix}positions.weight"] = state_dict.pop(old)
        super()._load_from_state_dict(state_dict, prefix, *arguments)
