"""What iterative training and rules are worth (Table 3, Figure 6): three variants of a recipe, each its own run.

They are trained by the loop that trains every run, one after the other, below one folder; so each can be asked,
plotted and studied like any run. A journal there says what they are variants of, and which of them are done.

Iterations add epochs (Algorithm 1: n / k in the k-th) on ever more paths. So that a variant without them does not
lose by fewer steps alone, it gets as many as `full` took, in whole epochs (`steps`); with `epochs` all have the
recipe's n and nothing more, which is the algorithm without its loop.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from squire.core.files import replacing
from squire.core.locks import locked
from squire.core.run_files import LAST, RECIPE, RULES, TRIES, tries_file
from squire.core.team import ALONE, Team
from squire.errors import SettingError
from squire.graph.graph import SPLITS, Graph
from squire.model.recipe import Recipe
from squire.paths.tries import Tries
from squire.search.trained import load_settings, save_settings
from squire.studies.journal import Journal
from squire.studies.subject import digest, settings_of
from squire.training.preparation import Stage, prepare
from squire.training.trainer import Trainer, Watch

Budget = Literal["steps", "epochs"]
VARIED = ("train.iterate", "paths.rules")
JOURNAL = "ablation.jsonl"


def _silent(*_: object) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Variant:
    """One row of Table 3."""

    name: str
    folder: str
    iterate: bool
    rules: bool

    def applied_to(self, recipe: Recipe) -> Recipe:
        paths, train = replace(recipe.paths, rules=self.rules), replace(recipe.train, iterate=self.iterate)
        return replace(recipe, paths=paths, train=train)


FULL = Variant("full", "full", iterate=True, rules=True)
NO_ITER = Variant("− iter", "no-iter", iterate=False, rules=True)
NO_RULE = Variant("− iter − rule", "no-iter-no-rule", iterate=False, rules=False)
VARIANTS = (FULL, NO_ITER, NO_RULE)


@dataclass(frozen=True)
class Training:
    """How far a variant is trained."""

    epochs: int  # planned, of all iterations
    epoch: int
    step: int
    paths: int | None  # that it has seen, each as often as in its epochs; known at the end
    seconds: float  # validations and gathering included; without attempts that were killed
    finished: bool


class Ablation:
    """The three variants of a recipe on a graph; `folder` holds them and what is done."""

    def __init__(self, graph: Graph, recipe: Recipe, folder: Path, budget: Budget = "steps") -> None:
        if recipe.paths.hops < 2:
            raise SettingError("paths.hops is 1: there is nothing to iterate. To do: set it to 2 or more.")
        for split in SPLITS[1:]:
            if not len(graph.triples(split)):
                raise SettingError(f"{graph.name}: has no {split} facts, which the study asks for.")
        self.graph, self.recipe, self.folder, self.budget = graph, recipe, folder, budget
        settings = {key: value for key, value in settings_of(recipe).items() if key not in VARIED}
        header = {"study": "ablation", "graph": graph.name, "facts": digest(graph), "budget": budget, **settings}
        self._journal = Journal(folder / JOURNAL, header)

    def run_folder(self, variant: Variant) -> Path:
        return self.folder / variant.folder

    def training(self, variant: Variant) -> Training | None:
        """How far it is; None if it has not been trained yet."""
        own = [entry for entry in self._journal.entries if entry["variant"] == variant.name]
        if not own:
            return None
        last = {**own[-1], "seconds": sum(entry["seconds"] for entry in own)}
        del last["variant"]
        return Training(**last)

    def finished(self, variant: Variant) -> bool:
        training = self.training(variant)
        return training is not None and training.finished

    def prepared(self, variant: Variant, stage: Stage, team: Team = ALONE) -> Trainer:
        """Its training, new or where it was left."""
        if variant is not FULL and self.budget == "steps" and not self.finished(FULL):
            raise SettingError(f"{variant.name}: has as many steps as {FULL.name}, which is not trained yet.")
        folder = self.run_folder(variant)
        with locked(folder):
            if not (folder / RECIPE).exists():
                self._begin(variant, stage)
            graph, recipe = load_settings(folder)
            trainer = Trainer(graph, recipe, prepare(graph, recipe, folder, stage), folder, team)
            if any(folder.glob(f"{LAST}*.safetensors")):
                trainer.resume()
        return trainer

    def train(
        self,
        variant: Variant,
        trainer: Trainer,
        watch: Watch,
        minutes: float | None = None,
        stage: Stage = _silent,
    ) -> Training:
        """Go on to the end, or for so many minutes. Ctrl-C is raised when all is saved."""
        began = time.monotonic()
        with locked(self.run_folder(variant)):
            finished = trainer.fit(watch, minutes, stage)
        epochs, paths = trainer.phases[-1].last_epoch, _paths_seen(trainer) if finished else None
        done = Training(epochs, trainer.epoch, trainer.step, paths, time.monotonic() - began, finished)
        self._journal.append({"variant": variant.name, **asdict(done)})
        if trainer.interrupted:
            raise KeyboardInterrupt
        return done

    def _begin(self, variant: Variant, stage: Stage) -> None:
        """A run folder with its paths, then its recipe, which may depend on them."""
        folder, recipe = self.run_folder(variant), variant.applied_to(self.recipe)
        if variant is NO_ITER:  # the very rules and paths that `full` began with
            for name in (RULES, TRIES):
                if (source := self.run_folder(FULL) / name).exists():
                    with replacing(folder / name) as temporary:
                        shutil.copyfile(source, temporary)
        tries = prepare(self.graph, recipe, folder, stage)
        full = self.training(FULL)
        if variant is not FULL and self.budget == "steps" and full is not None:
            one = replace(recipe, train=replace(recipe.train, epochs=1))
            steps = Trainer(self.graph, one, tries, folder).total_steps
            recipe = replace(recipe, train=replace(recipe.train, epochs=max(1, round(full.step / steps))))
        save_settings(folder, self.graph, recipe)

    def about(self) -> dict[str, Any]:
        """What the figures are of, for JSON."""
        return {"graph": self.graph.name, "recipe": self.recipe.to_dict(), "budget": self.budget}


def _paths_seen(trainer: Trainer) -> int:
    """Of a run that is done: the paths of each iteration, as often as its epochs."""
    seen = 0
    for phase in trainer.phases:
        size = int(Tries.load(tries_file(trainer.folder, phase.iteration)).end.sum(dtype="int64"))
        seen += size * (phase.last_epoch - phase.first_epoch)
    return seen
