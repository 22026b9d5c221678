"""`squire data …`: graphs that one can load, check and look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from squire.cli.console import errors, out, print_json, progress_bar
from squire.errors import SettingError
from squire.graph.benchmarks import datasets
from squire.graph.formats.delimited import ReadOptions
from squire.graph.graph import Graph
from squire.graph.loading import WRITABLE, Holdout, check_graph, load_graph, write_graph
from squire.graph.report import EXAMPLES_KEPT
from squire.graph.statistics import Stats

app = typer.Typer(help="Load, check, look at and convert graphs.", no_args_is_help=True)

Source = Annotated[str, typer.Argument(help="A file, a folder of train/valid/test, or a dataset's name.")]
Order = Annotated[str | None, typer.Option(help="Order of the columns, e.g. htr for head, tail, relation.")]
Header = Annotated[bool | None, typer.Option("--header/--no-header", help="Is there a header? Else detected.")]
Separator = Annotated[str | None, typer.Option(help="What parts the columns. Else , in .csv, a tab elsewhere.")]
Literals = Annotated[bool, typer.Option("--literals", help="Keep RDF literals as entities.")]
HoldoutShares = Annotated[str, typer.Option(help="Shares of valid and test when a single file is divided.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the division.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def open_graph(source: str, options: ReadOptions | None = None, holdout: str = "0.1,0.1", seed: int = 0) -> Graph:
    """The graph behind a path or a dataset's name."""
    return load_graph(datasets.resolve(source), options, _holdout(holdout, seed))


def _holdout(shares: str, seed: int) -> Holdout:
    try:
        valid, test = (float(share) for share in shares.split(","))
    except ValueError:
        raise SettingError(f"--holdout {shares}: expected two shares, e.g. 0.1,0.1.") from None
    return Holdout(valid, test, seed)


@app.command(epilog="Example: squire data check my-graph.tsv --separator ';'")
def check(
    source: Source,
    order: Order = None,
    header: Header = None,
    separator: Separator = None,
    literals: Literals = False,
    as_json: AsJson = False,
) -> None:
    """Report everything that is wrong or suspicious; exit code 0 if the graph can be used, 1 if not."""
    report = check_graph(datasets.resolve(source), ReadOptions(order, header, separator, literals))
    if as_json:
        findings = [
            {
                "kind": fault.name.lower(),
                "fatal": fault.fatal,
                "count": found.count,
                "examples": found.examples,
                "says": fault.says,
                "advice": fault.advice,
            }
            for fault, found in report.findings.items()
        ]
        print_json({"usable": report.usable, "findings": findings})
    else:
        for fault, found in sorted(report.findings.items(), key=lambda item: not item[0].fatal):
            mark = "[bold red]error  [/]" if fault.fatal else "[yellow]warning[/]"
            out.print(f"{mark} [bold]{found.count:,}[/] × {fault.says}.{fault.to_do}")
            for example in found.examples:
                out.print(f"          {example}", markup=False, highlight=False, soft_wrap=True)
            if found.count > EXAMPLES_KEPT:
                out.print(f"          … and {found.count - EXAMPLES_KEPT:,} more", highlight=False)
        out.print("[bold green]usable[/]" if report.usable else "[bold red]not usable[/]: mend the errors first")
    raise typer.Exit(0 if report.usable else 1)


@app.command(epilog="Example: squire data stats world --json")
def stats(
    source: Source,
    order: Order = None,
    header: Header = None,
    separator: Separator = None,
    literals: Literals = False,
    holdout: HoldoutShares = "0.1,0.1",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Entities, relations, facts and degrees (the paper's Table 1)."""
    graph = open_graph(source, ReadOptions(order, header, separator, literals), holdout, seed)
    figures = Stats.from_graph(graph).as_dict()
    if as_json:
        print_json(figures)
        return
    table = Table(title=escape(graph.name), show_header=False)
    for key, value in figures.items():
        if key != "name":
            table.add_row(key.replace("_", " "), f"{value:,}")
    out.print(table)


@app.command(epilog="Example: squire data show world Austria")
def show(
    source: Source,
    entity: Annotated[str, typer.Argument(help="The entity's label.")],
    limit: Annotated[int, typer.Option(min=1, help="Neighbours to print for each relation.")] = 10,
    order: Order = None,
    header: Header = None,
    separator: Separator = None,
    literals: Literals = False,
) -> None:
    """Print what the train split says about an entity."""
    # Nothing is held out: who looks at a file wants to see all of it.
    graph = open_graph(source, ReadOptions(order, header, separator, literals), "0,0")
    labels = graph.labels
    head = labels.entity_id(entity)
    relations, tails = graph.train.edges(head)
    tree = Tree(f"[bold]{escape(labels.entity(head))}[/]  [dim]{len(tails):,} edges[/]")
    for relation in np.unique(relations).tolist():
        own = tails[relations == relation]
        forward = relation < graph.num_relations
        label = escape(labels.relation(relation))
        branch = tree.add(f"─{label}→" if forward else f"←{label}─", highlight=False)
        for tail in own[:limit].tolist():
            branch.add(escape(labels.entity(tail)), highlight=False)
        if len(own) > limit:
            branch.add(f"[dim]… and {len(own) - limit:,} more (--limit)[/]")
    out.print(tree)


@app.command(name="list", epilog="Example: SQUIRE_DATA=~/graphs squire data list")
def list_() -> None:
    """The named benchmarks, and where each is."""
    table = Table("name", "facts", "where", "note", title="Datasets")
    for row in datasets.describe():
        table.add_row(row.name, f"{row.facts:,}" if row.facts else "", escape(row.where), escape(row.note))
    out.print(table)


@app.command(epilog="Example: squire data fetch WN18RR")
def fetch(name: Annotated[str, typer.Argument(help="A name that 'squire data list' shows.")]) -> None:
    """Download a named benchmark, verified; an interrupted download goes on where it stopped."""
    with progress_bar(f"fetch {escape(name)}", unit_bytes=True) as bar:
        path = datasets.fetch_dataset(name, progress=bar.stage)
    out.print(f"{name} is in {path}", markup=False, highlight=False, soft_wrap=True)


@app.command(epilog="Example: squire data convert dump.nt.gz my.graph")
def convert(
    source: Source,
    target: Annotated[Path, typer.Argument(help="A .graph, .tsv, .nt or .parquet file, or a folder.")],
    file_format: Annotated[str, typer.Option("--format", help=f"For a folder: {' '.join(WRITABLE)}.")] = ".tsv",
    order: Order = None,
    header: Header = None,
    separator: Separator = None,
    literals: Literals = False,
    holdout: HoldoutShares = "0.1,0.1",
    seed: Seed = 0,
) -> None:
    """Write a graph in another format; a .graph file loads fastest and keeps splits and labels together."""
    suffix = file_format if file_format.startswith(".") else f".{file_format}"
    graph = open_graph(source, ReadOptions(order, header, separator, literals), holdout, seed)
    for file in write_graph(graph, target, suffix):
        errors.print(f"wrote {file}", markup=False, highlight=False, soft_wrap=True)
