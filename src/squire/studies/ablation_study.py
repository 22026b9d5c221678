"""What iterative training and rules contribute (Table 3, Figure 6): three variants of a recipe, each a run of its
own.

Iterations add epochs on ever more paths (Algorithm 1: n / k epochs in the k-th). So that a variant without them
is not worse merely because it had fewer steps, it gets as many as `full`, in whole epochs (budget `steps`). With
budget `epochs` every variant has the recipe's n epochs, which is the algorithm without its loop.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from squire.core.files import replacing
from squire.core.processes import locked
from squire.core.progress import Progress, no_progress, progress_bar
from squire.core.run_files import LAST, RECIPE, RULES, RULES_TEXT, TRIES, fingerprint, tries_file
from squire.core.team import ALONE, Team, team
from squire.errors import SettingError
from squire.evaluation.baselines import rank_by_frequency
from squire.evaluation.metrics import Metrics, bootstrap
from squire.evaluation.paths import paths_signature, ranks_of
from squire.evaluation.plots import History, read_history
from squire.evaluation.queries import QuerySet
from squire.graph.graph import SPLITS, Graph
from squire.graph.statistics import Stats
from squire.model.recipe import Recipe, load_recipe, load_settings, recipe_for, save_settings
from squire.paths.tries import Tries
from squire.search.decoding import decode, within
from squire.search.options import Aggregate, DecodingOptions, SearchEdges
from squire.search.trained import TrainedModel
from squire.studies.graphs import GraphSource, open_graph
from squire.studies.journal import Journal, flat_settings, graph_digest
from squire.studies.reports import (
    FREQUENCY,
    Report,
    code,
    draw_ablation,
    escape,
    metric_cells,
    table,
    with_interval,
)
from squire.training.preparation import prepare
from squire.training.trainer import OnStep, Trainer, TrainingState

Budget = Literal["steps", "epochs"]
AGGREGATES: tuple[Aggregate, ...] = ("sum", "max")  # those of the paper
VARIED = ("train.iterate", "paths.rules")
JOURNAL = "ablation.jsonl"
FILTERS = {"valid": ("train", "valid"), "test": ("train", "valid", "test")}  # test plays no part in valid


def ablation(
    graph: GraphSource,
    out: str | Path | None = None,
    *,
    recipe: str | Path = "auto",
    settings: Sequence[str] = (),
    budget: Budget = "steps",
    minutes: float | None = None,
    seed: int | None = None,
    sample: int | None = None,
    device: str = "auto",
    progress: bool = True,
) -> AblationResult:
    """Trains `full`, `− iter` and `− iter − rule` (Table 3) and compares them on valid and test.

    out: the study's folder, by default studies/ablation-GRAPH; each variant is a run folder below it. settings:
    keys of the recipe, such as "train.epochs=3", for all variants. minutes: stop training a variant after so
    long; another call continues. seed: of training, by default the recipe's. sample: evaluate only so many
    queries of each split.
    """
    graph = open_graph(graph)
    for setting in settings:
        if setting.partition("=")[0].strip() in VARIED:
            raise SettingError(f"settings: {setting} is what the study varies. Leave it out.")
    if seed is not None:
        settings = [*settings, f"train.seed={seed}"]
    chosen = load_recipe(recipe_for(Stats.from_graph(graph)) if recipe == "auto" else recipe, settings)
    folder = Path(out or f"studies/ablation-{graph.name}")
    with locked(folder, doing="at a study"), progress_bar("preparing", progress) as bar:
        study = Ablation(graph, chosen, folder, budget)
        study.train_all(minutes, device, bar.stage)
        return study.result(sample, bar.stage)


@dataclass(frozen=True)
class Variant:
    """One row of Table 3."""

    name: str
    folder: str
    iterate: bool
    rules: bool

    def applied_to(self, recipe: Recipe) -> Recipe:
        """The recipe of this row, on paths that are kept, as the paper's."""
        paths = replace(recipe.paths, rules=self.rules, fresh=False)
        return replace(recipe, paths=paths, train=replace(recipe.train, iterate=self.iterate))


FULL = Variant("full", "full", iterate=True, rules=True)
NO_ITER = Variant("− iter", "no-iter", iterate=False, rules=True)
NO_RULE = Variant("− iter − rule", "no-iter-no-rule", iterate=False, rules=False)
VARIANTS = (FULL, NO_ITER, NO_RULE)


@dataclass(frozen=True)
class TrainingProgress:
    """How far a variant is trained."""

    epochs: int  # planned, over all iterations
    epoch: int
    step: int
    paths: int | None  # paths seen, each as often as in its epochs; None before the end
    seconds: float  # with validations and gathering of paths; without attempts that were killed
    finished: bool


