"""`squire evaluate`: how good a run is, by its paths or its fusion, beside the rules and the tail frequency."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from squire.cli.choices import AggregateOption, BeamOption, RunFolder
from squire.cli.console import out, print_json, progress_bar
from squire.cli.data import AsJson, open_graph
from squire.cli.tables import HEADINGS, figures, print_metrics
from squire.errors import SettingError
from squire.evaluate.asked import Asked
from squire.evaluate.baselines import rank_by_frequency, rank_by_rules
from squire.evaluate.metrics import Metrics
from squire.evaluate.ranking import Ranking
from squire.graph.graph import Graph
from squire.graph.store import Adjacency
from squire.rules.apply import RuleEngine


def evaluate(
    run: RunFolder,
    ranking: Annotated[
        Literal["paths", "fused"] | None,
        typer.Option(help="By the model's paths, or by all evidence; else fused if 'squire fuse' was here."),
    ] = None,
    split: Annotated[str, typer.Option(help="test, or valid while you are still choosing.")] = "test",
    side: Annotated[str, typer.Option(help="tail, as the paper does, or both for heads as well.")] = "tail",
    aggregate: AggregateOption = None,
    beam: BeamOption = None,
    prune: Annotated[float | None, typer.Option(help="Drop paths below this share of the best.")] = None,
    constraint: Annotated[
        str, typer.Option(help="Edges that paths may walk: none, graph, or a graph's name or file.")
    ] = "none",
    sample: Annotated[int | None, typer.Option(min=1, help="Ask so many queries only, drawn by --seed.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the sample.")] = 0,
    relations: Annotated[int, typer.Option(min=0, help="How many relations to list, most asked first.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Filtered MRR and Hits with 95 % intervals, by relation and category, and what the answers rest on."""
    of_paths = {"aggregate": aggregate, "beam": beam, "prune": prune, "constraint": _named(constraint)}
    given = [f"--{option}" for option, value in of_paths.items() if value is not None]
    with progress_bar("loading") as bar:
        if _is_fused(run, ranking, given):
            graph = _graph(run)
            asked = Asked.of(graph, split, side, sample=sample, seed=seed)
            ours, mined, more = _by_fusion(run, graph, asked, bar)
        else:
            loaded = _load_run(run)
            graph = loaded.graph
            asked = Asked.of(graph, split, side, sample=sample, seed=seed)
            ours, mined, more = _by_paths(loaded, asked, bar, aggregate, beam, prune, constraint), loaded.rules, {}
        engine = RuleEngine(mined, graph.train)
        rules = rank_by_rules(graph, asked, engine, progress=lambda done, total: bar.stage("rules", done, total))
    rankings = [ours, rules, rank_by_frequency(graph, asked)]
    if as_json:
        print_json({**_content(ours, rankings, graph), **more})
    else:
        _print(ours, rankings, graph, relations)
        _print_reliability(more)


def _by_paths(...) -> Ranking: ...

def _edges(constraint: str, graph: Graph) -> Adjacency:
    """The edges of a constraint, in the ids of the run's graph; names that it does not have cannot be walked."""
    if constraint == "graph":
        return graph.train
    other = open_graph(constraint)
    entities = [graph.names.entities.find(label) for label in other.names.entities]
    relations = [graph.names.relations.find(label) for label in other.names.relations]
    triples = [
        ids
        for head, relation, tail in other.train.triples.tolist()
        if None not in (ids := (entities[head], relations[relation], entities[tail]))
    ]
    if not triples:
        raise SettingError(f"--constraint {constraint}: has no edge between the entities of {graph.name}.")
    import numpy as np

    return Adjacency.build(np.array(triples, np.int32), graph.num_entities, graph.num_relations)


def _content(ours: Ranking, rankings: list[Ranking], graph: Graph) -> dict[str, object]:
    return {
        "rows": [ranking.metrics().as_dict() for ranking in rankings],
        "categories": {name: row.as_dict() for name, row in ours.by_category(graph).items()},
        "relations": {name: row.as_dict() for name, row in ours.by_relation(graph).items()},
        "evidence": ours.grade_shares(),
    }


def _print(ours: Ranking, rankings: list[Ranking], graph: Graph, relations: int) -> None:
    asked = ours.signature
    print_metrics([ranking.metrics() for ranking in rankings], f"{asked.dataset}, {asked.split}, {asked.side}")
    _print_parts("category", ours.by_category(graph))
    by_relation = ours.by_relation(graph)
    _print_parts("relation", dict(list(by_relation.items())[:relations]))
    if len(by_relation) > relations > 0:
        out.print(Text(f"{len(by_relation) - relations} more relations with --json", "dim"))
    shares = ", ".join(f"{share:.0%} {grade}" for grade, share in ours.grade_shares().items())
    out.print(f"Evidence of the first ten answers: {shares}", highlight=False)


def _print_parts(kind: str, rows: dict[str, Metrics]) -> None:
    if not rows:
        return
    table = Table(kind, "queries", *HEADINGS)
    for name, row in rows.items():
        table.add_row(escape(name), f"{row.queries:,}", *figures(row))
    out.print(table)
