"""The search against its definition, and against all paths there are."""

from __future__ import annotations

import math

import naive_beam
import numpy as np
import pytest
import torch
from fakes import FakeSteps
from hypothesis import given
from hypothesis import strategies as st
from naive_beam import Ended, Follow
from training_cases import ENTITIES, RELATIONS, VOCAB, small_graph

from squire.errors import SettingError
from squire.graph.adjacency import Adjacency
from squire.model.decoder import TransformerDecoder
from squire.model.prior import Prior
from squire.model.recipe import ModelConfig
from squire.model.transformer import Transformer
from squire.search import beam
from squire.search.beam import FinishedPaths, search
from squire.search.decoding import decode, rank_answers
from squire.search.options import DecodingOptions, Guidance, SearchEdges
from squire.search.scoring import score_paths

E, R = 5, 4


def paths_of(found: FinishedPaths, query: int) -> dict[tuple[int, ...], float]:
    own = found.query == query
    paths = (tuple(token for token in path if token >= 0) for path in found.paths[own].tolist())
    return dict(zip(paths, found.log_probability[own].tolist(), strict=True))


def same(found: dict[tuple[int, ...], float], expected: list[Ended]) -> None:
    assert found == pytest.approx({ended.path: ended.log_probability for ended in expected}, abs=1e-5)


def run(follow: Follow, queries: int, beam: int, hops: int, prune: float = 0.0) -> FinishedPaths:
    zeros = torch.zeros(queries).long()
    return search(FakeSteps(follow, E), zeros, zeros, DecodingOptions(beam=beam, hops=hops, prune=prune))


@given(seed=st.integers(0, 999), hops=st.integers(1, 2), queries=st.integers(1, 3))
def test_a_beam_as_wide_as_the_world_finds_every_path(seed: int, hops: int, queries: int) -> None:
    follow = naive_beam.random_follow(seed, E, R)
    found = run(follow, queries, beam=(E * R) ** 2, hops=hops)
    for query in range(queries):
        same(paths_of(found, query), naive_beam.all_paths(follow, query, 0, hops))


@given(
    seed=st.integers(0, 999),
    width=st.integers(1, 30),
    hops=st.integers(1, 3),
    prune=st.sampled_from([0.0, 0.01, 0.2, 0.9]),
    looked_at=st.integers(1, 7),
    at_once=st.sampled_from([1, 7, 64, 10_000]),
)
def test_a_narrow_beam_keeps_what_the_definition_keeps(
    seed: int, width: int, hops: int, prune: float, looked_at: int, at_once: int
) -> None:
    follow = naive_beam.random_follow(seed, E, R)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam, "SCORES_AT_ONCE", at_once)
        patch.setattr(beam, "RELEVANT_ANSWERS", looked_at)
        found = run(follow, 3, width, hops, prune)
    for query in range(3):
        least = naive_beam.least_that_matters(follow, query, 0, prune, looked_at, known=set())
        same(paths_of(found, query), naive_beam.beam_search(follow, query, 0, width, hops, least=least))


def test_who_cannot_matter_is_not_fed() -> None:
    def follow(query: int, path: tuple[int, ...]) -> list[float]:  # the first of all is nearly certain
        size, first = (E, 0.8) if len(path) % 2 else (R + 1, 0.96)
        return [math.log(first)] + [math.log((1 - first) / (size - 1))] * (size - 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam, "SCORES_AT_ONCE", 1)
        steps = FakeSteps(follow, E)
        search(steps, torch.zeros(1).long(), torch.zeros(1).long(), DecodingOptions(beam=4, hops=1))
    assert steps.fed == 1 + 1 + 4  # the query, the first relation, the entities: .8 · .04 is above .96 · .01


def test_results_do_not_depend_on_the_company() -> None:
    follow = naive_beam.random_follow(3, E, R)
    together = run(follow, 4, beam=6, hops=3)
    for query in range(4):
        alone = search(
            FakeSteps(lambda _, path, query=query: follow(query, path), E),  # type: ignore[misc]
            torch.zeros(1).long(), torch.zeros(1).long(), DecodingOptions(beam=6, hops=3),
        )  # fmt: skip
        assert paths_of(together, query) == paths_of(alone, 0)


