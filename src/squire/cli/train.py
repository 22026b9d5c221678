"""`squire train`: a graph and a recipe in, a run folder out. Under torchrun several processes do it together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from squire.cli.choices import DeviceOption
from squire.cli.console import errors, progress_bar, silent
from squire.cli.data import Source
from squire.cli.training import training_bar, which_iteration
from squire.core.processes import locked
from squire.core.run_files import GRAPH, LAST, LOCK, RECIPE
from squire.errors import SettingError
from squire.graph.loading import load_graph
from squire.graph.statistics import Stats
from squire.model.recipe import load_recipe, recipe_for


def train(
    source: Source,
    out: Annotated[Path, typer.Option("--out", help="The run folder to make, or to go on with.")],
    recipe: Annotated[str, typer.Option(help="A recipe's name, a TOML file, or auto.")] = "auto",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A key of the recipe, e.g. train.epochs=3.")
    ] = None,
    rules: Annotated[Path | None, typer.Option(help="A rule file; by default rules are mined.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after so long; --resume goes on.")] = None,
    device: DeviceOption = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
) -> None:
    """Train a model. Ctrl-C saves and tells how to go on; so does --minutes."""
    # Imported late: torch takes a second that no other command should wait for.
    from squire.core.team import team
    from squire.model.recipe import load_settings
    from squire.training.preparation import prepare
    from squire.training.trainer import Trainer

    with team(device) as ours, silent(not ours.leads), ExitStack() as while_training:
        with ours.leader_first():
            if ours.leads:
                begin = _going_on(out) if resume else _begun(source, out, recipe, settings or [])
                while_training.enter_context(begin)
            graph, chosen = load_settings(out)
            with progress_bar("preparing") as bar:
                tries = prepare(graph, chosen, out, bar.stage, rules)
            # The last one, or the one before it: whichever is there is the run.
            is_saved = any(out.glob(f"{LAST}*.safetensors"))
        trainer = Trainer(graph, chosen, tries, out, ours)
        if is_saved and (warning := trainer.resume().warning):
            errors.print(f"[yellow]{warning}[/]", soft_wrap=True)
        with training_bar(trainer) as (watch, stage):
            done = trainer.fit(watch, minutes, stage)
        if done:
            best = "" if trainer.best_mrr is None else f", best valid MRR {trainer.best_mrr:.3f}"
            errors.print(f"trained: {out}{best}", highlight=False, soft_wrap=True)
        else:
            where = which_iteration(trainer.phase.iteration, len(trainer.phases))
            errors.print(
                f"{where}stopped at step {trainer.step:,} of {trainer.total_steps:,}, saved.", highlight=False
            )
            errors.print(f"To go on: squire train {source} --out {out} --resume", highlight=False, soft_wrap=True)


@contextmanager
def _begun(source: str, out: Path, recipe: str, settings: list[str]) -> Iterator[None]:
    """A new run folder that is complete in itself, and ours."""
    if out.exists() and any(file.name != LOCK for file in out.iterdir()):
        raise SettingError(f"--out {out}: not empty. To do: choose another folder, or --resume.")
    from squire.model.recipe import save_settings  # late, see above

    graph = load_graph(source)
    chosen = load_recipe(recipe_for(Stats.from_graph(graph)) if recipe == "auto" else recipe, settings)
    with locked(out):
        save_settings(out, graph, chosen)
        errors.print(f"recipe {chosen.name}: {chosen.about}", highlight=False, soft_wrap=True)
        yield


@contextmanager
def _going_on(out: Path) -> Iterator[None]:
    """The folder of a run that was begun, and ours."""
    if not (out / GRAPH).exists() or not (out / RECIPE).exists():
        raise SettingError(f"--out {out}: no run to resume. To do: leave out --resume to begin one.")
    with locked(out):
        yield
