"""Embedding models through PyKEEN: trained within a time limit, stopped early by our evaluator on valid.

The settings are those of the papers where they gave some, with dimensions that train within minutes on a CPU.
PyKEEN is imported when a model is trained; it is in the extra `compare`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from squire.core.relations import is_inverse
from squire.errors import SettingError
from squire.evaluation.baselines import rank_by_scores
from squire.evaluation.queries import QuerySet
from squire.evaluation.ranks import Ranks
from squire.graph.adjacency import Ids
from squire.graph.graph import Graph
from squire.studies.compared_methods import Learned, Task
from squire.studies.early_stopping import BestWeights

EPOCHS = 10_000  # more than any time limit allows
SMALL, MANY_ENTITIES = 50_000, 50_000  # facts of a small graph; entities from which dimensions are smaller
MOST_ELEMENTS = 100_000_000  # of one batch: 400 MB, several times while training
STEPS_PER_EPOCH, BATCH_SIZES = 200, (128, 512)  # batches are such that an epoch has so many steps, within limits


@dataclass(frozen=True)
class Settings:
    """How a model is trained."""

    model: Mapping[str, Any]
    loss: str
    loss_kwargs: Mapping[str, Any] = field(default_factory=dict)
    negatives: int | None = None  # per fact; None scores all entities (1-N)
    optimizer: str = "Adam"
    learning_rate: float = 3e-3
    is_elementwise: bool = False  # multiplies a query with all entities element by element, which takes memory


def settings_for(name: str, graph: Graph) -> Settings:
    """The settings of a model. Small graphs have small dimensions and high rates, so that minutes are enough."""
    is_small = len(graph.train.triples) < SMALL
    dim = 100 if is_small or graph.num_entities > MANY_ENTITIES else 200
    sampled: dict[str, Any] = {
        "loss": "nssa", "loss_kwargs": {"margin": 6.0 if is_small else 9.0, "adversarial_temperature": 1.0},
        "learning_rate": 1e-2 if is_small else 2e-3,
    }  # fmt: skip
    near_zero = partial(torch.nn.init.normal_, std=1e-3)  # Adagrad at a high learning rate needs it
    start = {"entity_initializer": near_zero, "relation_initializer": near_zero}
    # The N3 penalty (Lacroix et al. 2018) on the heads and relations of a batch; tails are heads of inverses.
    # World, valid, a minute each: .483 without, .562 with a weight of .03, .572 with .1, .544 with .3.
    cubic = {"regularizer": "powersum", "regularizer_kwargs": {"p": 3.0, "weight": 0.1, "apply_only_once": True}}
    complex_model = {"embedding_dim": 200, **cubic, **start}
    found = {
        "TransE": Settings({"embedding_dim": dim, "entity_constrainer": None}, negatives=32, **sampled),
        "RotatE": Settings({"embedding_dim": 64 if is_small else 100}, negatives=16, **sampled),
        "ComplEx": Settings(complex_model, "crossentropy", optimizer="Adagrad", learning_rate=0.1),
        "ConvE": Settings(
            {"embedding_dim": 128 if is_small else 200, "output_channels": 16 if is_small else 32},
            "crossentropy", is_elementwise=True,
        ),
        "TuckER": Settings(
            {"embedding_dim": 64 if is_small else dim, "relation_dim": 32 if is_small else 64},
            "crossentropy", is_elementwise=True,
        ),
    }  # fmt: skip
    return found[name]


def batch_size_for(own: Settings, graph: Graph) -> int:
    """An epoch has some 200 steps; tiny graphs have two batches at least, and memory is limited."""
    size = int(np.clip(2 * len(graph.train.triples) // STEPS_PER_EPOCH, *BATCH_SIZES))
    if own.is_elementwise:
        size = min(size, max(MOST_ELEMENTS // (graph.num_entities * own.model["embedding_dim"]), 8))
    return min(size, max(len(graph.train.starts[0]) // 2, 1))


class Embedding:
    """A trained model of PyKEEN's, as a score of every entity for a query."""

    def __init__(self, model: Any, num_relations: int) -> None:
        self.model, self.num_relations = model, num_relations

    def scores(self, queries: Ids) -> npt.NDArray[np.float32]:
        """(query, 2) -> (query, entity); a query for heads is one of the inverse relation."""
        found = np.empty((len(queries), self.model.num_entities), np.float32)
        backward = is_inverse(queries[:, 1], self.num_relations)
        relation = queries[:, 1] - self.num_relations * backward
        with torch.inference_mode():
            for rows, predict, columns in (
                (~backward, self.model.predict_t, (queries[:, 0], relation)),
                (backward, self.model.predict_h, (relation, queries[:, 0])),
            ):
                if rows.any():
                    asked = np.stack(columns, axis=1)[rows].astype(np.int64)
                    found[rows] = predict(torch.from_numpy(asked)).numpy()
        return found

    def rank(self, query_set: QuerySet, name: str, seed: int) -> Ranks:
        return rank_by_scores(query_set, self.scores, f"pykeen:{name}", seed=str(seed))


