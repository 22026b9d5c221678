"""The transformer (§3.2, Eq. 2–3, Appendix A): one file, readable top to bottom.

    p(· | q, τ_<k) = Softmax( MLP( Enc(h, r, τ_<k) ) · E )

An encoder in which the query is seen by all and a path token sees the query and the tokens before it; in a row of
prefix trees, its ancestors (`visible`). Knows tokens and tensors, nothing of graphs, paths or files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from squire.model.batches import Batch
from squire.model.loss import trie_loss
from squire.model.prior import Prior
from squire.model.recipe import ModelConfig
from squire.model.vocabulary import Vocabulary

MASKED_OUT = -1e9
Recall = Callable[[Tensor], Tensor]  # (row, column, 2, head, dim / heads) both


class Dropout(nn.Module):
    """Dropout that draws 16 bits an element: PyTorch's own took a fifth of a training step on a CPU."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.drop_below = round(probability * 2**16)  # of 2**16: the probability to five digits

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.drop_below == 0:
            return x
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        kept = draws.view(torch.int16)[: x.numel()].view(x.shape) >= self.drop_below - 2**15
        # Bytes become floats three times as fast as truth values do.
        return x * kept.view(torch.uint8).to(x.dtype).mul_(2**16 / (2**16 - self.drop_below))


