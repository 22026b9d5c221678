"""`squire study …`: the paper's studies, each a table and, where one would rather look, a picture."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from squire.cli import ablation, efficiency
from squire.cli.annotate import converse
from squire.cli.answer import UNKNOWN, path_text
from squire.cli.choices import AggregateOption, BeamOption, RunFolder
from squire.cli.console import errors, out, print_json, progress_bar
from squire.cli.data import AsJson, open_graph
from squire.cli.outputs import can_go_on, tell, write_json, write_text
from squire.core.files import ensure_creatable
from squire.core.run_files import ANNOTATION
from squire.errors import SettingError
from squire.evaluation.plots import check_picture

app = typer.Typer(help="The paper's studies: how a model walks, and whether it convinces.", no_args_is_help=True)
app.command(epilog=ablation.EXAMPLES)(ablation.ablation)
app.command(epilog=efficiency.EXAMPLES)(efficiency.efficiency)
app.command("efficiency-measure", hidden=True)(efficiency.measure)

Draw = Annotated[int, typer.Option("--seed", min=0, help="Of the order in which test questions are drawn.")]


@app.command(epilog='Example: squire study attention runs/world Austria "official language" -o attention.png')
def attention(
    run: RunFolder,
    head: Annotated[str, typer.Argument(help="The entity to ask about, or ? to ask for it.")],
    relation: Annotated[str, typer.Argument(help="The relation.")],
    tail: Annotated[str, typer.Argument(help="Needed only if HEAD is ?.")] = UNKNOWN,
    answer: Annotated[str | None, typer.Option(help="Whose best path; else the best new answer's.")] = None,
    layer: Annotated[str, typer.Option(help="A number from 1, or all.")] = "all",
    of_head: Annotated[
        int | None, typer.Option("--head", min=1, help="A head's own, from 1; else the mean over heads.")
    ] = None,
    beam: BeamOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .png, .svg or .pdf file; all numbers go beside it as .json."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Attention from the tokens of a path to the query and the tokens before them (Appendix D)."""
    if output is not None:
        check_picture(output)
        ensure_creatable(output)
    with progress_bar("thinking"):
        # Imported late: torch takes a second that no other command should wait for.
        from squire.reasoning.attention import QUERY_TOKENS, attention_of
        from squire.reasoning.reasoner import Reasoner

        reasoner = Reasoner.load(run)
        query = reasoner.query(None if head == UNKNOWN else head, relation, None if tail == UNKNOWN else tail)
        layers = _chosen(layer, len(reasoner.run.model.layers), "--layer")
        heads = _chosen("all" if of_head is None else str(of_head), reasoner.run.recipe.model.heads, "--head")
        found = attention_of(reasoner, query, answer, beam)
    maps = found.weights[layers][:, heads].mean(axis=1)  # (layer, token, token)
    which = "mean over heads" if of_head is None else f"head {of_head}"
    titles = [f"layer {number + 1}, {which}" for number in layers]
    if output is not None:
        from squire.studies.pictures import draw_attention

        heading = f"{found.question}: {found.answer} ({found.evidence.grade})"
        draw_attention(titles, maps, found.tokens, QUERY_TOKENS, heading, found.signature, output)
        write_json(output.with_suffix(".json"), found.as_dict())
        tell(output, output.with_suffix(".json"))
    if as_json:
        print_json(found.as_dict())
    elif output is None:
        out.print(Text.assemble((found.question, "bold"), "  ", path_text(found.evidence)), soft_wrap=True)
        for title, weights in zip(titles, maps.tolist(), strict=True):
            table = Table("", *map(escape, found.tokens), title=title)
            for place in range(QUERY_TOKENS, len(found.tokens)):
                seen = [f"{weight:.2f}" for weight in weights[place][: place + 1]]
                table.add_row(escape(found.tokens[place]), *seen)
            out.print(table)
        out.print(Text(found.signature, "dim"), soft_wrap=True)


def _chosen(chosen: str, count: int, option: str) -> list[int]:
    """`2` of 1, 2, 3 -> [1], and `all` -> [0, 1, 2]."""
    if chosen == "all":
        return list(range(count))
    if not chosen.isdecimal() or not 1 <= int(chosen) <= count:
        raise SettingError(
            f"{option} {chosen}: expected a number from 1 to {count}" + ", or all." * (option == "--layer")
        )
    return [int(chosen) - 1]


@app.command(epilog="Example: squire study annotate runs/world -n 100 --annotator ann -o studies/world")
def annotate(
    run: RunFolder,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The study's folder, new or to go on with; else in RUN, as the page."),
    ] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Draw questions until so many have a path to judge.")] = 100,
    annotator: Annotated[str, typer.Option(help="Who judges; each has files of their own.")] = "me",
    seed: Draw = 0,
    beam: BeamOption = None,
    as_json: AsJson = False,
) -> None:
    """Judge how convincing paths are: 1, 0.5 or 0 (§4.5, Appendix C). Stop at any time; run it again to go on."""
    from squire.studies.annotations import QUESTIONS, Annotations, summary_markdown

    output = output or run / ANNOTATION
    with can_go_on(), progress_bar("drawing questions") as bar:
        from squire.studies.asking import draw_questions

        draw_questions(
            run, output / QUESTIONS, seed,
            lambda question: "path" if question.evidence else "no path", Counter(path=n), beam, bar,
        )  # fmt: skip
    study = Annotations(output, annotator)
    if len(study.to_judge) < n:
        errors.print(f"[yellow]test has only {len(study.to_judge)} questions whose answer is reached[/]")
    converse(study)
    summary = study.summary()
    write_text(study.file(".md"), summary_markdown(summary))
    write_json(study.file(".json"), summary.as_dict())
    if as_json:
        print_json(summary.as_dict())
    else:
        out.print(Text(summary_markdown(summary)), soft_wrap=True)
    tell(study.export(), study.file(".md"), study.file(".json"))


