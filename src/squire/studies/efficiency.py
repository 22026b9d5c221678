"""What a graph of some size costs (Figure 2, Tables 4 and 5): each phase timed, in a process of its own.

A case is a graph with a recipe in a run folder, and a journal there of what was measured. The three phases are
those of any run (preparing, training, asking), by the code that every run uses; what is noted is not done again,
and training goes on from its checkpoint. A case is measured in a fresh process, so that the memory of one size
is not that of another; before, the same phases run on a tiny graph, which pays for compilation.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from squire.core.run_files import LAST, RECIPE, TRIES
from squire.evaluation.baselines import rank_by_frequency
from squire.evaluation.metrics import Metrics
from squire.evaluation.paths import paths_signature, ranks_of
from squire.evaluation.queries import QuerySet
from squire.graph.graph import Graph
from squire.graph.statistics import Stats
from squire.model.recipe import Recipe, load_recipe
from squire.paths.tries import Tries
from squire.search.decoding import DecodingOptions, decode
from squire.search.trained import TrainedModel, load_settings, save_settings
from squire.studies.costs import Clock, Seconds, machine, peak_mb
from squire.studies.journal import Journal
from squire.studies.planted import SMALLEST, planted_graph
from squire.studies.subject import settings_of
from squire.training.preparation import Stage, find_paths, find_rules, plant
from squire.training.trainer import Moment, Trainer

JOURNAL = "efficiency.jsonl"
MINING, SAMPLING, PLANTING = "mining rules", "sampling paths", "prefix trees"
STEP, EPOCH, QUESTION = "a step", "an epoch", "a question"
TINY = [
    "model.layers=1",
    "model.dim=16",
    "model.feedforward=16",
    "model.heads=1",
    "train.epochs=1",
    "decode.beam=4",
]


@dataclass(frozen=True)
class Limits:
    """How much of a case is measured."""

    minutes: float  # of training, at most
    questions: int  # of valid, at most


class Case:
    """One size: what was measured of it so far, and the measuring of the rest."""

    def __init__(self, folder: Path, header: dict[str, Any] | None = None) -> None:
        """A new case, or one to go on with, which must be the same then; without a header, whichever is there."""
        self.folder = folder
        self._journal = Journal(folder / JOURNAL, header or {})

    @classmethod
    def begun(cls, folder: Path, source: dict[str, Any], graph: Graph, recipe: Recipe, limits: Limits) -> Case:
        """`source` says where the graph comes from, apart from its facts."""
        case = cls(folder, {"study": "efficiency", **source, **vars(limits), **settings_of(recipe)})
        if not (folder / RECIPE).exists():
            save_settings(folder, graph, recipe)
        return case

    def reload(self) -> None:
        """See what another process has noted."""
        self._journal = Journal(self._journal.file, {})

    @property
    def done(self) -> bool:
        return self.noted("asked") is not None

    def noted(self, phase: str) -> dict[str, Any] | None:
        """The last note of a phase."""
        own = [entry for entry in self._journal.entries if entry["phase"] == phase]
        return own[-1] if own else None

    @property
    def notes(self) -> list[dict[str, Any]]:
        return list(self._journal.entries)

    def _note(self, phase: str, **figures: Any) -> None:
        self._journal.append({"phase": phase, **figures, "peak_mb": peak_mb(), **machine()})

    def measure(self, stage: Stage) -> None:
        """All phases that are not noted yet. Ctrl-C is raised, when all is saved."""
        graph, recipe = load_settings(self.folder)
        tries = self._prepare(graph, recipe, stage)
        self._train(Trainer(graph, recipe, tries, self.folder), stage)
        self._ask(stage)

    def _prepare(self, graph: Graph, recipe: Recipe, stage: Stage) -> Tries:
        if self.noted("prepared"):
            return Tries.load(self.folder / TRIES)
        clock = Clock()
        with clock(MINING):
            rules = find_rules(graph, recipe, self.folder, stage)
        with clock(SAMPLING):
            paths = find_paths(graph, recipe, rules, stage)
        with clock(PLANTING):
            tries = plant(paths, self.folder)
        weight = int(paths.weight.sum(dtype="int64"))
        counts = {"rules": 0 if rules is None else len(rules.rule) // 2, "paths": weight, "nodes": tries.num_nodes}
        self._note("prepared", graph=Stats.from_graph(graph).as_dict(), **_as_dicts(clock.seconds), **counts)
        return tries

    def _train(self, trainer: Trainer, stage: Stage) -> None:
        """For the minutes that are left, or to the end; steps are timed apart from validations."""
        left = self._journal.header["minutes"] * 60 - self._sum("trained", "seconds")
        last = self.noted("trained")
        if last is not None and (last["finished"] or left <= 0):
            return
        if any(self.folder.glob(f"{LAST}*.safetensors")):
            trainer.resume()
        pace = Pace()

        def watch(now: Moment) -> None:
            pace.note(now)
            stage("training", now.step, now.total_steps)

        began = time.perf_counter()
        finished = trainer.fit(watch, max(left, 0) / 60, stage)
        seconds = time.perf_counter() - began
        self._note(
            "trained",
            seconds=seconds,
            step=trainer.step,
            total_steps=trainer.total_steps,
            steps_per_epoch=trainer.batches.num_batches(0),
            epochs=trainer.recipe.train.epochs,
            finished=finished,
            parameters=sum(weights.numel() for weights in trainer.model.parameters()),
            threads=torch.get_num_threads(),
            **pace.figures(trainer.batches.num_batches(0)),
        )
        if trainer.interrupted:
            raise KeyboardInterrupt

    def _ask(self, stage: Stage) -> None:
        """Questions of valid to the model as it is, and to the tails' frequency. Test is left alone."""
        if self.done:
            return
        run = TrainedModel.load(self.folder)
        if not len(run.graph.valid):
            self._note("asked", queries=0, **_as_dicts({QUESTION: None}), rows=[])
            return
        count, seed = self._journal.header["questions"], run.recipe.train.seed
        query_set = QuerySet.from_graph(
            run.graph, "valid", filter_splits=("train", "valid"), sample=count, seed=seed
        )
        decoding = DecodingOptions.from_recipe(run.recipe, run.known_edges)
        done, began = len(self._ranks()), Seconds.now()
        for block in decode(run.decoder, query_set.queries[done:, :2], decoding):
            ranks = ranks_of(block, query_set.queries[done : done + len(block)], query_set.filter)
            took = Seconds.now() - began
            self._note("block", ranks=ranks, seconds=took.wall, cpu_seconds=took.cpu)
            done, began = done + len(block), Seconds.now()
            stage("asking", done, len(query_set.queries))
        ours = Metrics.from_ranks(
            np.array(self._ranks()), paths_signature(query_set, decoding, seed), intervals=True
        )
        rows = [ours.as_dict(), rank_by_frequency(run.graph, query_set).metrics().as_dict()]
        took = Seconds(self._sum("block", "seconds"), self._sum("block", "cpu_seconds")) * (1 / done)
        self._note("asked", queries=done, **_as_dicts({QUESTION: took}), rows=rows)

    def _ranks(self) -> list[float]:
        """Of the questions that are asked already."""
        return [rank for entry in self._journal.entries if entry["phase"] == "block" for rank in entry["ranks"]]

    def _sum(self, phase: str, key: str) -> float:
        return float(sum(entry[key] for entry in self._journal.entries if entry["phase"] == phase))


