"""The Python API as a user types it."""

from __future__ import annotations

import inspect
import json
import logging
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from graphs import facts_of
from small_run import TINY, copy_of_run, family, fused_run, small_run
from typer.testing import CliRunner

import squire
from squire.cli import app
from squire.cli import rules as rules_commands
from squire.core.progress import ProgressBar
from squire.errors import Interrupted, SettingError, UnknownName
from squire.ranking.fusion import FusionOptions, fit_fusion
from squire.ranking.fusion_file import save_fusion
from squire.rules.mining import MiningOptions


def test_every_public_name_is_there() -> None:
    assert all(getattr(squire, name) is not None for name in squire.__all__)
    assert set(squire.__all__) <= set(dir(squire))
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        squire.trian  # noqa: B018


def test_importing_loads_neither_torch_nor_numba_nor_matplotlib() -> None:
    late = ("torch", "numba", "matplotlib", "pandas")
    code = f"import sys, squire, squire.cli; print([name for name in {late} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_ctrl_c_while_modules_are_imported_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-m", "squire", "data", "list"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_ctrl_c_in_a_command_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(squire, "list_datasets", interrupt)
    done = CliRunner().invoke(app, ["data", "list"])
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_the_options_of_the_mine_command_have_the_defaults_of_the_library() -> None:
    names = {"support": "min_support", "confidence": "min_confidence"}
    defaults = {field.name: field.default for field in fields(MiningOptions)}
    for name, parameter in inspect.signature(rules_commands.mine).parameters.items():
        if name not in ("source", "output"):
            assert parameter.default == defaults[names.get(name, name)], name


# ------------------------------------------------------------------------------------------------- answers


def test_answers_show_themselves_on_one_screen_and_as_a_frame() -> None:
    answers = squire.Run(small_run()).answer("cleo", "grandparent", k=3)
    lines = repr(answers).splitlines()
    assert lines[0] == "(cleo, grandparent, ?)"
    assert lines[1] == "     The graph says: cleo 2"
    assert len(lines) == 2 + 2 * 3
    frame = answers.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame["entity"].tolist() == ["cleo 2", *(answer.entity for answer in answers)]
    assert frame["rank"].tolist() == [0, 1, 2, 3]
    assert frame["is_fact"].tolist() == [True, False, False, False]
    assert "The graph says: <b>cleo 2</b>" in answers._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        ((5, "likes"), {}, SettingError, "head=5: expected a label"),
        (("cleo", 5), {}, SettingError, "relation=5: expected a label"),
        (("cleo", "likes", "dan"), {}, SettingError, "give either head or tail"),
        ((None, "likes"), {}, SettingError, "give either head or tail"),
        (("cleo", "likes"), {"ranking": "foo"}, SettingError, "ranking='foo': expected paths or fused"),
        (("cleo", "likes"), {"k": 0}, SettingError, "k=0: expected 1 or more"),
        (("cleopatra", "likes"), {}, UnknownName, "unknown entity 'cleopatra'. Nearest: 'cleo'"),
    ],
)
def test_mistakes_name_the_parameter(
    arguments: tuple[object, ...], options: dict[str, object], error: type[Exception], words: str
) -> None:
    run = squire.Run(small_run())
    with pytest.raises(error, match=re.escape(words)):
        run.answer(*arguments, **options)  # type: ignore[arg-type]


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no run here"):
        squire.Run(tmp_path)


# ------------------------------------------------------------------------------------------------- evaluation


def test_an_evaluation_is_a_table(tmp_path: Path) -> None:
    run = squire.Run(copy_of_run(tmp_path / "run"))
    evaluation = run.evaluate(progress=False)
    assert evaluation.to_frame()["method"].tolist() == ["paths", "rules+frequency", "frequency"]
    assert evaluation.mrr == evaluation.rows[0].mrr
    assert repr(evaluation).splitlines()[0] == "made, test, tail"
    assert "<td>frequency</td>" in evaluation._repr_html_()
    (kept,) = run.evaluations()
    assert kept == json.loads(json.dumps(evaluation.as_dict())) | {"outdated": False}
    (run.folder / "evaluation-broken.json").write_text("{")
    assert run.evaluations() == [kept]


