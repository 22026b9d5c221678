"""Commands on the graph of a run: add and remove facts, connect two entities, say why an answer is given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import squire
from squire.cli.console import out, print_json
from squire.cli.options import AsJson, FactsOption, RunFolder

FactFile = Annotated[Path, typer.Argument(metavar="FACTS", help="A file of facts: TSV, CSV, RDF or Parquet.")]
RefreshOption = Annotated[
    bool, typer.Option("--refresh-rules", help="Mine the rules again; otherwise they keep their counts.")
]


def add(run: RunFolder, facts: FactFile, refresh_rules: RefreshOption = False, as_json: AsJson = False) -> None:
    """Add facts to the graph of a run, without training. Entities may be new, relations may not.

    A file with a mistake is refused as a whole. `squire train --resume` learns what has changed.
    """
    _show(squire.Run(run).add(facts, refresh_rules=refresh_rules), as_json)


def remove(run: RunFolder, facts: FactFile, refresh_rules: RefreshOption = False, as_json: AsJson = False) -> None:
    """Remove facts from the graph of a run, as `squire add` adds them. All must be in the graph."""
    _show(squire.Run(run).remove(facts, refresh_rules=refresh_rules), as_json)


def connect(
    run: RunFolder,
    first: Annotated[str, typer.Argument(help="An entity.")],
    second: Annotated[str, typer.Argument(help="Another one.")],
    hops: Annotated[int, typer.Option(min=1, max=3, help="Facts in a path, at most.")] = 3,
    facts: FactsOption = None,
    as_json: AsJson = False,
) -> None:
    """How two entities are connected: paths by relation pattern, most telling first, and what they suggest."""
    _show(squire.Run(run).connect(first, second, hops=hops, facts=facts or ()), as_json)


def why(
    run: RunFolder,
    head: Annotated[str, typer.Argument(help="The entity asked about.")],
    relation: Annotated[str, typer.Argument(help="The relation.")],
    tail: Annotated[str, typer.Argument(help="The answer.")],
    facts: FactsOption = None,
    as_json: AsJson = False,
) -> None:
    """What an answer hangs on: its confidence without each fact, rules with paths, similar entities, words."""
    _show(squire.Run(run).why(head, relation, tail, facts=facts or ()), as_json)


def mcp(run: RunFolder) -> None:
    """Serve a run over the Model Context Protocol, on standard input and output, until the client leaves."""
    squire.serve_mcp(run)


def _show(found: squire.Change | squire.Connections | squire.Reasons, as_json: bool) -> None:
    if as_json:
        print_json(found.as_dict())
    else:
        out.print(repr(found), markup=False, highlight=False, soft_wrap=True)
