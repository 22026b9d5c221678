"""`squire data …`: graphs that one can load, check and look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from squire.cli.console import errors, out, print_json, progress_bar
from squire.errors import SettingError
from squire.graph.benchmarks import datasets
from squire.graph.checking import EXAMPLES_KEPT
from squire.graph.loading import WRITABLE, check_graph, load_graph, write_graph

app = typer.Typer(help="Load, check, look at and convert graphs.", no_args_is_help=True)

Source = Annotated[str, typer.Argument(help="A file, a folder of train/valid/test, or a dataset's name.")]
Order = Annotated[str | None, typer.Option(help="Order of the columns, e.g. htr for head, tail, relation.")]
Header = Annotated[bool | None, typer.Option("--header/--no-header", help="Is there a header? Else detected.")]
Separator = Annotated[str | None, typer.Option(help="What parts the columns. Else , in .csv, a tab elsewhere.")]
Literals = Annotated[bool, typer.Option("--literals", help="Keep RDF literals as entities.")]
HoldoutShares = Annotated[str, typer.Option(help="Shares of valid and test when a single file is divided.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the division.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _shares(text: str) -> tuple[float, float]:
    try:
        valid, test = (float(share) for share in text.split(","))
    except ValueError:
        raise SettingError(f"holdout={text}: expected two shares, e.g. 0.1,0.1.") from None
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
    report = check_graph(source, order=order, header=header, separator=separator, literals=literals)
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
    graph = load_graph(
        source,
        holdout=_shares(holdout),
        seed=seed,
        order=order,
        header=header,
        separator=separator,
        literals=literals,
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
    """Print what the train split says about an entity."""
    # Nothing is held out, so that all of a file is shown.
    graph = load_graph(source, holdout=(0, 0), order=order, header=header, separator=separator, literals=literals)
    found = graph.neighbours(entity)
    size = sum(len(others) for _, _, others in found)
    name = graph.labels.entity(graph.labels.entity_id(entity))
    tree = Tree(f"[bold]{escape(name)}[/]  [dim]{size:,} edges[/]")
    for relation, inverse, others in found:
        label = escape(relation)
        branch = tree.add(f"←{label}─" if inverse else f"─{label}→", highlight=False)
        for other in others[:limit]:
            branch.add(escape(other), highlight=False)
        if len(others) > limit:
            branch.add(f"[dim]… and {len(others) - limit:,} more (--limit)[/]")
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
    """Download and verify a named benchmark."""
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
    graph = load_graph(
        source,
        holdout=_shares(holdout),
        seed=seed,
        order=order,
        header=header,
        separator=separator,
        literals=literals,
    )
    for file in write_graph(graph, target, suffix):
        errors.print(f"wrote {file}", markup=False, highlight=False, soft_wrap=True)
