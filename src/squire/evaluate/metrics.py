"""Figures of merit, each with the signature without which it means nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from squire import __version__


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
    seed: str = "none"  # none where nothing is drawn

    def __str__(self) -> str:
        parts = (f"{key}:{value}" for key, value in asdict(self).items() if key != "dataset")
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

    @classmethod
    def of(cls, ranks: npt.NDArray[np.float64], signature: Signature) -> Metrics:
        hits = (float(np.mean(ranks <= k)) for k in (1, 3, 10))
        return cls(signature, len(ranks), float(np.mean(1 / ranks)), *hits)

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "signature": str(self.signature)}