class Ablation:
    """The three variants of a recipe on a graph. `folder` holds them, and a journal of what is done."""

    def __init__(self, graph: Graph, recipe: Recipe, folder: Path, budget: Budget = "steps") -> None:
        if recipe.paths.hops < 2:
            raise SettingError("paths.hops is 1: there is nothing to iterate. Set it to 2 or more.")
        for split in SPLITS[1:]:
            if not len(graph.triples(split)):
                raise SettingError(f"{graph.name}: has no {split} facts, which this study needs.")
        self.graph, self.recipe, self.folder, self.budget = graph, recipe, folder, budget
        settings = {key: value for key, value in flat_settings(recipe).items() if key not in VARIED}
        header = {"study": "ablation", "graph": graph.name, "facts": graph_digest(graph), "budget": budget}
        self._journal = Journal(folder / JOURNAL, {**header, **settings})

    def run_folder(self, variant: Variant) -> Path:
        return self.folder / variant.folder

    def training(self, variant: Variant) -> TrainingProgress | None:
        """How far a variant is trained; None if its training has not begun."""
        own = [entry for entry in self._journal.entries if entry["variant"] == variant.name]
        if not own:
            return None
        last = {key: value for key, value in own[-1].items() if key != "variant"}
        return TrainingProgress(**{**last, "seconds": sum(entry["seconds"] for entry in own)})

    def finished(self, variant: Variant) -> bool:
        training = self.training(variant)
        return training is not None and training.finished

    def train_all(self, minutes: float | None, device: str, progress: Progress) -> None:
        """Trains every variant that is not finished, each for at most so many minutes."""
        with team(device) as ours:
            if not ours.alone:
                raise SettingError("the ablation study runs in one process. Start it without torchrun.")
            for variant in VARIANTS:
                if self.finished(variant):
                    continue
                if variant is not FULL and self.budget == "steps" and not self.finished(FULL):
                    break  # the number of its steps is not known yet

                def show(stage: str, done: int, total: int | None, name: str = variant.name) -> None:
                    progress(f"{name}: {stage}", done, total)

                def watch(now: TrainingState, name: str = variant.name) -> None:
                    mrr = "" if now.valid_mrr is None else f", MRR {now.valid_mrr:.3f}"
                    title = f"{name}: epoch {now.epoch + 1}, loss {now.loss:.3f}{mrr}"
                    progress(title, now.step, now.total_steps)

                self.train(variant, self.prepared(variant, show, ours), watch, minutes, show)

    def prepared(self, variant: Variant, progress: Progress = no_progress, team: Team = ALONE) -> Trainer:
        """The trainer of a variant, new or resumed."""
        if variant is not FULL and self.budget == "steps" and not self.finished(FULL):
            raise SettingError(f"{variant.name}: needs as many steps as {FULL.name}, which is not trained yet.")
        folder = self.run_folder(variant)
        with locked(folder):
            if not (folder / RECIPE).exists():
                self._begin(variant, progress)
            graph, recipe = load_settings(folder)
            trainer = Trainer(graph, recipe, prepare(graph, recipe, folder, progress), folder, team)
            if any(folder.glob(f"{LAST}*.safetensors")):
                trainer.resume()
        return trainer

    def train(
        self,
        variant: Variant,
        trainer: Trainer,
        watch: OnStep,
        minutes: float | None = None,
        progress: Progress = no_progress,
    ) -> TrainingProgress:
        """Trains to the end, or for so many minutes. Ctrl-C is raised once everything is saved."""
        began = time.monotonic()
        with locked(self.run_folder(variant)):
            finished = trainer.fit(watch, minutes, progress)
        epochs, paths = trainer.phases[-1].last_epoch, _paths_seen(trainer) if finished else None
        done = TrainingProgress(epochs, trainer.epoch, trainer.step, paths, time.monotonic() - began, finished)
        self._journal.append({"variant": variant.name, **asdict(done)})
        if trainer.interrupted:
            raise KeyboardInterrupt
        return done

    def _begin(self, variant: Variant, progress: Progress) -> None:
        """Prepares the paths of a new run, then its recipe, whose epochs may depend on them."""
        folder, recipe = self.run_folder(variant), variant.applied_to(self.recipe)
        if variant is NO_ITER:  # the same rules and paths that `full` began with
            for name in (RULES, RULES_TEXT, TRIES):
                if (source := self.run_folder(FULL) / name).exists():
                    with replacing(folder / name) as temporary:
                        shutil.copyfile(source, temporary)
        tries = prepare(self.graph, recipe, folder, progress)
        full = self.training(FULL)
        if variant is not FULL and self.budget == "steps" and full is not None:
            one = replace(recipe, train=replace(recipe.train, epochs=1))
            steps = Trainer(self.graph, one, tries, folder).total_steps
            recipe = replace(recipe, train=replace(recipe.train, epochs=max(1, round(full.step / steps))))
        save_settings(folder, self.graph, recipe)

    def result(self, sample: int | None = None, progress: Progress = no_progress) -> AblationResult:
        """Evaluates the finished variants on valid, then on test: all queries, or a sample of each split."""
        done = [variant for variant in VARIANTS if self.finished(variant)]
        seed = self.recipe.train.seed
        rows: list[VariantResult] = []
        for split, filter_splits in FILTERS.items() if done else ():
            queries = QuerySet.from_graph(self.graph, split, filter_splits=filter_splits, sample=sample, seed=seed)
            rows += self._rows(done, queries, progress)
        watched = QuerySet.from_graph(
            self.graph, "valid", filter_splits=FILTERS["valid"], sample=self.recipe.train.valid_queries, seed=seed
        )
        trainings = {variant.name: one for variant in VARIANTS if (one := self.training(variant)) is not None}
        begun = [variant for variant in VARIANTS if variant.name in trainings and trainings[variant.name].step]
        histories = {variant.name: read_history(self.run_folder(variant)) for variant in begun}
        frequency = rank_by_frequency(self.graph, watched).metrics()
        return AblationResult(
            self.folder, self.graph.name, self.recipe, self.budget, trainings, histories, rows, frequency
        )

    def _rows(self, done: list[Variant], query_set: QuerySet, progress: Progress) -> list[VariantResult]:
        rows: list[VariantResult] = []
        full: dict[Aggregate, Score] = {}
        for variant in done:
            title = f"{variant.name}: evaluating {query_set.split}"
            scores = scores_of(self.run_folder(variant), query_set, title, progress)
            if variant is FULL:
                full = scores
            for aggregate, score in scores.items():
                behind = _difference(score, full[aggregate]) if full and variant is not FULL else None
                rows.append(VariantResult(variant.name, query_set.split, score.metrics, behind))
        frequency = rank_by_frequency(self.graph, query_set).metrics()
        return [*rows, VariantResult(FREQUENCY, query_set.split, frequency, None)]