@app.command(epilog='Example: squire study agreement "study/judged by ann.jsonl" "study/judged by ben.jsonl"')
def agreement(
    first: Annotated[Path, typer.Argument(metavar="FILE", help="Judgements of one annotator (.jsonl).")],
    second: Annotated[Path, typer.Argument(metavar="FILE", help="Judgements of another on the same questions.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .md file; the numbers go beside it as .json.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How far two annotators agree: Cohen's κ over the questions that both have judged."""
    from squire.studies.annotations import agreement as agreement_of
    from squire.studies.annotations import agreement_markdown

    if output is not None:
        _check_markdown(output)
    found = agreement_of(first, second)
    if output is not None:
        write_text(output, agreement_markdown(found))
        write_json(output.with_suffix(".json"), found.as_dict())
        tell(output, output.with_suffix(".json"))
    if as_json:
        print_json(found.as_dict())
    else:
        out.print(Text(agreement_markdown(found)), soft_wrap=True)


@app.command(epilog="Example: squire study cases runs/world -n 5 -o cases.md")
def cases(
    run: RunFolder,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="A .md file; .json and .jsonl (what was asked) go beside it."),
    ],
    n: Annotated[int, typer.Option("-n", min=1, help="Examples of each kind.")] = 10,
    seed: Draw = 0,
    beam: BeamOption = None,
) -> None:
    """Right answers with their paths: along edges of the graph, and with missing ones, marked (§4.5)."""
    from squire.studies.cases import KINDS, Cases, kind

    _check_markdown(output)
    ensure_creatable(output)
    with can_go_on(), progress_bar("asking") as bar:
        from squire.studies.asking import draw_questions

        need = Counter(dict.fromkeys(KINDS, n))
        drawn = draw_questions(run, output.with_suffix(".jsonl"), seed, kind, need, beam, bar)
    found = Cases.from_questions(drawn.questions, n, drawn.signature)
    write_text(output, found.markdown())
    write_json(output.with_suffix(".json"), found.as_dict())
    for name, own in found.examples.items():
        if len(own) < n:
            errors.print(f"[yellow]only {len(own)} {name} among all {found.asked:,} test questions[/]")
    tell(output, output.with_suffix(".json"))


@app.command(epilog="Example: squire study constraint runs/fb20 --edges FB15K237 -o studies/fb20")
def constraint(
    run: RunFolder,
    output: Annotated[Path, typer.Option("--output", "-o", help="The study's folder, new or to go on with.")],
    edges: Annotated[
        list[str] | None,
        typer.Option(help="A more complete graph than the run's own: name, file or folder. Repeatable."),
    ] = None,
    split: Annotated[str, typer.Option(help="valid, as the paper does, or test.")] = "valid",
    search: Annotated[
        bool,
        typer.Option(
            "--search/--filter",
            help="Also search within each edge set, one search a set; else one search for all, filtered.",
        ),
    ] = False,
    sample: Annotated[int | None, typer.Option(min=1, help="Ask so many queries only, drawn by --seed.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the sample.")] = 0,
    aggregate: AggregateOption = None,
    beam: BeamOption = None,
    as_json: AsJson = False,
) -> None:
    """Hits@1 and MRR if paths may have only given edges: does the model walk, or walk and complete? (§4.6)"""
    with can_go_on(), progress_bar("loading") as bar:
        from squire.evaluation.queries import QuerySet
        from squire.search.decoding import DecodingOptions
        from squire.search.trained import TrainedModel
        from squire.studies.constraint import ConstraintStudy, EdgeSet, markdown, note

        loaded = TrainedModel.load(run)
        graph = loaded.graph
        sets = [EdgeSet("graph", graph.train)]
        for source in edges or []:
            # Of a graph in splits, train alone: its test may hold the answers that are asked for. A single file
            # is taken whole.
            other = open_graph(source, holdout="0,0")
            own = EdgeSet(other.name, graph.edges_of(other))
            if not own.edges.num_edges:
                raise SettingError(f"--edges {source}: has no edge between the entities of {graph.name}.")
            sets.append(own)
        query_set = QuerySet.from_graph(graph, split, sample=sample, seed=seed)
        decoding = DecodingOptions.from_recipe(loaded.recipe, loaded.known_edges, beam=beam, aggregate=aggregate)
        rows = ConstraintStudy(loaded, output, query_set, decoding, sets).rows(search=search, progress=bar.stage)
    from squire.studies.pictures import draw_constraints

    heading = f"{query_set.dataset}, {query_set.split}: answers under constraints on the edges of a path"
    files = [output / f"constraint.{suffix}" for suffix in ("md", "json", "png")]
    write_text(files[0], markdown(rows))
    write_json(files[1], [row.as_dict() for row in rows])
    draw_constraints([row.name for row in rows], [row.metrics for row in rows], map(note, rows), heading, files[2])
    if as_json:
        print_json([row.as_dict() for row in rows])
    else:
        out.print(Text(markdown(rows)), soft_wrap=True)
    tell(*files)


def _check_markdown(file: Path) -> None:
    if file.suffix != ".md":
        raise SettingError(f"--output {file}: expected a name that ends in .md.")
