"""Fits edge embeddings to the facts, for the fusion and for the model, which learns paths afterwards.

The loss of a fact is the cross-entropy of its tail, plus a penalty on its three embeddings (Lacroix et al. 2018).
After each pass over the facts, queries of valid are ranked; the fit ends when they no longer get better. A fit
that was stopped goes on after the last pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from squire.core.progress import Progress
from squire.core.run_files import EDGES
from squire.core.tensors import load_checkpoint, save_checkpoint
from squire.evaluation.baselines import rank_by_scores
from squire.evaluation.queries import QuerySet
from squire.graph.adjacency import Adjacency, Ids
from squire.graph.graph import Graph
from squire.model.batches import Batch
from squire.model.edges import INITIAL, EdgeEmbedding, complex_product, cubic_norms
from squire.model.fact_batches import ROW, FactBatches
from squire.model.loss import trie_loss
from squire.model.negative_sampling import NegativeSampler
from squire.model.recipe import Recipe
from squire.model.vocabulary import Vocabulary

QUERIES_AT_ONCE, FEWEST_AT_ONCE, STEPS = 512, 16, 40  # fewer at once if a pass would have fewer steps
LEARNING_RATE = 0.1  # of Adagrad, which suits embeddings that are seen rarely
PATIENCE = 3  # passes without a better one
VALID_QUERIES = 2000  # with fewer, chance ends the fit too early


class EdgeFit:
    """The fit of one run's edge embeddings. `facts` is what they may see of train."""

    def __init__(self, graph: Graph, facts: Adjacency, recipe: Recipe, folder: Path) -> None:
        self.train, self.folder = recipe.train, folder
        train, rank = recipe.train, recipe.model.edge_rank
        self.edges = EdgeEmbedding(graph.num_entities, 2 * graph.num_relations, rank)
        rng = torch.Generator().manual_seed(train.seed)
        for table in self._tables().values():
            table.normal_(0, INITIAL, generator=rng)
        negatives = NegativeSampler.from_adjacency(facts, train.edge_sampled)
        vocab = Vocabulary(graph.num_entities, graph.num_relations)
        queries = len(facts.runs.heads)
        at_once = min(QUERIES_AT_ONCE, max(FEWEST_AT_ONCE, queries // STEPS))
        self.batches = FactBatches(facts, vocab, ROW * at_once, 1, train.seed, negatives)
        classes = min(graph.num_entities, train.edge_sampled or graph.num_entities)
        self.pass_operations = 6 * queries * classes * 2 * rank  # three products of each pair, as in any training
        # Test must not influence when to stop, not even as a filter.
        self.query_set = None
        if len(graph.valid):
            self.query_set = QuerySet.from_graph(
                graph, "valid", filter_splits=("train", "valid"), sample=VALID_QUERIES, seed=train.seed
            )
        self.squares = {name: torch.zeros_like(table) for name, table in self._tables().items()}  # of gradients
        self.best = self._copy()
        self.mrr: list[float] = []  # after each pass

    def _tables(self) -> dict[str, Tensor]:
        return {"entity": self.edges.entity.data, "relation": self.edges.relation.data}

    def _copy(self) -> dict[str, Tensor]:
        return {name: table.clone() for name, table in self._tables().items()}

    def fit(self, progress: Progress, should_stop: Callable[[], bool], passes: int | None = None) -> bool:
        """Fit to the end, and leave the best embeddings in place. Returns False if stopped before.

        passes: at most so many, in all; by default those of the recipe.
        """
        if (self.folder / f"{EDGES}.safetensors").exists() and self._resume():
            return True
        while not self._is_over() and (passes is None or len(self.mrr) < passes):
            number = len(self.mrr)
            total = self.batches.num_batches(number)
            for done, batch in enumerate(self.batches.epoch(number)):
                if should_stop():
                    return False
                self._update(batch)
                progress(f"edge embeddings, pass {number + 1}", done + 1, total)
            self.mrr.append(self._valid_mrr())
            if self.mrr[-1] >= max(self.mrr):
                self.best = self._copy()
            self._save()
        for name, table in self._tables().items():
            table.copy_(self.best[name])
        if self._is_over():
            self._save(finished=True)
        return True

    def _is_over(self) -> bool:
        """Whether there are no more passes, or none of the last ones was the best."""
        if len(self.mrr) >= self.train.edge_passes:
            return True
        return len(self.mrr) > PATIENCE and max(self.mrr) > max(self.mrr[-PATIENCE:])

    def _update(self, batch: Batch) -> None:
        """One step of Adagrad; only the rows that the batch needs are read and written."""
        targets, heads, edge_types = batch.entities, batch.tokens[:, 0], batch.entities.relation
        facts = torch.zeros(len(heads)).index_add_(0, targets.row, targets.weight)  # (query)
        if batch.sampled is None:
            classes, counts = torch.arange(len(self.edges.entity)), None
        else:
            classes, counts = batch.sampled.entities, batch.sampled.counts
            targets = replace(targets, token=torch.searchsorted(classes, targets.token))
        (entities, at), (relations, of) = (
            torch.unique(ids, return_inverse=True) for ids in (torch.cat([classes, heads]), edge_types)
        )
        entity = self.edges.entity[entities].requires_grad_()
        relation = self.edges.relation[relations].requires_grad_()
        at_classes, at_heads = at.split([len(classes), len(heads)])
        with torch.enable_grad():
            states = complex_product(entity[at_heads], relation[of])
            loss = trie_loss(
                states, entity[at_classes], targets, 1.0, counts=counts, num_classes=len(self.edges.entity)
            )
            in_facts = torch.zeros(len(entities)).index_add_(0, at_heads, facts)
            in_facts.index_add_(0, at_classes[targets.token], targets.weight)
            of_relation = torch.zeros(len(relations)).index_add_(0, of, facts)
            penalty = cubic_norms(entity) @ in_facts + cubic_norms(relation) @ of_relation
            gradients = torch.autograd.grad(
                (loss + self.train.edge_penalty * penalty) / facts.sum(), [entity, relation]
            )
        for (name, table), rows, gradient in zip(
            self._tables().items(), (entities, relations), gradients, strict=True
        ):
            squares = self.squares[name][rows] + gradient**2
            self.squares[name][rows] = squares
            table[rows] -= LEARNING_RATE * gradient / (squares.sqrt() + 1e-10)

    def _valid_mrr(self) -> float:
        """The MRR of queries of valid by these embeddings alone; 0 if there are none."""
        if self.query_set is None:
            return 0.0

        def scores(queries: Ids) -> npt.NDArray[np.float32]:
            ids = torch.from_numpy(queries.astype(np.int64))
            return self.edges.logits(ids[:, 0], ids[:, 1]).numpy()

        return rank_by_scores(self.query_set, scores, "edges").metrics(intervals=False).mrr

    def _save(self, finished: bool = False) -> None:
        parts = {"best.": self.best} if finished else self._state()
        arrays = {f"{part}{name}": table.numpy() for part, own in parts.items() for name, table in own.items()}
        save_checkpoint(self.folder, EDGES, arrays, {"mrr": self.mrr, "finished": finished})

    def _resume(self) -> bool:
        """Go on from what is saved. Returns whether that is finished."""
        checkpoint = load_checkpoint(self.folder, EDGES, fallback=True)
        self.mrr = [float(value) for value in checkpoint.state["mrr"]]
        finished = bool(checkpoint.state.get("finished"))
        for part, own in ({"best.": self._tables()} if finished else self._state()).items():
            for name, table in own.items():
                table.copy_(torch.from_numpy(checkpoint.arrays[f"{part}{name}"]))
        return finished

    def _state(self) -> dict[str, dict[str, Tensor]]:
        """All that a fit goes on from."""
        return {"": self._tables(), "squares.": self.squares, "best.": self.best}
