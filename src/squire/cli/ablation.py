"""`squire study ablation`: what iterative training and rules are worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from squire.cli.choices import DeviceOption
from squire.cli.console import errors, out, print_json, progress_bar
from squire.cli.data import AsJson, Source, open_graph
from squire.cli.outputs import can_go_on, tell, write_json, write_text
from squire.cli.training import training_bar
from squire.core.locks import locked
from squire.errors import SettingError
from squire.graph.graph import Graph
from squire.graph.statistics import Stats
from squire.model.recipe import Recipe, load_recipe, recipe_for

if TYPE_CHECKING:  # it would load torch
    from squire.studies.ablation import Ablation

EXAMPLES = """Examples:

squire study ablation world --set train.epochs=5 --out studies/ablation

squire study ablation NELL23K --recipe sparse --minutes 60 --out studies/nell23k

Both again: goes on where it was, and skips what is trained."""


Folder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "--output",
        "-o",
        help="The study's folder, new or to go on with; else studies/ablation-GRAPH.",
    ),
]


def ablation(
    source: Source,
    folder: Folder = None,
    recipe: Annotated[str, typer.Option(help="A recipe's name, a TOML file, or auto.")] = "auto",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A key of the recipe, for all variants, e.g. train.epochs=3.")
    ] = None,
    budget: Annotated[
        Literal["steps", "epochs"],
        typer.Option(
            help="steps: all variants as many as full, whose iterations add some; epochs: the recipe's, so the "
            "others have fewer steps."
        ),
    ] = "steps",
    minutes: Annotated[
        float | None, typer.Option(help="Put a variant down after so long; the same command goes on with it.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of training; else the recipe's.")] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Ask so many questions of valid and test only, drawn by the seed.")
    ] = None,
    device: DeviceOption = "auto",
    as_json: AsJson = False,
) -> None:
    """Train full, − iter and − iter − rule (Table 3), and compare them on valid and test.

    Writes ablation.md, ablation.json, and valid MRR over the steps as ablation.png (Figure 6). Stop at any time;
    run it again to go on.
    """
    graph = open_graph(source)
    chosen = _chosen(graph, recipe, settings or [], seed)
    folder = folder or Path("studies", f"ablation-{graph.name}")
    with can_go_on(), locked(folder, doing="at a study"):
        # Imported late: torch takes a second that no other command should wait for.
        from squire.studies.ablation import Ablation
        from squire.studies.ablation_table import markdown, result_of
        from squire.studies.pictures import draw_ablation

        study = Ablation(graph, chosen, folder, budget)
        _train(study, minutes, device)
        with progress_bar("evaluating") as bar:
            result = result_of(study, sample, bar.stage)
    files = [folder / f"ablation.{suffix}" for suffix in ("md", "json", "png")]
    write_text(files[0], markdown(result))
    write_json(files[1], result.as_dict())
    draw_ablation(result.histories, result.frequency, f"{graph.name}, recipe {chosen.name}: valid MRR", files[2])
    if as_json:
        print_json(result.as_dict())
    else:
        out.print(Text(markdown(result)), soft_wrap=True)
    tell(*files)
    if not result.finished:
        errors.print("[yellow]not all variants are trained:[/] the same command goes on with them")


def _train(study: Ablation, minutes: float | None, device: str) -> None:
    """What is not trained yet."""
    from squire.core.team import team
    from squire.studies.ablation import FULL, VARIANTS

    with team(device) as ours:
        if not ours.alone:
            raise SettingError("squire study ablation: runs in one process. To do: start it without torchrun.")
        for variant in VARIANTS:
            if study.finished(variant):
                continue
            if variant is not FULL and study.budget == "steps" and not study.finished(FULL):
                break  # how many steps it has is not known yet
            with progress_bar(f"{variant.name}: preparing") as bar:
                trainer = study.prepared(variant, bar.stage, ours)
            with training_bar(trainer, f"{variant.name}: ") as (watch, stage):
                study.train(variant, trainer, watch, minutes, stage)


def _chosen(graph: Graph, recipe: str, settings: list[str], seed: int | None) -> Recipe:
    from squire.studies.ablation import VARIED

    for setting in settings:
        if setting.partition("=")[0].strip() in VARIED:
            raise SettingError(f"--set {setting}: is what the study varies. To do: leave it out.")
    if seed is not None:
        settings = [*settings, f"train.seed={seed}"]
    return load_recipe(recipe_for(Stats.from_graph(graph)) if recipe == "auto" else recipe, settings)
