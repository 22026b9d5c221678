"""The whole of `squire train` on a run folder: settings, fusion, training data, model."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from squire.core.parallel import agreed, is_leader
from squire.core.processes import locked, machine_memory
from squire.core.progress import Progress, ProgressBar, no_progress, progress_bar
from squire.core.run_files import FUSION, GRAPH, LAST, LOCK, check_run
from squire.core.team import team
from squire.errors import SettingError
from squire.evaluation.baselines import rank_by_frequency
from squire.evaluation.fused import rank_by_fusion
from squire.evaluation.queries import QuerySet
from squire.graph.graph import Graph
from squire.model.recipe import ModelConfig, Recipe, load_settings, save_settings
from squire.model.vocabulary import Vocabulary
from squire.ranking.edge_features import EdgeScorer
from squire.ranking.fusion import Fusion, FusionOptions, add_edges, fit_fusion
from squire.ranking.fusion_file import has_fusion, load_fusion, save_fusion
from squire.rules.mining import mining_folder, mining_of
from squire.rules.rules import Rules
from squire.search.trained import seen_graph
from squire.training.changes import learn_changes
from squire.training.edges import EdgeFit, pass_operations, with_best_penalty
from squire.training.preparation import prepare
from squire.training.trainer import OnStep, Trainer, TrainingState

logger = logging.getLogger(__name__)
QUALITY_QUERIES = 1000  # of valid, ranked after fusing
# Edge embeddings while fusing: the most operations, about two minutes of two cores; fewer passes are not worth it;
# and their share of a time limit.
EDGE_OPERATIONS, FEWEST_PASSES, EDGE_SHARE = 9e12, 2, 0.25
BYTES_PER_PARAMETER = 16  # weight, gradient and two moments of Adam, in 32 bits


# ------------------------------------------------------------------------------------------------- the run folder


@contextmanager
def new_run(folder: Path, graph: Graph, recipe: Recipe) -> Iterator[None]:
    """Create a run folder with everything a run needs, locked for the duration of the body."""
    if folder.exists() and any(file.name != LOCK for file in folder.iterdir()):
        raise SettingError(f"{folder}: not empty. Choose another folder, or resume the run in it.")
    _check_size(graph, recipe.model)
    with locked(folder):
        save_settings(folder, graph, recipe)
        yield


def _check_size(graph: Graph, config: ModelConfig) -> None:
    """Raise SettingError if this machine cannot hold what training needs at least."""
    parameters = config.num_parameters(len(Vocabulary(graph.num_entities, graph.num_relations)))
    needed, there = parameters * BYTES_PER_PARAMETER / 1e9, machine_memory() / 1e9
    if needed > there:
        raise SettingError(
            f"model.dim is {config.dim}, model.layers is {config.layers}, model.feedforward is "
            f"{config.feedforward}: to train {parameters:,} parameters takes at least {needed:,.0f} GB of memory, "
            f"this machine has {there:,.0f} GB. Lower these settings."
        )


@contextmanager
def existing_run(folder: Path, graph: Graph | None = None) -> Iterator[None]:
    """Open the folder of a run, locked for the duration of the body. A graph, if given, must be the run's."""
    check_run(folder)
    with locked(folder):
        if graph is not None and graph != Graph.load(folder / GRAPH):
            raise SettingError(f"{folder}: a run on another graph. Resume it without naming a graph.")
        yield


@contextmanager
def resumed_run(folder: Path, graph: Graph | None = None) -> Iterator[None]:
    """The same, to train on: facts that were added or removed since are now part of the graph."""
    with existing_run(folder, graph):
        learn_changes(folder)
        yield


# ------------------------------------------------------------------------------------------------- the fusion


