"""What a study is of, model, graph or recipe: so that what was noted of one is never continued with another."""

from __future__ import annotations

import hashlib
from typing import Any

from squire.graph.graph import SPLITS, Graph
from squire.model.recipe import HEADER, Recipe

DIGITS = 12


def digest(graph: Graph) -> str:
    """Of all facts, so that a graph that was changed is not taken for the same."""
    found = hashlib.sha256()
    for split in SPLITS:
        found.update(graph.triples(split).tobytes())
    return found.hexdigest()[:DIGITS]


def settings_of(recipe: Recipe) -> dict[str, Any]:
    """`train.seed` and so on, each by itself, so that a refusal names the one that differs."""
    sections = {name: keys for name, keys in recipe.to_dict().items() if name not in HEADER}
    return {f"{name}.{key}": value for name, keys in sections.items() for key, value in keys.items()}