def test_figures_of_another_model_or_fusion_are_outdated(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(fused_run(), folder)
    run = squire.Run(folder)
    served = run.reasoner
    run.evaluate(ranking="paths", progress=False)
    run.evaluate(ranking="fused", progress=False)
    run.evaluate(ranking="fused", split="valid", evidence=False, progress=False)

    def outdated(**of: Any) -> dict[str, bool]:
        signatures = [(one["rows"][0]["signature"].split("|"), one["outdated"]) for one in run.evaluations(**of)]
        return {f"{parts[3]} {parts[1]}": old for parts, old in signatures}

    paths, fused, valid = "method:paths split:test", "method:fused split:test", "method:fused split:valid"
    assert outdated() == {paths: False, fused: False, valid: False}
    save_fusion(fit_fusion(family(), FusionOptions(seed=1, folds=2)), folder)
    assert outdated() == {paths: False, fused: True, valid: True}
    assert outdated(of=served.fingerprints) == {paths: False, fused: False, valid: False}
    shutil.copy(fused_run() / "fusion.safetensors", folder)
    assert outdated() == {paths: False, fused: False, valid: False}
    shutil.copy(folder / "last.safetensors", folder / "best.safetensors")  # as if trained again
    assert outdated() == {paths: True, fused: True, valid: False}  # valid has no evidence, so no model in it
    file = folder / "evaluation-paths-test.json"
    content = json.loads(file.read_text())
    del content["fingerprints"]
    file.write_text(json.dumps(content))
    assert outdated()[paths]


# ------------------------------------------------------------------------------------------------- completion


def test_predictions_without_a_file_are_in_memory(tmp_path: Path) -> None:
    run = squire.Run(copy_of_run(tmp_path / "run"))
    before = sorted(file.name for file in run.folder.iterdir())
    found = run.complete(relations=["likes"], k=2, progress=False)
    assert sorted(file.name for file in run.folder.iterdir()) == before
    assert 0 < len(found) == len(found.to_frame()) <= 2 * found.questions
    assert f"{len(found):,} predictions" in repr(found)
    found.to_parquet(tmp_path / "found.parquet")
    assert pd.read_parquet(tmp_path / "found.parquet").equals(found.to_frame())


def test_an_output_is_not_replaced_by_accident(tmp_path: Path) -> None:
    (tmp_path / "out.tsv").write_text("precious")
    with pytest.raises(SettingError, match=r"out.tsv': exists. Choose another name, or force=True"):
        squire.Run(small_run()).complete(tmp_path / "out.tsv", progress=False)


# ------------------------------------------------------------------------------------------------- training


def a_file(folder: Path) -> Path:
    """All facts of the family in one file."""
    file = folder / "family.tsv"
    file.write_text("".join("\t".join(fact) + "\n" for fact in sorted(facts_of(family()))))
    return file


def test_a_single_file_is_divided_and_this_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "squire")
    file, parts = a_file(tmp_path), {"fuse": False, "model": False, "progress": False}
    for name, holdout, share in (("default", None, "5 %"), ("more", 0.15, "15 %")):
        caplog.clear()
        graph = squire.train(file, tmp_path / name, holdout=holdout, **parts).graph  # type: ignore[arg-type]
        assert min(len(graph.valid), len(graph.test)) > 0
        assert (
            f"Set aside {share} for validation and {share} for testing; they count as facts when you ask."
            in caplog.messages
        )
    for wrong in (0.5, -0.1, math.nan):
        with pytest.raises(SettingError, match=r"expected a share from 0 to less than 0\.5"):
            squire.train(file, tmp_path / "wrong", holdout=wrong)
    with pytest.raises(SettingError, match=r"holdout=0\.1: this graph has its splits"):
        squire.train(family(), tmp_path / "wrong", holdout=0.1)
    with pytest.raises(SettingError, match="the run keeps its recipe, settings, rules and splits"):
        squire.train(None, tmp_path / "default", resume=True, holdout=0.1)


def test_with_nothing_held_out_a_run_still_answers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "squire")
    settings = [*TINY, "train.epochs=1"]
    run = squire.train(a_file(tmp_path), tmp_path / "run", holdout=0, settings=settings, progress=False)
    assert not re.search("Set aside|held-out", caplog.text)
    assert facts_of(run.graph, "train") == facts_of(family())
    assert (run.is_fused, run.is_trained) == (True, True)
    found = run.answer("cleo", "grandparent", k=2)
    assert (found.known, len(found)) == ("cleo 2", 2)
    with pytest.raises(SettingError, match="has no test triples"):
        run.evaluate(progress=False)


