"""`squire evaluate`: how good a run is, by its paths or its fusion, beside the rules and the tail frequency."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from squire.cli.choices import AggregateOption, BeamOption, RankingOption
from squire.cli.console import Bar, errors, out, print_json, progress_bar
from squire.cli.data import AsJson
from squire.cli.tables import HEADINGS, figures, print_metrics
from squire.core.files import replacing
from squire.core.run_files import FUSION, GRAPH, evaluation_file
from squire.errors import SettingError
from squire.evaluation.baselines import rank_by_frequency, rank_by_rules
from squire.evaluation.metrics import Metrics
from squire.evaluation.queries import QuerySet
from squire.evaluation.ranking import Ranking
from squire.evaluation.reliability_plot import draw_reliability
from squire.graph.adjacency import Adjacency, Ids
from squire.graph.graph import Graph
from squire.graph.loading import load_graph
from squire.rules.application import RuleEngine
from squire.rules.rules import Rules
from squire.search.evidence import GRADES

if TYPE_CHECKING:
    from squire.reasoning.reasoner import Reasoner

SAMPLE = 300  # questions whose evidence is looked at: each needs a search


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder of 'squire train' or 'squire fuse'.")],
    ranking: RankingOption = None,
    split: Annotated[str, typer.Option(help="test, or valid while you are still choosing.")] = "test",
    side: Annotated[str, typer.Option(help="tail, as the paper does, or both for heads as well.")] = "tail",
    aggregate: AggregateOption = None,
    beam: BeamOption = None,
    prune: Annotated[
        float | None, typer.Option(help="Drop paths below this share of the tenth new answer.")
    ] = None,
    constraint: Annotated[
        str, typer.Option(help="Edges that paths may walk: none, graph, or a graph's name or file.")
    ] = "none",
    edge_ends: Annotated[
        bool | None,
        typer.Option("--edge-ends/--no-edge-ends", help="Take the end after the queried edge for granted."),
    ] = None,
    weights: Annotated[
        Literal["best", "last"], typer.Option(help="Of the best epoch by valid, or the last ones.")
    ] = "best",
    sample: Annotated[int | None, typer.Option(min=1, help="Ask so many queries only, drawn by --seed.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of --sample.")] = 0,
    relations: Annotated[int, typer.Option(min=0, help="How many relations to list, most asked first.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Filtered MRR and Hits with 95 % intervals, by relation and category, and what the answers rest on."""
    constrained = None if constraint == "none" else constraint
    last = weights if weights == "last" else None
    options = {
        "aggregate": aggregate, "beam": beam, "prune": prune, "constraint": constrained, "edge_ends": edge_ends,
        "weights": last,
    }  # fmt: skip
    given = {name: value for name, value in options.items() if value is not None}

    def ask(graph: Graph) -> QuerySet:
        return QuerySet.from_graph(graph, split, side, sample=sample, seed=seed)

    with progress_bar("loading") as bar:
        is_fused = _is_fused(run, ranking, list(given))
        found = _by_fusion(run, ask, bar) if is_fused else _by_paths(run, ask, given, bar)
        graph, query_set = found.graph, found.query_set
        engine = RuleEngine(found.rules, graph.train)
        rules = rank_by_rules(
            graph, query_set, engine, progress=lambda done, total: bar.stage("rules", done, total)
        )
    if not len(found.rules):
        errors.print("[yellow]this run has no rules:[/] the rules row is the tail frequency alone")
    rankings = [found.ranking, rules, rank_by_frequency(graph, query_set)]
    about = {"run": str(run), **found.about}
    evidence = {"evidence": found.evidence, "evidence_of": found.evidence_of.strip()}
    content = {**about, **_content(found.ranking, rankings, graph), **evidence, "reliability": found.reliability}
    # A constraint asks something else of the model than what it is good for, other weights are not what answers.
    if constrained is None and last is None:
        file = evaluation_file(run, "fused" if is_fused else "paths", split, sampled=bool(query_set.sample))
        _keep(file, content)
    if as_json:
        print_json(content)
    else:
        _print(found, rankings, relations)


def _keep(file: Path, content: dict[str, Any]) -> None:
    """In the run folder, for the model card; who may not write there still sees the figures.

    With confidences comes a picture of how far they can be believed.
    """
    try:
        with replacing(file) as temporary:
            temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        if content["reliability"]:
            draw_reliability(content["reliability"], content["rows"][0]["signature"], file.with_suffix(".png"))
    except OSError as error:
        errors.print(f"{file}: not written ({error.strerror})", style="yellow", markup=False, highlight=False)


@dataclass(frozen=True)
class _Found:
    """A run's own row, and what the others need."""

    graph: Graph
    query_set: QuerySet
    rules: Rules
    ranking: Ranking
    evidence: dict[str, float]  # the share of each grade among the first ten answers
    evidence_of: str  # which questions these are of
    reliability: dict[str, dict[str, Any]]  # empty for paths, which say nothing of how sure they are
    about: dict[str, Any]  # what else JSON tells of the run


def _is_fused(run: Path, ranking: str | None, given: list[str]) -> bool:
    """Which ranking is meant, if none is named: options of paths are given for paths."""
    there = any(run.glob(f"{FUSION}*.safetensors"))
    if ranking == "fused" and given:
        flag = given[0].replace("_", "-")
        raise SettingError(f"--{flag}: is of --ranking paths only. To do: leave out one of the two.")
    if ranking == "fused" and not there:
        raise SettingError(f"{run}: no fusion here. To do: make one with 'squire fuse GRAPH --out {run}'.")
    return ranking == "fused" or (ranking is None and there and not given)


