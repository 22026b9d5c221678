"""Tables in Markdown, whatever characters names consist of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown already (see `literal`)."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def literal(text: str) -> str:
    """A name as it is: nothing in it is read as markup, and it stays on its line."""
    return re.sub(r"([\\`*_{}\[\]<>|~#])", r"\\\1", " ".join(text.split()))


def code(signature: str) -> str:
    """A line of code, for signatures. A bar within a table would end its cell, so they stand below."""
    return f"`{signature}`\n"
