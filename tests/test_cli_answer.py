"""`squire answer` as a user meets it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from small_run import HOSTILE, fused_run, small_run
from typer.testing import CliRunner

import squire
from squire.cli import app
from squire.cli.runs import print_answers
from squire.errors import SettingError, SquireError, UnknownName
from squire.reasoning.reasoner import Reasoner


def run(*arguments: object, fails_with: type[SquireError] | None = None, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["answer", *map(str, arguments)])
    if fails_with:
        assert isinstance(result.exception, fails_with), result.output
        return str(result.exception)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def test_answers_come_with_their_scores_grades_and_paths() -> None:
    text = run(small_run(), "cleo", "grandparent", "-k", 3)
    found = Reasoner.load(small_run()).answer("cleo", "grandparent", k=3)
    lines = text.splitlines()
    assert lines[0] == "(cleo, grandparent, ?)"
    for answer in found:
        title = f"{answer.rank:3}. {answer.entity}  {answer.summary}"
        assert lines[lines.index(title) + 1] == f"       {answer.sentence}"
        path = lines[lines.index(title) + 2]
        assert path.startswith("       cleo ")
        assert path.endswith(f" {answer.entity}")
        assert path.count("──") == 2 * sum(edge.is_fact for edge in answer.evidence.edges)
        assert path.count("╌╌") == 2 * sum(not edge.is_fact for edge in answer.evidence.edges)
        assert path.count("◀") == sum(edge.backwards for edge in answer.evidence.edges)
        assert path.count("◀") + path.count("▶") == len(answer.evidence.edges)
        for edge in answer.evidence.edges:
            assert edge.relation in path
        if answer.evidence.rule:
            rule = lines[lines.index(title) + 3]
            assert rule == f"       rule: {answer.evidence.rule.text}  {answer.evidence.rule.confidence:.2f}"


def test_a_question_mark_asks_for_the_head() -> None:
    text = run(small_run(), "?", "grandparent", "finn 2")
    assert text.startswith("(?, grandparent, finn 2)\n")
    assert re.search(r"  1\. \S", text)
    assert run(small_run(), "cleo", "grandparent", "?") == run(small_run(), "cleo", "grandparent")


def test_what_the_graph_says_comes_first_unless_only_new_answers_are_wanted() -> None:
    question = small_run(), "?", "likes", HOSTILE
    assert run(*question).splitlines()[1] == "     The graph says: hal"
    assert "The graph says" not in run(*question, "--new-only")
    assert run(*question).splitlines()[2:] == run(*question, "--new-only").splitlines()[1:]


def test_grounded_paths_have_no_dashes() -> None:
    text = run(small_run(), "cleo", "grandparent", "--grounded", "-k", 9)
    assert "──" in text
    assert "╌╌" not in text
    assert "completed" not in text


def test_more_paths_of_each_answer() -> None:
    one, three = (run(small_run(), HOSTILE, "grandparent", "--paths", paths) for paths in (1, 3))
    starts = f"       {HOSTILE} "
    assert one.count(starts) == 5
    assert 5 < three.count(starts) <= 15


def test_json_is_what_python_gives() -> None:
    content = json.loads(
        run(small_run(), "cleo", "grandparent", "-k", 2, "--beam", 4, "--aggregate", "max", "--json")
    )
    found = Reasoner.load(small_run()).answer("cleo", "grandparent", k=2, beam=4, aggregate="max")
    assert content == json.loads(json.dumps(found.as_dict()))
    assert (content["origin"]["beam"], content["origin"]["aggregate"]) == (4, "max")


def test_no_answer_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    found = Reasoner.load(small_run()).answer("cleo", "grandparent", k=1)
    print_answers(replace(found, facts=(), answers=()))
    assert capsys.readouterr().out == "(cleo, grandparent, ?)\nno path leads to a new answer\n"


def test_mistakes_are_told() -> None:
    folder = small_run()
    assert "unknown entity 'adda'. Nearest: 'ada" in run(folder, "adda", "likes", fails_with=UnknownName)
    assert "unknown relation 'like'. Nearest: 'likes'" in run(folder, "cleo", "like", fails_with=UnknownName)
    assert "give either head or tail" in run(folder, "cleo", "likes", "dan", fails_with=SettingError)
    assert "give either head or tail" in run(folder, "?", "likes", fails_with=SettingError)
    assert "no run here" in run(folder / "none", "cleo", "likes", fails_with=SettingError)


@pytest.mark.parametrize(
    "wrong", [["-k", "0"], ["--beam", "0"], ["--aggregate", "mean"], ["--paths", "0"], ["--paths", "6"]]
)
def test_options_out_of_range_are_wrong_usage(wrong: list[str]) -> None:
    assert wrong[0] in run(small_run(), "cleo", "likes", *wrong, code=2)


def test_a_mistake_ends_in_one_message_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "squire", "answer", str(tmp_path), "cleo", "likes"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "200"}
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip().startswith(f"error: {tmp_path}: no run here. Run `squire train")
    assert "Traceback" not in done.stderr


def test_names_cannot_command_the_terminal(tmp_path: Path) -> None:
    folder, hostile = tmp_path / "run", "red\x1b[31m \u202eevil"
    shutil.copytree(fused_run(), folder)
    squire.Run(folder).add([(hostile, "likes", "ada")])
    answered = CliRunner().invoke(app, ["answer", str(folder), hostile, "grandparent", "-k", "1"])
    connected = CliRunner().invoke(app, ["connect", str(folder), hostile, "ada"])
    for done in (answered, connected):
        assert done.exit_code == 0, done.output
        assert r"red\x1b[31m \u202eevil" in done.stdout
        assert not {"\x1b", "\u202e"} & set(done.stdout)
