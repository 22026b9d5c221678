"""`squire paths`: the evidence paths of every fact, as a table that people can open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from squire.cli.console import errors, progress_bar
from squire.cli.data import Source
from squire.cli.rules import load_rules
from squire.core.relations import both_directions
from squire.errors import SettingError
from squire.graph.loading import load_graph
from squire.paths.paths import SOURCES
from squire.paths.sampling import MAX_HOPS, sample_paths
from squire.paths.table import write_table
from squire.rules.rules import ClosedIndex


def paths(
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="The Parquet file to write.")],
    rules_file: Annotated[
        Path | None, typer.Option("--rules", help="Rules to walk along, from 'squire mine'.")
    ] = None,
    hops: Annotated[int, typer.Option(min=1, max=MAX_HOPS, help="Longest path.")] = 3,
    per_fact: Annotated[int, typer.Option(min=1, help="Paths to draw for each fact and its inverse.")] = 6,
    confidence: Annotated[float, typer.Option(help="Rules below this confidence are not walked.")] = 0.01,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    threads: Annotated[int | None, typer.Option(min=1, help="By default one a core.")] = None,
) -> None:
    """Write the evidence paths of every train fact and its inverse: along rules first, then at random."""
    if output.suffix != ".parquet":
        raise SettingError(f"--output {output}: expected a name that ends in .parquet.")
    graph = load_graph(source)
    rules = load_rules(rules_file, graph.labels) if rules_file else None
    if rules:
        rules = rules.take(rules.is_closed & (rules.confidence >= confidence))
    queries = both_directions(graph.train.triples, graph.num_relations)
    index = ClosedIndex.from_rules(rules) if rules else None
    with progress_bar("sampling paths") as bar:
        found = sample_paths(
            graph.train, queries, index, hops=hops, per_triple=per_fact, seed=seed, threads=threads, progress=bar
        )
    write_table(found, graph, rules, output)
    shares = ", ".join(
        f"{found.weight[found.source == i].sum() / max(found.num_sequences, 1):.0%} {name}"
        for i, name in enumerate(SOURCES)
    )
    errors.print(
        f"{found.num_sequences:,} paths ({shares}) of {len(queries):,} facts and inverses: {output}",
        highlight=False,
        soft_wrap=True,
    )
