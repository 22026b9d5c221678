"""A graph of any size with the traits of real ones, whose rules are known.

Entities have types, and relations link types. Degrees follow Zipf's law in both directions, so there are hubs;
some relations are single-valued. The facts of two fifths of the relations follow from others by a planted rule, as
far as it holds, and all relations have noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

Ints = npt.NDArray[np.int64]

PLANTED_SHARE, SINGLE_VALUED_SHARE, NOISE = 0.4, 0.3, 0.02
HELD_OUT = 5000  # facts of valid, and of test, at most
MOST_PAIRS = 4_000_000  # that a planted body may link


@dataclass(frozen=True)
class Planted:
    """A rule by which facts were made."""

    head: int
    body: tuple[int, ...]  # relations from head to tail; -1 - r walks r backwards
    confidence: float  # in train
    support: int


@dataclass(frozen=True)
class MadeGraph:
    """The splits, and the rules behind them."""

    splits: dict[str, Ints]  # (fact, 3) each
    planted: list[Planted]
    entities: int
    relations: int

    def write(self, folder: Path) -> None:
        """As TSV files, of which any tool can read three columns of names."""
        folder.mkdir(parents=True, exist_ok=True)
        entities = pa.array([f"e{i}" for i in range(self.entities)])
        relations = pa.array([f"r{i}" for i in range(self.relations)])
        options = pyarrow.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
        for name, facts in self.splits.items():
            columns = [entities.take(facts[:, 0]), relations.take(facts[:, 1]), entities.take(facts[:, 2])]
            pyarrow.csv.write_csv(pa.table(columns, names=["h", "r", "t"]), folder / f"{name}.tsv", options)


def make_graph(facts: int, entities: int, relations: int, hub: int, seed: int = 0) -> MadeGraph:
    """`hub` is the number of edges that the largest hub has of its largest relation."""
    rng = np.random.default_rng(seed)
    types = max(4, relations // 5)
    sizes = np.maximum((entities * _zipf(types, 0.7)).astype(np.int64), 10)
    firsts = np.minimum(np.cumsum(sizes) - sizes, entities - 10)
    sizes[-1] = max(entities - firsts[-1], 10)
    num_base = relations - int(PLANTED_SHARE * relations)
    quota = (facts * (1 + NOISE) * _zipf(relations, 0.8)).astype(np.int64)[rng.permutation(relations)]
    quota[0] = max(quota[0], int(1.6 * hub))
    ends = rng.integers(0, types, (relations, 2))
    found: list[Ints] = []  # (pair, 2) of each relation
    for r in range(num_base):
        head_type, tail_type = ends[r]
        single = r == 0 or rng.random() < SINGLE_VALUED_SHARE
        count = min(quota[r], int(0.9 * sizes[head_type])) if single and r else quota[r]
        if single and r:
            heads = rng.permutation(sizes[head_type])[:count]
        else:
            heads = _drawn(sizes[head_type], count, rng.uniform(0.0, 0.7), rng)
        tails = _drawn(sizes[tail_type], count, rng.uniform(0.4, 1.0), rng)
        if r == 0:
            tails[: min(hub, count)] = 0
            heads = np.resize(rng.permutation(entities), count) - firsts[head_type]  # of any type
        found.append(_unique(np.stack([heads + firsts[head_type], tails + firsts[tail_type]], axis=1), rng, count))
    bodies = {}
    for r in range(num_base, relations):
        body, pairs = _planted_pairs(found, ends[:num_base], int(quota[r]), rng)
        share = min(1.0, quota[r] / max(len(pairs), 1), rng.choice([0.9, 0.6, 0.3]))
        bodies[r] = body
        found.append(pairs[rng.random(len(pairs)) < share])
    for r, pairs in enumerate(found):
        noise = rng.integers(0, entities, (int(NOISE * len(pairs)), 2))
        found[r] = _unique(np.concatenate([pairs, noise]), rng, len(pairs) + len(noise))
    every = np.concatenate([np.insert(pairs, 1, r, axis=1) for r, pairs in enumerate(found)])  # (fact, 3)
    every = every[rng.permutation(len(every))]
    held_out = min(HELD_OUT, len(every) // 20)
    splits = dict(zip(("valid", "test", "train"), np.split(every, [held_out, 2 * held_out]), strict=True))
    in_train = [splits["train"][splits["train"][:, 1] == r][:, [0, 2]] for r in range(relations)]
    planted = []
    for r, body in bodies.items():
        pairs = _linked(in_train, body)
        support = len(np.intersect1d(_codes(pairs, entities), _codes(in_train[r], entities)))
        planted.append(Planted(r, body, support / max(len(pairs), 1), support))
    return MadeGraph(splits, planted, entities, relations)


def _zipf(size: int, exponent: float) -> npt.NDArray[np.float64]:
    weights = np.arange(1, size + 1) ** -exponent
    return np.asarray(weights / weights.sum())


def _drawn(size: int, count: int, exponent: float, rng: np.random.Generator) -> Ints:
    """Members of a type by Zipf's law, of which each relation has an order of its own."""
    chosen = np.searchsorted(np.cumsum(_zipf(size, exponent)), rng.random(count))
    return np.asarray(rng.permutation(size)[np.minimum(chosen, size - 1)])


