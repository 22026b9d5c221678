"""Tiny trained runs, each trained once for all tests that ask for it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from graphs import LabelTriple, facts_of, make_graph
from typer.testing import CliRunner

from squire.cli import app
from squire.graph.graph import Graph
from squire.ranking.calibration import Calibration, Calibrations
from squire.ranking.fusion import KINDS, FusionOptions, fit_fusion
from squire.ranking.fusion_file import save_fusion
from squire.ranking.networks import NetworkOptions

# One name must be escaped on a page, one relation is shown shortened.
HOSTILE, PARENT = "<script>alert(1)</script>", "http://example.org/parent"
PREFIXES = {"ex": "http://example.org/"}
TINY = ["model.layers=1", "model.dim=16", "model.feedforward=32", "model.heads=2", "train.batch_nodes=256"]
TINY += ["model.dropout=0", "model.input_dropout=0", "model.output_dropout=0", "train.learning_rate=0.01"]
TINY += ["decode.beam=16", "decode.prune=0", 'decode.aggregate="sum"']
KEPT = [
    "paths.per_triple=6",
    "paths.edge_weight=6",
    "paths.fresh=false",
    "train.fact_passes=0",
    "model.edge_rank=0",
    "train.hold_back=false",
]


def family(*, valid: bool = True) -> Graph:
    """Grandparents are parents of parents; some are left to be found."""
    names = ["ada", "ben", "cleo", "dan", "eve", "finn", "gus", "hal", HOSTILE]
    train: list[LabelTriple] = []
    held: list[LabelTriple] = []
    for i, name in enumerate(names):
        first, second, third = (name if generation == 0 else f"{name} {generation}" for generation in range(3))
        train += [(first, PARENT, second), (second, PARENT, third), (first, "likes", names[(i + 1) % len(names)])]
        train += [(third, "likes", second)]
        (held if i % 3 == 2 else train).append((first, "grandparent", third))
    splits = {"train": train, "valid": held[:1] if valid else [], "test": held[1:] if valid else held}
    return make_graph(splits, PREFIXES)


@cache
def small_run(*settings: str, valid: bool = True) -> Path:
    """A run folder, as `squire train` makes it; `settings` as for --set."""
    home = tempfile.TemporaryDirectory()
    atexit.register(home.cleanup)
    folder = Path(home.name)
    family(valid=valid).save(folder / "family.graph")
    overrides = [*TINY, *KEPT, "train.epochs=60", *settings]
    command = [
        "train",
        str(folder / "family.graph"),
        "--out",
        str(folder / "run"),
        "--recipe",
        "small",
        "--no-fuse",
    ]
    done = CliRunner().invoke(app, [*command, *(part for key in overrides for part in ("--set", key))])
    assert done.exit_code == 0, done.output
    return folder / "run"


def copy_of_run(folder: Path, *settings: str) -> Path:
    """One's own, as training left it: whoever evaluates the run that all share leaves figures in it."""
    shutil.copytree(small_run(*settings), folder, ignore=shutil.ignore_patterns("evaluation-*"))
    return folder


@cache
def fused_run() -> Path:
    """The small run with a fusion beside the model. One valid fact calibrates nothing, so it is made up."""
    folder = copy_of_run(small_run().parent / "fused")
    calibration = Calibration(np.linspace(0, 1, 21), np.linspace(0, 0.95, 21), np.full(21, 100.0))
    made_up = Calibrations((calibration,) * KINDS)
    options = FusionOptions(folds=2, ranker=NetworkOptions(epochs=20))  # there are few lists to learn from
    save_fusion(replace(fit_fusion(family(), options), calibration=made_up), folder)
    return folder


def known_facts() -> set[LabelTriple]:
    """Of all splits: what answers rest on."""
    return facts_of(family())
