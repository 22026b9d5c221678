"""Edge embeddings: their scores, what the fit learns, that it can be stopped, and that test plays no part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import LabelTriple, make_graph
from naive_model import complex_rows
from training_cases import VOCAB, samples_of, small_graph, small_tries

from squire.core.progress import no_progress
from squire.core.run_files import EDGES, RECIPE
from squire.core.tensors import load_checkpoint
from squire.graph.graph import Graph
from squire.model.batches import Batches, Masking
from squire.model.decoder import TransformerDecoder
from squire.model.edges import EdgeEmbedding
from squire.model.recipe import ModelConfig, Recipe, TrainConfig
from squire.model.transformer import Transformer
from squire.training import edges
from squire.training.edges import EdgeFit, with_best_penalty

TRAIN = TrainConfig(edge_passes=12, edge_penalty=0.01)


def towns() -> Graph:
    """Everybody lives in a town, and towns lie in a country: where a person lives follows from friends."""
    rng = np.random.default_rng(0)
    train: list[LabelTriple] = []
    held_out: list[LabelTriple] = []
    for i in range(80):
        town = i % 4
        train += [(f"p{i}", "knows", f"p{4 * int(rng.integers(20)) + town}") for _ in range(5)]
        (held_out if i < 20 else train).append((f"p{i}", "lives in", f"town {town}"))
    return make_graph({"train": train, "valid": held_out[:10], "test": held_out[10:]})


def fitted(
    graph: Graph,
    folder: Path,
    train: TrainConfig = TRAIN,
    stop_after: int | None = None,
    passes: int | None = None,
    names: bool = False,
) -> EdgeFit:
    recipe = Recipe("own", model=ModelConfig(edge_rank=8, edge_names=names), train=train)
    fit = EdgeFit(graph, graph.train, recipe, folder)
    steps: Iterator[int] = iter(range(stop_after or 10**9))
    assert fit.fit(no_progress, lambda: next(steps, None) is None, passes) == (stop_after is None)
    return fit


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> EdgeFit:
    return fitted(towns(), tmp_path_factory.mktemp("edges"))


def test_a_score_is_the_real_part_of_a_complex_product() -> None:
    torch.manual_seed(0)
    edges = EdgeEmbedding(5, 4, 3)
    entity, relation = complex_rows(edges.entity), complex_rows(edges.relation)
    heads, relations = torch.tensor([0, 4]), torch.tensor([3, 1])
    expected = (entity[heads] * relation[relations]) @ entity.conj().T
    torch.testing.assert_close(edges.logits(heads, relations), expected.real, atol=1e-8, rtol=1e-4)


def test_after_a_mask_there_is_no_opinion() -> None:
    edges = EdgeEmbedding(5, 4, 3)
    assert not edges.states(torch.tensor([5, 7]), torch.tensor([0, 1])).any()


def test_facts_of_valid_are_found(run: EdgeFit) -> None:
    assert max(run.mrr) > 0.8  # four towns


def test_the_best_pass_is_kept(run: EdgeFit) -> None:
    assert run._valid_mrr() == max(run.mrr)


def test_stopped_in_the_middle_and_resumed_it_is_the_same(run: EdgeFit, tmp_path: Path) -> None:
    steps = run.batches.num_batches(0)
    fitted(towns(), tmp_path, stop_after=3 * steps - 1)
    again = fitted(towns(), tmp_path)
    assert again.mrr == run.mrr
    assert torch.equal(again.edges.entity, run.edges.entity)
    assert torch.equal(again.edges.relation, run.edges.relation)


def test_in_two_calls_it_is_the_same_and_what_is_finished_is_kept_small(run: EdgeFit, tmp_path: Path) -> None:
    first = fitted(towns(), tmp_path, passes=2)
    assert len(first.mrr) == 2
    before = load_checkpoint(tmp_path, EDGES)
    assert (before.state["finished"], len(before.arrays)) == (False, 6)
    again = fitted(towns(), tmp_path)
    assert again.mrr == run.mrr
    assert torch.equal(again.edges.entity, run.edges.entity)
    kept = load_checkpoint(tmp_path, EDGES)
    assert (kept.state["finished"], set(kept.arrays)) == (True, {"best.entity", "best.relation"})
    once_more = fitted(towns(), tmp_path)
    assert torch.equal(once_more.edges.relation, run.edges.relation)
    assert load_checkpoint(tmp_path, EDGES).checksum == kept.checksum


def test_it_ends_when_valid_gets_no_better(tmp_path: Path) -> None:
    fit = fitted(towns(), tmp_path, replace(TRAIN, edge_passes=200))
    assert len(fit.mrr) < 200
    assert max(fit.mrr) not in fit.mrr[-3:]


def test_test_facts_have_no_influence(run: EdgeFit, tmp_path: Path) -> None:
    graph = replace(towns(), test=np.empty((0, 3), np.int32))
    assert torch.equal(fitted(graph, tmp_path).edges.entity, run.edges.entity)


def test_with_all_entities_in_the_sample_nothing_changes(run: EdgeFit, tmp_path: Path) -> None:
    graph = towns()
    all_but_one = fitted(graph, tmp_path, replace(TRAIN, edge_sampled=graph.num_entities - 1))
    assert max(all_but_one.mrr) == pytest.approx(max(run.mrr), abs=0.1)


@pytest.mark.parametrize("stop_after", [None, 5, 20])
def test_a_penalty_is_doubled_as_long_as_valid_gets_better(
    tmp_path: Path, stop_after: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edges, "TRIAL_PASSES", 1)  # after more of them all facts of this graph are found
    graph, penalties = towns(), [0.004 * 2**i for i in range(6)]
    by_hand = [
        max(fitted(graph, tmp_path / str(i), replace(TRAIN, edge_penalty=penalty), passes=1).mrr)
        for i, penalty in enumerate(penalties)
    ]
    best = next(i for i in range(5) if by_hand[i + 1] <= by_hand[i])
    assert best > 0
    train = replace(TRAIN, edge_penalty=penalties[0], edge_search=True)
    recipe = Recipe("own", model=ModelConfig(edge_rank=8, edge_names=False), train=train)
    folder = tmp_path / "run"
    folder.mkdir()
    if stop_after:
        steps = iter(range(stop_after))
        stopped = with_best_penalty(
            graph, graph.train, recipe, folder, no_progress, lambda: next(steps, None) is None
        )
        assert stopped is None
    found = with_best_penalty(graph, graph.train, recipe, folder, no_progress, lambda: False)
    assert found is not None
    assert found.train.edge_penalty == penalties[best]
    assert json.loads((folder / RECIPE).read_text()) == found.to_dict()
    assert not any(path.is_dir() for path in folder.iterdir())
    assert with_best_penalty(graph, graph.train, found, folder, no_progress, lambda: False) == found
    whole = fitted(graph, folder, found.train)
    alone = fitted(graph, tmp_path / "alone", replace(TRAIN, edge_penalty=penalties[best]))
    assert whole.mrr == alone.mrr
    assert torch.equal(whole.edges.entity, alone.edges.entity)


def test_without_valid_facts_no_penalty_is_searched_for(tmp_path: Path) -> None:
    graph = replace(towns(), valid=np.empty((0, 3), np.int32))
    recipe = Recipe("own", model=ModelConfig(edge_rank=8), train=replace(TRAIN, edge_search=True))
    assert with_best_penalty(graph, graph.train, recipe, tmp_path, no_progress, lambda: False) == recipe


def trades() -> Graph:
    """What people do follows from their family names alone: nobody has more than one fact."""
    trades = ("baker", "smith", "miller")
    facts = [(f"{number} {'abc'[number % 3] * 3}", "is a", trades[number % 3]) for number in range(90)]
    return make_graph({"train": [*facts[:60]], "valid": facts[60:75], "test": facts[75:]})


def test_entities_without_a_fact_are_known_by_the_words_of_their_names(tmp_path: Path) -> None:
    with_names, without = (fitted(trades(), tmp_path / str(names), names=names) for names in (True, False))
    assert max(with_names.mrr) == 1
    assert max(without.mrr) < 0.8


def test_with_names_it_can_be_stopped_and_only_sums_are_kept(tmp_path: Path) -> None:
    whole = fitted(trades(), tmp_path / "whole", names=True)
    fitted(trades(), tmp_path / "parts", names=True, stop_after=2 * whole.batches.num_batches(0) - 1)
    again = fitted(trades(), tmp_path / "parts", names=True)
    assert torch.equal(again.edges.entity, whole.edges.entity)
    assert set(load_checkpoint(tmp_path / "parts", EDGES).arrays) == {"best.entity", "best.relation"}


def test_edges_start_where_the_path_is() -> None:
    tries = small_tries(small_graph())
    found = set()
    for batch in Batches(tries, VOCAB, 128, Masking(0.0), seed=0).epoch(0):
        starts, relations = batch.edge_starts().tolist(), batch.entities.relation.tolist()
        tails = zip(batch.entities.row.tolist(), batch.entities.token.tolist(), strict=True)
        found |= {(starts[row], relations[row], tail) for row, tail in tails}
    expected = set()
    for (head, _), path in samples_of(tries):
        entities = [head, *path[1::2]]
        relations = [token - VOCAB.first_relation for token in path[:-1:2]]
        expected |= set(zip(entities[:-1], relations, entities[1:], strict=True))
    assert found == expected


@torch.no_grad()
def test_a_decoder_adds_the_scores_of_the_last_edge() -> None:
    torch.manual_seed(0)
    with_edges = Transformer(
        VOCAB, ModelConfig(layers=1, dim=16, feedforward=32, heads=2, prior=False, edge_rank=4)
    )
    assert with_edges.edges is not None
    without = Transformer(VOCAB, ModelConfig(layers=1, dim=16, feedforward=32, heads=2, prior=False))
    without.load_state_dict(with_edges.state_dict(), strict=False)
    logits = []
    for decoder in (TransformerDecoder(with_edges), TransformerDecoder(without)):
        decoder.begin(torch.tensor([3, 5]), torch.tensor([1, 0]))
        first, _ = decoder.entities(1, torch.tensor([0, 1, 1]), torch.tensor([2, 4, 0]))
        decoder.relations(2, torch.tensor([2, 0]), torch.tensor([7, 8]))
        decoder.relations(2, torch.tensor([1]), torch.tensor([9]))
        second, _ = decoder.entities(3, torch.tensor([2, 0]), torch.tensor([1, 5]))
        logits.append(torch.cat([first, second]))
    starts, relations = torch.tensor([3, 5, 5, 9, 7]), torch.tensor([2, 4, 0, 1, 5])
    torch.testing.assert_close(
        logits[0] - logits[1], with_edges.edges.logits(starts, relations), atol=1e-5, rtol=0
    )


def test_without_valid_all_passes_are_made(tmp_path: Path) -> None:
    graph = replace(towns(), valid=np.empty((0, 3), np.int32))
    assert fitted(graph, tmp_path).mrr == [0.0] * TRAIN.edge_passes
