"""Facts as rows: every query once in a pass, with all its tails; in turn with paths, and resumable anywhere."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from training_cases import RELATIONS, VOCAB, small_graph, small_tries

from squire.graph.adjacency import Adjacency
from squire.model.batches import Batch, Batches, Masking
from squire.model.fact_batches import FactBatches, Interleaved
from squire.model.negative_sampling import NegativeSampler
from squire.model.recipe import ModelConfig
from squire.model.transformer import Transformer

NODES = 48


@pytest.fixture(scope="module")
def facts() -> Adjacency:
    return small_graph(120)


def fact_batches(facts: Adjacency, passes: int = 1, sampler: NegativeSampler | None = None) -> FactBatches:
    return FactBatches(facts, VOCAB, NODES, passes, 0, sampler)


def triples_of(batch: Batch) -> list[tuple[int, int, int]]:
    """What a batch teaches: after `h, r, r` comes t."""
    found = []
    targets = batch.entities
    for row, tail, weight in zip(
        targets.row.tolist(), targets.token.tolist(), targets.weight.tolist(), strict=True
    ):
        source, column = divmod(int(targets.source[row]), batch.tokens.shape[1])
        assert (column, weight) == (2, 1.0)
        head, relation, again = batch.tokens[source].tolist()
        assert again == relation
        assert int(targets.relation[row]) == relation - VOCAB.first_relation
        found.append((head, relation - VOCAB.first_relation, tail))
    return found


def all_edges(facts: Adjacency) -> Counter[tuple[int, int, int]]:
    columns = (facts.heads.tolist(), facts.relations.tolist(), facts.tails.tolist())
    return Counter(zip(*columns, strict=True))


def same(one: Batch, other: Batch) -> bool:
    return torch.equal(one.tokens, other.tokens) and torch.equal(one.entities.token, other.entities.token)


@pytest.mark.parametrize("passes", [1, 3])
def test_a_pass_teaches_every_fact_and_its_inverse_once(facts: Adjacency, passes: int) -> None:
    batches = list(fact_batches(facts, passes).epoch(0))
    assert len(batches) == fact_batches(facts, passes).num_batches(0)
    assert Counter(triple for batch in batches for triple in triples_of(batch)) == Counter(
        dict.fromkeys(all_edges(facts), passes)
    )
    assert all(batch.tokens.numel() <= NODES for batch in batches)
    assert sum(batch.weight for batch in batches) == pytest.approx(passes * facts.num_edges)


@torch.no_grad()
def test_the_loss_is_the_smoothed_cross_entropy_of_one_fact_at_a_time(facts: Adjacency) -> None:
    torch.manual_seed(0)
    model = Transformer(VOCAB, ModelConfig(layers=1, dim=16, feedforward=32, heads=2, dropout=0, prior=False))
    batch = next(fact_batches(facts).epoch(0))
    others = VOCAB.num_entities - 1
    visible = torch.tensor([[[1, 1, 0], [1, 1, 0], [1, 1, 1]]], dtype=torch.bool)
    expected = 0.0
    for head, relation, tail in triples_of(batch):
        after = relation + VOCAB.first_relation
        states = model(torch.tensor([[head, after, after]]), torch.arange(3)[None], visible)
        log_probability = model.logits(states[0, 2:], VOCAB.after_relation).log_softmax(1)[0]
        target = torch.full_like(log_probability, 0.1 / others)
        target[tail] = 0.9
        expected -= float(target @ log_probability)
    assert float(model.loss(batch, 0.9)) * batch.weight == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
def test_parts_of_a_batch_add_up(facts: Adjacency) -> None:
    torch.manual_seed(0)
    model = Transformer(VOCAB, ModelConfig(layers=1, dim=16, feedforward=32, heads=2, dropout=0, prior=False))
    batch = next(fact_batches(facts).epoch(0))
    parts = [float(model.loss(batch.shard(part, 3), 0.9)) for part in range(3)]
    assert sum(parts) == pytest.approx(float(model.loss(batch, 0.9)), rel=1e-5)


def test_every_target_competes_where_entities_are_sampled(facts: Adjacency) -> None:
    sampler = NegativeSampler(facts, 3)
    for batch in fact_batches(facts, sampler=sampler).epoch(0):
        assert batch.sampled is not None
        assert np.isin(batch.entities.token.numpy(), batch.sampled.entities.numpy()).all()


def test_passes_and_epochs_have_their_own_order(facts: Adjacency) -> None:
    batches = fact_batches(facts, passes=2)
    half = batches.num_batches(0) // 2
    first, other = list(batches.epoch(0)), list(batches.epoch(1))
    assert not same(first[0], first[half])
    assert not same(first[0], other[0])
    assert same(first[0], next(batches.epoch(0)))


@pytest.mark.parametrize("passes", [0, 1, 4])
def test_paths_and_facts_take_turns_and_can_be_resumed_anywhere(facts: Adjacency, passes: int) -> None:
    paths = Batches(small_tries(facts), VOCAB, 256, Masking(0.1), seed=0)
    rows = fact_batches(facts, passes)
    both = Interleaved([paths, rows])
    whole = list(both.epoch(2))
    assert len(whole) == both.num_batches(2) == paths.num_batches(2) + rows.num_batches(2)
    for first in range(len(whole) + 1):
        assert all(same(one, other) for one, other in zip(both.epoch(2, first), whole[first:], strict=True))
    is_fact = [batch.tokens.shape[1] == 3 for batch in whole]
    assert sum(is_fact) == rows.num_batches(2)
    share = sum(is_fact) / len(is_fact)
    for i in range(len(is_fact)):  # evenly spread
        assert abs(sum(islice(is_fact, i)) - share * i) <= 1.5


def test_relations_have_an_inverse(facts: Adjacency) -> None:
    assert {relation for _, relation, _ in all_edges(facts)} == set(range(2 * RELATIONS))
