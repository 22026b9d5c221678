"""TensorBoard gets the curves where it is installed, and is not missed where it is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_train import a_trainer, ignore

from squire.core.run_files import METRICS, TENSORBOARD
from squire.training import tensorboard as curves
from squire.training.tensorboard import Curves
from squire.training.trainer import Moment


def points_of(folder: Path, name: str) -> list[tuple[int, float]]:
    """As TensorBoard reads them: what a resumed run does again is there once."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder / TENSORBOARD), {"scalars": 0})
    found.Reload()
    return [(event.step, event.value) for event in found.Scalars(name)]


def test_a_resumed_run_continues_its_curves(tmp_path: Path) -> None:
    def interrupt(now: Moment) -> None:
        if now.step == 5:
            trainer.save()
        if now.step == 8:
            raise SystemExit  # three steps are lost

    trainer = a_trainer(tmp_path, "train.epochs=1")
    with pytest.raises(SystemExit):
        trainer.fit(interrupt)
    trainer = a_trainer(tmp_path, "train.epochs=1")
    trainer.resume()
    assert trainer.step == 5
    trainer.fit(ignore)
    lines = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
    steps = list(range(1, trainer.total_steps + 1))
    for name in ("loss", "learning_rate", "nodes_per_second"):
        assert [step for step, _ in points_of(tmp_path, name)] == steps
    assert dict(points_of(tmp_path, "loss")) == pytest.approx(losses)
    assert dict(points_of(tmp_path, "valid_mrr")) == pytest.approx({trainer.step: trainer.best_mrr})


def test_without_tensorboard_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "find_spec", lambda _: None)
    with Curves(tmp_path / TENSORBOARD, 0) as board:
        board.add(1, loss=1.0)
    assert not any(tmp_path.iterdir())


def test_squire_is_imported_without_it_and_without_matplotlib() -> None:
    late = ("tensorboard", "torch", "matplotlib")
    code = f"import sys, squire.cli; print([name for name in {late} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
