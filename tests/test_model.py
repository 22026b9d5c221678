"""The transformer sees what it should, and its loss on trees is the mean loss over the unfolded paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from naive_model import logits_after, path_loss
from torch.utils._python_dispatch import TorchDispatchMode
from training_cases import VOCAB, samples_of, small_graph, small_tries

from squire.core.relations import both_directions
from squire.graph.adjacency import Adjacency
from squire.model.batches import Batch, Batches, Masking
from squire.model.negative_sampling import NegativeSampler
from squire.model.precision import LEAST_DIM, use_bfloat16
from squire.model.prior import Prior
from squire.model.recipe import ModelConfig
from squire.model.transformer import Dropout, Transformer
from squire.model.vocabulary import Vocabulary
from squire.paths.sampling import sample_paths
from squire.paths.tries import build_tries

SMALL = ModelConfig(layers=2, dim=16, feedforward=32, heads=2, dropout=0.0)


def model_of(config: ModelConfig) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(VOCAB, config, Prior.from_adjacency(small_graph()) if config.prior else None)
    for parameter in model.parameters():  # far from the symmetric start, so that no term is nearly zero
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize(("typed", "edge_rank"), [(True, 0), (True, 4), (False, 0)])
@pytest.mark.parametrize("prior", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_loss_on_tries_is_the_mean_loss_over_the_unfolded_paths(
    typed: bool, edge_rank: int, prior: bool, norm_first: bool
) -> None:
    model = model_of(replace(SMALL, typed=typed, prior=prior, norm_first=norm_first, edge_rank=edge_rank))
    tries = small_tries(small_graph())
    samples = samples_of(tries)
    weight = sum(samples.values())
    with torch.no_grad():
        batches = Batches(tries, VOCAB, 256, Masking(0.0), seed=0).epoch(0)
        on_tries = sum(model.loss(batch, 0.7).item() * batch.weight for batch in batches) / weight
        on_paths = sum(n * path_loss(model, q, list(p), 0.7).item() for (q, p), n in samples.items()) / weight
    assert on_tries == pytest.approx(on_paths, rel=1e-5)


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_number_of_parameters_is_known_before_the_model_is_made(norm_first: bool) -> None:
    config = replace(SMALL, prior=False, norm_first=norm_first, max_hops=4, layers=3, feedforward=24)
    expected = sum(parameter.numel() for parameter in model_of(config).parameters())
    assert config.num_parameters(len(VOCAB)) == expected


def test_a_token_is_not_influenced_by_what_it_may_not_see() -> None:
    model = model_of(SMALL)
    batch = next(Batches(small_tries(small_graph()), VOCAB, 256, Masking(0.0), seed=0).epoch(0))
    row, column = 0, 5
    before = model(batch.tokens, batch.positions, batch.visible)[row, column]
    other = batch.tokens.clone()
    unseen = ~batch.visible[row, column]
    assert unseen.any()
    other[row, unseen] = 0
    assert torch.equal(before, model(other, batch.positions, batch.visible)[row, column])
    other[row, ~unseen] = 1
    assert not torch.equal(before, model(other, batch.positions, batch.visible)[row, column])


def test_logits_of_a_slice_are_those_of_the_twin() -> None:
    model = model_of(SMALL)
    query, prefix = (3, VOCAB.first_relation + 1), [VOCAB.first_relation + 2]
    tokens = torch.tensor([[*query, *prefix]])
    visible = torch.ones(1, 3, 3, dtype=torch.bool).tril()
    visible[0, 0, 1] = True
    state = model(tokens, torch.arange(3)[None], visible)[:, -1]
    found = model.logits(state, VOCAB.after_relation, torch.tensor([2]))[0]
    torch.testing.assert_close(found, logits_after(model, query, prefix)[VOCAB.after_relation])


def test_in_16_bits_the_loss_and_its_gradient_are_nearly_the_same() -> None:
    """On a CPU, which rounds as a GPU does; there was none to try."""
    model = model_of(SMALL)
    batch = next(Batches(small_tries(small_graph()), VOCAB, 512, Masking(0.0), seed=0).epoch(0))
    losses, gradients = [], []
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = model.loss(batch, 0.7)
        assert loss.dtype == torch.float32
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.item())
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))  # type: ignore[union-attr]
    assert losses[0] != losses[1]  # the layers did run in 16 bits
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
    assert torch.cosine_similarity(gradients[0], gradients[1], dim=0).item() > 0.99


def test_only_the_products_of_the_loss_are_in_16_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same states, numbers that 16 bits can hold give the same loss: its sums have 32."""
    model = model_of(SMALL)
    batch = next(Batches(small_tries(small_graph()), VOCAB, 512, Masking(0.0), seed=0).epoch(0))
    with torch.no_grad():
        for table in model.parameters():
            table.copy_(table.bfloat16())
    states = model(batch.tokens, batch.positions, batch.visible).bfloat16()
    monkeypatch.setattr(model, "_encode", lambda *_: states)
    with torch.autocast("cpu", torch.bfloat16):
        within = model.loss(batch, 0.7)
    assert within.dtype == torch.float32
    assert within.item() == pytest.approx(model.loss(batch, 0.7).item(), rel=2e-4)


def test_small_models_have_32_bits() -> None:
    assert not use_bfloat16(torch.device("cpu"), LEAST_DIM - 1)
    assert use_bfloat16(torch.device("cuda"), 16)


