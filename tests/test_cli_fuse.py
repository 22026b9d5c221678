"""`squire fuse` and `squire evaluate --ranking` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from squire.cli import app
from squire.core.progress import ProgressBar
from squire.errors import SettingError, SquireError
from squire.ranking.fusion_file import has_fusion


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
    run("train", folder, "--out", out, "--no-model", "--no-fuse")
    text = run("fuse", out, "--folds", 2)
    assert "split:valid|side:tail|method:fused" in text
    assert "method:rules+frequency" in text
    assert "method:frequency" in text
    assert "2 of 2 parts" in text
    return out


def test_a_fused_folder_is_evaluated_by_its_fusion(fused: Path) -> None:
    content = json.loads(run("evaluate", fused, "--json"))
    assert "split:test|side:tail|method:fused" in content["rows"][0]["signature"]
    assert 0 <= content["reliability"]["ordinary questions, first 1"]["error"] <= 1
    assert content["rows"][0]["mrr"] > content["rows"][2]["mrr"]
    text = run("evaluate", fused, "--split", "valid", "--ranking", "fused")
    assert "ordinary, first 10" in text


def test_options_of_paths_mean_paths_and_do_not_go_with_a_fusion(fused: Path) -> None:
    assert "no model yet" in run("evaluate", fused, "--beam", 3, fails_with=SettingError)
    assert "no model yet" in run("evaluate", fused, "--ranking", "paths", fails_with=SettingError)
    words = run("evaluate", fused, "--ranking", "fused", "--beam", 3, fails_with=SettingError)
    assert words.startswith("beam: applies to ranking='paths' only")


def test_a_run_without_a_fusion_says_how_to_make_one(folder: Path, tmp_path: Path) -> None:
    run("train", folder, "--out", tmp_path / "run", "--no-model", "--no-fuse")
    words = run("evaluate", tmp_path / "run", "--ranking", "fused", fails_with=SettingError)
    assert f"Run `squire fuse {tmp_path / 'run'}` first" in words


def test_only_a_run_can_be_fused(tmp_path: Path) -> None:
    assert "no run here" in run("fuse", tmp_path, fails_with=SettingError)


@pytest.mark.parametrize(
    "when", ["bodies of length 3", "evidence for hidden facts", "fitting the ranker", "calibrating"]
)
def test_ctrl_c_leaves_no_half_fusion(
    when: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: ProgressBar, title: str, *_more: object) -> None:
        if title == when:
            raise KeyboardInterrupt

    run("train", folder, "--out", tmp_path / "run", "--no-model", "--no-fuse")
    monkeypatch.setattr(ProgressBar, "stage", interrupt)
    result = CliRunner().invoke(app, ["fuse", str(tmp_path / "run")])
    assert result.exit_code == 130
    assert not has_fusion(tmp_path / "run")
