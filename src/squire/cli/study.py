"""`squire study …`: the paper's studies. Each command parses, calls `squire.studies` and prints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from squire import studies
from squire.cli.console import errors, out, print_json
from squire.cli.options import AggregateOption, AsJson, BeamOption, DeviceOption, RunFolder, Source
from squire.cli.runs import UNKNOWN
from squire.errors import SettingError

REPLIES = {"1": 1.0, "1.0": 1.0, "0.5": 0.5, "0,5": 0.5, ".5": 0.5, "5": 0.5, "0": 0.0, "0.0": 0.0}
app = typer.Typer(help="The paper's studies of how a model reasons, and what it costs.", no_args_is_help=True)

PICTURES = (".png", ".svg", ".pdf")
FOLDER = "The study's folder, new or to continue."
SettingsOption = Annotated[
    list[str] | None, typer.Option("--set", help="A key of the recipe, e.g. train.epochs=3. Repeatable.")
]
DrawSeed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the order in which questions are drawn.")]


def _out(text: str) -> Any:
    return typer.Option("--out", "--output", "-o", help=text)


@app.command(epilog='Example: squire study attention runs/world Austria "official language" -o attention.png')
def attention(
    run: RunFolder,
    head: Annotated[str, typer.Argument(help="The entity to ask about, or ? to ask for it.")],
    relation: Annotated[str, typer.Argument(help="The relation.")],
    tail: Annotated[str, typer.Argument(help="Needed only if HEAD is ?.")] = UNKNOWN,
    answer: Annotated[
        str | None, typer.Option(help="Show the best path to this answer. Default: the best new one.")
    ] = None,
    layer: Annotated[int | None, typer.Option(min=1, help="A layer, counted from 1. Default: all.")] = None,
    attention_head: Annotated[
        int | None, typer.Option(min=1, help="A head, counted from 1. Default: the mean over heads.")
    ] = None,
    beam: BeamOption = None,
    output: Annotated[Path | None, _out("A .png, .svg or .pdf file; the data go beside it as .json.")] = None,
    as_json: AsJson = False,
) -> None:
    """Attention from the tokens of a path to the query and to the tokens before them (Appendix D)."""
    _expect_suffix(output, PICTURES)
    entity, goal = (None if name == UNKNOWN else name for name in (head, tail))
    found = studies.attention(
        run, entity, relation, goal, answer=answer, layer=layer, attention_head=attention_head, beam=beam
    )
    if output is not None:
        _save(found, output, output.with_suffix(".json"))
    if output is None or as_json:
        _show(found, as_json)


@app.command(epilog="Example: squire study annotate runs/world -n 100 --annotator ann -o studies/world")
def annotate(
    run: RunFolder,
    output: Annotated[Path | None, _out("The study's folder. Default: RUN/annotation, as the server.")] = None,
    n: Annotated[
        int, typer.Option("-n", min=1, help="Draw questions until this many have a path to judge.")
    ] = 100,
    annotator: Annotated[str, typer.Option(help="Who judges; each annotator has files of their own.")] = "me",
    seed: DrawSeed = 0,
    beam: BeamOption = None,
    as_json: AsJson = False,
) -> None:
    """Judge how convincing paths are: 1, 0.5 or 0 (§4.5, Appendix C). Run it again to continue."""
    with _resumable():
        study = studies.annotate(run, output, n=n, annotator=annotator, seed=seed, beam=beam)
    if len(study.to_judge) < n:
        errors.print(f"[yellow]only {len(study.to_judge)} test questions have a path to the answer[/]")
    converse(study)
    summary = study.summary()
    _show(summary, as_json)
    _save(summary, study.file(".md"), study.file(".json"))
    _wrote(study.export())


@app.command(epilog='Example: squire study agreement "study/judged by ann.jsonl" "study/judged by ben.jsonl"')
def agreement(
    first: Annotated[Path, typer.Argument(metavar="FILE", help="Judgements of one annotator (.jsonl).")],
    second: Annotated[Path, typer.Argument(metavar="FILE", help="Judgements of another on the same questions.")],
    output: Annotated[Path | None, _out("A .md file; the data go beside it as .json.")] = None,
    as_json: AsJson = False,
) -> None:
    """How far two annotators agree: Cohen's κ over the questions that both have judged."""
    _expect_suffix(output, (".md",))
    found = studies.agreement(first, second)
    if output is not None:
        _save(found, output, output.with_suffix(".json"))
    _show(found, as_json)


