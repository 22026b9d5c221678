"""How fast a graph is there, and how much memory that takes: FB15K237, and five million made triples.

    python benchmarks/graph.py [FOLDER OF FB15K237] [--triples 5000000]

Each step runs in a process of its own, timed after the imports; its peak memory is that of the whole process,
imports included. The last line is JSON.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import DEFAULT_FOLDER, Figures, in_child, report, run_child

from squire.graph.loading import load_graph

ENTITIES, RELATIONS = 500_000, 500
ROWS_AT_ONCE = 250_000
TARGETS = {"fb15k237_load_s": "< 1", "synthetic_5m_load_s": "< 20", "reload_speedup": "≥ 10", "peak_mb": "< 1000"}


def main() -> None:
    if run_child({"load": load_step, "save": save_step}):
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    fb15k237 = DEFAULT_FOLDER / "FB15K237"
    parser.add_argument("fb15k237", nargs="?", type=Path, default=fb15k237, help="folder of train/valid/test")
    parser.add_argument("--triples", type=int, default=5_000_000, help="size of the made graph")
    arguments = parser.parse_args()
    report(measure(arguments.fb15k237, arguments.triples), TARGETS)


def measure(fb15k237: Path, triples: int) -> Figures:
    """Every figure; those of a dataset that is not there are null."""
    figures: Figures = {"fb15k237_load_s": None, "fb15k237_peak_mb": None}
    if fb15k237.is_dir():
        loaded = in_child("load", fb15k237)
        figures |= {"fb15k237_load_s": loaded["s"], "fb15k237_peak_mb": loaded["peak_mb"]}
    with tempfile.TemporaryDirectory() as folder:
        source, saved = Path(folder, "synthetic.tsv"), Path(folder, "synthetic.graph")
        write_synthetic(source, triples)
        parsed, written, reloaded = (
            in_child("load", source),
            in_child("save", source, saved),
            in_child("load", saved),
        )
        return figures | {
            "synthetic_5m_triples": triples,
            "synthetic_5m_source_mb": round(source.stat().st_size / 1e6, 1),
            "synthetic_5m_saved_mb": round(saved.stat().st_size / 1e6, 1),
            "synthetic_5m_load_s": parsed["s"],
            "synthetic_5m_save_s": written["s"],
            "reload_s": reloaded["s"],
            "reload_peak_mb": reloaded["peak_mb"],
            "reload_speedup": round(parsed["s"] / reloaded["s"], 1),
            "peak_mb": parsed["peak_mb"],
        }


def load_step(source: str) -> Figures:
    began = time.perf_counter()
    load_graph(source)
    return {"s": round(time.perf_counter() - began, 4)}


def save_step(source: str, target: str) -> Figures:
    graph = load_graph(source)
    began = time.perf_counter()
    graph.save(Path(target))
    return {"s": round(time.perf_counter() - began, 4)}


def write_synthetic(path: Path, triples: int) -> None:
    """Few busy names and many rare ones, as in real graphs; the same file every time."""
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for start in range(0, triples, ROWS_AT_ONCE):
            size = min(ROWS_AT_ONCE, triples - start)
            # u ** k with k > 1 crowds towards 0: a tenth of the entities is in a third of the places.
            heads, tails = ((rng.random(size) ** 2 * ENTITIES).astype(int).tolist() for _ in range(2))
            relations = (rng.random(size) ** 3 * RELATIONS).astype(int).tolist()
            rows = zip(heads, relations, tails, strict=True)
            file.writelines(
                f"entity_{head}\trelation_{relation}\tentity_{tail}\n" for head, relation, tail in rows
            )


if __name__ == "__main__":
    main()
