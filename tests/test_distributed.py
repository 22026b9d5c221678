"""Two processes train like one, agree on when to stop, and hand a run over to one and back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from team_at_work import SAME, STOP_AFTER
from test_train import SMALL, a_trainer, assert_same, ignore, weights_of
from training_cases import VOCAB, small_graph, small_tries

from squire.core.run_files import METRICS
from squire.core.team import ALONE, team
from squire.errors import SettingError
from squire.model.batches import Batches, Masking
from squire.training.trainer import TrainingState

TESTS = Path(__file__).parent


def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Two processes; a port of its own, so that nothing else on the machine is met."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    path = os.pathsep.join([*sys.path, str(TESTS)])
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": path,
        "PYTHONWARNINGS": "error::FutureWarning",
    }
    command = [*launcher, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def losses_of(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    assert [line["step"] for line in steps] == list(range(1, len(steps) + 1))
    return [line["loss"] for line in steps]


def stop(now: TrainingState) -> None:
    if now.step == STOP_AFTER:
        os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `team_at_work` leaves, beside the same runs of one process."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("alone", "begun-alone"):
        (folder / name).mkdir()
    assert a_trainer(folder / "alone", *SAME).fit(ignore)
    assert not a_trainer(folder / "begun-alone", *SAME).fit(stop)
    ended = torchrun(str(TESTS / "team_at_work.py"), str(folder))
    assert ended.returncode == 0, ended.stderr
    return folder


def test_two_processes_have_the_losses_of_one(folder: Path) -> None:
    assert losses_of(folder / "together") == pytest.approx(losses_of(folder / "alone"), rel=1e-4)
    first = a_trainer(folder / "alone", *SAME).model.state_dict()
    together, alone = weights_of(folder / "together"), weights_of(folder / "alone")
    for name, weights in alone.items():
        moved = np.abs(weights - first[name].numpy()).max()
        assert np.abs(weights - together[name]).max() < 0.02 * moved, name
    assert (folder / "together" / METRICS).read_text().count('"mrr"') == 1


def test_one_of_the_shares_was_empty(folder: Path) -> None:
    *_, last = a_trainer(folder / "alone", *SAME).batches.epoch(0)
    assert len(last.shard(0, 2).tokens) == 0


def test_one_process_goes_on_with_the_run_of_two(folder: Path) -> None:
    begun = folder / "begun-together"
    assert losses_of(begun) == pytest.approx(losses_of(folder / "alone")[:STOP_AFTER], rel=1e-4)
    trainer = a_trainer(begun, *SAME)
    trainer.resume()
    assert trainer.step == STOP_AFTER
    assert trainer.fit(ignore)
    assert losses_of(begun) == pytest.approx(losses_of(folder / "alone"), rel=1e-4)


def test_two_processes_go_on_with_the_run_of_one(folder: Path) -> None:
    assert losses_of(folder / "begun-alone") == pytest.approx(losses_of(folder / "alone"), rel=1e-4)


def test_a_resumed_run_of_two_with_dropout_ends_bit_for_bit_like_one_that_was_not_stopped(folder: Path) -> None:
    assert_same(weights_of(folder / "whole"), weights_of(folder / "parts"))


def test_a_loss_that_is_no_number_in_one_process_stops_all(folder: Path) -> None:
    for rank in (0, 1):
        assert "the loss is nan at step 0" in (folder / f"error-{rank}").read_text()


def test_a_mistake_ends_all_processes_with_one_message(tmp_path: Path) -> None:
    out = tmp_path / "run"
    ended = torchrun("-m", "squire", "train", "world", "--out", str(out), "--recipe", "smal")
    assert ended.returncode == 1
    assert ended.stderr.count("error: unknown recipe 'smal'. Nearest: 'small'.") == 1
    assert "another process" not in ended.stderr
    assert ended.stderr.count("Traceback") == 1  # torchrun's own
    assert not out.exists()


def test_the_command_trains_in_two_processes(tmp_path: Path) -> None:
    facts, out = tmp_path / "facts.tsv", tmp_path / "run"
    facts.write_text("".join(f"a{i % 7}\tr{i % 2}\tb{i % 5}\n" for i in range(35)))
    sets = [part for key in SMALL for part in ("--set", key)]
    ended = torchrun("-m", "squire", "train", str(facts), "--out", str(out), *sets)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("recipe small") == ended.stderr.count("trained: ") == 1
    assert losses_of(out)


# ------------------------------------------------------------------------------------------------- one process


def test_without_torchrun_a_team_is_one_process_and_no_group_is_made() -> None:
    with team("cpu") as ours:
        assert ours == ALONE
        assert not torch.distributed.is_initialized()
        with ours.leader_first():
            assert (ours.total(2.5), ours.any(False), ours.any(True)) == (2.5, False, True)


def test_draws_depend_on_the_numbers_and_the_rank_alone() -> None:
    def draw(rank: int, *numbers: int) -> float:
        type(ALONE)(rank, 2).seed(*numbers)
        return torch.rand(()).item()

    assert draw(0, 1, 2) == draw(0, 1, 2)
    assert len({draw(rank, 1, step) for rank in (0, 1) for step in (0, 1, 2**40)}) == 6


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match=r"device='gpu': expected auto, cpu, cuda"), team("gpu"):
        pass
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingError, match=r"device='cuda': .* finds 0 GPUs .* Use the device cpu"), team("cuda"):
        pass
    with team("auto") as ours:
        assert ours.device.type == "cpu"


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_shares_of_a_batch_are_its_rows_and_targets(parts: int) -> None:
    batch = next(Batches(small_tries(small_graph()), VOCAB, 320, Masking(0.2), seed=0).epoch(0))
    rows, columns = batch.tokens.shape
    assert rows == 5  # some of 7 shares are empty
    shares = [batch.shard(part, parts) for part in range(parts)]
    for name in ("tokens", "positions", "visible"):
        assert torch.equal(torch.cat([getattr(share, name) for share in shares]), getattr(batch, name))
    for kind in ("relations", "entities"):
        found, first = [], 0
        for share in shares:
            own = getattr(share, kind)
            source = own.source[own.row] + first * columns
            found += list(zip(source.tolist(), own.token.tolist(), own.weight.tolist(), strict=True))
            assert torch.equal(own.source.unique(), own.source[own.row].unique())
            first += len(share.tokens)
        whole = getattr(batch, kind)
        source = whole.source[whole.row]
        assert found == list(zip(source.tolist(), whole.token.tolist(), whole.weight.tolist(), strict=True))