def fuse_run(
    folder: Path, options: FusionOptions | None = None, progress: Progress = no_progress, *, edges: bool = True
) -> Fusion:
    """Fit the fusion of a run and save it in the run folder. The caller holds the lock.

    edges: also fit edge embeddings, if the recipe has any and holds facts back from them.
    """
    graph, recipe = load_settings(folder)
    options, began, scorer = options or FusionOptions(), time.monotonic(), None
    if edges and recipe.model.edge_rank and recipe.train.hold_back:
        ends = math.inf if options.minutes is None else began + 60 * EDGE_SHARE * options.minutes
        if is_leader():
            _fit_edges(folder, graph, recipe, ends, progress)
        agreed(None)  # the others wait for its file
        scorer = EdgeScorer.load(folder)
    if options.minutes is not None:
        options = replace(options, minutes=agreed(max(options.minutes - (time.monotonic() - began) / 60, 1e-3)))
    done = mining_of(folder / FUSION, graph.train, options.mining)
    fusion = fit_fusion(graph, options, progress, done, scorer, recipe.train.seed)
    if is_leader():
        save_fusion(fusion, folder)
    info = fusion.info
    if info.complete:
        done.remove()
    logger.info(
        "fused: learned from %s of %s questions about hidden train facts, in %d of %d parts",
        f"{info.lists:,}", f"{info.queries:,}", info.folds_used, info.folds,
    )  # fmt: skip
    if info.unlinked:
        logger.info("no valid pair has an edge in train, so linked pairs are neither asked about nor proposed")
    _tell_weights(fusion)
    return fusion


def is_unfinished(folder: Path) -> bool:
    """Whether a time limit or Ctrl-C has ended the fitting of a run's fusion, so that it can go on."""
    return mining_folder(folder / FUSION).exists()


def _fit_edges(folder: Path, graph: Graph, recipe: Recipe, ends: float, progress: Progress) -> None:
    """Fit edge embeddings as far as they are cheap; training a model makes the other passes.

    Limited by operations rather than time, so that the result is the same on every machine.
    """
    facts = seen_graph(graph, recipe).train
    passes = int(EDGE_OPERATIONS / pass_operations(facts, recipe))
    if passes < FEWEST_PASSES:
        logger.info("edge embeddings would take long on so large a graph, so they are left to training a model")
        return
    if math.isinf(ends):  # with a time limit the penalty is that of the recipe
        recipe = with_best_penalty(graph, facts, recipe, folder, progress, lambda: False) or recipe
    EdgeFit(graph, facts, recipe, folder).fit(progress, lambda: time.monotonic() >= ends, passes)


def weigh_edges(folder: Path, progress: Progress = no_progress) -> Fusion | None:
    """Add the edge embeddings of a run to its fusion, and save it; None if there is nothing to do."""
    graph, recipe = load_settings(folder)
    if not recipe.train.hold_back or not has_fusion(folder):
        return None
    scorer, fusion = EdgeScorer.load(folder), load_fusion(folder, graph)
    if scorer is None or (fusion.pool and fusion.pool.scorer.fingerprint == scorer.fingerprint):
        return None
    weighed = add_edges(fusion, graph, scorer, recipe.train.seed, progress)
    if weighed is fusion:
        return None
    if is_leader():
        save_fusion(weighed, folder)
    _tell_weights(weighed)
    return weighed


def _tell_weights(fusion: Fusion) -> None:
    if fusion.pool:
        own, (weight,) = fusion.pool.own, fusion.pool.weights
        logger.info("the fusion uses edge embeddings; weights: symbolic score %.2f, embeddings %.2f", own, weight)


# ------------------------------------------------------------------------------------------------- the model


@dataclass(frozen=True)
class TrainingOptions:
    """Which parts of a run to make, and how long to train the model."""

    rules: Rules | None = None  # that guide path sampling; by default they are mined
    minutes: float | None = None  # time limit for training the model
    device: str = "auto"
    fuse: bool = True
    model: bool = True
    show_progress: bool = True
    fusion: FusionOptions = field(default_factory=FusionOptions)

    def __post_init__(self) -> None:
        if self.minutes is not None and not (math.isfinite(self.minutes) and self.minutes >= 0):
            raise SettingError(f"minutes={self.minutes}: expected a number of minutes, 0 or more.")


@dataclass(frozen=True)
class Outcome:
    """How a call of `train_run` ended."""

    finished: bool
    interrupted: bool  # by Ctrl-C
    message: str