class Layer(nn.Module):
    """One encoder layer: attention among visible tokens, then a feed-forward network, each with a residual."""

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

    def forward(self, x: Tensor, bias: Tensor | None, recall: Recall | None = None) -> Tensor:
        """One layer up.

        x: (row, column, dim); bias: (row, 1, column, column), very negative where the second is not visible;
        `recall` is given the keys and values of x, and gives all that x may see, with those of earlier calls.
        """
        if self.norm_first:
            x = x + self.dropout(self.attend(self.norm_attention(x), bias, recall))
            out: Tensor = x + self.dropout(self.transform(self.norm_feedforward(x)))
        else:
            x = self.norm_attention(x + self.dropout(self.attend(x, bias, recall)))
            out = self.norm_feedforward(x + self.dropout(self.transform(x)))
        return out

    def attend(self, x: Tensor, bias: Tensor | None, recall: Recall | None) -> Tensor:
        rows, columns, dim = x.shape
        qkv = self.to_qkv(x).view(rows, columns, 3, self.heads, dim // self.heads)
        q, own = qkv.split([1, 2], dim=2)  # slices would each have a gradient as large as qkv
        k, v = (recall(own) if recall else own).permute(2, 0, 3, 1, 4)  # (row, head, column, dim / heads) each
        seen = F.scaled_dot_product_attention(q.squeeze(2).transpose(1, 2), k, v, attn_mask=bias)
        out: Tensor = self.from_heads(seen.transpose(1, 2).reshape(rows, columns, dim))
        return out

    def transform(self, x: Tensor) -> Tensor:
        out: Tensor = self.narrow(self.dropout(self.activation(self.widen(x))))
        return out


class Transformer(nn.Module):
    """Enc, MLP and E. Which of the classes can come next is decided by who asks (`vocab.after_…`)."""

    def __init__(self, vocab: Vocabulary, config: ModelConfig, prior: Prior | None = None) -> None:
        super().__init__()
        self.vocab, self.config, self.prior = vocab, config, prior
        self.embedding = nn.Embedding(len(vocab), config.dim)  # E, tied: input and output
        self.places = nn.Embedding(2 + 2 * config.max_hops, config.dim)  # h, r, then the depth in the path
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.last_norm = nn.LayerNorm(config.dim) if config.norm_first else nn.Identity()
        self.mlp = nn.Sequential(nn.Linear(config.dim, config.dim), nn.ReLU(), nn.Linear(config.dim, config.dim))
        self.input_dropout, self.output_dropout = (
            nn.Dropout(config.input_dropout),
            nn.Dropout(config.output_dropout),
        )
        self.prior_scale = nn.Parameter(torch.ones(2 * vocab.num_relations)) if prior is not None else None
        # Logits are products of two such vectors: with unit rows they would start far apart.
        nn.init.normal_(self.embedding.weight, std=config.dim**-0.5)
        nn.init.normal_(self.places.weight, std=config.dim**-0.5)

    def forward(self, tokens: Tensor, places: Tensor, visible: Tensor) -> Tensor:
        """MLP(Enc(·)) of every token.  (row, column) × 2, (row, column, column) -> (row, column, dim)"""
        return self._encoded(self.embedding(tokens), places, visible)

    def _encoded(self, embedded: Tensor, places: Tensor, visible: Tensor) -> Tensor:
        x = self._placed(embedded, places)
        bias = torch.zeros(visible.shape, dtype=x.dtype, device=x.device).masked_fill_(~visible, MASKED_OUT)
        for layer in self.layers:
            x = layer(x, bias[:, None])
        return self.states(x)

    def embed(self, tokens: Tensor, places: Tensor) -> Tensor:
        """What enters the first layer.  (…) × 2 -> (…, dim)"""
        return self._placed(self.embedding(tokens), places)

    def _placed(self, embedded: Tensor, places: Tensor) -> Tensor:
        # √dim, as usual where embeddings are tied: small enough to be classes, large enough to be seen.
        out: Tensor = self.input_dropout(embedded) * self.config.dim**0.5 + self.places(places)
        return out

    def states(self, x: Tensor) -> Tensor:
        """What meets the classes: MLP(·) of what leaves the last layer.  (…, dim) -> (…, dim)"""
        out: Tensor = self.output_dropout(self.mlp(self.last_norm(x)))
        return out

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What torch moves a module by: the prior goes along. Buffers would be sent among processes each step."""
        if self.prior is not None:
            self.prior = replace(self.prior, **{name: fn(tensor) for name, tensor in vars(self.prior).items()})
        moved: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return moved

    def logits(self, states: Tensor, classes: slice, relations: Tensor | None = None) -> Tensor:
        """Scores of some classes; with a prior, `relations` are those that an entity is to follow.

        (state, dim) -> (state, class)
        """
        logits = states @ self.embedding.weight[classes].T
        if self.prior is not None and relations is not None and self.prior_scale is not None:
            row, column, value = self.prior.entries(relations)
            logits.index_put_((row, column), value * self.prior_scale[relations[row]], accumulate=True)
        return logits

    def loss(self, batch: Batch, smoothing: float) -> Tensor:
        """The mean loss a path (Eq. 4). Typed: only what can follow competes; else all tokens, as in the paper.

        If the batch says which entities compete, they stand for all; only for typed models, as Recipe sees to.
        """
        relations, entities, vocab = batch.relations, batch.entities, self.vocab
        after_entity = vocab.after_entity if self.config.typed else slice(None)
        after_relation = vocab.after_relation if self.config.typed else slice(None)
        table, target, prior, counts, num_entities = self.embedding.weight, entities.token, self.prior, None, None
        if batch.competing is None:
            embedded, classes, competing = self.embedding(batch.tokens), table[after_entity], table[after_relation]
        else:
            drawn, counts, num_entities = batch.competing.entities, batch.competing.counts, vocab.num_entities
            target = torch.searchsorted(drawn, entities.token)
            prior = self.prior.among(drawn) if self.prior is not None else None
            # One look-up for all: each has a gradient as large as the table, most of it zeros.
            after = torch.arange(after_entity.start, after_entity.stop, device=drawn.device)
            parts = [batch.tokens.flatten(), after, drawn]
            rows = self.embedding(torch.cat(parts)).split([len(part) for part in parts])
            embedded, classes, competing = rows[0].view(*batch.tokens.shape, -1), rows[1], rows[2]
        states = self._encoded(embedded, batch.places, batch.visible).flatten(0, 1)  # (row · column, dim)
        # The layers may run in 16 bits; sums over all entities, and differences of logits, need all 32.
        with torch.autocast(states.device.type, enabled=False):
            states = states.to(table.dtype)
            total = trie_loss(
                states[relations.source],
                classes,
                relations.row,
                relations.token - (after_entity.start or 0),
                relations.weight,
                smoothing,
            ) + trie_loss(
                states[entities.source],
                competing,
                entities.row,
                target,
                entities.weight,
                smoothing,
                prior,
                entities.relation,
                self.prior_scale,
                counts,
                num_entities,
            )
        return total / batch.weight