@app.command(epilog="Example: squire study cases runs/world -n 5 -o cases.md")
def cases(
    run: RunFolder,
    output: Annotated[Path, _out("A .md file; .json and .jsonl (the journal) go beside it.")],
    n: Annotated[int, typer.Option("-n", min=1, help="Examples of each kind.")] = 10,
    seed: DrawSeed = 0,
    beam: BeamOption = None,
) -> None:
    """Correct answers with their paths: along edges of the graph, and with missing edges marked (§4.5)."""
    _expect_suffix(output, (".md",))
    with _resumable():
        found = studies.cases(run, output, n=n, seed=seed, beam=beam)
    for name, own in found.examples.items():
        if len(own) < n:
            errors.print(f"[yellow]only {len(own)} {name} among all {found.asked:,} test questions[/]")
    _save(found, output, output.with_suffix(".json"))


@app.command(epilog="Example: squire study constraint runs/fb20 --edges FB15K237 -o studies/fb20")
def constraint(
    run: RunFolder,
    output: Annotated[Path, _out(FOLDER)],
    edges: Annotated[
        list[str] | None,
        typer.Option(help="A graph that is more complete than the run's: name, file or folder. Repeatable."),
    ] = None,
    split: Annotated[str, typer.Option(help="valid, as in the paper, or test.")] = "valid",
    search: Annotated[
        bool,
        typer.Option("--search/--filter", help="Also search again within each edge set, or only filter paths."),
    ] = False,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Evaluate only so many queries, drawn by --seed.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sample.")] = 0,
    aggregate: AggregateOption = None,
    beam: BeamOption = None,
    as_json: AsJson = False,
) -> None:
    """Hits@1 and MRR if paths may use only given edges: does the model walk, or complete? (§4.6)"""
    with _resumable():
        found = studies.constraint(
            run, output, edges=edges or [], split=split, search=search, sample=sample, seed=seed,
            aggregate=aggregate, beam=beam,
        )  # fmt: skip
    _show(found, as_json)
    _save(found, *(output / f"constraint.{suffix}" for suffix in ("md", "json", "png")))


ABLATION_EXAMPLES = """Examples:

squire study ablation world --set train.epochs=5 --out studies/ablation

squire study ablation NELL23K --recipe sparse --minutes 60 --out studies/nell23k

Run either again to continue; finished variants are skipped."""


@app.command(epilog=ABLATION_EXAMPLES)
def ablation(
    source: Source,
    output: Annotated[Path | None, _out(FOLDER)] = None,
    recipe: Annotated[str, typer.Option(help="A recipe's name, a TOML file, or auto.")] = "auto",
    settings: SettingsOption = None,
    budget: Annotated[
        Literal["steps", "epochs"],
        typer.Option(
            help="steps: all variants train as many as full; epochs: the recipe's, so the others take fewer."
        ),
    ] = "steps",
    minutes: Annotated[
        float | None, typer.Option(help="Stop training a variant after so long; run it again to continue.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of training. Default: the recipe's.")] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Evaluate only so many queries of valid and of test.")
    ] = None,
    device: DeviceOption = "auto",
    as_json: AsJson = False,
) -> None:
    """Train full, − iter and − iter − rule (Table 3), and compare them on valid and test.

    Writes ablation.md, ablation.json and ablation.png (valid MRR over the steps, Figure 6) to the study's folder,
    by default studies/ablation-GRAPH. Stop at any time; run it again to continue.
    """
    with _resumable():
        found = studies.ablation(
            source, output, recipe=recipe, settings=settings or [], budget=budget, minutes=minutes, seed=seed,
            sample=sample, device=device,
        )  # fmt: skip
    _show(found, as_json)
    _save(found, *(found.folder / f"ablation.{suffix}" for suffix in ("md", "json", "png")))
    if not found.finished:
        errors.print("[yellow]not all variants are trained:[/] run the same command to continue")


