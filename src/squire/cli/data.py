"""`squire data …`: load, check, look at and convert graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

import squire
from squire.cli.console import out, print_json, say
from squire.cli.options import AsJson, Source
from squire.errors import SettingError

app = typer.Typer(help="Load, check, look at and convert graphs.", no_args_is_help=True)

Order = Annotated[str | None, typer.Option(help="Order of the columns, e.g. htr for head, tail, relation.")]
Header = Annotated[bool | None, typer.Option("--header/--no-header", help="Is there a header? Default: detect.")]
Separator = Annotated[str | None, typer.Option(help="Column separator. Default: , in .csv, a tab elsewhere.")]
Literals = Annotated[bool, typer.Option("--literals", help="Keep RDF literals as entities.")]
HoldoutShares = Annotated[str, typer.Option(help="Shares of valid and test when a single file is split.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the split.")]


def _shares(text: str) -> tuple[float, float]:
    try:
        valid, test = (float(share) for share in text.split(","))
    except ValueError:
        raise SettingError(f"--holdout {text}: expected two shares, e.g. 0.05,0.05.") from None
    return valid, test


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
    report = squire.check_graph(source, order=order, header=header, separator=separator, literals=literals)
    if as_json:
        print_json(report.as_dict())
    else:
        for fault, found in sorted(report.findings.items(), key=lambda item: not item[0].fatal):
            mark = "[bold red]error  [/]" if fault.fatal else "[yellow]warning[/]"
            out.print(f"{mark} [bold]{found.count:,}[/] × {fault.says}.{fault.to_do}")
            for example in found.examples:
                out.print(f"          {example}", markup=False, highlight=False, soft_wrap=True)
            if found.count > len(found.examples):
                out.print(f"          … and {found.count - len(found.examples):,} more", highlight=False)
        verdict = "[bold green]usable[/]" if report.usable else "[bold red]not usable[/]: correct the errors first"
        out.print(verdict)
    raise typer.Exit(0 if report.usable else 1)


@app.command(epilog="Example: squire data stats world --json")
def stats(
    source: Source,
    order: Order = None,
    header: Header = None,
    separator: Separator = None,
    literals: Literals = False,
    holdout: HoldoutShares = "0.05,0.05",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Entities, relations, facts and degrees (the paper's Table 1)."""
    graph = squire.load_graph(
        source,
        order=order,
        header=header,
        separator=separator,
        literals=literals,
        holdout=_shares(holdout),
        seed=seed,
    )
    figures = graph.stats().as_dict()
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
    """Print the facts about an entity, of all splits."""
    graph = squire.load_graph(
        source, order=order, header=header, separator=separator, literals=literals, holdout=(0, 0)
    )
    neighbours = graph.neighbours(entity)
    count = sum(len(found.entities) for found in neighbours)
    label = graph.labels.entity(graph.labels.entity_id(entity))
    tree = Tree(f"[bold]{escape(label)}[/]  [dim]{count:,} edges[/]")
    for relation, inverse, labels in neighbours:
        arrow = f"←{relation}─" if inverse else f"─{relation}→"
        branch = tree.add(escape(arrow), highlight=False)
        for neighbour in labels[:limit]:
            branch.add(escape(neighbour), highlight=False)
        if len(labels) > limit:
            branch.add(f"[dim]… and {len(labels) - limit:,} more (--limit)[/]")
    out.print(tree)


@app.command(name="list", epilog="Example: SQUIRE_DATA=~/graphs squire data list")
def list_() -> None:
    """The named benchmarks, and where each is."""
    table = Table("name", "facts", "where", "note", title="Datasets")
    for row in squire.list_datasets():
        table.add_row(row.name, f"{row.facts:,}" if row.facts else "", escape(row.where), escape(row.note))
    out.print(table)


@app.command(epilog="Example: squire data fetch WN18RR")
def fetch(name: Annotated[str, typer.Argument(help="A name that `squire data list` shows.")]) -> None:
    """Download a named benchmark and verify it."""
    out.print(f"{name} is in {squire.fetch_dataset(name)}", markup=False, highlight=False, soft_wrap=True)


@app.command(epilog="Example: squire data convert dump.nt.gz my.graph")
def convert(
    source: Source,
    target: Annotated[Path, typer.Argument(help="A .graph, .tsv, .nt or .parquet file, or a folder.")],
    file_format: Annotated[str, typer.Option("--format", help="For a folder: .tsv, .nt or .parquet.")] = ".tsv",
    order: Order = None,
    header: Header = None,
    separator: Separator = None,
    literals: Literals = False,
    holdout: HoldoutShares = "0.05,0.05",
    seed: Seed = 0,
) -> None:
    """Write a graph in another format; a .graph file loads fastest and keeps splits and labels together."""
    graph = squire.load_graph(
        source,
        order=order,
        header=header,
        separator=separator,
        literals=literals,
        holdout=_shares(holdout),
        seed=seed,
    )
    for file in squire.write_graph(graph, target, f".{file_format.removeprefix('.')}"):
        say(f"wrote {file}")
