"""Doubtful facts: the facts of a graph, least likely first, each judged as if it were not there.

The facts are cut into parts, and each part is judged by the rest of the graph. Rules do not count a fact that is
judged as their support, so they need not be mined again. A fact that is the only one about an entity is left out:
there is nothing to judge it by, and confidence was not learned from such facts.
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
from squire.graph.adjacency import Ids, Offsets
from squire.graph.folds import can_be_hidden, removable
from squire.reasoning.checks import LIKELY, Objections
from squire.reasoning.drawing import percent
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
    left_out: int = 0  # facts that were not, since nothing else is known about their head or their tail

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
        if self.left_out:
            lines[0] += f" ({self.left_out:,} more are the only fact about an entity and cannot be judged)"
        for row in self.table.slice(0, SHOWN).to_pylist():
            fact = f"{row['head']} · {row['relation']} · {row['tail']}"
            lines.append(f"  {percent(row['confidence'])}  {fact}  {row['against']}".rstrip())
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
    entity: str | None = None,
    most: int | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> DoubtfulFacts:
    """The k least likely facts, of some relations or of all, of one entity or of all.

    most: judge so many of them, drawn by the seed.
    """
    if k < 1:
        raise SettingError(f"k={k}: expected 1 or more.")
    if most is not None and most < 1:
        raise SettingError(f"most={most}: expected 1 or more.")
    if seed < 0:
        raise SettingError(f"seed={seed}: expected 0 or more.")
    if isinstance(relations, str):
        raise SettingError(f"relations={relations!r}: expected a list of relations.")
    facts, fusion = reasoner.run.facts, reasoner.fused
    wanted = np.ones(len(facts.triples), bool)
    if relations:
        wanted = np.isin(facts.triples[:, 1], [reasoner.labels.relation_id(label) for label in relations])
    if entity is not None:
        wanted &= (facts.triples[:, [0, 2]] == reasoner.labels.entity_id(entity)).any(axis=1)
    chosen = np.flatnonzero(wanted & can_be_hidden(facts, unlinked=False))
    left_out = int(wanted.sum()) - len(chosen)
    if most is not None and len(chosen) > most:
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, most, replace=False))
    log_odds = judge_facts(reasoner, chosen, seed=seed, progress=progress)
    confidence = fusion.confidence.of_missing(log_odds, facts.triples[chosen, 1])
    order = np.lexsort((log_odds, confidence))[:k]
    doubtful = facts.triples[chosen[order]]
    against = [
        sentences or ("Little in the graph speaks for it." if likely < LIKELY else "")
        for sentences, likely in zip(_objections(reasoner, doubtful), confidence[order].tolist(), strict=True)
    ]
    columns = [*reasoner.labels.columns(doubtful), pa.array(confidence[order]), pa.array(against, pa.string())]
    names = ["head", "relation", "tail", "confidence", "against"]
    return DoubtfulFacts(pa.table(columns, names), len(chosen), left_out)


def judge_facts(
    reasoner: Reasoner, chosen: Offsets, *, parts: int = PARTS, seed: int = 0, progress: Progress = no_progress
) -> npt.NDArray[np.float64]:
    """How plausible facts of the graph are, by the rest of it.

    chosen: (fact), numbers of facts that can be hidden -> log odds, (fact)
    """
    facts = reasoner.run.facts
    out = np.zeros(len(facts.triples))
    waiting = np.random.default_rng([seed, parts]).permutation(chosen)
    size = -(-len(chosen) // parts)
    while len(waiting):
        # Both ends of a fact must keep an edge to be judged by; where they do not, it waits for another part.
        part = np.array(removable(facts, waiting[:size]))
        hidden = facts.triples[part]
        out[part] = reasoner.without(hidden).fused.log_odds(hidden)
        waiting = np.concatenate([waiting[size:], np.setdiff1d(waiting[:size], part)])
        progress("judging facts", len(chosen) - len(waiting), len(chosen))
    return out[chosen]


def _objections(reasoner: Reasoner, facts: Ids) -> list[str]:
    """What speaks against each fact, if only that one is left out."""
    objections = Objections(reasoner.run.facts, reasoner.fused.relations, reasoner.labels)
    return [" ".join(objections.to_fact(*fact)) for fact in facts.tolist()]
