"""Record how well a run answers about entities that were added after training: `results/inductive-GRAPH.json`.

    python scripts/record_inductive.py NELL995 FB15K237
    python scripts/record_inductive.py --model world

A share of the entities is taken out of the graph with all their facts, and a run is trained on what is left. Half
of those facts are then added, as `squire add` does it, and the other half is asked, in both directions. Beside it
stand the same with rules that are mined again, a run that was trained with the added facts from the start, and the
frequency of answers. Facts that are asked have both ends in the graph. Labels are those of `squire data list`,
found below SQUIRE_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import squire
from squire.core.files import replacing
from squire.evaluation.baselines import rank_by_frequency
from squire.evaluation.fused import rank_by_fusion
from squire.evaluation.metrics import Metrics
from squire.evaluation.queries import QuerySet
from squire.graph.graph import Graph
from squire.graph.loading import load_graph
from squire.reasoning.reasoner import Reasoner
from squire.training.changes import refresh_rules

HOME = Path(__file__).resolve().parents[1]
SHARE = 0.05  # of the entities
Fact = tuple[str, str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--model", action="store_true", help="also train a model")
    parser.add_argument("--most", type=int, default=2000, help="facts that are asked, at most")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name in arguments.graphs:
        content = record(load_graph(name), arguments.model, arguments.most, arguments.seed)
        parts = "--model " * arguments.model + f"--most {arguments.most} --seed {arguments.seed}"
        content = {"command": f"python scripts/record_inductive.py {parts} {name}", **content}
        with replacing(HOME / "results" / f"inductive-{name}.json") as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(content, indent=1), flush=True)


def record(graph: Graph, model: bool, most: int, seed: int) -> dict[str, object]:
    rng = np.random.default_rng(seed)
    out = np.zeros(graph.num_entities, bool)
    out[rng.choice(graph.num_entities, round(SHARE * graph.num_entities), replace=False)] = True
    facts = [tuple(row[:3]) for row in graph.to_frame("train", "valid").itertuples(index=False)]
    new = {label for label, is_out in zip(graph.labels.entities, out.tolist(), strict=True) if is_out}
    left = [fact for fact in facts if not {fact[0], fact[2]} & new]
    theirs = [facts[i] for i in rng.permutation(len(facts)) if {facts[i][0], facts[i][2]} & new]
    added, asked = theirs[::2], theirs[1::2]
    valid = [left[i] for i in rng.choice(len(left), len(graph.valid), replace=False)]
    train = sorted(set(left) - set(valid))
    with tempfile.TemporaryDirectory() as temporary:
        began = time.perf_counter()
        base = Graph.from_triples(train, valid=valid, name=graph.name)
        run = squire.train(base, Path(temporary) / "run", model=model, progress=False)
        added = [fact for fact in added if fact[1] in base.labels.relations]
        fitted = time.perf_counter()
        run.add(added)
        adding = time.perf_counter() - fitted
        there = set(run.graph.labels.entities)
        asked = [fact for fact in asked if {fact[0], fact[2]} <= there and fact[1] in base.labels.relations][:most]
        grown = measure(run.folder, asked)
        refresh_rules(run.folder)
        refreshed = measure(run.folder, asked)
        whole = Graph.from_triples(train + added, valid=valid, name=graph.name)
        refit = measure(squire.train(whole, Path(temporary) / "refit", model=model, progress=False).folder, asked)
    rows = {"added": grown[0], "added, rules refreshed": refreshed[0], "refit": refit[0], "frequency": grown[1]}
    return {
        "graph": graph.name,
        "entities_out": len(new),
        "facts_added": len(added),
        "facts_asked": len(asked),
        "rows": {name: row.as_dict() for name, row in rows.items()},
        "share_of_refit": {"added": grown[0].mrr / refit[0].mrr, "refreshed": refreshed[0].mrr / refit[0].mrr},
        "train_s": round(fitted - began, 1),
        "add_s": round(adding, 3),
        "machine": {"cores": os.cpu_count(), "load_average": round(os.getloadavg()[0], 2)},
    }


def measure(folder: Path, asked: list[Fact]) -> tuple[Metrics, Metrics]:
    """The ranks of facts by the fusion of a run as it is now, and by frequency, over all its entities."""
    reasoner = Reasoner.load(folder)
    entities, relations = reasoner.labels.entities, reasoner.labels.relations
    ids = [(entities.find(h), relations.find(r), entities.find(t)) for h, r, t in asked]
    graph = replace(reasoner.graph, test=np.array(ids, np.int32))
    query_set = QuerySet.from_graph(graph, "test", "both")
    return rank_by_fusion(reasoner.fused, graph, query_set).ranking.metrics(), rank_by_frequency(
        graph, query_set
    ).metrics()


if __name__ == "__main__":
    main()
