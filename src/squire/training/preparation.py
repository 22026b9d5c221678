"""From a graph to training data: rules mined, paths sampled, prefix trees built, all kept in the run folder.

Whatever is in the folder already is not made again, so a resumed run trains on the same paths.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from squire.core.progress import Progress
from squire.core.relations import both_directions
from squire.core.run_files import RULES, TRIES, epoch_tries
from squire.errors import RuleError
from squire.graph.graph import Graph
from squire.model.recipe import Recipe
from squire.paths.paths import Paths
from squire.paths.sampling import sample_paths
from squire.paths.tries import Tries, build_tries
from squire.rules.anyburl import read_run_rules
from squire.rules.mining import MiningOptions, mine_rules, mining_of
from squire.rules.rules import ClosedIndex, Rules
from squire.search.trained import seen_graph


def prepare(graph: Graph, recipe: Recipe, folder: Path, progress: Progress, rules: Rules | None = None) -> Tries:
    """The prefix trees of all train facts and their inverses. Rules are mined unless given."""
    if (folder / TRIES).exists():
        return Tries.load(folder / TRIES)
    seen = seen_graph(graph, recipe)
    paths = find_paths(seen, recipe, find_rules(seen, recipe, folder, progress, rules), progress)
    return save_tries(paths, folder)


def sample_again(graph: Graph, recipe: Recipe, folder: Path, epoch: int, progress: Progress) -> Tries:
    """Prefix trees of new paths for an epoch, instead of those of the epoch before."""
    if not (file := epoch_tries(folder, epoch)).exists():
        seed = int(np.random.SeedSequence(recipe.train.seed, spawn_key=(epoch,)).generate_state(1, np.uint64)[0])
        paths = find_paths(seen_graph(graph, recipe), recipe, rules_of(graph, recipe, folder), progress, seed)
        build_tries(paths).save(file)
        epoch_tries(folder, epoch - 1).unlink(missing_ok=True)
    return Tries.load(file)


def find_rules(
    graph: Graph, recipe: Recipe, folder: Path, progress: Progress, rules: Rules | None = None
) -> ClosedIndex | None:
    """The closed rules that guide path sampling, if the recipe uses rules; saved in the run folder."""
    if not recipe.paths.rules:
        return None
    if rules is None:
        rules = _mine(graph, folder, progress)
    else:
        rules.save(folder / RULES)
    return _confident(rules, recipe)


def find_paths(
    graph: Graph, recipe: Recipe, rules: ClosedIndex | None, progress: Progress, seed: int | None = None
) -> Paths:
    """Sample the recipe's paths for all train facts and their inverses, by default with the recipe's seed."""
    return sample_paths(
        graph.train,
        both_directions(graph.train.triples, graph.num_relations),
        rules,
        hops=recipe.paths.hops,
        per_triple=recipe.paths.per_triple,
        edge_weight=recipe.paths.edge_weight,
        seed=recipe.train.seed if seed is None else seed,
        progress=lambda done, total: progress("sampling paths", done, total),
    )


def save_tries(paths: Paths, folder: Path) -> Tries:
    """Build the prefix trees of the paths, and keep them in the run folder."""
    tries = build_tries(paths)
    tries.save(folder / TRIES)
    return tries


def rules_of(graph: Graph, recipe: Recipe, folder: Path) -> ClosedIndex | None:
    """The rules that guided the path sampling of a prepared run, if any."""
    if not recipe.paths.rules:
        return None
    if (rules := read_run_rules(folder, graph.labels)) is None:
        raise RuleError(f"{folder / RULES}: no such file. Restore it from a copy, or train again.")
    return _confident(rules, recipe)


def _confident(rules: Rules, recipe: Recipe) -> ClosedIndex:
    return ClosedIndex.from_rules(rules.take(rules.confidence >= recipe.paths.min_confidence))


def _mine(graph: Graph, folder: Path, progress: Progress) -> Rules:
    """Mine and save closed rules only; paths cannot follow others."""
    options = MiningOptions(constants=False)
    done = mining_of(folder / RULES, graph.train, options)
    mined = mine_rules(graph.train, options, progress, done)
    if not mined.complete:  # with half of the rules, a resumed run would sample other paths
        raise KeyboardInterrupt
    mined.rules.save(folder / RULES)
    done.remove()
    return mined.rules