def _codes(pairs: Ints, entities: int) -> Ints:
    return np.asarray(pairs[:, 0] * entities + pairs[:, 1])


def _unique(pairs: Ints, rng: np.random.Generator, count: int) -> Ints:
    """Distinct pairs of two entities, in random order."""
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    return pairs[rng.permutation(len(pairs))[:count]]


def _planted_pairs(
    found: list[Ints], ends: Ints, quota: int, rng: np.random.Generator
) -> tuple[tuple[int, ...], Ints]:
    """A body of one to three atoms that links enough pairs, but not too many."""
    best: tuple[tuple[int, ...], Ints] = ((0,), found[0][:0])
    # Not relation 0, whose hub links too many.
    atoms = [(r, *ends[r]) for r in range(1, len(ends))] + [(-1 - r, *ends[r][::-1]) for r in range(1, len(ends))]
    length = int(rng.choice([1, 2, 2, 3]))
    for _ in range(50):
        body: tuple[int, ...] = ()
        at = None
        for _ in range(length):
            fitting = [(atom, end) for atom, start, end in atoms if at in (None, start) and -1 - atom not in body]
            if fitting:
                atom, at = fitting[rng.integers(len(fitting))]
                body += (atom,)
        if _size(found, body) > MOST_PAIRS:
            continue
        pairs = _linked(found, body)
        if len(pairs) > len(best[1]):
            best = body, pairs
        if len(pairs) >= quota:
            break
    return best


def _pairs(found: list[Ints], atom: int) -> Ints:
    return found[atom] if atom >= 0 else found[-1 - atom][:, ::-1]


def _size(found: list[Ints], body: tuple[int, ...]) -> float:
    """The walks along a body, without walking: they may be far too many."""
    size = max(int(pairs.max()) + 1 for pairs in found if len(pairs))
    walks = np.ones(size)
    for atom in reversed(body):
        pairs = _pairs(found, atom)
        walks = np.bincount(pairs[:, 0], walks[pairs[:, 1]], minlength=size).astype(np.float64)
    return float(walks.sum())


def _linked(found: list[Ints], body: tuple[int, ...]) -> Ints:
    """The distinct pairs of two entities that a body links."""
    linked = _pairs(found, body[0])
    for atom in body[1:]:
        step = _pairs(found, atom)
        step = step[np.argsort(step[:, 0], kind="stable")]
        low = np.searchsorted(step[:, 0], linked[:, 1], side="left")
        counts = np.searchsorted(step[:, 0], linked[:, 1], side="right") - low
        begins = np.cumsum(counts) - counts
        rows = np.repeat(low - begins, counts) + np.arange(counts.sum())
        linked = np.unique(np.stack([np.repeat(linked[:, 0], counts), step[rows, 1]], axis=1), axis=0)
    return np.asarray(linked[linked[:, 0] != linked[:, 1]])
