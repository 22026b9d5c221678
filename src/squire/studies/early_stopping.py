"""The weights that rank valid best, within a time limit: for everything that a comparison trains by gradient."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from squire.evaluation.queries import QuerySet
from squire.evaluation.ranks import Ranks
from squire.studies.compared_methods import Task

VALID_QUERIES = 500  # ranked at a validation, at most
VALIDATION_SHARE = 0.1  # of the time, for ranking them
# Training stops after so many validations without a better one, if they took this share of the time: some losses
# need a while before anything is learned.
PATIENCE, PATIENCE_SHARE = 8, 0.25


class BestWeights:
    """Keeps the weights that rank valid best, and says when training should stop."""

    def __init__(self, task: Task, model: Any, rank: Callable[[QuerySet], Ranks]) -> None:
        """`model` is a module of torch; `rank` ranks queries by it."""
        self.task, self.model, self._rank = task, model, rank
        self._ends = time.monotonic() + 60 * task.minutes_left
        # Test is not part of the filter while training.
        self.query_set = (
            QuerySet.from_graph(task.graph, "valid", "both", ("train", "valid"), VALID_QUERIES, task.seed)
            if len(task.graph.valid)
            else None
        )
        self.mrr, self.epoch, self._weights = -1.0, 0.0, None
        self.epochs = 0.0  # done so far
        self._since, self._improved, self._next = 0, time.monotonic(), 0.0

    @property
    def is_out_of_time(self) -> bool:
        return time.monotonic() > self._ends

    @property
    def is_stale(self) -> bool:
        """Whether further training is unlikely to help."""
        waited = time.monotonic() - self._improved
        return self._since >= PATIENCE and waited > PATIENCE_SHARE * 60 * self.task.minutes

    def validate(self, *, in_any_case: bool = False) -> None:
        """Rank valid, unless that was done a short while ago."""
        began = time.monotonic()
        if self.query_set is None or (began < self._next and not in_any_case):
            return
        mrr = self._rank(self.query_set).metrics(intervals=False).mrr
        self._since += 1
        if mrr > self.mrr:
            self.mrr, self.epoch, self._since, self._improved = mrr, self.epochs, 0, began
            self._weights = deepcopy(self.model.state_dict())
        self.model.train()
        ended = time.monotonic()
        self._next = ended + (ended - began) / VALIDATION_SHARE

    def finish(self) -> str:
        """Validate a last time, go back to the best weights, and say how training went."""
        why = "stopped early" if self.is_stale else "out of time"
        self.validate(in_any_case=True)
        if self._weights is None:
            return f"{why} after {self.epochs:.4g} epochs, no valid facts"
        self.model.load_state_dict(self._weights)
        return f"{why}, best after epoch {self.epoch:.4g} of {self.epochs:.4g}, valid MRR {self.mrr:.3f}"
