"""Is it right about how sure it is? Ordinary questions, the promise of `complete --precision`, and doubt.

    python benchmarks/trust.py [world NELL23K NELL995 FB15K237-20 FB15K237 family] [--only ordinary promise doubt]

- ordinary: a fusion knows train and answers ordinary questions; a held-out split has the answer or not.
- promise: a tenth of all facts is hidden, and the rest is divided and fitted as a user's file would be. Of the
  answers to the questions of `squire complete`, those are kept of which a share P should be true. The hidden tenth
  has them or not.
- doubt: a twentieth of train's tails is replaced, in three ways, and facts are judged by the rest of the graph:
  AUROC of telling planted facts from the others, and precision at their number, beside frequency and rules.

`family` is generated: every fact follows from births and marriages by rule. A graph's figures are written to
results/trust-GRAPH.json, with the picture docs/images/trust-GRAPH.png. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from squire.completion.doubts import judge_facts
from squire.core.files import replacing
from squire.core.relations import both_directions
from squire.errors import SettingError
from squire.evaluation.ordinary import QUESTIONS as ORDINARY
from squire.evaluation.ordinary import judge_ordinary_questions
from squire.evaluation.plots import draw_reliability
from squire.graph.adjacency import Adjacency, Ids
from squire.graph.folds import can_be_hidden
from squire.graph.graph import SPLITS, Graph
from squire.graph.loading import load_graph
from squire.graph.triples import HOLDOUT, divide
from squire.model.recipe import load_recipe
from squire.ranking.calibration import Reliability
from squire.ranking.context import OrdinaryQuestions, heads_of
from squire.ranking.fusion import Fusion, fit_fusion
from squire.reasoning.reasoner import Reasoner
from squire.rules.application import RuleEngine, noisy_or
from squire.search.trained import LoadedRun
from squire.studies.graphs import family_graph

Figures = dict[str, Any]
Floats = npt.NDArray[np.float64]
HOME = Path(__file__).resolve().parents[1]
GRAPHS = ("world", "NELL23K", "NELL995", "FB15K237-20", "FB15K237", "family")
PRECISIONS = (0.5, 0.8, 0.9)
ANSWERS = 3  # of each question, as by `squire complete`
QUESTIONS = 20_000  # of a completion
PLANTED = 0.05
JUDGED = 8_000  # facts of a larger graph, of which planted ones are as frequent as in all of it
WAYS = ("any entity", "of the right kind", "seen with the relation")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="*", default=GRAPHS)
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    last: Figures = {}
    for name in arguments.graphs:
        graph = whole(family_graph(seed=arguments.seed)) if name == "family" else load_graph(name)
        file = HOME / "results" / f"trust-{graph.name}.json"
        figures: Figures = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        for step in arguments.only:
            began, cpu = time.perf_counter(), time.process_time()
            figures[step] = STEPS[step](graph, arguments.seed)
            figures[step] |= {
                "command": f"python benchmarks/trust.py {name} --only {step} --seed {arguments.seed}",
                "seconds": round(time.perf_counter() - began, 1),
                "cpu_seconds": round(time.process_time() - cpu, 1),
                "load_average": round(os.getloadavg()[0], 2),
            }
            print(f"{name}, {step}: {json.dumps(short(figures)[step])}", flush=True)
            with replacing(file) as temporary:
                temporary.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        if "ordinary" in figures:
            curves = {kind: curve for kind, curve in figures["ordinary"]["reliability"].items() if "first" in kind}
            signature = (
                f"{graph.name}, ordinary questions about train, truth valid and test, seed {arguments.seed}"
            )
            draw_reliability(curves, signature, HOME / "docs" / "images" / f"trust-{graph.name}.png")
        last[name] = short(figures)
    print(json.dumps({"ordinary_ece": pick(last, "ordinary"), "complete_precision": pick(last, "promise"),
                      "doubt_auroc": pick(last, "doubt")}))  # fmt: skip


def short(figures: Figures) -> Figures:
    """The main figure of each step."""
    out: Figures = {}
    if "ordinary" in figures:
        out["ordinary"] = {kind: round(it["error"], 4) for kind, it in figures["ordinary"]["reliability"].items()}
    if "promise" in figures:
        kept = figures["promise"]["precision"].items()
        out["promise"] = {share: None if it["true"] is None else round(it["true"], 3) for share, it in kept}
    if "doubt" in figures:
        out["doubt"] = {way: round(it["fused"], 3) for way, it in figures["doubt"]["auroc"].items()}
    return out


def pick(figures: Figures, step: str) -> Figures:
    return {name: own[step] for name, own in figures.items() if step in own}


# ---------------------------------------------------------------------------------------------------- the steps


def ordinary(graph: Graph, seed: int) -> Figures:
    """The calibration of ordinary questions; Brier scores beside those of the base rate."""
    fusion = fit_fusion(graph)
    found = judge_ordinary_questions(fusion, graph, "test", seed)
    first = found["first 1"]
    return {
        "reliability": {name: curve.as_dict() for name, curve in found.items()},
        "brier_below_base_rate": 1 - first.brier / first.base_brier,
        "rank_score_instead": rank_scores(fusion, graph, seed).as_dict(),
        "missing": fusion.info.missing,
    }


def rank_scores(fusion: Fusion, graph: Graph, seed: int) -> Reliability:
    """What rank scores, calibrated on benchmark questions, would be worth as confidence of first answers."""
    truth, shown = graph.known("valid", "test"), []
    for judged in fusion.rank(OrdinaryQuestions(graph.train, seed).sample(ORDINARY)):
        first = np.flatnonzero(judged.lists.positions(judged.scores) == 0)
        head, relation = judged.lists.queries[judged.lists.query[first]].T
        true = truth.contains_each(head, relation, judged.lists.candidates[first])
        shown.append((judged.rank_score[first], true))
    score, is_true = (np.concatenate(column) for column in zip(*shown, strict=True))
    return Reliability.from_answers(score, is_true)


def promise(graph: Graph, seed: int) -> Figures:
    """What share of the facts that `complete --precision` keeps is true."""
    every = np.concatenate([graph.triples(split) for split in SPLITS])
    parts = divide(every, (0.1, 0.0), np.random.default_rng([seed, 1]))
    known, hidden = parts["train"], parts["valid"]
    own = whole(Graph.build(graph.name, graph.labels, {"train": known}), seed=seed)
    reasoner = reasoner_of(own, fit_fusion(own))
    queries = typical_questions(own.facts, seed)
    truth = Adjacency.build(hidden, graph.num_entities, graph.num_relations)
    confidence, is_true = [], []
    assert reasoner.fusion is not None
    for judged in reasoner.fusion.rank(queries):
        chosen = np.flatnonzero(judged.lists.positions(judged.scores) < ANSWERS)
        head, relation = judged.lists.queries[judged.lists.query[chosen]].T
        confidence.append(judged.confidence[chosen])
        is_true.append(truth.contains_each(head, relation, judged.lists.candidates[chosen]))
    says, true = np.concatenate(confidence), np.concatenate(is_true)
    askable = askable_share(own.facts, hidden, queries)
    out: Figures = {}
    for precision in PRECISIONS:
        try:
            least = reasoner.confidence_for(precision, queries, ANSWERS)
        except SettingError:  # no answer is that likely, and squire says so
            out[str(precision)] = {"most_likely": float(says.max()), "kept": 0, "true": None, "recall": 0.0}
            continue
        kept = says >= least
        out[str(precision)] = {
            "least_confidence": least,
            "kept": int(kept.sum()),
            "expected": float(says[kept].mean()),
            "true": float(true[kept].mean()),
            "recall": float(true[kept].sum() / max(askable * len(hidden), 1)),
        }
    return {"precision": out, "hidden": len(hidden), "questions": len(queries), "hidden_asked_about": askable}


def doubt(graph: Graph, seed: int) -> Figures:
    """AUROC of telling planted facts from others, and precision at the number planted."""
    rng = np.random.default_rng([seed, 2])
    planted, way = plant(graph, rng)
    train = graph.train.triples.copy()
    rows = np.flatnonzero(way >= 0)
    train[rows] = planted[rows]
    spoiled = Graph.build(graph.name, graph.labels, {"train": train, "valid": graph.valid, "test": graph.test})
    chosen = np.flatnonzero(can_be_hidden(spoiled.train, unlinked=False))
    chosen = np.sort(rng.permutation(chosen)[:JUDGED])
    facts = spoiled.train.triples[chosen]
    own_way = np.full(len(facts), -1)
    for number in range(len(WAYS)):
        of_way = Adjacency.build(train[way == number], graph.num_entities, graph.num_relations)
        own_way[of_way.contains_each(*facts.T)] = number
    fusion = fit_fusion(spoiled)
    reasoner = reasoner_of(replace(spoiled, valid=graph.valid[:0], test=graph.test[:0]), fusion)
    scores = {
        "fused": judge_facts(reasoner, chosen, seed=seed),
        "rules": by_rules(reasoner, facts),
        "frequency": by_frequency(reasoner, facts),
    }
    number = int(np.sum(own_way >= 0))
    out: Figures = {"auroc": {}, "precision": {}, "judged": len(facts), "planted": number}
    for i, name in [*enumerate(WAYS), (-1, "all")]:
        both = (own_way < 0) | (own_way == i) | (i < 0)
        out["auroc"][name] = {method: auroc(score[both], own_way[both] >= 0) for method, score in scores.items()}
    for method, score in scores.items():
        out["precision"][method] = float(np.mean(own_way[np.argsort(score, kind="stable")[:number]] >= 0))
    return out


STEPS: dict[str, Callable[[Graph, int], Figures]] = {"ordinary": ordinary, "promise": promise, "doubt": doubt}


# ---------------------------------------------------------------------------------------------- what they need


def whole(graph: Graph, seed: int = 0) -> Graph:
    """All facts, divided as `squire train` divides a file."""
    every = np.concatenate([graph.triples(split) for split in SPLITS])
    parts = divide(every, HOLDOUT, np.random.default_rng(seed))
    return Graph.build(graph.name, graph.labels, parts, is_divided=True)


def reasoner_of(graph: Graph, fusion: Fusion) -> Reasoner:
    """Answers without a model, by the facts of all splits."""
    rules = fusion.features.rules
    run = LoadedRun(Path(graph.name), graph, load_recipe("small"), rules.take(rules.is_closed), graph.facts)
    return Reasoner(run, fusion.on(run))


def typical_questions(facts: Adjacency, seed: int) -> Ids:
    """The questions of `squire complete`: a relation, and heads that usually have it.  (question, 2)"""
    asked = []
    for relation in range(facts.num_relations):
        heads = heads_of(facts, relation, "typical")
        asked.append(np.stack([heads, np.full(len(heads), relation)], axis=1))
    queries = np.concatenate(asked).astype(np.int32)
    if len(queries) > QUESTIONS:
        queries = queries[np.sort(np.random.default_rng(seed).choice(len(queries), QUESTIONS, replace=False))]
    return queries


def askable_share(facts: Adjacency, hidden: Ids, queries: Ids) -> float:
    """The share of hidden facts that one of the questions asks about."""
    size = facts.num_entities
    codes = set((queries[:, 1].astype(np.int64) * size + queries[:, 0]).tolist())
    return float(np.mean([relation * size + head in codes for head, relation, _ in hidden.tolist()]))


def plant(graph: Graph, rng: np.random.Generator) -> tuple[Ids, npt.NDArray[np.int64]]:
    """Train facts with other tails, (triple, 3), and the way in which each was replaced, or -1, (triple)."""
    facts, known = graph.train.triples.copy(), graph.known(*SPLITS)
    way = np.full(len(facts), -1)
    rows = rng.permutation(len(facts))[: round(PLANTED * len(facts))]
    for number, row in enumerate(rows.tolist()):
        head, relation, tail = facts[row].tolist()
        kind = number % len(WAYS)
        pool = pool_of(graph.train, relation, tail, kind)
        others = pool[rng.permutation(len(pool))[:50]]
        others = others[(others != tail) & ~known.contains_each(
            np.full(len(others), head), np.full(len(others), relation), others
        )]  # fmt: skip
        if len(others):
            facts[row, 2], way[row] = others[0], kind
    return facts, way


def pool_of(train: Adjacency, relation: int, tail: int, kind: int) -> npt.NDArray[np.int64]:
    """Any entity; those that share a relation with the tail; or the tails of the relation."""
    starts, offsets = train.starts
    if kind == 0:
        return np.arange(train.num_entities)
    if kind == 2:
        edge_type = relation + train.num_relations
        return np.asarray(starts[offsets[edge_type] : offsets[edge_type + 1]], np.int64)
    types = np.unique(train.edges(tail)[0])
    types = types[types != relation + train.num_relations]  # another relation that shows its kind
    if not len(types):
        return np.empty(0, np.int64)
    rarest = types[np.argmin(np.diff(offsets)[types])]
    return np.asarray(starts[offsets[rarest] : offsets[rarest + 1]], np.int64)


def by_rules(reasoner: Reasoner, facts: Ids) -> Floats:
    """Noisy-or of the rules that give each fact, without counting the fact itself.  (fact)"""
    assert reasoner.fusion is not None
    features = reasoner.fusion.features
    engine = RuleEngine(features.used_rules, features.adjacency)
    out = np.zeros(len(facts))
    rules = engine.rules
    for first in range(0, len(facts), 256):
        block = facts[first : first + 256]
        found = engine.answer(np.ascontiguousarray(block[:, :2]))
        support = np.maximum(rules.support[found.rules] - 1, 0) / np.maximum(rules.support[found.rules], 1)
        scores = noisy_or(replace(found, smoothed_confidence=found.smoothed_confidence * support))
        for i, tail in enumerate(block[:, 2].tolist()):
            own = found.rows(i)
            at = np.flatnonzero(found.answers[own] == tail)
            out[first + i] = scores[own][at[0]] if len(at) else 0.0
    return out


def by_frequency(reasoner: Reasoner, facts: Ids) -> Floats:
    """How often head and tail occur with the relation elsewhere.  (fact)"""
    known = reasoner.run.facts
    out = np.zeros(len(facts))
    for direction in np.split(both_directions(facts, known.num_relations), 2):
        counts = [len(known.tails_of(entity, edge_type)) - 1 for entity, edge_type, _ in direction.tolist()]
        out += np.log1p(np.maximum(counts, 0))
    return out


def auroc(score: Floats, is_planted: npt.NDArray[np.bool_]) -> float:
    """The probability that a planted fact scores below another, ties counting half."""
    from scipy.stats import rankdata

    ranks, planted = rankdata(score), int(is_planted.sum())
    others = len(score) - planted
    if not planted or not others:
        return float("nan")
    below = planted * others - (ranks[is_planted].sum() - planted * (planted + 1) / 2)
    return float(below / (planted * others))


if __name__ == "__main__":
    main()
