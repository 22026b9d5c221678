"""Commands on runs: train, fuse, answer, check, evaluate, complete, doubt, plot, serve."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.text import Text

import squire
from squire.cli.console import errors, out, print_evaluation, print_json, say
from squire.cli.options import (
    AggregateOption,
    AmongOption,
    AsJson,
    BeamOption,
    DeviceOption,
    FactsOption,
    GroundedOption,
    MissingOption,
    NotLinkedOption,
    RankingOption,
    RunFolder,
    TypeOption,
)

UNKNOWN = "?"
FURTHER = 4  # paths of an answer besides the best


def train(
    folder: Annotated[Path, typer.Option("--out", help="The run folder to create or to resume.")],
    source: Annotated[
        str | None, typer.Argument(help="A file, a folder of train/valid/test, or a dataset's name.")
    ] = None,
    recipe: Annotated[str, typer.Option(help="A recipe's name, a TOML file, or auto.")] = "auto",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change the recipe, e.g. train.epochs=3. Repeatable.")
    ] = None,
    rules: Annotated[Path | None, typer.Option(help="A rule file; by default rules are mined.")] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="Time limit for training the model; with --no-model, for fitting the fusion."),
    ] = None,
    device: DeviceOption = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    fuse: Annotated[
        bool, typer.Option("--fuse/--no-fuse", help="Fit the fusion, which ranks by all evidence.")
    ] = True,
    model: Annotated[bool, typer.Option("--model/--no-model", help="Train the model.")] = True,
    holdout: Annotated[
        float | None,
        typer.Option(help="Share of a single file that becomes valid, and as much test; by default 0.05."),
    ] = None,
    missing: MissingOption = None,
) -> None:
    """Learn from a graph: rules, fusion, paths and model. Ctrl-C saves; --resume continues."""
    mined = squire.RuleSet.load(rules, source) if rules else None
    run = squire.train(
        source, folder, recipe=recipe, settings=settings or [], rules=mined, minutes=minutes, device=device,
        resume=resume, fuse=fuse, model=model, holdout=holdout, missing=missing,
    )  # fmt: skip
    if not run.is_finished:
        say(f"To continue: squire train --out {folder} --resume{'' if model else ' --no-model'}")


SAMPLE = 2000  # questions of valid that are ranked after fusing


def fuse(
    run: RunFolder,
    folds: Annotated[int | None, typer.Option(help="Parts of train that are hidden in turn: 20.")] = None,
    edges: Annotated[
        bool, typer.Option("--edges/--no-edges", help="Fit edge embeddings, too, and weigh their opinion.")
    ] = True,
    names: Annotated[
        bool, typer.Option("--names/--no-names", help="Use words that the names of entities share.")
    ] = True,
    missing: MissingOption = None,
    minutes: Annotated[
        float | None, typer.Option(help="Time limit: fewer rules and questions if need be; repeat to go on.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the hidden parts and of the ranker.")] = 0,
) -> None:
    """Fit the fusion again: a ranker that weighs rules, frequency, similar entities, connections and names."""
    fused = squire.fuse(run, folds=folds, edges=edges, names=names, missing=missing, minutes=minutes, seed=seed)
    if not fused.is_finished:
        say("The time was not enough for all rules and questions; the same command goes on from here.")
    if len(fused.graph.valid):
        print_evaluation(fused.evaluate(split="valid", ranking="fused", evidence=False, sample=SAMPLE))


def answer(
    run: RunFolder,
    head: Annotated[str, typer.Argument(help="The entity to ask about, or ? to ask for it.")],
    relation: Annotated[str, typer.Argument(help="The relation.")],
    tail: Annotated[str, typer.Argument(help="Needed only if HEAD is ?.")] = UNKNOWN,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of new answers.")] = 5,
    grounded: GroundedOption = False,
    new_only: Annotated[bool, typer.Option("--new-only", help="Leave out what the graph says already.")] = False,
    paths: Annotated[int, typer.Option(min=1, max=1 + FURTHER, help="Paths to show for each answer.")] = 1,
    beam: BeamOption = None,
    aggregate: AggregateOption = None,
    ranking: RankingOption = None,
    facts: FactsOption = None,
    among: AmongOption = None,
    kind: TypeOption = None,
    not_linked: NotLinkedOption = False,
    as_json: AsJson = False,
) -> None:
    """Answer (head, relation, ?) or (?, relation, tail). Solid arrows are facts, dashed ones are inferred."""
    # Before torch is imported: one question gains nothing from a second thread, which costs CPU time by waiting.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    found = squire.Run(run).answer(
        None if head == UNKNOWN else head, relation, None if tail == UNKNOWN else tail,
        k=k, grounded=grounded, new_only=new_only, ranking=ranking, beam=beam, aggregate=aggregate,
        facts=facts or (), among=among, type=kind, not_linked=not_linked,
    )  # fmt: skip
    if as_json:
        print_json(found.as_dict())
    else:
        print_answers(found, paths)


def print_answers(found: squire.Answers, paths: int = 1) -> None:
    """The question, what the graph says, then each new answer with its confidence, grade, paths and sources."""
    out.print(Text(found.question, "bold"), soft_wrap=True)
    if found.facts:
        out.print(Text.assemble("     The graph says: ", (found.known, "bold")), soft_wrap=True)
    for one in found:
        title = Text.assemble(f"{one.rank:3}. ", (one.entity, "bold green"), (f"  {one.summary}", "cyan"))
        out.print(title, soft_wrap=True)
        out.print(Text(f"       {one.sentence}"), soft_wrap=True)
        print_evidence(one, paths)
    print_caveat(found[:1])
    if not len(found):
        out.print("no path leads to a new answer", style="yellow")


def print_caveat(answers: Sequence[squire.Answer]) -> None:
    """That evidence rests on a sample, if it does."""
    if any(one.sampled for one in answers):
        out.print(Text("     Some evidence is estimated from a sample of the edges near hubs.", "dim"))


def print_evidence(answer: squire.Answer, paths: int) -> None:
    """The first paths of an answer with their rules, and its sources."""
    for evidence in (answer.evidence, *answer.further)[:paths]:
        out.print(Text.assemble("       ", path_text(evidence)), soft_wrap=True)
        if evidence.rule:
            rule = f"       rule: {evidence.rule.text}  {evidence.rule.share}"
            out.print(Text(rule, "dim"), soft_wrap=True)
        for edge in evidence.added:
            out.print(Text(f"       new since training: {edge.fact}", "magenta"), soft_wrap=True)
    if answer.sources:
        shares = ", ".join(f"{source.name} {source.contribution:+.1f}" for source in answer.sources)
        out.print(Text(f"       based on {answer.basis}: {shares}", "dim"), soft_wrap=True)


def path_text(evidence: squire.Evidence) -> Text:
    """`Evidence.text` in colours: known edges green, inferred ones yellow."""
    text = Text(evidence.start)
    for edge in evidence.edges:
        text.append(f" {edge.arrow} ", "green" if edge.is_fact else "yellow").append(edge.goal)
    return text


def check(
    run: RunFolder,
    head: Annotated[str, typer.Argument(help="The head of the fact.")],
    relation: Annotated[str, typer.Argument(help="The relation.")],
    tail: Annotated[str, typer.Argument(help="The tail of the fact.")],
    beam: BeamOption = None,
    facts: FactsOption = None,
    as_json: AsJson = False,
) -> None:
    """How likely a fact is, and what speaks for and against it. A fact of the graph is judged without itself."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as for `answer`
    found = squire.Run(run).check(head, relation, tail, beam=beam, facts=facts or ())
    if as_json:
        print_json(found.as_dict())
    else:
        print_check(found)


