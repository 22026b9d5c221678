"""The documentation is true: its Python blocks, its `squire` commands and the examples of docstrings are run.

A page is run from top to bottom in a folder of its own, with a small run, `runs/demo`, and the files that pages
mention. `<!-- skip: reason -->` before a block leaves it out. Training is as short as it can be.
"""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_run import TINY
from typer.testing import CliRunner

import squire
from squire.cli import app
from squire.evaluation import report
from squire.graph.graph import Graph
from squire.model import recipe
from squire.ranking import fusion
from squire.ranking.networks import NetworkOptions
from squire.training import pipeline

HOME = Path(__file__).resolve().parents[1]
UNRUN = {"LOG.md", "cli.md"}  # a record of past commands; a list of all options
PAGES = [HOME / "README.md", *(page for page in sorted(HOME.glob("docs/**/*.md")) if page.name not in UNRUN)]
BLOCK = re.compile(
    r"(?P<skip><!-- skip:[^\n]*-->\n)?^```(?P<kind>python|console)\n(?P<text>.*?)^```$", re.M | re.S
)
SHORT = ["train.epochs=1", "train.edge_passes=1", "train.valid_queries=20", "train.batch_nodes=2000"]
CITIES = """@prefix ex: <http://example.org/> .
ex:Vienna ex:country ex:Austria ; ex:river ex:Danube .
ex:Linz ex:country ex:Austria ; ex:river ex:Danube .
ex:Graz ex:country ex:Austria ; ex:river ex:Mur .
ex:Passau ex:country ex:Germany ; ex:river ex:Danube .
ex:Ulm ex:country ex:Germany ; ex:river ex:Danube .
"""


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Recipes are tiny with one epoch, the fusion learns from few queries, and little evidence is graded."""
    load, fit = recipe.load_recipe, fusion.fit_fusion
    once = NetworkOptions(width=8, relation_width=4, epochs=1, batch_size=256)

    def tiny(name: Any, overrides: Any = ()) -> recipe.Recipe:
        return load(name, [*TINY, *SHORT, *overrides])

    def small(graph: Graph, options: Any = None, *more: Any, **others: Any) -> fusion.Fusion:
        options = replace(options or fusion.FusionOptions(), folds=3, ranker=once, confidence=once)
        return fit(graph, options, *more, **others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "load_recipe", tiny)
        patch.setattr(pipeline, "fit_fusion", small)
        for name in ("TRAINING_QUERIES", "QUESTIONS", "CALIBRATION_QUERIES"):
            patch.setattr(fusion, name, 500)
        patch.setattr(report, "EVIDENCE_QUERIES", 5)
        yield


@pytest.fixture(scope="module")
def world_run(quick: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return squire.train("world", tmp_path_factory.mktemp("runs") / "world", progress=False).folder


@pytest.fixture
def folder(world_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with what pages and docstrings mention."""
    monkeypatch.chdir(tmp_path)
    for name in ("demo", "world"):
        shutil.copytree(world_run, tmp_path / "runs" / name)
    shutil.copytree(HOME / "src" / "squire" / "data" / "world", tmp_path / "world")
    facts = near("Austria", (tmp_path / "world" / "train.tsv").read_text(encoding="utf-8").splitlines())
    (tmp_path / "my-graph.tsv").write_text("".join(f"{fact}\n" for fact in facts), encoding="utf-8")
    rows = ['"{0}","{2}","{1}"\n'.format(*fact.split("\t")) for fact in facts]
    (tmp_path / "facts.csv").write_text("".join(rows), encoding="utf-8")
    (tmp_path / "cities.ttl").write_text(CITIES, encoding="utf-8")
    return tmp_path


def near(start: str, facts: list[str]) -> list[str]:
    """The facts among entities that are at most two steps away, which are a quarter of all."""
    found, ends = {start}, [{fact.split("\t")[0], fact.split("\t")[2]} for fact in facts]
    for _ in range(2):
        found = found.union(*(both for both in ends if both & found))
    return [fact for fact, both in zip(facts, ends, strict=True) if both <= found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(HOME).as_posix())
def test_a_page_runs(page: Path, folder: Path) -> None:
    blocks = [found for found in BLOCK.finditer(page.read_text(encoding="utf-8")) if not found["skip"]]
    remove_made_runs(folder, "".join(block["text"] for block in blocks))
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        if block["kind"] == "python":
            exec(compile(block["text"], str(page), "exec"), names)
        else:
            for line in re.findall(r"^\$ squire (.*)$", block["text"], re.M):
                done = CliRunner().invoke(app, shlex.split(line, comments=True))
                assert done.exit_code == 0, f"squire {line}\n{done.output}\n{done.exception!r}"


class Lenient(doctest.OutputChecker):
    """An example without output may print anything."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


@pytest.mark.parametrize("name", squire.__all__)
def test_the_examples_of_a_public_name_run(name: str, folder: Path) -> None:
    public = getattr(squire, name)
    remove_made_runs(folder, public.__doc__ or "")
    runner = doctest.DocTestRunner(Lenient(), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    names = {"squire": squire, **{name: getattr(squire, name) for name in squire.__all__}}
    for example in doctest.DocTestFinder().find(public, name, module=False, globs=names):
        assert runner.run(example, clear_globs=False).failed == 0, example.name


def remove_made_runs(folder: Path, text: str) -> None:
    """Runs that a text trains must not be there before."""
    for made in re.findall(r"(?:--out |train\(.*\")(runs/\w+)", text):
        shutil.rmtree(folder / made, ignore_errors=True)
