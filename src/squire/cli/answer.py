"""`squire answer`: one question, its answers, and the path of evidence to each."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from squire.cli.choices import AggregateOption, BeamOption, GroundedOption, RankingOption, RunFolder
from squire.cli.console import out, print_json, progress_bar
from squire.cli.data import AsJson
from squire.reasoning.answers import FURTHER, Answers, Evidence
from squire.reasoning.drawing import rounded

UNKNOWN = "?"


def answer(
    run: RunFolder,
    head: Annotated[str, typer.Argument(help="The entity to ask about, or ? to ask for it.")],
    relation: Annotated[str, typer.Argument(help="The relation.")],
    tail: Annotated[str, typer.Argument(help="Needed only if HEAD is ?.")] = UNKNOWN,
    k: Annotated[int, typer.Option("-k", min=1, help="How many answers.")] = 5,
    grounded: GroundedOption = False,
    known: Annotated[bool, typer.Option("--known", help="Also answers that are in the graph already.")] = False,
    paths: Annotated[int, typer.Option(min=1, max=1 + FURTHER, help="Paths to show of each answer.")] = 1,
    beam: BeamOption = None,
    aggregate: AggregateOption = None,
    ranking: RankingOption = None,
    as_json: AsJson = False,
) -> None:
    """Answer (head, relation, ?) or (?, relation, tail). Solid arrows are in the graph, dashed ones inferred."""
    with progress_bar("thinking"):
        # Imported late: torch takes a second that no other command should wait for.
        from squire.reasoning.reasoner import Reasoner

        found = Reasoner.load(run).answer(
            None if head == UNKNOWN else head,
            relation,
            None if tail == UNKNOWN else tail,
            k=k, grounded=grounded, include_known=known, beam=beam, aggregate=aggregate, ranking=ranking,
        )  # fmt: skip
    if as_json:
        print_json(found.as_dict())
    else:
        print_answers(found, paths)


def print_answers(found: Answers, paths: int = 1) -> None:
    """The question, then each answer: how sure, its grade, its paths, the rule they follow, what it rests on."""
    out.print(Text(found.question, "bold"), soft_wrap=True)
    for one in found:
        mark = ("  in the graph", "dim") if one.is_fact else ("", "")
        sure = rounded(one.score, 3) if one.confidence is None else f"{one.confidence:.0%} sure"
        about = f"  {sure}  {one.evidence.grade}"
        if one.confidence is None and one.evidence.grade != "asserted" and one.asserted >= 0.5:
            about += f", but {one.asserted:.0%} asserted"
        title = Text.assemble(f"{one.rank:3}. ", (one.entity, "bold green"), (about, "cyan"), mark)
        out.print(title, soft_wrap=True)
        for evidence in (one.evidence, *one.further)[:paths]:
            out.print(Text.assemble("       ", path_text(evidence)), soft_wrap=True)
            if evidence.rule:
                rule = f"       rule: {evidence.rule.text}  {evidence.rule.confidence:.2f}"
                out.print(Text(rule, "dim"), soft_wrap=True)
        if one.sources:
            shares = ", ".join(f"{source.name} {source.contribution:+.1f}" for source in one.sources)
            out.print(Text(f"       rests on {one.basis}: {shares}", "dim"), soft_wrap=True)
    if not len(found):
        out.print("no path leads to a new answer", style="yellow")


def path_text(evidence: Evidence) -> Text:
    """`Evidence.text` in colours: what is known green, what is inferred yellow."""
    text = Text(evidence.start)
    for edge in evidence.edges:
        text.append(f" {edge.arrow} ", "green" if edge.is_fact else "yellow").append(edge.goal)
    return text
