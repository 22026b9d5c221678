"""How right confidences are for ordinary questions, most of which have no missing answer.

The run answers as if it knew train alone. An answer counts as true if a held-out split has it, so true facts that
the data do not have count as false.
"""

from __future__ import annotations

import numpy as np

from squire.core.progress import Progress, no_progress
from squire.core.relations import is_inverse
from squire.graph.graph import Graph
from squire.ranking.calibration import Reliability
from squire.ranking.context import KINDS, OrdinaryQuestions
from squire.ranking.fusion import Fusion

QUESTIONS = 6_000
SIDES = ("tails", "heads")
FIRST_TEN = 10


def judge_ordinary_questions(
    fusion: Fusion,
    graph: Graph,
    split: str,
    seed: int = 0,
    questions: int = QUESTIONS,
    progress: Progress = no_progress,
) -> dict[str, Reliability]:
    """Reliability of the first answers to all questions, of the first ten, and of each kind, for tails and heads.

    split: "valid" counts the facts of valid as true, and leaves out those of test; "test" counts both.
    """
    splits = ("valid",) if split == "valid" else ("valid", "test")
    others = graph.known("test") if split == "valid" else None
    ordinary = OrdinaryQuestions(graph.train, seed)
    queries = ordinary.sample(questions)
    kinds, truth = ordinary.kinds(queries), graph.known(*splits)
    shown: list[tuple[np.ndarray, ...]] = []  # confidence, truth, kind, whether a head is asked for, whether first
    done = 0
    for block in fusion.rank(queries, without=others, held_out=splits):
        lists = block.lists
        head, relation = lists.queries[lists.query].T
        true = truth.contains_each(head, relation, lists.candidates)
        position = lists.positions(block.scores)
        rows = np.flatnonzero(position < FIRST_TEN)
        kind = kinds[done : done + len(lists)][lists.query[rows]]
        is_head = is_inverse(relation[rows], graph.num_relations)
        shown.append((block.confidence[rows], true[rows], kind, is_head, position[rows] == 0))
        done += len(lists)
        progress("ordinary questions", done, len(queries))
    says, true, kind, heads, first = map(np.concatenate, zip(*shown, strict=True))
    out = {
        "first 1": Reliability.from_answers(says[first], true[first]),
        "first 10": Reliability.from_answers(says, true),
    }
    for number, name in enumerate(KINDS):
        for side, chosen in zip(SIDES, (~heads, heads), strict=True):
            own = first & chosen & (kind == number)
            out[f"{name}, {side}"] = Reliability.from_answers(says[own], true[own])
    return out
