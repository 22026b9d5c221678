"""A run folder, read: graph, recipe, rules and the best model. `squire train` writes it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from squire.core.files import replacing
from squire.core.run_files import BEST, GRAPH, LAST, RECIPE, RULES
from squire.core.tensors import load_checkpoint
from squire.errors import CheckpointError, SettingError
from squire.graph.graph import Graph
from squire.model.decoder import TransformerDecoder
from squire.model.prior import Prior
from squire.model.recipe import Recipe
from squire.model.transformer import Transformer
from squire.model.vocabulary import Vocabulary
from squire.rules.anyburl import read_rules
from squire.rules.rules import Rules
from squire.search.constraints import EdgeConstraint


@dataclass(frozen=True)
class TrainedModel:
    """What a trained run is."""

    folder: Path
    graph: Graph
    recipe: Recipe
    rules: Rules  # that its paths followed; empty if none were mined
    model: Transformer  # in evaluation mode
    step: int  # of training, at which the model was saved

    @classmethod
    def load(cls, folder: Path, device: torch.device | str = "cpu", weights: str = BEST) -> TrainedModel:
        """With the weights of the best epoch, or the last ones."""
        graph, recipe = load_settings(folder)
        rules = Rules.empty(graph.num_relations)
        if (folder / RULES).exists():
            rules = read_rules(folder / RULES, graph.labels).rules
        model = new_model(graph, recipe)
        # Without valid facts there is no best, only a last.
        name = weights if any(folder.glob(f"{weights}*.safetensors")) else LAST
        if not any(folder.glob(f"{name}*.safetensors")):
            raise SettingError(
                f"{folder}: no model yet. To do: train with 'squire train … --out {folder} --resume'."
            )
        checkpoint = load_checkpoint(folder, name)
        weights_by_name = {name: torch.from_numpy(array) for name, array in checkpoint.part("model.").items()}
        try:
            model.load_state_dict(weights_by_name)
        except RuntimeError:  # names or shapes that torch lists one by one
            raise CheckpointError(
                f"{checkpoint.file}: not the weights of the model that {folder / RECIPE} describes. To do: put "
                f"back the recipe and the graph that the run began with."
            ) from None
        return cls(folder, graph, recipe, rules, model.to(device).eval(), int(checkpoint.state["step"]))

    @property
    def device(self) -> torch.device:
        return self.model.embedding.weight.device

    @cached_property
    def known_edges(self) -> EdgeConstraint:
        """The edges of train, for searches."""
        return EdgeConstraint.from_adjacency(self.graph.train, self.device, name="graph")

    @property
    def decoder(self) -> TransformerDecoder:
        """The model as a search sees it; what the search remembers goes with it."""
        return TransformerDecoder(self.model)


def save_settings(folder: Path, graph: Graph, recipe: Recipe) -> None:
    """What a run begins with: all that it needs is in its folder from then on."""
    graph.save(folder / GRAPH)
    with replacing(folder / RECIPE) as temporary:
        temporary.write_text(json.dumps(recipe.to_dict(), indent=1), encoding="utf-8")


def has_model(folder: Path) -> bool:
    """Was it trained, or is there only a fusion?"""
    return any(any(folder.glob(f"{name}*.safetensors")) for name in (BEST, LAST))


def load_settings(folder: Path) -> tuple[Graph, Recipe]:
    """The graph and the recipe that a run was begun with."""
    if not (folder / GRAPH).exists() or not (folder / RECIPE).exists():
        raise SettingError(f"{folder}: no run here. To do: make one with 'squire train GRAPH --out {folder}'.")
    try:
        recipe = json.loads((folder / RECIPE).read_text(encoding="utf-8"))
    except ValueError as error:  # also what is no UTF-8
        raise SettingError(
            f"{folder / RECIPE}: not JSON ({error}). To do: restore it from a copy, or train anew."
        ) from None
    return Graph.load(folder / GRAPH), Recipe.from_dict(recipe, str(folder / RECIPE))


def new_model(graph: Graph, recipe: Recipe) -> Transformer:
    """A model of the recipe's form, not trained."""
    vocab = Vocabulary(graph.num_entities, graph.num_relations)
    return Transformer(vocab, recipe.model, Prior.from_adjacency(graph.train) if recipe.model.prior else None)
