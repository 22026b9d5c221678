"""A tiny trained run for tests of the studies: trained once, for all of them."""

from __future__ import annotations

import atexit
import json
import tempfile
from functools import cache
from pathlib import Path

from graphs import LabelTriple, make_graph
from test_train import ignore
from typer.testing import CliRunner, Result

from squire.cli import app
from squire.core.run_files import BEST, GRAPH, RECIPE
from squire.graph.graph import Graph
from squire.model.recipe import load_recipe
from squire.reasoning.answers import Edge, Evidence
from squire.studies.questions import Question
from squire.training.preparation import prepare
from squire.training.trainer import Trainer

HOSTILE = "$a|b* <u>_"  # in Markdown, in HTML, in matplotlib
TINY = ["model.layers=2", "model.dim=32", "model.feedforward=32", "model.heads=2", "train.batch_nodes=256"]
TINY += ["model.dropout=0", "model.input_dropout=0", "model.output_dropout=0", "train.learning_rate=0.01"]
TINY += ["train.epochs=25", "decode.beam=16"]


def town() -> Graph:
    """Who lives in a city is from its country: some are left to be found. Friends nobody can guess."""
    people = [HOSTILE, *(f"p{i:02}" for i in range(1, 32))]
    cities = {f"c{i}": ("Northland", "Southland")[i % 2] for i in range(4)}
    train: list[LabelTriple] = [(city, "in", country) for city, country in cities.items()]
    held: list[LabelTriple] = []
    friends: list[LabelTriple] = []
    for i, person in enumerate(people):
        city = f"c{i * 7 % 4}"
        train.append((person, "lives in", city))
        (train if i % 3 else held).append((person, "from", cities[city]))
        (train if i % 5 else friends).append((person, "friend", people[i * 11 % 32]))
    return make_graph({"train": train, "valid": held[1::4], "test": held[::4] + held[2::4] + held[3::4] + friends})


@cache
def a_run() -> Path:
    """A run folder as `squire train` makes it."""
    home = tempfile.TemporaryDirectory()
    atexit.register(home.cleanup)
    folder, graph, recipe = Path(home.name), town(), load_recipe("small", TINY)
    graph.save(folder / GRAPH)
    (folder / RECIPE).write_text(json.dumps(recipe.to_dict()))
    Trainer(graph, recipe, prepare(graph, recipe, folder, lambda *_: None), folder).fit(ignore)
    for best in folder.glob(f"{BEST}*"):  # by three valid facts: chance. The last one has learned.
        best.unlink()
    return folder


def study(*arguments: object, said: str = "") -> Result:
    """What a `squire study` command does."""
    return CliRunner().invoke(app, ["study", *map(str, arguments)], input=said, env={"COLUMNS": "200"})


def a_path(
    *edges: tuple[str, str, str, bool], backwards: tuple[int, ...] = (), grade: str = "grounded"
) -> Evidence:
    """Edges as facts, each known or not."""
    steps = (Edge(h, r, t, i in backwards, known, 0.5) for i, (h, r, t, known) in enumerate(edges))
    return Evidence(tuple(steps), grade, 0.25, 0.5, None)


def a_question(name: str, grade: str | None, rank: float = 1.0) -> Question:
    """(name, grandparent, ?), answered by a path of this grade, or by none."""
    paths = {
        "grounded": [(name, "parent", "p", True), ("p", "parent", "g", True)],
        "completed": [(name, "parent", "p", True), ("p", "parent", "g", False)],
        "asserted": [(name, "grandparent", "g", False)],
    }
    return Question(name, "grandparent", "g", rank, a_path(*paths[grade], grade=grade) if grade else None)
