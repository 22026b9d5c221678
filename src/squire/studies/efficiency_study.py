"""What a graph of a given size costs (Figure 2, Tables 4 and 5): time of every phase, memory and quality.

Every size is a run folder with a journal of what was measured. The phases are those of any run (preparing,
training, answering), done by the same code. Each size is measured in a fresh process, so that the memory of one
does not count for another, after the same phases on a tiny graph, which pays for compilation.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from squire.core.processes import interruptions, locked
from squire.core.progress import Progress, no_progress, progress_bar
from squire.core.run_files import LAST, RECIPE, TRIES
from squire.errors import SquireError
from squire.evaluation.baselines import rank_by_frequency
from squire.evaluation.metrics import Metrics
from squire.evaluation.paths import paths_signature, ranks_of
from squire.evaluation.queries import QuerySet
from squire.graph.graph import Graph
from squire.graph.statistics import Stats
from squire.model.recipe import Recipe, load_recipe, load_settings, recipe_for, save_settings
from squire.paths.tries import Tries
from squire.search.decoding import decode
from squire.search.trained import TrainedModel, seen_graph
from squire.studies.costs import Pace, Seconds, machine, peak_mb
from squire.studies.graphs import SMALLEST, GraphSource, open_graph, sample_graph, synthetic_graph
from squire.studies.journal import Journal, flat_settings, graph_digest
from squire.studies.reports import FREQUENCY, Report, code, draw_efficiency, escape, metric_cells, table
from squire.training.preparation import find_paths, find_rules, save_tries
from squire.training.trainer import Trainer, TrainingState

JOURNAL = "efficiency.jsonl"
SYNTHETIC = "synthetic"
SYNTHETIC_RECIPE = "large"  # one recipe for all sizes
MINING, SAMPLING, TREES = "mining rules", "sampling paths", "prefix trees"
STEP, EPOCH, WHOLE, QUESTION = "a step", "an epoch", "the whole training", "a question"
PHASES = (MINING, SAMPLING, TREES, STEP, EPOCH, WHOLE, QUESTION)
TINY = [
    "model.layers=1",
    "model.dim=16",
    "model.feedforward=16",
    "model.heads=1",
    "train.epochs=1",
    "decode.beam=4",
]


def efficiency(
    graphs: Sequence[GraphSource] = (),
    out: str | Path = "studies/efficiency",
    *,
    sizes: Sequence[float] = (0.25, 0.5, 1.0),
    synthetic: Sequence[int] = (),
    recipe: str | Path = "auto",
    settings: Sequence[str] = (),
    minutes: float = 2.0,
    questions: int = 200,
    seed: int = 0,
) -> EfficiencyResult:
    """Measures growing samples of `graphs` and synthetic graphs; `out` is the study's folder.

    sizes: shares of a graph's train facts. synthetic: numbers of facts. recipe: for all sizes; auto is the recipe
    for the whole graph, and `large` for synthetic ones. minutes, questions: of training and of valid per size, at
    most. seed: of samples, synthetic graphs and training. Without `graphs` and `synthetic`: world, 10⁴ and 10⁵
    facts.
    """
    if not graphs and not synthetic:
        graphs, synthetic = ["world"], [10_000, 100_000]
    rows = []
    with locked(Path(out), doing="at a study"):
        for source, graph, auto in _sources(graphs, sizes, synthetic, seed):
            own = load_recipe(auto if recipe == "auto" else recipe, [*settings, f"train.seed={seed}"])
            own = replace(own, train=replace(own.train, iterate=False))  # iterations hide how an epoch grows
            folder = Path(out) / re.sub(r"[^\w.%-]+", "_", graph.name)
            measured = Measurement.begin(folder, {**source, "seed": seed}, graph, own, minutes, questions)
            if not measured.done:
                _measure_apart(folder)
                measured = Measurement(folder)
            rows.append(SizeResult.from_measurement(str(source.get("graph", SYNTHETIC)), own.name, measured))
    return EfficiencyResult(rows)


def _sources(
    graphs: Sequence[GraphSource], sizes: Sequence[float], synthetic: Sequence[int], seed: int
) -> Iterator[tuple[dict[str, Any], Graph, str]]:
    """Where each graph comes from, the graph, and the recipe that `auto` chooses; the smallest first."""
    for source in graphs:
        whole = open_graph(source)
        about = {"graph": whole.name, "facts": graph_digest(whole)}
        for share in sorted(set(sizes)):
            yield {**about, "share": share}, sample_graph(whole, share, seed), recipe_for(Stats.from_graph(whole))
    for count in sorted(set(synthetic)):
        yield {"planted": count}, synthetic_graph(count, seed), SYNTHETIC_RECIPE


def _measure_apart(folder: Path) -> None:
    """Measures a size in a process of its own."""
    command = [sys.executable, "-m", "squire", "study", "efficiency-measure", str(folder)]
    # Ctrl-C in a terminal reaches the process too; wait until it has saved its work.
    with interruptions(patient=True) as interrupted:
        code = subprocess.run(command, check=False).returncode
    if interrupted or code == 130:
        raise KeyboardInterrupt
    if code:
        killed = " It was killed, perhaps for lack of memory." if code < 0 else ""
        raise SquireError(
            f"{folder}: measuring ended with code {code}.{killed} Fix the error above, then run the "
            "study again; finished work is kept."
        )


def measure_size(folder: str | Path) -> None:
    """Measures one size of the study in this process, after a warm-up. Meant for a process of its own."""
    folder = Path(folder)
    with progress_bar(f"{folder.name}: warming up") as bar:
        with tempfile.TemporaryDirectory() as scratch:
            graph, recipe = synthetic_graph(SMALLEST), load_recipe("small", TINY)
            Measurement.begin(Path(scratch), {}, graph, recipe, minutes=1, questions=8).measure()
        Measurement(folder).measure(lambda stage, done, total: bar.stage(f"{folder.name}: {stage}", done, total))


# ------------------------------------------------------------------------------------------------- measuring


class Measurement:
    """What was measured of one size so far, and the measuring of the rest."""

    def __init__(self, folder: Path, header: dict[str, Any] | None = None) -> None:
        """With a header, an existing journal must have the same one."""
        self.folder = folder
        self._journal = Journal(folder / JOURNAL, header or {})

    @classmethod
    def begin(
        cls, folder: Path, source: dict[str, Any], graph: Graph, recipe: Recipe, minutes: float, questions: int
    ) -> Measurement:
        """A new measurement, or one to continue; `source` says where the graph comes from."""
        limits = {"minutes": minutes, "questions": questions}
        measured = cls(folder, {"study": "efficiency", **source, **limits, **flat_settings(recipe)})
        if not (folder / RECIPE).exists():
            save_settings(folder, graph, recipe)
        return measured

    @property
    def entries(self) -> list[dict[str, Any]]:
        return self._journal.entries

    def last(self, phase: str) -> dict[str, Any] | None:
        """The last entry of a phase."""
        return next((entry for entry in reversed(self.entries) if entry["phase"] == phase), None)

    @property
    def done(self) -> bool:
        return self.last("asked") is not None

    def _record(self, phase: str, **figures: Any) -> None:
        self._journal.append({"phase": phase, **figures, "peak_mb": peak_mb(), **machine()})

    def total(self, phase: str, key: str) -> float:
        return float(sum(entry[key] for entry in self.entries if entry["phase"] == phase))

    def measure(self, progress: Progress = no_progress) -> None:
        """Measures all phases that are not recorded yet. Ctrl-C is raised once everything is saved."""
        graph, recipe = load_settings(self.folder)
        tries = self._prepare(graph, recipe, progress)
        self._train(Trainer(graph, recipe, tries, self.folder), progress)
        self._ask(progress)

    def _prepare(self, graph: Graph, recipe: Recipe, progress: Progress) -> Tries:
        if self.last("prepared"):
            return Tries.load(self.folder / TRIES)
        times = [Seconds.now()]
        seen = seen_graph(graph, recipe)
        rules = find_rules(seen, recipe, self.folder, progress)
        times.append(Seconds.now())
        paths = find_paths(seen, recipe, rules, progress)
        times.append(Seconds.now())
        tries = save_tries(paths, self.folder)
        times.append(Seconds.now())
        took = zip((MINING, SAMPLING, TREES), (after - before for before, after in pairwise(times)), strict=True)
        weight = int(paths.weight.sum(dtype="int64"))
        counts = {"rules": 0 if rules is None else len(rules.rule) // 2, "paths": weight, "nodes": tries.num_nodes}
        self._record("prepared", graph=Stats.from_graph(graph).as_dict(), **_as_dicts(dict(took)), **counts)
        return tries

    def _train(self, trainer: Trainer, progress: Progress) -> None:
        """Trains for the minutes that are left, or to the end."""
        left = self._journal.header["minutes"] * 60 - self.total("trained", "seconds")
        last = self.last("trained")
        if last is not None and (last["finished"] or left <= 0):
            return
        if any(self.folder.glob(f"{LAST}*.safetensors")):
            trainer.resume()
        pace, steps_per_epoch = Pace(), trainer.batches.num_batches(0)

        def watch(now: TrainingState) -> None:
            pace.record(now)
            progress("training", now.step, now.total_steps)

        began = time.perf_counter()
        finished = trainer.fit(watch, max(left, 0) / 60, progress)
        self._record(
            "trained",
            seconds=time.perf_counter() - began,
            step=trainer.step,
            total_steps=trainer.total_steps,
            steps_per_epoch=steps_per_epoch,
            epochs=trainer.recipe.train.epochs,
            finished=finished,
            parameters=sum(weights.numel() for weights in trainer.model.parameters()),
            threads=torch.get_num_threads(),
            nodes_per_second=pace.nodes_per_second(),
            **_as_dicts({STEP: pace.step(), EPOCH: pace.epoch(steps_per_epoch)}),
        )
        if trainer.interrupted:
            raise KeyboardInterrupt

    def _ask(self, progress: Progress) -> None:
        """Ranks questions of valid by the model as it is, and by tail frequency. Test is not touched."""
        if self.done:
            return
        run = TrainedModel.load(self.folder)
        if not len(run.graph.valid):
            self._record("asked", queries=0, **_as_dicts({QUESTION: None}), rows=[])
            return
        count, seed, splits = self._journal.header["questions"], run.recipe.train.seed, ("train", "valid")
        query_set = QuerySet.from_graph(run.graph, "valid", filter_splits=splits, sample=count, seed=seed)
        decoding = run.decoding()
        done, began = len(self._ranks()), Seconds.now()
        for block in decode(run.decoder, query_set.queries[done:, :2], decoding):
            ranks = ranks_of(block, query_set.queries[done : done + len(block)], query_set.filter)
            took = Seconds.now() - began
            self._record("block", ranks=ranks, seconds=took.wall, cpu_seconds=took.cpu)
            done, began = done + len(block), Seconds.now()
            progress("answering", done, len(query_set.queries))
        signature = paths_signature(query_set, decoding, seed)
        ours = Metrics.from_ranks(np.array(self._ranks()), signature, intervals=True)
        rows = [ours.as_dict(), rank_by_frequency(run.graph, query_set).metrics().as_dict()]
        took = Seconds(self.total("block", "seconds"), self.total("block", "cpu_seconds")) * (1 / done)
        self._record("asked", queries=done, **_as_dicts({QUESTION: took}), rows=rows)

    def _ranks(self) -> list[float]:
        """The ranks recorded so far."""
        return [rank for entry in self.entries if entry["phase"] == "block" for rank in entry["ranks"]]


def _as_dicts(found: Mapping[str, Seconds | None]) -> dict[str, dict[str, float] | None]:
    return {name: None if seconds is None else asdict(seconds) for name, seconds in found.items()}


# ---------------------------------------------------------------------------------------------------- result


@dataclass(frozen=True)
class SizeResult:
    """The costs and the quality of one size. Seconds, megabytes (10⁶ bytes)."""

    kind: str  # the graph that was sampled, or synthetic
    name: str
    recipe: str
    entities: int
    facts: int
    rules: int
    nodes: int  # of the prefix trees
    parameters: int
    seconds: dict[str, float | None]  # of each of PHASES; None if training was too short to tell
    cpu_seconds: dict[str, float | None]
    epoch_measured: bool  # false if extrapolated from the steps
    nodes_per_second: float | None
    epochs: int  # of the recipe
    steps: int  # done
    steps_per_epoch: int
    trained: float  # seconds, with validations
    finished: bool  # trained to the end of the recipe
    peak_mb: float | None
    ours: dict[str, Any] | None  # metrics with intervals and signature; None without valid facts
    frequency: dict[str, Any] | None
    load_average: float | None  # the highest
    threads: int

    @classmethod
    def from_measurement(cls, kind: str, recipe: str, measured: Measurement) -> SizeResult:
        prepared, trained, asked = (measured.last(phase) or {} for phase in ("prepared", "trained", "asked"))
        steps = trained["steps_per_epoch"]
        took = {name: entry[name] for entry in (prepared, trained, asked) for name in PHASES if name in entry}
        if took[EPOCH] is None and took[STEP] is not None:
            took[EPOCH] = {unit: second * steps for unit, second in took[STEP].items()}
        if took[EPOCH] is not None:
            took[WHOLE] = {unit: second * trained["total_steps"] / steps for unit, second in took[EPOCH].items()}
        wall, cpu = (
            {name: took[name][unit] if took.get(name) else None for name in PHASES} for unit in ("wall", "cpu")
        )
        ours, frequency = asked["rows"] or (None, None)
        found = {
            **prepared["graph"], **prepared, **trained, "kind": kind, "recipe": recipe, "seconds": wall,
            "cpu_seconds": cpu, "epoch_measured": trained[EPOCH] is not None, "steps": trained["step"],
            "trained": measured.total("trained", "seconds"), "ours": ours, "frequency": frequency,
            **{key: max((entry[key] for entry in measured.entries if entry[key] is not None), default=None)
               for key in ("peak_mb", "load_average")},
        }  # fmt: skip
        return cls(**{field.name: found[field.name] for field in fields(cls)})


@dataclass(frozen=True)
class EfficiencyResult(Report):
    """One row per size."""

    rows: list[SizeResult]

    def as_dict(self) -> dict[str, Any]:
        return {"rows": [asdict(row) for row in self.rows]}

    def markdown(self) -> str:
        signatures = [one["signature"] for row in self.rows for one in (row.ours, row.frequency) if one]
        return "\n".join([
            "# Efficiency: time, memory and quality against the size of a graph\n",
            "Each size was measured in a process of its own, after a warm-up that pays for compilation. Seconds "
            "are wall-clock time and, in brackets, CPU time of all threads, which means more on a busy machine. "
            "Peak: the most memory that the process held, over all phases. The whole training is all epochs of "
            "the recipe, without iterations; ≈ marks extrapolations from the median step.\n",
            self._costs(),
            "Quality on valid, after the steps given; after only a part of its epochs a model is far from its "
            "best. In brackets: 95 % intervals.\n",
            self._quality(),
            *map(code, dict.fromkeys(signatures)),
        ])  # fmt: skip

    def _costs(self) -> str:
        headings = ("graph", "recipe", "facts", "entities", "facts per entity", "rules", "nodes", "parameters",
                    *(f"{name} (s)" for name in PHASES), "nodes/s", "queries/s", "peak (MB)", "threads",
                    "load")  # fmt: skip
        lines = []
        for row in self.rows:
            question = row.seconds[QUESTION]
            lines.append((
                escape(row.name), escape(row.recipe), f"{row.facts:,}", f"{row.entities:,}",
                f"{row.facts / max(row.entities, 1):.1f}", f"{row.rules:,}", f"{row.nodes:,}",
                f"{row.parameters:,}", *(_with_cpu(row, name) for name in PHASES), _digits(row.nodes_per_second),
                _digits(1 / question if question else None), _digits(row.peak_mb), f"{row.threads}",
                _digits(row.load_average),
            ))  # fmt: skip
        return table(headings, lines)

    def _quality(self) -> str:
        lines = []
        for row in self.rows:
            steps = f"{row.steps:,} ({row.steps / row.steps_per_epoch:.2g} of {row.epochs} epochs)"
            for method, figures in (("paths", row.ours), (FREQUENCY, row.frequency)):
                if figures is not None:
                    trained = (steps, f"{row.trained / 60:.1f}") if method == "paths" else ("", "")
                    name, count = escape(row.name), f"{figures['queries']:,}"
                    lines.append((name, method, *trained, count, *metric_cells(figures)))
        headings = ("graph", "ranked by", "steps", "minutes", "questions", "MRR", "Hits@1", "Hits@3", "Hits@10")
        return table(headings, lines)

    def draw(self, file: str | Path) -> None:
        series: dict[str, list[SizeResult]] = defaultdict(list)
        for row in self.rows:
            series[row.kind].append(row)
        draw_efficiency(series, Path(file))


def _with_cpu(row: SizeResult, phase: str) -> str:
    wall, cpu = row.seconds[phase], row.cpu_seconds[phase]
    if wall is None or cpu is None:
        return ""
    extrapolated = "≈ " if phase == WHOLE or (phase == EPOCH and not row.epoch_measured) else ""
    return f"{extrapolated}{_digits(wall)} ({_digits(cpu)})"


def _digits(number: float | None) -> str:
    """Three digits: 0.0123, 1.23, 123, 12,345."""
    if number is None:
        return ""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
