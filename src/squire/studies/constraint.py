"""What is left of the answers if paths may walk only given edges (§4.6): does a model walk, or walk and complete?

The paper lets the model generate freely and counts the paths whose edges are all in the constraint. That needs one
search for all edge sets, and is what is done here (`filter`). Searching again within each edge set (`search`)
costs one search a set; it also finds paths that others had crowded out of the beam, so its figures may be higher.

Every condition has a journal of its own, so that what is finished is never done again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from squire.core.checkpoint import fingerprint
from squire.errors import SettingError
from squire.evaluation.baselines import rank_by_frequency
from squire.evaluation.metrics import Metrics, Signature
from squire.evaluation.paths import paths_signature, ranks_of
from squire.evaluation.queries import QuerySet
from squire.graph.adjacency import Adjacency, Ids
from squire.search.constraints import EdgeConstraint
from squire.search.decoding import DecodingOptions, PathRanking, decode, within
from squire.search.evidence import known_edges
from squire.search.trained import TrainedModel
from squire.studies.journal import Journal
from squire.studies.markdown import code, literal, table

FREE = "no constraint"
FREQUENCY = "tail frequency"
Progress = Callable[[str, int, int], None]  # condition, done, of how many


@dataclass(frozen=True)
class EdgeSet:
    """Edges that paths may be bound to, in the ids of the run's graph."""

    name: str
    edges: Adjacency


@dataclass(frozen=True)
class Row:
    """One condition."""

    edges: str  # whose
    decoding: str  # free, filter or search; or frequency, which needs no path
    size: int | None  # facts of the edge set
    leaked: int | None  # asked facts that are in it: where there are some, walking may be looking up
    metrics: Metrics
    walked: int | None  # of the answers right at rank 1 without constraint, those whose best path stays within
    completed: int | None  # the others

    @property
    def name(self) -> str:
        return {"free": FREE, FREQUENCY: FREQUENCY}.get(self.decoding, f"{self.edges}, {self.decoding}")

    @property
    def walked_share(self) -> float | None:
        if self.walked is None or self.completed is None:
            return None
        return self.walked / max(self.walked + self.completed, 1)

    def as_dict(self) -> dict[str, Any]:
        return {
            **vars(self),
            "name": self.name,
            "metrics": self.metrics.as_dict(),
            "walked_share": self.walked_share,
        }


class _Condition:
    """Ranks under one condition, as far as they are known."""

    def __init__(
        self, folder: Path, decoding: str, edges: EdgeSet | None, signature: Signature, work: dict[str, str]
    ) -> None:
        """`work` says whose answers to what these are."""
        self.decoding, self.edges, self.signature = decoding, edges, signature
        name, triples = (edges.name, _digest(edges.edges.triples)) if edges else ("", "")
        header = {"study": "constraint", "how": decoding, "edges": name, "triples": triples, **work}
        stem = re.sub(r"[^\w.-]+", "_", f"{decoding} {name}".strip())
        self._journal = Journal(folder / f"{stem}.jsonl", {**header, "signature": str(signature)})
        self.done = len(self.ranks)

    @property
    def ranks(self) -> npt.NDArray[np.float64]:
        """(query)"""
        return np.array([rank for entry in self._journal.entries for rank in entry["ranks"]], np.float64)

    @property
    def walked(self) -> npt.NDArray[np.bool_]:
        """Does the best path to the right answer stay within the edges?  (query)"""
        return np.array([one for entry in self._journal.entries for one in entry["walked"]], bool)

    def note(self, ranks: Sequence[float], walked: Sequence[bool]) -> None:
        self._journal.append({"ranks": list(ranks), "walked": list(walked)})
        self.done += len(ranks)


def _digest(triples: Ids) -> str:
    return hashlib.sha256(triples.tobytes()).hexdigest()[:12]


