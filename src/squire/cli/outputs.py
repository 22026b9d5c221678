"""What the studies share at the edge: files that appear whole, told by name, and work that Ctrl-C may end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from squire.cli.console import errors
from squire.core.files import replacing


@contextmanager
def can_go_on() -> Iterator[None]:
    """Work that Ctrl-C may end at any moment: all of it that was done is noted."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print("[yellow]interrupted:[/] what is done is kept, and the same command goes on with it")
        raise typer.Exit(130) from None


def write_text(file: Path, text: str) -> None:
    with replacing(file) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(file: Path, content: Any) -> None:
    write_text(file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def tell(*files: Path) -> None:
    for file in files:
        errors.print(f"wrote {file}", markup=False, highlight=False, soft_wrap=True)