def print_check(found: squire.FactCheck) -> None:
    """The fact, how likely it is, its rank, the evidence for it and each sentence against it."""
    out.print(Text(found.fact, "bold"), soft_wrap=True)
    rank = f"; rank {found.answer.rank:,} among the new answers"
    out.print(Text.assemble("     ", (found.summary, "cyan"), rank), soft_wrap=True)
    out.print(Text(f"     {found.answer.sentence}"), soft_wrap=True)
    print_evidence(found.answer, 1)
    print_caveat([found.answer])
    for sentence in found.against:
        out.print(Text.assemble(("     against: ", "yellow"), sentence), soft_wrap=True)


def evaluate(
    run: RunFolder,
    ranking: RankingOption = None,
    split: Annotated[str, typer.Option(help="test, or valid while you are still choosing.")] = "test",
    side: Annotated[str, typer.Option(help="tail, as in the paper, or both.")] = "tail",
    aggregate: AggregateOption = None,
    beam: BeamOption = None,
    prune: Annotated[
        float | None, typer.Option(help="Drop paths below this share of the tenth new answer.")
    ] = None,
    constraint: Annotated[
        str, typer.Option(help="Edges that paths may use: none (no constraint), graph, or a graph's name or file.")
    ] = "none",
    edge_ends: Annotated[
        bool | None, typer.Option("--edge-ends/--no-edge-ends", help="A path ends after the queried relation.")
    ] = None,
    unlinked: Annotated[
        bool | None,
        typer.Option(
            "--unlinked/--no-unlinked",
            help="By paths: leave out entities linked to the head. Default: if valid has no linked pair.",
        ),
    ] = None,
    weights: Annotated[
        Literal["best", "last"], typer.Option(help="Of the best epoch by valid, or the last.")
    ] = "best",
    sample: Annotated[int | None, typer.Option(min=1, help="Rank only so many queries, drawn by --seed.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of --sample.")] = 0,
    graph: Annotated[
        str | None, typer.Option(help="Rank a split of this graph, of other entities and the same relations.")
    ] = None,
    relations: Annotated[int, typer.Option(min=0, help="Relations to list, most frequent first.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Filtered MRR and Hits with 95 % intervals, by relation and category, with evidence and calibration."""
    evaluation = squire.Run(run).evaluate(
        split=split, side=side, ranking=ranking, weights=weights, sample=sample, seed=seed, aggregate=aggregate,
        beam=beam, prune=prune, constraint=None if constraint == "none" else constraint, edge_ends=edge_ends,
        unlinked=unlinked, graph=graph,
    )  # fmt: skip
    if as_json:
        print_json(evaluation.as_dict())
    else:
        print_evaluation(evaluation, relations)


def complete(
    run: RunFolder,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The file to write: .parquet, .tsv or .nt; also .tsv.gz and so on."),
    ],
    relations: Annotated[
        list[str] | None, typer.Option("--relation", help="Ask for this relation only. Repeatable.")
    ] = None,
    heads: Annotated[
        Literal["known", "typical", "all"] | None,
        typer.Option(
            help="Whom to ask for a relation. known: entities that have it. typical: also entities with "
            "another relation of whose holders at least half have this one. all: every entity. Default: typical."
        ),
    ] = None,
    queries: Annotated[
        Path | None, typer.Option(help="Ask these questions: a TSV of head, relation, or of ?, relation, tail.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Answers per question, at most.")] = 3,
    min_score: Annotated[float, typer.Option(help="Leave out answers below this score.")] = 0.0,
    precision: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Keep as many answers as possible of which this share should be true; needs a fusion.",
        ),
    ] = None,
    ranking: RankingOption = None,
    grounded: GroundedOption = False,
    beam: BeamOption = None,
    aggregate: AggregateOption = None,
    among: AmongOption = None,
    kind: TypeOption = None,
    not_linked: NotLinkedOption = False,
    device: DeviceOption = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")] = False,
) -> None:
    """Predict missing facts, each with the path that supports it. After Ctrl-C, the same command continues."""
    squire.Run(run).complete(
        output, relations=relations, heads=heads, queries=queries, k=k, min_score=min_score,
        precision=precision, ranking=ranking, grounded=grounded, force=force, device=device, beam=beam,
        aggregate=aggregate, among=among, type=kind, not_linked=not_linked,
    )  # fmt: skip