class ConstraintStudy:
    """A run under several constraints; `folder` holds what is done."""

    def __init__(
        self,
        run: TrainedModel,
        folder: Path,
        query_set: QuerySet,
        decoding: DecodingOptions,
        edge_sets: Sequence[EdgeSet],
    ) -> None:
        names = [edges.name for edges in edge_sets]
        if len(set(names)) < len(names):
            raise SettingError(f"--edges: two graphs of one name ({', '.join(names)}). To do: rename one.")
        self.run, self.query_set, self._how = run, query_set, decoding
        self._folder, self._edge_sets = folder, edge_sets
        self._work = {"model": fingerprint(run.folder), "queries": _digest(query_set.queries)}

    def rows(self, *, search: bool = False, progress: Progress | None = None) -> list[Row]:
        """No constraint, each edge set by filtering, if wanted each by searching again; and the tail frequency."""
        free = self._condition("free", None)
        filtered = [self._condition("filter", edges) for edges in self._edge_sets]
        searched = [self._condition("search", edges) for edges in self._edge_sets if search]
        self._search_once([free, *filtered], progress)
        for condition in searched:
            self._search_within(condition, progress)
        right = free.ranks == 1
        frequency = rank_by_frequency(self.run.graph, self.query_set).metrics()
        rows = [self._row(condition, right) for condition in (free, *filtered, *searched)]
        return [*rows, Row("", FREQUENCY, None, None, frequency, None, None)]

    def _condition(self, decoding: str, edges: EdgeSet | None) -> _Condition:
        bound = "" if edges is None else f"{edges.name} by {decoding}"
        signature = paths_signature(self.query_set, self._how, self.run.recipe.train.seed, bound)
        return _Condition(self._folder, decoding, edges, signature, self._work)

    def _search_once(self, conditions: Sequence[_Condition], progress: Progress | None) -> None:
        """One free search, from which all these conditions follow. It begins where the least is known."""
        queries, done = self.query_set.queries, min(condition.done for condition in conditions)
        for block in decode(self.run.decoder, queries[done:, :2], self._how):
            own = queries[done : done + len(block)]
            for condition in conditions:
                known = condition.done - done  # of this block
                if known < len(block):
                    ranks, walked = self._judged(block, own, condition.edges)
                    condition.note(ranks[known:], walked[known:])
            done += len(block)
            if progress:
                progress("searching", done, len(queries))

    def _judged(self, block: PathRanking, queries: Ids, edges: EdgeSet | None) -> tuple[list[float], list[bool]]:
        if edges is None:
            return ranks_of(block, queries, self.query_set.filter), []
        allowed = _stays_within(block, queries, edges.edges)
        best = [block.best_path_to(number, answer) for number, answer in enumerate(queries[:, 2].tolist())]
        walked = [path is not None and bool(allowed[path]) for path in best]
        left = within(block, allowed, queries[:, 1].astype(np.int64), self._how)
        return ranks_of(left, queries, self.query_set.filter), walked

    def _search_within(self, condition: _Condition, progress: Progress | None) -> None:
        assert condition.edges is not None
        bound = EdgeConstraint.from_adjacency(condition.edges.edges, self.run.device)
        queries = self.query_set.queries
        for block in decode(self.run.decoder, queries[condition.done :, :2], replace(self._how, constraint=bound)):
            own = queries[condition.done : condition.done + len(block)]
            condition.note(ranks_of(block, own, self.query_set.filter), [])
            if progress:
                progress(f"searching within {condition.edges.name}", condition.done, len(queries))

    def _row(self, condition: _Condition, right: npt.NDArray[np.bool_]) -> Row:
        metrics = Metrics.from_ranks(condition.ranks, condition.signature, intervals=True)
        if condition.edges is None:
            return Row(FREE, condition.decoding, None, None, metrics, None, None)
        edges, queries = condition.edges.edges, self.query_set.queries
        leaked = int(edges.contains_each(*queries.T).sum())
        walked = int(condition.walked[right].sum()) if condition.decoding == "filter" else None
        completed = None if walked is None else int(right.sum()) - walked
        size = len(edges.triples)
        return Row(condition.edges.name, condition.decoding, size, leaked, metrics, walked, completed)


def _stays_within(block: PathRanking, queries: Ids, edges: Adjacency) -> npt.NDArray[np.bool_]:
    """Are all edges of a path among these?  (path)"""
    answers = np.repeat(queries[:, 0].astype(np.int64), np.diff(block.offsets))  # their questions' heads
    heads = np.repeat(answers, np.diff(block.path_offsets))
    return np.asarray(known_edges(edges, heads, block.trail).sum(1) == block.hops)


def note(row: Row) -> str:
    """What a picture should say of a row beside its bars."""
    share = "" if row.walked_share is None else f"{row.walked_share:.0%} of right answers walk"
    leak = f"knows {row.leaked:,} of the query_set facts" if row.leaked else ""
    return "\n".join(filter(None, (share, leak)))


def markdown(rows: Sequence[Row]) -> str:
    """The table, and the signatures of its rows."""
    free = rows[0].metrics
    query_set = free.signature
    headings = ("edges", "facts", "asked facts among them", "MRR", "Hits@1", "of Hits@1 without constraint",
                "right answers: walked", "completed")  # fmt: skip
    lines = []
    for row in rows:
        kept = f"{row.metrics.hits1 / free.hits1:.0%}" if free.hits1 else "–"
        share = row.walked_share
        walked = "" if share is None else f"{row.walked:,} ({share:.0%})"
        completed = "" if share is None else f"{row.completed:,} ({1 - share:.0%})"
        counts = ["" if count is None else f"{count:,}" for count in (row.size, row.leaked)]
        lines.append((literal(row.name), *counts, *_with_intervals(row.metrics), kept, walked, completed))
    return "\n".join([
        f"# Constraints on {query_set.dataset}, {query_set.split}\n",
        f"{free.queries:,} questions. Filter: only paths of one free search that have these edges alone. Search: "
        "a search within these edges. Walked: of the answers that are right at rank 1 without constraint, those "
        "whose best path has these edges alone; completed: the others.\n",
        table(headings, lines),
        *(code(str(row.metrics.signature)) for row in rows),
    ])  # fmt: skip


def _with_intervals(metrics: Metrics) -> tuple[str, str]:
    cells = []
    for name in ("mrr", "hits1"):
        low, high = (metrics.intervals or {})[name]
        cells.append(f"{getattr(metrics, name):.3f} ({low:.3f} – {high:.3f})")
    return cells[0], cells[1]
