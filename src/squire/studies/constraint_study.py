"""How many answers remain if paths may use only given edges (§4.6): does the model walk the graph, or complete it?

The paper lets the model search freely and counts the paths whose edges are all in the edge set. One search serves
all edge sets; this is the `filter` condition. The `search` condition searches again within each edge set. It also
finds paths that others had crowded out of the beam, so its figures may be higher.

Every condition has its own journal, so nothing that is finished is computed again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from squire.core.progress import Progress, no_progress, progress_bar
from squire.core.run_files import fingerprint
from squire.errors import SettingError
from squire.evaluation.baselines import rank_by_frequency
from squire.evaluation.metrics import Metrics, Signature
from squire.evaluation.paths import paths_signature, ranks_of
from squire.evaluation.queries import QuerySet
from squire.graph.adjacency import Adjacency, Ids
from squire.graph.graph import Graph
from squire.search.decoding import PathRanking, decode, within
from squire.search.evidence import known_edges
from squire.search.options import Aggregate, DecodingOptions, SearchEdges
from squire.search.trained import TrainedModel
from squire.studies.graphs import GraphSource, open_graph
from squire.studies.journal import Journal, digest
from squire.studies.reports import FREQUENCY, Report, code, draw_constraints, escape, metric_cells, table

FREE = "no constraint"


def constraint(
    run: str | Path,
    out: str | Path,
    *,
    edges: Sequence[GraphSource] = (),
    split: str = "valid",
    search: bool = False,
    sample: int | None = None,
    seed: int = 0,
    aggregate: Aggregate | None = None,
    beam: int | None = None,
    progress: bool = True,
) -> ConstraintResult:
    """Evaluates a run without constraint, within its own train edges and within those of each of `edges`.

    out: the folder of the journals. edges: graphs, files or dataset names, more complete than the run's own graph.
    search: also search again within each edge set. sample: evaluate only so many queries, drawn by `seed`.
    """
    with progress_bar("loading", progress) as bar:
        model = TrainedModel.load(Path(run))
        edge_sets = [EdgeSet("graph", model.graph.train), *(_edge_set(model.graph, source) for source in edges)]
        query_set = QuerySet.from_graph(model.graph, split, sample=sample, seed=seed)
        if aggregate is None and model.recipe.decode.aggregate == "pool":  # which no constraint goes with
            aggregate = "sum"
        decoding = model.decoding(beam=beam, aggregate=aggregate)
        study = ConstraintStudy(model, Path(out), query_set, decoding, edge_sets)
        return ConstraintResult(study.rows(search=search, progress=bar.stage))


def _edge_set(graph: Graph, source: GraphSource) -> EdgeSet:
    """The train edges of another graph between our entities: its test split may hold the answers.

    A single file is not divided into splits, so all of it is used.
    """
    other = open_graph(source, holdout=(0, 0))
    found = EdgeSet(other.name, graph.edges_of(other))
    if not found.edges.num_edges:
        raise SettingError(f"edges: {other.name} has no edge between the entities of {graph.name}.")
    return found


@dataclass(frozen=True)
class EdgeSet:
    """Edges that paths are restricted to, in the ids of the run's graph."""

    name: str
    edges: Adjacency


@dataclass(frozen=True)
class ConditionResult:
    """The figures under one condition."""

    edges: str  # name of the edge set
    decoding: str  # free, filter, search or the tail frequency, which needs no path
    size: int | None  # facts of the edge set
    leaked: int | None  # facts of the evaluation that are in the edge set, so that their answers can be looked up
    metrics: Metrics
    walked: int | None  # answers at rank 1 without constraint whose best path stays within the edge set
    completed: int | None  # the other answers at rank 1

    @property
    def name(self) -> str:
        return {"free": FREE, FREQUENCY: FREQUENCY}.get(self.decoding, f"{self.edges}, {self.decoding}")

    @property
    def walked_share(self) -> float | None:
        if self.walked is None or self.completed is None:
            return None
        return self.walked / max(self.walked + self.completed, 1)

    @property
    def note(self) -> str:
        """What the picture says below the name."""
        share = "" if self.walked_share is None else f"{self.walked_share:.0%} of correct answers walk"
        leak = f"contains {self.leaked:,} of the facts asked for" if self.leaked else ""
        return "\n".join(filter(None, (share, leak)))

    def as_dict(self) -> dict[str, Any]:
        metrics = self.metrics.as_dict()
        return {**vars(self), "name": self.name, "metrics": metrics, "walked_share": self.walked_share}


class _Condition:
    """The ranks under one condition, as far as they are known."""

    def __init__(
        self, folder: Path, decoding: str, edges: EdgeSet | None, signature: Signature, work: dict[str, str]
    ) -> None:
        """`work` identifies the model and the queries."""
        self.decoding, self.edges, self.signature = decoding, edges, signature
        name, triples = (edges.name, digest(edges.edges.triples)) if edges else ("", "")
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
        """Whether the best path to the correct answer stays within the edge set.  (query)"""
        return np.array([one for entry in self._journal.entries for one in entry["walked"]], bool)

    def record(self, ranks: Sequence[float], walked: Sequence[bool]) -> None:
        self._journal.append({"ranks": list(ranks), "walked": list(walked)})
        self.done += len(ranks)


