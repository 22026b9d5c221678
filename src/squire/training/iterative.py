"""Iterative training (§3.4, Algorithm 1, lines 6 to 15): paths that begin as the model would, led on to the tail.

The only place where beam search meets path search. Queries are searched in blocks, once for all facts that share
one, and each block leaves a file; so a killed run goes on with the block that it was at, and several processes
share the blocks out. What is drawn depends on seed, iteration and block alone, and on the weights, which rest
meanwhile. The leader then completes the paths and plants them among the trees of before.

Knows neither steps nor learning rates: when to gather, and what to do with the trees, is the trainer's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

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
from squire.training.preparation import Stage, rules_of

BLOCK = 512  # queries in a file: some seconds of work, so that a kill loses no more
HYPOTHESES_AT_ONCE = 2048  # of the queries that are searched together, as in `decode`

PREFIXES = TensorFormat(
    "prefixes", "file of path prefixes", 1, DataError, "Remove it and resume the run.", verify=True
)


@dataclass(frozen=True, eq=False)
class Facts:
    """The facts of train and their inverses, those of one query (h, r) side by side."""

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
        """Bounds of runs of queries."""
        size = len(self.queries)
        return [(first, min(first + BLOCK, size)) for first in range(0, size, BLOCK)]


@dataclass(frozen=True, eq=False)
class Gathering:
    """The k-th iteration's new paths, in the making."""

    graph: Graph
    recipe: Recipe
    run: Path
    iteration: int  # k, from 2
    team: Team

    @property
    def folder(self) -> Path:
        return iteration_folder(self.run, self.iteration)

    def _seeds(self, *of: int) -> np.random.SeedSequence:
        """Apart from those that order and mask batches, which are no spawned ones."""
        return np.random.SeedSequence(self.recipe.train.seed, spawn_key=(self.iteration, *of))

    def make(self, model: Transformer, stage: Stage, should_stop: Callable[[], bool]) -> bool:
        """The prefix trees of all paths, old and new, into the run. Gives False if it had to stop before.

        All processes call it, and `should_stop` is where they meet.
        """
        if self.team.any(tries_file(self.run, self.iteration).exists()):
            return True
        facts = Facts.from_graph(self.graph)
        blocks = facts.blocks()
        model.eval()
        for done in range(0, len(blocks), self.team.size):
            if should_stop():
                return False
            stage(f"iteration {self.iteration}, first hops", blocks[done][0], len(facts.queries))
            for block in blocks[done + self.team.rank :][:1]:
                self._leave_prefixes(model, facts, *block)
        if should_stop():  # whoever has come here has left all its files
            return False
        with self.team.leader_first():
            if self.team.leads:
                self._join(facts, stage)
        return True

    # --------------------------------------------------------------------------------------- line 8: τ₁

    def _leave_prefixes(self, model: Transformer, facts: Facts, first: int, last: int) -> None:
        """Those of one block in a file, if it is not there yet."""
        file = self._part(first, last)
        if not file.exists():
            prefixes = self.draw_prefixes(model, facts, first, last)
            save_tensors(file, PREFIXES, {"prefixes": prefixes}, {})

    def _part(self, first: int, last: int) -> Path:
        """Its name says which queries: blocks of another size are other files."""
        return self.folder / f"prefixes-{first}-{last}.safetensors"

    def draw_prefixes(self, model: Transformer, facts: Facts, first: int, last: int) -> Ids:
        """The first k − 1 hops for each path of the facts of these queries.  -> (fact, path, 2 · (k − 1))

        The beam search's hypotheses of so many hops, drawn by their probabilities: how the model begins, whether
        or not it would end there. Where it has none there is none: a row of NONE.
        """
        train, hops = self.recipe.train, self.iteration - 1
        offsets = facts.offsets[first : last + 1] - facts.offsets[first]
        rng = np.random.default_rng(self._seeds(first))
        uniform = rng.random((offsets[-1], train.iterate_paths))
        steps, device = TransformerDecoder(model), model.embedding.weight.device
        drawn = np.full((*uniform.shape, 2 * hops), NONE, np.int32)
        decoding = DecodingOptions(beam=train.iterate_beam, hops=hops)
        at_once = max(1, HYPOTHESES_AT_ONCE // train.iterate_beam)
        for low in range(0, last - first, at_once):
            high = min(low + at_once, last - first)
            asked = torch.from_numpy(facts.queries[first + low : first + high].astype(np.int64)).to(device)
            found = search(steps, asked[:, 0], asked[:, 1], decoding)
            far = found.hops == hops
            log_probability = found.token_log_probability[far, :-1].double().sum(1)  # not that of ending there
            own = slice(offsets[low], offsets[high])
            query = np.repeat(np.arange(high - low), np.diff(offsets[low : high + 1]))  # (fact)
            at = draw(found.query[far].cpu().numpy(), log_probability.cpu().numpy(), query, uniform[own])
            prefixes = np.append(found.paths[far].cpu().numpy(), np.full((1, 2 * hops), NONE), axis=0)
            drawn[own] = prefixes[at]  # NONE is the last row
        return drawn

    # --------------------------------------------------------------------------------------- lines 9 to 14

    def _join(self, facts: Facts, stage: Stage) -> None:
        """All prefixes to whole paths, and these to the trees of before."""
        parts = [load_tensors(self._part(*block), PREFIXES).arrays["prefixes"] for block in facts.blocks()]
        paths = self.complete(facts.triples, np.concatenate(parts), stage)
        tries = add_paths(Tries.load(tries_file(self.run, self.iteration - 1)), paths)
        tries.save(tries_file(self.run, self.iteration))

    def complete(self, triples: Ids, prefixes: Ids, stage: Stage) -> Paths:
        """Each prefix led on to its tail (line 9), or a whole path found afresh where that cannot be (line 13).

        Afresh as many are found as each fact gets at all; of these, the path that a prefix was drawn for takes the
        one of its number. So a fact whose prefixes all fail has paths like those of the first iteration.

        triples: (fact, 3); prefixes: (fact, path, 2 · (k − 1)) -> a row for each prefix, with a path or without,
        then one for each fact that lacks some
        """
        each = prefixes.shape[1]
        rows = prefixes.reshape(len(triples) * each, -1)
        seeds = self._seeds().generate_state(2, np.uint64)
        begun = np.flatnonzero(rows[:, 0] != NONE)
        continued = self._continued(triples[begun // each], rows[begun], int(seeds[0]), stage)
        is_left = np.ones((len(triples), each), bool)
        is_left.reshape(-1)[begun[continued.row]] = False
        lacking = is_left.any(axis=1)
        afresh = self._afresh(triples[lacking], each, int(seeds[1]), stage)
        return Paths.concatenate([continued, _taken(afresh, is_left[lacking])])

    def _continued(self, queries: Ids, prefixes: Ids, seed: int, stage: Stage) -> Paths:
        """Line 9: at most N − k + 1 hops more, so N in all."""
        return continue_paths(
            self.graph.train,
            queries,
            prefixes[:, 0::2],
            prefixes[:, 1::2],
            hops=self.recipe.paths.hops,
            seed=seed,
            progress=lambda done, total: stage(f"iteration {self.iteration}, ways on", done, total),
        )

    def _afresh(self, queries: Ids, each: int, seed: int, stage: Stage) -> Paths:
        """Line 13, like the first paths of all: along the run's rules first (§3.3)."""
        return sample_paths(
            self.graph.train,
            queries,
            rules_of(self.graph, self.recipe, self.run),
            hops=self.recipe.paths.hops,
            per_triple=each,
            seed=seed,
            progress=lambda done, total: stage(f"iteration {self.iteration}, paths afresh", done, total),
        )


def draw(
    owner: Offsets,  # (hypothesis), ascending: its query
    log_probability: npt.NDArray[np.float64],  # (hypothesis)
    query: Offsets,  # (fact)
    uniform: npt.NDArray[np.float64],  # (fact, path): numbers in [0, 1)
) -> Offsets:
    """Hypotheses of each fact's query, by probability among these; NONE where a query has none.  (fact, path)"""
    if not len(owner):
        return np.full(uniform.shape, NONE)
    first, last = np.searchsorted(owner, query), np.searchsorted(owner, query, side="right")
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    best = np.maximum.reduceat(log_probability, starts)
    sizes = np.diff(np.append(starts, len(owner)))
    total = np.append(0.0, np.cumsum(np.exp(log_probability - np.repeat(best, sizes))))
    wanted = total[first, None] + uniform * (total[last] - total[first])[:, None]
    at = np.searchsorted(total[1:], wanted, side="right")
    # A sum may round up to the next query's.
    return np.where((first < last)[:, None], np.clip(at, first[:, None], last[:, None] - 1), NONE)


def _taken(paths: Paths, is_taken: npt.NDArray[np.bool_]) -> Paths:
    """Of paths that were drawn so often for each row, these draws.  is_taken: (row, draw)"""
    drawn = np.repeat(np.arange(len(paths)), paths.weight)  # row by row, the same number each
    weight = np.bincount(drawn[is_taken.reshape(-1)], minlength=len(paths)).astype(np.int32)
    kept = np.flatnonzero(weight)
    columns = ("row", "length", "relations", "entities", "source", "rule")
    return replace(paths, weight=weight[kept], **{name: getattr(paths, name)[kept] for name in columns})
