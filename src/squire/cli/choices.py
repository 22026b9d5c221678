"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder made by 'squire train'.")]
GroundedOption = Annotated[bool, typer.Option("--grounded", help="Walk edges of the graph only.")]
BeamOption = Annotated[int | None, typer.Option(min=1, help="Paths kept at each step; else the recipe's.")]
DeviceOption = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu or cuda.")]
AggregateOption = Annotated[
    Literal["sum", "max"] | None,
    typer.Option(help="Rank by all paths to an answer, or by the best one; else the recipe's."),
]
RankingOption = Annotated[
    Literal["paths", "fused"] | None,
    typer.Option(help="By the model's paths, or by all evidence; else fused if 'squire fuse' was here."),
]
