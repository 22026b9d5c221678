"""Where commands print: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import squire

METRICS = {"MRR": "mrr", "Hits@1": "hits1", "Hits@3": "hits3", "Hits@10": "hits10"}


# Control characters, apart from tab and newline, and those that turn the direction of what follows: a name that
# contains them could move the cursor, or make the rest of the line read as something else.
HIDDEN = [*range(9), *range(11, 32), 127, *range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
VISIBLE = {code: repr(chr(code))[1:-1] for code in HIDDEN}


class _SafeConsole(Console):
    def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
        """As in Rich, with hidden characters made visible."""
        for one in super().render(*arguments, **options):
            yield one if one.control else Segment(one.text.translate(VISIBLE), one.style)


class _Output(_SafeConsole):
    def on_broken_pipe(self) -> None:
        """Leave it to `main`, which handles it for everything that prints; Rich would exit with code 1."""
        raise BrokenPipeError


# No emoji: a label may well be called ":cat:".
# Of several processes under torchrun, the first prints what all of them found.
FOLLOWS = os.environ.get("RANK", "0") != "0"
out = _Output(emoji=False, quiet=FOLLOWS)
errors = _SafeConsole(stderr=True, emoji=False)


class _LogHandler(logging.Handler):
    """Prints messages unwrapped, so that paths can be copied; warnings are yellow."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage(), style="yellow" if record.levelno >= logging.WARNING else None)


def show_log() -> None:
    """Send the library's log to standard error."""
    logger = logging.getLogger("squire")
    if not logger.handlers:
        logger.setLevel(logging.INFO)
        logger.addHandler(_LogHandler())


def print_json(data: object) -> None:
    """Print JSON to standard output."""
    if not FOLLOWS:
        print(json.dumps(data, indent=2, ensure_ascii=False))


def say(text: str, style: str | None = None) -> None:
    """Print a message for people to standard error, as it is."""
    if not FOLLOWS:
        errors.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def print_evaluation(evaluation: squire.Evaluation, relations: int = 0) -> None:
    """The table of methods with their signatures, then categories, relations, evidence and calibration."""
    table = Table("method", *METRICS, title=escape(evaluation.title))
    for row in evaluation.rows:
        table.add_row(row.signature.method, *_figures(row))
    out.print(table)
    for row in evaluation.rows:
        out.print(Text(str(row.signature), "dim"), soft_wrap=True)
    _print_parts("category", list(evaluation.categories.items()))
    _print_parts("relation", list(evaluation.relations.items())[:relations])
    if len(evaluation.relations) > relations > 0:
        out.print(Text(f"{len(evaluation.relations) - relations} more relations with --json", "dim"))
    if evaluation.evidence:
        shares = ", ".join(f"{share:.0%} {grade}" for grade, share in evaluation.evidence.items())
        of = f" {evaluation.evidence_of}" if evaluation.evidence_of else ""
        out.print(f"Evidence of the first ten new answers{of}: {shares}", highlight=False)
    if evaluation.classification:
        table = Table("triple classification", "facts", "negatives", "accuracy", "F1")
        for one in evaluation.classification:
            counts = f"{one.facts:,}", f"{one.negatives:,}"
            table.add_row(one.method, *counts, f"{one.accuracy:.3f}", f"{one.f1:.3f}")
        out.print(table)
    if evaluation.reliability:
        table = Table("calibration", "answers", "says", "true", "error", "Brier", "base rate")
        for name, it in evaluation.reliability.items():
            cells = (f"{it[key]:.3f}" for key in ("says", "true", "error", "brier", "base_brier"))
            table.add_row(name.replace(" questions", ""), f"{it['answers']:,}", *cells)
        out.print(table)


def _print_parts(kind: str, rows: Sequence[tuple[str, squire.Metrics]]) -> None:
    if rows:
        table = Table(kind, "queries", *METRICS)
        for name, row in rows:
            table.add_row(escape(name), f"{row.queries:,}", *_figures(row))
        out.print(table)


def _figures(row: squire.Metrics) -> list[str]:
    """`.303 ±.011`: with half the width of the 95 % interval, where there is one."""
    cells = []
    for name in METRICS.values():
        low, high = (row.intervals or {}).get(name, (0.0, 0.0))
        cells.append(f"{getattr(row, name):.3f}" + (f" ±{(high - low) / 2:.3f}" if row.intervals else ""))
    return cells
