"""Models that have not seen the hidden facts: a shadow of a run for each part of train that a fusion hides.

A model's opinion of facts that it was trained on says nothing of what it is worth on others. So the columns that a
fusion learns from come from models trained on what remains, by the run's own recipe but without iterations. Each
is a run folder in RUN/shadows, so whoever is interrupted goes on with the one that was begun.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from squire.core.files import replacing
from squire.core.run_files import GRAPH, LAST, RECIPE
from squire.graph.adjacency import Adjacency
from squire.graph.graph import Graph
from squire.model.recipe import Recipe
from squire.ranking.features import MakeScorers, Scorer
from squire.ranking.path_features import PathScorer
from squire.search.trained import TrainedModel
from squire.training.preparation import Stage, prepare
from squire.training.trainer import Moment, Trainer

SHADOWS = "shadows"
DIGITS = 12


def shadow_scorers(run: TrainedModel, stage: Stage) -> MakeScorers:
    """The run's model for its own graph, and for any part of it a model trained on that part alone."""

    def make(adjacency: Adjacency) -> Sequence[Scorer]:
        if adjacency is run.graph.train:
            return [PathScorer(run)]
        part = replace(run.graph, train=adjacency)
        recipe = replace(run.recipe, train=replace(run.recipe.train, iterate=False))
        folder = run.folder / SHADOWS / _name(adjacency)
        _train(part, recipe, folder, stage)
        return [PathScorer(TrainedModel.load(folder, run.device))]

    return make


def _train(graph: Graph, recipe: Recipe, folder: Path, stage: Stage) -> None:
    """To its end; from where it was, if it was begun."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / RECIPE).exists():
        graph.save(folder / GRAPH)
        with replacing(folder / RECIPE) as temporary:
            temporary.write_text(json.dumps(recipe.to_dict(), indent=1), encoding="utf-8")
    trainer = Trainer(graph, recipe, prepare(graph, recipe, folder, stage), folder)
    if any(folder.glob(f"{LAST}*.safetensors")):
        trainer.resume()

    def watch(now: Moment) -> None:
        stage(f"training without part {folder.name}", now.step, now.total_steps)

    if not trainer.fit(watch, stage=stage):
        raise KeyboardInterrupt


def _name(adjacency: Adjacency) -> str:
    """The same for the same edges."""
    return hashlib.sha256(np.ascontiguousarray(adjacency.triples).data).hexdigest()[:DIGITS]