class Pace:
    """How fast steps follow each other, validations and checkpoints between them left out where that can be."""

    def __init__(self) -> None:
        self._ended: dict[int, list[Seconds]] = defaultdict(list)  # by epoch: when its steps ended
        self._nodes_per_second: list[float] = []

    def note(self, now: Moment) -> None:
        self._ended[now.epoch].append(Seconds.now())
        self._nodes_per_second.append(now.nodes_per_second)

    def figures(self, steps_per_epoch: int) -> dict[str, Any]:
        """Seconds of a step (the median), of a whole epoch if one was seen, and nodes a second."""
        steps = [after - before for ends in self._ended.values() for before, after in pairwise(ends)]
        whole = [ends for ends in self._ended.values() if len(ends) >= max(steps_per_epoch, 2)]
        # From the first step's end to the last one's, and the first step as long as the others.
        epochs = [(ends[-1] - ends[0]) * (len(ends) / (len(ends) - 1)) for ends in whole]
        speeds = self._nodes_per_second[1:] or self._nodes_per_second  # the first step allocates
        return {
            **_as_dicts({STEP: Seconds.median(steps), EPOCH: Seconds.median(epochs)}),
            "nodes_per_second": statistics.median(speeds) if speeds else None,
        }


def _as_dicts(found: Mapping[str, Seconds | None]) -> dict[str, dict[str, float] | None]:
    return {name: None if seconds is None else asdict(seconds) for name, seconds in found.items()}


def warm_up() -> None:
    """Compile, or read from numba's cache, all that will run; torch allocates and picks its kernels."""
    with tempfile.TemporaryDirectory() as scratch:
        graph, recipe = planted_graph(SMALLEST), load_recipe("small", TINY)
        Case.begun(Path(scratch), {}, graph, recipe, Limits(minutes=1, questions=8)).measure(lambda *_: None)
