"""`squire mine`, `squire rules …` and `squire paths`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

import squire
from squire.cli.console import errors, out, print_evaluation, print_json, say
from squire.cli.options import AsJson, Source

app = typer.Typer(help="Read, apply and evaluate mined rules.", no_args_is_help=True)

RuleFile = Annotated[Path, typer.Argument(help="A rule file, ours or AnyBURL's.")]
GraphOption = Annotated[str | None, typer.Option(help="The rules' graph, if the file does not name it.")]


def mine(
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="The rule file to write, e.g. rules.tsv.")],
    length: Annotated[int, typer.Option(help="Longest body of a closed rule, 1 to 3.")] = 3,
    support: Annotated[int, typer.Option(help="True predictions that a closed rule must make.")] = 2,
    confidence: Annotated[
        float, typer.Option(help="Share of a closed rule's predictions that must be true.")
    ] = 0.002,
    constants: Annotated[bool, typer.Option(help="Also mine rules with constants.")] = True,
    constant_support: Annotated[int, typer.Option(help="The same for rules with constants.")] = 3,
    constant_confidence: Annotated[float, typer.Option(help="The same for rules with constants.")] = 0.02,
    max_constants: Annotated[
        int, typer.Option(help="Keep only so many rules with constants, the best.")
    ] = 300_000,
    budget: Annotated[float, typer.Option(help="Steps per length; beyond it counts are estimates.")] = 5e10,
    minutes: Annotated[
        float | None, typer.Option(help="Time limit: the best rules found in it; repeat to go on.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the estimates.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Default: one per core.")] = None,
) -> None:
    """Mine rules from the train split, in AnyBURL's file format. Ctrl-C keeps what was found; repeat to go on."""
    rules = squire.mine(
        source, save_to=output, length=length, min_support=support, min_confidence=confidence, constants=constants,
        constant_support=constant_support, constant_confidence=constant_confidence, max_constants=max_constants,
        budget=budget, minutes=minutes, seed=seed, threads=threads,
    )  # fmt: skip
    closed, estimated = int(rules.rules.is_closed.sum()), int((rules.rules.error > 0).sum())
    counts = f"{closed:,} closed, {len(rules) - closed:,} with constants; {estimated:,} with estimated counts"
    say(f"{len(rules):,} rules ({counts}): {output}")
    if rules.interrupted:
        errors.print("[yellow]interrupted:[/] these are the rules found until then; the same command goes on")
        raise typer.Exit(130)
    if not rules.complete:
        errors.print("[yellow]the time is up:[/] these are the rules found until then; the same command goes on")


@app.command(epilog="Example: squire rules show rules.tsv --relation 'official language'")
def show(
    rules_file: RuleFile,
    relation: Annotated[str | None, typer.Option(help="Only rules that predict this relation.")] = None,
    graph: GraphOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Rules to print, best first.")] = 20,
    examples: Annotated[int, typer.Option(min=0, help="Example groundings of each rule.")] = 1,
) -> None:
    """Print rules readably, with example groundings from the graph."""
    rules = squire.RuleSet.load(rules_file, graph)
    chosen = (rules if relation is None else rules.for_relation(relation)).sorted()
    for rule in chosen[:limit]:
        estimate = f" ± {rule.error:.2f} (estimate)" if rule.error else ""
        out.print(
            Text.assemble(
                (f"{rule.confidence:.2f}{estimate}", "bold cyan"),
                (f"  {rule.support:,} of {rule.predictions:,}  ", "dim"),
                rule.text,
            ),
            soft_wrap=True,
        )
        for text in chosen.examples(rule, examples):
            out.print(Text(f"      e.g. {text}", "green"), soft_wrap=True)
    if not len(chosen):
        errors.print("[yellow]no such rules[/]")
    if len(chosen) > limit:
        out.print(f"[dim]… and {len(chosen) - limit:,} more (--limit)[/]", highlight=False)


@app.command(epilog="Example: squire rules answer rules.tsv Austria borders")
def answer(
    rules_file: RuleFile,
    head: Annotated[str, typer.Argument(help="The entity that the question is about.")],
    relation: Annotated[str, typer.Argument(help="The relation whose tail is wanted.")],
    graph: GraphOption = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of answers.")] = 5,
    known: Annotated[
        bool, typer.Option("--known", help="Also list answers that are in the graph already.")
    ] = False,
    inverse: Annotated[bool, typer.Option("--inverse", help="Ask for heads: (?, relation, entity).")] = False,
    as_json: AsJson = False,
) -> None:
    """Answer (head, relation, ?) by rules alone, each answer with its best rule and a path in the graph."""
    asked, given = (None, head) if inverse else (head, None)
    rows = squire.RuleSet.load(rules_file, graph).answer(asked, relation, given, k=k, include_known=known)
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    out.print(Text(f"(?, {relation}, {head})" if inverse else f"({head}, {relation}, ?)", "bold"))
    for rank, row in enumerate(rows, 1):
        mark = ("  in the graph", "dim") if row.is_fact else ("", "")
        score = (f"  {row.score:.2f}", "cyan")
        out.print(Text.assemble(f"{rank:3}. ", (row.label, "bold green"), score, mark), soft_wrap=True)
        out.print(Text(f"       because {row.path}", "green"), soft_wrap=True)
        out.print(Text(f"       by      {row.rule}", "dim"), soft_wrap=True)
    if not rows:
        out.print("no rule gives a new answer", style="yellow")


@app.command(epilog="Example: squire rules evaluate rules.tsv --split valid")
def evaluate(
    rules_file: RuleFile,
    graph: GraphOption = None,
    split: Annotated[str, typer.Option(help="valid or test.")] = "test",
    side: Annotated[str, typer.Option(help="tail, or both for heads as well.")] = "tail",
    aggregate: Annotated[str, typer.Option(help="noisy-or or max.")] = "noisy-or",
    best: Annotated[int, typer.Option(min=1, help="Rules per answer that count.")] = 5,
    as_json: AsJson = False,
) -> None:
    """How well the rules rank the held-out answers, beside the tail frequency."""
    rules = squire.RuleSet.load(rules_file, graph)
    evaluation = squire.evaluate_rules(rules, split=split, side=side, aggregate=aggregate, best=best)
    if as_json:
        print_json([row.as_dict() for row in evaluation.rows])
    else:
        print_evaluation(evaluation)


def paths(
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="The Parquet file to write.")],
    rules: Annotated[Path | None, typer.Option(help="Rules to follow, from `squire mine`.")] = None,
    hops: Annotated[int, typer.Option(min=1, max=4, help="Longest path.")] = 3,
    per_fact: Annotated[int, typer.Option(min=1, max=1000, help="Paths per fact and inverse.")] = 6,
    confidence: Annotated[float, typer.Option(help="Rules below this confidence are not followed.")] = 0.01,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    threads: Annotated[int | None, typer.Option(min=1, help="Default: one per core.")] = None,
) -> None:
    """Write the evidence paths of every train fact and its inverse: along rules first, then at random."""
    counts = squire.sample_paths(
        source, output, rules=squire.RuleSet.load(rules, source) if rules else None, hops=hops, per_fact=per_fact,
        confidence=confidence, seed=seed, threads=threads,
    )  # fmt: skip
    total = sum(counts.values())
    shares = ", ".join(f"{count / max(total, 1):.0%} {name}" for name, count in counts.items())
    say(f"{total:,} paths ({shares}): {output}")
