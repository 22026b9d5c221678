"""Recalibration: what people say about predictions shifts the confidence of all of them.

Confidence rests on an assumption, the share of facts that are missing, and on facts that were hidden rather than
ones that are really missing. Decisions about predictions tell how far it is off. Two numbers are fitted to them,

    logit q = slope · logit p + shift,   slope > 0,

so the order of answers stays as it is. Both are drawn towards 1 and 0, most strongly where decisions are few.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from squire.ranking.calibration import Bools, Floats

MIN_DECISIONS = 50  # about predictions, some of them accepted and some rejected
# Standard deviations of the two before any decision is made. With wider ones, 50 decisions made a confidence worse
# that was right already (docs/LOG.md).
SLOPE_SPREAD, SHIFT_SPREAD = 0.2, 0.5
LEAST_SLOPE = 0.1
LEAST = 1e-6  # probabilities below, and as close to 1, count like this


@dataclass(frozen=True)
class Recalibration:
    """A rising map of probabilities."""

    slope: float
    shift: float
    decisions: int  # that it was fitted to

    @classmethod
    def fit(cls, confidence: Floats, accepted: Bools) -> Recalibration | None:
        """The most likely map, (decision) each; None if there are too few decisions, or only one kind."""
        from scipy.optimize import minimize  # slow to import, and rarely needed

        if len(accepted) < MIN_DECISIONS or accepted.all() or not accepted.any():
            return None
        x, sign = _logit(confidence), np.where(accepted, 1.0, -1.0)

        def loss(at: Floats) -> tuple[float, Floats]:
            slope, shift = at
            margin = sign * (slope * x + shift)
            wrong = sign / (1 + np.exp(np.clip(margin, -500, 500)))  # (decision): minus the slope of its loss
            prior = (slope - 1) / SLOPE_SPREAD, shift / SHIFT_SPREAD
            value = np.logaddexp(0, -margin).sum() + (prior[0] ** 2 + prior[1] ** 2) / 2
            return float(value), np.array(
                [prior[0] / SLOPE_SPREAD - wrong @ x, prior[1] / SHIFT_SPREAD - wrong.sum()]
            )

        found = minimize(loss, [1.0, 0.0], jac=True, method="L-BFGS-B", bounds=[(LEAST_SLOPE, None), (None, None)])
        return cls(float(found.x[0]), float(found.x[1]), len(accepted))

    def __call__(self, confidence: Floats) -> Floats:
        """Probabilities of any shape."""
        return np.asarray(1 / (1 + np.exp(-(self.slope * _logit(confidence) + self.shift))))


def _logit(probability: Floats) -> Floats:
    inside = np.clip(probability, LEAST, 1 - LEAST)
    return np.asarray(np.log(inside) - np.log1p(-inside))
