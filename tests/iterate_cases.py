"""Runs that train iteratively, small: for the tests of what is gathered and of whole runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_train import a_graph, a_recipe

from squire.core.run_files import tries_file
from squire.core.team import ALONE
from squire.model.transformer import Transformer
from squire.search.trained import new_model
from squire.training import iterative as iterate
from squire.training.iterative import PathCollection
from squire.training.preparation import prepare

KEPT: tuple[str, ...] = (
    "paths.per_triple=6",
    "paths.edge_weight=6",
    "paths.fresh=false",
    "train.fact_passes=0",
    "train.hold_back=false",
)
ITERATE = (*KEPT, "train.iterate=true", "train.epochs=2", "train.iterate_beam=4", "train.iterate_paths=3")
TWO = (*ITERATE, "train.epochs=1", "train.batch_nodes=512")  # fewer steps, since processes wait for each other
BLOCK = 16


def make_blocks_small(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(iterate, "BLOCK", BLOCK)
    patch.setattr(iterate, "HYPOTHESES_AT_ONCE", 24)  # 6 queries together


def silence(*_: object) -> None:
    pass


def never() -> bool:
    return False


def a_gathering(folder: Path, k: int, *overrides: str) -> PathCollection:
    """Of a run that is prepared."""
    graph, recipe = a_graph(), a_recipe(*ITERATE, *overrides)
    prepare(graph, recipe, folder, silence)
    return PathCollection(graph, recipe, folder, k, ALONE)


def a_model(gathering: PathCollection) -> Transformer:
    """With opinions: far from uniform, and others for each query."""
    torch.manual_seed(0)
    model = new_model(gathering.graph, gathering.recipe)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


def gathered(folder: Path, k: int = 2) -> bytes:
    return tries_file(folder, k).read_bytes()
