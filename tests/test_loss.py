"""The blockwise loss and its gradients are those of dense targets; each equation on a case computed by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from squire.model.batches import Targets
from squire.model.loss import trie_loss
from squire.model.prior import Prior

SOURCES, CLASSES, DIM = 5, 7, 4
ROW = torch.tensor([0, 0, 1, 3, 3, 3, 4])
TARGET = torch.tensor([2, 5, 0, 1, 1, 6, 3])
WEIGHT = torch.tensor([0.5, 1.5, 1.0, 2.0, 0.25, 0.75, 3.0])
PRIOR = Prior(torch.tensor([0, 2, 3]), torch.tensor([1, 4, 6]), torch.tensor([0.7, 1.3, 2.0]), torch.ones(2))
RELATIONS = torch.tensor([0, 1, 1, 0, 0])
TARGETS = Targets(torch.arange(SOURCES), RELATIONS, ROW, TARGET, WEIGHT)


def one_target(token: int) -> Targets:
    zero = torch.tensor([0])
    return Targets(zero, zero, zero, torch.tensor([token]), torch.tensor([1.0]))


def dense_loss(states: Tensor, classes: Tensor, smoothing: float, scale: Tensor | None) -> Tensor:
    logits = states @ classes.T
    if scale is not None:
        table = torch.zeros(2, CLASSES)
        table[0, [1, 4]], table[1, 6] = torch.tensor([0.7, 1.3]), 2.0
        logits = logits + table[RELATIONS] * scale[RELATIONS][:, None]
    log_p = logits.log_softmax(1)
    total = torch.zeros(())
    for row, target, weight in zip(ROW, TARGET, WEIGHT, strict=True):
        alpha = torch.full((CLASSES,), (1 - smoothing) / (CLASSES - 1))
        alpha[target] = smoothing
        total = total - weight * (alpha * log_p[row]).sum()
    return total


@pytest.mark.parametrize("rows_at_once", [2, 1000])
@pytest.mark.parametrize("smoothing", [0.25, 0.9, 1.0])
@pytest.mark.parametrize("with_prior", [False, True])
def test_loss_and_gradients_are_those_of_dense_targets(
    monkeypatch: pytest.MonkeyPatch, rows_at_once: int, smoothing: float, with_prior: bool
) -> None:
    monkeypatch.setattr("squire.model.loss.ROWS_AT_ONCE", rows_at_once)
    generator = torch.Generator().manual_seed(0)
    results = []
    for dense in (True, False):
        generator.manual_seed(0)
        states = torch.randn(SOURCES, DIM, generator=generator).requires_grad_()
        classes = torch.randn(CLASSES, DIM, generator=generator).requires_grad_()
        scale = torch.tensor([1.5, 0.5]).requires_grad_() if with_prior else None
        if dense:
            loss = dense_loss(states, classes, smoothing, scale)
        else:
            prior = PRIOR if with_prior else None
            loss = trie_loss(states, classes, TARGETS, smoothing, prior, scale)
        (2 * loss).backward()  # type: ignore[no-untyped-call]
        results.append((loss.detach(), states.grad, classes.grad, None if scale is None else scale.grad))
    for expected, found in zip(*results, strict=True):
        if expected is not None:
            torch.testing.assert_close(found, expected)


def test_equation_4_by_hand() -> None:
    # Two classes with logits 0 and ln 3: probabilities 1/4 and 3/4. The target is the second, its weight ε = 0.8.
    states, classes = torch.tensor([[1.0]]), torch.tensor([[0.0], [math.log(3)]])
    loss = trie_loss(states, classes, one_target(1), 0.8)
    assert loss.item() == pytest.approx(-(0.8 * math.log(3 / 4) + 0.2 * math.log(1 / 4)))


def sampled_loss(states: Tensor, classes: Tensor, counts: Tensor, smoothing: float, scale: Tensor) -> Tensor:
    """Eq. 4 for a sample: log p with the estimated normaliser, every class counted as often as it stands for."""
    table = torch.zeros(2, CLASSES)
    table[0, [1, 4]], table[1, 6] = torch.tensor([0.7, 1.3]), 2.0
    logits = states @ classes.T + table[RELATIONS] * scale[RELATIONS][:, None]
    log_p = logits - (counts * logits.exp()).sum(1, keepdim=True).log()
    rest = (1 - smoothing) / (MANY - 1)
    total = torch.zeros(())
    for row, target, weight in zip(ROW, TARGET, WEIGHT, strict=True):
        # All of the α add up to 1 only in the mean over draws: the normaliser counts fully whatever was drawn.
        log_norm = logits[row, target] - log_p[row, target]
        others = (counts * logits[row]).sum() - logits[row, target]
        total = total + weight * (log_norm - smoothing * logits[row, target] - rest * others)
    return total


MANY = 1000  # classes, of which CLASSES are drawn


@pytest.mark.parametrize("rows_at_once", [2, 1000])
@pytest.mark.parametrize("smoothing", [0.25, 1.0])
def test_loss_and_gradients_of_a_sample_are_those_of_its_twin(
    monkeypatch: pytest.MonkeyPatch, rows_at_once: int, smoothing: float
) -> None:
    monkeypatch.setattr("squire.model.loss.ROWS_AT_ONCE", rows_at_once)
    counts = torch.tensor([1.0, 1.0, 1.0, 1.0, 350.0, 1.0, 1.0])  # the one that is no target stands for many
    results = []
    for twin in (True, False):
        generator = torch.Generator().manual_seed(0)
        states = torch.randn(SOURCES, DIM, generator=generator).requires_grad_()
        classes = torch.randn(CLASSES, DIM, generator=generator).requires_grad_()
        scale = torch.tensor([1.5, 0.5]).requires_grad_()
        if twin:
            loss = sampled_loss(states, classes, counts, smoothing, scale)
        else:
            loss = trie_loss(states, classes, TARGETS, smoothing, PRIOR, scale, counts, MANY)
        (2 * loss).backward()  # type: ignore[no-untyped-call]
        results.append((loss.detach(), states.grad, classes.grad, scale.grad))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)


def test_a_class_that_stands_for_five_counts_like_five() -> None:
    # exp(z) is 3 for the target and 1 for each of five others, one of whom is drawn: p = 3/8, and 1/8 for each.
    states, classes = torch.tensor([[1.0]]), torch.tensor([[math.log(3)], [0.0]])
    loss = trie_loss(states, classes, one_target(0), 0.8, counts=torch.tensor([1.0, 5.0]), num_classes=6)
    assert loss.item() == pytest.approx(-(0.8 * math.log(3 / 8) + 5 * 0.04 * math.log(1 / 8)))


def test_the_prior_alone_gives_smoothed_frequencies() -> None:
    import numpy as np

    from squire.graph.adjacency import Adjacency

    graph = Adjacency.build(np.array([[0, 0, 2], [1, 0, 2], [0, 0, 3]], np.int32), 4, 1)
    prior = Prior.from_adjacency(graph)
    row, entity, value = prior.entries(torch.tensor([0]))
    logits = torch.zeros(1, 4).index_put((row, entity), value)
    # Two facts with tail 2, one with tail 3, and one fact's weight spread over all four entities.
    torch.testing.assert_close(logits.softmax(1), torch.tensor([[0.25, 0.25, 2.25, 1.25]]) / 4)


def test_a_single_class_is_certain() -> None:
    """A graph of one entity: there is nothing else to give a share to, and nothing to learn."""
    states, classes = torch.randn(1, DIM).requires_grad_(), torch.randn(1, DIM).requires_grad_()
    loss = trie_loss(states, classes, one_target(0), 0.8)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(0, abs=1e-6)
    assert states.grad is not None
    assert states.grad.abs().max() < 1e-6
