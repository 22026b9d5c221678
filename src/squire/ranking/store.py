"""A fusion as one file of a run folder: weights, rules and calibration as tensors, how it was made as JSON.

The graph is not in it, only a checksum of the edges and words that it was fitted on: rules and weights speak
of ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from squire.core.run_files import FUSION
from squire.core.tensors import TensorFile, load_checkpoint, save_checkpoint
from squire.errors import CheckpointError
from squire.graph.adjacency import Adjacency
from squire.graph.graph import Graph
from squire.ranking._features import Profile
from squire.ranking.calibration import Calibration, Calibrations
from squire.ranking.features import CandidateFeatures, Scorer
from squire.ranking.fusion import KINDS, About, Fusion, words_for
from squire.ranking.ranker import Ranker, RankerOptions
from squire.rules.rules import Rules

FILE_VERSION = 3


def save_fusion(fusion: Fusion, folder: Path) -> Path:
    """Write it, whole or not at all."""
    rules = fusion.evidence.rules
    arrays = {f"rules.{column.name}": getattr(rules, column.name) for column in fields(Rules)[1:]}
    for kind, own in enumerate(fusion.calibration.maps):
        arrays |= {f"calibration{kind}.{column.name}": getattr(own, column.name) for column in fields(Calibration)}
    arrays |= {f"ranker.{name}": tensor.detach().numpy() for name, tensor in fusion.ranker.tensors().items()}
    state: dict[str, Any] = {
        "fusion": FILE_VERSION,
        "features": [feature.name for feature in fusion.evidence.table],
        "ranker": asdict(fusion.ranker.options),
        "about": asdict(fusion.about),
        "graph_sha256": _checksum(fusion.evidence.adjacency, fusion.evidence.words),
    }
    return save_checkpoint(folder, FUSION, arrays, state)


def load_fusion(folder: Path, graph: Graph, scorers: Sequence[Scorer] = ()) -> Fusion:
    """Inverse of `save_fusion`, given the graph, and models that it may have been fitted with."""
    checkpoint = load_checkpoint(folder, FUSION)
    columns = set(checkpoint.state.get("features", ()))
    scorers = [scorer for scorer in scorers if columns.issuperset(row.name for row in scorer.table)]
    try:
        _check_version(checkpoint)
        about = About(**checkpoint.state["about"])
        words = words_for(graph, about.names)
        if checkpoint.state["graph_sha256"] != _checksum(graph.train, words):
            raise CheckpointError("fitted on another graph: the train facts or the names are not the same.")
        rules = Rules(graph.num_relations, *_arrays(checkpoint.part("rules."), Rules, 1))
        evidence = CandidateFeatures(graph.train, rules, about.unlinked, scorers, words)
        names = [feature.name for feature in evidence.table]
        if checkpoint.state["features"] != names:
            raise CheckpointError(f"fitted on other features: {_difference(checkpoint.state['features'], names)}")
        options = RankerOptions(**checkpoint.state["ranker"])
        fitted = {name: torch.from_numpy(array) for name, array in checkpoint.part("ranker.").items()}
        ranker = Ranker.from_tensors(fitted, evidence.table, 2 * graph.num_relations, options)
        parts = [checkpoint.part(f"calibration{kind}.") for kind in range(KINDS)]
        calibration = Calibrations(tuple(Calibration(*_arrays(part, Calibration, 0)) for part in parts))
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint.file}: {error} To do: fit it again with 'squire fuse'.") from None
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"{checkpoint.file}: not a fusion that this squire can read ({error}). To do: fit it again with "
            "'squire fuse'."
        ) from None
    return Fusion(evidence, ranker, calibration, about)


def has_fusion(folder: Path) -> bool:
    return any(folder.glob(f"{FUSION}*.safetensors"))


def _check_version(checkpoint: TensorFile) -> None:
    if checkpoint.state.get("fusion") != FILE_VERSION:
        raise CheckpointError(f"version {checkpoint.state.get('fusion')}, this squire reads {FILE_VERSION}.")


def _arrays(arrays: dict[str, np.ndarray], kind: type, skip: int) -> list[np.ndarray]:
    """The columns of a dataclass of arrays, in its order."""
    return [arrays[column.name] for column in fields(kind)[skip:]]


def _difference(there: Sequence[str], here: Sequence[str]) -> str:
    missing, new = sorted(set(there) - set(here)), sorted(set(here) - set(there))
    parts = [f"{what} {', '.join(names)}" for what, names in (("without", missing), ("with", new)) if names]
    return f"this one is {' and '.join(parts) or 'in another order'}."


def _checksum(adjacency: Adjacency, words: Profile) -> str:
    digest = hashlib.sha256(f"{adjacency.num_entities} {adjacency.num_relations}".encode())
    for array in (adjacency.offsets, adjacency.relations, adjacency.tails, *words[:3]):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
