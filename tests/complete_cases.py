"""A run folder whose weights are random, and the command that completes its graph, for test_complete.py."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from graphs import LabelTriple, make_graph
from typer.testing import CliRunner, Result

from squire.cli import app
from squire.completion.jobs import Completion, Predictor
from squire.completion.questions import HeadQuestions
from squire.core.run_files import GRAPH, LAST, RECIPE, RULES_TEXT
from squire.core.tensors import save_checkpoint
from squire.graph.graph import Graph
from squire.model.recipe import load_recipe
from squire.ranking.context import Heads
from squire.reasoning.reasoner import Reasoner
from squire.search.trained import new_model

SMALL = ["model.layers=1", "model.dim=16", "model.feedforward=32", "model.heads=2", "decode.beam=8"]
SMALL += ["decode.aggregate=sum", "model.edge_rank=0"]
SMALL += ["model.prior=false"]  # it would decide all paths, where nothing was learned
ODD = ["New\tYork", "two\nlines", "back\\slash", "http://dbpedia.org/resource/Vienna", "_:blank", '"a literal"@en']
UNESCAPED = {"\\\\": "\\", "\\t": "\t", "\\n": "\n", "\\r": "\r"}
RULE = "10\t5\t0.5\tlikes(X,Y) <= knows(A,X), likes(A,Y)\n"


def facts() -> dict[str, set[LabelTriple]]:
    people = [f"p{i:02}" for i in range(14)] + ODD[:-1]  # a literal is no head
    size = len(people)
    train = {(people[i], "knows", people[(i * 3 + j) % size]) for i in range(size) for j in (1, 2)}
    train |= {(people[i], "likes", people[(i * 5 + 2) % size]) for i in range(0, size, 2)}
    train |= {(people[i], "http://xmlns.com/foaf/0.1/name", ODD[-1]) for i in range(4)}
    return {"train": train, "valid": {("p01", "likes", "p02")}, "test": {("p03", "likes", "p04")}}


def make_run(folder: Path, graph: Graph | None = None, seed: int = 0) -> Path:
    """A run folder as `squire train` leaves it; nothing was learned."""
    graph = graph or make_graph(facts())
    recipe = load_recipe("small", SMALL)
    folder.mkdir(parents=True)
    graph.save(folder / GRAPH)
    (folder / RECIPE).write_text(json.dumps(recipe.to_dict()))
    (folder / RULES_TEXT).write_text(RULE)
    torch.manual_seed(seed)
    model = new_model(graph, recipe)
    weights = {f"model.{name}": tensor.numpy() for name, tensor in model.state_dict().items()}
    save_checkpoint(folder, LAST, weights, {"step": 0})
    return folder


def a_reasoner(folder: Path) -> Reasoner:
    return Reasoner.load(folder)


def a_job(
    folder: Path, out: Path, wanted: dict[str, Any] | None = None, heads: Heads = "all", part: int = 8
) -> Completion:
    reasoner = a_reasoner(folder)
    questions = HeadQuestions(reasoner.run.facts, range(reasoner.graph.num_relations), heads)
    return Completion(Predictor(reasoner, reasoner.decoding(), **(wanted or {})), questions, out, part)


def finish(job: Completion) -> int:
    """The whole of it; gives the number of predictions."""
    with job.begun():
        assert job.work(lambda *_: None)
        return job.join()


def complete(*arguments: object) -> Result:
    """The command."""
    return CliRunner().invoke(app, ["complete", *map(str, arguments)])


def rows_of(file: Path) -> list[list[str]]:
    """Of a TSV file, unescaped."""
    lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    return [
        [re.sub(r"\\[\\tnr]", lambda found: UNESCAPED[found[0]], cell) for cell in line.split("\t")]
        for line in lines
    ]
