"""Evaluation on another graph: the same relations, but entities that the run has never seen.

What a run has learned about relations applies to any graph: closed rules, the ranker and its confidences. Rules
with constants and the model are about the entities of the training, and have no say.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from squire.core.progress import Progress, no_progress
from squire.errors import SettingError
from squire.evaluation.baselines import rank_by_frequency, rank_by_rules
from squire.evaluation.fused import rank_by_fusion
from squire.evaluation.report import Evaluation, EvaluationOptions
from squire.graph.adjacency import Ids
from squire.graph.graph import SPLITS, Graph
from squire.graph.labels import LabelIndex
from squire.ranking.features import CandidateFeatures
from squire.ranking.fusion import Fusion, words_of
from squire.reasoning.reasoner import Reasoner
from squire.rules.application import RuleEngine


def evaluate_on(
    folder: Path, graph: Graph, options: EvaluationOptions, progress: Progress = no_progress
) -> Evaluation:
    """Rank a split of another graph, over all its entities, by the fusion of a run. Its train facts are known."""
    if options.ranking == "paths" or options.path_settings:
        raise SettingError(
            f"graph={graph.name!r}: a model knows the entities of its training only. Rank by fusion."
        )
    reasoner = Reasoner.load(folder, hide_held_out=True)
    own = with_relations(graph, reasoner.graph.labels.relations)
    fusion, query_set = transferred(reasoner.fused, own), options.queries(own)
    fused = rank_by_fusion(fusion, own, query_set, lambda done, total: progress("fusion", done, total))
    engine = RuleEngine(fusion.features.rules, own.train)
    rules = rank_by_rules(own, query_set, engine, progress=lambda done, total: progress("rules", done, total))
    ranked = (fused.ranking, rules, rank_by_frequency(own, query_set))
    return Evaluation(
        rows=tuple(ranks.metrics() for ranks in ranked),
        categories=fused.ranking.by_category(own),
        relations=fused.ranking.by_relation(own),
        evidence={},
        evidence_of="",
        reliability={f"benchmark questions, {name}": curve.as_dict() for name, curve in fused.reliability.items()},
        about={"run": str(folder), "graph": graph.name, "fingerprints": dict(reasoner.fingerprints)},
    )


def transferred(fusion: Fusion, graph: Graph) -> Fusion:
    """A fusion for a graph of other entities and the same relations, by the train facts of that graph."""
    rules = fusion.features.rules
    closed, words = rules.take(rules.is_closed), words_of(graph, fusion.info.use_names)
    features = CandidateFeatures(graph.train, closed, fusion.info.unlinked, words, walks=fusion.features.walks)
    return replace(fusion, features=features, pool=None)


def with_relations(graph: Graph, relations: LabelIndex) -> Graph:
    """The same graph, whose relations have the ids that they have in another one."""
    found = [relations.find(label) for label in graph.labels.relations]
    unknown = [label for label, number in zip(graph.labels.relations, found, strict=True) if number is None]
    if unknown:
        named = ", ".join(repr(label) for label in unknown[:3])
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        raise SettingError(f"graph={graph.name!r}: the run was trained without its relations {named}{more}.")
    new_id = np.array(found, np.int32)

    def renumbered(triples: Ids) -> Ids:
        return np.stack([triples[:, 0], new_id[triples[:, 1]], triples[:, 2]], axis=1)

    labels = replace(graph.labels, relations=relations)
    splits = {split: renumbered(graph.triples(split)) for split in SPLITS}
    return Graph.build(graph.name, labels, splits, graph.is_divided)