def _by_fusion(run: Path, ask: Callable[[Graph], QuerySet], bar: Bar) -> _Found:
    # Imported late: torch takes a second that no other command should wait for.
    from squire.evaluation.fused import rank_by_fusion
    from squire.model.recipe import has_model
    from squire.ranking.fusion import load_fusion
    from squire.reasoning.reasoner import Reasoner

    if not (run / GRAPH).exists():
        raise SettingError(f"{run}: a fusion without its graph, {GRAPH}. To do: fit it again with 'squire fuse'.")
    reasoner = Reasoner.load(run) if has_model(run) else None
    graph = reasoner.graph if reasoner else Graph.load(run / GRAPH)
    fusion = reasoner.fusion if reasoner and reasoner.fusion else load_fusion(run, graph)
    query_set, evidence, of = ask(graph), {}, ""
    fused = rank_by_fusion(fusion, graph, query_set, lambda done, total: bar.stage("fusion", done, total))
    if reasoner:
        some = query_set.queries[:: -(-len(query_set.queries) // SAMPLE)]
        evidence = _grades(reasoner, some, lambda done, total: bar.stage("evidence", done, total))
        of = f" of {len(some):,} questions"
    reliability = fused.reliability_figures()
    return _Found(graph, query_set, fusion.features.rules, fused.ranking, evidence, of, reliability, {})


def _grades(reasoner: Reasoner, queries: Ids, progress: Callable[[int, int], None]) -> dict[str, float]:
    """The share of each grade among the first ten new answers, each with the best path that is shown for it."""
    counts = dict.fromkeys(GRADES, 0)
    for done, answers in enumerate(reasoner.stream(queries[:, :2], reasoner.decoding(), k=10), 1):
        for answer in answers:
            counts[answer.evidence.grade] += 1
        progress(done, len(queries))
    return {grade: count / max(sum(counts.values()), 1) for grade, count in counts.items()}


def _by_paths(run: Path, ask: Callable[[Graph], QuerySet], given: dict[str, Any], bar: Bar) -> _Found:
    # Imported late: torch takes a second that no other command should wait for.
    from squire.evaluation.paths import rank_by_paths
    from squire.search.options import DecodingOptions, SearchEdges
    from squire.search.trained import TrainedModel

    weights = given.pop("weights", "best")
    loaded = TrainedModel.load(run, weights=weights)
    graph, query_set, edges = loaded.graph, ask(loaded.graph), None
    if constraint := given.get("constraint"):
        adjacency, name = _edges(constraint, graph)
        edges = SearchEdges.from_adjacency(adjacency, loaded.device, name=name)
    decoding = DecodingOptions.from_recipe(loaded.recipe, loaded.known_edges, **{**given, "constraint": edges})
    ranking = rank_by_paths(
        loaded.decoder, graph, query_set, decoding, loaded.recipe.train.seed,
        lambda done, total: bar.stage("paths", done, total),
    )  # fmt: skip
    if weights != "best":
        ranking = replace(ranking, signature=replace(ranking.signature, weights=weights))
    about = {"step": loaded.step, "recipe": loaded.recipe.to_dict()}
    return _Found(graph, query_set, loaded.rules, ranking, ranking.grade_shares(), "", {}, about)


def _edges(constraint: str, graph: Graph) -> tuple[Adjacency, str]:
    """The edges of a constraint, in the ids of the run's graph, and the name for them."""
    if constraint == "graph":
        return graph.train, constraint
    # Of a graph that comes in splits, train alone: its test may hold the very answers that are asked for. A single
    # file is taken whole.
    other = load_graph(constraint, holdout=(0, 0))
    edges = graph.edges_of(other)
    if not edges.num_edges:
        raise SettingError(f"--constraint {constraint}: has no edge between the entities of {graph.name}.")
    return edges, other.name


def _content(ours: Ranking, rankings: list[Ranking], graph: Graph) -> dict[str, object]:
    return {
        "rows": [ranking.metrics().as_dict() for ranking in rankings],
        "categories": {name: row.as_dict() for name, row in ours.by_category(graph).items()},
        "relations": {name: row.as_dict() for name, row in ours.by_relation(graph).items()},
    }


def _print(found: _Found, rankings: list[Ranking], relations: int) -> None:
    ours, graph, query_set = found.ranking, found.graph, found.ranking.signature
    print_metrics(
        [ranking.metrics() for ranking in rankings], f"{query_set.dataset}, {query_set.split}, {query_set.side}"
    )
    _print_parts("category", ours.by_category(graph))
    by_relation = ours.by_relation(graph)
    _print_parts("relation", dict(list(by_relation.items())[:relations]))
    if len(by_relation) > relations > 0:
        out.print(Text(f"{len(by_relation) - relations} more relations with --json", "dim"))
    if found.evidence:
        shares = ", ".join(f"{share:.0%} {grade}" for grade, share in found.evidence.items())
        out.print(f"Evidence of the first ten new answers{found.evidence_of}: {shares}", highlight=False)
    for name, figures_of in found.reliability.items():
        out.print(f"Calibration error of the {name}: {figures_of['error']:.3f}", highlight=False)


def _print_parts(kind: str, rows: dict[str, Metrics]) -> None:
    if not rows:
        return
    table = Table(kind, "queries", *HEADINGS)
    for name, row in rows.items():
        table.add_row(escape(name), f"{row.queries:,}", *figures(row))
    out.print(table)
