"""Iterative training (§3.4, Algorithm 1, lines 6 to 15): new paths that start as the model would and lead to the
tail.

Queries are searched in blocks, once for all facts that share a query, and each block is written to a file. So a
killed run continues at the same block, and several processes can share the blocks. What is drawn depends on
seed, iteration, block and weights, which do not change meanwhile. The leader then completes the paths and adds
them to the prefix trees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from squire.core.progress import Progress
from squire.core.run_files import iteration_folder, tries_file
from squire.core.team import Team
from squire.core.tensors import TensorFormat, load_tensors, save_tensors
from squire.errors import DataError
from squire.graph.adjacency import Ids, Offsets
from squire.graph.graph import Graph
from squire.model.decoder import TransformerDecoder
from squire.model.recipe import Recipe
from squire.model.transformer import Transformer
from squire.paths.paths import NONE, Paths
from squire.paths.sampling import continue_paths, sample_paths
from squire.paths.tries import Tries, add_paths
from squire.search.beam import search
from squire.search.options import DecodingOptions
from squire.training.preparation import rules_of

BLOCK = 512  # queries per file: some seconds of work
HYPOTHESES_AT_ONCE = 2048  # in one beam search, as in `decode`

PREFIXES = TensorFormat(
    "prefixes", "file of path prefixes", 1, DataError, "Remove it and resume the run.", verify=True
)


@dataclass(frozen=True, eq=False)
class Facts:
    """The facts of train and their inverses, grouped by query (h, r)."""

    triples: Ids  # (fact, 3), sorted
    queries: Ids  # (query, 2): head, edge relation; sorted, distinct
    offsets: Offsets  # (query + 1): the facts of a query are offsets[query]:offsets[query + 1]

    @classmethod
    def from_graph(cls, graph: Graph) -> Facts:
        edges = graph.train  # every edge is a fact or its inverse, and they are sorted
        triples = np.stack([edges.heads, edges.relations, edges.tails], axis=1).astype(np.int32)
        is_first = np.ones(len(triples), bool)
        is_first[1:] = (triples[1:, :2] != triples[:-1, :2]).any(axis=1)
        first = np.flatnonzero(is_first)
        return cls(triples, triples[first, :2], np.append(first, len(triples)))

    def blocks(self) -> list[tuple[int, int]]:
        """The bounds of blocks of queries."""
        size = len(self.queries)
        return [(first, min(first + BLOCK, size)) for first in range(0, size, BLOCK)]


@dataclass(frozen=True, eq=False)
class PathCollection:
    """Collects the new paths of the k-th iteration."""

    graph: Graph
    recipe: Recipe
    run: Path
    iteration: int  # k, from 2
    team: Team

    @property
    def folder(self) -> Path:
        return iteration_folder(self.run, self.iteration)

    def _seeds(self, *of: int) -> np.random.SeedSequence:
        """Seeds other than those that order and mask batches, which are not spawned."""
        return np.random.SeedSequence(self.recipe.train.seed, spawn_key=(self.iteration, *of))

    def collect(self, model: Transformer, progress: Progress, should_stop: Callable[[], bool]) -> bool:
        """Write the prefix trees of all paths, old and new. Returns False if stopped before.

        All processes call it; `should_stop` synchronises them.
        """
        if self.team.any(tries_file(self.run, self.iteration).exists()):
            return True
        facts = Facts.from_graph(self.graph)
        blocks = facts.blocks()
        model.eval()
        for done in range(0, len(blocks), self.team.size):
            if should_stop():
                return False
            progress(f"iteration {self.iteration}, first hops", blocks[done][0], len(facts.queries))
            for block in blocks[done + self.team.rank :][:1]:
                self._write_prefixes(model, facts, *block)
        if should_stop():  # after this all processes have written their files
            return False
        with self.team.leader_first():
            if self.team.leads:
                self._join(facts, progress)
        return True

    # --------------------------------------------------------------------------------------- line 8: τ₁

    def _write_prefixes(self, model: Transformer, facts: Facts, first: int, last: int) -> None:
        """Write the prefixes of one block, unless the file exists."""
        file = self._part(first, last)
        if not file.exists():
            prefixes = self.draw_prefixes(model, facts, first, last)
            save_tensors(file, PREFIXES, {"prefixes": prefixes}, {})

    def _part(self, first: int, last: int) -> Path:
        """The file of a block; its name holds the bounds, so blocks of another size are other files."""
        return self.folder / f"prefixes-{first}-{last}.safetensors"

    def draw_prefixes(self, model: Transformer, facts: Facts, first: int, last: int) -> Ids:
        """Draw the first k − 1 hops of each path of these queries' facts.  -> (fact, path, 2 · (k − 1))

        Hypotheses of that length are drawn by their probability, without that of ending there. A query without
        hypotheses gets rows of NONE.
        """
        train, hops = self.recipe.train, self.iteration - 1
        offsets = facts.offsets[first : last + 1] - facts.offsets[first]
        rng = np.random.default_rng(self._seeds(first))
        uniform = rng.random((offsets[-1], train.iterate_paths))
        decoder, device = TransformerDecoder(model), model.embedding.weight.device
        drawn = np.full((*uniform.shape, 2 * hops), NONE, np.int32)
        decoding = DecodingOptions(beam=train.iterate_beam, hops=hops)
        at_once = max(1, HYPOTHESES_AT_ONCE // train.iterate_beam)
        for low in range(0, last - first, at_once):
            high = min(low + at_once, last - first)
            queries = torch.from_numpy(facts.queries[first + low : first + high].astype(np.int64)).to(device)
            found = search(decoder, queries[:, 0], queries[:, 1], decoding)
            far = found.hops == hops
            log_probability = found.token_log_probability[far, :-1].double().sum(1)  # without the end
            own = slice(offsets[low], offsets[high])
            query = np.repeat(np.arange(high - low), np.diff(offsets[low : high + 1]))  # (fact)
            at = draw(found.query[far].cpu().numpy(), log_probability.cpu().numpy(), query, uniform[own])
            prefixes = np.append(found.paths[far].cpu().numpy(), np.full((1, 2 * hops), NONE), axis=0)
            drawn[own] = prefixes[at]  # NONE is the last row
        return drawn

    # --------------------------------------------------------------------------------------- lines 9 to 14

    def _join(self, facts: Facts, progress: Progress) -> None:
        """Complete all prefixes, and add the paths to the previous iteration's trees."""
        parts = [load_tensors(self._part(*block), PREFIXES).arrays["prefixes"] for block in facts.blocks()]
        paths = self.complete(facts.triples, np.concatenate(parts), progress)
        tries = add_paths(Tries.load(tries_file(self.run, self.iteration - 1)), paths)
        tries.save(tries_file(self.run, self.iteration))

    def complete(self, triples: Ids, prefixes: Ids, progress: Progress) -> Paths:
        """Continue each prefix to its tail (line 9), or sample a new path where that is impossible (line 13).

        New paths are sampled for every path of such a fact, and the i-th replaces the i-th prefix. So a fact whose
        prefixes all fail has paths like those of the first iteration.

        triples: (fact, 3); prefixes: (fact, path, 2 · (k − 1)) -> a row for each prefix, with or without a path,
        then one for each fact that lacks some
        """
        each = prefixes.shape[1]
        rows = prefixes.reshape(len(triples) * each, -1)
        seeds = self._seeds().generate_state(2, np.uint64)
        begun = np.flatnonzero(rows[:, 0] != NONE)
        continued = self._continued(triples[begun // each], rows[begun], int(seeds[0]), progress)
        is_left = np.ones((len(triples), each), bool)
        is_left.reshape(-1)[begun[continued.row]] = False
        lacking = is_left.any(axis=1)
        sampled = self._sampled(triples[lacking], each, int(seeds[1]), progress)
        return Paths.concatenate([continued, _taken(sampled, is_left[lacking])])

    def _continued(self, queries: Ids, prefixes: Ids, seed: int, progress: Progress) -> Paths:
        """Line 9: at most N − k + 1 further hops, N in all."""
        return continue_paths(
            self.graph.train,
            queries,
            prefixes[:, 0::2],
            prefixes[:, 1::2],
            hops=self.recipe.paths.hops,
            seed=seed,
            progress=lambda done, total: progress(f"iteration {self.iteration}, continuing paths", done, total),
        )

    def _sampled(self, queries: Ids, each: int, seed: int, progress: Progress) -> Paths:
        """Line 13: sampled as in the first iteration, along the run's rules first (§3.3)."""
        return sample_paths(
            self.graph.train,
            queries,
            rules_of(self.graph, self.recipe, self.run),
            hops=self.recipe.paths.hops,
            per_triple=each,
            seed=seed,
            progress=lambda done, total: progress(f"iteration {self.iteration}, sampling paths", done, total),
        )


def draw(
    owner: Offsets,  # (hypothesis), ascending: its query
    log_probability: npt.NDArray[np.float64],  # (hypothesis)
    query: Offsets,  # (fact)
    uniform: npt.NDArray[np.float64],  # (fact, path): numbers in [0, 1)
) -> Offsets:
    """Draw hypotheses of each fact's query by their probability; NONE where a query has none.  (fact, path)"""
    if not len(owner):
        return np.full(uniform.shape, NONE)
    first, last = np.searchsorted(owner, query), np.searchsorted(owner, query, side="right")
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    best = np.maximum.reduceat(log_probability, starts)
    sizes = np.diff(np.append(starts, len(owner)))
    total = np.append(0.0, np.cumsum(np.exp(log_probability - np.repeat(best, sizes))))
    wanted = total[first, None] + uniform * (total[last] - total[first])[:, None]
    at = np.searchsorted(total[1:], wanted, side="right")
    # Rounding may reach into the next query's.
    return np.where((first < last)[:, None], np.clip(at, first[:, None], last[:, None] - 1), NONE)


def _taken(paths: Paths, is_taken: npt.NDArray[np.bool_]) -> Paths:
    """The chosen draws of each row.  is_taken: (row, draw)"""
    drawn = np.repeat(np.arange(len(paths)), paths.weight)  # row by row, the same number each
    weight = np.bincount(drawn[is_taken.reshape(-1)], minlength=len(paths)).astype(np.int32)
    kept = np.flatnonzero(weight)
    columns = ("row", "length", "relations", "entities", "source", "rule")
    return replace(paths, weight=weight[kept], **{name: getattr(paths, name)[kept] for name in columns})