class _TimeIsUp(Exception):
    """The time limit of training is reached."""


def train_embedding(name: str, task: Task) -> tuple[Embedding, str]:
    """Train a model in the time that the task has left. Returns it, and a note on how that went."""
    try:
        from pykeen.models import model_resolver
        from pykeen.training import LCWATrainingLoop, SLCWATrainingLoop, TrainingCallback
        from pykeen.triples import CoreTriplesFactory
    except ImportError as error:
        raise SettingError(
            f"{name}: PyKEEN is not installed ({error}). Install it: pip install 'squire-kg[compare]'."
        ) from error
    graph, own = task.graph, settings_for(name, task.graph)
    triples = torch.from_numpy(graph.train.triples.astype(np.int64))
    # Every query for heads is one for tails of the inverse relation, as with us.
    facts = CoreTriplesFactory(triples, graph.num_entities, graph.num_relations, create_inverse_triples=True)
    arguments = {"triples_factory": facts, "random_seed": task.seed, "loss": own.loss, **own.model}
    model = model_resolver.make(name, loss_kwargs=dict(own.loss_kwargs), **arguments)
    embedding = Embedding(model, graph.num_relations)
    best = BestWeights(task, model, lambda query_set: embedding.rank(query_set, name, task.seed))

    class Limit(TrainingCallback):
        def post_batch(self, *_: Any, **__: Any) -> None:
            if best.is_out_of_time:
                raise _TimeIsUp

        def post_epoch(self, epoch: int, epoch_loss: float, **_: Any) -> None:
            best.epochs = epoch
            best.validate()
            if best.is_stale or best.is_out_of_time:
                raise _TimeIsUp

    optimizer = getattr(torch.optim, own.optimizer)(model.get_grad_params(), lr=own.learning_rate)
    loop: Any
    common: dict[str, Any] = {"model": model, "triples_factory": facts, "optimizer": optimizer}
    if own.negatives is None:
        loop = LCWATrainingLoop(**common)
    else:
        loop = SLCWATrainingLoop(**common, negative_sampler_kwargs={"num_negs_per_pos": own.negatives})
    with suppress(_TimeIsUp):
        loop.train(
            facts, num_epochs=EPOCHS, batch_size=batch_size_for(own, graph), pin_memory=False, use_tqdm=False,
            use_tqdm_batch=False, callbacks=Limit,
        )  # fmt: skip
    return embedding, f"PyKEEN {version('pykeen')}, {_described(own)}; {best.finish()}"


def _described(own: Settings) -> str:
    against = "all entities" if own.negatives is None else f"{own.negatives} sampled"
    penalty = ", N3 penalty" if "regularizer_kwargs" in own.model else ""
    return (
        f"dim {own.model['embedding_dim']}, {own.loss} against {against}, "
        f"{own.optimizer} {own.learning_rate:g}{penalty}"
    )


def learn_embedding(name: str, task: Task) -> Learned:
    """A row of the comparison."""
    embedding, note = train_embedding(name, task)
    return Learned(lambda query_set: embedding.rank(query_set, name, task.seed), note)
