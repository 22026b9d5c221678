"""Shadow models: one per hidden part of train, trained without it, for the fusion's path features.

A model's scores of facts it was trained on say nothing about other facts. So the features that a fusion is fitted
on come from models trained on the remaining facts, by the run's own recipe but without iterations. Each is a run
folder in RUN/shadows, so an interrupted fit continues with the model it was training.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from squire.core.files import replacing
from squire.core.progress import Progress
from squire.core.run_files import GRAPH, LAST, RECIPE
from squire.graph.adjacency import Adjacency
from squire.graph.graph import Graph
from squire.model.recipe import Recipe
from squire.ranking.features import MakeScorers, Scorer
from squire.ranking.path_features import PathScorer
from squire.search.trained import TrainedModel
from squire.training.preparation import prepare
from squire.training.trainer import Trainer, TrainingState

SHADOWS = "shadows"
DIGITS = 12


def shadow_scorers(run: TrainedModel, progress: Progress) -> MakeScorers:
    """The run's own model for its whole graph, and for any part a model trained on that part alone."""

    def make(adjacency: Adjacency) -> Sequence[Scorer]:
        if adjacency is run.graph.train:
            return [PathScorer(run)]
        part = replace(run.graph, train=adjacency)
        recipe = replace(run.recipe, train=replace(run.recipe.train, iterate=False))
        folder = run.folder / SHADOWS / _name(adjacency)
        _train(part, recipe, folder, progress)
        return [PathScorer(TrainedModel.load(folder, run.device))]

    return make


def _train(graph: Graph, recipe: Recipe, folder: Path, progress: Progress) -> None:
    """Train to the end, resuming if training has begun."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / RECIPE).exists():
        graph.save(folder / GRAPH)
        with replacing(folder / RECIPE) as temporary:
            temporary.write_text(json.dumps(recipe.to_dict(), indent=1), encoding="utf-8")
    trainer = Trainer(graph, recipe, prepare(graph, recipe, folder, progress), folder)
    if any(folder.glob(f"{LAST}*.safetensors")):
        trainer.resume()

    def on_step(now: TrainingState) -> None:
        progress(f"training without part {folder.name}", now.step, now.total_steps)

    if not trainer.fit(on_step, progress=progress):
        raise KeyboardInterrupt


def _name(adjacency: Adjacency) -> str:
    """A name that depends on the edges alone."""
    return hashlib.sha256(np.ascontiguousarray(adjacency.triples).data).hexdigest()[:DIGITS]
