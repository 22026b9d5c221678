"""All paths of one query (h, r), over all its tails, as one prefix tree with soft targets.

A node is one token of a path: a relation at odd depth, an entity at even depth; the query itself is the root and
no node. What follows a node, or ends at it, is weighed by the paths that do so: the targets of the paper's loss
(§3.2) for all paths at once, each prefix computed once. Tokens are relation and entity ids; where they lie in one
vocabulary is the business of `vocab`. Nothing of how paths were found is kept, and which tail a path was drawn
for is where it ends.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from squire.core.parallel import thread_count
from squire.core.ragged import offsets_from
from squire.core.tensors import TensorFormat, load_tensors, save_tensors
from squire.errors import DataError
from squire.graph.adjacency import Ids, Offsets
from squire.paths._chunks import chunk_bounds, run_chunks
from squire.paths._tries import climb, grow, sort_paths
from squire.paths.paths import NONE, Paths

FORMAT = TensorFormat("tries", "file of prefix trees", 1, DataError, "Sample the paths again.", mapped=True)


@dataclass(frozen=True, eq=False)
class Tries:
    """One tree a query, flat; the nodes of a tree in depth-first order, so a parent comes before its children."""

    queries: Ids  # (query, 2): head, edge relation; sorted, distinct
    offsets: Offsets  # (query + 1): the nodes of a query are offsets[query]:offsets[query + 1]
    token: Ids  # (node): relation id at odd depth, entity id at even depth
    parent: Ids  # (node): position in its tree, or NONE below the root
    depth: npt.NDArray[np.int8]  # (node): 1, 2, …, 2 * hops
    weight: Ids  # (node): of the paths through this node; what follows it and `end` sum to it
    end: Ids  # (node): of the paths that end here

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def num_nodes(self) -> int:
        return len(self.token)

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, column.name).nbytes for column in fields(self))

    def query_weight(self) -> Offsets:
        """The paths of each query, by weight.  (query)"""
        top = np.where(self.depth == 1, self.weight, 0)
        return np.diff(offsets_from(top)[self.offsets])

    def targets(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """The soft targets: each node's probability after its parent, and that of ending at it.  (node), (node)

        At every node, the probabilities of its children and of its end sum to 1; at the root those of depth 1.
        """
        query = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        before = self.weight[np.maximum(self.parent, 0) + self.offsets[query]]
        before = np.where(self.parent == NONE, self.query_weight()[query], before)
        return (self.weight / before).astype(np.float32), (self.end / self.weight).astype(np.float32)

    def save(self, path: Path) -> None:
        """Write to one file, atomically."""
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
    """What `build_tries` would make of the paths in these trees and of these paths together."""
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
        """With columns for so many hops."""
        more = ((0, 0), (0, hops - self.relations.shape[1]))
        relations, entities = (np.pad(ids, more, constant_values=NONE) for ids in (self.relations, self.entities))
        return self._replace(relations=relations, entities=entities)


def _weighted(paths: Paths) -> _Weighted:
    return _Weighted(_keys(paths.queries)[paths.row], paths.relations, paths.entities, paths.weight)


def _keys(queries: Ids) -> Offsets:
    """Head and relation as one number, sorted alike.  (query, 2 or more) -> (query)"""
    keys: Offsets = (queries[:, 0].astype(np.int64) << 32) | queries[:, 1]
    return keys


def _build(paths: _Weighted, threads: int) -> Tries:
    # 1. The paths of each query side by side.
    members = np.argsort(paths.key, kind="stable")
    key = paths.key[members]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    offsets = np.append(first, len(key)).astype(np.int64)
    bounds = chunk_bounds(np.diff(offsets), threads)
    length = np.count_nonzero(paths.relations != NONE, axis=1).astype(np.int32)
    path_arrays = paths.relations, paths.entities, length

    # 2. In order of their tokens, so that a path shares its prefix with the one before it.
    sizes = np.zeros(len(first) + 1, np.int64)

    def sort(low: int, high: int) -> int:
        sort_paths(*path_arrays, members, offsets, low, high, sizes[1:])
        return high - low

    run_chunks(sort, bounds, threads)

    # 3. Nodes.
    starts = np.cumsum(sizes)
    token, parent, weight, end = (np.empty(starts[-1], np.int32) for _ in range(4))
    depth = np.empty(starts[-1], np.int8)

    def write(low: int, high: int) -> int:
        nodes = token, parent, depth, weight, end
        grow(*path_arrays, paths.weight, members, offsets, low, high, starts, *nodes)
        return high - low

    run_chunks(write, bounds, threads)
    queries = np.stack([key[first] >> 32, key[first] & 0xFFFFFFFF], axis=1).astype(np.int32)
    return Tries(queries, starts, token, parent, depth, weight, end)


class Unfolded(NamedTuple):
    """Distinct paths and their weights: what a trie was made of."""

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