def test_probabilities_of_the_tokens_make_up_the_path() -> None:
    follow = naive_beam.random_follow(1, E, R)
    found = run(follow, 1, beam=50, hops=2)
    for padded, tokens in zip(found.paths.tolist(), found.token_log_probability.tolist(), strict=True):
        path = tuple(token for token in padded if token >= 0)
        expected = [follow(0, path[:k])[token] for k, token in enumerate(path)] + [follow(0, path)[-1]]
        assert tokens[: len(expected)] == pytest.approx(expected)
        assert not any(tokens[len(expected) :])


def test_the_queried_edge_itself_may_be_sure_to_end() -> None:
    follow = naive_beam.random_follow(2, E, R)
    relations = torch.tensor([0, 3])
    decoding = DecodingOptions(beam=10, hops=2, edge_ends=True)
    found = search(FakeSteps(follow, E), torch.zeros(2).long(), relations, decoding)
    for query, relation in enumerate(relations.tolist()):
        expected = naive_beam.beam_search(follow, query, 0, 10, 2)
        sure = [p.path for p in expected if len(p.path) == 2 and p.path[0] == relation]
        assert sure
        ends = {p.path: follow(query, p.path)[-1] if p.path in sure else 0.0 for p in expected}
        same(paths_of(found, query), [Ended(p.path, p.log_probability - ends[p.path]) for p in expected])


def test_score_is_the_mean_log_probability_of_a_token() -> None:
    """Eq. 5 by hand: a path of one hop has three tokens with <eos>, one of two hops five."""
    found = FinishedPaths(
        torch.tensor([0, 0]),
        torch.tensor([[1, 2, -1, -1], [1, 2, 3, 4]]),
        torch.tensor([1, 2]),
        torch.tensor([[-1.0, -2.0, -3.0, 0.0, 0.0], [-1.0, -1.0, -1.0, -1.0, -6.0]]),
    )
    assert found.score.tolist() == [-2.0, -2.0]
    assert found.answer.tolist() == [2, 4]


def test_pruning_leaves_every_answer_of_the_queried_relation() -> None:
    """They are listed, but those that cannot matter are not gone on from."""
    follow = naive_beam.random_follow(5, E, R)
    heads, relations = torch.zeros(2).long(), torch.tensor([0, 3])

    def by(prune: float) -> FinishedPaths:
        decoding = DecodingOptions(beam=20, hops=2, prune=prune, edge_ends=True)
        return search(FakeSteps(follow, E), heads, relations, decoding)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam, "RELEVANT_ANSWERS", 1)
        free, pruned = by(0.0), by(0.9)
    for query, relation in enumerate(relations.tolist()):
        before, after = paths_of(free, query), paths_of(pruned, query)
        edges = {path: p for path, p in before.items() if len(path) == 2 and path[0] == relation}
        assert edges
        assert edges.items() <= after.items()
        assert after.items() <= before.items()
        assert len(after) < len(before)


