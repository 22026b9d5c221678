"""Doubtful facts: planted errors come first, and files hold what was found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from graphs import LabelTriple, make_graph
from small_run import fused_run, known_facts, small_run
from typer.testing import CliRunner

import squire
from squire.cli import app
from squire.completion import doubts
from squire.completion.doubts import judge_facts
from squire.errors import SettingError, UnknownName
from squire.graph.adjacency import Ids
from squire.graph.folds import can_be_hidden

COUNT, WRONG = 60, 6


def right_and_wrong() -> tuple[list[LabelTriple], list[LabelTriple]]:
    """Each a leads to its b by r1 and r2, but a tenth of the facts of r2 to that of another."""
    right: list[LabelTriple] = []
    wrong: list[LabelTriple] = []
    for i in range(COUNT):
        right += [(f"a{i}", "r1", f"b{i}"), (f"b{i}", "colour", f"colour {i % 3}")]
        if i % (COUNT // WRONG):
            right.append((f"a{i}", "r2", f"b{i}"))
        else:
            wrong.append((f"a{i}", "r2", f"b{(i + 7) % COUNT}"))
    return right, wrong


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> squire.Run:
    right, wrong = right_and_wrong()
    graph = make_graph({"train": right + wrong})
    return squire.train(graph, tmp_path_factory.mktemp("doubts") / "run", model=False, progress=False)


def test_planted_errors_come_first(planted: squire.Run) -> None:
    found = planted.doubt(relations=["r2"], progress=False).to_frame()
    wrong = {(head, tail) for head, _, tail in right_and_wrong()[1]}
    is_wrong = np.array([pair in wrong for pair in zip(found["head"], found["tail"], strict=True)])
    assert (len(found), is_wrong.sum()) == (COUNT, WRONG)
    place = np.arange(COUNT)
    before = np.mean(place[is_wrong][:, None] < place[~is_wrong])  # how often a wrong fact is before a right one
    assert before > 0.95
    assert found["confidence"].is_monotonic_increasing
    assert found["confidence"].between(0, 1).all()
    assert (found["against"][found["confidence"] < 0.5] != "").all()


def test_those_of_one_entity_and_not_too_many(planted: squire.Run) -> None:
    (head, relation, tail), *_ = right_and_wrong()[1]
    found = planted.doubt(entity=head, progress=False)
    assert found.to_frame().iloc[0][["head", "relation", "tail"]].tolist() == [head, relation, tail]
    every = right_and_wrong()[0] + right_and_wrong()[1]
    assert found.judged + found.left_out == sum(head in (first, last) for first, _, last in every)
    some = planted.doubt(relations=["r2"], most=7, progress=False)
    assert (some.judged, len(some)) == (7, 7)
    with pytest.raises(UnknownName, match="nobody"):
        planted.doubt(entity="nobody", progress=False)
    with pytest.raises(SettingError, match="most=0"):
        planted.doubt(most=0, progress=False)


def test_facts_are_judged_without_being_changed(planted: squire.Run) -> None:
    reasoner = planted.reasoner
    facts, chosen = reasoner.run.facts, np.arange(0, 50, 2)
    first = judge_facts(reasoner, chosen, parts=2)
    assert reasoner.run.facts is facts
    assert np.array_equal(judge_facts(reasoner, chosen, parts=2), first)


def test_each_fact_is_judged_once_and_its_ends_keep_an_edge(
    planted: squire.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasoner, without, parts = planted.reasoner, squire.Reasoner.without, []
    facts = reasoner.run.facts

    def recorded(reasoner: squire.Reasoner, hidden: Ids) -> squire.Reasoner:
        parts.append(hidden)
        ignorant = without(reasoner, hidden)
        assert np.all(np.diff(ignorant.run.facts.offsets)[hidden[:, [0, 2]]] > 0)
        return ignorant

    monkeypatch.setattr(squire.Reasoner, "without", recorded)
    chosen = np.flatnonzero(can_be_hidden(facts, unlinked=False))
    judge_facts(reasoner, chosen, parts=2)  # halves: some entities would lose all they have
    judged = np.concatenate(parts)
    assert len(judged) == len(chosen)
    assert len(parts) > 2
    assert {tuple(fact) for fact in judged.tolist()} == {tuple(fact) for fact in facts.triples[chosen].tolist()}


def test_all_facts_of_all_splits_are_judged_and_k_are_kept() -> None:
    run = squire.Run(fused_run())
    everything = run.doubt(k=10_000, progress=False)
    frame = everything.to_frame()
    facts = known_facts()
    ends = Counter(end for head, _, tail in facts for end in (head, tail))
    expected = {fact for fact in facts if ends[fact[0]] > 1 and ends[fact[2]] > 1}
    assert set(frame[["head", "relation", "tail"]].itertuples(index=False, name=None)) == expected
    assert everything.judged == len(everything) == len(expected)
    assert everything.left_out == len(facts) - len(expected)
    few = run.doubt(k=4, progress=False)
    assert few.table.equals(everything.table.slice(0, 4))
    assert few.judged == everything.judged
    only = run.doubt(relations=["likes", "grandparent"], progress=False)
    assert set(only.table["relation"].to_pylist()) == {"likes", "grandparent"}
    assert only.judged == sum(relation in ("likes", "grandparent") for _, relation, _ in expected)


def test_doubtful_facts_show_the_first_ten() -> None:
    found = squire.Run(fused_run()).doubt(k=20, progress=False)
    lines = repr(found).splitlines()
    assert lines[0] == f"the 20 most doubtful of {found.judged} facts"
    assert len(lines) == 1 + 10
    left_out = repr(replace(found, left_out=3)).splitlines()[0]
    assert left_out == f"{lines[0]} (3 more are the only fact about an entity and cannot be judged)"


# -------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("name", ["out.tsv", "out.tsv.gz", "out.parquet"])
def test_a_file_holds_what_was_found(name: str, tmp_path: Path) -> None:
    found = squire.Run(fused_run()).doubt(tmp_path / name, k=12, progress=False).to_frame()
    if name.endswith("parquet"):
        read = pd.read_parquet(tmp_path / name)
    else:
        read = pd.read_csv(tmp_path / name, sep="\t", quoting=3, keep_default_na=False)
    assert list(read.columns) == ["head", "relation", "tail", "confidence", "against"]
    assert len(read) == 12
    pd.testing.assert_frame_equal(read, found, check_dtype=False, rtol=1e-4)
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("output", "options", "error", "words"),
    [
        ("out.csv", {}, SettingError, r"out.csv': expected a name that ends in .tsv or .parquet"),
        ("there.tsv", {}, SettingError, r"there.tsv': exists. Choose another name, or force=True"),
        ("out.tsv", {"k": 0}, SettingError, "k=0: expected 1 or more"),
        ("out.tsv", {"relations": ["like"]}, UnknownName, "unknown relation 'like'. Nearest: 'likes'"),
        ("out.tsv", {"seed": -1}, SettingError, "seed=-1: expected 0 or more"),
        ("out.tsv", {"relations": "likes"}, SettingError, r"relations='likes': expected a list"),
    ],
)
def test_mistakes_are_told_before_the_work(
    output: str, options: dict[str, object], error: type[Exception], words: str, tmp_path: Path
) -> None:
    (tmp_path / "there.tsv").write_text("precious")
    with pytest.raises(error, match=words):
        squire.Run(fused_run()).doubt(tmp_path / output, progress=False, **options)  # type: ignore[arg-type]
    assert [file.read_text() for file in tmp_path.iterdir()] == ["precious"]


def test_without_a_fusion_there_is_no_doubt() -> None:
    with pytest.raises(SettingError, match="no fusion here, so there is no confidence"):
        squire.Run(small_run()).doubt(progress=False)


def test_an_interruption_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(squire.Reasoner, "without", interrupt)
    with pytest.raises(KeyboardInterrupt):
        squire.Run(fused_run()).doubt(tmp_path / "out.tsv", progress=False)
    monkeypatch.undo()
    monkeypatch.setattr(doubts, "tsv_cell", interrupt)
    with pytest.raises(KeyboardInterrupt):
        squire.Run(fused_run()).doubt(tmp_path / "out.tsv", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_and_prints_the_first(tmp_path: Path) -> None:
    file = tmp_path / "out.tsv"
    command = ["doubt", str(fused_run()), "-o", str(file), "-k", "15", "--relation", "likes"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    expected = squire.Run(fused_run()).doubt(k=15, relations=["likes"], progress=False)
    assert repr(expected) in done.output
    assert f"wrote {file}" in done.output
    assert len(file.read_text().splitlines()) == 1 + 15
    assert "exists" in str(CliRunner().invoke(app, command).exception)
    assert CliRunner().invoke(app, [*command, "--force"]).exit_code == 0
