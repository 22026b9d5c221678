"""What each of two processes does for test_distributed.py: several runs in a row, because to start takes seconds.

torchrun … team_at_work.py FOLDER
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
from test_train import a_graph, a_recipe, ignore

from squire.core.team import Team, team
from squire.errors import TrainingError
from squire.model.batches import Batch
from squire.training.preparation import prepare
from squire.training.trainer import Trainer

# Without dropout a share of a batch has the loss that its rows had in the whole.
SAME: tuple[str, ...] = ("model.dropout=0", "model.input_dropout=0", "model.output_dropout=0", "train.epochs=1")
SAME += ("paths.per_triple=6", "paths.edge_weight=6", "paths.fresh=false", "train.fact_passes=0")
SAME += (
    "train.hold_back=false",
    "train.batch_nodes=192",
    "train.seed=2",
)  # 112 rows, 3 a batch: the last leaves one process without
STOP_AFTER = 3


def trainer_in(folder: Path, ours: Team, *overrides: str) -> Trainer:
    graph, recipe = a_graph(), a_recipe(*overrides)
    with ours.leader_first():
        folder.mkdir(exist_ok=True)
        tries = prepare(graph, recipe, folder, lambda *_: None)
    return Trainer(graph, recipe, tries, folder, ours)


def work(folder: Path, ours: Team) -> None:
    assert trainer_in(folder / "together", ours, *SAME).fit(ignore)

    trainer = trainer_in(folder / "begun-together", ours, *SAME)
    stop_by_a_follower(trainer)
    assert not trainer.fit(ignore)
    assert trainer.step == STOP_AFTER

    trainer = trainer_in(folder / "begun-alone", ours, *SAME)
    trainer.resume()
    assert trainer.step == STOP_AFTER
    assert trainer.fit(ignore)

    dropping = ("model.dropout=0.2", "train.epochs=1", "train.batch_nodes=512")
    assert trainer_in(folder / "whole", ours, *dropping).fit(ignore)
    trainer = trainer_in(folder / "parts", ours, *dropping)
    stop_by_a_follower(trainer)
    assert not trainer.fit(ignore)
    trainer = trainer_in(folder / "parts", ours, *dropping)
    trainer.resume()
    assert trainer.fit(ignore)

    trainer = trainer_in(folder / "not-a-number", ours, *SAME)
    break_a_follower(trainer)
    try:
        trainer.fit(ignore)
    except TrainingError as error:
        (folder / f"error-{ours.rank}").write_text(str(error))


def stop_by_a_follower(trainer: Trainer) -> None:
    """Ctrl-C reaches the last process alone, in the middle of a step."""
    update = trainer._update

    def and_interrupt(batch: Batch, rate: float) -> float:
        if trainer.step == STOP_AFTER - 1 and not trainer.team.leads:
            os.kill(os.getpid(), signal.SIGINT)
        return update(batch, rate)

    trainer._update = and_interrupt  # type: ignore[method-assign]


def break_a_follower(trainer: Trainer) -> None:
    """The weights of the last process alone are no numbers any more."""
    if not trainer.team.leads:
        with torch.no_grad():
            trainer.model.embedding.weight.fill_(float("nan"))


if __name__ == "__main__":
    with team() as ours:
        assert ours.size == 2
        work(Path(sys.argv[1]), ours)