def test_after_fusing_the_quality_is_said_in_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "squire")
    run = squire.train(family(), tmp_path / "run", model=False, progress=False)
    rows = run.evaluate(split="valid", evidence=False, progress=False).rows
    assert (
        f"held-out facts are ranked with an MRR of {rows[0].mrr:.3f}; by frequency alone it is {rows[-1].mrr:.3f}"
        in caplog.messages
    )


def test_a_run_without_a_model_answers_with_known_paths(tmp_path: Path) -> None:
    run = squire.train(family(), tmp_path / "run", model=False, progress=False)
    assert run.is_fused
    assert not run.is_trained
    assert "fusion" in repr(run)
    assert run.answer("cleo", "grandparent").known == "cleo 2"
    answers = squire.Reasoner.load(run.folder, hide_held_out=True).answer("cleo", "grandparent", k=5)
    assert answers[0].entity == "cleo 2"
    grounded = [answer.evidence for answer in answers if answer.evidence.grade == "grounded"]
    assert grounded
    graph = family()
    for evidence in grounded:
        assert evidence.probability is None
        for edge in evidence.edges:
            ids = (graph.labels.entity_id(edge.head), graph.labels.relation_id(edge.relation))
            assert edge.is_fact
            assert graph.train.contains(*ids, graph.labels.entity_id(edge.tail))
    by_rule = [
        evidence.rule.confidence for evidence in (answers[0].evidence, *answers[0].further) if evidence.rule
    ]
    assert by_rule == sorted(by_rule, reverse=True)
    only = run.answer("cleo", "grandparent", k=5, grounded=True)
    assert {answer.evidence.grade for answer in only} == {"grounded"}
    evaluation = run.evaluate(split="test", progress=False)
    assert evaluation.rows[0].signature.method == "fused"
    assert evaluation.evidence["grounded"] > 0
    assert len(run.complete(relations=["grandparent"], progress=False))
    for ask in (
        lambda: run.evaluate(ranking="paths", progress=False),
        lambda: run.answer("cleo", "likes", beam=8, ranking="paths"),
    ):
        with pytest.raises(SettingError, match="has no model yet"):
            ask()


def test_settings_are_a_mapping_or_texts(tmp_path: Path) -> None:
    mapping = {key: json.loads(value) for key, value in (setting.split("=") for setting in TINY)}
    for name, given in (("a", TINY), ("b", mapping)):
        run = squire.train(
            family(), tmp_path / name, recipe="small", settings=given, minutes=0, fuse=False, progress=False
        )
        assert not run.is_finished
    assert squire.Run(tmp_path / "a").recipe == squire.Run(tmp_path / "b").recipe


def test_ctrl_c_saves_raises_and_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: ProgressBar, title: str, done: int, *_more: object) -> None:
        if (title, done) == ("epoch 1", 1):
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(ProgressBar, "stage", interrupt)
        with pytest.raises(Interrupted, match=r"stopped at step 1 of .* Resume to continue"):
            squire.train(family(), tmp_path, recipe="small", settings=[*TINY, "train.epochs=2"], fuse=False)
    with pytest.raises(SettingError, match="the run keeps its recipe, settings, rules and splits"):
        squire.train(None, tmp_path, settings=["train.epochs=3"], resume=True)
    with pytest.raises(SettingError, match="a run on another graph"):
        squire.train(squire.load_graph("world"), tmp_path, resume=True, fuse=False)
    run = squire.train(None, tmp_path, resume=True, fuse=False)
    assert run.is_trained
    assert run.is_finished


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"minutes": float("nan")}, "minutes=nan: expected"),
        ({"minutes": -1}, "minutes=-1: expected"),
        ({"device": "gpu"}, "device='gpu': expected"),
        ({"recipe": "smal"}, "unknown recipe 'smal'. Nearest: 'small'"),
    ],
)
def test_a_mistake_leaves_no_folder_behind(options: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises((SettingError, UnknownName), match=words):
        squire.train(family(), tmp_path / "run", progress=False, **options)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_folds_are_bounded() -> None:
    for folds in (1, 1_000_000):
        with pytest.raises(SettingError, match=f"folds={folds}: expected 2 to 100"):
            squire.fuse(fused_run(), folds=folds)
