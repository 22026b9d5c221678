"""What a graph costs by its size: loading, mining, fusing, one answer, memory; and whether the quality holds.

    python benchmarks/scale.py                          # UMLS-like, a million facts, and FB15K237 if it is there
    python benchmarks/scale.py --large                  # and ten million facts: an hour
    python benchmarks/scale.py --record                 # writes results/scale.json and docs/images/scale.png
    python benchmarks/scale.py --record --only million  # measures one graph again

Graphs are made (`made_graph`) and have planted rules. Each step runs in a process of its own, after a warm-up that
pays for compilation. Fusing is all of `squire train --no-model`, mining a part of it. Answers have their evidence.
Stop all other jobs before. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from gemm import gemm_gflops
from made_graph import make_graph
from measure import DEFAULT_FOLDER, Figures, commit, in_child, report, run_child

import squire
from squire.core.relations import inverse
from squire.graph.graph import Graph
from squire.graph.loading import load_graph
from squire.model.recipe import load_recipe, recipe_for
from squire.rules.rules import NONE, Rules
from squire.training.pipeline import fuse_run, new_run

HOME = Path(__file__).resolve().parents[1]
# Facts, entities, relations, edges of the largest hub. With few entities many are made twice: 5,566 facts remain.
MADE = {"umls-like": (20_000, 135, 46, 0), "million": (1_000_000, 100_000, 50, 60_000)}
LARGE = {"ten million": (10_000_000, 1_000_000, 300, 500_000)}
TARGETS = {
    "umls-like": {"fuse_s": 20, "answer_p50_ms": 30},
    "FB15K237": {"mine_s": 60, "fuse_s": 300, "answer_p50_ms": 50, "peak_mb": 2000},
    "million": {"load_s": 5, "mine_s": 180, "fuse_s": 360, "answer_p50_ms": 60, "peak_mb": 3000},
    "ten million": {"load_s": 60, "mine_s": 1200, "fuse_s": 1500, "answer_p50_ms": 150, "peak_mb": 10_000},
}
MIN_CONFIDENCE, MIN_SUPPORT = 0.02, 10  # planted rules below these are not looked for
ANSWERS, EVALUATED = 200, 1000
MINING = ("bodies of", "counts of", "hard counts of", "rules with")  # how the names of its stages begin


def main() -> None:
    if run_child({"make": make_step, "fuse": fuse_step, "evaluate": evaluate_step, "answer": answer_step}):
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help="one folder a graph in it")
    parser.add_argument("--large", action="store_true", help="also ten million facts")
    parser.add_argument("--only", choices=[*TARGETS], help="one graph alone")
    parser.add_argument("--record", action="store_true", help="write the results and the picture")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work, sources = Path(temporary), {}
        for name, sizes in (MADE | (LARGE if options.large or options.only in LARGE else {})).items():
            if options.only in (None, name):
                in_child("make", work / name, *sizes)
                sources[name] = work / name
        if (options.folder / "FB15K237").is_dir() and options.only in (None, "FB15K237"):
            sources["FB15K237"] = options.folder / "FB15K237"
        rows = {name: measured(source, work / f"{name} run") for name, source in sources.items()}
    peak = gemm_gflops()
    if options.record:
        record(rows, peak)
    flat = {f"{name}: {key}": value for name, row in rows.items() for key, value in row.items()}
    targets = {f"{name}: {key}": f"≤ {value:,}" for name, row in TARGETS.items() for key, value in row.items()}
    report(flat | {"gemm_gflops": round(peak)}, targets)


def measured(source: Path, run: Path) -> Figures:
    """All figures of one graph; `peak_mb` is that of the step with the highest."""
    steps = [in_child("fuse", source, run), in_child("evaluate", run), in_child("answer", run)]
    peak = max(step.pop("peak_mb") for step in steps)
    fused, evaluated, answered = steps
    return fused | evaluated | answered | {"peak_mb": peak}


def make_step(folder: str, facts: str, entities: str, relations: str, hub: str) -> Figures:
    made = make_graph(int(facts), int(entities), int(relations), int(hub))
    made.write(Path(folder))
    planted = [asdict(rule) for rule in made.planted]
    (Path(folder) / "planted.json").write_text(json.dumps(planted), encoding="utf-8")
    return {}


def fuse_step(source: str, run: str) -> Figures:
    warm_up()
    with timed() as loading:
        graph = load_graph(source)
    stages = StageTimes()
    with timed() as fusing, new_run(Path(run), graph, load_recipe(recipe_for(graph.stats()))):
        rules = fuse_run(Path(run), progress=stages).features.rules
    figures: Figures = {"facts": len(graph.train.triples), "entities": graph.num_entities}
    figures |= {"load_s": loading[0], "mine_s": stages.of_mining(), "fuse_s": fusing[0]}
    figures["stages_s"] = {name: round(seconds, 1) for name, seconds in stages.seconds.items()}
    figures |= {"rules": len(rules), "estimated": int(np.count_nonzero(rules.error))}
    planted = Path(source) / "planted.json"
    return figures | (found_share(planted, rules, graph) if planted.exists() else {})


class StageTimes:
    """A progress display that adds up the seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        name, now = stage.split(", pass")[0], time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0) + now - self._last
        self._last = now

    def of_mining(self) -> float:
        return round(sum(s for name, s in self.seconds.items() if name.startswith(MINING)), 1)


