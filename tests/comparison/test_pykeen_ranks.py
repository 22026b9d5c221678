"""Our filtered ranks are those of PyKEEN's evaluator, for any scores; its models are trained and asked rightly."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from study_cases import town

from squire.evaluation.baselines import rank_by_scores
from squire.evaluation.queries import QuerySet
from squire.graph.adjacency import Ids
from squire.graph.graph import Graph
from squire.graph.labels import LabelIndex, Labels
from squire.studies.compared_methods import Task

torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the libraries that PyKEEN imports
    pytest.importorskip("pykeen")
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.evaluation.evaluator import create_sparse_positive_filter_, filter_scores_

pytestmark = pytest.mark.filterwarnings("ignore")
ENTITIES, RELATIONS = 7, 2
triples = st.lists(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)),
    min_size=3,
    max_size=25,
    unique=True,
)


def graph_of(facts: list[tuple[int, int, int]]) -> Graph:
    """The first third is the test split, the second valid, the rest train."""
    names = LabelIndex([f"e{i}" for i in range(ENTITIES)], "entity")
    relations = LabelIndex([f"r{i}" for i in range(RELATIONS)], "relation")
    third = len(facts) // 3
    parts = {"test": facts[:third], "valid": facts[third : 2 * third], "train": facts[2 * third :]}
    arrays = {split: np.array(rows, np.int32).reshape(-1, 3) for split, rows in parts.items()}
    return Graph.build("made", Labels(names, relations), arrays)


def pykeen_ranks(graph: Graph, scores: np.ndarray) -> dict[str, list[float]]:
    """The realistic ranks of PyKEEN's evaluator, by side.  scores: (head, edge type, entity)"""
    evaluator: Any = RankBasedEvaluator(filtered=True, clear_on_finalize=False)
    known = torch.from_numpy(np.concatenate([graph.triples(s) for s in ("train", "valid", "test")]).astype(int))
    for h, r, t in graph.test.tolist():
        batch = torch.tensor([[h, r, t]])
        for side, column, row, answer in (
            ("head", 0, scores[t, r + RELATIONS], h),
            ("tail", 2, scores[h, r], t),
        ):
            dense = torch.from_numpy(row[None].copy())
            true_score = dense[:, answer, None].clone()
            positive, _ = create_sparse_positive_filter_(batch, known, filter_col=column)
            filtered = filter_scores_(dense, positive)
            filtered[0, answer] = true_score
            evaluator.process_scores_(batch, target=side, scores=filtered, true_scores=true_score)
    return {side: np.concatenate(evaluator.ranks[side, "realistic"]).tolist() for side in ("head", "tail")}


@given(triples, st.integers(0, 2**32 - 1), st.integers(1, 5))
@settings(max_examples=60)
def test_filtered_ranks_are_those_of_pykeen(facts: list[tuple[int, int, int]], seed: int, levels: int) -> None:
    graph = graph_of(facts)
    drawn = np.random.default_rng(seed).integers(0, levels, (ENTITIES, 2 * RELATIONS, ENTITIES))  # with ties
    scores = drawn.astype(np.float32)

    def ours(queries: Ids) -> np.ndarray:
        return scores[queries[:, 0], queries[:, 1]]

    ranks = rank_by_scores(QuerySet.from_graph(graph, "test", "both"), ours, "made").ranks
    tails, heads = np.split(ranks, 2)
    theirs = pykeen_ranks(graph, scores)
    assert tails.tolist() == theirs["tail"]
    assert heads.tolist() == theirs["head"]


@pytest.mark.parametrize("name", ["TransE", "ConvE"])  # against sampled entities, and against all
def test_an_embedding_is_trained_in_its_time_and_knows_which_side_is_asked(name: str, tmp_path: Path) -> None:
    from squire.studies.embeddings import train_embedding

    graph = town()
    began = time.monotonic()
    embedding, note = train_embedding(name, Task(graph, tmp_path, 0.05, 0))
    assert time.monotonic() - began < 60
    assert "valid MRR" in note
    assert len(embedding.rank(QuerySet.from_graph(graph, "test", "both"), name, 0).ranks) == 2 * len(graph.test)
    h, r, t = graph.test[0].tolist()
    both = embedding.scores(np.array([[t, r + graph.num_relations], [h, r]], np.int32))
    with torch.inference_mode():
        heads = embedding.model.predict_h(torch.tensor([[r, t]])).numpy()[0]
        tails = embedding.model.predict_t(torch.tensor([[h, r]])).numpy()[0]
    np.testing.assert_allclose(both, [heads, tails], rtol=1e-5)
