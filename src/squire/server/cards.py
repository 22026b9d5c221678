"""A model card: what a model is, how good it is beside the simplest guess, and what one may ask it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from squire.core.run_files import evaluation_files
from squire.core.version import __version__
from squire.server.limits import of_a_request
from squire.server.logs import LOGGER
from squire.server.models import Model

EXAMPLES = 6


def summary(model: Model, default: bool) -> dict[str, Any]:
    """A line in the list of models."""
    graph = model.graph
    return {
        "name": model.name,
        "graph": graph.name,
        "entities": graph.num_entities,
        "relations": graph.num_relations,
        "facts": graph.train.num_edges // 2,
        "fused": model.fused,
        "default": default,
    }


def card(model: Model, default: bool) -> dict[str, Any]:
    graph, decode = model.graph, model.recipe["decode"]
    return summary(model, default) | {
        "step": model.step,
        "recipe": model.recipe,
        "version": __version__,
        "description": (
            f"Finds missing facts of {graph.name}: {graph.num_entities:,} entities, {graph.num_relations:,} "
            f"relations, {graph.train.num_edges // 2:,} known facts. Answers are ranked by the evidence for them; "
            f"paths are found with a beam of {decode['beam']}. A score is no certainty: see the quality, and "
            f"compare it with the frequency row, which guesses the most frequent answer."
        ),
        "quality": quality(model),
        "limits": of_a_request(),
        "examples": examples(model),
    }


def quality(model: Model) -> list[dict[str, Any]]:
    """What `squire evaluate` has found of this very model; results of an earlier step are not its own."""
    found = []
    for file in evaluation_files(model.folder):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            rows, step = content["rows"], content.get("step", model.step)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            LOGGER.warning("%s: not a result of 'squire evaluate' (%s)", file, error)
            continue
        if step == model.step and rows:
            found.append({key: value for key, value in content.items() if key not in ("run", "recipe")})
    return found


def examples(model: Model) -> list[dict[str, str]]:
    """Questions whose answer was held out: of the relations asked most often, about the best-known heads."""
    graph = model.graph
    held = next((triples for triples in (graph.test, graph.valid, graph.train.triples) if len(triples)), None)
    if held is None:
        return []
    asked, counts = np.unique(held[:, 1], return_counts=True)
    questions = []
    for relation in asked[np.argsort(-counts, kind="stable")[:EXAMPLES]].tolist():
        heads = np.unique(held[held[:, 1] == relation, 0])
        head = int(heads[np.argmax(model.degrees[heads])])
        questions.append({"head": model.entity_label(head), "relation": model.relation_label(relation)})
    return questions