EFFICIENCY_EXAMPLES = """Examples:

squire study efficiency

squire study efficiency --synthetic 10000,100000,1000000 --minutes 5 --out studies/million

squire study efficiency FB15K237 --sizes 0.1,0.25,0.5,1 --out studies/fb15k237

Run any of them again to continue; what is measured is skipped. Sizes may be added."""


@app.command(epilog=EFFICIENCY_EXAMPLES)
def efficiency(
    graphs: Annotated[list[str] | None, typer.Argument(metavar="[GRAPH]...", help="Graphs to sample.")] = None,
    output: Annotated[Path, _out(FOLDER)] = Path("studies/efficiency"),
    sizes: Annotated[str, typer.Option(help="Shares of a graph's train facts.")] = "0.25,0.5,1",
    synthetic: Annotated[
        str, typer.Option(help="Numbers of facts of synthetic graphs, e.g. 10000,100000,1000000.")
    ] = "",
    recipe: Annotated[
        str, typer.Option(help="For all sizes; auto: the one for the whole graph, large for synthetic graphs.")
    ] = "auto",
    settings: SettingsOption = None,
    minutes: Annotated[float, typer.Option(min=0, help="Of training per size, at most.")] = 2.0,
    questions: Annotated[int, typer.Option(min=1, help="Of valid per size, at most.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of samples, synthetic graphs and training.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Time of each phase, memory and quality against the size of a graph (Figure 2, Tables 4 and 5).

    Without arguments: samples of the bundled graph world, and synthetic graphs of 10⁴ and 10⁵ facts. Writes
    efficiency.md, .json and .png. Stop at any time; run it again to continue.
    """
    with _resumable():
        found = studies.efficiency(
            graphs or [], output, sizes=_numbers("--sizes", sizes, float),
            synthetic=_numbers("--synthetic", synthetic, int), recipe=recipe, settings=settings or [],
            minutes=minutes, questions=questions, seed=seed,
        )  # fmt: skip
    _show(found, as_json)
    _save(found, *(output / f"efficiency.{suffix}" for suffix in ("md", "json", "png")))


@app.command("efficiency-measure", hidden=True)
def measure(folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of one size.")]) -> None:
    """Measure one size of an efficiency study in this process."""
    studies.measure_size(folder)


def compare(
    source: Source,
    output: Annotated[Path | None, _out(FOLDER)] = None,
    methods: Annotated[
        str, typer.Option(help="Names separated by commas, e.g. fused,rules,ComplEx. Default: all.")
    ] = "",
    minutes: Annotated[float, typer.Option(help="Time to learn, of each method.")] = 30.0,
    side: Annotated[str, typer.Option(help="both, which also reports tails alone, or tail.")] = "both",
    sample: Annotated[
        int | None, typer.Option(min=1, help="Rank only so many test queries, drawn by --seed.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of learning and of the sample.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Other methods beside ours on a graph: quality, time and memory, each with the same time to learn.

    Ours: frequency, rules, paths, fused. Through PyKEEN: TransE, RotatE, ComplEx, ConvE, TuckER.
    Through PyClause: AnyBURL's rules. Walkers: MINERVA, MultiHopKG, RuleGuider, DacKGR. Writes compare.md, .json
    and .png to the folder, by default studies/compare-GRAPH. Stop at any time; run it again to continue.
    """
    with _resumable():
        found = studies.compare(
            source, output, methods=[name.strip() for name in methods.split(",") if name.strip()], minutes=minutes,
            side=side, sample=sample, seed=seed,
        )  # fmt: skip
    _show(found, as_json)
    _save(found, *(found.folder / f"compare.{suffix}" for suffix in ("md", "json", "png")))


@app.command("compare-measure", hidden=True)
def measure_one(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a comparison.")],
    method: Annotated[str, typer.Argument(help="One of its methods.")],
) -> None:
    """Measure one method of a comparison in this process."""
    studies.measure_method(folder, method)


# -------------------------------------------------------------------------------------------------- helpers


@contextmanager
def _resumable() -> Iterator[None]:
    """Work that Ctrl-C may stop at any moment, since the study records what is done."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print("[yellow]interrupted:[/] finished work is kept; run the same command to continue")
        raise typer.Exit(130) from None


def _show(found: studies.Report, as_json: bool) -> None:
    if as_json:
        print_json(found.as_dict())
    else:
        out.print(Text(found.markdown()), soft_wrap=True)


def _save(found: studies.Report, *files: Path) -> None:
    for file in files:
        found.save(file)
        _wrote(file)


def _wrote(file: Path) -> None:
    errors.print(f"wrote {file}", markup=False, highlight=False, soft_wrap=True)


def _expect_suffix(file: Path | None, suffixes: tuple[str, ...]) -> None:
    """Checks the name of an output before any work."""
    if file is not None and file.suffix.lower() not in suffixes:
        raise SettingError(f"{file}: expected a name that ends in {', '.join(suffixes)}.")


def _numbers(option: str, text: str, kind: type[int] | type[float]) -> list[Any]:
    """`0.25,1` -> [0.25, 1.0]"""
    try:
        return [kind(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise SettingError(f"{option} {text}: expected numbers separated by commas.") from None


# ------------------------------------------------------------------------------------------------- annotating


def converse(study: studies.Annotations) -> None:
    """Asks until everything is judged or the person stops. Every judgement is on disk before the next question."""
    numbers = study.to_judge
    at = next((at for at, number in enumerate(numbers) if number not in study.scores), len(numbers))
    if at < len(numbers):
        _print_help()
    while at < len(numbers):
        number = numbers[at]
        before = study.scores.get(number)
        _print_question(study, number, f"{at + 1} of {len(numbers)}")
        reply = _read_reply(before)
        if reply == "q":
            return
        if reply == "b":
            at = max(at - 1, 0)
        elif reply == "?":
            _print_help()
        elif reply in REPLIES:
            study.judge(number, REPLIES[reply])
            at += 1
        elif not reply and before is not None:
            at += 1
        else:
            _print("expected 1, 0.5, 0, b, q or ?")


def _print_help() -> None:
    _print(
        "Does the path convince you that the answer is correct? (Appendix C of the paper)",
        *(f"  {score:<4g} {meaning}" for score, meaning in studies.MEANINGS.items()),
        "       A path that only repeats the question deduces nothing: 0 (our reading; also counted separately)",
        "  b    back to the previous path; there, Enter keeps your judgement",
        "  q    stop; everything is saved, and the same command continues",
        "  ?    this help",
    )


def _print_question(study: studies.Annotations, number: int, count: str) -> None:
    """Only question, answer and path: scores or grades would bias the annotator."""
    question = study.questions[number]
    _print("")
    errors.print(Text.assemble((count, "dim"), "  ", (question.text, "bold"), " ", (question.tail, "bold green")),
                 soft_wrap=True)  # fmt: skip
    _print(f"  {question.path()}")


def _read_reply(before: float | None) -> str:
    """The line typed; the end of the input and Ctrl-C mean stop."""
    errors.print(Text("  1 / 0.5 / 0 > " if before is None else f"  1 / 0.5 / 0 (was {before:g}) > "), end="")
    try:
        return input().strip().lower()
    except (EOFError, KeyboardInterrupt):
        _print("")
        return "q"


def _print(*lines: str) -> None:
    for line in lines:
        errors.print(line, markup=False, highlight=False, soft_wrap=True)
