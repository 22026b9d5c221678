"""Doubtful facts: the facts of a graph, least likely first, each judged as if it were not there.

The facts are cut into parts, and each part is judged by the rest of the graph. Rules do not count a fact that they
are judged by as their support, so they need not be mined again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from squire.completion.predictions import tsv_cell
from squire.core.files import create_bytes, ensure_creatable, format_suffix
from squire.core.frames import to_frame
from squire.core.progress import Progress, no_progress
from squire.errors import SettingError
from squire.graph.adjacency import Ids
from squire.ranking.folds import MAX_FOLDS
from squire.reasoning.checks import Objections, without_facts
from squire.reasoning.reasoner import Reasoner

if TYPE_CHECKING:
    import pandas as pd

PARTS = 20  # a twentieth of the facts is hidden at a time, as when the fusion was fitted
SHOWN = 10  # rows of a repr
SUFFIXES = (".tsv", ".parquet")


@dataclass(frozen=True, repr=False)
class DoubtfulFacts:
    """Facts of a graph, least likely first.

    >>> doubtful = squire.Run("runs/world").doubt(relations=["currency"], k=20)
    >>> doubtful.to_frame()[["head", "tail", "confidence"]]
    >>> doubtful.save("suspects.tsv")
    """

    table: pa.Table  # head, relation, tail, confidence without the fact itself, and what speaks against it
    judged: int  # number of facts that were judged

    def __len__(self) -> int:
        return len(self.table)

    def to_frame(self) -> pd.DataFrame:
        """One row per fact."""
        return to_frame(self.table)

    def save(self, file: str | Path) -> None:
        """Write a .tsv or .parquet file, atomically."""
        file = Path(file)
        check_output(file)
        with create_bytes(file) as stream:
            if format_suffix(file) == ".parquet":
                pq.write_table(self.table, stream, compression="zstd")
            else:
                rows = (self.table.column_names, *zip(*self.table.to_pydict().values(), strict=True))
                stream.writelines("\t".join(map(tsv_cell, row)).encode() + b"\n" for row in rows)

    def __repr__(self) -> str:
        lines = [f"the {len(self):,} most doubtful of {self.judged:,} facts"]
        for row in self.table.slice(0, SHOWN).to_pylist():
            fact = f"{row['head']} · {row['relation']} · {row['tail']}"
            lines.append(f"  {row['confidence']:.1%}  {fact}  {row['against']}")
        return "\n".join(lines)


def check_output(file: Path) -> None:
    """Raise an error if doubtful facts cannot be saved under this name."""
    if format_suffix(file) not in SUFFIXES:
        raise SettingError(f"output={str(file)!r}: expected a name that ends in {' or '.join(SUFFIXES)}.")
    ensure_creatable(file)


def doubt_facts(
    reasoner: Reasoner,
    *,
    k: int = 1000,
    relations: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> DoubtfulFacts:
    """The k least likely facts, of some relations or of all."""
    if k < 1:
        raise SettingError(f"k={k}: expected 1 or more.")
    if seed < 0:
        raise SettingError(f"seed={seed}: expected 0 or more.")
    if isinstance(relations, str):
        raise SettingError(f"relations={relations!r}: expected a list of relations.")
    if reasoner.fusion is None:
        folder = reasoner.run.folder
        raise SettingError(
            f"{folder}: no fusion here, so there is no confidence. Run `squire fuse {folder}` first."
        )
    facts = reasoner.run.facts.triples
    if relations:
        chosen = [reasoner.labels.relation_id(label) for label in relations]
        facts = facts[np.isin(facts[:, 1], chosen)]
    log_odds = judge_facts(reasoner, facts, seed=seed, progress=progress)
    order = np.argsort(log_odds, kind="stable")[:k]
    confidence = reasoner.fusion.confidence.of_missing(log_odds[order], facts[order, 1])
    labels, most = reasoner.labels, facts[order]
    columns = labels.columns(most)
    against = _objections(reasoner, most)
    names = ["head", "relation", "tail", "confidence", "against"]
    return DoubtfulFacts(pa.table([*columns, pa.array(confidence), pa.array(against)], names), len(facts))


def judge_facts(
    reasoner: Reasoner, facts: Ids, *, parts: int = PARTS, seed: int = 0, progress: Progress = no_progress
) -> npt.NDArray[np.float64]:
    """How plausible facts of the graph are, by the rest of it.  facts: (fact, 3) -> log odds, (fact)"""
    assert 2 <= parts <= MAX_FOLDS
    order = np.random.default_rng([seed, parts]).permutation(len(facts))
    out = np.zeros(len(facts))
    for number in range(parts):
        part = order[number::parts]
        if len(part):
            hidden = without_facts(reasoner, facts[part])
            assert hidden.fusion is not None
            out[part] = hidden.fusion.log_odds(facts[part])
        progress("judging facts", number + 1, parts)
    return out


def _objections(reasoner: Reasoner, facts: Ids) -> list[str]:
    """What speaks against each fact, if only that one is left out."""
    assert reasoner.fusion is not None
    objections = Objections(reasoner.run.facts, reasoner.fusion.relations, reasoner.labels)
    return [" ".join(objections.to_fact(*fact)) for fact in facts.tolist()]
