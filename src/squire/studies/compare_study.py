"""The field in one table: every method learns from the same graph, in the same time, and ranks the same queries.

Each method runs in a process of its own, one at a time, so that peak memory and crashes are its own. Finished rows
are kept in a journal, and the same call continues after them. A method that failed is a row that says why, and is
tried again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from squire.core.files import replacing
from squire.core.processes import interruptions, locked
from squire.core.progress import progress_bar
from squire.core.run_files import GRAPH
from squire.errors import SettingError
from squire.evaluation.metrics import NAMES
from squire.evaluation.queries import QuerySet
from squire.evaluation.ranks import Ranks
from squire.graph.graph import Graph
from squire.studies.compared_methods import METHODS, Task
from squire.studies.costs import Seconds, machine, peak_mb
from squire.studies.graphs import GraphSource, open_graph
from squire.studies.journal import Journal, graph_digest
from squire.studies.published import PUBLISHED, Published
from squire.studies.reports import Report, code, draw_comparison, escape, table

JOURNAL, SETTINGS = "compare.jsonl", "compare.settings.json"
MOST_REASON = 300  # characters of an error that a row shows


def compare(
    graph: GraphSource,
    out: str | Path | None = None,
    *,
    methods: Sequence[str] = (),
    minutes: float = 30.0,
    side: str = "both",
    sample: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Comparison:
    """Learns by each method for at most `minutes`, and ranks the test queries by it. Call it again to continue.

    out: the folder of the comparison, by default studies/compare-GRAPH. methods: some of METHODS, by default all.
    side: both also reports tails alone. sample: rank only so many queries, drawn by `seed`.
    """
    chosen = list(methods) or list(METHODS)
    if unknown := [name for name in chosen if name not in METHODS]:
        raise SettingError(f"methods={unknown[0]!r}: expected some of {', '.join(METHODS)}.")
    if not 0 < minutes < 1e6:
        raise SettingError(f"minutes={minutes:g}: expected a positive number of minutes.")
    graph = open_graph(graph)
    settings = {"minutes": minutes, "side": side, "sample": sample, "seed": seed}
    QuerySet.from_graph(graph, "test", side, sample=sample, seed=seed)  # refuses what cannot be asked
    folder = Path(out or f"studies/compare-{graph.name}")
    with locked(folder, doing="at a study"), progress_bar("comparing", progress) as bar:
        header = {"study": "compare", "graph": graph.name, "facts": graph_digest(graph), **settings}
        journal = Journal(folder / JOURNAL, header)
        graph.save(folder / GRAPH)
        with replacing(folder / SETTINGS) as temporary:
            temporary.write_text(json.dumps(settings))
        for done, name in enumerate(chosen):
            if "failure" in _rows(journal).get(name, {"failure": ""}):
                bar.stage(f"{name}, for at most {minutes:g} min and ranking", done, len(chosen))
                _measure_apart(folder, name, journal)
        rows = _rows(journal)
    return Comparison(graph.name, folder, settings, [rows[name] for name in chosen])


def _rows(journal: Journal) -> dict[str, dict[str, Any]]:
    """The last row of each method."""
    return {row["method"]: row for row in journal.entries}


def _measure_apart(folder: Path, name: str, journal: Journal) -> None:
    """Records the row of a method, measured in a process of its own. What that prints is kept in METHOD.log."""
    command = [sys.executable, "-m", "squire", "study", "compare-measure", str(folder), name]
    row, log = _row_file(folder, name), folder / f"{name}.log"
    row.unlink(missing_ok=True)
    # Ctrl-C in a terminal reaches the process too.
    with log.open("wb") as output, interruptions(patient=True) as interrupted:
        exit_code = subprocess.run(command, check=False, stdout=output, stderr=output).returncode
    stopped = bool(interrupted) or exit_code == 130
    if row.exists():
        journal.append(json.loads(row.read_text(encoding="utf-8")))
        row.unlink()
    elif not stopped:
        journal.append({"method": name, "kind": METHODS[name].kind, "failure": _reason(log, exit_code)})
    if stopped:
        raise KeyboardInterrupt


def _reason(log: Path, exit_code: int) -> str:
    """Why a process ended without a row: its last words."""
    if exit_code < 0:
        return f"killed by signal {-exit_code}, perhaps for lack of memory"
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return (lines[-1] if lines else f"ended with code {exit_code}").removeprefix("error: ")[:MOST_REASON]


def _row_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.row.json"


def measure_method(folder: str | Path, name: str) -> None:
    """Measures one method of a comparison in this process. Meant for a process of its own."""
    folder = Path(folder)
    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    graph = Graph.load(folder / GRAPH)
    scratch = folder / f"{name}.run"
    shutil.rmtree(scratch, ignore_errors=True)
    times = [Seconds.now()]
    learned = METHODS[name].learn(Task(graph, scratch, settings["minutes"], settings["seed"]))
    times.append(Seconds.now())
    query_set = QuerySet.from_graph(
        graph, "test", settings["side"], sample=settings["sample"], seed=settings["seed"]
    )
    ranks = learned.rank(query_set)
    times.append(Seconds.now())
    learning, ranking = (after - before for before, after in pairwise(times))
    content = {
        "method": name,
        "kind": METHODS[name].kind,
        "rows": [part.metrics().as_dict() for part in _sides(ranks, graph.num_relations)],
        "evidence": ranks.grade_shares(),
        "learning_s": round(learning.wall, 2),
        "learning_cpu_s": round(learning.cpu, 2),
        "ranking_s": round(ranking.wall, 2),
        "peak_mb": peak_mb(),
        "note": learned.note,
        **machine(),
    }
    with replacing(_row_file(folder, name)) as temporary:
        temporary.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    shutil.rmtree(scratch, ignore_errors=True)


def _sides(ranks: Ranks, num_relations: int) -> Iterator[Ranks]:
    """The ranks; those of both sides also of the tails alone."""
    yield ranks
    if ranks.signature.side == "both":
        tails = ranks.queries[:, 1] < num_relations
        signature = replace(ranks.signature, side="tail")
        yield replace(ranks, signature=signature, queries=ranks.queries[tails], ranks=ranks.ranks[tails])


# ---------------------------------------------------------------------------------------------------- result


@dataclass(frozen=True)
class Comparison(Report):
    """One row per method, and below a line what others have published on this graph."""

    graph: str
    folder: Path
    settings: dict[str, Any]
    rows: list[dict[str, Any]]  # as measured; or with `failure`, which says why there are no figures

    @property
    def published(self) -> list[Published]:
        return [row for row in PUBLISHED if row.graph == self.graph]

    def as_dict(self) -> dict[str, Any]:
        published = [row._asdict() for row in self.published]
        return {
            "command": self._command,
            "graph": self.graph,
            **self.settings,
            "rows": self.rows,
            "published": published,
        }

    @property
    def _command(self) -> str:
        given = (f"--{name} {value}" for name, value in self.settings.items() if value)
        return " ".join(["squire compare", self.graph, *given])

    def markdown(self) -> str:
        asked = next((row["rows"][0]["queries"] for row in self.rows if "rows" in row), 0)
        limit, side = self.settings["minutes"], self.settings["side"]
        parts = [
            f"# The field on {escape(self.graph)}\n",
            f"Each method had {limit:g} minutes to learn, in a process of its own, on the same machine; then it "
            f"ranked the same {asked:,} test queries ({side}), filtered, ties at their mean rank. ± is half the "
            "95 % interval.\n",
            self._table(),
            *self._notes(),
        ]
        if self.published:
            parts += ["## Published, not measured here\n", _published_table(self.published)]
        signatures = (one["signature"] for row in self.rows for one in row.get("rows", ()))
        return "\n".join([*parts, *map(code, dict.fromkeys(signatures))])

    def _table(self) -> str:
        sides = ("both sides", "tails") if self.settings["side"] == "both" else ("tails",)
        lines = []
        for row in self.rows:
            if "failure" in row:
                lines.append((escape(row["method"]), *["–"] * (3 * len(sides)), "", "", ""))
                continue
            cells = [cell for one in row["rows"] for cell in _cells(one)]
            speed = row["rows"][0]["queries"] / max(row["ranking_s"], 0.01)
            costs = f"{row['learning_s']:,.0f}", f"{speed:,.0f}", f"{row['peak_mb'] or 0:,.0f}"
            lines.append((escape(row["method"]), *cells, *costs))
        figures = (f"{name}, {side}" for side in sides for name in ("MRR", "Hits@1", "Hits@10"))
        return table(("method", *figures, "learning (s)", "queries/s", "peak (MB)"), lines)

    def _notes(self) -> Iterator[str]:
        for row in self.rows:
            if "failure" in row:
                yield f"- {escape(row['method'])}: not measured. {escape(row['failure'])}"
            elif text := "; ".join(filter(None, (row["note"], _evidence(row)))):
                yield f"- {escape(row['method'])}: {escape(text)}"
        yield ""

    def draw(self, file: str | Path) -> None:
        measured = [row for row in self.rows if "rows" in row]
        if not measured:
            raise SettingError(f"{file}: no method was measured, so there is nothing to draw.")
        failed = [row["method"] for row in self.rows if "failure" in row]
        draw_comparison(measured, failed, f"{self.graph}: quality against the time to learn", Path(file))


def _evidence(row: dict[str, Any]) -> str:
    """What the first ten new answers rest on, for methods that give paths."""
    shares = ", ".join(f"{share:.0%} {grade}" for grade, share in row.get("evidence", {}).items())
    return f"evidence: {shares}" if shares else ""


def _cells(figures: dict[str, Any]) -> list[str]:
    low, high = figures["intervals"]["mrr"]
    return [f"{figures['mrr']:.3f} ±{(high - low) / 2:.3f}", f"{figures['hits1']:.3f}", f"{figures['hits10']:.3f}"]


def _published_table(rows: Sequence[Published]) -> str:
    lines = []
    for row in rows:
        figures = ("" if value is None else f"{value:.3f}" for value in (getattr(row, name) for name in NAMES))
        lines.append((escape(row.system), row.side, *figures, escape(row.source)))
    return table(("system", "side", "MRR", "Hits@1", "Hits@3", "Hits@10", "source"), lines)