class ConstraintStudy:
    """A model evaluated under several constraints; `folder` holds the journals."""

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
            raise SettingError(f"edges: two graphs have the same name ({', '.join(names)}). Rename one.")
        self.run, self.query_set, self._decoding = run, query_set, decoding
        self._folder, self._edge_sets = folder, edge_sets
        self._work = {"model": fingerprint(run.folder), "queries": digest(query_set.queries)}

    def rows(self, *, search: bool = False, progress: Progress = no_progress) -> list[ConditionResult]:
        """No constraint, each edge set by filtering and, if wanted, by searching; then the tail frequency."""
        free = self._condition("free", None)
        filtered = [self._condition("filter", edges) for edges in self._edge_sets]
        searched = [self._condition("search", edges) for edges in self._edge_sets if search]
        self._search([free, *filtered], self._decoding, progress)
        for condition in searched:
            assert condition.edges is not None
            bound = SearchEdges(condition.edges.edges, self.run.device, name=condition.edges.name)
            self._search([condition], replace(self._decoding, constraint=bound), progress)
        correct = free.ranks == 1
        frequency = rank_by_frequency(self.run.graph, self.query_set).metrics()
        rows = [self._row(condition, correct) for condition in (free, *filtered, *searched)]
        return [*rows, ConditionResult("", FREQUENCY, None, None, frequency, None, None)]

    def _condition(self, decoding: str, edges: EdgeSet | None) -> _Condition:
        name = "" if edges is None else f"{edges.name} by {decoding}"
        signature = paths_signature(self.query_set, self._decoding, self.run.recipe.train.seed, name)
        return _Condition(self._folder, decoding, edges, signature, self._work)

    def _search(self, conditions: Sequence[_Condition], decoding: DecodingOptions, progress: Progress) -> None:
        """One search for all these conditions; it begins at the first query that one of them lacks."""
        queries, done = self.query_set.queries, min(condition.done for condition in conditions)
        title = f"searching within {decoding.constraint.name}" if decoding.constraint else "searching"
        for block in decode(self.run.decoder, queries[done:, :2], decoding):
            own = queries[done : done + len(block)]
            for condition in conditions:
                finished = condition.done - done  # queries of this block
                if finished < len(block):
                    edges = condition.edges if condition.decoding == "filter" else None
                    ranks, walked = self._ranks(block, own, edges)
                    condition.record(ranks[finished:], walked[finished:])
            done += len(block)
            progress(title, done, len(queries))

    def _ranks(self, block: PathRanking, queries: Ids, edges: EdgeSet | None) -> tuple[list[float], list[bool]]:
        """Ranks if only paths within the edge set count, and whether the best path to the answer is one."""
        if edges is None:
            return ranks_of(block, queries, self.query_set.filter), []
        allowed = _stays_within(block, queries, edges.edges)
        best = [block.best_path_to(number, answer) for number, answer in enumerate(queries[:, 2].tolist())]
        walked = [path is not None and bool(allowed[path]) for path in best]
        left = within(block, allowed, queries[:, 1].astype(np.int64), self._decoding)
        return ranks_of(left, queries, self.query_set.filter), walked

    def _row(self, condition: _Condition, correct: npt.NDArray[np.bool_]) -> ConditionResult:
        metrics = Metrics.from_ranks(condition.ranks, condition.signature, intervals=True)
        if condition.edges is None:
            return ConditionResult(FREE, condition.decoding, None, None, metrics, None, None)
        name, edges = condition.edges.name, condition.edges.edges
        leaked = int(edges.contains_each(*self.query_set.queries.T).sum())
        walked = int(condition.walked[correct].sum()) if condition.decoding == "filter" else None
        completed = None if walked is None else int(correct.sum()) - walked
        return ConditionResult(name, condition.decoding, len(edges.triples), leaked, metrics, walked, completed)


def _stays_within(block: PathRanking, queries: Ids, edges: Adjacency) -> npt.NDArray[np.bool_]:
    """Whether all edges of a path are in the edge set.  (path)"""
    heads = np.repeat(queries[:, 0].astype(np.int64), np.diff(block.offsets))  # (answer)
    heads = np.repeat(heads, np.diff(block.path_offsets))  # (path)
    return np.asarray(known_edges(edges, heads, block.paths).sum(1) == block.hops)


@dataclass(frozen=True)
class ConstraintResult(Report):
    """One row per condition; the first is without constraint."""

    rows: list[ConditionResult]

    def as_dict(self) -> dict[str, Any]:
        return {"rows": [row.as_dict() for row in self.rows]}

    def markdown(self) -> str:
        free = self.rows[0].metrics
        headings = ("edges", "facts", "facts asked for", "MRR", "Hits@1", "of Hits@1 without constraint",
                    "correct answers: walked", "completed")  # fmt: skip
        lines = []
        for row in self.rows:
            kept = f"{row.metrics.hits1 / free.hits1:.0%}" if free.hits1 else "–"
            share = row.walked_share
            walked = "" if share is None else f"{row.walked:,} ({share:.0%})"
            completed = "" if share is None else f"{row.completed:,} ({1 - share:.0%})"
            counts = ["" if count is None else f"{count:,}" for count in (row.size, row.leaked)]
            cells = metric_cells(row.metrics.as_dict(), ("mrr", "hits1"))
            lines.append((escape(row.name), *counts, *cells, kept, walked, completed))
        return "\n".join([
            f"# Constraints on {free.signature.dataset}, {free.signature.split}\n",
            f"{free.queries:,} questions. Filter: of one free search, only paths within these edges count. Search:"
            " a search within these edges. Walked: answers at rank 1 without constraint whose best path stays "
            "within these edges; completed: the other answers at rank 1.\n",
            table(headings, lines),
            *(code(str(row.metrics.signature)) for row in self.rows),
        ])  # fmt: skip

    def draw(self, file: str | Path) -> None:
        signature = self.rows[0].metrics.signature
        heading = f"{signature.dataset}, {signature.split}: answers under constraints on the edges of a path"
        names, notes = [row.name for row in self.rows], [row.note for row in self.rows]
        draw_constraints(names, [row.metrics for row in self.rows], notes, heading, Path(file))