def doubt(
    run: RunFolder,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The file to write: .tsv or .parquet; also .tsv.gz and so on.")
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="Facts to write, at most.")] = 1000,
    relations: Annotated[
        list[str] | None, typer.Option("--relation", help="Judge facts of this relation only. Repeatable.")
    ] = None,
    entity: Annotated[str | None, typer.Option(help="Judge facts of this entity only.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the parts that are left out together.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")] = False,
) -> None:
    """Find doubtful facts of the graph: least likely first, with what speaks against each.

    Each fact is judged as if it were not there. Ctrl-C writes nothing.
    """
    found = squire.Run(run).doubt(output, relations=relations, entity=entity, k=k, seed=seed, force=force)
    out.print(Text(repr(found)), soft_wrap=True)
    say(f"wrote {output}")


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders of `squire train`.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .png, .svg or .pdf file. [default: RUN/curves.png]")
    ] = None,
) -> None:
    """Draw loss and valid MRR over the steps, beside the tail frequency."""
    say(f"wrote {squire.plot(runs, output)}")


def serve(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN…", help="Run folders of 'squire train', or NAME=FOLDER.")
    ],
    host: Annotated[
        str, typer.Option(help="Where to listen; a host that other machines can reach needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="SQUIRE_TOKEN", help="Clients must send it as a bearer token.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further host name of this service. Repeatable.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    writable: Annotated[
        bool, typer.Option("--writable", help="Let clients add facts to the graphs and remove them.")
    ] = False,
) -> None:
    """Answer questions over HTTP, and serve a page to ask them. Ctrl-C stops it once running requests are done."""
    with ExitStack() as status:

        def ready(address: str, models: list[str]) -> None:
            status.close()
            out.print(
                f"squire serves {', '.join(models)} at {address}", markup=False, highlight=False, soft_wrap=True
            )
            out.file.flush()
            errors.print("Press Ctrl-C to stop.", style="dim")

        status.enter_context(errors.status("loading"))
        squire.serve(runs, host, port, token, allow_host or (), open_page, ready, writable)
