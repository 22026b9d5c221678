"""What a study is of, model, graph or recipe: so that what was noted of one is never continued with another."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from squire.errors import CheckpointError, SettingError
from squire.files import BEST, LAST
from squire.graph.graph import SPLITS, Graph
from squire.recipe import HEADER, Recipe

DIGITS = 12


def fingerprint(folder: Path) -> str:
    """The first digits of the checksum of the model that `Run.load` takes. Reads nothing but the file's header."""
    for name in (BEST, LAST):
        file = folder / f"{name}.safetensors"
        if file.exists():
            try:
                with safe_open(file, framework="numpy") as content:
                    return str(content.metadata()["sha256"][:DIGITS])
            except (SafetensorError, KeyError, TypeError) as error:
                raise CheckpointError(
                    f"{file}: not a checkpoint ({error}). To do: restore it, or train anew."
                ) from None
    raise SettingError(f"{folder}: no model here. To do: make one with 'squire train GRAPH --out {folder}'.")


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
