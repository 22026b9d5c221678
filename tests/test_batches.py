"""Batches hold every tree once, each token sees its query and its ancestors, and the order can be resumed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pytest
import torch
from training_cases import VOCAB, samples_of, small_graph, small_tries

from squire.model.batches import Batch, Batches, Masking
from squire.model.negative_sampling import NegativeSampler, SampledEntities
from squire.paths.tries import Tries

NOTHING_HIDDEN = Masking(0.0)
Context = tuple[int, ...]


@pytest.fixture(scope="module")
def tries() -> Tries:
    return small_tries(small_graph(120))


def batches_of(tries: Tries, masking: Masking = NOTHING_HIDDEN, nodes: int = 256) -> Batches:
    return Batches(tries, VOCAB, nodes, masking, seed=0)


def context_of(batch: Batch, source: int) -> Context:
    """The tokens that a token sees, in their order, itself last."""
    row, column = divmod(source, batch.tokens.shape[1])
    seen = torch.nonzero(batch.visible[row, column]).reshape(-1)
    positions = batch.positions[row, seen]
    assert positions.tolist() == sorted(set(positions.tolist()))  # one token per position: no stranger among them
    return tuple(batch.tokens[row, seen].tolist())


def targets_of(batches: list[Batch]) -> dict[tuple[Context, int], float]:
    """Weights of what is to be predicted after which tokens."""
    found: dict[tuple[Context, int], float] = defaultdict(float)
    for batch in batches:
        for targets in (batch.relations, batch.entities):
            for row, token, weight in zip(targets.row, targets.token, targets.weight, strict=True):
                found[context_of(batch, int(targets.source[row])), int(token)] += weight.item()
    return found


def expected_targets(tries: Tries) -> dict[tuple[Context, int], float]:
    """The same from one path at a time: each token of a path has the path's weight over its number of tokens."""
    found: dict[tuple[Context, int], float] = defaultdict(float)
    for (query, path), weight in samples_of(tries).items():
        for k, token in enumerate(path):
            found[(*query, *path[:k]), token] += weight / len(path)
    return found


def test_targets_are_those_of_one_path_at_a_time(tries: Tries) -> None:
    found, expected = targets_of(list(batches_of(tries).epoch(0))), expected_targets(tries)
    assert set(found) == set(expected)
    for key, weight in expected.items():
        assert found[key] == pytest.approx(weight, rel=1e-5)


def test_trees_larger_than_a_row_are_cut_without_loss(tries: Tries, monkeypatch: pytest.MonkeyPatch) -> None:
    assert np.diff(tries.offsets).max() > 16
    monkeypatch.setattr("squire.model.batches.ROW_TOKENS", 16)
    found, expected = targets_of(list(batches_of(tries).epoch(0))), expected_targets(tries)
    assert {key: pytest.approx(weight, rel=1e-5) for key, weight in found.items()} == dict(expected)


def test_rows_are_nearly_full_and_hold_no_more_than_the_budget(tries: Tries) -> None:
    batches = list(batches_of(tries).epoch(0))
    assert all(batch.tokens.numel() <= 256 for batch in batches)
    padding = sum(int((batch.tokens == VOCAB.pad).sum()) for batch in batches[:-1])
    assert padding < 0.1 * sum(batch.tokens.numel() for batch in batches[:-1])


def test_relations_of_the_predicting_tokens_are_told(tries: Tries) -> None:
    batch = next(batches_of(tries).epoch(0))
    tokens = batch.tokens.reshape(-1)[batch.entities.source]
    assert torch.equal(batch.entities.relation + VOCAB.first_relation, tokens)


def test_epochs_differ_but_hold_the_same(tries: Tries) -> None:
    batches = batches_of(tries)
    first, second = list(batches.epoch(0)), list(batches.epoch(1))
    assert not torch.equal(first[0].tokens, second[0].tokens)
    assert set(targets_of(first)) == set(targets_of(second))
    assert len(first) == batches.num_batches(0)


def test_an_epoch_goes_on_where_it_stopped(tries: Tries) -> None:
    whole = list(batches_of(tries, Masking(0.3)).epoch(2))
    rest = list(batches_of(tries, Masking(0.3)).epoch(2, first=3))
    assert len(rest) == len(whole) - 3
    for before, after in zip(whole[3:], rest, strict=True):
        assert torch.equal(before.tokens, after.tokens)
        assert torch.equal(before.entities.weight, after.entities.weight)


@pytest.mark.parametrize("with_random", [False, True])
def test_hidden_entities_are_replaced_and_not_predicted(tries: Tries, with_random: bool) -> None:
    share = 0.3
    plain = list(batches_of(tries).epoch(0))
    masked = list(batches_of(tries, Masking(share, with_random)).epoch(0))
    entities, hidden, predicted, before = 0, 0, 0, 0
    for left, right in zip(plain, masked, strict=True):
        in_path = (left.positions > 1) & (left.tokens < VOCAB.num_entities)
        entities += int(in_path.sum())
        changed = left.tokens != right.tokens
        assert not (changed & ~in_path).any()
        hidden += int((right.tokens == VOCAB.mask).sum())
        predicted, before = predicted + len(right.entities.token), before + len(left.entities.token)
        assert len(right.relations.token) == len(left.relations.token)
    assert predicted == pytest.approx((1 - share) * before, rel=0.1)
    assert hidden == (0 if with_random else pytest.approx(share * entities, rel=0.1))


def test_weights_of_all_batches_add_up_to_the_sequences(tries: Tries) -> None:
    batches = list(batches_of(tries).epoch(0))
    total = sum(samples_of(tries).values())
    assert sum(batch.weight for batch in batches) == pytest.approx(total)


def sampled_of(batches: Iterable[Batch]) -> list[SampledEntities]:
    return [batch.sampled for batch in batches if batch.sampled is not None]


def test_competing_entities_hold_all_targets_and_are_the_same_when_resumed(tries: Tries) -> None:
    def batches() -> Batches:
        return Batches(tries, VOCAB, 64, Masking(0.5), 0, NegativeSampler(small_graph(120), 2))

    whole = list(batches().epoch(1))
    for batch, sampled in zip(whole, sampled_of(whole), strict=True):
        assert torch.isin(batch.entities.token, sampled.entities).all()
    rest = sampled_of(batches().epoch(1, first=3))
    for before, after in zip(sampled_of(whole[3:]), rest, strict=True):
        assert torch.equal(before.entities, after.entities)
        assert torch.equal(before.counts, after.counts)
    assert len({tuple(one.entities.tolist()) for one in sampled_of(whole)}) > 1


def test_without_negatives_all_compete_and_masks_are_the_same_with_them(tries: Tries) -> None:
    plain = list(batches_of(tries, Masking(0.3)).epoch(0))
    assert sampled_of(plain) == []
    drawn = Batches(tries, VOCAB, 256, Masking(0.3), 0, NegativeSampler(small_graph(120), 2)).epoch(0)
    for one, other in zip(plain, drawn, strict=True):
        assert torch.equal(one.tokens, other.tokens)