def train_run(
    folder: Path, open_folder: Callable[[], AbstractContextManager[None]], options: TrainingOptions
) -> Outcome:
    """Make what a run lacks: the fusion, then training data and model. Under torchrun all processes call it.

    `open_folder` creates or opens the run folder and holds its lock; only the leader calls it.
    """
    with team(options.device) as ours, ExitStack() as stack:
        show, rules = options.show_progress and ours.leads, options.rules
        with ours.leader_first():
            if ours.leads:
                stack.enter_context(open_folder())
                fusion = None
                # A fusion that ran out of time goes on, unless the time is for the model.
                if options.fuse and not (has_fusion(folder) and (options.model or not is_unfinished(folder))):
                    fusion = _try_to_fuse(folder, options.fusion, show)
            if not options.model:
                return Outcome(not (options.fuse and is_unfinished(folder)), False, "")
            graph, recipe = load_settings(folder)
            if ours.leads and rules is None and fusion and not recipe.train.hold_back:  # mined already
                mined = fusion.features.rules
                rules = mined.take(mined.is_closed)
            with progress_bar("preparing", show) as bar:
                tries = prepare(graph, recipe, folder, bar.stage, rules)
            is_saved = any(folder.glob(f"{LAST}*.safetensors"))
        trainer = Trainer(graph, recipe, tries, folder, ours)
        if is_saved and (warning := trainer.resume().warning) and ours.leads:
            logger.warning(warning)
        with progress_bar("training", show) as bar:
            finished = trainer.fit(_show_steps(bar, len(trainer.phases)), options.minutes, bar.stage)
        if ours.leads and options.fuse and not trainer.interrupted:
            with progress_bar("weighing edge embeddings", show) as bar:
                weigh_edges(folder, progress=bar.stage)
        outcome = Outcome(finished, trainer.interrupted and not ours.launched, _summary(trainer, finished))
        if ours.leads and not outcome.interrupted:
            logger.info(outcome.message)
        return outcome


def _try_to_fuse(folder: Path, options: FusionOptions, show: bool) -> Fusion | None:
    """Fit the fusion; a graph too small for one is trained without."""
    with progress_bar("fusing", show) as bar:
        try:
            fusion = fuse_run(folder, options, bar.stage)
        except SettingError as error:
            logger.warning("%s Answers will be ranked by paths.", error)
            return None
        _tell_quality(fusion, load_settings(folder)[0])
    logger.info("%s can answer now", folder)
    return fusion


def _tell_quality(fusion: Fusion, graph: Graph) -> None:
    """Say in one line how well held-out facts are ranked; they are known when a person asks."""
    if not len(graph.valid):
        return
    asked = QuerySet.from_graph(graph, "valid", sample=QUALITY_QUERIES)
    own, frequency = rank_by_fusion(fusion, graph, asked).ranking, rank_by_frequency(graph, asked)
    mrr, baseline = (ranks.metrics(intervals=False).mrr for ranks in (own, frequency))
    logger.info("held-out facts are ranked with an MRR of %.3f; by frequency alone it is %.3f", mrr, baseline)


def _show_steps(bar: ProgressBar, iterations: int) -> OnStep:
    def show(now: TrainingState) -> None:
        mrr = "–" if now.valid_mrr is None else f"{now.valid_mrr:.3f}"
        numbers = f"loss {now.loss:.3f}, {now.nodes_per_second:,.0f} nodes/s, MRR {mrr}"
        title = f"{_iteration(now.iteration, iterations)}epoch {now.epoch + 1}"
        bar.stage(title, now.step, now.total_steps, numbers)

    return show


def _summary(trainer: Trainer, finished: bool) -> str:
    if finished:
        best = "" if trainer.best_mrr is None else f", best valid MRR {trainer.best_mrr:.3f}"
        return f"trained: {trainer.folder}{best}"
    where = _iteration(trainer.phase.iteration, len(trainer.phases))
    return f"{where}stopped at step {trainer.step:,} of {trainer.total_steps:,}, saved."


def _iteration(number: int, count: int) -> str:
    """Named only where there are several."""
    return f"iteration {number} of {count}, " if count > 1 else ""
