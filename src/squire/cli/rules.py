"""`squire mine` and `squire rules …`: rules that one can mine, read and judge."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.text import Text

from squire.cli.console import errors, out, print_json, progress_bar
from squire.cli.data import AsJson, Source
from squire.cli.tables import print_metrics
from squire.core.files import ensure_creatable
from squire.core.relations import is_inverse
from squire.errors import SettingError, UnknownName
from squire.evaluation.baselines import TailFrequency, rank_by_frequency, rank_by_rules
from squire.evaluation.queries import QuerySet
from squire.graph.graph import Graph
from squire.graph.labels import Labels
from squire.graph.loading import load_graph
from squire.rules.anyburl import (
    Sidecar,
    ensure_readable,
    is_writable,
    read_rules,
    readable,
    rule_text,
    write_rules,
)
from squire.rules.application import Candidates, Grounding, RuleEngine, noisy_or
from squire.rules.mining import MiningOptions, mine_rules
from squire.rules.rules import NONE, Rules

app = typer.Typer(help="Read and judge mined rules.", no_args_is_help=True)
DEFAULTS = MiningOptions()

RuleFilePath = Annotated[Path, typer.Argument(help="A rule file, ours or AnyBURL's.")]
GraphOption = Annotated[str | None, typer.Option(help="The rules' graph, if the file does not tell.")]


def mine(
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="The rule file to write, e.g. rules.tsv.")],
    length: Annotated[int, typer.Option(help="Longest body of a closed rule, 1 to 3.")] = DEFAULTS.length,
    support: Annotated[
        int, typer.Option(help="Facts that a closed rule must predict rightly.")
    ] = DEFAULTS.min_support,
    confidence: Annotated[
        float, typer.Option(help="Share of a closed rule's predictions that must be right.")
    ] = DEFAULTS.min_confidence,
    constants: Annotated[bool, typer.Option(help="Also mine rules with constants.")] = DEFAULTS.constants,
    constant_support: Annotated[int, typer.Option(help="The same for rules with constants.")] = (
        DEFAULTS.constant_support
    ),
    constant_confidence: Annotated[float, typer.Option(help="The same for rules with constants.")] = (
        DEFAULTS.constant_confidence
    ),
    max_constants: Annotated[int, typer.Option(help="Keep so many rules with constants, the most trusted.")] = (
        DEFAULTS.max_constants
    ),
    budget: Annotated[float, typer.Option(help="Decoder for each length; beyond it counts are estimates.")] = (
        DEFAULTS.budget
    ),
    seed: Annotated[int, typer.Option(help="Seed of the estimates.")] = DEFAULTS.seed,
    threads: Annotated[int | None, typer.Option(help="By default one a core.")] = None,
) -> None:
    """Mine rules from the train split, in AnyBURL's file format. Ctrl-C keeps what was found."""
    options = MiningOptions(
        length=length,
        min_support=support,
        min_confidence=confidence,
        constants=constants,
        constant_support=constant_support,
        constant_confidence=constant_confidence,
        max_constants=max_constants,
        budget=budget,
        seed=seed,
        threads=threads,
    )
    ensure_creatable(output)
    graph = load_graph(source)
    started = time.perf_counter()
    with progress_bar("mining") as show:
        mined = mine_rules(graph.train, options, show.stage)
    fits = is_writable(mined.rules, graph.labels)
    rules = mined.rules.take(fits)
    write_rules(rules, graph.labels, output)
    estimated = {
        rule_text(rules, i, graph.labels): float(rules.error[i]) for i in np.flatnonzero(rules.error).tolist()
    }
    Sidecar(source, asdict(options), mined.complete, estimated).save(output)
    closed = int(np.count_nonzero(rules.is_closed))
    errors.print(
        f"{len(rules):,} rules ({closed:,} closed, {len(rules) - closed:,} with constants; "
        f"{len(estimated):,} with estimated counts) in {time.perf_counter() - started:.1f} s: {output}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    if not fits.all():
        unfit = f"{np.count_nonzero(~fits):,} rules left out:"
        why = "a lone capital, a tab, a line end or a space in front would be read as something else"
        errors.print(f"[yellow]{unfit}[/] the file format cannot hold their labels ({why})", soft_wrap=True)
    if not mined.complete:
        errors.print("[yellow]interrupted:[/] these are the rules found until then")
        raise typer.Exit(130)


@app.command(epilog="Example: squire rules show rules.tsv --relation 'official language'")
def show(
    rules_file: RuleFilePath,
    relation: Annotated[str | None, typer.Option(help="Only rules that predict this relation.")] = None,
    graph: GraphOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Rules to print, the most trusted first.")] = 20,
    examples: Annotated[int, typer.Option(min=0, help="Groundings to print for each rule.")] = 1,
) -> None:
    """Print rules readably, with example groundings from the graph."""
    loaded, rules = _open(rules_file, graph)
    labels = loaded.labels
    which = np.arange(len(rules))
    if relation is not None:
        which = which[rules.head % loaded.num_relations == labels.relation_id(relation)]
    which = which[np.argsort(-rules.smoothed_confidence[which], kind="stable")]
    engine = RuleEngine(rules, loaded.train)
    for rule in which[:limit].tolist():
        estimate = f" ± {rules.error[rule]:.2f} (estimate)" if rules.error[rule] else ""
        out.print(
            Text.assemble(
                (f"{rules.confidence[rule]:.2f}{estimate}", "bold cyan"),
                (f"  {rules.support[rule]:,} of {rules.body_count[rule]:,}  ", "dim"),
                readable(rules, rule, labels),
            ),
            soft_wrap=True,
        )
        for text in _examples(engine, loaded, rule, examples):
            out.print(Text(f"      e.g. {text}", "green"), soft_wrap=True)
    if not len(which):
        errors.print("[yellow]no such rules[/]")
    if len(which) > limit:
        out.print(f"[dim]… and {len(which) - limit:,} more (--limit)[/]", highlight=False)


@app.command(epilog="Example: squire rules answer rules.tsv Austria borders")
def answer(
    rules_file: RuleFilePath,
    head: Annotated[str, typer.Argument(help="The entity that the question is about.")],
    relation: Annotated[str, typer.Argument(help="The relation whose tail is wanted.")],
    graph: GraphOption = None,
    limit: Annotated[int, typer.Option("-k", min=1, help="Answers to print.")] = 5,
    known: Annotated[
        bool, typer.Option("--known", help="Also print answers that the graph holds already.")
    ] = False,
    inverse: Annotated[bool, typer.Option("--inverse", help="Ask for heads: (?, relation, entity).")] = False,
    as_json: AsJson = False,
) -> None:
    """Answer (head, relation, ?) by the rules alone, each answer with its best rule and a path in the graph."""
    loaded, rules = _open(rules_file, graph)
    labels = loaded.labels
    query = labels.entity_id(head), labels.relation_id(relation) + (loaded.num_relations if inverse else 0)
    engine = RuleEngine(rules, loaded.train)
    candidates = engine.answer(np.array([query], np.int32))
    is_known = np.isin(candidates.answers, loaded.train.tails_of(*query))
    frequency = TailFrequency(loaded)(query[1])[candidates.answers]
    scores = noisy_or(candidates)
    ranked = np.lexsort((-frequency, -scores))
    shown = [i for i in ranked.tolist() if known or not is_known[i]][:limit]
    rows = [
        {
            "score": round(float(scores[i]), 4),
            "known": bool(is_known[i]),
            **_evidence(engine, loaded, query, candidates, i),
        }
        for i in shown
    ]
    if as_json:
        print_json(rows)
        return
    question = f"(?, {relation}, {head})" if inverse else f"({head}, {relation}, ?)"
    out.print(Text(question, "bold"))
    for place, row in enumerate(rows, 1):
        mark = ("  in the graph", "dim") if row["known"] else ("", "")
        score = (f"  {row['score']:.2f}", "cyan")
        out.print(Text.assemble(f"{place:3}. ", (str(row["answer"]), "bold green"), score, mark), soft_wrap=True)
        out.print(Text(f"       because {row['path']}", "green"), soft_wrap=True)
        out.print(Text(f"       by      {row['rule']}", "dim"), soft_wrap=True)
    if not rows:
        out.print("no rule gives a new answer", style="yellow")


def _evidence(
    engine: RuleEngine, graph: Graph, query: tuple[int, int], candidates: Candidates, index: int
) -> dict[str, object]:
    """An answer, its best rule, and where that rule holds in the graph."""
    tail, rule = int(candidates.answers[index]), int(candidates.rules[index, 0])
    grounding = engine.grounding(*query, tail, rule)
    return {
        "answer": graph.labels.entity(tail),
        "rule": readable(engine.rules, rule, graph.labels),
        "rule_smoothed_confidence": round(float(candidates.smoothed_confidence[index, 0]), 4),
        "path": path_text(grounding, graph) if grounding else "",
    }


@app.command(epilog="Example: squire rules evaluate rules.tsv --split valid")
def evaluate(
    rules_file: RuleFilePath,
    graph: GraphOption = None,
    split: Annotated[str, typer.Option(help="valid or test.")] = "test",
    side: Annotated[str, typer.Option(help="tail, or both for heads as well.")] = "tail",
    aggregate: Annotated[str, typer.Option(help="noisy-or or max.")] = "noisy-or",
    best: Annotated[int, typer.Option(min=1, help="Rules of an answer that count.")] = 5,
    as_json: AsJson = False,
) -> None:
    """How well the rules rank the held-out answers, beside the tail frequency."""
    loaded, rules = _open(rules_file, graph)
    query_set = QuerySet.from_graph(loaded, split, side)
    engine = RuleEngine(rules, loaded.train, best)
    with progress_bar("ranking") as show_progress:
        ours = rank_by_rules(loaded, query_set, engine, aggregate, show_progress)
    rows = [ranking.metrics() for ranking in (rank_by_frequency(loaded, query_set), ours)]
    if as_json:
        print_json([row.as_dict() for row in rows])
        return
    print_metrics(rows, f"{loaded.name}, {split}, {side}")


def _open(rules_file: Path, graph: str | None) -> tuple[Graph, Rules]:
    """The graph and the rules, errors of estimates included."""
    ensure_readable(rules_file)
    sidecar = Sidecar.load(rules_file)
    source = graph or (sidecar.graph if sidecar else None)
    if source is None:
        raise SettingError(f"{rules_file} does not tell its graph. To do: name it with --graph.")
    try:
        loaded = load_graph(source)
    except UnknownName:
        if graph is not None:
            raise
        raise SettingError(
            f"{rules_file} was mined from {source}, which is not here. To do: name it with --graph."
        ) from None
    rules = load_rules(rules_file, loaded.labels)
    if sidecar and sidecar.errors:
        for rule in range(len(rules)):
            rules.error[rule] = sidecar.errors.get(rule_text(rules, rule, loaded.labels), 0.0)
    return loaded, rules


def load_rules(rules_file: Path, labels: Labels) -> Rules:
    """The rules of a file; says what it leaves out."""
    read = read_rules(rules_file, labels)
    if read.skipped:
        errors.print(f"[yellow]{read.skipped:,} rules of other forms left out[/]")
    return read.rules


def _examples(engine: RuleEngine, graph: Graph, rule: int, count: int) -> list[str]:
    """Train facts that the rule predicts rightly, with their grounding."""
    r, c = int(engine.rules.head[rule]), int(engine.rules.head_constant[rule])
    edges = graph.train
    found: list[str] = []
    for edge in np.flatnonzero(edges.relations == r).tolist():
        head, tail = int(edges.heads[edge]), int(edges.tails[edge])
        if len(found) == count:
            break
        if c in (NONE, tail) and (grounding := engine.grounding(head, r, tail, rule)):
            labels = graph.labels
            goal = labels.entity(head), labels.entity(tail)
            relation = labels.relation(r)
            fact = (
                (goal[1], relation, goal[0])
                if is_inverse(r, graph.num_relations)
                else (goal[0], relation, goal[1])
            )
            found.append(f"{' '.join(fact)}: {path_text(grounding, graph)}")
    return found


def path_text(grounding: Grounding, graph: Graph) -> str:
    """`Austria ─borders→ Germany ─official language→ German`."""
    labels, n = graph.labels, graph.num_relations
    text = labels.entity(grounding.entities[0])
    for relation, entity in zip(grounding.relations, grounding.entities[1:], strict=True):
        label = labels.relation(relation)
        text += f" ─{label}→ " if relation < n else f" ←{label}─ "
        text += labels.entity(entity)
    return text
