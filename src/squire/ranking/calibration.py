"""From what the ranker says to how often that was true: a rising map, fitted on valid, checked elsewhere.

Isotonic regression of the truth on the chance that the softmax over a list gives an answer. Knows chances and
truths. A confidence holds for questions like those it was fitted on, of which each has an answer that the graph
lacks; what is true but in no held-out triple counted as false.

Test is such a place too, and may not be looked at. But valid tells how often an answer is there. Divide it into
halves by chance: of a question with n answers in valid, a given one is in the second half, while the first half
asks the question, with probability 1/2 − 2⁻ⁿ. Test is as large as two halves. So a true answer stands for
1 − 2¹⁻ⁿ others that only test has, and so many are not counted as false (`elsewhere`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

FEW = 8  # cells that a map of its own must have
CELL = 25  # answers that a step of the map rests on at least
BINS = 10


@dataclass(frozen=True)
class Calibration:
    """A map by its knots, straight in between."""

    chance: Floats  # (knot), rising
    truth: Floats  # (knot): share of such answers that were true, never falling
    count: Floats  # (knot): answers that it rests on; 0 if nothing was there to fit

    @classmethod
    def fit(cls, chance: Floats, is_true: Bools, elsewhere: Floats | None = None) -> Calibration:
        """From answers, (answer) each; without any, a chance is believed as it is.

        `elsewhere` is how many other true answers each stands for that look false only from here.
        """
        if not len(chance):
            return cls(np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.zeros(2))
        cell_chance, cell_truth, cell_count = _cells(
            chance, is_true, np.zeros(len(chance)) if elsewhere is None else elsewhere
        )
        block = pool(cell_truth, cell_count)
        count = np.bincount(block, cell_count).astype(np.float64)
        middle = np.bincount(block, cell_chance * cell_count) / count
        true = np.bincount(block, cell_truth * cell_count)
        # Half a case either way, so that 25 of 25 is not certainty; few cases at the end must not make it fall.
        truth = np.maximum.accumulate((true + 0.5) / (count + 1))
        return cls(middle, truth, count)

    def confidence(self, chance: Floats) -> Floats:
        """The probability that answers of such chances are true.  any shape"""
        return np.asarray(np.interp(chance, self.chance, self.truth))


@dataclass(frozen=True)
class Calibrations:
    """A map for each kind of answer: what leads its list is more often true than another of the same chance, and
    heads are asked for where many answers are true.
    """

    maps: tuple[Calibration, ...]  # (kind)

    @classmethod
    def fit(cls, chance: Floats, is_true: Bools, elsewhere: Floats, kind: Ints, kinds: int) -> Calibrations:
        """From answers, (answer) each. A kind with few of them is taken for one like all."""
        enough = [np.sum(kind == one) >= FEW * CELL for one in range(kinds)]
        chosen = [kind == one if enough[one] else np.ones(len(kind), bool) for one in range(kinds)]
        return cls(tuple(Calibration.fit(chance[own], is_true[own], elsewhere[own]) for own in chosen))

    def confidence(self, chance: Floats, kind: Ints) -> Floats:
        """(answer), (answer) -> (answer)"""
        out = np.zeros(len(chance))
        for one, own in enumerate(self.maps):
            out[kind == one] = own.confidence(chance[kind == one])
        return out

    def threshold_for(self, precision: float) -> float | None:
        """The lowest confidence from which on answers were true in at least this share; None if there is none."""
        truth, counts = (np.concatenate([getattr(own, name) for own in self.maps]) for name in ("truth", "count"))
        order = np.argsort(-truth, kind="stable")
        count = np.cumsum(counts[order])
        share = np.cumsum((truth * counts)[order]) / np.maximum(count, 1)
        # Equal confidences come together: what is asked for is the last of them.
        last = np.append(np.diff(truth[order]) < 0, True)
        good = np.flatnonzero((share >= precision) & (count > 0) & last)
        return float(truth[order][good[-1]]) if len(good) else None


def _cells(chance: Floats, is_true: Bools, elsewhere: Floats) -> tuple[Floats, Floats, Floats]:
    """Neighbouring answers together, at least CELL of them: mean chance, share of true ones, and how many.

    What is true elsewhere is not counted, though never more than what is false.
    """
    values, which, counts = np.unique(chance, return_inverse=True, return_counts=True)
    before = np.cumsum(counts) - counts
    last = max(len(chance) // CELL - 1, 0)  # what is left over goes to the last cell
    _, cell = np.unique(np.minimum(before // CELL, last), return_inverse=True)
    count = np.bincount(cell, counts).astype(np.float64)
    true = np.bincount(cell[which], is_true)
    middle = np.bincount(cell, values * counts) / count
    count = np.maximum(count - np.bincount(cell[which], elsewhere), np.maximum(true, 1))
    return middle, true / count, count


def pool(values: Floats, weights: Floats) -> npt.NDArray[np.int64]:
    """Pool adjacent violators: the blocks whose means are the nearest rising values.  (value) -> (value) block

    A falling run of means always ends up in one block, so all such runs are pooled at once until none falls.
    """
    block = np.arange(len(values))
    while True:
        weight = np.bincount(block, weights)
        mean = np.bincount(block, values * weights) / weight
        rises = np.diff(mean) > 0  # equal neighbours are pooled too: the same map, fewer knots
        if rises.all():
            return block
        block = np.concatenate([[0], np.cumsum(rises)])[block]


@dataclass(frozen=True)
class Reliability:
    """How confidences compare with the truth, in bins of equally many answers."""

    confidence: list[float]  # (bin): the mean
    truth: list[float]  # (bin): the share that was true
    count: list[int]  # (bin)

    @classmethod
    def from_answers(cls, confidence: Floats, is_true: Bools, bins: int = BINS) -> Reliability:
        order = np.argsort(confidence, kind="stable")
        parts = [part for part in np.array_split(order, bins) if len(part)]
        return cls(
            [float(confidence[part].mean()) for part in parts],
            [float(is_true[part].mean()) for part in parts],
            [len(part) for part in parts],
        )

    @property
    def error(self) -> float:
        """The expected calibration error: how far a bin's confidence is from its truth, on average."""
        gaps = np.abs(np.subtract(self.confidence, self.truth))
        return float(np.average(gaps, weights=self.count)) if self.count else 0.0

    def as_dict(self) -> dict[str, object]:
        return {"error": self.error, "confidence": self.confidence, "truth": self.truth, "count": self.count}
