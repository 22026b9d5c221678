"""Attention maps along the path to an answer (Appendix D)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from squire.errors import SettingError
from squire.reasoning.attention import QUERY_TOKENS, Attention, attention_of
from squire.reasoning.reasoner import Reasoner
from squire.studies.reports import Report, code, draw_attention, escape, table


def attention(
    run: str | Path,
    head: str | None,
    relation: str,
    tail: str | None = None,
    *,
    answer: str | None = None,
    layer: int | None = None,
    attention_head: int | None = None,
    beam: int | None = None,
) -> AttentionMaps:
    """Attention along the best path to an answer, by default the best answer that is not in the graph.

    layer: a number from 1; all layers by default. attention_head: a number from 1; the mean over heads by default.
    """
    reasoner = Reasoner.load(run)
    layers = _chosen("layer", layer, len(reasoner.trained.model.layers))
    heads = _chosen("attention_head", attention_head, reasoner.trained.recipe.model.heads)
    found = attention_of(reasoner, reasoner.query(head, relation, tail), answer, beam)
    shown = "mean over heads" if attention_head is None else f"head {attention_head}"
    titles = [f"layer {number + 1}, {shown}" for number in layers]
    return AttentionMaps(found, titles, found.weights[layers][:, heads].mean(axis=1))


def _chosen(name: str, number: int | None, count: int) -> list[int]:
    if number is None:
        return list(range(count))
    if not 1 <= number <= count:
        raise SettingError(f"{name}={number}: expected a number from 1 to {count}.")
    return [number - 1]


@dataclass(frozen=True, eq=False)
class AttentionMaps(Report):
    """The attention of all layers and heads, and a map of each layer chosen."""

    attention: Attention
    titles: list[str]  # of the maps
    maps: npt.NDArray[np.float64]  # (map, token, token)

    def as_dict(self) -> dict[str, Any]:
        return self.attention.as_dict()

    def markdown(self) -> str:
        found, tokens = self.attention, [escape(token) for token in self.attention.tokens]
        parts = [f"# Attention along {escape(found.question)} {escape(found.evidence.text)}\n"]
        for title, weights in zip(self.titles, self.maps.tolist(), strict=True):
            rows = []
            for row in range(QUERY_TOKENS, len(tokens)):
                shares = [f"{weight:.2f}" for weight in weights[row][: row + 1]]
                rows.append((tokens[row], *shares, *[""] * (len(tokens) - row - 1)))
            parts += [f"## {title}\n", table(("", *tokens), rows)]
        return "\n".join([*parts, code(found.signature)])

    def draw(self, file: str | Path) -> None:
        found = self.attention
        heading = f"{found.question}: {found.answer} ({found.evidence.grade})"
        draw_attention(self.titles, self.maps, found.tokens, QUERY_TOKENS, heading, found.signature, Path(file))
