"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Source = Annotated[str, typer.Argument(help="A file, a folder of train/valid/test, or a dataset's name.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder made by `squire train`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
GroundedOption = Annotated[bool, typer.Option("--grounded", help="Follow known edges only.")]
BeamOption = Annotated[
    int | None, typer.Option(min=1, max=100_000, help="Paths kept at each step; default: the recipe's.")
]
DeviceOption = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu or cuda.")]
AggregateOption = Annotated[
    Literal["sum", "max", "pool"] | None,
    typer.Option(
        help="Score answers by all paths, the best one, or relation patterns and the queried edge. "
        "Default: the recipe's."
    ),
]
AmongOption = Annotated[
    Path | None, typer.Option("--among", help="A file of the entities that may be answers, one per line.")
]
TypeOption = Annotated[
    str | None, typer.Option("--type", help="Only entities of this type, e.g. country, may be answers.")
]
NotLinkedOption = Annotated[
    bool, typer.Option("--not-linked", help="Only entities that no fact links to the one asked about.")
]
FactsOption = Annotated[
    Path | None, typer.Option("--facts", help="A file of facts: what if these were true? Nothing is kept.")
]
MissingOption = Annotated[
    float | None,
    typer.Option(
        help="Share of true facts that the graph is assumed to lack, on which confidence depends. By default that "
        "of valid and test, at most 0.1."
    ),
]
RankingOption = Annotated[
    Literal["paths", "fused"] | None,
    typer.Option(help="By the model's paths, or by all evidence; default: fused if the run has a fusion."),
]
