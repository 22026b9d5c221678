"""Calibrated rank scores: the probability that an answer is right if one is missing, by isotonic regression.

The map is fitted on valid, and holds for queries like those of valid, each of which has an answer that the graph
lacks. An answer that is true but in no held-out split counts as false. Whether a fact is true, whatever made
somebody ask, is the question of `confidence`.

Answers that only test has would count as false too, and test must not be looked at. But valid tells how many there
are. Split it into random halves: for a query with n answers in valid, a given answer is in the second half, while
the first half contains the query, with probability 1/2 − 2⁻ⁿ. Test is as large as two halves. So a true answer
stands for 1 − 2¹⁻ⁿ others that only test has, and that many are not counted as false (`unseen`). If test is
smaller, there are fewer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

CELL = 25  # minimum number of answers behind a step of the map
MIN_CELLS = 8  # minimum number of cells for a kind to have its own map
BINS = 10


@dataclass(frozen=True)
class Calibration:
    """A map from rank score to probability, given by its knots and linear in between."""

    score: Floats  # (knot), rising
    truth: Floats  # (knot): share of such answers that were true, never falling
    count: Floats  # (knot): number of answers; 0 if there were none to fit

    @classmethod
    def fit(cls, score: Floats, is_true: Bools, unseen: Floats | None = None) -> Calibration:
        """Fit to answers, (answer) each; without any, the confidence is the rank score.

        `unseen` is how many other true answers each stands for that only test has.
        """
        from scipy.optimize import isotonic_regression  # slow to import, and not needed to answer

        if not len(score):
            return cls(np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.zeros(2))
        cell_score, cell_truth, cell_count = _cells(
            score, is_true, np.zeros(len(score)) if unseen is None else unseen
        )
        firsts = isotonic_regression(cell_truth, weights=cell_count).blocks[:-1]
        count = np.add.reduceat(cell_count, firsts)
        middle = np.add.reduceat(cell_score * cell_count, firsts) / count
        true = np.add.reduceat(cell_truth * cell_count, firsts)
        # Half an answer more on either side, so that 25 of 25 is not certainty; the map must not fall for this.
        truth = np.maximum.accumulate((true + 0.5) / (count + 1))
        return cls(middle, truth, count)

    def confidence(self, score: Floats) -> Floats:
        """The probability that answers with these rank scores are true.  any shape"""
        return np.asarray(np.interp(score, self.score, self.truth))


@dataclass(frozen=True)
class Calibrations:
    """One map for each kind of answer.

    The first answer of a list is true more often than another with the same rank score, and queries for heads have
    more right answers than queries for tails.
    """

    maps: tuple[Calibration, ...]  # (kind)

    @classmethod
    def fit(cls, score: Floats, is_true: Bools, unseen: Floats, kind: Ints, kinds: int) -> Calibrations:
        """Fit to answers, (answer) each. A kind with few answers gets the map of all."""
        enough = [np.sum(kind == one) >= MIN_CELLS * CELL for one in range(kinds)]
        chosen = [kind == one if enough[one] else np.ones(len(kind), bool) for one in range(kinds)]
        return cls(tuple(Calibration.fit(score[own], is_true[own], unseen[own]) for own in chosen))

    def confidence(self, score: Floats, kind: Ints) -> Floats:
        """(answer), (answer) -> (answer)"""
        out = np.zeros(len(score))
        for one, own in enumerate(self.maps):
            out[kind == one] = own.confidence(score[kind == one])
        return out


def _cells(score: Floats, is_true: Bools, unseen: Floats) -> tuple[Floats, Floats, Floats]:
    """Group neighbouring answers, at least CELL at a time: mean score, share of true ones, and their number.

    The unseen true answers are subtracted from the false ones, of which there may not be enough.
    """
    values, which, counts = np.unique(score, return_inverse=True, return_counts=True)
    before = np.cumsum(counts) - counts
    last = max(len(score) // CELL - 1, 0)  # the remainder goes to the last cell
    _, cell = np.unique(np.minimum(before // CELL, last), return_inverse=True)
    count = np.bincount(cell, counts).astype(np.float64)
    true = np.bincount(cell[which], is_true)
    middle = np.bincount(cell, values * counts) / count
    count = np.maximum(count - np.bincount(cell[which], unseen), np.maximum(true, 1))
    return middle, true / count, count


@dataclass(frozen=True)
class Reliability:
    """Confidence compared with truth, in bins of equal size."""

    confidence: list[float]  # (bin): the mean
    truth: list[float]  # (bin): the share that was true
    count: list[int]  # (bin)
    brier: float  # the mean squared difference of confidence and truth

    @classmethod
    def from_answers(cls, confidence: Floats, is_true: Bools, bins: int = BINS) -> Reliability:
        """(answer), (answer)"""
        order = np.argsort(confidence, kind="stable")
        parts = [part for part in np.array_split(order, bins) if len(part)]
        return cls(
            [float(confidence[part].mean()) for part in parts],
            [float(is_true[part].mean()) for part in parts],
            [len(part) for part in parts],
            float(np.mean((confidence - is_true) ** 2)) if len(confidence) else 0.0,
        )

    @property
    def error(self) -> float:
        """The expected calibration error: the mean gap between a bin's confidence and its truth."""
        gaps = np.abs(np.subtract(self.confidence, self.truth))
        return float(np.average(gaps, weights=self.count)) if self.count else 0.0

    @property
    def says(self) -> float:
        """The mean confidence."""
        return float(np.average(self.confidence, weights=self.count)) if self.count else 0.0

    @property
    def true(self) -> float:
        """The share that was true: the base rate."""
        return float(np.average(self.truth, weights=self.count)) if self.count else 0.0

    @property
    def base_brier(self) -> float:
        """The Brier score of saying the base rate everywhere, which is calibrated and useless."""
        return self.true * (1 - self.true)

    def as_dict(self) -> dict[str, Any]:
        figures = {name: getattr(self, name) for name in ("error", "says", "true", "base_brier")}
        return {"answers": sum(self.count), **figures, **asdict(self)}
