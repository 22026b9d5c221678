"""What each of two processes does for test_iterate_runs.py: go on with a run that was stopped while gathering.

torchrun … team_iterating.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from iterate_cases import BLOCK, TWO
from team_at_work import trainer_in
from test_train import ignore

from squire.core.team import Team, team
from squire.graph.adjacency import Ids
from squire.model.transformer import Transformer
from squire.training import iterative as iterate
from squire.training.iterative import Facts, PathCollection


def note_blocks(folder: Path, ours: Team) -> None:
    """Who draws which block."""
    drawing = PathCollection.draw_prefixes

    def noted(own: PathCollection, model: Transformer, facts: Facts, first: int, last: int) -> Ids:
        with (folder / "drawn.jsonl").open("a") as file:
            file.write(json.dumps({"rank": ours.rank, "iteration": own.iteration, "first": first}) + "\n")
        return drawing(own, model, facts, first, last)

    PathCollection.draw_prefixes = noted  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    with team() as ours:
        assert ours.size == 2
        iterate.BLOCK, iterate.HYPOTHESES_AT_ONCE = BLOCK, 24
        folder = Path(sys.argv[1])
        note_blocks(folder, ours)
        trainer = trainer_in(folder, ours, *TWO)
        trainer.resume()
        assert trainer.fit(ignore)
