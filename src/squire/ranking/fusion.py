"""The fused ranker: fit it to a graph, rank candidates by all evidence, save and load it.

Folds of train are hidden one after the other, and rules are mined, and models trained, on the rest. Rules that
have seen the hidden facts would look better than they are: with rules of all of train, the hidden facts of NELL23K
had an MRR of .375 instead of .268, and the ranker relied on rules too much (valid .302 instead of .311). Valid
decides whether linked pairs are excluded, and how scores become confidences. Test is never used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from squire.core.relations import both_directions, is_inverse
from squire.core.run_files import FUSION
from squire.core.tensors import load_checkpoint, save_checkpoint
from squire.errors import CheckpointError, SettingError
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.graph.graph import Graph
from squire.ranking._features import Profile
from squire.ranking.attribution import contributions
from squire.ranking.calibration import Calibration, Calibrations, Ints
from squire.ranking.features import CandidateFeatures, CandidateLists, MakeScorers, Scorer, no_scorers
from squire.ranking.folds import FOLDS, hide, pairs_look_unlinked
from squire.ranking.index import name_words, no_words
from squire.ranking.ranker import Ranker, RankerOptions, fit_ranker
from squire.rules.mining import MiningOptions, mine_rules
from squire.rules.rules import Rules

Floats = npt.NDArray[np.float64]
Stage = Callable[[str, int, int], None]  # name, done, total

TRAINING_QUERIES = 22_000  # in both directions: all that NELL23K has
CALIBRATION_QUERIES = 10_000
KINDS = 4  # of answers to calibrate: tail or head, first of its list or not
FILE_VERSION = 4


@dataclass(frozen=True)
class FusionOptions:
    """How to fit a fusion."""

    seed: int = 0  # of the folds and the ranker
    folds: int = FOLDS
    use_names: bool = True  # are words that names share evidence?
    mining: MiningOptions = field(default_factory=MiningOptions)
    ranker: RankerOptions = field(default_factory=RankerOptions)


@dataclass(frozen=True)
class FusionInfo:
    """How a fusion was fitted."""

    seed: int
    folds: int
    folds_used: int  # until there were enough queries
    queries: int  # about hidden facts
    lists: int  # queries with the right answer among the candidates, from which the ranker learned
    unlinked: bool  # are linked pairs excluded, from the hidden facts and from the candidates?
    use_names: bool
    mining: dict[str, object]


@dataclass(frozen=True)
class FusedRanking:
    """The candidates of some queries with their scores."""

    lists: CandidateLists
    scores: Floats  # (candidate): logits, comparable within a query
    rank_score: Floats  # (candidate): softmax of the logits. Which answer is right, if one is missing?
    confidence: Floats  # (candidate): calibrated probability. Is this fact true?


@dataclass(frozen=True)
class Fusion:
    """A ranker over the features of a graph's candidates, with calibrated confidences."""

    features: CandidateFeatures
    ranker: Ranker
    calibration: Calibrations
    info: FusionInfo

    def rank(self, queries: Ids, threads: int | None = None) -> Iterator[FusedRanking]:
        """The candidates of all queries, in blocks and in order.  queries: (query, 2)"""
        for lists in self.features.stream(np.ascontiguousarray(queries), threads):
            yield self.calibrated(lists, _scores(self.ranker, lists))

    def calibrated(self, lists: CandidateLists, scores: Floats) -> FusedRanking:
        """The ranking of candidates with these scores, if there are no others.  scores: (candidate)"""
        rank_score = _softmax(lists, scores)
        kind = _kinds(lists, scores, self.features.adjacency.num_relations)
        confidence = self.calibration.confidence(rank_score, kind)
        return FusedRanking(lists, scores, rank_score, _at_most_first(confidence, scores, lists))

    def contributions(self, lists: CandidateLists) -> dict[str, Floats]:
        """What each source of evidence adds to the score of each candidate.  source -> (candidate)"""
        relations = lists.queries[lists.query, 1]
        return contributions(lambda x: self.ranker.scores(x, relations), lists.features, self.features.table)


