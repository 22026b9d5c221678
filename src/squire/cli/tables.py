"""Result tables: every row with its intervals, every table with the signatures of its rows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from squire.cli.console import out
from squire.evaluation.metrics import NAMES, Metrics

HEADINGS = ("MRR", "Hits@1", "Hits@3", "Hits@10")


def print_metrics(rows: Sequence[Metrics], title: str) -> None:
    """One row a method, then their signatures."""
    table = Table("method", *HEADINGS, title=escape(title))
    for row in rows:
        table.add_row(row.signature.method, *figures(row))
    out.print(table)
    for row in rows:
        out.print(Text(str(row.signature), "dim"), soft_wrap=True)


def figures(row: Metrics) -> list[str]:
    """`.303 ±.011`: half the width of the 95 % interval, where there is one."""
    cells = []
    for name in NAMES:
        low, high = (row.intervals or {}).get(name, (0.0, 0.0))
        cells.append(f"{getattr(row, name):.3f}" + (f" ±{(high - low) / 2:.3f}" if row.intervals else ""))
    return cells
