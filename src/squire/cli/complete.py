"""`squire complete`: missing facts in bulk, with evidence. Under torchrun several processes share the work."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from squire.cli.choices import AggregateOption, BeamOption, DeviceOption, GroundedOption, RankingOption, RunFolder
from squire.cli.console import errors, progress_bar, silent
from squire.completion.predictions import SUFFIXES, check_suffix
from squire.completion.questions import Heads, Questions, QuestionsOfFile, QuestionsOfHeads
from squire.errors import SettingError

if TYPE_CHECKING:
    from squire.reasoning.reasoner import Reasoner


def complete(
    run: RunFolder,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help=f"The file to write: {', '.join(SUFFIXES)}; also .tsv.gz and such."),
    ],
    relations: Annotated[
        list[str] | None, typer.Option("--relation", help="Ask for this relation only; may be repeated.")
    ] = None,
    heads: Annotated[
        Heads | None,
        typer.Option(
            help="Whom to ask for a relation. known: its heads in train. typical: also whoever has some other "
            "relation (or is on the far end of one) of whose holders at least half have this one. all: every "
            "entity. By default typical."
        ),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(help="Ask these questions instead: a TSV of head, relation, or of ?, relation, tail."),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Answers to a question, at most.")] = 3,
    min_score: Annotated[float, typer.Option(help="Leave out answers below this score.")] = 0.0,
    precision: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Only answers so sure that this share of them was true on valid; needs 'squire fuse'.",
        ),
    ] = None,
    ranking: RankingOption = None,
    grounded: GroundedOption = False,
    beam: BeamOption = None,
    aggregate: AggregateOption = None,
    device: DeviceOption = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")] = False,
) -> None:
    """Predict facts that no split of the graph has, each with the path that speaks for it.

    Finished parts are kept in OUTPUT.parts until all are there: after Ctrl-C, or worse, the same command goes on.
    """
    # Imported late: torch takes a second that no other command should wait for.
    from squire.completion.jobs import Completion, Predictor, Wanted
    from squire.core.team import team
    from squire.reasoning.reasoner import Reasoner

    with team(device, "run the same command again") as ours, silent(not ours.leads), ExitStack() as while_working:
        with progress_bar("loading", speed_of="questions") as bar:
            with ours.leader_first():  # who alone complains, if there is something to complain of
                _check(output, force, queries, relations, heads)
                reasoner = Reasoner.load(run, ours.device)
                least = 0.0 if precision is None else reasoner.confidence_for(precision, ranking)
                questions = _questions(reasoner, queries, relations, heads or "typical")
                decoding = reasoner.decoding(grounded=grounded, beam=beam, aggregate=aggregate)
                wanted = Wanted(k, min_score, ranking, least)
                job = Completion(Predictor(reasoner, decoding, wanted), questions, output)
                if ours.leads:
                    while_working.enter_context(job.begun())
            done = job.work(lambda now, total: bar.stage("answering", now, total), ours)
        if not done:
            about = f"stopped. What is finished is in {job.folder}.\nTo go on: run the same command again."
            errors.print(about, markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(130)
        if ours.leads:
            found = job.join()
            about = f"{found:,} predictions from {len(questions):,} questions: {output}"
            errors.print(about, markup=False, highlight=False, soft_wrap=True)


def _check(
    output: Path, force: bool, queries: Path | None, relations: list[str] | None, heads: str | None
) -> None:
    """What can be known to be wrong before anything is read."""
    check_suffix(output)
    if output.exists() and not force:
        raise SettingError(f"--output {output}: exists. To do: --force to replace it, or choose another name.")
    if queries and (relations or heads):
        option = "--relation" if relations else "--heads"
        raise SettingError(
            f"--queries {queries}: says all that is asked. To do: leave out {option}, or --queries."
        )


def _questions(reasoner: Reasoner, queries: Path | None, relations: list[str] | None, heads: Heads) -> Questions:
    if queries:
        return QuestionsOfFile(queries, reasoner.query)
    labels = reasoner.labels
    chosen = (
        [labels.relation_id(label) for label in relations] if relations else range(reasoner.graph.num_relations)
    )
    return QuestionsOfHeads(reasoner.graph.train, chosen, heads)
