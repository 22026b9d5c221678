"""From a graph to what training reads: rules mined, paths sampled, prefix trees built, all kept in the run folder.

A second call finds what the first has made, so that a resumed run starts at once and from the same paths.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from squire.core.relations import both_directions
from squire.core.run_files import RULES, TRIES
from squire.graph.graph import Graph
from squire.model.recipe import Recipe
from squire.paths.paths import Paths
from squire.paths.sampling import sample_paths
from squire.paths.tries import Tries, build_tries
from squire.rules.anyburl import read_rules, write_rules
from squire.rules.mining import MiningOptions, mine_rules
from squire.rules.rules import ClosedIndex, Rules

Stage = Callable[[str, int, int], None]  # what, done, of how many


def prepare(graph: Graph, recipe: Recipe, folder: Path, stage: Stage, rules_file: Path | None = None) -> Tries:
    """The prefix trees of all train facts and their inverses; rules from a file, or mined."""
    if (folder / TRIES).exists():
        return Tries.load(folder / TRIES)
    paths = find_paths(graph, recipe, find_rules(graph, recipe, folder, stage, rules_file), stage)
    return plant(paths, folder)


def find_rules(
    graph: Graph, recipe: Recipe, folder: Path, stage: Stage, rules_file: Path | None = None
) -> ClosedIndex | None:
    """The rules that paths should follow, if any; all of them go into the run folder."""
    if not recipe.paths.rules:
        return None
    rules = read_rules(rules_file, graph.labels).rules if rules_file else _mine(graph, stage)
    write_rules(rules, graph.labels, folder / RULES)
    return _walked(rules, recipe)


def find_paths(graph: Graph, recipe: Recipe, rules: ClosedIndex | None, stage: Stage) -> Paths:
    """The recipe's paths of all train facts and their inverses."""
    return sample_paths(
        graph.train,
        both_directions(graph.train.triples, graph.num_relations),
        rules,
        hops=recipe.paths.hops,
        per_triple=recipe.paths.per_triple,
        edge_weight=recipe.paths.edge_weight,
        seed=recipe.train.seed,
        progress=lambda done, total: stage("sampling paths", done, total),
    )


def plant(paths: Paths, folder: Path) -> Tries:
    """Their prefix trees, kept in the run folder."""
    tries = build_tries(paths)
    tries.save(folder / TRIES)
    return tries


def rules_of(graph: Graph, recipe: Recipe, folder: Path) -> ClosedIndex | None:
    """The rules that the paths of a prepared run follow, if any."""
    return _walked(read_rules(folder / RULES, graph.labels).rules, recipe) if recipe.paths.rules else None


def _walked(rules: Rules, recipe: Recipe) -> ClosedIndex:
    return ClosedIndex.from_rules(rules.take(rules.confidence >= recipe.paths.min_confidence))


def _mine(graph: Graph, stage: Stage) -> Rules:
    """Closed rules: paths cannot walk along others."""
    mined = mine_rules(graph.train, MiningOptions(constants=False), stage)
    if not mined.complete:  # half the rules would be other paths than a resumed run finds
        raise KeyboardInterrupt
    return mined.rules
