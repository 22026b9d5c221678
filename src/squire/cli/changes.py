"""Commands that change the graph of a run: add and remove."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import squire
from squire.cli.console import out, print_json
from squire.cli.options import AsJson, RunFolder

FactFile = Annotated[Path, typer.Argument(metavar="FACTS", help="A file of facts: TSV, CSV, RDF or Parquet.")]
RefreshOption = Annotated[
    bool, typer.Option("--refresh-rules", help="Mine the rules again; otherwise they keep their counts.")
]


def add(run: RunFolder, facts: FactFile, refresh_rules: RefreshOption = False, as_json: AsJson = False) -> None:
    """Add facts to the graph of a run, without training. Entities may be new, relations may not.

    A file with a mistake is refused as a whole. `squire train --resume` learns what has changed.
    """
    _print(squire.Run(run).add(facts, refresh_rules=refresh_rules), as_json)


def remove(run: RunFolder, facts: FactFile, refresh_rules: RefreshOption = False, as_json: AsJson = False) -> None:
    """Remove facts from the graph of a run, as `squire add` adds them. All must be in the graph."""
    _print(squire.Run(run).remove(facts, refresh_rules=refresh_rules), as_json)


def _print(change: squire.Change, as_json: bool) -> None:
    if as_json:
        print_json(change.as_dict())
    else:
        out.print(repr(change), markup=False, highlight=False, soft_wrap=True)