# ------------------------------------------------------------------------------------------------------ fitting


def fit_fusion(
    graph: Graph,
    options: FusionOptions | None = None,
    make_scorers: MakeScorers = no_scorers,
    progress: Stage | None = None,
) -> Fusion:
    """Fit ranker and calibration; the result depends on train, valid and the options only."""
    options, stage = options or FusionOptions(), progress or (lambda name, done, total: None)
    mining, seed = options.mining, options.seed
    unlinked = pairs_look_unlinked(graph)
    words = _words(graph, options.use_names)

    def features_of(adjacency: Adjacency) -> CandidateFeatures:
        rules = _mine(adjacency, mining, stage)
        return CandidateFeatures(adjacency, rules, unlinked, make_scorers(adjacency), words)

    folds = hide(graph.train, options.folds, seed, unlinked)
    training = _training_lists(graph, folds, features_of, seed, mining.threads, stage)
    features = features_of(graph.train)
    ranker = fit_ranker(
        training.lists, training.right, features.table, 2 * graph.num_relations, seed, options.ranker,
        lambda done, total: stage("fitting the ranker", done, total),
    )  # fmt: skip
    mined_with = {key: value for key, value in asdict(mining).items() if key != "threads"}  # no effect on rules
    info = FusionInfo(
        seed, options.folds, training.folds, training.queries, len(training.lists), unlinked, options.use_names,
        mined_with,
    )  # fmt: skip
    answers = _valid_answers(features, ranker, graph, seed, mining.threads, stage)
    return Fusion(features, ranker, Calibrations.fit(*answers, KINDS), info)


def _words(graph: Graph, use_names: bool) -> Profile:
    return name_words(graph.labels.entities) if use_names else no_words(graph.num_entities)


def _mine(adjacency: Adjacency, options: MiningOptions, stage: Stage) -> Rules:
    mined = mine_rules(adjacency, options, stage)
    if not mined.complete:  # a partial rule set would not be comparable with those of other folds
        raise KeyboardInterrupt
    return mined.rules


def _sample(rows: Ids, most: int, seed: int) -> Ids:
    """A random sample of at most `most` rows, in their order."""
    if len(rows) <= most:
        return rows
    return rows[np.sort(np.random.default_rng(seed).choice(len(rows), most, replace=False))]


@dataclass(frozen=True)
class _TrainingLists:
    """Lists of candidates that contain the right answer, to train the ranker."""

    lists: CandidateLists
    right: Offsets  # (list): position of the right answer among all candidates
    queries: int  # including those whose answer is not among the candidates
    folds: int


