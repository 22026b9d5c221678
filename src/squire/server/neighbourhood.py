"""What the graph says about an entity, a few facts of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from squire.graph.graph import Graph


def neighbourhood(graph: Graph, entity: int, limit: int) -> dict[str, Any]:
    """Facts of an entity, in turns over its relations, so that no frequent one hides the others."""
    labels, n = graph.labels, graph.num_relations
    relations, others = graph.train.edges(entity)
    # A fact of an entity with itself is two edges; one is enough to see it.
    distinct = np.flatnonzero((others != entity) | (relations < n))
    kind = relations[distinct]  # sorted
    turn = np.arange(len(kind)) - np.searchsorted(kind, kind)
    chosen = distinct[np.lexsort((kind, turn))[:limit]]
    own = labels.entity(entity)
    edges = []
    for relation, other in zip(relations[chosen].tolist(), others[chosen].tolist(), strict=True):
        outgoing = relation < n
        label, far = labels.relation(relation), labels.entity(other)
        head, tail = (own, far) if outgoing else (far, own)
        edges.append({"head": head, "relation": label, "tail": tail, "outgoing": outgoing})
    left_out = len(distinct) - len(chosen)
    return {"entity": own, "degree": len(relations), "edges": edges, "left_out": left_out}
