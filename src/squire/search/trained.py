"""A run, loaded from its folder: graph, recipe and rules, and the best model if it has one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from squire.core.run_files import BEST, FINGERPRINT_DIGITS, LAST, RECIPE
from squire.core.tensors import load_checkpoint
from squire.errors import CheckpointError, SettingError
from squire.graph.adjacency import Adjacency
from squire.graph.folds import held_back, pairs_look_unlinked
from squire.graph.graph import Graph
from squire.model.decoder import TransformerDecoder
from squire.model.fold_in import fold_in
from squire.model.prior import Prior
from squire.model.recipe import Recipe, load_settings
from squire.model.transformer import Transformer
from squire.model.vocabulary import Vocabulary
from squire.paths._lookups import PathIndex
from squire.rules.anyburl import read_run_rules
from squire.rules.rules import Rules
from squire.search.options import DecodingOptions, SearchEdges


@dataclass(frozen=True)
class LoadedRun:
    """The graph, recipe and rules of a run, without a model."""

    folder: Path
    graph: Graph
    recipe: Recipe
    rules: Rules  # rules that paths follow; empty if none were mined
    facts: Adjacency  # the edges that answers rest on: of all splits, or of train if the others are hidden
    # If facts have changed since the training: the graph of that time, and the facts from which rules were mined
    # afterwards, if they were.
    base: Graph | None = field(default=None, kw_only=True)
    refreshed: Adjacency | None = field(default=None, kw_only=True)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @cached_property
    def added(self) -> Adjacency | None:
        """The facts that were added after training; None if nothing has changed."""
        if self.base is None:
            return None
        return self.facts.without(self.base.facts.grown(self.graph.num_entities))

    @cached_property
    def forgotten(self) -> Adjacency:
        """The facts that the model was trained on and that are no longer known."""
        learned = self.base.train.grown(self.graph.num_entities) if self.base else self.graph.train
        return learned.without(self.facts)

    @cached_property
    def unsupported(self) -> Adjacency:
        """The facts that rules were mined from and that are no longer known."""
        return self.refreshed.without(self.facts) if self.refreshed else self.forgotten

    def on(self, graph: Graph, refreshed: Adjacency | None = None) -> Self:
        """The same run with a graph that has changed after training: its first entities are the same."""
        return replace(self, graph=graph, facts=graph.facts, base=self.base or self.graph, refreshed=refreshed)

    @cached_property
    def known_edges(self) -> SearchEdges:
        """The facts, to guide or constrain a search."""
        return SearchEdges(self.facts, self.device, name="graph")

    @cached_property
    def unlinked(self) -> bool:
        """Whether linked pairs are no answers, because no pair of valid has an edge in train by construction."""
        return pairs_look_unlinked(self.base or self.graph)

    def decoding(self, **changes: Any) -> DecodingOptions:
        """The recipe's search settings for this run, with these changes."""
        own: dict[str, Any] = {"patterns": self.rules.patterns, "unlinked": self.unlinked}
        return DecodingOptions.from_recipe(self.recipe, self.known_edges, **own | changes)

    @cached_property
    def path_index(self) -> PathIndex:
        """The facts, to sample paths."""
        return PathIndex.from_adjacency(self.facts)


@dataclass(frozen=True)
class TrainedModel(LoadedRun):
    """The graph, recipe, rules and model of a trained run."""

    model: Transformer  # in evaluation mode
    step: int  # training step at which the model was saved
    fingerprint: str  # the first digits of the checksum of its checkpoint

    @classmethod
    def load(
        cls, folder: Path, device: torch.device | str = "cpu", weights: str = BEST, *, hide_held_out: bool = True
    ) -> TrainedModel:
        """Load a run with the weights of its best epoch, or with the last ones (`weights="last"`).

        hide_held_out: valid and test are no facts, as training and evaluation need it.
        """
        graph, recipe = load_settings(folder)
        rules = read_run_rules(folder, graph.labels) or Rules.empty(graph.num_relations)
        model = new_model(graph, recipe)
        # Without valid facts there is no best model, only a last one.
        name = weights if any(folder.glob(f"{weights}*.safetensors")) else LAST
        if not any(folder.glob(f"{name}*.safetensors")):
            raise SettingError(f"{folder}: has no model yet. Run `squire train … --out {folder} --resume` first.")
        checkpoint = load_checkpoint(folder, name)
        state = {name: torch.from_numpy(array) for name, array in checkpoint.part("model.").items()}
        try:
            model.load_state_dict(state)
        except RuntimeError:  # wrong names or shapes
            raise CheckpointError(
                f"{checkpoint.file}: these are not the weights of the model that {folder / RECIPE} describes. "
                "Restore the recipe and the graph that the run was started with."
            ) from None
        facts = graph.train if hide_held_out else graph.facts
        step, own = int(checkpoint.state["step"]), checkpoint.checksum[:FINGERPRINT_DIGITS]
        return cls(folder, graph, recipe, rules, facts, model.to(device).eval(), step, own)

    @property
    def device(self) -> torch.device:
        return self.model.embedding.weight.device

    def on(self, graph: Graph, refreshed: Adjacency | None = None) -> Self:
        """As for any run. The model takes a new entity for the mean of those that it is linked to."""
        run = super().on(graph, refreshed)
        assert run.base is not None
        known = run.base.num_entities
        edges, penalty = self.model.edges, self.recipe.train.edge_penalty
        edges = None if edges is None else fold_in(edges, known, run.facts, penalty)
        return replace(run, model=self.model.grown(known, _known_neighbours(graph, known), edges))

    @property
    def decoder(self) -> TransformerDecoder:
        """A new decoder of the model, with an empty cache."""
        return TransformerDecoder(self.model)


def _known_neighbours(graph: Graph, num_known: int) -> list[Tensor]:
    """For each entity after the first `num_known`, those of the first that it is linked to."""
    found = (graph.facts.edges(entity)[1] for entity in range(num_known, graph.num_entities))
    return [torch.from_numpy(near[near < num_known].astype(np.int64)) for near in found]


def new_model(graph: Graph, recipe: Recipe) -> Transformer:
    """An untrained model of the size that the recipe sets."""
    vocab = Vocabulary(graph.num_entities, graph.num_relations)
    prior = Prior.from_adjacency(seen_graph(graph, recipe).train) if recipe.model.prior else None
    return Transformer(vocab, recipe.model, prior)


def seen_graph(graph: Graph, recipe: Recipe) -> Graph:
    """The graph that the model is trained on: all of train, or all but what is held back for the fusion."""
    return replace(graph, train=held_back(graph, recipe.train.seed)[0]) if recipe.train.hold_back else graph
