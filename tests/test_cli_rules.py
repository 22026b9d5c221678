"""`squire mine` and `squire rules …` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from squire.cli import app
from squire.core.progress import ProgressBar
from squire.errors import RuleError, SettingError, SquireError
from squire.graph.loading import load_graph
from squire.rules.anyburl import Sidecar, read_rules

# Grandparents are parents of parents; one of the five is not in the file.
FAMILY = [(f"{name}{i}", "parent", f"{name}{i + 1}") for name in "abcde" for i in range(2)]
FAMILY += [(f"{name}0", "grandparent", f"{name}2") for name in "abcd"]


@pytest.fixture
def family(tmp_path: Path) -> Path:
    folder = tmp_path / "family"
    folder.mkdir()
    (folder / "train.tsv").write_text("".join("\t".join(triple) + "\n" for triple in FAMILY))
    (folder / "test.tsv").write_text("e0\tgrandparent\te2\n")
    return folder


@pytest.fixture
def rules(family: Path, tmp_path: Path) -> Path:
    target = tmp_path / "rules.tsv"
    run("mine", family, "-o", target)
    return target


def run(*arguments: object, fails_with: type[SquireError] | None = None, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if fails_with:
        assert isinstance(result.exception, fails_with)
        return str(result.exception)
    assert result.exit_code == code, result.output
    return result.stdout if "--json" in arguments else result.output


def test_mining_writes_rules_and_how_they_were_made(family: Path, rules: Path) -> None:
    assert "4\t0.8\tgrandparent(X,Y) <= parent(X,A), parent(A,Y)" in rules.read_text()
    sidecar = Sidecar.load(rules)
    assert sidecar
    assert (sidecar.graph, sidecar.complete) == (str(family), True)
    assert sidecar.options["length"] == 3


def test_show_prints_rules_with_an_example_from_the_graph(rules: Path) -> None:
    text = run("rules", "show", rules, "--relation", "grandparent", "--limit", 1)
    assert "grandparent(X, Y) ⇐ parent(X, A) ∧ parent(A, Y)" in text
    assert "a0 grandparent a2: a0 ─parent→ a1 ─parent→ a2" in text


def test_show_names_the_nearest_relation(rules: Path) -> None:
    words = run("rules", "show", rules, "--relation", "grandparents", fails_with=SquireError)
    assert "unknown relation 'grandparents'. Nearest: 'grandparent'" in words


def test_answers_come_with_the_rule_and_the_path(rules: Path) -> None:
    text = run("rules", "answer", rules, "e0", "grandparent")
    assert "because e0 ─parent→ e1 ─parent→ e2" in text
    assert "by      grandparent(X, Y) ⇐ parent(X, A) ∧ parent(A, Y)" in text
    (first, *_) = json.loads(run("rules", "answer", rules, "e2", "grandparent", "--inverse", "--json"))
    assert (first["label"], first["is_fact"], first["path"]) == ("e0", False, "e2 ←parent─ e1 ←parent─ e0")
    assert "a2" not in run("rules", "answer", rules, "a0", "grandparent")
    assert "a2" in run("rules", "answer", rules, "a0", "grandparent", "--known")


def test_evaluate_has_the_frequency_row_and_signatures(rules: Path) -> None:
    frequency, ours = json.loads(run("rules", "evaluate", rules, "--json"))
    assert frequency["signature"].startswith("family|split:test|side:tail|method:frequency")
    assert ours["mrr"] == 1.0 > frequency["mrr"]
    assert "method:rules+frequency|filter:train+valid+test|ties:realistic" in ours["signature"]
    both = json.loads(run("rules", "evaluate", rules, "--json", "--side", "both", "--aggregate", "max"))
    assert both[1]["queries"] == 2
    assert "rules+frequency" in run("rules", "evaluate", rules)


def test_a_split_without_triples_is_refused(rules: Path) -> None:
    assert "has no valid triples" in run("rules", "evaluate", rules, "--split", "valid", fails_with=SettingError)
    assert "expected valid or test" in run("rules", "evaluate", rules, "--split", "tests", fails_with=SettingError)
    assert "expected tail or both" in run("rules", "evaluate", rules, "--side", "head", fails_with=SettingError)
    assert "expected max or noisy-or" in run(
        "rules", "evaluate", rules, "--aggregate", "x", fails_with=SettingError
    )


def test_a_foreign_file_needs_the_graph_by_name(family: Path, rules: Path) -> None:
    Sidecar.path_of(rules).unlink()
    assert "does not name its graph" in run("rules", "show", rules, fails_with=SettingError)
    assert "⇐" in run("rules", "show", rules, "--graph", family)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    assert "no such file" in run("rules", "show", tmp_path / "no.tsv", fails_with=RuleError)


def test_ctrl_c_keeps_the_rules_found_until_then(
    family: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: ProgressBar, title: str, done: int, *_more: object) -> None:
        if title == "bodies of length 3":
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressBar, "stage", interrupt)
    target = tmp_path / "some.tsv"
    assert "interrupted" in run("mine", family, "-o", target, code=130)
    sidecar = Sidecar.load(target)
    assert sidecar
    assert not sidecar.complete
    found = read_rules(target, load_graph(family).labels).rules
    assert set(found.length.tolist()) == {2}


def test_a_target_that_cannot_be_written_is_refused_before_the_work(
    family: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mine_rules(*_: object) -> None:
        pytest.fail("mined first")

    monkeypatch.setattr("squire.api.mine_rules", mine_rules)
    for target in (tmp_path, family / "train.tsv" / "rules.tsv"):
        result = CliRunner().invoke(app, ["mine", str(family), "-o", str(target)])
        assert isinstance(result.exception, OSError)
        assert result.exception.filename == str(target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["family"]


def test_rules_whose_names_do_not_fit_the_format_are_counted(tmp_path: Path) -> None:
    rows = [f"p{i}\t{relation}\n" for i in range(20) for relation in ("written in\tC", "made at\tBell")]
    (tmp_path / "languages.tsv").write_text("".join(rows))
    text = run("mine", tmp_path / "languages.tsv", "-o", tmp_path / "rules[1].tsv")
    assert "rules[1].tsv" in text
    assert "rules left out. The file format cannot hold labels with tabs" in " ".join(text.split())
    assert "(X,C)" not in (tmp_path / "rules[1].tsv").read_text()


def test_a_graph_that_is_no_longer_there_is_asked_for(
    rules: Path, family: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("mine", "family", "-o", rules)
    monkeypatch.chdir(family)
    words = run("rules", "show", rules, fails_with=SettingError)
    assert "was mined from family, which is not here" in words


def test_no_rules_to_show_is_said(rules: Path, family: Path) -> None:
    rules.write_text("")
    assert "no such rules" in run("rules", "show", rules, "--graph", family)


def test_help_has_examples() -> None:
    for command in (["mine"], ["rules", "show"], ["rules", "evaluate"]):
        assert "Example: squire" in run(*command, "--help")
