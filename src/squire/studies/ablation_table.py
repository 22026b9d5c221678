"""The ablation as a table and as data: steps, figures on valid and test, and how far a variant is from `full`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from squire.evaluation.baselines import rank_by_frequency
from squire.evaluation.metrics import NAMES, Metrics, bootstrap
from squire.evaluation.plots import History, read_history
from squire.evaluation.queries import QuerySet
from squire.studies.ablation import FULL, VARIANTS, Ablation, Training, Variant
from squire.studies.markdown import code, literal, table
from squire.studies.scores import Score, scores_of

Progress = Callable[[str, int, int], None]  # what, done, of how many
SPLITS_KNOWN = {"valid": ("train", "valid"), "test": ("train", "valid", "test")}  # test has no say in valid
FREQUENCY = "tail frequency"
BEST = ("best_valid_mrr", "best_step")


@dataclass(frozen=True)
class Row:
    """A variant, or the frequency row, on one split."""

    variant: str
    split: str
    metrics: Metrics
    behind_full: tuple[float, float, float] | None  # its MRR less that of `full`, and its 95 % interval, paired

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "metrics": self.metrics.as_dict()}


@dataclass(frozen=True, eq=False)
class Result:
    """All that the study has found so far."""

    about: dict[str, Any]
    trainings: dict[str, Training]  # by variant, those that were begun
    histories: dict[str, History]
    rows: list[Row]  # of variants that are trained to the end
    frequency: Metrics  # on the questions of valid that the curves are of

    @property
    def finished(self) -> bool:
        return sum(training.finished for training in self.trainings.values()) == len(VARIANTS)

    def best(self, variant: str) -> tuple[float | None, int | None]:
        """The highest MRR while training, and its step."""
        history = self.histories.get(variant)
        if history is None or not len(history.mrr):
            return None, None
        step, mrr = history.mrr[history.mrr[:, 1].argmax()].tolist()
        return mrr, int(step)

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.about,
            "finished": self.finished,
            "variants": [
                {"variant": name, **asdict(training), **dict(zip(BEST, self.best(name), strict=True))}
                for name, training in self.trainings.items()
            ],
            "rows": [row.as_dict() for row in self.rows],
            "curves": {
                name: {
                    "signature": history.signature,
                    "step_mrr": [[int(step), mrr] for step, mrr in history.mrr.tolist()],
                    "iterations_begin": list(history.iterations),
                }
                for name, history in self.histories.items()
            },
            "curves_frequency": self.frequency.as_dict(),
        }


def result_of(study: Ablation, sample: int | None = None, progress: Progress | None = None) -> Result:
    """Valid of every finished variant, then test of every one; `sample` questions of each split, or all."""
    graph, train = study.graph, study.recipe.train
    done = [variant for variant in VARIANTS if study.finished(variant)]
    rows: list[Row] = []
    for split, filter_splits in SPLITS_KNOWN.items():
        if not done:
            break
        query_set = QuerySet.from_graph(graph, split, filter_splits=filter_splits, sample=sample, seed=train.seed)
        rows += _rows(study, done, query_set, progress)
    watched = QuerySet.from_graph(
        graph, "valid", filter_splits=SPLITS_KNOWN["valid"], sample=train.valid_queries, seed=train.seed
    )
    trainings = {variant.name: one for variant in VARIANTS if (one := study.training(variant)) is not None}
    begun = [variant for variant in VARIANTS if variant.name in trainings and trainings[variant.name].step]
    histories = {variant.name: read_history(study.run_folder(variant)) for variant in begun}
    return Result(study.about(), trainings, histories, rows, rank_by_frequency(graph, watched).metrics())


def _rows(study: Ablation, done: list[Variant], query_set: QuerySet, progress: Progress | None) -> list[Row]:
    rows: list[Row] = []
    full: dict[str, Score] = {}
    for variant in done:

        def tell(now: int, total: int, what: str = f"{variant.name} on {query_set.split}") -> None:
            if progress:
                progress(what, now, total)

        scores = scores_of(study.run_folder(variant), query_set, tell)
        for aggregate, score in scores.items():
            if variant is FULL:
                full[aggregate] = score
            behind = _difference(score, full[aggregate]) if variant is not FULL and full else None
            rows.append(Row(variant.name, query_set.split, score.metrics, behind))
    return [*rows, Row(FREQUENCY, query_set.split, rank_by_frequency(study.graph, query_set).metrics(), None)]


def _difference(score: Score, full: Score) -> tuple[float, float, float]:
    """Of the MRR, question by question, so that hard questions are hard for both."""
    each = 1 / score.ranks - 1 / full.ranks
    ((low, high),) = bootstrap(each[:, None])
    return float(each.mean()), low, high


# ------------------------------------------------------------------------------------------------- markdown


def markdown(result: Result) -> str:
    """The tables, and the signatures of their rows."""
    recipe = result.about["recipe"]
    seed, epochs = recipe["train"]["seed"], recipe["train"]["epochs"]
    of = f"Recipe {literal(recipe['name'])}, seed {seed}, n = {epochs} epochs."
    parts = [
        f"# Ablation on {literal(result.about['graph'])}\n",
        f"{of} {_BUDGETS[result.about['budget']]}\n",
        _training_table(result),
    ]
    if not result.finished:
        parts.append("**Not finished**: variants without figures below are still to be trained.\n")
    for split in SPLITS_KNOWN:
        own = [row for row in result.rows if row.split == split]
        if own:
            signatures = dict.fromkeys(str(row.metrics.signature) for row in own)  # variants share them
            parts += [f"## {split}\n", _figures_table(own), *map(code, signatures)]
    return "\n".join(parts)


_BUDGETS = {
    "steps": "Iterations train n / k epochs more on ever more paths; the variants without them train as many "
    "whole epochs as come nearest to the steps that full took (budget: steps).",
    "epochs": "All variants train n epochs, and full the n / k of its iterations besides, so the others have "
    "fewer steps (budget: epochs).",
}


def _training_table(result: Result) -> str:
    headings = ("variant", "epochs", "steps", "paths seen", "minutes", "best valid MRR while training", "at step")
    lines = []
    for name, training in result.trainings.items():
        mrr, step = result.best(name)
        epochs = f"{training.epochs}" if training.finished else f"{training.epoch} of {training.epochs}, stopped"
        counts = ["" if count is None else f"{count:,}" for count in (training.step, training.paths, step)]
        best = "" if mrr is None else f"{mrr:.3f}"
        lines.append((name, epochs, *counts[:2], f"{training.seconds / 60:.1f}", best, counts[2]))
    return table(headings, lines)


def _figures_table(rows: list[Row]) -> str:
    headings = ("variant", "ranked by", "MRR", "Hits@1", "Hits@3", "Hits@10", "MRR less that of full")
    lines = []
    for row in rows:
        behind = ""
        if row.behind_full is not None:
            mean, low, high = row.behind_full
            behind = f"{mean:+.3f} ({low:+.3f} – {high:+.3f})"
        by = row.metrics.signature.aggregation.removesuffix("+edge-ends")
        lines.append((row.variant, "" if by == "none" else by, *_with_intervals(row.metrics), behind))
    return table(headings, lines)


def _with_intervals(metrics: Metrics) -> list[str]:
    cells = []
    for name in NAMES:
        low, high = (metrics.intervals or {})[name]
        cells.append(f"{getattr(metrics, name):.3f} ({low:.3f} – {high:.3f})")
    return cells
