"""Fits edge embeddings to the facts, for the fusion and for the model, which learns paths afterwards.

The loss of a fact is the cross-entropy of its tail, plus a penalty on its three embeddings (Lacroix et al. 2018).
After each pass over the facts, queries of valid are ranked; the fit ends when they no longer get better. A fit
that was stopped goes on after the last pass.

Entities whose names share words share a part of their embeddings (`model.edge_names`):

    e = own + Σ_w weight(w) · word(w)

An entity with a single fact then knows from its name what kind of thing it is. Only the sums are kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from squire.core.progress import Progress
from squire.core.ragged import ranges
from squire.core.run_files import EDGES
from squire.core.tensors import SUFFIX, load_checkpoint, save_checkpoint
from squire.evaluation.baselines import rank_by_scores
from squire.evaluation.queries import QuerySet
from squire.graph.adjacency import Adjacency, Ids
from squire.graph.graph import Graph
from squire.model.batches import Batch
from squire.model.edges import INITIAL, EdgeEmbedding, complex_product, cubic_norms
from squire.model.fact_batches import ROW, FactBatches
from squire.model.loss import trie_loss
from squire.model.negative_sampling import NegativeSampler
from squire.model.recipe import Recipe, save_recipe
from squire.model.vocabulary import Vocabulary
from squire.ranking._features import Profile
from squire.ranking.fusion import words_of

# Fewer at once if a pass would have fewer steps. With 512 they were worse after as many passes (docs/LOG.md).
QUERIES_AT_ONCE, FEWEST_AT_ONCE, STEPS = 128, 16, 40
LEARNING_RATE = 0.1  # of Adagrad, which suits embeddings that are seen rarely
PATIENCE = 3  # passes without a better one
TRIAL_PASSES = 3  # with each penalty that is tried
VALID_QUERIES = 2000  # with fewer, chance ends the fit too early


def pass_operations(facts: Adjacency, recipe: Recipe) -> int:
    """What a pass over the facts costs: three products of each query and competing entity, as in any training."""
    classes = min(facts.num_entities, recipe.train.edge_sampled or facts.num_entities)
    return 6 * len(facts.runs.heads) * classes * 2 * recipe.model.edge_rank


def with_best_penalty(
    graph: Graph,
    facts: Adjacency,
    recipe: Recipe,
    folder: Path,
    progress: Progress,
    should_stop: Callable[[], bool],
) -> Recipe | None:
    """The recipe with the penalty that suits the graph, if it asks for a search; None if stopped before.

    The penalty is doubled as long as valid is ranked better after a few passes. Each has a folder of its own, so
    that a search that was stopped goes on. The passes with the best one are kept: `EdgeFit` goes on from there.
    """
    if not recipe.train.edge_search or not len(graph.valid) or any(folder.glob(f"{EDGES}*{SUFFIX}")):
        return recipe
    best: tuple[float, Recipe, Path] | None = None
    while True:
        trial = folder / f"{EDGES}-{recipe.train.edge_penalty:g}"
        trial.mkdir(exist_ok=True)
        fit = EdgeFit(graph, facts, recipe, trial)
        if not fit.fit(progress, should_stop, TRIAL_PASSES):
            return None
        if best and max(fit.mrr) <= best[0]:
            break
        best = max(fit.mrr), recipe, trial
        recipe = replace(recipe, train=replace(recipe.train, edge_penalty=2 * recipe.train.edge_penalty))
    _, recipe, trial = best
    save_recipe(folder, recipe)
    (trial / f"{EDGES}{SUFFIX}").rename(folder / f"{EDGES}{SUFFIX}")
    for trial in folder.glob(f"{EDGES}-*"):
        shutil.rmtree(trial)
    return recipe


class EdgeFit:
    """The fit of one run's edge embeddings. `facts` is what they may see of train."""

    def __init__(self, graph: Graph, facts: Adjacency, recipe: Recipe, folder: Path) -> None:
        self.train, self.folder = recipe.train, folder
        train, rank = recipe.train, recipe.model.edge_rank
        words = words_of(graph, recipe.model.edge_names)
        self.words = words if len(words.item) else None
        self.edges = EdgeEmbedding(graph.num_entities, 2 * graph.num_relations, rank)
        rng = torch.Generator().manual_seed(train.seed)
        self.tables = {
            name: torch.empty_like(table).normal_(0, INITIAL, generator=rng)
            for name, table in (("entity", self.edges.entity.data), ("relation", self.edges.relation.data))
        }
        if self.words:
            self.tables["word"] = torch.zeros(self.words.size, 2 * rank)
        negatives = NegativeSampler.from_adjacency(facts, train.edge_sampled)
        vocab = Vocabulary(graph.num_entities, graph.num_relations)
        queries = len(facts.runs.heads)
        at_once = min(QUERIES_AT_ONCE, max(FEWEST_AT_ONCE, queries // STEPS))
        self.batches = FactBatches(facts, vocab, ROW * at_once, 1, train.seed, negatives)
        # Test must not influence when to stop, not even as a filter.
        self.query_set = None
        if len(graph.valid):
            self.query_set = QuerySet.from_graph(
                graph, "valid", filter_splits=("train", "valid"), sample=VALID_QUERIES, seed=train.seed
            )
        self.squares = {name: torch.zeros_like(table) for name, table in self.tables.items()}  # of gradients
        self.best = self._joined()
        self.mrr: list[float] = []  # after each pass

    def _joined(self) -> dict[str, Tensor]:
        """The embeddings as they are used: those of entities with the words of their names."""
        entity = self.tables["entity"].clone()
        if self.words:
            word, offsets, weight = _items(self.words, np.arange(len(entity)))
            entity += _sums(word, offsets, weight, self.tables["word"])
        return {"entity": entity, "relation": self.tables["relation"].clone()}

    def _use(self, tables: dict[str, Tensor]) -> None:
        self.edges.entity.data.copy_(tables["entity"])
        self.edges.relation.data.copy_(tables["relation"])

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
            self._use(now := self._joined())
            self.mrr.append(self._valid_mrr())
            if self.mrr[-1] >= max(self.mrr):
                self.best = now
            self._save()
        self._use(self.best)
        if self._is_over():
            self._save(finished=True)
        return True

    def _is_over(self) -> bool:
        """Whether there are no more passes, or none of the last ones was the best."""
        if len(self.mrr) >= self.train.edge_passes:
            return True
        return len(self.mrr) > PATIENCE and max(self.mrr) > max(self.mrr[-PATIENCE:])

    def _update(self, batch: Batch) -> None:
        """One step of Adagrad; only the rows that the batch needs are read and written.

        Products in 16 bits would be a fifth faster, but made NELL23K's valid MRR .289 instead of .296.
        """
        targets, heads = batch.entities, batch.tokens[:, 0].contiguous()
        facts = torch.zeros(len(heads)).index_add_(0, targets.row, targets.weight)  # (query)
        counts, classes = None, torch.arange(len(self.edges.entity))
        if batch.sampled is not None:
            classes, counts = batch.sampled.entities, batch.sampled.counts
            targets = replace(targets, token=torch.searchsorted(classes, targets.token))
        entities, at_heads = _with_heads(classes, heads)
        relations, of = torch.unique(targets.relation, return_inverse=True)
        rows = {"entity": entities, "relation": relations}
        if self.words:
            word, offsets, weight = _items(self.words, entities.numpy())
            rows["word"], word = torch.unique(word, return_inverse=True)
        own = {name: self.tables[name][which].requires_grad_() for name, which in rows.items()}
        in_facts, at = torch.unique(torch.cat([at_heads, targets.token]), return_inverse=True)
        of_entity = torch.zeros(len(in_facts)).index_add_(0, at, torch.cat([facts, targets.weight]))
        of_relation = torch.zeros(len(relations)).index_add_(0, of, facts)
        with torch.enable_grad():
            entity, relation = own["entity"], own["relation"]
            if self.words:
                entity = entity + _sums(word, offsets, weight, own["word"])
            near = entity[in_facts]
            states = complex_product(near[at[: len(heads)]], relation[of])
            competing = entity[: len(classes)] if len(classes) < len(entity) else entity
            num_classes = len(self.edges.entity)
            loss = trie_loss(states, competing, targets, 1.0, counts=counts, num_classes=num_classes)
            penalty = cubic_norms(near) @ of_entity + cubic_norms(relation) @ of_relation
            gradients = torch.autograd.grad(
                (loss + self.train.edge_penalty * penalty) / facts.sum(), list(own.values())
            )
        for (name, which), gradient in zip(rows.items(), gradients, strict=True):
            squares = self.squares[name][which].addcmul_(gradient, gradient)
            self.squares[name][which] = squares
            change = gradient.mul_(LEARNING_RATE).div_(squares.sqrt_().add_(1e-10))
            self.tables[name].index_add_(0, which, change, alpha=-1)

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
        for part, own in ({"best.": self.best} if finished else self._state()).items():
            for name, table in own.items():
                table.copy_(torch.from_numpy(checkpoint.arrays[f"{part}{name}"]))
        self._use(self.best)
        return finished

    def _state(self) -> dict[str, dict[str, Tensor]]:
        """All that a fit goes on from."""
        return {"": self.tables, "squares.": self.squares, "best.": self.best}


def _with_heads(classes: Tensor, heads: Tensor) -> tuple[Tensor, Tensor]:
    """The sorted classes, then the heads that are not among them, and where each head is.  (entity), (query)"""
    at = torch.searchsorted(classes, heads)
    missing = classes[at.clamp(max=len(classes) - 1)] != heads
    others, of = torch.unique(heads[missing], return_inverse=True)
    at[missing] = len(classes) + of
    return torch.cat([classes, others]), at


def _items(words: Profile, entities: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor, Tensor]:
    """The words of these entities, where those of each begin, and their weights.  (item), (entity), (item)"""
    sizes = words.offsets[entities + 1] - words.offsets[entities]
    at = ranges(words.offsets[entities], sizes)
    return (
        torch.from_numpy(words.item[at]),
        torch.from_numpy(np.cumsum(sizes) - sizes),
        torch.from_numpy(words.weight[at].astype(np.float32)),
    )


def _sums(word: Tensor, offsets: Tensor, weight: Tensor, table: Tensor) -> Tensor:
    """The weighted sum of the words of each entity.  -> (entity, 2 · rank)"""
    return F.embedding_bag(word, table, offsets, mode="sum", per_sample_weights=weight)
