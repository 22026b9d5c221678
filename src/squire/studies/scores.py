"""The ranks of a run's answers by `sum` and by `max`, from one search, noted down block by block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np
import numpy.typing as npt

from squire.core.checkpoint import fingerprint
from squire.evaluation.metrics import Metrics
from squire.evaluation.paths import paths_signature, ranks_of
from squire.evaluation.queries import QuerySet
from squire.graph.adjacency import Ids
from squire.search.constraints import EdgeConstraint
from squire.search.decoding import Aggregate, DecodingOptions, PathRanking, decode, within
from squire.search.trained import TrainedModel, load_settings
from squire.studies.journal import Journal

AGGREGATES: tuple[Aggregate, ...] = get_args(Aggregate)
Ranks = npt.NDArray[np.float64]  # (query)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Score:
    """A run's ranks on some questions, by one aggregation."""

    ranks: Ranks
    metrics: Metrics


def scores_of(folder: Path, query_set: QuerySet, progress: Progress | None = None) -> dict[Aggregate, Score]:
    """What the best model of a run folder makes of these questions. What is noted is not asked again.

    Each model has a file of its own, so that a run that was trained further is asked anew.
    """
    graph, recipe = load_settings(folder)
    decoding = DecodingOptions.from_recipe(recipe, EdgeConstraint.from_adjacency(graph.train))
    ways = {aggregate: replace(decoding, aggregate=aggregate) for aggregate in AGGREGATES}
    signatures = {name: paths_signature(query_set, way, recipe.train.seed) for name, way in ways.items()}
    model = fingerprint(folder)
    about = {str(name): str(signature) for name, signature in signatures.items()}
    file = folder / f"ranks-{query_set.split}-{len(query_set.queries)}-{model}.jsonl"
    journal = Journal(file, {"study": "scores", "model": model, **about})
    done = sum(len(entry[AGGREGATES[0]]) for entry in journal.entries)
    if done < len(query_set.queries):
        steps = TrainedModel.load(folder).decoder
        for block in decode(steps, query_set.queries[done:, :2], decoding):
            queries = query_set.queries[done : done + len(block)]
            journal.append({name: _ranks(block, queries, query_set, way) for name, way in ways.items()})
            done += len(block)
            if progress:
                progress(done, len(query_set.queries))
    found = {}
    for name, signature in signatures.items():
        ranks = np.array([rank for entry in journal.entries for rank in entry[name]], np.float64)
        found[name] = Score(ranks, Metrics.from_ranks(ranks, signature, intervals=True))
    return found


def _ranks(block: PathRanking, queries: Ids, query_set: QuerySet, decoding: DecodingOptions) -> list[float]:
    """By the aggregation of `how`, whichever the block is ranked by."""
    every = np.ones(len(block.trail), bool)
    return ranks_of(within(block, every, queries[:, 1].astype(np.int64), decoding), queries, query_set.filter)
