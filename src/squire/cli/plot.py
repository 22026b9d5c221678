"""`squire plot`: the curves of runs as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from squire.cli.console import errors
from squire.core.files import ensure_creatable
from squire.errors import SettingError
from squire.evaluation.plots import check_picture, draw, read_history

PICTURE = "curves.png"


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders of 'squire train'.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=f"A .png, .svg or .pdf file. [default: RUN/{PICTURE}]")
    ] = None,
) -> None:
    """Draw loss and valid MRR over the steps, beside the tail frequency that a model must beat."""
    if output is None:
        if len(runs) > 1:
            raise SettingError("--output: several runs need it, to say where their picture goes.")
        output = runs[0] / PICTURE
    check_picture(output)
    histories = [read_history(run) for run in runs]
    ensure_creatable(output)
    draw(histories, output)
    errors.print(f"wrote {output}", markup=False, highlight=False, soft_wrap=True)
