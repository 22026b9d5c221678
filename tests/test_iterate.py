"""Algorithm 1: what is gathered is what its lines say, at any moment, bit for bit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import naive_beam
import naive_paths
import numpy as np
import pytest
import torch
from graphs import make_graph
from hypothesis import given
from hypothesis import strategies as st
from iterate_cases import BLOCK, ITERATE, a_gathering, a_model, gathered, make_blocks_small, never, silence
from test_beam import model_follow
from test_train import a_graph, a_recipe

from squire.core.run_files import RULES, tries_file
from squire.core.team import ALONE
from squire.core.tensors import load_tensors
from squire.errors import DataError
from squire.graph.adjacency import Ids
from squire.model.transformer import Transformer
from squire.paths.paths import EDGE, RULE, Paths
from squire.paths.sampling import sample_paths
from squire.paths.tries import Tries, unfold
from squire.rules.rules import Rules
from squire.training.iterative import PREFIXES, Facts, PathCollection, draw
from squire.training.preparation import prepare, rules_of

Prefix = tuple[tuple[int, int], ...]  # ((relation, entity), …)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    make_blocks_small(monkeypatch)


def hops_of(row: Ids) -> Prefix:
    pairs = row.reshape(-1, 2).tolist()
    return tuple((relation, entity) for relation, entity in pairs if relation >= 0)


# ------------------------------------------------------------------------------------------------- line 8


def twin_draw(probabilities: list[float], uniform: float) -> int:
    """The first at which the sum exceeds this share of all."""
    so_far, wanted = 0.0, uniform * sum(probabilities)
    for number, probability in enumerate(probabilities):
        so_far += probability
        if so_far > wanted:
            return number
    raise AssertionError


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 63)), max_size=9),
)
def test_draws_are_by_probability_within_the_query(powers: list[list[int]], drawn: list[tuple[int, int]]) -> None:
    # Halves, quarters … have exact sums, so that not even a tie can come out otherwise.
    owner = np.array([query for query, own in enumerate(powers) for _ in own], np.int64)
    log_probability = -np.log(2) * np.array([power for own in powers for power in own], np.float64)
    drawn = sorted((query % len(powers), part) for query, part in drawn)
    query, parts = (np.array([pair[i] for pair in drawn], np.int64) for i in (0, 1))
    found = draw(owner, log_probability, query, ((parts + 0.37) / 64)[:, None])[:, 0].tolist()
    for (own, part), at in zip(drawn, found, strict=True):
        if not powers[own]:
            assert at == -1
            continue
        first = sum(map(len, powers[:own]))
        probabilities = [2.0**-power for power in powers[own]]
        assert at - first == twin_draw(probabilities, (part + 0.37) / 64)


def test_facts_are_all_triples_and_inverses_by_query() -> None:
    graph = a_graph()
    facts = Facts.from_graph(graph)
    both = {(h, r, t) for h, r, t in graph.train.triples.tolist()}
    both |= {(t, r + graph.num_relations, h) for h, r, t in graph.train.triples.tolist()}
    assert [tuple(triple) for triple in facts.triples.tolist()] == sorted(both)
    assert [tuple(query) for query in facts.queries.tolist()] == sorted({(h, r) for h, r, _ in both})
    for query, (head, relation) in enumerate(facts.queries.tolist()):
        own = facts.triples[facts.offsets[query] : facts.offsets[query + 1]]
        assert {(h, r) for h, r, _ in own.tolist()} == {(head, relation)}
    covered = [query for first, last in facts.blocks() for query in range(first, last)]
    assert covered == list(range(len(facts.queries)))
    assert len(facts.blocks()) > 3


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("typed", ["true", "false"])
def test_first_hops_are_those_of_the_twin(tmp_path: Path, k: int, typed: str) -> None:
    collection = a_gathering(tmp_path, k, f"model.typed={typed}", "model.edge_rank=0", "train.seed=3")
    model, facts, train = a_model(collection), Facts.from_graph(collection.graph), collection.recipe.train
    queries = [(head, relation) for head, relation in facts.queries.tolist()]
    follow = model_follow(model, queries)
    first, last = facts.blocks()[1]
    found = collection.draw_prefixes(model, facts, first, last)
    low, high = facts.offsets[[first, last]]
    seeds = np.random.SeedSequence(3, spawn_key=(k, first))  # seed, iteration and block alone
    uniform = np.random.default_rng(seeds).random((high - low, train.iterate_paths))
    assert found.shape == (high - low, train.iterate_paths, 2 * (k - 1))
    assert len({hops_of(row) for own in found for row in own}) > 10  # not the same for all
    for fact in range(low, high):
        query = queries.index(tuple(facts.triples[fact, :2].tolist()))
        ended = naive_beam.beam_search(follow, query, queries[query][0], train.iterate_beam, k - 1)
        paths = [one for one in ended if len(one.path) == 2 * (k - 1)]
        # How the model begins: the probability of the end is no part of it.
        chances = {one.path: np.exp(one.log_probability - follow(query, one.path)[-1]) for one in paths}
        ranked = sorted(chances, key=lambda path: -chances[path])
        for number in range(train.iterate_paths):
            at = twin_draw([chances[path] for path in ranked], uniform[fact - low, number])
            assert tuple(found[fact - low, number].tolist()) == ranked[at]


def test_where_no_hypothesis_is_so_long_there_is_no_prefix(tmp_path: Path) -> None:
    """Who knows itself alone cannot walk two hops, since nothing is visited twice."""
    graph, recipe = make_graph({"train": [("a", "knows", "a")]}), a_recipe(*ITERATE)
    prepare(graph, recipe, tmp_path, silence)
    collection = PathCollection(graph, recipe, tmp_path, 3, ALONE)
    prefixes = collection.draw_prefixes(a_model(collection), Facts.from_graph(graph), 0, 2)
    assert prefixes.shape == (2, 3, 4)
    assert (prefixes == -1).all()
    paths = collection.complete(Facts.from_graph(graph).triples, prefixes, silence)
    assert paths.source.tolist() == [EDGE, EDGE]
    assert paths.weight.tolist() == [3, 3]


# ------------------------------------------------------------------------------------------------- lines 9 to 14


@pytest.mark.parametrize("k", [2, 3])
def test_prefixes_become_whole_paths_or_paths_found_afresh(tmp_path: Path, k: int) -> None:
    collection = a_gathering(tmp_path, k)
    train, facts = collection.graph.train, Facts.from_graph(collection.graph)
    model = a_model(collection)
    prefixes = np.concatenate([collection.draw_prefixes(model, facts, *block) for block in facts.blocks()])
    prefixes[5] = -1
    prefixes[6, 1] = -1
    each, hops = prefixes.shape[1], collection.recipe.paths.hops
    paths = collection.complete(facts.triples, prefixes, silence)
    lacking: list[tuple[naive_paths.Edge, int]] = []
    row = kinds = 0
    for fact, (head, relation, tail) in enumerate(facts.triples.tolist()):
        query, left = (head, relation, tail), 0
        for number in range(each):
            prefix = hops_of(prefixes[fact, number])
            if not prefix:
                left += 1
                continue
            found = naive_paths.paths_of(paths, row)
            whole = naive_paths.search_on(train, query, prefix, hops)
            assert found.total() == (1 if whole else 0)
            assert set(found) <= whole
            left += not whole
            kinds |= 1 if whole else 2
            row += 1
        if left:
            lacking.append((query, left))
    assert kinds == 3  # both happen
    for number, (query, left) in enumerate(lacking, start=row):
        found = naive_paths.paths_of(paths, number)
        assert found.total() == left
        assert set(found) <= (naive_paths.search(train, query, hops) or {(query[1:],)})
    assert len(paths.queries) == row + len(lacking)
    assert paths.num_sequences == each * len(facts.triples)
    walked = paths.source[paths.row >= row]
    assert (walked == RULE).any()  # the run's rules guide the search (§3.3)
    assert (paths.source[paths.row < row] != RULE).all()
    for at in np.flatnonzero(paths.source != EDGE):
        head, relation, tail = paths.queries[paths.row[at]].tolist()
        assert (relation, tail) != (paths.relations[at, 0], paths.entities[at, 0]), (head, relation, tail)


def test_a_fact_whose_prefixes_all_fail_has_paths_like_the_first_ones(tmp_path: Path) -> None:
    collection = a_gathering(tmp_path, 2)
    facts = Facts.from_graph(collection.graph)
    nothing = np.full((len(facts.triples), 3, 2), -1, np.int32)
    paths = collection.complete(facts.triples, nothing, silence)
    rules = rules_of(collection.graph, collection.recipe, tmp_path)
    seed = int(np.random.SeedSequence(0, spawn_key=(2,)).generate_state(2, np.uint64)[1])
    afresh = sample_paths(collection.graph.train, facts.triples, rules, per_triple=3, seed=seed)
    assert naive_paths.multiset(paths) == naive_paths.multiset(afresh)
    assert paths.weight.max() > 1


def test_rules_are_those_that_the_first_paths_followed(tmp_path: Path) -> None:
    collection = a_gathering(tmp_path, 2)
    index = rules_of(collection.graph, collection.recipe, tmp_path)
    assert index is not None
    assert len(Rules.load(tmp_path / RULES))
    again = sample_paths(collection.graph.train, Facts.from_graph(collection.graph).triples, index, seed=0)
    assert (again.source == RULE).any()
    assert rules_of(collection.graph, a_recipe("paths.rules=false"), tmp_path) is None


def multiset(tries: Tries) -> Counter[tuple[int, ...]]:
    paths = unfold(tries)
    rows = np.concatenate([tries.queries[paths.query], paths.relations, paths.entities], axis=1)
    return Counter(dict(zip(map(tuple, rows.tolist()), paths.weight.tolist(), strict=True)))


def test_the_trees_hold_the_old_paths_and_the_new(tmp_path: Path) -> None:
    collection = a_gathering(tmp_path, 2)
    assert collection.collect(a_model(collection), silence, never)
    facts = Facts.from_graph(collection.graph)
    parts = [load_tensors(collection._part(*block), PREFIXES).arrays["prefixes"] for block in facts.blocks()]
    new = collection.complete(facts.triples, np.concatenate(parts), silence)
    old, joined = (multiset(Tries.load(tries_file(tmp_path, k))) for k in (1, 2))
    added = joined - old
    assert old + added == joined
    assert added.total() == new.num_sequences == 3 * len(facts.triples)
    assert added == as_rows(new)


def as_rows(paths: Paths) -> Counter[tuple[int, ...]]:
    rows = np.concatenate([paths.queries[paths.row, :2], paths.relations, paths.entities], axis=1)
    counted: Counter[tuple[int, ...]] = Counter()
    for row, weight in zip(map(tuple, rows.tolist()), paths.weight.tolist(), strict=True):
        counted[row] += weight
    return counted


# ------------------------------------------------------------------------------------------------- stopping


def test_paths_depend_on_seed_and_iteration_and_on_nothing_else(tmp_path: Path) -> None:
    ends: dict[str, bytes] = {}
    for name, sets in (("a", ()), ("b", ()), ("c", ("train.seed=1",))):
        collection = a_gathering(tmp_path / name, 2, *sets)
        torch.manual_seed(len(ends))
        np.random.default_rng(len(ends))
        collection.collect(a_model(collection), silence, never)
        ends[name] = gathered(tmp_path / name)
    assert ends["a"] == ends["b"]
    assert ends["a"] != ends["c"]


def test_finished_blocks_are_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts = (a_gathering(tmp_path / name, 2) for name in ("whole", "parts"))
    model = a_model(whole)
    assert whole.collect(model, silence, never)
    blocks = Facts.from_graph(whole.graph).blocks()
    done: list[int] = []
    drawing = PathCollection.draw_prefixes

    def noted(own: PathCollection, model: Transformer, facts: Facts, first: int, last: int) -> Ids:
        done.append(first)
        return drawing(own, model, facts, first, last)

    monkeypatch.setattr(PathCollection, "draw_prefixes", noted)
    for stop_after in (2, 5):
        assert not parts.collect(model, silence, lambda at=stop_after: len(done) >= at)  # type: ignore[misc]
    (parts.folder / f"prefixes-{BLOCK}-{2 * BLOCK}.safetensors").unlink()
    assert parts.collect(model, silence, never)
    firsts = [first for first, _ in blocks]
    assert sorted(done) == sorted([*firsts, BLOCK])  # the one that was lost, again
    assert gathered(parts.run) == gathered(whole.run)
    assert parts.collect(model, silence, never)  # all is there
    assert len(done) == len(blocks) + 1


def test_a_damaged_block_is_named_with_what_to_do(tmp_path: Path) -> None:
    collection = a_gathering(tmp_path, 2)
    model = a_model(collection)
    asked: list[int] = []
    assert not collection.collect(model, silence, lambda: asked.append(1) or len(asked) > 2)  # type: ignore[func-returns-value]
    file = collection.folder / f"prefixes-0-{BLOCK}.safetensors"
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(DataError, match=rf"{file}: damaged .* Remove it and resume"):
        collection.collect(model, silence, never)
    file.unlink()
    assert collection.collect(model, silence, never)
