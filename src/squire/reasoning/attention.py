"""Attention along a path (Appendix D): of every layer and head, from each token to those before it.

The model's fused attention returns no weights, so they are computed from the queries and keys of its layers,
which a hook on `to_qkv` collects.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from squire.core import __version__
from squire.core.run_files import fingerprint
from squire.errors import SettingError
from squire.model.transformer import Layer, Transformer
from squire.reasoning.answers import Evidence
from squire.reasoning.reasoner import Reasoner
from squire.search.decoding import decode

QUERY_TOKENS = 2


@dataclass(frozen=True)
class Attention:
    """The attention weights of a question with one path to an answer."""

    question: str
    answer: str
    tokens: list[str]  # h, r, then the path
    evidence: Evidence
    weights: npt.NDArray[np.float64]  # (layer, head, token, token): from the third to the fourth; rows sum to 1
    signature: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "signature": self.signature,
            "question": self.question,
            "answer": self.answer,
            "grade": self.evidence.grade,
            "tokens": self.tokens,
            "query_tokens": QUERY_TOKENS,
            "weights": self.weights.tolist(),
        }


def attention_of(
    reasoner: Reasoner, query: tuple[int, int], answer: str | None = None, beam: int | None = None
) -> Attention:
    """Attention along the best path to the answer, by default the best new one."""
    # A search over paths, since in patterns the model does not see the entities between.
    decoding = reasoner.decoding(beam=beam, aggregate="sum")
    trained, labels = reasoner.trained, reasoner.labels
    (block,) = decode(trained.decoder, np.array([query], np.int32), decoding)
    facts = set(reasoner.run.facts.tails_of(*query).tolist())
    found = [entity for entity in block.entity.tolist() if entity not in facts]
    if answer is None and not found:
        raise SettingError("no path leads to a new answer. Name an answer.")
    goal = found[0] if answer is None else labels.entity_id(answer)
    path = block.best_path_to(0, goal)
    if path is None:
        raise SettingError(
            f"answer={answer!r}: no path leads there. Increase beam (now {decoding.beam}), or name another answer."
        )
    path_ids = block.paths[path, : 2 * block.hops[path]].tolist()
    first = trained.model.vocab.first_relation
    steps = [token if place % 2 else token + first for place, token in enumerate(path_ids)]
    tokens = [query[0], query[1] + first, *steps]
    words = [_word(reasoner, token) for token in tokens]
    weights = attention_weights(trained.model, torch.tensor(tokens, device=trained.device)).double().cpu().numpy()
    evidence = reasoner.evidence(query, block, slice(path, path + 1))[0]
    made_by = f"model:{fingerprint(trained.folder)}|beam:{decoding.beam}|v:{__version__}"
    signature = f"{reasoner.graph.name}|study:attention|{made_by}"
    return Attention(f"({words[0]}, {words[1]}, ?)", words[-1], words, evidence, weights, signature)


def _word(reasoner: Reasoner, token: int) -> str:
    labels, n = reasoner.labels, reasoner.graph.num_relations
    relation = token - reasoner.trained.model.vocab.first_relation
    if relation < 0:
        return labels.entity(token)
    return labels.relation(relation) + ("⁻¹" if relation >= n else "")


@torch.no_grad()
def attention_weights(model: Transformer, tokens: Tensor) -> Tensor:
    """(token) of a query and a path -> (layer, head, token, token)"""
    visible = visible_tokens(len(tokens)).to(tokens.device)
    found: list[Tensor] = []

    def note(projection: nn.Module, _: Any, qkv: Tensor) -> None:
        q, k, _ = heads_of(qkv, model.config.heads)[:, 0]
        found.append(weights_of(q, k, visible))

    with ExitStack() as hooks:
        for layer in model.layers:
            assert isinstance(layer, Layer)
            hooks.callback(layer.to_qkv.register_forward_hook(note).remove)
        model(tokens[None], torch.arange(len(tokens), device=tokens.device)[None], visible[None])
    return torch.stack(found)


def visible_tokens(size: int) -> Tensor:
    """Each token sees itself and those before it; the two query tokens see each other.  (token, token)"""
    visible = torch.ones(size, size, dtype=torch.bool).tril()
    visible[:QUERY_TOKENS, :QUERY_TOKENS] = True
    return visible


def heads_of(qkv: Tensor, heads: int) -> Tensor:
    """Split the output of `to_qkv`.  (row, token, 3 · dim) -> (3, row, head, token, dim / heads)"""
    rows, tokens, width = qkv.shape
    return qkv.view(rows, tokens, 3, heads, width // 3 // heads).permute(2, 0, 3, 1, 4)


def weights_of(q: Tensor, k: Tensor, visible: Tensor) -> Tensor:
    """Scaled dot-product attention weights.  (head, token, dim / heads) × 2 -> (head, token, token)"""
    scores: Tensor = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
    return scores.masked_fill(~visible, -torch.inf).softmax(2)
