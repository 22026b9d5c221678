"""Learning what has changed in the graph of a run: rules at once, everything else when training is resumed."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import numpy as np

from squire.core.processes import locked
from squire.core.progress import Progress, no_progress
from squire.core.run_files import (
    BEST,
    CHANGES,
    EDGES,
    FUSION,
    GRAPH,
    INDEXES,
    LAST,
    METRICS,
    RULES,
    RULES_TEXT,
    TRIES,
)
from squire.core.tensors import load_checkpoint
from squire.errors import SettingError
from squire.graph.changes import change_files, load_changes
from squire.graph.graph import Graph
from squire.ranking.fusion_file import has_fusion
from squire.rules.mining import MiningOptions, mine_rules

logger = logging.getLogger(__name__)
# All that is learned from a graph: rules, fusion, paths, checkpoints and curves.
PATHS = TRIES, "tries-of-epoch-*", "iteration-*"
LEARNED = (RULES, RULES_TEXT, METRICS, INDEXES, *PATHS, f"{BEST}*", f"{LAST}*", f"{FUSION}*", f"{EDGES}*")


def refresh_rules(folder: Path, progress: Progress = no_progress) -> int:
    """Mine the rules of a run again, from its graph with all changes. Returns their number.

    Rules about entities that were added are left out: these can be removed again.
    """
    check_refreshable(folder)
    base = Graph.load(folder / GRAPH)
    with locked(folder / CHANGES, "changing facts"):
        graph, number = load_changes(folder).apply(base), len(change_files(folder))
        options = MiningOptions(**load_checkpoint(folder, FUSION).state["info"]["mining"])
        mined = mine_rules(graph.train, options, progress)
        if mined.interrupted:
            raise KeyboardInterrupt
        rules = mined.rules
        rules = rules.take(np.maximum(rules.head_constant, rules.body_constant) < base.num_entities)
        old = list((folder / CHANGES).glob("rules-*"))
        file = folder / CHANGES / f"rules-{number:08}.safetensors"
        rules.save(file)
        for one in old:
            if one != file:
                one.unlink()
    return len(rules)


def check_refreshable(folder: Path) -> None:
    """SettingError if the run has no rules of its own to mine again."""
    if not has_fusion(folder):
        raise SettingError(f"{folder}: no fusion here, so no rules to refresh. Run `squire fuse {folder}` first.")


def learn_changes(folder: Path) -> None:
    """Make the changes part of the graph that a run is trained on. What was learned before is deleted.

    The caller holds the lock. A kill between any two steps leaves a run that resumes here.
    """
    if not change_files(folder):
        return
    with locked(folder / CHANGES, "changing facts"):
        changes = load_changes(folder)
        if changes:
            count = f"{len(changes.added):,} added and {len(changes.removed):,} removed facts"
            logger.info("%s are learned now: rules, fusion and model are made again", count)
            for pattern in LEARNED:
                for path in folder.glob(pattern):
                    if path.is_dir():
                        shutil.rmtree(path)
                    else:
                        path.unlink()
            changes.apply(Graph.load(folder / GRAPH)).save(folder / GRAPH)
        for file in change_files(folder):  # the oldest first: those that a kill leaves change nothing
            file.unlink()
        shutil.rmtree(folder / CHANGES)
