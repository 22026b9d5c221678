"""The methods of a comparison. Each learns from a graph within a time limit, then ranks the same queries.

Ours are here; those of other libraries, and the walkers, are in modules that are imported when they are used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from squire.core.progress import no_progress
from squire.evaluation.baselines import rank_by_frequency, rank_by_rules
from squire.evaluation.queries import QuerySet
from squire.evaluation.ranks import Ranks
from squire.graph.graph import Graph
from squire.model.recipe import Recipe, load_recipe, recipe_for
from squire.rules.application import RuleEngine
from squire.rules.mining import MiningOptions, mine_rules


@dataclass(frozen=True)
class Task:
    """What a method learns from, and how long it may take."""

    graph: Graph
    folder: Path  # for what the method keeps while it learns
    minutes: float
    seed: int
    began: float = field(default_factory=time.monotonic)

    @property
    def minutes_left(self) -> float:
        return max(self.minutes - (time.monotonic() - self.began) / 60, 0.0)


@dataclass(frozen=True)
class Learned:
    """A method that has learned: how it ranks queries, and what is worth knowing about how it learned."""

    rank: Callable[[QuerySet], Ranks]
    note: str = ""


@dataclass(frozen=True)
class Method:
    """A row of the comparison."""

    name: str
    kind: str  # "ours", "embedding", "rules" or "walker"
    learn: Callable[[Task], Learned]


# ---------------------------------------------------------------------------------------------------- ours


def _frequency(task: Task) -> Learned:
    return Learned(lambda query_set: rank_by_frequency(task.graph, query_set))


def _rules(task: Task) -> Learned:
    mined = mine_rules(task.graph.train, MiningOptions(minutes=task.minutes, seed=task.seed))
    engine = RuleEngine(mined.rules, task.graph.train)
    note = f"{len(mined.rules):,} rules" + ("" if mined.complete else ", not all that there are")
    return Learned(lambda query_set: rank_by_rules(task.graph, query_set, engine), note)


def _paths(task: Task) -> Learned:
    from squire.evaluation.paths import rank_by_paths
    from squire.search.trained import TrainedModel

    note = _train_model(task)
    run = TrainedModel.load(task.folder)
    decoding = run.decoding()
    return Learned(lambda query_set: rank_by_paths(run.decoder, run.graph, query_set, decoding, task.seed), note)


def _recipe(task: Task, *settings: str) -> Recipe:
    """The recipe that the graph's size calls for."""
    return load_recipe(recipe_for(task.graph.stats()), [f"train.seed={task.seed}", *settings])


def _train_model(task: Task) -> str:
    """Train the model in the task's folder; says how far it came."""
    from squire.training.pipeline import new_run
    from squire.training.preparation import prepare
    from squire.training.trainer import Trainer

    recipe, minutes = _recipe(task, "train.hold_back=false"), task.minutes_left
    began = time.monotonic()
    with new_run(task.folder, task.graph, recipe):
        tries = prepare(task.graph, recipe, task.folder, no_progress)
        trainer = Trainer(task.graph, recipe, tries, task.folder)
        finished = trainer.fit(lambda now: None, max(minutes - (time.monotonic() - began) / 60, 0.0))
    if trainer.interrupted:
        raise KeyboardInterrupt
    share = "" if finished else f", stopped at step {trainer.step:,} of {trainer.total_steps:,}"
    return f"recipe {recipe.name}{share}"


def _fused(task: Task) -> Learned:
    from squire.evaluation.fused import rank_by_fusion
    from squire.ranking.fusion import FusionOptions
    from squire.training.pipeline import fuse_run, new_run

    with new_run(task.folder, task.graph, _recipe(task)):
        fusion = fuse_run(task.folder, FusionOptions(task.seed, minutes=task.minutes))
    note = _asked(fusion.info) + (", and edge embeddings" if fusion.pool else "")
    return Learned(lambda query_set: rank_by_fusion(fusion, task.graph, query_set).ranking, note)


def _asked(info: Any) -> str:
    return f"learned from {info.queries:,} questions about hidden train facts"


# ------------------------------------------------------------------------------------------------- others


def _embedding(name: str) -> Method:
    def learn(task: Task) -> Learned:
        from squire.studies.embeddings import learn_embedding

        return learn_embedding(name, task)

    return Method(name, "embedding", learn)


def _walker(name: str) -> Method:
    def learn(task: Task) -> Learned:
        from squire.studies.walker import learn_walker

        return learn_walker(name, task)

    return Method(name, "walker", learn)


def _pyclause(task: Task) -> Learned:
    from squire.studies.pyclause import learn_rules

    return learn_rules(task)


METHODS = {
    method.name: method
    for method in (
        Method("frequency", "ours", _frequency),
        Method("rules", "ours", _rules),
        Method("paths", "ours", _paths),
        Method("fused", "ours", _fused),
        *map(_embedding, ("TransE", "RotatE", "ComplEx", "ConvE", "TuckER")),
        Method("PyClause", "rules", _pyclause),
        *map(_walker, ("MINERVA", "MultiHopKG", "RuleGuider", "DacKGR")),
    )
}
