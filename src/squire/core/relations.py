"""Relations and their inverses, as ids.

A graph has relations 0 … R − 1. Together with their inverses they are the edge types 0 … 2R − 1: the inverse of r
is r + R, and the inverse of r + R is r.
"""

from __future__ import annotations

from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
EdgeType = TypeVar("EdgeType", int, npt.NDArray[np.int32], npt.NDArray[np.int64])


def inverse(edge_type: EdgeType, num_relations: int) -> EdgeType:
    """The edge type that follows the same edges in the opposite direction.

    >>> inverse(1, num_relations=3), inverse(4, num_relations=3)
    (4, 1)
    """
    return (edge_type + num_relations) % (2 * num_relations)


@overload
def is_inverse(edge_type: int, num_relations: int) -> bool: ...
@overload
def is_inverse(edge_type: npt.NDArray[np.integer[Any]], num_relations: int) -> npt.NDArray[np.bool_]: ...
def is_inverse(edge_type: int | npt.NDArray[np.integer[Any]], num_relations: int) -> bool | npt.NDArray[np.bool_]:
    """Whether an edge type is the inverse of a relation."""
    return edge_type >= num_relations


def both_directions(triples: Ids, num_relations: int) -> Ids:
    """The triples (h, r, t), then their inverses (t, r⁻¹, h).  (n, 3) -> (2n, 3)

    As queries, the first half asks for tails and the second half for heads.
    """
    backward = triples[:, ::-1].copy()
    backward[:, 1] += num_relations
    return np.concatenate([triples, backward]).astype(np.int32, copy=False)
