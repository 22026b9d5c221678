"""`squire fuse`: fit the ranker over all evidence, and say what it is worth on valid."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from squire.cli.console import errors, out, progress_bar
from squire.cli.data import Source
from squire.cli.tables import print_metrics
from squire.core.processes import locked
from squire.core.run_files import GRAPH
from squire.errors import SettingError
from squire.evaluation.baselines import rank_by_frequency, rank_by_rules
from squire.evaluation.queries import QuerySet
from squire.graph.graph import Graph
from squire.graph.loading import load_graph

if TYPE_CHECKING:
    from squire.ranking.fusion import FusionInfo


def fuse(
    source: Source,
    folder: Annotated[
        Path, typer.Option("--out", help="A run folder of 'squire train' on this graph, or a new folder.")
    ],
    folds: Annotated[
        int | None, typer.Option(min=2, help="Parts into which train is divided: 20, with --paths 5.")
    ] = None,
    paths: Annotated[
        bool,
        typer.Option(
            "--paths",
            help="Also weigh what the run's model says. For each hidden part a model is trained without it, each "
            "as long as the run's own.",
        ),
    ] = False,
    names: Annotated[
        bool, typer.Option("--names/--no-names", help="Words that the names of entities share are evidence.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0, help="Of the hidden parts and of the ranker.")] = 0,
) -> None:
    """Fit a ranker that weighs rules, frequency, similar entities, connections and names together."""
    # Imported late: torch takes a second that no other command should wait for.
    from squire.evaluation.fused import rank_by_fusion
    from squire.model.recipe import has_model
    from squire.ranking.features import MakeScorers, no_scorers
    from squire.ranking.folds import FEW_FOLDS, FOLDS
    from squire.ranking.fusion import FusionOptions, fit_fusion, save_fusion
    from squire.rules.application import RuleEngine
    from squire.search.trained import TrainedModel
    from squire.training.shadow import shadow_scorers

    graph = load_graph(source)
    began = time.perf_counter()
    with locked(folder), progress_bar("fusing") as bar:
        _check_folder(folder, graph)
        scorers: MakeScorers = no_scorers
        if paths:
            if not has_model(folder):
                raise SettingError(
                    f"--paths: {folder} has no model. To do: 'squire train {source} --out {folder}'."
                )
            run = TrainedModel.load(folder)
            graph, scorers = run.graph, shadow_scorers(run, bar.stage)
        folds = folds or (FEW_FOLDS if paths else FOLDS)
        fusion = fit_fusion(graph, FusionOptions(seed, folds, names), scorers, bar.stage)
        if not (folder / GRAPH).exists():
            graph.save(folder / GRAPH)
        file = save_fusion(fusion, folder)
        seconds = time.perf_counter() - began
        if len(graph.valid):
            query_set = QuerySet.from_graph(graph, "valid")
            fused = rank_by_fusion(fusion, graph, query_set, lambda done, total: bar.stage("valid", done, total))
            engine = RuleEngine(fusion.features.rules, graph.train)
            rules = rank_by_rules(
                graph, query_set, engine, progress=lambda done, all: bar.stage("rules", done, all)
            )
            rows = [fused.ranking.metrics(), rules.metrics(), rank_by_frequency(graph, query_set).metrics()]
    if len(graph.valid):
        print_metrics(rows, f"{graph.name}, valid, tail")
    _print_info(fusion.info)
    errors.print(f"fused in {seconds:.0f} s: {file}", highlight=False, soft_wrap=True)


def _print_info(info: FusionInfo) -> None:
    out.print(
        f"Learned from {info.lists:,} of {info.queries:,} questions about hidden train facts, in "
        f"{info.folds_used} of {info.folds} parts.",
        highlight=False,
    )
    if info.unlinked:
        out.print("No valid pair has an edge in train, so linked pairs are neither asked about nor proposed.")


def _check_folder(folder: Path, graph: Graph) -> None:
    """A run folder has its own graph, whose ids must be ours."""
    if (folder / GRAPH).exists() and Graph.load(folder / GRAPH) != graph:
        raise SettingError(
            f"--out {folder}: holds another graph. To do: choose another folder, or fuse {folder / GRAPH}."
        )