def _paths_seen(trainer: Trainer) -> int:
    """The paths of each iteration of a finished run, times its epochs."""
    seen = 0
    for phase in trainer.phases:
        size = int(Tries.load(tries_file(trainer.folder, phase.iteration)).end.sum(dtype="int64"))
        seen += size * (phase.last_epoch - phase.first_epoch)
    return seen


# ---------------------------------------------------------------------------------------------------- ranks


@dataclass(frozen=True)
class Score:
    """A run's ranks on a query set, by one aggregation."""

    ranks: npt.NDArray[np.float64]  # (query)
    metrics: Metrics


def scores_of(
    folder: Path, query_set: QuerySet, title: str = "", progress: Progress = no_progress
) -> dict[Aggregate, Score]:
    """Ranks by `sum` and by `max` from one search, by the best model of a run folder.

    The ranks are kept in a journal of their own for each model, so a run that was trained further is searched
    anew.
    """
    graph, recipe = load_settings(folder)
    decoding = DecodingOptions.from_recipe(recipe, SearchEdges(graph.train), aggregate="sum", prune=0.0)
    options = {aggregate: replace(decoding, aggregate=aggregate) for aggregate in AGGREGATES}
    signatures = {name: paths_signature(query_set, own, recipe.train.seed) for name, own in options.items()}
    model = fingerprint(folder)
    signed = {str(name): str(signature) for name, signature in signatures.items()}
    file = folder / f"ranks-{query_set.split}-{len(query_set.queries)}-{model}.jsonl"
    journal = Journal(file, {"study": "scores", "model": model, **signed})
    done = sum(len(entry[AGGREGATES[0]]) for entry in journal.entries)
    if done < len(query_set.queries):
        for block in decode(TrainedModel.load(folder).decoder, query_set.queries[done:, :2], decoding):
            queries = query_set.queries[done : done + len(block)]
            every, edge_types = np.ones(len(block.paths), bool), queries[:, 1].astype(np.int64)
            ranked = {name: within(block, every, edge_types, own) for name, own in options.items()}
            journal.append({name: ranks_of(own, queries, query_set.filter) for name, own in ranked.items()})
            done += len(block)
            progress(title, done, len(query_set.queries))
    found = {}
    for name, signature in signatures.items():
        ranks = np.array([rank for entry in journal.entries for rank in entry[name]], np.float64)
        found[name] = Score(ranks, Metrics.from_ranks(ranks, signature, intervals=True))
    return found