def _training_lists(
    graph: Graph,
    folds: Iterable[tuple[Adjacency, Ids]],
    features_of: Callable[[Adjacency], CandidateFeatures],
    seed: int,
    threads: int | None,
    stage: Stage,
) -> _TrainingLists:
    """Queries about hidden facts, one fold after the other until there are enough."""
    parts: list[CandidateLists] = []
    num_queries, num_folds = 0, 0
    for remaining, hidden in folds:
        if num_queries >= TRAINING_QUERIES:
            break
        queries = both_directions(
            _sample(hidden, (TRAINING_QUERIES - num_queries) // 2, seed), graph.num_relations
        )
        parts += _lists_with_answer(features_of(remaining), queries, graph.train, threads, stage)
        num_queries, num_folds = num_queries + len(queries), num_folds + 1
    if not any(len(part) for part in parts):
        raise SettingError(
            f"{graph.name}: too small for a fusion, since no train fact can be hidden and found again. Use rules "
            "alone (`squire mine`)."
        )
    lists = CandidateLists.join(parts)
    head, relation = lists.queries[lists.query].T
    right = np.flatnonzero(graph.train.contains_each(head, relation, lists.candidates))
    return _TrainingLists(lists, right, num_queries, num_folds)


def _lists_with_answer(
    features: CandidateFeatures, queries: Ids, train: Adjacency, threads: int | None, stage: Stage
) -> Iterator[CandidateLists]:
    """Lists of the queries whose answer is a candidate, without other known answers.  queries: (query, 3)"""
    done = 0
    for lists in features.stream(np.ascontiguousarray(queries[:, :2]), threads):
        head, relation, answer = queries[done : done + len(lists)][lists.query].T  # (candidate) each
        right = lists.candidates == answer
        is_known = train.contains_each(head, relation, lists.candidates)
        found = np.bincount(lists.query[right], minlength=len(lists)) > 0
        kept = np.flatnonzero((right | ~is_known) & found[lists.query])
        yield lists.take(kept).only(np.flatnonzero(found))
        done += len(lists)
        stage("evidence for hidden facts", done, len(queries))


def _valid_answers(
    features: CandidateFeatures, ranker: Ranker, graph: Graph, seed: int, threads: int | None, stage: Stage
) -> tuple[Floats, npt.NDArray[np.bool_], Floats, Ints]:
    """The candidates of valid's distinct queries: rank score, whether in valid, unseen true answers, kind."""
    queries = np.unique(both_directions(graph.valid, graph.num_relations)[:, :2], axis=0)
    queries = _sample(queries, CALIBRATION_QUERIES, seed)
    valid = graph.known("valid")
    parts = [(np.empty(0), np.empty(0, bool), np.empty(0), np.empty(0, np.int64))]
    done = 0
    for lists in features.stream(np.ascontiguousarray(queries), threads):
        head, relation = lists.queries[lists.query].T
        scores = _scores(ranker, lists)
        is_true = valid.contains_each(head, relation, lists.candidates)
        number = np.array([len(valid.tails_of(*query)) for query in lists.queries.tolist()])
        unseen = is_true * (1 - 2.0 ** (1 - number))[lists.query]
        parts.append((_softmax(lists, scores), is_true, unseen, _kinds(lists, scores, graph.num_relations)))
        done += len(lists)
        stage("calibrating", done, len(queries))
    score, truth, unseen, kind = (np.concatenate(column) for column in zip(*parts, strict=True))
    return score, truth, unseen, kind


def _scores(ranker: Ranker, lists: CandidateLists) -> Floats:
    """(candidate)"""
    return ranker.scores(lists.features, lists.queries[lists.query, 1])


def _softmax(lists: CandidateLists, scores: Floats) -> Floats:
    """The softmax of the scores within each list.  (candidate)"""
    query = lists.query
    top = np.full(len(lists), -np.inf)
    np.maximum.at(top, query, scores)
    weight = np.exp(scores - top[query])
    return np.asarray(weight / np.bincount(query, weight, minlength=len(lists))[query])


def _kinds(lists: CandidateLists, scores: Floats, num_relations: int) -> Ints:
    """Which of the KINDS each candidate is.  (candidate)"""
    is_head = is_inverse(lists.queries[lists.query, 1], num_relations)
    return np.asarray(2 * is_head + (_positions(lists, scores) > 0), np.int64)


def _positions(lists: CandidateLists, scores: Floats) -> Offsets:
    """0, 1, 2 … by falling score within each list.  (candidate)"""
    best_first = np.lexsort((-scores, lists.query))
    position = np.empty(len(scores), np.int64)
    position[best_first] = np.arange(len(scores)) - lists.offsets[lists.query[best_first]]
    return position


def _at_most_first(confidence: Floats, scores: Floats, lists: CandidateLists) -> Floats:
    """Limit confidences, which come from different maps, to that of the first answer of the list.  (candidate)"""
    first = confidence[_positions(lists, scores) == 0]
    sizes = np.diff(lists.offsets)
    return np.asarray(np.minimum(confidence, np.repeat(first, sizes[sizes > 0])))


# -------------------------------------------------------------------------------------------------- in a folder


def has_fusion(folder: Path) -> bool:
    """Whether a run folder contains a fusion."""
    return any(folder.glob(f"{FUSION}*.safetensors"))


def save_fusion(fusion: Fusion, folder: Path) -> Path:
    """Write weights, rules and calibration as one file, atomically.

    The graph is not included, only a checksum of its edges and words, since rules and weights refer to ids.
    """
    rules = fusion.features.rules
    arrays = {f"rules.{column.name}": getattr(rules, column.name) for column in fields(Rules)[1:]}
    for kind, own in enumerate(fusion.calibration.maps):
        arrays |= {f"calibration{kind}.{column.name}": getattr(own, column.name) for column in fields(Calibration)}
    arrays |= {f"ranker.{name}": tensor.detach().numpy() for name, tensor in fusion.ranker.tensors().items()}
    state: dict[str, Any] = {
        "fusion": FILE_VERSION,
        "features": [feature.name for feature in fusion.features.table],
        "models": [scorer.fingerprint for scorer in fusion.features.scorers],
        "ranker": asdict(fusion.ranker.options),
        "info": asdict(fusion.info),
        "graph_sha256": _checksum(fusion.features.adjacency, fusion.features.words),
    }
    return save_checkpoint(folder, FUSION, arrays, state)


def load_fusion(folder: Path, graph: Graph, scorers: Sequence[Scorer] = ()) -> Fusion:
    """Inverse of `save_fusion`, given the graph, and models that it may have been fitted with."""
    checkpoint = load_checkpoint(folder, FUSION)
    state = checkpoint.state
    columns = set(state.get("features", ()))
    scorers = [scorer for scorer in scorers if columns.issuperset(row.name for row in scorer.table)]
    try:
        if state.get("fusion") != FILE_VERSION:
            raise CheckpointError(
                f"has version {state.get('fusion')}, but this version of squire reads {FILE_VERSION}."
            )
        info = FusionInfo(**state["info"])
        words = _words(graph, info.use_names)
        if state["graph_sha256"] != _checksum(graph.train, words):
            raise CheckpointError("was fitted to another graph: the train facts or the names are not the same.")
        rules = Rules(graph.num_relations, *_arrays(checkpoint.part("rules."), Rules, 1))
        features = CandidateFeatures(graph.train, rules, info.unlinked, scorers, words)
        names = [feature.name for feature in features.table]
        if state["features"] != names:
            raise CheckpointError(f"was fitted to other features; {_difference(state['features'], names)}.")
        if state.get("models", []) != [scorer.fingerprint for scorer in scorers]:
            raise CheckpointError("was fitted with another model.")
        options = RankerOptions(**state["ranker"])
        fitted = {name: torch.from_numpy(array) for name, array in checkpoint.part("ranker.").items()}
        ranker = Ranker.from_tensors(fitted, features.table, 2 * graph.num_relations, options)
        parts = [checkpoint.part(f"calibration{kind}.") for kind in range(KINDS)]
        calibration = Calibrations(tuple(Calibration(*_arrays(part, Calibration, 0)) for part in parts))
    except (CheckpointError, KeyError, TypeError) as error:
        reason = error if isinstance(error, CheckpointError) else f"not a fusion that squire can read ({error})."
        raise CheckpointError(f"{checkpoint.file}: {reason} Run `squire fuse` again.") from None
    return Fusion(features, ranker, calibration, info)


def _arrays(arrays: dict[str, np.ndarray], kind: type, skip: int) -> list[np.ndarray]:
    """The columns of a dataclass of arrays, in its order."""
    return [arrays[column.name] for column in fields(kind)[skip:]]


def _difference(old: Sequence[str], new: Sequence[str]) -> str:
    missing, added = sorted(set(old) - set(new)), sorted(set(new) - set(old))
    parts = [f"{what} {', '.join(names)}" for what, names in (("without", missing), ("with", added)) if names]
    return f"now there are those {' and '.join(parts)}" if parts else "now they have another order"


def _checksum(adjacency: Adjacency, words: Profile) -> str:
    digest = hashlib.sha256(f"{adjacency.num_entities} {adjacency.num_relations}".encode())
    for array in (adjacency.offsets, adjacency.relations, adjacency.tails, *words[:3]):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