def found_share(file: Path, rules: Rules, graph: Graph) -> Figures:
    """How many of the planted rules were mined."""
    relation = {label: number for number, label in enumerate(graph.labels.relations)}
    bodies = np.where(rules.body == NONE, -1, rules.body)[rules.is_closed].tolist()
    known = {
        (head, tuple(atom for atom in body if atom >= 0))
        for head, body in zip(rules.head[rules.is_closed].tolist(), bodies, strict=True)
    }
    wanted = found = 0
    for rule in json.loads(file.read_text(encoding="utf-8")):
        if rule["confidence"] >= MIN_CONFIDENCE and rule["support"] >= MIN_SUPPORT:
            atoms = [relation[f"r{atom if atom >= 0 else -1 - atom}"] for atom in rule["body"]]
            walked = zip(atoms, rule["body"], strict=True)
            body = tuple(r if atom >= 0 else inverse(r, rules.num_relations) for r, atom in walked)
            wanted, found = wanted + 1, found + ((relation[f"r{rule['head']}"], body) in known)
    return {"planted": wanted, "planted_found": found}


def evaluate_step(run: str) -> Figures:
    rows = squire.Run(run).evaluate(ranking="fused", sample=EVALUATED, evidence=False, progress=False).rows
    methods = [str(row.signature).split("method:")[1].split("|")[0] for row in rows]
    return {f"mrr {method}": round(row.mrr, 4) for method, row in zip(methods, rows, strict=True)}


def answer_step(run: str) -> Figures:
    torch.set_num_threads(1)  # as `squire answer`
    with timed() as loading:
        opened = squire.Run(run)
        labels, asked = opened.graph.labels, opened.graph.test
        chosen = np.random.default_rng(0).choice(len(asked), min(ANSWERS, len(asked)), replace=False)
        questions = [(labels.entities[h], labels.relations[r]) for h, r, _ in asked[chosen].tolist()]
        opened.answer(*questions[0])
    seconds = []
    for question in questions:
        with timed() as one:
            opened.answer(*question)
        seconds.append(one[0])
    p50, p99 = np.percentile(seconds, [50, 99])
    return {"open_s": loading[0], "answer_p50_ms": round(1e3 * p50, 1), "answer_p99_ms": round(1e3 * p99, 1)}


def warm_up() -> None:
    """Compiles what fusing needs."""
    with tempfile.TemporaryDirectory() as folder:
        make_graph(2000, 100, 10, 0).write(Path(folder) / "graph")
        squire.train(Path(folder) / "graph", Path(folder) / "run", model=False, progress=False)


@contextmanager
def timed() -> Iterator[list[float]]:
    """Receives the seconds that the body took."""
    out: list[float] = []
    began = time.perf_counter()
    yield out
    out.append(round(time.perf_counter() - began, 4))


def record(rows: dict[str, Figures], peak: float) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    # Graphs that were not measured this time keep what was recorded of them.
    file = HOME / "results" / "scale.json"
    before = json.loads(file.read_text(encoding="utf-8"))["graphs"] if file.exists() else {}
    stamp = {"gemm_gflops": round(peak), "commit": commit()}
    rows = before | {name: row | stamp for name, row in rows.items()}
    content = {"command": "python benchmarks/scale.py --record", "graphs": rows}
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    order = sorted(rows.values(), key=lambda row: row["facts"])
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for key, label in (("load_s", "load"), ("mine_s", "mine"), ("fuse_s", "mine and fuse")):
        axes.plot([row["facts"] for row in order], [row[key] for row in order], "o-", label=f"{label} (s)")
    seconds = [row["answer_p50_ms"] / 1e3 for row in order]
    axes.plot([row["facts"] for row in order], seconds, "s--", label="one answer with its evidence (s)")
    for name, row in rows.items():
        axes.annotate(name, (row["facts"], row["fuse_s"]), textcoords="offset points", xytext=(0, 7), ha="center")
    axes.set(xscale="log", yscale="log", xlabel="facts of train", ylabel="seconds, two cores")
    axes.margins(x=0.12, y=0.15)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", fontsize=8)
    figure.savefig(HOME / "docs" / "images" / "scale.png", dpi=130)


if __name__ == "__main__":
    main()
