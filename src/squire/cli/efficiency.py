"""`squire study efficiency`: time, memory and quality against the size of a graph."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from squire.cli.console import errors, out, print_json, progress_bar
from squire.cli.data import AsJson, open_graph
from squire.cli.outputs import can_go_on, tell, write_json, write_text
from squire.core.interrupts import interruptions
from squire.core.locks import locked
from squire.errors import SettingError, SquireError
from squire.graph.graph import Graph
from squire.graph.statistics import Stats
from squire.model.recipe import Recipe, load_recipe, recipe_for

if TYPE_CHECKING:  # it would load torch
    from squire.studies.efficiency import Case, Limits

SYNTHETIC = "synthetic"
SYNTHETIC_RECIPE = "large"  # one for all sizes, so that these differ in size alone
EXAMPLES = """Examples:

squire study efficiency

squire study efficiency --synthetic 10000,100000,1000000 --minutes 5 --out studies/million

squire study efficiency FB15K237 --sizes 0.1,0.25,0.5,1 --out studies/fb15k237

Any of them again: goes on where it was, and skips what is measured. More sizes may be added."""


def efficiency(
    graphs: Annotated[
        list[str] | None, typer.Argument(metavar="[GRAPH]...", help="Graphs to take growing samples of.")
    ] = None,
    folder: Annotated[
        Path, typer.Option("--out", "--output", "-o", help="The study's folder, new or to go on with.")
    ] = Path("studies/efficiency"),
    sizes: Annotated[str, typer.Option(help="Shares of a graph's train facts.")] = "0.25,0.5,1",
    synthetic: Annotated[
        str | None, typer.Option(help="Facts of made graphs with planted rules, e.g. 10000,100000,1000000.")
    ] = None,
    recipe: Annotated[
        str, typer.Option(help="Of all sizes; auto: the one for the whole graph, large for made ones.")
    ] = "auto",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A key of the recipe, e.g. model.dim=64.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0, help="Of training for each size, at most.")] = 2.0,
    questions: Annotated[int, typer.Option(min=1, help="Of valid for each size, at most.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of samples, made graphs and training.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Time of each phase, memory and quality against the size of a graph (Figure 2, Tables 4 and 5).

    Without arguments: samples of the bundled graph world, and made graphs of 10⁴ and 10⁵ facts; a million with
    --synthetic 1000000. Writes efficiency.md, .json and .png. Stop at any time; run it again to go on.
    """
    if not graphs and synthetic is None:
        graphs, synthetic = ["world"], "10000,100000"
        errors.print("world, and made graphs of 10⁴ and 10⁵ facts; for more: --synthetic 10000,100000,1000000")
    wanted = _Wanted(folder, recipe, settings or [], minutes, questions, seed)
    with can_go_on(), locked(folder, doing="at a study"):
        # Imported late: torch takes a second that no other command should wait for.
        from squire.studies.efficiency_table import Row, markdown
        from squire.studies.pictures import draw_efficiency

        kinds: dict[str, list[Row]] = {}
        for kind, recipe_name, case in wanted.cases(graphs or [], sizes, synthetic or ""):
            if not case.done:
                _measure(case)
            kinds.setdefault(kind, []).append(Row.from_measurements(kind, recipe_name, case))
    rows = [row for own in kinds.values() for row in own]
    files = [folder / f"efficiency.{suffix}" for suffix in ("md", "json", "png")]
    write_text(files[0], markdown(rows))
    write_json(files[1], [row.as_dict() for row in rows])
    draw_efficiency(kinds, files[2])
    if as_json:
        print_json([row.as_dict() for row in rows])
    else:
        out.print(Text(markdown(rows)), soft_wrap=True)
    tell(*files)


def measure(folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Of a size.")]) -> None:
    """Measure one size of an efficiency study, in this process."""
    from squire.studies.efficiency import Case, warm_up

    with progress_bar(f"{folder.name}: warming up") as bar:
        warm_up()
        Case(folder).measure(lambda what, done, total: bar.stage(f"{folder.name}: {what}", done, total))


def _measure(case: Case) -> None:
    """In a process of its own, which goes on with what is noted, and notes what it measures."""
    command = [sys.executable, "-m", "squire", "study", "efficiency-measure", str(case.folder)]
    # The terminal tells it of Ctrl-C too; it must be waited for until it has saved.
    with interruptions(patient=True) as interrupted:
        code = subprocess.run(command, check=False).returncode
    if interrupted or code == 130:
        raise KeyboardInterrupt
    if code:
        killed = " It was killed; there may be too little memory." if code < 0 else ""
        raise SquireError(
            f"{case.folder}: measuring ended with code {code}.{killed} To do: mend what it says, then run the "
            "same command again; what is done is kept."
        )
    case.reload()


@dataclass(frozen=True)
class _Wanted:
    """What all sizes have in common."""

    folder: Path
    recipe: str
    settings: list[str]
    minutes: float
    questions: int
    seed: int

    def cases(self, graphs: list[str], sizes: str, synthetic: str) -> Iterator[tuple[str, str, Case]]:
        """Kind, recipe and case of each size, the smallest first."""
        from squire.studies.planted import planted_graph
        from squire.studies.sampling import grown_sample
        from squire.studies.subject import digest

        shares, edges = _numbers("--sizes", sizes, float), _numbers("--synthetic", synthetic, int)
        for source in graphs:
            graph = open_graph(source)
            chosen = self._recipe(recipe_for(Stats.from_graph(graph)))
            about = {"graph": graph.name, "facts": digest(graph)}
            for share in shares:
                sample = grown_sample(graph, share, self.seed)
                yield graph.name, chosen.name, self._case({**about, "share": share}, sample, chosen)
        for count in edges:
            chosen = self._recipe(SYNTHETIC_RECIPE)
            case = self._case({"planted": count}, planted_graph(count, self.seed), chosen)
            yield SYNTHETIC, chosen.name, case

    def _recipe(self, auto: str) -> Recipe:
        """Without iterations, as the paper's large graphs: they would hide how an epoch grows."""
        settings = [*self.settings, f"train.seed={self.seed}"]
        chosen = load_recipe(auto if self.recipe == "auto" else self.recipe, settings)
        return replace(chosen, train=replace(chosen.train, iterate=False))

    def _case(self, source: dict[str, Any], graph: Graph, recipe: Recipe) -> Case:
        from squire.studies.efficiency import Case

        name = re.sub(r"[^\w.%-]+", "_", graph.name)
        return Case.begun(self.folder / name, {**source, "seed": self.seed}, graph, recipe, self._limits)

    @property
    def _limits(self) -> Limits:
        from squire.studies.efficiency import Limits

        return Limits(self.minutes, self.questions)


def _numbers(option: str, text: str, kind: type[int] | type[float]) -> list[Any]:
    """`0.25,1` -> [0.25, 1.0], each once, the smallest first."""
    try:
        return sorted({kind(part) for part in text.split(",") if part.strip()})
    except ValueError:
        raise SettingError(f"{option} {text}: expected numbers with commas between them.") from None
