"""Decisions of people correct confidence: the fit is the plain one, and other facts gain from it."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from graphs import LabelTriple, make_graph

import squire
from squire.errors import DataError
from squire.ranking.recalibration import (
    LEAST_SLOPE,
    MIN_DECISIONS,
    SHIFT_SPREAD,
    SLOPE_SPREAD,
    Recalibration,
)
from squire.server.models import Model, Options
from squire.studies import Review


def newton(confidence: Sequence[float], accepted: Sequence[bool]) -> tuple[float, float]:
    """The same by Newton's method, one decision after the other."""
    slope, shift = 1.0, 0.0
    for _ in range(100):
        g = [(slope - 1) / SLOPE_SPREAD**2, shift / SHIFT_SPREAD**2]
        h = [[1 / SLOPE_SPREAD**2, 0.0], [0.0, 1 / SHIFT_SPREAD**2]]
        for p, is_true in zip(confidence, accepted, strict=True):
            x = math.log(p / (1 - p))
            q = 1 / (1 + math.exp(-(slope * x + shift)))
            for i, one in enumerate((x, 1.0)):
                g[i] += (q - is_true) * one
                for j, other in enumerate((x, 1.0)):
                    h[i][j] += q * (1 - q) * one * other
        determinant = h[0][0] * h[1][1] - h[0][1] * h[1][0]
        slope -= (h[1][1] * g[0] - h[0][1] * g[1]) / determinant
        shift -= (h[0][0] * g[1] - h[1][0] * g[0]) / determinant
    return slope, shift


@pytest.mark.parametrize(("true_slope", "true_shift"), [(1, 0), (0.5, -1), (1.5, 1), (0.3, -2)])
def test_the_fit_is_that_of_newton(true_slope: float, true_shift: float) -> None:
    rng = np.random.default_rng(4)
    confidence = rng.uniform(0.05, 0.95, 400)
    odds = np.exp(true_slope * np.log(confidence / (1 - confidence)) + true_shift)
    accepted = rng.random(400) < odds / (1 + odds)
    found = Recalibration.fit(confidence, accepted)
    assert found is not None
    assert (found.slope, found.shift) == pytest.approx(newton(confidence.tolist(), accepted.tolist()), abs=1e-3)
    assert found.slope == pytest.approx(true_slope, abs=0.35)
    assert found.shift == pytest.approx(true_shift, abs=0.35)
    assert found.decisions == 400


def test_few_decisions_or_one_kind_change_nothing_and_the_order_stays() -> None:
    confidence, accepted = np.linspace(0.1, 0.9, MIN_DECISIONS), np.arange(MIN_DECISIONS) % 2 == 0
    assert Recalibration.fit(confidence[1:], accepted[1:]) is None
    assert Recalibration.fit(confidence, np.ones(MIN_DECISIONS, bool)) is None
    assert Recalibration.fit(confidence, np.zeros(MIN_DECISIONS, bool)) is None
    backwards = Recalibration.fit(np.tile(confidence, 9), np.tile(confidence < 0.5, 9))  # against all reason
    assert backwards is not None
    assert backwards.slope == LEAST_SLOPE
    shown = backwards(np.linspace(0, 1, 101))
    assert np.all(np.diff(shown) > 0)
    assert 0 < shown[0] < shown[-1] < 1


COUNT = 300


def truth_and_graph() -> tuple[set[LabelTriple], list[LabelTriple]]:
    """Each a has its b by r1. Where r2 is missing, it would be right for a quarter only."""
    rng = np.random.default_rng(0)
    true: set[LabelTriple] = set()
    known: list[LabelTriple] = []
    for i in range(COUNT):
        known += [(f"a{i}", "r1", f"b{i}"), (f"b{i}", "colour", f"colour {i % 3}")]
        if rng.random() < 0.6:
            known.append((f"a{i}", "r2", f"b{i}"))
        elif rng.random() < 0.25:
            true.add((f"a{i}", "r2", f"b{i}"))
    return true, known


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> squire.Run:
    """It takes two fifths of all facts for missing, which is far too many."""
    folder, graph = tmp_path_factory.mktemp("decided") / "run", make_graph({"train": truth_and_graph()[1]})
    return squire.train(graph, folder, model=False, missing=0.4, progress=False)


def predictions(run: squire.Run) -> list[LabelTriple]:
    known = set(truth_and_graph()[1])
    return [fact for i in range(COUNT) if (fact := (f"a{i}", "r2", f"b{i}")) not in known]


def brier(run: squire.Run, facts: Sequence[LabelTriple]) -> float:
    true = truth_and_graph()[0]
    found = [run.check(*fact).confidence for fact in facts]
    return float(np.mean([(one - (fact in true)) ** 2 for one, fact in zip(found, facts, strict=True)]))


def test_decisions_improve_the_confidence_of_other_facts(run: squire.Run) -> None:
    facts, (true, _) = predictions(run), truth_and_graph()
    decided, others = facts[:MIN_DECISIONS], facts[MIN_DECISIONS:]
    assert len(others) >= 30
    before = brier(run, others)
    model = Model.load("made", run)
    for number, fact in enumerate(decided, 1):
        said = model.decide(*fact, "accept" if fact in true else "reject")
        assert said["counted"] == (MIN_DECISIONS if number == MIN_DECISIONS else 0)
    Review(run.reasoner).decide("a0", "r1", "b0", "reject")  # a fact of the graph is no prediction
    again = squire.Run(run.folder)
    after = brier(again, others)
    assert after < 0.5 * before
    answers = again.answer(others[0][0], "r2", k=1)
    assert answers.origin.decisions == MIN_DECISIONS
    assert answers.as_dict()["origin"]["decisions"] == MIN_DECISIONS
    assert f"takes {MIN_DECISIONS} decisions" in model.card()["description"]
    query = model.query(others[0][0], "r2")
    assert f'"decisions":{MIN_DECISIONS}'.encode() in model.answer_all([query], Options(k=1))[0].replace(
        b": ", b":"
    )
    # What was accepted is a fact by now, and is judged as if it were not.
    accepted = [fact for fact in decided if fact in true]
    again.add(accepted, progress=False)
    assert squire.Run(run.folder).reasoner.decisions == MIN_DECISIONS
    for fact in decided:
        Review(again.reasoner).decide(*fact, "undo")
    assert squire.Run(run.folder).reasoner.decisions == 0


def test_a_broken_file_of_decisions_says_where(run: squire.Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    (folder / "review").mkdir(exist_ok=True)
    (folder / "review" / "decisions.jsonl").write_text('{"study": "review"}\nnonsense\n')
    with pytest.raises(DataError, match=r"decisions.jsonl:2: not a decision"):
        _ = squire.Run(folder).reasoner