def test_pruning_asks_for_the_last_answer_that_is_new() -> None:
    """What the graph has already is no news: paths must matter beside answers that it has not."""
    follow = naive_beam.random_follow(4, E, R)
    known = {max(range(E), key=follow(0, (1,)).__getitem__), 0}
    graph = Adjacency.build(np.array([[0, 1, tail] for tail in known], np.int32), E, R // 2)
    guidance = Guidance(SearchEdges(graph), 0.0)
    decoding = DecodingOptions(beam=30, hops=2, prune=0.5, guidance=guidance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam, "RELEVANT_ANSWERS", 2)
        found = search(FakeSteps(follow, E), torch.zeros(1).long(), torch.ones(1).long(), decoding)
    least = naive_beam.least_that_matters(follow, 0, 1, 0.5, 2, known)
    assert least < naive_beam.least_that_matters(follow, 0, 1, 0.5, 2, known=set())
    same(paths_of(found, 0), naive_beam.beam_search(follow, 0, 0, 30, 2, least=least))


# ------------------------------------------------------------------------------------------------- constraint


@given(seed=st.integers(0, 99), width=st.integers(1, 40), hops=st.integers(1, 3))
def test_constrained_paths_walk_the_given_edges_only(seed: int, width: int, hops: int) -> None:
    graph = small_graph(triples=20, seed=seed)
    follow = naive_beam.random_follow(seed, ENTITIES, 2 * RELATIONS)
    heads = torch.tensor([0, 5])
    steps = FakeSteps(follow, ENTITIES)
    decoding = DecodingOptions(beam=width, hops=hops, constraint=SearchEdges(graph))
    found = search(steps, heads, torch.zeros(2).long(), decoding)
    edges = set(zip(graph.heads.tolist(), graph.relations.tolist(), graph.tails.tolist(), strict=True))
    for query, head in enumerate(heads.tolist()):
        same(
            paths_of(found, query),
            naive_beam.beam_search(follow, query, head, width, hops, edges=edges),
        )


@given(seed=st.integers(0, 99), width=st.integers(1, 40), share=st.sampled_from([0.3, 0.9]))
def test_guidance_prefers_known_edges(seed: int, width: int, share: float) -> None:
    graph = small_graph(triples=20, seed=seed)
    follow = naive_beam.random_follow(seed, ENTITIES, 2 * RELATIONS)
    heads = [0, 5]
    decoding = DecodingOptions(beam=width, hops=2, guidance=Guidance(SearchEdges(graph), share))
    steps = FakeSteps(follow, ENTITIES)
    found = search(steps, torch.tensor(heads), torch.zeros(2).long(), decoding)
    edges = set(zip(graph.heads.tolist(), graph.relations.tolist(), graph.tails.tolist(), strict=True))
    guided = naive_beam.guided_follow(follow, heads.__getitem__, edges, share)
    for query, head in enumerate(heads):
        same(paths_of(found, query), naive_beam.beam_search(guided, query, head, width, 2))


def test_a_constraint_without_edges_leaves_no_path() -> None:
    nothing = Adjacency.build(np.empty((0, 3), np.int32), ENTITIES, RELATIONS)
    model = model_of(typed=True, norm_first=True)
    (ranked,) = decode(
        TransformerDecoder(model),
        np.array([[0, 0]], np.int32),
        DecodingOptions(8, hops=2, constraint=SearchEdges(nothing)),
    )
    assert len(ranked) == 1
    assert len(ranked.entity) == len(ranked.paths) == 0


# ------------------------------------------------------------------------------------------------- answers


@given(seed=st.integers(0, 999), aggregate=st.sampled_from(["sum", "max"]))
def test_answers_by_their_best_path_or_by_all(seed: int, aggregate: str) -> None:
    follow = naive_beam.random_follow(seed, E, R)
    found = run(follow, 2, beam=12, hops=2)
    ranked = rank_answers(found, torch.zeros(2).long(), DecodingOptions(aggregate=aggregate))  # type: ignore[arg-type]
    for query in range(2):
        paths = naive_beam.beam_search(follow, query, 0, 12, 2)
        own = ranked.rows(query)
        expected = naive_beam.answers(paths, aggregate)
        assert dict(zip(ranked.entity[own].tolist(), ranked.score[own].tolist(), strict=True)) == pytest.approx(
            expected
        )
        assert np.all(np.diff(ranked.score[own]) <= 0)
        for answer in range(own.start, own.stop):
            rows = slice(ranked.path_offsets[answer], ranked.path_offsets[answer + 1])
            mine = [ended for ended in paths if ended.path[-1] == ranked.entity[answer]]
            assert len(mine) == rows.stop - rows.start
            best = max(mine, key=lambda ended: ended.log_probability / (len(ended.path) + 1))
            assert tuple(t for t in ranked.paths[ranked.best_path[answer]] if t >= 0) == best.path


def test_an_assertion_is_evidence_only_where_there_is_no_other_path() -> None:
    """Query (0, relation 1): answer 3 by the edge itself and by two hops, answer 4 by the edge itself only."""
    found = FinishedPaths(
        torch.tensor([0, 0, 0]),
        torch.tensor([[1, 3, -1, -1], [1, 4, -1, -1], [0, 2, 2, 3]]),
        torch.tensor([1, 1, 2]),
        torch.tensor([[0.5, 0.5, 1.0, 1.0, 1.0], [0.5, 0.5, 1.0, 1.0, 1.0], [0.5, 0.5, 0.5, 0.5, 0.5]]).log(),
    )
    ranked = rank_answers(found, torch.tensor([1]), DecodingOptions(edge_ends=True))
    assert ranked.entity.tolist() == [3, 4]
    assert ranked.score.tolist() == pytest.approx([0.25 + 1 / 32, 0.25])
    assert ranked.asserted.tolist() == pytest.approx([8 / 9, 1.0])
    assert ranked.paths[ranked.best_path].tolist() == [[0, 2, 2, 3], [1, 4, -1, -1]]
    plain = rank_answers(found, torch.tensor([1]), DecodingOptions(edge_ends=False))
    assert plain.paths[plain.best_path].tolist() == [[1, 3, -1, -1], [1, 4, -1, -1]]  # Eq. 5 and nothing else


# ------------------------------------------------------------------------------------------------- the model


def model_of(typed: bool, norm_first: bool) -> Transformer:
    torch.manual_seed(0)
    config = ModelConfig(
        layers=2, dim=16, feedforward=24, heads=2, typed=typed, prior=typed, norm_first=norm_first, max_hops=2
    )
    model = Transformer(VOCAB, config, Prior.from_adjacency(small_graph()) if typed else None)
    for parameter in model.parameters():  # far from uniform
        torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


def model_follow(model: Transformer, queries: list[tuple[int, int]]) -> Follow:
    """The model without any cache, one path at a time."""
    from naive_model import logits_after

    vocab = model.vocab

    def follow(query: int, path: tuple[int, ...]) -> list[float]:
        head, relation = queries[query]
        tokens = [t + vocab.first_relation * (k % 2 == 0) for k, t in enumerate(path)]
        with torch.no_grad():
            logits = logits_after(model, (head, relation + vocab.first_relation), tokens)
        classes = vocab.after_relation if len(path) % 2 else vocab.after_entity
        if model.config.typed:
            logits = logits[classes]
            return logits.log_softmax(0).tolist()
        return logits.log_softmax(0)[classes].tolist()

    return follow


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_the_cache_changes_nothing(typed: bool, norm_first: bool) -> None:
    model = model_of(typed, norm_first)
    queries = [(0, 0), (3, 1), (7, 5)]
    follow = model_follow(model, queries)
    columns = torch.tensor(queries).T
    found = search(TransformerDecoder(model), columns[0], columns[1], DecodingOptions(beam=20, hops=2))
    for query, (head, _) in enumerate(queries):
        same(paths_of(found, query), naive_beam.beam_search(follow, query, head, 20, 2))


def test_blocks_of_queries_come_in_order_and_alone_or_together_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(typed=True, norm_first=True)
    queries = np.array([(h, r) for h in range(6) for r in range(2)], np.int32)
    decoding = DecodingOptions(beam=8, hops=2)
    whole = list(decode(TransformerDecoder(model), queries, decoding))
    assert sum(map(len, whole)) == len(queries)
    monkeypatch.setattr("squire.search.decoding.HYPOTHESES_AT_ONCE", 1)
    alone = list(decode(TransformerDecoder(model), queries, decoding))
    assert [len(block) for block in alone] == [1] * len(queries)
    flat = [dict(zip(b.entity[b.rows(q)], b.score[b.rows(q)], strict=True)) for b in whole for q in range(len(b))]
    for one, block in zip(flat, alone, strict=True):
        assert one == pytest.approx(dict(zip(block.entity, block.score, strict=True)), rel=1e-4)


# ------------------------------------------------------------------------------------------------- options


def test_a_pool_and_a_constraint_exclude_each_other() -> None:
    edges = SearchEdges(small_graph())
    with pytest.raises(SettingError, match="aggregate='pool': does not work with a constraint"):
        DecodingOptions(aggregate="pool", constraint=edges)


# ------------------------------------------------------------------------------------------------- given paths


@given(seed=st.integers(0, 999), hops=st.integers(1, 3), share=st.sampled_from([0.0, 0.5]), step=st.integers(1, 7))
def test_given_paths_are_as_probable_as_those_that_a_search_finds(
    seed: int, hops: int, share: float, step: int
) -> None:
    edges = {(0, 1, 2), (0, 1, 3), (2, 0, 4), (3, 2, 1)}
    facts = Adjacency.build(np.array(sorted(edges), np.int32), E, R)
    guidance = Guidance(SearchEdges(facts), share) if share else None
    follow = naive_beam.random_follow(seed, E, R)
    guided = naive_beam.guided_follow(follow, lambda _: 0, edges, share)
    some = naive_beam.all_paths(guided, 0, 0, hops)[::step][:50]
    paths = np.array([(*ended.path, *[-1] * (2 * hops - len(ended.path))) for ended in some])
    decoder = FakeSteps(follow, E)
    found = score_paths(decoder, np.zeros((1, 2), np.int32), np.zeros(len(paths), np.int64), paths, guidance)
    assert found.log_probability.tolist() == pytest.approx([ended.log_probability for ended in some], abs=1e-4)
    assert found.hops.tolist() == [len(ended.path) // 2 for ended in some]
    prefixes = {ended.path[:n] for ended in some for n in range(len(ended.path) + 1)}
    assert decoder.fed == len(prefixes)  # each once
