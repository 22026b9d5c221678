"""The evaluation of a run: its own ranking beside rules and tail frequency, with evidence and calibration."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squire.core.files import replacing
from squire.core.parallel import in_order, is_leader
from squire.core.progress import Progress, no_progress
from squire.core.run_files import GRAPH, evaluation_file
from squire.errors import SettingError
from squire.evaluation.baselines import rank_by_frequency, rank_by_rules
from squire.evaluation.classification import Classification, classify, has_negatives
from squire.evaluation.fused import rank_by_fusion
from squire.evaluation.metrics import NAMES, Metrics
from squire.evaluation.ordinary import judge_ordinary_questions
from squire.evaluation.paths import rank_by_paths
from squire.evaluation.plots import draw_reliability
from squire.evaluation.queries import QuerySet
from squire.evaluation.ranks import Ranks
from squire.graph.adjacency import Ids
from squire.graph.graph import Graph
from squire.graph.loading import load_graph
from squire.model.recipe import has_model
from squire.ranking.fusion_file import has_fusion
from squire.reasoning.reasoner import SHOWN_AT_ONCE, Reasoner
from squire.rules.application import RuleEngine
from squire.rules.rules import Rules
from squire.rules.ruleset import RuleSet
from squire.search.evidence import GRADES
from squire.search.options import SearchEdges
from squire.search.trained import TrainedModel

if TYPE_CHECKING:
    import pandas as pd

EVIDENCE_QUERIES = 300  # queries whose evidence is graded: each needs a search
HEADINGS = ("MRR", "Hits@1", "Hits@3", "Hits@10")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """How good a run is: MRR and Hits of its ranking, of the rules and of the tail frequency.

    `rows[0]` is the run's own ranking. `print` shows a table, `to_frame()` gives a data frame.
    """

    rows: tuple[Metrics, ...]
    categories: Mapping[str, Metrics]  # of the run's own ranking, by kind of relation
    relations: Mapping[str, Metrics]  # by relation, most frequent first
    evidence: Mapping[str, float]  # share of each grade among the first ten new answers; empty without a model
    evidence_of: str  # which queries these shares are of
    # How right the probabilities are: rank scores of "benchmark questions, first 1", and confidences of "ordinary
    # questions, first 1", "…, with a value, tails" and so on. Empty for paths, which have neither.
    reliability: Mapping[str, Mapping[str, Any]]
    classification: tuple[Classification, ...] = ()  # where the dataset has verified negatives, on test
    about: Mapping[str, Any] = field(default_factory=dict)  # run, fingerprints, step and recipe

    @property
    def mrr(self) -> float:
        """MRR of the run's own ranking."""
        return self.rows[0].mrr

    @property
    def title(self) -> str:
        """Dataset, split and side."""
        signature = self.rows[0].signature
        return f"{signature.dataset}, {signature.split}, {signature.side}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self.about,
            "rows": [row.as_dict() for row in self.rows],
            "categories": {name: row.as_dict() for name, row in self.categories.items()},
            "relations": {name: row.as_dict() for name, row in self.relations.items()},
            "evidence": dict(self.evidence),
            "evidence_of": self.evidence_of,
            "reliability": dict(self.reliability),
            "classification": [row.as_dict() for row in self.classification],
        }

    def to_frame(self) -> pd.DataFrame:
        """One row per method, with the signature of its figures."""
        from squire.core.frames import to_frame

        return to_frame([{"method": row.signature.method, **row.as_dict()} for row in self.rows])

    def save(self, file: Path) -> None:
        """Write the JSON, and a picture of the calibration beside it. A read-only folder is only logged."""
        try:
            with replacing(file) as temporary:
                content = json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n"
                temporary.write_text(content, encoding="utf-8")
            if self.reliability:
                main = {name: curve for name, curve in self.reliability.items() if "first" in name}
                draw_reliability(main, str(self.rows[0].signature), file.with_suffix(".png"))
        except OSError as error:
            logger.warning("%s: not written (%s)", file, error.strerror)

    def __repr__(self) -> str:
        lines = [self.title, f"{'method':20}" + "".join(f"{heading:>9}" for heading in HEADINGS)]
        lines += [
            f"{row.signature.method:20}" + "".join(f"{getattr(row, name):9.3f}" for name in NAMES)
            for row in self.rows
        ]
        if self.evidence:
            shares = ", ".join(f"{share:.0%} {grade}" for grade, share in self.evidence.items())
            lines.append(f"evidence of the first ten new answers: {shares}")
        lines += [calibration_line(name, it) for name, it in self.reliability.items() if name.endswith("first 1")]
        lines += [
            f"triple classification, {row.method}: accuracy {row.accuracy:.3f}, F1 {row.f1:.3f}"
            for row in self.classification
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{heading}</th>" for heading in ("method", *HEADINGS))
        rows = "".join(
            f"<tr><td>{escape(row.signature.method)}</td>"
            + "".join(f"<td>{getattr(row, name):.3f}</td>" for name in NAMES)
            + "</tr>"
            for row in self.rows
        )
        return f"<table><caption>{escape(self.title)}</caption><tr>{head}</tr>{rows}</table>"


def calibration_line(name: str, figures: Mapping[str, Any]) -> str:
    """`ordinary questions, first 1: says 0.06, true 0.05, calibration error 0.01, Brier 0.03 (base rate 0.05)`"""
    says, true, error, brier, base = (figures[key] for key in ("says", "true", "error", "brier", "base_brier"))
    judged = f"says {says:.3f}, true {true:.3f}, calibration error {error:.3f}"
    return f"{name}: {judged}, Brier {brier:.3f} (base rate {base:.3f})"


@dataclass(frozen=True)
class EvaluationOptions:
    """What to evaluate. `search` holds changes to the recipe's decoding, which apply to the ranking by paths."""

    split: str = "test"
    side: str = "tail"
    ranking: str | None = None  # "paths" or "fused"; by default fused if the run has a fusion
    weights: str = "best"  # or "last"
    sample: int | None = None
    seed: int = 0
    evidence: bool = True  # grade the evidence of some answers
    search: Mapping[str, Any] = field(default_factory=dict)  # the keys of `api.PathSettings`

    def __post_init__(self) -> None:
        if self.ranking not in (None, "paths", "fused"):
            raise SettingError(f"ranking={self.ranking!r}: expected paths or fused.")
        if self.weights not in ("best", "last"):
            raise SettingError(f"weights={self.weights!r}: expected best or last.")
        if self.sample is not None and self.sample < 1:
            raise SettingError(f"sample={self.sample}: expected 1 or more.")

    def queries(self, graph: Graph) -> QuerySet:
        """The queries to rank."""
        return QuerySet.from_graph(graph, self.split, self.side, sample=self.sample, seed=self.seed)

    def changes(self, query_set: QuerySet) -> dict[str, Any]:
        """The settings of the queries that are not the default ones."""
        changes: dict[str, Any] = {} if self.side == "tail" else {"side": self.side}
        if query_set.sample:
            changes |= {"sample": self.sample} | ({"seed": self.seed} if self.seed else {})
        return changes

    @property
    def path_settings(self) -> list[str]:
        """Settings given that only the ranking by paths has."""
        return [name for name, value in self.search.items() if value is not None] + (
            ["weights"] if self.weights != "best" else []
        )

    def is_fused(self, folder: Path) -> bool:
        """Whether to rank by the fusion; settings of the path search imply the ranking by paths."""
        if self.ranking == "fused" and self.path_settings:
            raise SettingError(f"{self.path_settings[0]}: applies to ranking='paths' only.")
        if self.ranking == "fused" and not has_fusion(folder):
            raise SettingError(f"{folder}: no fusion here. Run `squire fuse {folder}` first.")
        return self.ranking == "fused" or (self.ranking is None and has_fusion(folder) and not self.path_settings)


def evaluate_run(folder: Path, options: EvaluationOptions, progress: Progress = no_progress) -> Evaluation:
    """Rank a split's queries by the run, by its rules and by tail frequency; kept in the run folder.

    By default that is by the fusion and by the model's paths, if the run has both.
    """
    is_fused = options.is_fused(folder)
    own = _by_fusion(folder, options, progress) if is_fused else _by_paths(folder, options, progress)
    graph, query_set = own.graph, options.queries(own.graph)
    if not len(own.rules):
        logger.warning("this run has no rules: the row of the rules is the tail frequency")
    engine = RuleEngine(own.rules, graph.train)
    rules = rank_by_rules(graph, query_set, engine, progress=lambda done, total: progress("rules", done, total))
    ranked = [own.ranks, rules, rank_by_frequency(graph, query_set)]
    if is_fused and options.ranking is None and has_model(folder):  # the paper's ranking beside the fused one
        ranked.insert(1, _by_paths(folder, options, progress).ranks)
    evaluation = Evaluation(
        rows=tuple(ranks.metrics() for ranks in ranked),
        categories=own.ranks.by_category(graph),
        relations=own.ranks.by_relation(graph),
        evidence=own.evidence,
        evidence_of=own.evidence_of,
        reliability=own.reliability,
        classification=own.classification,
        about={"run": str(folder), **own.about},
    )
    # Not kept: figures under a constraint, or of weights that do not answer questions.
    if options.search.get("constraint") is None and options.weights == "best" and is_leader():
        name, changes = "fused" if is_fused else "paths", own.changes | options.changes(query_set)
        evaluation.save(evaluation_file(folder, name, options.split, **changes))
    return evaluation


def evaluate_rules(
    rules: RuleSet, split: str, side: str, aggregate: str, best: int, progress: Progress = no_progress
) -> Evaluation:
    """Rank a split's queries by rules alone, beside the tail frequency."""
    graph = rules.graph
    query_set = QuerySet.from_graph(graph, split, side)
    engine = RuleEngine(rules.rules, graph.train, best)
    own = rank_by_rules(graph, query_set, engine, aggregate, lambda done, total: progress("rules", done, total))
    rows = (rank_by_frequency(graph, query_set).metrics(), own.metrics())
    return Evaluation(rows, own.by_category(graph), own.by_relation(graph), {}, "", {})


@dataclass(frozen=True)
class _Own:
    """The run's own ranking, and what the baselines need."""

    graph: Graph
    rules: Rules
    ranks: Ranks
    evidence: dict[str, float] = field(default_factory=dict)
    evidence_of: str = ""
    reliability: dict[str, dict[str, Any]] = field(default_factory=dict)
    classification: tuple[Classification, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)  # settings of the search that are not the recipe's


def _by_fusion(folder: Path, options: EvaluationOptions, progress: Progress) -> _Own:
    if not (folder / GRAPH).exists():
        raise SettingError(f"{folder}: a fusion without its graph, {GRAPH}. Run `squire fuse` again.")
    reasoner = Reasoner.load(folder, hide_held_out=True)
    graph, fusion = reasoner.graph, reasoner.fusion
    assert fusion is not None
    query_set = options.queries(graph)
    fused = rank_by_fusion(fusion, graph, query_set, lambda done, total: progress("fusion", done, total))
    ordinary = judge_ordinary_questions(fusion, graph, options.split, options.seed, progress=progress)
    curves = {f"benchmark questions, {name}": curve for name, curve in fused.reliability.items()}
    curves |= {f"ordinary questions, {name}": curve for name, curve in ordinary.items()}
    # The model is only a part of what is measured if evidence is graded, or if the fusion was fitted with it.
    kinds = ("fusion", "model") if options.evidence else ("fusion",)
    own = _Own(
        graph, fusion.features.rules, fused.ranking,
        reliability={name: curve.as_dict() for name, curve in curves.items()},
        about={"fingerprints": {kind: reasoner.fingerprints[kind] for kind in kinds}},
    )  # fmt: skip
    if options.split == "test" and has_negatives(graph):
        own = replace(own, classification=classify(fusion, graph))
    if options.evidence:
        some = query_set.queries[:: -(-len(query_set.queries) // EVIDENCE_QUERIES)]
        shares = _grade_shares(reasoner, some, progress)
        own = replace(own, evidence=shares, evidence_of=f"of {len(some):,} questions")
    return own


def _grade_shares(reasoner: Reasoner, queries: Ids, progress: Progress) -> dict[str, float]:
    """The share of each grade among the first ten new answers, by the best path shown for each."""
    decoding = reasoner.decoding()

    def of_block(i: int) -> list[str]:
        own = queries[i * SHOWN_AT_ONCE : (i + 1) * SHOWN_AT_ONCE, :2]
        return [one.evidence.grade for answers in reasoner.stream(own, decoding, k=10) for one in answers]

    found: Counter[str] = Counter()
    count = -(-len(queries) // SHOWN_AT_ONCE)
    for done, block in enumerate(in_order(of_block, count, threads=1), 1):
        found.update(block)
        progress("evidence", min(done * SHOWN_AT_ONCE, len(queries)), len(queries))
    return {grade: found[grade] / max(found.total(), 1) for grade in GRADES}


def _by_paths(folder: Path, options: EvaluationOptions, progress: Progress) -> _Own:
    trained = TrainedModel.load(folder, weights=options.weights)
    graph, changes = trained.graph, dict(options.search)
    if constraint := changes.pop("constraint", None):
        changes["constraint"] = _constraint(constraint, trained)
    decoding = trained.decoding(**changes)
    ranks = rank_by_paths(
        trained.decoder, graph, options.queries(graph), decoding, trained.recipe.train.seed,
        lambda done, total: progress("paths", done, total),
    )  # fmt: skip
    if options.weights != "best":
        ranks = replace(ranks, signature=replace(ranks.signature, weights=options.weights))
    recipe = trained.recipe.to_dict()
    about = {"fingerprints": {"model": trained.fingerprint}, "step": trained.step, "recipe": recipe}
    own_settings = {key: value for key, value in options.search.items() if value != recipe["decode"].get(key)}
    return _Own(graph, trained.rules, ranks, ranks.grade_shares(), about=about, changes=own_settings)


def _constraint(constraint: str, trained: TrainedModel) -> SearchEdges:
    """The edges that paths may use: "graph", or the train edges of another graph, by its name or file."""
    graph = trained.graph
    if constraint == "graph":
        return trained.known_edges
    # Only train of a graph in splits, since its test split may hold the answers; a single file is taken whole.
    other = load_graph(constraint, holdout=(0, 0))
    edges = graph.edges_of(other)
    if not edges.num_edges:
        raise SettingError(f"constraint={constraint!r}: has no edge between the entities of {graph.name}.")
    return SearchEdges(edges, trained.device, name=other.name)
