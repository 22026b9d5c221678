"""`squire fuse` and `squire evaluate --ranking` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from squire.cli import app
from squire.cli.console import Bar
from squire.errors import SettingError, SquireError
from squire.ranking.fusion import has_fusion


def run(*arguments: object, fails_with: type[SquireError] | None = None) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if fails_with:
        assert isinstance(result.exception, fails_with)
        return str(result.exception)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of families in which some grandparents are held out."""
    folder = tmp_path_factory.mktemp("graph")
    facts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for i in range(40):
        facts["train"] += [f"a{i}\tparent\tb{i}", f"b{i}\tparent\tc{i}"]
        facts["train"] += [f"{who}{i}\tlives in\ttown {i % 3}" for who in "abc"]
        facts["valid" if i < 5 else "test" if i < 10 else "train"].append(f"a{i}\tgrandparent\tc{i}")
    for split, lines in facts.items():
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def fused(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    text = run("fuse", folder, "--out", out, "--folds", 2)
    assert "split:valid|side:tail|method:fused" in text
    assert "method:rules+frequency" in text
    assert "method:frequency" in text
    assert "2 of 2 parts" in text
    return out


def test_a_fused_folder_is_evaluated_by_its_fusion(fused: Path) -> None:
    content = json.loads(run("evaluate", fused, "--json"))
    assert "split:test|side:tail|method:fused" in content["rows"][0]["signature"]
    assert 0 <= content["reliability"]["first 1"]["error"] <= 1
    assert content["rows"][0]["mrr"] > content["rows"][2]["mrr"]
    text = run("evaluate", fused, "--split", "valid", "--ranking", "fused")
    assert "Calibration error of the first 10" in text


def test_options_of_paths_mean_paths_and_do_not_go_with_a_fusion(fused: Path) -> None:
    assert "no run here" in run("evaluate", fused, "--beam", 3, fails_with=SettingError)
    assert "no run here" in run("evaluate", fused, "--ranking", "paths", fails_with=SettingError)
    words = run("evaluate", fused, "--ranking", "fused", "--beam", 3, fails_with=SettingError)
    assert words.startswith("--beam: is of --ranking paths only")


def test_a_folder_without_a_fusion_says_how_to_make_one(tmp_path: Path) -> None:
    assert "squire fuse GRAPH --out" in run("evaluate", tmp_path, "--ranking", "fused", fails_with=SettingError)


def test_the_folder_of_another_graph_is_refused(fused: Path) -> None:
    before = sorted(file.name for file in fused.iterdir())
    assert "holds another graph" in run("fuse", "world", "--out", fused, fails_with=SettingError)
    assert sorted(file.name for file in fused.iterdir()) == before


@pytest.mark.parametrize(
    "when", ["bodies of length 3", "evidence for hidden facts", "fitting the ranker", "calibrating"]
)
def test_ctrl_c_leaves_no_half_fusion(
    when: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: Bar, title: str, done: int, total: int | None) -> None:
        if title == when:
            raise KeyboardInterrupt

    monkeypatch.setattr(Bar, "stage", interrupt)
    result = CliRunner().invoke(app, ["fuse", str(folder), "--out", str(tmp_path / "run")])
    assert result.exit_code == 130
    assert not has_fusion(tmp_path / "run")
