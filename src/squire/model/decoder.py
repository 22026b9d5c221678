"""The decoder: feeds the model one token of many hypotheses at a time, with a cache of keys and values.

Every token is fed once. Hypotheses with the same prefix share its keys and values: each layer has one table with a
row per token, and a hypothesis is a list of rows. Implements `search.beam.Decoder`.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from squire.model.transformer import Transformer

ROWS_IN_CACHE = 16
ONE_FACT = 1.1  # fewer facts per tail than this on average: each tail has one
NODES_AT_ONCE = 512  # their activations in a layer fit into the processor's cache


class TransformerDecoder:
    """A decoder of the model, which is put into evaluation mode. Each call of `begin` starts a new search."""

    def __init__(self, model: Transformer) -> None:
        self._model, self.device = model.eval(), model.embedding.weight.device
        self.num_entities = model.vocab.num_entities

    def begin(self, heads: Tensor, relations: Tensor) -> Tensor:
        tokens = torch.stack([heads, relations + self._model.vocab.first_relation], 1)  # (query, 2)
        self._levels: list[Tensor] = []  # per level (node, token): rows in the tables, starting with the query's
        self._tables: list[Tensor] = []  # per layer (row, 2, head, dim / heads): keys and values
        self._rows = 0  # rows in use
        self._entities = {0: heads}  # per even level (node): the last entity
        return self._after_entity(self._feed(0, None, tokens))

    def entities(self, level: int, parents: Tensor, relations: Tensor) -> tuple[Tensor, Tensor]:
        states = self._feed(level, parents, relations[:, None] + self._model.vocab.first_relation)
        starts = self._entities[level - 1][parents]
        return self._logits(states, self._model.vocab.after_relation, relations, starts)

    def relations(self, level: int, parents: Tensor, entities: Tensor) -> Tensor:
        self._entities[level] = torch.cat([self._entities.get(level, entities[:0]), entities])
        return self._after_entity(self._feed(level, parents, entities[:, None]))

    def queried_edge(self, relations: Tensor) -> Tensor:
        """log p(t | h, r, r): by the model, or the mean of that and of what its edge embeddings say alone.

        What the transformer adds to the embeddings is right in direction but twice too large: this mean is better
        than either on every graph that was tried (docs/LOG.md). Where tails have one fact each, as countries have
        one capital, those that have theirs are the least probable answers, and the prior is left out.
        """
        model = self._model
        logits, norm = self.entities(1, torch.arange(len(relations), device=self.device), relations)
        if model.edges is None:
            return logits - norm[:, None]
        if model.prior is not None and model.prior_scale is not None:
            single = torch.nonzero(model.prior.facts_per_tail[relations] < ONE_FACT)[:, 0]
            row, entity, value = model.prior.entries(relations[single])
            scale = model.prior_scale[relations[single[row]]]
            logits.index_put_((single[row], entity), -value * scale, accumulate=True)
        logits += model.edges.logits(self._entities[0], relations)
        return (logits / 2).log_softmax(1)

    def skip(self, level: int, parents: Tensor, relations: Tensor) -> Tensor:
        tokens = relations[:, None] + self._model.vocab.first_relation
        self._feed(level, parents, tokens)
        fed = len(self._levels[level])
        nodes = torch.arange(fed - len(parents), fed, device=self.device)
        return self.relations(level + 1, nodes, torch.full_like(nodes, self._model.vocab.mask))

    def _after_entity(self, states: Tensor) -> Tensor:
        logits, norm = self._logits(states, self._model.vocab.after_entity)
        return logits - norm[:, None]

    def _logits(
        self, states: Tensor, classes: slice, relations: Tensor | None = None, entities: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits of these classes and their log-normaliser: over these classes if typed, else over all tokens."""
        typed = self._model.config.typed
        logits = self._model.logits(states, classes if typed else slice(None), relations, entities)
        # A few rows at a time, which stay in the processor's cache, take less than half the time.
        norm = torch.cat([rows.logsumexp(1) for rows in torch.split(logits, ROWS_IN_CACHE)])
        return logits if typed else logits[:, classes], norm

    def _feed(self, level: int, parents: Tensor | None, tokens: Tensor) -> Tensor:
        """The state after the last token of each node.  tokens: (node, token) -> (node, dim)"""
        rows = torch.arange(self._rows, self._rows + tokens.numel(), device=self.device).view(tokens.shape)
        if parents is not None:
            rows = torch.cat([self._levels[level - 1][parents], rows], 1)
        if level == len(self._levels):
            self._levels.append(rows[:0])
        self._levels[level] = torch.cat([self._levels[level], rows])
        blocks = zip(torch.split(tokens, NODES_AT_ONCE), torch.split(rows, NODES_AT_ONCE), strict=True)
        return torch.cat([self._feed_block(*block) for block in blocks])

    def _feed_block(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """tokens: (node, token); rows: (node, all its tokens) -> (node, dim)"""
        model, new = self._model, tokens.shape[1]
        positions = torch.arange(rows.shape[1] - new, rows.shape[1], device=self.device)
        self._reserve(tokens.numel())
        x = model.embed(tokens, positions)
        for layer, table in zip(model.layers, self._tables, strict=True):
            x = layer(x, None, partial(self._cached, table, rows))
        self._rows += tokens.numel()
        return model.states(x[:, -1])

    def _cached(self, table: Tensor, rows: Tensor, own: Tensor) -> Tensor:
        """Store the keys and values of the new tokens; return those of all tokens of the hypotheses."""
        table[self._rows : self._rows + own.shape[0] * own.shape[1]].view(own.shape).copy_(own)
        return table[rows]

    def _reserve(self, rows: int) -> None:
        """Make space for more rows; full tables are doubled."""
        config = self._model.config
        if not self._tables or self._rows + rows > len(self._tables[0]):
            size = (max(2 * self._rows, self._rows + rows), 2, config.heads, config.dim // config.heads)
            grown = [self._model.embedding.weight.new_empty(size) for _ in range(config.layers)]
            for old, new in zip(self._tables, grown, strict=bool(self._tables)):
                new[: self._rows] = old[: self._rows]
            self._tables = grown