def test_the_prior_goes_where_the_model_goes() -> None:
    model = model_of(SMALL)
    before = model.state_dict().keys()
    model.to("meta")
    assert model.prior is not None
    assert {tensor.device.type for tensor in vars(model.prior).values()} == {"meta"}
    assert model.state_dict().keys() == before  # and is no part of a checkpoint


def test_dropout_drops_the_share_it_should_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    dropout, x = Dropout(0.1), torch.ones(1000, 999)
    y = dropout(x)
    assert (y == 0).double().mean().item() == pytest.approx(0.1, abs=0.002)
    assert y.mean().item() == pytest.approx(1.0, abs=0.003)
    assert torch.equal(dropout.eval()(x), x)


def test_training_learns_the_paths_of_a_small_graph() -> None:
    torch.manual_seed(0)
    model = Transformer(VOCAB, SMALL, Prior.from_adjacency(small_graph()))
    batches = Batches(small_tries(small_graph()), VOCAB, 512, Masking(0.0), seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for epoch in range(12):
        for batch in batches.epoch(epoch):
            optimizer.zero_grad()
            loss = model.loss(batch, 0.9)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < 0.75 * losses[0]


# ------------------------------------------------------------------------------------------------- sampled


def loss_and_gradients(model: Transformer, batch: Batch) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss = model.loss(batch, 0.7)
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {"loss": loss.detach()} | {name: g.clone() for name, g in gradients.items() if g is not None}


def batches_with(number: int, seed: int = 0) -> Iterator[Batch]:
    """Few targets a batch, so that most entities have to be drawn."""
    graph = small_graph()
    return Batches(small_tries(graph), VOCAB, 64, Masking(0.0), seed, NegativeSampler(graph, number)).epoch(0)


@pytest.mark.parametrize("prior", [True, False])
def test_where_all_entities_are_drawn_loss_and_gradients_are_those_of_the_full_softmax(prior: bool) -> None:
    model = model_of(replace(SMALL, prior=prior))
    for batch in batches_with(VOCAB.num_entities):
        expected = loss_and_gradients(model, replace(batch, sampled=None))
        found = loss_and_gradients(model, batch)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, msg=name)


def test_the_prior_reaches_the_drawn_entities_it_is_meant_for() -> None:
    # Scaled so that the prior decides nearly alone: a prior at the wrong entities would show in the loss.
    model = model_of(SMALL)
    assert model.prior_scale is not None
    torch.nn.init.constant_(model.prior_scale, 3.0)
    batch = next(batches_with(3))
    sampled = batch.sampled
    assert sampled is not None
    assert len(sampled.entities) < VOCAB.num_entities
    states = model(batch.tokens, batch.positions, batch.visible).flatten(0, 1)[batch.entities.source]
    full = model.logits(states, VOCAB.after_relation, batch.entities.relation)
    assert model.prior is not None
    logits = states @ model.embedding.weight[sampled.entities].T
    row, column, value = model.prior.among(sampled.entities).entries(batch.entities.relation)
    logits = logits.index_put((row, column), value * 3.0, accumulate=True)
    torch.testing.assert_close(logits, full[:, sampled.entities])


def test_the_more_are_drawn_the_nearer_are_loss_and_gradients() -> None:
    model = model_of(SMALL)
    errors = []
    for number in (1, 3, 6, 12):
        total, draws = 0.0, 0
        for seed in range(3):
            for batch in islice(batches_with(number, seed), 2):
                exact = loss_and_gradients(model, replace(batch, sampled=None))
                found = loss_and_gradients(model, batch)
                total += sum((found[name] - exact[name]).norm().item() for name in exact)
                draws += 1
        errors.append(total / draws)
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4 * errors[0]


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the size of the largest tensor that any operation makes, forward or backward."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


def test_a_quarter_of_a_million_entities_train_without_a_row_of_logits_over_all_of_them() -> None:
    entities, relations, drawn = 250_000, 5, 500
    rng = np.random.default_rng(0)
    columns = (rng.integers(0, size, 300_000) for size in (entities, relations, entities))
    graph = Adjacency.build(np.stack(list(columns), axis=1).astype(np.int32), entities, relations)
    tries = build_tries(sample_paths(graph, both_directions(graph.triples[:500], relations), seed=0))
    vocab = Vocabulary(entities, relations)
    negatives = NegativeSampler.from_adjacency(graph, drawn)
    assert negatives is not None  # there are enough entities for it
    batches = Batches(tries, vocab, 512, Masking(0.15), 0, negatives)
    torch.manual_seed(0)
    model = Transformer(vocab, replace(SMALL, layers=1, dim=8, feedforward=8), Prior.from_adjacency(graph))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    table = model.embedding.weight.numel()
    losses: list[float] = []
    first = next(batches.epoch(0))
    for _ in range(4):
        assert first.sampled is not None
        assert len(first.sampled.entities) < len(first.entities.token) + 2 * drawn
        optimizer.zero_grad()
        with Largest() as largest:  # type: ignore[no-untyped-call]
            loss = model.loss(first, 0.9)
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        # Nothing is larger than the table's own gradient, which the number of rows does not multiply.
        assert largest.elements <= table
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    with Largest() as largest:  # type: ignore[no-untyped-call]
        model.loss(replace(first, sampled=None), 0.9)
    assert largest.elements >= min(len(first.entities.source), 512) * entities > 2 * table  # it does see them
