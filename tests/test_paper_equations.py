"""The paper's equations (§3.2), each on a case small enough to be computed by hand.

The graph is the single fact (a, r, b), so the only path from a to b is the fact itself. All weights are chosen so
that probabilities are fractions: the state after a prefix is one of two, "plus" or "minus".

    x        √2 · E[token] + place; only the difference of its two numbers will matter, D below
    Enc      LayerNorm(x + mean of the visible x): (1, −1) where D + mean of D is positive, else (−1, 1)
    MLP      ReLU, then (1, 0) ↦ (ln 2, ln 3)  and  (0, 1) ↦ (0, ln 2)
    Softmax  of MLP · E: with E[i] = (m, n), exp(z_i) is 2^m 3^n after plus and 2^n after minus

    token                  a      b      r      r⁻¹    <eos>  <mask>  <pad>     sum
    E                    (1,0)  (0,1)  (1,1)  (−1,0)  (0,0)  (−1,−1)  (0,−1)   (0,0)
    exp(z) after plus      2      3      6      1/2     1      1/6     1/3      13
    exp(z) after minus     1      2      2       1      1      1/2     1/2       8
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from naive_model import logits_after, path_loss
from torch import nn

from squire.graph.adjacency import Adjacency
from squire.model.batches import Batch, Batches, Masking
from squire.model.recipe import ModelConfig
from squire.model.transformer import Layer, Transformer
from squire.model.vocabulary import Vocabulary
from squire.paths.sampling import sample_paths
from squire.paths.tries import build_tries

VOCAB = Vocabulary(num_entities=2, num_relations=1)
A, B, R, R_INVERSE, END = range(5)
QUERY, PATH = (A, R), [R, B, END]
PLUS = torch.tensor([2, 3, 6, 1 / 2, 1, 1 / 6, 1 / 3]) / 13
MINUS = torch.tensor([1, 2, 2, 1, 1, 1 / 2, 1 / 2]) / 8


def model_by_hand(typed: bool) -> Transformer:
    config = ModelConfig(
        layers=1, dim=2, feedforward=1, heads=1, dropout=0.0, typed=typed, prior=False, norm_first=False,
        activation="relu", max_hops=1,
    )  # fmt: skip
    model = Transformer(VOCAB, config).eval()
    layer, first, second = model.layers[0], model.mlp[0], model.mlp[2]
    assert isinstance(layer, Layer)
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    with torch.no_grad():
        for part in (layer.to_qkv, layer.from_heads, layer.narrow, first, second):
            part.weight.zero_()
            part.bias.zero_()
        layer.to_qkv.weight[4:] = torch.eye(2)  # queries and keys are 0: a mean of the values, which are x
        layer.from_heads.weight.copy_(torch.eye(2))
        first.weight.copy_(torch.eye(2))
        second.weight.copy_(torch.tensor([[math.log(2), 0.0], [math.log(3), math.log(2)]]))
        rows = [[1, 0], [0, 1], [1, 1], [-1, 0], [0, 0], [-1, -1], [0, -1]]
        model.embedding.weight.copy_(torch.tensor(rows, dtype=torch.float32))
        # D of each place; a token adds √2 times the difference of its row of E: √2 for a, −√2 for b, 0 for r.
        positions = torch.tensor([0.0, 20.0, -2.0, -40.0])
        model.positions.weight.copy_(torch.stack([positions / 2, -positions / 2], dim=1))
    return model


def the_batch() -> Batch:
    graph = Adjacency.build(np.array([[0, 0, 1]], np.int32), 2, 1)
    tries = build_tries(sample_paths(graph, np.array([[0, 0, 1]], np.int32), seed=0))
    return next(Batches(tries, VOCAB, 64, Masking(0.0), seed=0).epoch(0))


def test_equation_1_a_query_and_its_path_are_one_sequence() -> None:
    # q = (a, r), τ = (r, b, <eos>): the query and all but the end are read, all of the path is predicted.
    batch = the_batch()
    assert batch.tokens[0, :5].tolist() == [A, R, R, B, VOCAB.pad]
    assert batch.positions[0, :4].tolist() == [0, 1, 2, 3]
    # After the query's r comes r, after b comes <eos>; and after the path's r comes b.
    assert [*zip(batch.relations.source.tolist(), batch.relations.token.tolist(), strict=True)] == [
        (1, R),
        (3, END),
    ]
    assert [*zip(batch.entities.source.tolist(), batch.entities.token.tolist(), strict=True)] == [(2, B)]


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        # D of h and r: √2 and 20, their mean 10.7. At r: 20 + 10.7, plus.
        ([], PLUS),
        # D of h, r, r₁: √2, 20, −2, their mean 6.5. At r₁: −2 + 6.5, plus; alone it would be minus.
        ([R], PLUS),
        # D of h, r, r₁, t₁: √2, 20, −2, −40 − √2, their mean −5.5. At t₁: −41.4 − 5.5, minus.
        ([R, B], MINUS),
    ],
)
def test_equation_3_the_softmax_of_what_the_encoder_makes_of_a_prefix(
    prefix: list[int], expected: torch.Tensor
) -> None:
    model = model_by_hand(typed=False)
    torch.testing.assert_close(logits_after(model, QUERY, prefix).softmax(0), expected, atol=1e-5, rtol=0)
    # The same when the rest of the path stands behind it. Were t₁ visible to r₁, the mean would be −5.5: minus.
    batch = the_batch()
    state = model(batch.tokens, batch.positions, batch.visible)[0, 1 + len(prefix)][None]
    torch.testing.assert_close(model.logits(state, slice(None)).softmax(1)[0], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("typed", "factors", "product"),
    [
        (False, (6 / 13, 3 / 13, 1 / 8), 9 / 676),
        # Of r, r⁻¹ and <eos>: 6 / (6 + 1/2 + 1). Of a and b: 3 / (2 + 3). Of r, r⁻¹ and <eos>: 1 / (2 + 1 + 1).
        (True, (0.8, 0.6, 0.25), 0.12),
    ],
)
def test_equation_2_the_probability_of_a_path_is_the_product_over_its_tokens(
    typed: bool, factors: tuple[float, ...], product: float
) -> None:
    model, batch = model_by_hand(typed), the_batch()
    states = model(batch.tokens, batch.positions, batch.visible)[0]
    found = []
    for k, token in enumerate(PATH):
        classes = (VOCAB.after_relation if k % 2 else VOCAB.after_entity) if typed else slice(0, len(VOCAB))
        found.append(model.logits(states[1 + k][None], classes).softmax(1)[0, token - classes.start].item())
    assert found == pytest.approx(factors, abs=1e-5)
    assert math.prod(found) == pytest.approx(product, abs=1e-5)
    # Without smoothing (ε = 1), Eq. 4 is minus the mean logarithm: the loss of the batch is that of the product.
    assert model.loss(batch, 1.0).item() == pytest.approx(-math.log(product) / 3, abs=1e-5)


def test_equation_4_over_all_tokens() -> None:
    # ε = 0.8, V = 7: α is 4/5 for the target and 1/30 for each of the six others. The rows of E add up to 0, so
    # Σ_i log p_i = −7 ln 13 after plus and −7 ln 8 after minus, and with 4/5 = 23/30 + 1/30
    #   k = 1, target r:      −23/30 ln(6/13) + 7/30 ln 13 = ln 13 − 23/30 ln 6
    #   k = 2, target b:      −23/30 ln(3/13) + 7/30 ln 13 = ln 13 − 23/30 ln 3
    #   k = 3, target <eos>:  −23/30 ln(1/8)  + 7/30 ln 8  = ln 8
    # The mean of the three: (2 · 2.564949 + 2.079442 − 23/30 · 2.890372) / 3 = 4.993389 / 3
    model = model_by_hand(typed=False)
    assert model.loss(the_batch(), 0.8).item() == pytest.approx(4.993389 / 3, abs=1e-5)
    assert path_loss(model, QUERY, PATH, 0.8).item() == pytest.approx(4.993389 / 3, abs=1e-5)


def test_equation_4_typed() -> None:
    # ε = 0.8: of three classes the others have α = 0.1 each, of two the other has 0.2.
    #   k = 1, r of r, r⁻¹, <eos> with 12/15, 1/15, 2/15:  −0.8 ln 0.8 − 0.1 ln 1/15 − 0.1 ln 2/15 = 0.650810
    #   k = 2, b of a, b with 2/5, 3/5:                    −0.8 ln 0.6 − 0.2 ln 0.4                 = 0.591919
    #   k = 3, <eos> of r, r⁻¹, <eos> with 1/2, 1/4, 1/4:  −0.8 ln 0.25 − 0.1 ln 0.5 − 0.1 ln 0.25  = 1.316980
    model = model_by_hand(typed=True)
    assert model.loss(the_batch(), 0.8).item() == pytest.approx(2.559709 / 3, abs=1e-5)
    assert path_loss(model, QUERY, PATH, 0.8).item() == pytest.approx(2.559709 / 3, abs=1e-5)
