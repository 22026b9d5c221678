"""The transformer sees what it should, and its loss on trees is the mean loss over the unfolded paths."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from naive_model import logits_after, path_loss
from training_cases import VOCAB, samples_of, small_graph, small_tries

from squire.batches import Batches, Masking
from squire.model import Dropout, Transformer
from squire.prior import Prior
from squire.recipe import ModelConfig

SMALL = ModelConfig(layers=2, dim=16, feedforward=32, heads=2, dropout=0.0)


def model_of(config: ModelConfig) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(VOCAB, config, Prior.of(small_graph()) if config.prior else None)
    for parameter in model.parameters():  # far from the symmetric start, so that no term is nearly zero
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("prior", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_loss_on_tries_is_the_mean_loss_over_the_unfolded_paths(
    typed: bool, prior: bool, norm_first: bool
) -> None:
    model = model_of(replace(SMALL, typed=typed, prior=prior, norm_first=norm_first))
    tries = small_tries(small_graph())
    samples = samples_of(tries)
    weight = sum(samples.values())
    with torch.no_grad():
        batches = Batches(tries, VOCAB, 256, Masking(0.0), seed=0).epoch(0)
        on_tries = sum(model.loss(batch, 0.7).item() * batch.weight for batch in batches) / weight
        on_paths = sum(n * path_loss(model, q, list(p), 0.7).item() for (q, p), n in samples.items()) / weight
    assert on_tries == pytest.approx(on_paths, rel=1e-5)


def test_a_token_is_not_influenced_by_what_it_may_not_see() -> None:
    model = model_of(SMALL)
    batch = next(Batches(small_tries(small_graph()), VOCAB, 256, Masking(0.0), seed=0).epoch(0))
    row, column = 0, 5
    before = model(batch.tokens, batch.places, batch.visible)[row, column]
    other = batch.tokens.clone()
    unseen = ~batch.visible[row, column]
    assert unseen.any()
    other[row, unseen] = 0
    assert torch.equal(before, model(other, batch.places, batch.visible)[row, column])
    other[row, ~unseen] = 1
    assert not torch.equal(before, model(other, batch.places, batch.visible)[row, column])


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


def test_the_loss_itself_has_all_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same states, 16 bits outside of it change nothing."""
    model = model_of(SMALL)
    batch = next(Batches(small_tries(small_graph()), VOCAB, 512, Masking(0.0), seed=0).epoch(0))
    states = model(batch.tokens, batch.places, batch.visible).bfloat16()
    monkeypatch.setattr(model, "forward", lambda *_: states)
    with torch.autocast("cpu", torch.bfloat16):
        within = model.loss(batch, 0.7)
    assert torch.equal(within, model.loss(batch, 0.7))


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
    model = Transformer(VOCAB, SMALL, Prior.of(small_graph()))
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
