"""Figures of merit, each with the signature without which it means nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from squire.core.version import __version__

NAMES = ("mrr", "hits1", "hits3", "hits10")
RESAMPLES = 1000


@dataclass(frozen=True)
class Signature:
    """What a number was measured on and how."""

    dataset: str
    split: str
    side: str  # tail, or both: heads are asked for as tails of the inverse relation
    method: str
    filter: str = "train+valid+test"
    ties: str = "realistic"
    beam: str = "none"
    aggregation: str = "none"
    seed: str = "none"  # of training; none where nothing is drawn
    constraint: str = ""  # edges that paths are bound to; empty for none
    known_share: str = ""  # probability with which a step goes where known edges lead; empty for 0
    prune: str = ""  # share of the tenth new answer below which paths are dropped; empty for none
    weights: str = ""  # last, if they are not those of the best epoch
    sample: str = ""  # queries drawn out of how many, by which seed; empty for all

    def __str__(self) -> str:
        parts = (f"{key}:{value}" for key, value in asdict(self).items() if key != "dataset" and value)
        return "|".join([self.dataset, *parts, f"v:{__version__}"])


@dataclass(frozen=True)
class Metrics:
    """Mean reciprocal rank and the share of answers among the first 1, 3, 10."""

    signature: Signature
    queries: int
    mrr: float
    hits1: float
    hits3: float
    hits10: float
    intervals: dict[str, tuple[float, float]] | None = None  # of each figure, 95 %

    @classmethod
    def from_ranks(
        cls, ranks: npt.NDArray[np.float64], signature: Signature, *, intervals: bool = False
    ) -> Metrics:
        figures = _figures(ranks)
        bounds = dict(zip(NAMES, bootstrap(figures), strict=True)) if intervals and len(ranks) else None
        mrr, hits1, hits3, hits10 = figures.mean(0).tolist() if len(ranks) else [0.0] * len(NAMES)
        return cls(signature, len(ranks), mrr, hits1, hits3, hits10, bounds)

    def as_dict(self) -> dict[str, object]:
        content: dict[str, object] = {**asdict(self), "signature": str(self.signature)}
        if self.intervals is None:
            del content["intervals"]
        return content


def _figures(ranks: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """What each query adds to each mean.  (query) -> (query, figure)"""
    return np.stack([1 / ranks, *(ranks <= k for k in (1, 3, 10))], axis=1).astype(np.float64)


def bootstrap(figures: npt.NDArray[np.float64]) -> list[tuple[float, float]]:
    """95 % intervals of the means of columns: percentiles 2.5 and 97.5 over resampled rows.  (row, column)"""
    rng = np.random.default_rng(0)
    size = len(figures)
    means = [figures[rng.integers(0, size, size)].mean(0) for _ in range(RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    return [(float(a), float(b)) for a, b in zip(low, high, strict=True)]
