"""`squire evaluate`: how good a run is, beside the rules and the tail frequency."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from squire.cli.choices import AggregateOption, BeamOption, RunFolder
from squire.cli.console import errors, out, print_json, progress_bar
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
    split: Annotated[str, typer.Option(help="test, or valid while you are still choosing.")] = "test",
    side: Annotated[str, typer.Option(help="tail, as the paper does, or both for heads as well.")] = "tail",
    aggregate: AggregateOption = None,
    beam: BeamOption = None,
    prune: Annotated[float | None, typer.Option(help="Drop paths below this share of the best.")] = None,
    constraint: Annotated[
        str, typer.Option(help="Edges that paths may walk: none, graph, or a graph's name or file.")
    ] = "none",
    sample: Annotated[int | None, typer.Option(min=1, help="Ask so many queries only, drawn by --seed.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of --sample.")] = 0,
    relations: Annotated[int, typer.Option(min=0, help="How many relations to list, most asked first.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Filtered MRR and Hits with 95 % intervals, by relation and category, and what the answers rest on."""
    # Imported late: torch takes a second that no other command should wait for.
    from squire.constraint import EdgeConstraint
    from squire.decode import Decoding
    from squire.evaluate.paths import rank_by_paths
    from squire.run import Run

    with progress_bar("loading") as bar:
        loaded = Run.load(run)
        graph, recipe = loaded.graph, loaded.recipe
        asked = Asked.of(graph, split, side, sample=sample, seed=seed)
        edges = None
        if constraint != "none":
            adjacency, name = _edges(constraint, graph)
            edges = EdgeConstraint.of(adjacency, loaded.device, name=name)
        how = Decoding.of(recipe, loaded.known, beam=beam, aggregate=aggregate, prune=prune, constraint=edges)
        ours = rank_by_paths(
            loaded.steps, graph, asked, how, recipe.train.seed,
            lambda done, total: bar.stage("paths", done, total),
        )  # fmt: skip
        engine = RuleEngine(loaded.rules, graph.train)
        rules = rank_by_rules(graph, asked, engine, progress=lambda done, total: bar.stage("rules", done, total))
    if not len(loaded.rules):
        errors.print("[yellow]this run has no rules:[/] the rules row is the tail frequency alone")
    rankings = [ours, rules, rank_by_frequency(graph, asked)]
    if as_json:
        about = {"run": str(run), "step": loaded.step, "recipe": recipe.to_dict()}
        print_json({**about, **_content(ours, rankings, graph)})
    else:
        _print(ours, rankings, graph, relations)


def _edges(constraint: str, graph: Graph) -> tuple[Adjacency, str]:
    """The edges of a constraint, in the ids of the run's graph, and the name for them."""
    if constraint == "graph":
        return graph.train, constraint
    # Of a graph that comes in splits, train alone: its test may hold the very answers that are asked for. A single
    # file is taken whole.
    other = open_graph(constraint, holdout="0,0")
    edges = graph.edges_of(other)
    if not edges.num_edges:
        raise SettingError(f"--constraint {constraint}: has no edge between the entities of {graph.name}.")
    return edges, other.name


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
    out.print(f"Evidence of the first ten new answers: {shares}", highlight=False)


def _print_parts(kind: str, rows: dict[str, Metrics]) -> None:
    if not rows:
        return
    table = Table(kind, "queries", *HEADINGS)
    for name, row in rows.items():
        table.add_row(escape(name), f"{row.queries:,}", *figures(row))
    out.print(table)
