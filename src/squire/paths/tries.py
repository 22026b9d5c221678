"""Prefix trees: all paths of a query (h, r), over all its tails, as one tree.

A node is one token of a path: a relation id at odd depth, an entity id at even depth. The query is the root and
not a node. The weights of the paths give soft targets, so the paper's loss (§3.2) is computed for all paths at
once and for each shared prefix only once. How the paths were found is not kept.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from squire.core.parallel import run_chunks, thread_count
from squire.core.tensors import TensorFormat, load_tensors, save_tensors
from squire.errors import DataError
from squire.graph.adjacency import Ids, Offsets
from squire.paths._tries import climb, grow, sort_paths
from squire.paths.paths import NONE, Paths

FORMAT = TensorFormat("tries", "file of prefix trees", 1, DataError, "Sample the paths again.", mapped=True)


@dataclass(frozen=True, eq=False)
class Tries:
    """One tree per query, flat. Nodes are in depth-first order, so a parent comes before its children."""

    queries: Ids  # (query, 2): head, edge type; sorted, distinct
    offsets: Offsets  # (query + 1): the nodes of a query are offsets[query]:offsets[query + 1]
    token: Ids  # (node): relation id at odd depth, entity id at even depth
    parent: Ids  # (node): position in its tree, or NONE below the root
    depth: npt.NDArray[np.int8]  # (node): 1, 2, …, 2 * hops
    end: Ids  # (node): the weight of the paths that end here

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def num_nodes(self) -> int:
        return len(self.token)

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, column.name).nbytes for column in fields(self))

    def save(self, path: Path) -> None:
        """Writes one file, atomically."""
        save_tensors(path, FORMAT, {column.name: getattr(self, column.name) for column in fields(self)}, {})

    @classmethod
    def load(cls, path: Path) -> Tries:
        """Inverse of `save`; the arrays stay on disk and are read when they are used."""
        arrays = load_tensors(path, FORMAT).arrays
        missing = [column.name for column in fields(cls) if column.name not in arrays]
        if missing:
            raise DataError(f"{path}: not prefix trees saved by squire: {', '.join(missing)} missing.")
        return cls(**{column.name: arrays[column.name] for column in fields(cls)})


def build_tries(paths: Paths, threads: int | None = None) -> Tries:
    """The prefix trees of all queries (h, r) of these paths; identical paths merge with their weights."""
    return _build(_weighted(paths), thread_count(threads))


def add_paths(tries: Tries, paths: Paths, threads: int | None = None) -> Tries:
    """The same as `build_tries` for the paths in these trees and these paths together."""
    old = unfold(tries)
    own = _Weighted(_keys(tries.queries)[old.query], old.relations, old.entities, old.weight)
    hops = max(own.relations.shape[1], paths.hops)
    parts = [part.padded(hops) for part in (own, _weighted(paths))]
    return _build(_Weighted(*map(np.concatenate, zip(*parts, strict=True))), thread_count(threads))


class _Weighted(NamedTuple):
    """Paths of any queries, in any order."""

    key: Offsets  # (path): of its query
    relations: Ids  # (path, hop), then NONE
    entities: Ids  # (path, hop), then NONE
    weight: Ids  # (path)

    def padded(self, hops: int) -> _Weighted:
        """The same with columns for `hops` hops."""
        more = ((0, 0), (0, hops - self.relations.shape[1]))
        relations, entities = (np.pad(ids, more, constant_values=NONE) for ids in (self.relations, self.entities))
        return self._replace(relations=relations, entities=entities)


def _weighted(paths: Paths) -> _Weighted:
    return _Weighted(_keys(paths.queries)[paths.row], paths.relations, paths.entities, paths.weight)


def _keys(queries: Ids) -> Offsets:
    """Head and relation as one number that sorts the same way.  (query, 2 or more) -> (query)"""
    keys: Offsets = (queries[:, 0].astype(np.int64) << 32) | queries[:, 1]
    return keys


def _build(paths: _Weighted, threads: int) -> Tries:
    # 1. Bring the paths of each query together.
    members = np.argsort(paths.key, kind="stable")
    key = paths.key[members]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    offsets = np.append(first, len(key)).astype(np.int64)
    costs = np.diff(offsets)
    length = np.count_nonzero(paths.relations != NONE, axis=1).astype(np.int32)
    path_arrays = paths.relations, paths.entities, length

    # 2. Sort them by their tokens, so that a path shares its longest prefix with the one before it.
    sizes = np.zeros(len(first) + 1, np.int64)

    def sort(low: int, high: int) -> None:
        sort_paths(*path_arrays, members, offsets, low, high, sizes[1:])

    run_chunks(sort, costs, threads)

    # 3. Write the nodes.
    starts = np.cumsum(sizes)
    token, parent, end = (np.empty(starts[-1], np.int32) for _ in range(3))
    depth = np.empty(starts[-1], np.int8)

    def write(low: int, high: int) -> None:
        grow(*path_arrays, paths.weight, members, offsets, low, high, starts, token, parent, depth, end)

    run_chunks(write, costs, threads)
    queries = np.stack([key[first] >> 32, key[first] & 0xFFFFFFFF], axis=1).astype(np.int32)
    return Tries(queries, starts, token, parent, depth, end)


class Unfolded(NamedTuple):
    """The distinct paths of prefix trees, with their weights."""

    query: Offsets  # (path): position in the tries' queries
    relations: Ids  # (path, hop), then NONE
    entities: Ids  # (path, hop), then NONE
    weight: Ids  # (path)


def unfold(tries: Tries) -> Unfolded:
    """Inverse of `build_tries`: the multiset of paths of each query."""
    leaves = np.flatnonzero(tries.end)
    query = np.searchsorted(tries.offsets, leaves, side="right") - 1
    hops = int(tries.depth.max(initial=0)) // 2
    relations, entities = (np.full((len(leaves), hops), NONE, np.int32) for _ in range(2))
    climb(tries.token, tries.parent, tries.depth, tries.offsets, leaves, query, relations, entities)
    return Unfolded(query, relations, entities, tries.end[leaves])
