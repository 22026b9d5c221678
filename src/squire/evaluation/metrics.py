"""MRR and Hits@k, each with a signature that says what was measured and how."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from squire.core import __version__

NAMES = ("mrr", "hits1", "hits3", "hits10")
RESAMPLES = 1000


@dataclass(frozen=True)
class Signature:
    """The dataset, method and settings behind a figure."""

    dataset: str
    split: str
    side: str  # tail, or both: head queries are tail queries of the inverse relation
    method: str
    filter: str = "train+valid+test"
    ties: str = "realistic"
    beam: str = "none"
    aggregation: str = "none"
    seed: str = "none"  # of training; none for methods without randomness
    constraint: str = ""  # the edges that paths may use; empty for all
    known_share: str = ""  # probability of following a known edge; empty for 0
    edge_weight: str = ""  # of the queried edge in a pool; empty without
    prune: str = ""  # paths below this share of the tenth new answer are dropped; empty for none
    weights: str = ""  # "last" if not those of the best epoch
    sample: str = ""  # how many queries of how many, and the seed; empty for all

    def __str__(self) -> str:
        parts = (f"{key}:{value}" for key, value in asdict(self).items() if key != "dataset" and value)
        return "|".join([self.dataset, *parts, f"v:{__version__}"])


@dataclass(frozen=True)
class Metrics:
    """Mean reciprocal rank, and the share of right answers among the first 1, 3 and 10."""

    signature: Signature
    queries: int
    mrr: float
    hits1: float
    hits3: float
    hits10: float
    intervals: dict[str, tuple[float, float]] | None = None  # 95 % confidence intervals

    @classmethod
    def from_ranks(
        cls, ranks: npt.NDArray[np.float64], signature: Signature, *, intervals: bool = False
    ) -> Metrics:
        figures = _figures(ranks)
        bounds = dict(zip(NAMES, bootstrap(figures), strict=True)) if intervals and len(ranks) else None
        mrr, hits1, hits3, hits10 = figures.mean(0).tolist() if len(ranks) else [0.0] * len(NAMES)
        return cls(signature, len(ranks), mrr, hits1, hits3, hits10, bounds)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        content: dict[str, object] = {**asdict(self), "signature": str(self.signature)}
        if self.intervals is None:
            del content["intervals"]
        return content


def _figures(ranks: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The contribution of each query to each metric.  (query) -> (query, metric)"""
    return np.stack([1 / ranks, *(ranks <= k for k in (1, 3, 10))], axis=1).astype(np.float64)


def bootstrap(figures: npt.NDArray[np.float64]) -> list[tuple[float, float]]:
    """95 % bootstrap intervals of the column means.  (row, column)"""
    rng = np.random.default_rng(0)
    size = len(figures)
    means = [figures[rng.integers(0, size, size)].mean(0) for _ in range(RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    return [(float(a), float(b)) for a, b in zip(low, high, strict=True)]
