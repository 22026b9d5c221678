"""A fusion as one file in a run folder."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from squire.core.run_files import CHANGES, FUSION
from squire.core.tensors import load_checkpoint, save_checkpoint
from squire.errors import CheckpointError
from squire.graph.adjacency import Adjacency
from squire.graph.graph import Graph
from squire.ranking._features import Profile
from squire.ranking._walks import WalkWeights
from squire.ranking.calibration import Calibration, Calibrations
from squire.ranking.confidence import Confidence, Shares, confidence_table
from squire.ranking.edge_features import EdgeScorer
from squire.ranking.features import CandidateFeatures
from squire.ranking.fusion import KINDS, Fusion, FusionInfo, words_of
from squire.ranking.networks import NetworkOptions, Networks
from squire.ranking.pooling import EdgePool
from squire.rules.rules import Rules
from squire.search.trained import LoadedRun

logger = logging.getLogger(__name__)
FILE_VERSION = 10


def has_fusion(folder: Path) -> bool:
    """Whether a run folder contains a fusion."""
    return any(folder.glob(f"{FUSION}*.safetensors"))


def save_fusion(fusion: Fusion, folder: Path) -> Path:
    """Write weights, rules and calibration as one file, atomically.

    The graph is not included, only a checksum of its edges and words, since rules and weights refer to ids.
    """
    rules = fusion.features.rules
    arrays = {f"rules.{column.name}": getattr(rules, column.name) for column in fields(Rules)[1:]}
    for kind, own in enumerate(fusion.calibration.maps):
        arrays |= {f"calibration{kind}.{column.name}": getattr(own, column.name) for column in fields(Calibration)}
    confidence = fusion.confidence
    for part, networks in (("ranker", fusion.ranker), ("confidence", confidence.networks)):
        arrays |= {f"{part}.{name}": tensor.detach().numpy() for name, tensor in networks.tensors().items()}
    arrays["knots"] = confidence.knots
    walks = fusion.features.walks
    arrays |= {f"walks.{name}": array for name, array in walks._asdict().items()} if walks else {}
    if fusion.pool:
        arrays |= {"pool.weights": fusion.pool.weights, "pool.means": fusion.pool.means}
    arrays |= {f"shares.{column.name}": getattr(confidence.shares, column.name) for column in fields(Shares)}
    state: dict[str, Any] = {
        "fusion": FILE_VERSION,
        "features": [feature.name for feature in fusion.features.table],
        "edges": fusion.pool.scorer.fingerprint if fusion.pool else "",
        "own_weight": fusion.pool.own if fusion.pool else 1.0,
        "ranker": asdict(fusion.ranker.options),
        "confidence": asdict(confidence.networks.options),
        "info": asdict(fusion.info),
        "graph_sha256": _checksum(fusion.features.adjacency, fusion.features.words),
    }
    return save_checkpoint(folder, FUSION, arrays, state)


def load_fusion(
    folder: Path, graph: Graph, run: LoadedRun | None = None, facts: Adjacency | None = None
) -> Fusion:
    """Inverse of `save_fusion`, given the graph, and the run if its graph has changed since.

    facts: the edges that features are computed from; by default those of train, which it was fitted on. A run
    whose graph has changed since then has its own.
    """
    checkpoint = load_checkpoint(folder, FUSION)
    state = checkpoint.state
    try:
        if state.get("fusion") != FILE_VERSION:
            raise CheckpointError(
                f"has version {state.get('fusion')}, but this version of squire reads {FILE_VERSION}."
            )
        info = FusionInfo(**state["info"])
        words = words_of(graph, info.use_names)
        if state["graph_sha256"] != _checksum(graph.train, words):
            raise CheckpointError("was fitted to another graph: the train facts or the names are not the same.")
        rules = Rules(graph.num_relations, *_arrays(checkpoint.part("rules."), Rules, 1))
        gone = None
        if run and run.base:
            rules = load_refreshed(folder, rules)
            gone, facts = run.unsupported, run.facts
            words = words_of(run.graph, info.use_names) if run.graph.num_entities > graph.num_entities else words
        walks = WalkWeights(**own) if (own := checkpoint.part("walks.")) else None
        features = CandidateFeatures(facts or graph.train, rules, info.unlinked, words, gone, walks)
        names = [feature.name for feature in features.table]
        if state["features"] != names:
            raise CheckpointError(f"was fitted to other features; {_difference(state['features'], names)}.")
        ranker, plausibility = (
            Networks.from_tensors(
                {name: torch.from_numpy(array) for name, array in checkpoint.part(f"{part}.").items()},
                table, 2 * graph.num_relations, NetworkOptions(**state[part]),
            )
            for part, table in (("ranker", features.table), ("confidence", confidence_table(features.table)))
        )  # fmt: skip
        shares = Shares(*_arrays(checkpoint.part("shares."), Shares, 0))
        confidence = Confidence(plausibility, checkpoint.arrays["knots"], shares, info.missing)
        parts = [checkpoint.part(f"calibration{kind}.") for kind in range(KINDS)]
        calibration = Calibrations(tuple(Calibration(*_arrays(part, Calibration, 0)) for part in parts))
        pool = None
        scorer = EdgeScorer.load(folder) if state["edges"] else None
        if scorer and state["edges"] == scorer.fingerprint:
            arrays = checkpoint.part("pool.")
            weights, means = arrays["weights"], arrays["means"]
            pool = EdgePool(scorer, state["own_weight"], weights, means)
            if run and run.base:
                pool = pool.on(run)
        elif state["edges"]:
            logger.warning(
                "%s: the edge embeddings have changed since they were weighed, and have no say. "
                "Run `squire fuse %s` again.", folder, folder,
            )  # fmt: skip
    except (CheckpointError, KeyError, TypeError) as error:
        reason = error if isinstance(error, CheckpointError) else f"not a fusion that squire can read ({error})."
        raise CheckpointError(f"{checkpoint.file}: {reason} Run `squire fuse` again.") from None
    return Fusion(features, ranker, calibration, confidence, info, pool)


def refreshed_file(folder: Path) -> tuple[Path | None, int]:
    """The rules that were mined again after so many changes of the graph, if they were."""
    file = max((folder / CHANGES).glob("rules-*.safetensors"), default=None)
    return file, int(file.stem.partition("-")[2]) if file else 0


def load_refreshed(folder: Path, rules: Rules) -> Rules:
    """The rules that were mined again, or else these."""
    file, _ = refreshed_file(folder)
    return Rules.load(file) if file else rules


def _arrays(arrays: dict[str, np.ndarray], kind: type, skip: int) -> list[np.ndarray]:
    """The columns of a dataclass of arrays, in its order."""
    return [arrays[column.name] for column in fields(kind)[skip:]]


def _difference(old: Sequence[str], new: Sequence[str]) -> str:
    missing, added = sorted(set(old) - set(new)), sorted(set(new) - set(old))
    parts = [f"{what} {', '.join(names)}" for what, names in (("without", missing), ("with", added)) if names]
    return f"now there are those {' and '.join(parts)}" if parts else "now they have another order"


def _checksum(adjacency: Adjacency, words: Profile) -> str:
    digest = hashlib.sha256(f"{adjacency.num_entities} {adjacency.num_relations}".encode())
    for array in (adjacency.offsets, adjacency.relations, adjacency.tails, *words[:3]):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
