"""Rule mining: every body that predicts enough train triples, with its counts.

For closed rules, the bodies that link the X and Y of each triple give the support; then the pairs that each of
these bodies links are counted. Rules with constants come from the attributes that entities share. Counts are exact
within a budget of steps; beyond it they are estimated from a sample, with a standard error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from squire.core.done_tasks import DoneTasks, digest
from squire.core.ragged import offsets_from, ranges
from squire.errors import SettingError
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.rules import _mining as kernels
from squire.rules._walks import Starts
from squire.rules.edges import edges_by_tail, walked_edges
from squire.rules.rules import MAX_LENGTH, NONE, PSEUDO_COUNT, Rules
from squire.rules.work import OutOfTime, Progress, Work

PILOT_STARTS = 64
GROUPS_PER_TASK = 64
TARGETS_PER_TASK = 4096


@dataclass(frozen=True)
class MiningOptions:
    """Which rules to mine."""

    length: int = 3
    """Longest body of a closed rule, 1 to 3."""
    min_support: int = 2
    """Train triples that a rule must predict."""
    min_confidence: float = 0.002
    """Share of a rule's predictions that must be train triples."""
    constants: bool = True
    """Also mine rules with constants."""
    constant_support: int = 3
    """The minimum support of rules with constants, which are far more numerous."""
    constant_confidence: float = 0.02
    """The minimum confidence of rules with constants."""
    max_constants: int = 300_000
    """Rules with constants to keep, those of the highest smoothed confidence: FB15K237 has millions."""
    budget: float = 5e10
    """Steps (edges looked at) per length; beyond it, counts are estimated from a sample."""
    minutes: float | None = None
    """Time limit. Less is counted exactly then, and rules that are not found in time are left out. Mining can go
    on later (`squire mine`, `squire fuse`)."""
    seed: int = 0
    """Seed of the samples."""
    threads: int | None = None
    """By default one per core; the result does not depend on it."""

    def __post_init__(self) -> None:
        if not 1 <= self.length <= MAX_LENGTH:
            raise SettingError(f"length={self.length}: expected 1 to {MAX_LENGTH}.")
        for name, least in (("min_support", 1), ("constant_support", 1), ("max_constants", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise SettingError(f"{name}={getattr(self, name)}: expected {least} or more.")
        for name in ("min_confidence", "constant_confidence"):
            if not 0 < getattr(self, name) <= 1:
                raise SettingError(f"{name}={getattr(self, name)}: expected a share above 0, at most 1.")
        if not self.budget > 0:  # refuses NaN too
            raise SettingError(f"budget={self.budget}: expected a positive number of steps.")
        if self.minutes is not None and not self.minutes > 0:
            raise SettingError(f"minutes={self.minutes}: expected a positive number of minutes.")


@dataclass(frozen=True)
class Mined:
    """The rules found; not complete if mining was interrupted, or if its time was up."""

    rules: Rules
    complete: bool
    interrupted: bool = False  # by Ctrl-C


def mining_of(file: Path, adjacency: Adjacency, options: MiningOptions) -> DoneTasks:
    """What was mined before for a file that is not complete yet. It is kept in a folder beside the file."""
    chosen = {key: value for key, value in asdict(options).items() if key not in ("minutes", "threads")}
    graph = (adjacency.num_entities, adjacency.offsets, adjacency.relations, adjacency.tails)
    return DoneTasks(mining_folder(file), digest(json.dumps(chosen), *graph).hex())


def mining_folder(file: Path) -> Path:
    """The folder of what was mined for a file, until that is complete."""
    return file.with_name(f"{file.name}.mining")


def mine_rules(
    adjacency: Adjacency,
    options: MiningOptions | None = None,
    progress: Progress | None = None,
    done: DoneTasks | None = None,
) -> Mined:
    """All rules within the options, by head and smoothed confidence.

    Ctrl-C and a time limit keep the rules found so far. With `done`, what was mined completely before is not mined
    again; it is for the caller to remove when it is no longer needed.
    """
    options = options or MiningOptions()
    if done is None and options.minutes is not None:
        done = DoneTasks()
    work = Work(options.threads, progress, options.minutes, done)
    parts: list[Rules] = []
    complete, interrupted = True, False
    try:
        for length in range(1, options.length + 1):
            complete &= _mine_in_time(adjacency, length, options, work, parts)
            if length == min(2, options.length) and options.constants:
                parts.append(_mine_constants(adjacency, options, work))
    except OutOfTime:
        complete = False
    except KeyboardInterrupt:
        complete, interrupted = False, True
    if done is not None and not complete:
        done.save()
    return Mined(sorted_rules(Rules.concatenate(adjacency.num_relations, parts)), complete, interrupted)


def _mine_in_time(
    adjacency: Adjacency, length: int, options: MiningOptions, work: Work, parts: list[Rules]
) -> bool:
    """Add the closed rules of one length to the parts. Returns whether time allowed all that the options ask for.

    If time may be short, half of what is left goes into work that the next call need not repeat, so that even
    many short calls come to an end. The other half goes into estimates of the rest.
    """
    before = len(parts)
    if work.steps_left() >= options.budget:
        parts.extend(_mine_closed(adjacency, length, options, work))
        return True
    try:
        with work.half_of_the_time():
            parts.extend(_mine_closed(adjacency, length, options, work))
        return True
    except OutOfTime:
        del parts[before:]  # found again: what was done is known
    with work.affordable():
        parts.extend(_mine_closed(adjacency, length, options, work))
    return False


def sorted_rules(rules: Rules, by_confidence: bool = False) -> Rules:
    """By head, then confidence, or the other way round; ties in a fixed order, so that runs are reproducible."""
    rest = (rules.body_constant, *rules.body.T[::-1], rules.head_constant)
    first = (rules.head, -rules.smoothed_confidence) if by_confidence else (-rules.smoothed_confidence, rules.head)
    return rules.take(np.lexsort((*rest, *first)))


# ------------------------------------------------------------------------------------------------- closed rules


def _mine_closed(adjacency: Adjacency, length: int, options: MiningOptions, work: Work) -> Iterator[Rules]:
    """The closed rules of one length, in parts."""
    head, key, support, share = find_support(adjacency, adjacency.triples, length, options, work)
    if not len(head):
        return
    keys, body_of = np.unique(key, return_inverse=True)
    best = np.zeros(len(keys))
    np.maximum.at(best, body_of, support)
    limits = best / options.min_confidence
    bodies = _bodies(keys, length, adjacency.num_relations)
    by_body = np.argsort(body_of, kind="stable")
    heads_of = np.bincount(body_of, minlength=len(keys))
    firsts = np.cumsum(heads_of) - heads_of

    for which, counts, errors, alive in _count_all(adjacency, bodies, length, limits, options, work):
        entries = by_body[ranges(firsts[which], heads_of[which])]
        local = np.repeat(np.arange(len(which)), heads_of[which])
        count = np.maximum(counts[local], support[entries])
        confidence = support[entries] / count
        # The relative variances of the support (from a share of the pairs) and of the body count add up.
        relative = (1 - share[entries]) / np.maximum(support[entries] * share[entries], 1)
        relative = np.sqrt(relative + (errors[local] / np.maximum(count, 1)) ** 2)
        good = alive[local] & (confidence >= options.min_confidence)
        none = np.full(len(entries), NONE, np.int32)
        rules = Rules(
            adjacency.num_relations,
            head[entries],
            bodies[body_of[entries]],
            none,
            none,
            np.rint(count).astype(np.int64),
            np.rint(support[entries]).astype(np.int64),
            confidence * relative,
        )
        yield rules.take(good)


def find_support(
    adjacency: Adjacency, triples: Ids, length: int, options: MiningOptions, work: Work
) -> tuple[Ids, Offsets, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Which bodies lead from the head to the tail of triples.  triples: (triple, 3)

    Per rule: head, body key, support among these triples, and the share of the head's triples that was examined.
    """
    edges = walked_edges(adjacency)
    by_pair = edges_by_tail(adjacency)
    sizes = np.bincount(triples[:, 1], minlength=adjacency.num_relations)
    of_relation = np.argsort(triples[:, 1], kind="stable")
    firsts = offsets_from(sizes)
    stage = f"bodies of length {length}"
    hub = _hubs(adjacency, triples)
    costs = _costs(adjacency, triples, hub, length)
    # The most expensive first: threads finish together.
    heads = np.lexsort((-costs, sizes == 0))[: np.count_nonzero(sizes)]
    wanted = np.minimum(1, _common_cut(costs, options.budget) / np.maximum(costs, 1))
    shares = wanted
    if work.most_steps < options.budget:
        left = costs * wanted
        left[[head for head in heads if work.knows(stage, head, wanted[head])]] = 0
        shares, cut = wanted.copy(), _common_cut(left, work.most_steps)
        shares[left > cut] *= cut / left[left > cut]

    def task(i: int) -> tuple[Ids, Offsets, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        head = heads[i]
        own = of_relation[firsts[head] : firsts[head + 1]]
        if shares[head] < 1:
            rng = np.random.default_rng([options.seed, length, int(head)])
            own = rng.choice(own, max(1, int(shares[head] * len(own))), replace=False)
        own = own[np.argsort(hub[own], kind="stable")]
        pairs = np.ascontiguousarray(triples[own][:, [0, 2]])
        keys, counts = kernels.count_support(pairs, length, adjacency.num_relations, edges, by_pair)
        share = len(own) / sizes[head]
        support = counts / share
        trivial = (length == 1) & (keys == int(head) * (2 * adjacency.num_relations) ** 2)
        good = (keys >= 0) & (support >= options.min_support) & ~trivial
        rows = int(np.count_nonzero(good))
        return np.full(rows, head, np.int32), keys[good], support[good], np.full(rows, share)

    def inputs(i: int) -> tuple[object, ...]:
        return heads[i], shares[heads[i]]

    found = dict(work.run(stage, task, len(heads), inputs, lambda i: bool(shares[heads[i]] == wanted[heads[i]])))
    columns = list(zip(*(found[i] for i in range(len(heads))), strict=True))
    if not columns:
        empty = np.empty(0)
        return empty.astype(np.int32), empty.astype(np.int64), empty, empty
    head, key, support, share = (np.concatenate(column) for column in columns)
    return head, key, support, share


def _hubs(adjacency: Adjacency, triples: Ids) -> Ids:
    """The end of each triple that has more edges; bodies are looked for from the other one.  (triple)"""
    degree = np.diff(adjacency.offsets)
    return np.where(degree[triples[:, 0]] > degree[triples[:, 2]], triples[:, 0], triples[:, 2])


def _costs(adjacency: Adjacency, triples: Ids, hub: Ids, length: int) -> npt.NDArray[np.float64]:
    """The steps that the pairs of each relation take."""
    degree = np.diff(adjacency.offsets)
    cost_of = np.asarray(degree, np.float64)
    if length == 3:  # two-hop walks from each entity
        cost_of = np.asarray(np.bincount(adjacency.heads, cost_of[adjacency.tails], adjacency.num_entities), float)
    walker = triples[:, 0] + triples[:, 2] - hub
    return np.asarray(np.bincount(triples[:, 1], cost_of[walker], adjacency.num_relations), np.float64)


def _common_cut(costs: npt.NDArray[np.float64], budget: float) -> float:
    """The cost to which the most expensive must be cut so that the total stays within the budget."""
    rising = np.sort(costs)
    # Cut to rising[i], the work is the sum of all smaller costs and a rectangle above them.
    work = np.cumsum(rising) - rising + rising * np.arange(len(rising), 0, -1)
    fits = int(np.searchsorted(work, budget, side="right"))
    return float("inf") if fits == len(rising) else float((budget - rising[:fits].sum()) / (len(rising) - fits))


def body_keys(bodies: Ids, num_relations: int) -> Offsets:
    """One number for each body among those of its length.  (body, MAX_LENGTH) -> (body)"""
    digits = np.where(bodies == NONE, 0, bodies).astype(np.int64)
    base = 2 * num_relations
    return np.asarray((digits[:, 0] * base + digits[:, 1]) * base + digits[:, 2])


def _bodies(keys: Offsets, length: int, num_relations: int) -> Ids:
    """The relations of body keys.  (body) -> (body, MAX_LENGTH)"""
    base = 2 * num_relations
    digits = np.stack([keys // base**2, keys // base % base, keys % base], axis=1).astype(np.int32)
    digits[:, length:] = NONE
    return digits


def _count_all(
    adjacency: Adjacency,
    bodies: Ids,  # (body, MAX_LENGTH), sorted
    length: int,
    limits: npt.NDArray[np.float64],
    options: MiningOptions,
    work: Work,
) -> Iterator[tuple[Offsets, npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.bool_]]]:
    """Body counts, in parts: which bodies, their counts, errors, and whether they are within the limits.

    First every group gets the same small budget. Those that cannot be exact within it then share the whole budget.
    """
    prefix = bodies[:, : max(length - 1, 1)]
    firsts = np.concatenate([[0], np.flatnonzero(np.any(prefix[1:] != prefix[:-1], axis=1)) + 1])
    sizes = np.diff(firsts, append=len(bodies))
    starts = _starts(adjacency, np.random.default_rng([options.seed, length]))
    edges = walked_edges(adjacency)
    runs = kernels.EdgeRuns(adjacency.runs.starts, adjacency.runs.offsets)

    budget = min(options.budget, work.most_steps)

    def count(stage: str, groups: Offsets, at_once: int) -> Iterator[tuple[Offsets, Any]]:
        def chosen(i: int) -> tuple[Offsets, Offsets]:
            own = groups[i * at_once : (i + 1) * at_once]
            return own, ranges(firsts[own], sizes[own])

        def inputs(i: int) -> tuple[object, ...]:
            _, which = chosen(i)
            return bodies[which], limits[which]  # the budget is no input: larger ones serve as well

        def task(i: int) -> tuple[Any, ...]:
            own, which = chosen(i)
            offsets = offsets_from(sizes[own])
            return kernels.count_bodies(
                bodies[which], offsets, length, limits[which], starts, PILOT_STARTS, budgets[own], edges, runs
            )

        tasks = -(-len(groups) // at_once)
        for i, result in work.run(stage, task, tasks, inputs, lambda i: budget == options.budget):
            own, which = chosen(i)
            yield own, (which, *result)

    budgets = np.full(len(firsts), budget / len(firsts))
    costs = np.zeros(len(firsts), np.float64)
    easy = count(f"counts of length {length}", np.arange(len(firsts)), GROUPS_PER_TASK)
    for own, (which, counts, errors, alive, cost) in easy:
        costs[own] = cost
        exact = np.repeat(cost == 0, sizes[own])
        yield which[exact], counts[exact], errors[exact], alive[exact]
    hard = np.argsort(-costs, kind="stable")[
        : np.count_nonzero(costs)
    ]  # the most expensive first: threads finish together
    budgets[hard] = _common_cut(costs[hard], budget)
    for _, (which, counts, errors, alive, _) in count(f"hard counts of length {length}", hard, 1):
        yield which, counts, errors, alive


def _starts(adjacency: Adjacency, rng: np.random.Generator) -> Starts:
    """The entities that have an edge of each type, shuffled: any prefix is a sample."""
    entities, offsets = adjacency.starts
    relation = np.repeat(np.arange(2 * adjacency.num_relations), np.diff(offsets))
    return Starts(entities[np.lexsort((rng.random(len(entities)), relation))], offsets)


# ------------------------------------------------------------------------------------------ rules with constants


class BestRules:
    """Collects the rules of the highest smoothed confidence, and never holds many more than are wanted."""

    def __init__(self, num_relations: int, most: int) -> None:
        self.num_relations, self.most = num_relations, most
        self.least = 0.0  # rules below this confidence are not among the best
        self._parts: list[Rules] = []

    def add(self, rules: Rules) -> None:
        self._parts.append(rules.take(rules.smoothed_confidence >= self.least))
        if sum(map(len, self._parts)) > 4 * self.most:
            self._parts = [self.found()]
            self.least = float(self._parts[0].smoothed_confidence.min(initial=1))

    def found(self) -> Rules:
        """By confidence."""
        found = sorted_rules(Rules.concatenate(self.num_relations, self._parts), by_confidence=True)
        return found.take(np.arange(min(len(found), self.most)))


def _mine_constants(adjacency: Adjacency, options: MiningOptions, work: Work) -> Rules:
    """r(X,c) ← b(X,d) and r(X,c) ← b(X,A), over all edge types r, which includes the mirror images."""
    best = BestRules(adjacency.num_relations, options.max_constants)
    n = adjacency.num_entities
    codes = adjacency.relations.astype(np.int64) * n + adjacency.tails
    attributes, attribute = np.unique(codes, return_inverse=True)
    proper = np.flatnonzero(adjacency.heads != adjacency.tails)
    order = proper[np.argsort(attribute[proper], kind="stable")]
    members = adjacency.heads[order]
    member_offsets = np.searchsorted(attribute[order], np.arange(len(attributes) + 1))
    relation, tail = np.divmod(attributes, max(n, 1))
    bearing = np.unique(adjacency.relations[proper].astype(np.int64) * n + adjacency.heads[proper]) // max(n, 1)
    bearers = np.bincount(bearing, minlength=2 * adjacency.num_relations)
    targets = np.flatnonzero(np.diff(member_offsets) >= options.constant_support)
    count = -(-len(targets) // TARGETS_PER_TASK)

    def task(i: int) -> tuple[Any, ...]:
        found = kernels.count_constants(
            targets[i * TARGETS_PER_TASK : (i + 1) * TARGETS_PER_TASK],
            options.constant_support, options.constant_confidence,
            members, member_offsets, attribute, relation, tail, bearers,
            walked_edges(adjacency),
        )  # fmt: skip
        _, _, body_count, support = found.T
        return (found[support / (body_count + PSEUDO_COUNT) >= best.least],)

    for _, (found,) in work.run("rules with constants", task, count, lambda i: (i,)):
        target, body, body_count, support = found.T
        is_any = body < 0
        safe = np.where(is_any, 0, body)
        full = np.full((len(target), MAX_LENGTH), NONE, np.int32)
        full[:, 0] = np.where(is_any, -1 - body, relation[safe])
        best.add(
            Rules(
                adjacency.num_relations,
                relation[target].astype(np.int32),
                full,
                tail[target].astype(np.int32),
                np.where(is_any, NONE, tail[safe]).astype(np.int32),
                body_count,
                support,
                np.zeros(len(target)),
            )
        )
    return best.found()