def _difference(score: Score, full: Score) -> tuple[float, float, float]:
    """The paired difference in MRR and its 95 % interval."""
    each = 1 / score.ranks - 1 / full.ranks
    ((low, high),) = bootstrap(each[:, None])
    return float(each.mean()), low, high


# --------------------------------------------------------------------------------------------------- result


@dataclass(frozen=True)
class VariantResult:
    """A variant, or the tail frequency, on one split."""

    variant: str
    split: str
    metrics: Metrics
    behind_full: tuple[float, float, float] | None  # its MRR minus that of `full`, paired, and the 95 % interval

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "metrics": self.metrics.as_dict()}


@dataclass(frozen=True, eq=False)
class AblationResult(Report):
    """The figures of the study so far."""

    folder: Path
    graph: str
    recipe: Recipe
    budget: Budget
    trainings: dict[str, TrainingProgress]  # by variant, once its training has begun
    histories: dict[str, History]
    rows: list[VariantResult]  # of finished variants
    frequency: Metrics  # on the validation queries of the curves

    @property
    def finished(self) -> bool:
        return sum(training.finished for training in self.trainings.values()) == len(VARIANTS)

    def best(self, variant: str) -> tuple[float | None, int | None]:
        """The highest validation MRR in training, and its step."""
        history = self.histories.get(variant)
        if history is None or not len(history.mrr):
            return None, None
        step, mrr = history.mrr[history.mrr[:, 1].argmax()].tolist()
        return mrr, int(step)

    def as_dict(self) -> dict[str, Any]:
        variants = []
        for name, training in self.trainings.items():
            mrr, step = self.best(name)
            variants.append({"variant": name, **asdict(training), "best_valid_mrr": mrr, "best_step": step})
        curves = {
            name: {
                "signature": history.signature,
                "step_mrr": [[int(step), mrr] for step, mrr in history.mrr.tolist()],
                "iterations_begin": list(history.iterations),
            }
            for name, history in self.histories.items()
        }
        return {
            "graph": self.graph,
            "recipe": self.recipe.to_dict(),
            "budget": self.budget,
            "finished": self.finished,
            "variants": variants,
            "rows": [row.as_dict() for row in self.rows],
            "curves": curves,
            "curves_frequency": self.frequency.as_dict(),
        }

    def markdown(self) -> str:
        train = self.recipe.train
        parts = [
            f"# Ablation on {escape(self.graph)}\n",
            f"Recipe {escape(self.recipe.name)}, seed {train.seed}, n = {train.epochs} epochs. "
            f"{_BUDGETS[self.budget]}\n",
            self._training_table(),
        ]
        if not self.finished:
            parts.append("**Not finished**: variants without figures below are still to be trained.\n")
        for split in FILTERS:
            own = [row for row in self.rows if row.split == split]
            if own:
                signatures = dict.fromkeys(str(row.metrics.signature) for row in own)  # variants share them
                parts += [f"## {split}\n", _metrics_table(own), *map(code, signatures)]
        return "\n".join(parts)

    def _training_table(self) -> str:
        headings = ("variant", "epochs", "steps", "paths seen", "minutes", "best valid MRR in training", "at step")
        lines = []
        for name, training in self.trainings.items():
            mrr, step = self.best(name)
            stopped = "" if training.finished else f"{training.epoch} of "
            counts = ["" if count is None else f"{count:,}" for count in (training.step, training.paths, step)]
            best, took = "" if mrr is None else f"{mrr:.3f}", f"{training.seconds / 60:.1f}"
            lines.append((name, f"{stopped}{training.epochs}", *counts[:2], took, best, counts[2]))
        return table(headings, lines)

    def draw(self, file: str | Path) -> None:
        heading = f"{self.graph}, recipe {self.recipe.name}: valid MRR"
        draw_ablation(self.histories, self.frequency, heading, Path(file))


_BUDGETS = {
    "steps": "Iterations train n / k more epochs on ever more paths; the variants without them train as many "
    "whole epochs as come nearest to the steps of full (budget: steps).",
    "epochs": "All variants train n epochs, and full another n / k in each iteration, so the others have fewer "
    "steps (budget: epochs).",
}


def _metrics_table(rows: list[VariantResult]) -> str:
    headings = ("variant", "ranked by", "MRR", "Hits@1", "Hits@3", "Hits@10", "MRR minus that of full")
    lines = []
    for row in rows:
        behind = "" if row.behind_full is None else with_interval(row.behind_full[0], row.behind_full[1:], "+.3f")
        aggregation = row.metrics.signature.aggregation.removesuffix("+edge-ends").replace("none", "")
        lines.append((row.variant, aggregation, *metric_cells(row.metrics.as_dict()), behind))
    return table(headings, lines)
