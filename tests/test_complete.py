"""Completion can be stopped, killed, shared out and gone on with, and ends as if it had not been."""

from __future__ import annotations

import json
import os
import re
import signal
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from complete_cases import a_job, complete, finish, make_run, rows_of
from graphs import write
from test_distributed import torchrun

from squire.completion.jobs import JOB, Completion, Predictor
from squire.completion.predictions import Prediction
from squire.completion.questions import Questions
from squire.core.processes import locked
from squire.errors import SettingError, UnknownName
from squire.graph.adjacency import Ids
from squire.reasoning.answers import Answer, Edge, Evidence


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def whole(run: Path) -> bytes:
    """What a job that nothing disturbs comes to."""
    out = run.parent / "whole.tsv"
    finish(a_job(run, out))
    return out.read_bytes()


def parts_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("0*.part"))


def interrupt_at(question: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C when the part that begins with this question is begun."""
    predict = Predictor.predict

    def interrupted(self: Predictor, questions: Questions, first: int, end: int) -> Iterator[list[Prediction]]:
        if first == question:
            os.kill(os.getpid(), signal.SIGINT)
        return predict(self, questions, first, end)

    monkeypatch.setattr(Predictor, "predict", interrupted)


# ------------------------------------------------------------------------------------------------- stopping


def test_a_job_that_was_stopped_goes_on_and_ends_the_same(run: Path, whole: bytes, tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    for stop_after in (3, 20, 21):

        def interrupt(_: str, done: int, total: int | None, at: int = stop_after) -> None:
            if done == at:
                os.kill(os.getpid(), signal.SIGINT)

        job = a_job(run, out)
        with job.begun():
            assert not job.work(interrupt)
        assert parts_in(job.folder) == [f"{i:08}.part" for i in range(stop_after // 8)]
        assert not out.exists()
    (job.folder / ".123.00000002.part").write_text("half a part, left by a kill")
    job = a_job(run, out)
    seen: list[int] = []
    with job.begun():
        assert job.work(lambda _, done, total: seen.append(done))
        job.join()
    assert seen == list(range(16, len(job.questions) + 1))  # what was finished is not answered again
    assert out.read_bytes() == whole
    assert not job.folder.exists()


def full_disk(_: Path) -> None:
    raise OSError("the disk is full")


def test_a_fault_while_joining_loses_nothing(
    run: Path, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.tsv"
    with monkeypatch.context() as patch:
        patch.setattr("squire.completion.predictions.create_bytes", full_disk)
        with pytest.raises(OSError, match="disk is full"):
            finish(a_job(run, out))
    job = a_job(run, out)
    with job.begun():
        assert job.missing() == []
        job.join()
    assert out.read_bytes() == whole


def test_parts_that_are_elsewhere_are_missed(run: Path, tmp_path: Path) -> None:
    job = a_job(run, tmp_path / "out.tsv")
    with job.begun():
        assert job.work(lambda *_: None)
        next(job.folder.glob("0*.part")).unlink()
        with pytest.raises(SettingError, match=r"1 of \d+ parts are not in .*one file system"):
            job.join()
    assert job.folder.exists()


class Numbers:
    """So many questions that nobody looks at."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.about: dict[str, object] = {}

    def __len__(self) -> int:
        return self._count

    def between(self, first: int, end: int) -> Ids:
        raise AssertionError


def test_memory_does_not_grow_with_the_questions(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge = Edge("a", "r" * 1000, "b", backwards=False, is_fact=True, probability=1.0)

    def predict(_: Predictor, questions: Questions, first: int, end: int) -> Iterator[list[Prediction]]:
        for number in range(first, end):
            evidence = Evidence((edge,), "grounded", 1.0, 1.0, None)
            answers = (Answer(rank, "b", 0.5, False, evidence, (), 1, 0.0) for rank in range(50))
            yield [Prediction(number % 10, 0, 0, answer) for answer in answers]

    monkeypatch.setattr(Predictor, "predict", predict)
    peaks = []
    predictor = a_job(run, tmp_path / "none.tsv").predictor
    for name, count in (("few", 25), ("many", 150)):
        job = Completion(predictor, Numbers(count), tmp_path / f"{name}.tsv", part=4)
        tracemalloc.start()
        finish(job)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (tmp_path / "many.tsv").stat().st_size > 5 * peaks[1]
    assert peaks[1] < 1.2 * peaks[0]


# ------------------------------------------------------------------------------------------------- other jobs


def test_parts_of_another_job_are_noticed_and_left_alone(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    first = a_job(run, out)
    with first.begun():
        assert first.work(lambda *_: None)
    before = parts_in(first.folder)
    others = [
        (a_job(run, out, {"k": 5}), r"answers 3, now 5"),
        (a_job(run, out, heads="known"), r"questions 60, now 35, heads \"all\", now \"known\""),
        (a_job(run, out, part=9), r"part 8, now 9"),
        (a_job(make_run(tmp_path / "other", seed=1), out), r"model \"\w+…, now \"\w+…"),
    ]
    for other, differs in others:
        with (
            pytest.raises(SettingError, match=rf"out.tsv.parts holds parts of another job \(.*{differs}"),
            other.begun(),
        ):
            pass
        assert parts_in(first.folder) == before
    with (
        pytest.raises(SettingError, match="Finish that with its own command, remove the folder, or"),
        other.begun(),
    ):
        pass
    finish(a_job(run, out))


@pytest.mark.parametrize("content", ["{", "[1]", None])
def test_a_folder_of_other_things_is_not_taken_over(run: Path, tmp_path: Path, content: str | None) -> None:
    folder = tmp_path / "out.tsv.parts"
    write(folder / "thesis.txt", "years of work")
    if content is not None:
        write(folder / JOB, content)
    names = {file.name for file in folder.iterdir()}
    with pytest.raises(SettingError, match=r"out.tsv.parts is needed for its parts but holds something else"):
        finish(a_job(run, tmp_path / "out.tsv"))
    assert {file.name for file in folder.iterdir()} == names


def test_two_cannot_work_at_one_output_at_once(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    job = a_job(run, tmp_path / "out.tsv")
    with locked(job.folder), pytest.raises(SettingError, match=r".*: another process is working there"):
        finish(job)
    finish(job)


# ------------------------------------------------------------------------------------------------- the command


def test_the_command_stops_and_goes_on(
    run: Path, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.tsv"
    monkeypatch.setattr("squire.completion.jobs.PART", 8)
    with monkeypatch.context() as patch:
        interrupt_at(16, patch)
        stopped = complete(run, "--heads", "all", "-o", out)
    assert stopped.exit_code == 130
    assert "run the same command again to continue" in stopped.output
    assert parts_in(tmp_path / "out.tsv.parts") == ["00000000.part", "00000001.part"]
    ended = complete(run, "--heads", "all", "-o", out)
    assert ended.exit_code == 0, ended.output
    assert "predictions from 60 questions" in ended.output
    assert out.read_bytes() == whole
    assert [file.name for file in tmp_path.iterdir()] == ["out.tsv"]


def test_two_processes_go_on_with_what_one_has_begun(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.tsv"
    lines = "".join(f"p{i % 14:02}\tknows\n" for i in range(1300))  # six parts, the last one short
    asked = write(tmp_path / "asked.tsv", lines)
    options = ("--queries", asked, "-k", 2, "-o")
    assert complete(run, *options, tmp_path / "alone.tsv").exit_code == 0
    interrupt_at(256, monkeypatch)
    assert complete(run, *options, out).exit_code == 130
    assert parts_in(tmp_path / "out.tsv.parts") == ["00000000.part"]
    ended = torchrun("-m", "squire", "complete", str(run), *map(str, options), str(out))
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("predictions from 1,300 questions") == 1
    assert not (tmp_path / "out.tsv.parts").exists()
    together, alone = rows_of(out), rows_of(tmp_path / "alone.tsv")
    assert [row[:4] for row in together] == [row[:4] for row in alone]
    scores = [[float(row[4]) for row in rows[1:]] for rows in (together, alone)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)


def test_relations_and_questions_can_be_chosen(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    assert complete(run, "--relation", "likes", "--relation", "foaf:name", "-k", 1, "-o", out).exit_code == 0
    assert {row[1] for row in rows_of(out)[1:]} == {"likes", "http://xmlns.com/foaf/0.1/name"}
    asked = write(tmp_path / "asked.tsv", "?\tknows\tp01\np02\tlikes\n")
    result = complete(run, "--queries", asked, "-k", 2, "-o", out, "--force", "--grounded")
    assert result.exit_code == 0, result.output
    rows = rows_of(out)[1:]
    assert [(row[2] if row[1] == "knows" else row[0], row[1], row[3]) for row in rows] == [
        ("p01", "knows", "1"), ("p01", "knows", "2"), ("p02", "likes", "1"), ("p02", "likes", "2"),
    ]  # fmt: skip
    assert {row[5] for row in rows} == {"grounded"}


def test_mistakes_are_told_before_any_work(run: Path, tmp_path: Path) -> None:
    there = write(tmp_path / "there.tsv", "precious")
    nowhere = tmp_path / "nowhere"
    mistakes = [
        ((run, "-o", "out.csv"), SettingError, r"output='out.csv': expected .* ends in .parquet, .tsv, .nt"),
        ((run, "-o", there), SettingError, r"output=.*there.tsv': exists. .* force=True"),
        ((run, "-o", tmp_path / "x.nt", "--relation", "knwos"), UnknownName, r"'knwos'. Nearest: 'knows'"),
        (
            (run, "-o", tmp_path / "x.nt", "--relation", "knows", "--queries", there),
            SettingError,
            r"Leave out rel",
        ),
        ((run, "-o", tmp_path / "x.nt", "--heads", "all", "--queries", there), SettingError, r"Leave out heads"),
        ((nowhere, "-o", tmp_path / "x.nt"), SettingError, r"nowhere: no run here"),
    ]
    for arguments, kind, says in mistakes:
        result = complete(*arguments)
        assert isinstance(result.exception, kind), result.output
        assert re.search(says, str(result.exception))
    assert [file.name for file in tmp_path.iterdir()] == ["there.tsv"]
    assert there.read_text() == "precious"


def test_a_job_knows_itself_by_what_decides_its_answers(run: Path, tmp_path: Path) -> None:
    job = a_job(run, tmp_path / "out.tsv")
    with job.begun():
        about = json.loads((job.folder / JOB).read_text())
    assert about["questions"] == len(job.questions)
    assert (about["answers"], about["beam"], about["aggregate"], about["heads"]) == (3, 8, "sum", "all")
