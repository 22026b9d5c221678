"""How long it takes to add 1,000 facts to a graph of a million, and what the next question pays for it.

    python benchmarks/changes.py

The graph is made (`made_graph`); a third of the added facts have a new entity. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from made_graph import make_graph

import squire
from squire.core.run_files import GRAPH, RECIPE
from squire.ranking.index import build_index, name_words

FACTS, ENTITIES, RELATIONS, HUB = 1_000_000, 100_000, 50, 60_000  # as the million of scale.py
ADDED = 1000


def main() -> None:
    figures: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = work()
        figures[f"{name}_s"] = round(time.perf_counter() - began, 3)
        return result

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_graph(FACTS, ENTITIES, RELATIONS, HUB).write(folder / "made")
        squire.load_graph(folder / "made").save(folder / GRAPH)
        (folder / RECIPE).write_text("{}")
        rng = np.random.default_rng(0)
        heads, tails = rng.integers(0, round(1.2 * ENTITIES), (2, ADDED)).tolist()
        relations = rng.integers(0, RELATIONS, ADDED).tolist()
        rows = zip(heads, relations, tails, strict=True)
        (folder / "facts.tsv").write_text("".join(f"e{h}\tr{r}\te{t}\n" for h, r, t in rows))
        run = squire.Run(folder)
        change = timed("add", lambda: run.add(folder / "facts.tsv"))
        facts = timed("graph", lambda: run.graph.facts)
        words = timed("words", lambda: name_words(run.graph.labels.entities))
        timed("index", lambda: build_index(facts, words))
    print(change)
    load = round(os.getloadavg()[0], 2)
    print(json.dumps({"facts": facts.num_edges // 2, **figures, "load_average": load}))


if __name__ == "__main__":
    main()
