"""What graphs of growing size cost, as tables and as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from squire.evaluation.metrics import NAMES
from squire.studies.efficiency import EPOCH, MINING, PLANTING, QUESTION, SAMPLING, STEP, Case
from squire.studies.markdown import code, literal, table

WHOLE = "the whole training"
PHASES = (MINING, SAMPLING, PLANTING, STEP, EPOCH, WHOLE, QUESTION)
HEADINGS = ("MRR", "Hits@1", "Hits@3", "Hits@10")


@dataclass(frozen=True)
class Row:
    """One size of one kind of graph. Seconds, megabytes (10⁶ bytes)."""

    kind: str  # what it is a size of: a graph's samples, or made graphs
    name: str
    recipe: str
    entities: int
    facts: int
    rules: int
    nodes: int  # of the prefix trees
    parameters: int
    seconds: dict[str, float | None]  # of each of PHASES; None if training was too short to tell
    cpu_seconds: dict[str, float | None]  # the same, of the processor
    epoch_measured: bool  # else extrapolated from the steps
    nodes_per_second: float | None
    epochs: int  # of the recipe
    steps: int  # done
    steps_per_epoch: int
    trained: float  # for so long, validations included
    finished: bool  # or to the end of the recipe
    peak_mb: float | None
    ours: dict[str, Any] | None  # figures with intervals and signature; None without valid facts
    frequency: dict[str, Any] | None
    load_average: float | None  # the highest that was seen
    threads: int

    @classmethod
    def from_measurements(cls, kind: str, recipe: str, case: Case) -> Row:
        """Of a case that is done."""
        prepared, trained, asked = (case.noted(phase) or {} for phase in ("prepared", "trained", "asked"))
        graph, steps = prepared["graph"], trained["steps_per_epoch"]
        took = {name: note[name] for note in (prepared, trained, asked) for name in PHASES if name in note}
        if took[EPOCH] is None and took[STEP] is not None:
            took[EPOCH] = {unit: second * steps for unit, second in took[STEP].items()}
        if took[EPOCH] is not None:
            took[WHOLE] = {unit: second * trained["total_steps"] / steps for unit, second in took[EPOCH].items()}
        wall, cpu = (
            {name: took[name][unit] if took.get(name) else None for name in PHASES} for unit in ("wall", "cpu")
        )
        every = case.notes
        peaks = [note["peak_mb"] for note in every if note["peak_mb"] is not None]
        loads = [note["load_average"] for note in every if note["load_average"] is not None]
        ours, frequency = asked["rows"] or (None, None)
        return cls(
            kind=kind, name=graph["name"], recipe=recipe, entities=graph["entities"], facts=graph["facts"],
            rules=prepared["rules"], nodes=prepared["nodes"], parameters=trained["parameters"],
            seconds=wall, cpu_seconds=cpu, epoch_measured=trained[EPOCH] is not None,
            nodes_per_second=trained["nodes_per_second"],
            epochs=trained["epochs"], steps=trained["step"], steps_per_epoch=steps,
            trained=sum(note["seconds"] for note in every if note["phase"] == "trained"),
            finished=trained["finished"], peak_mb=max(peaks, default=None), ours=ours, frequency=frequency,
            load_average=max(loads, default=None), threads=trained["threads"],
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def markdown(rows: Sequence[Row]) -> str:
    """Time and memory, then quality, and the signatures of the figures."""
    signatures = [one["signature"] for row in rows for one in (row.ours, row.frequency) if one]
    return "\n".join([
        "# Efficiency: time, memory and quality against the size of a graph\n",
        "Each size in a process of its own, after a warm-up that pays for compilation. Seconds by the clock, and "
        "in brackets those of the processor, all threads together: beside other work only these say much. Peak: "
        "the most memory that this process has held, all phases together. The whole training is all epochs of "
        "the recipe, without iterations; ≈ marks what is extrapolated from the median step.\n",
        _costs(rows),
        "Quality on valid, by the model as it was after the steps that are given: a model that has seen only a "
        "part of its epochs says little. ± is half of the 95 % interval.\n",
        _quality(rows),
        *map(code, dict.fromkeys(signatures)),
    ])  # fmt: skip


def _costs(rows: Sequence[Row]) -> str:
    headings = ("graph", "recipe", "facts", "entities", "facts an entity", "rules", "nodes", "parameters",
                *(f"{name} (s)" for name in PHASES), "nodes/s", "queries/s", "peak (MB)", "threads",
                "load")  # fmt: skip
    lines = []
    for row in rows:
        question = row.seconds[QUESTION]
        counts = (row.rules, row.nodes, row.parameters)
        lines.append((
            literal(row.name), literal(row.recipe), f"{row.facts:,}", f"{row.entities:,}",
            f"{row.facts / max(row.entities, 1):.1f}", *(f"{count:,}" for count in counts),
            *(_with_cpu(row, name) for name in PHASES), _shown(row.nodes_per_second),
            _shown(1 / question if question else None), _shown(row.peak_mb), f"{row.threads}",
            _shown(row.load_average),
        ))  # fmt: skip
    return table(headings, lines)


def _with_cpu(row: Row, phase: str) -> str:
    wall, cpu = row.seconds[phase], row.cpu_seconds[phase]
    if wall is None or cpu is None:
        return ""
    guessed = "≈ " if phase == WHOLE or (phase == EPOCH and not row.epoch_measured) else ""
    return f"{guessed}{_shown(wall)} ({_shown(cpu)})"


def _quality(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        seen = row.steps / row.steps_per_epoch
        state = f"{row.steps:,} ({seen:.2g} of {row.epochs} epochs)"
        for method, figures in (("paths", row.ours), ("tail frequency", row.frequency)):
            if figures is not None:
                trained = (state, f"{row.trained / 60:.1f}") if method == "paths" else ("", "")
                lines.append((literal(row.name), method, *trained, f"{figures['queries']:,}", *_cells(figures)))
    return table(("graph", "ranked by", "steps", "minutes", "questions", *HEADINGS), lines)


def _cells(figures: dict[str, Any]) -> list[str]:
    cells = []
    for name in NAMES:
        low, high = figures["intervals"][name]
        cells.append(f"{figures[name]:.3f} ±{(high - low) / 2:.3f}")
    return cells


def _shown(number: float | None) -> str:
    """Three digits: 0.0123, 1.23, 123, 12,345."""
    if number is None:
        return ""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
