"""Triple classification: thresholds against trying all, and datasets with verified negatives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import LabelTriple, write
from hypothesis import given
from hypothesis import strategies as st

import squire
from squire.evaluation.classification import ENOUGH, best_threshold, fit_thresholds, has_negatives
from squire.graph.graph import Graph

FAMILIES = 40


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=12))
def test_no_threshold_makes_more_right_calls(examples: list[tuple[int, bool]]) -> None:
    score, is_true = (np.array(column) for column in zip(*examples, strict=True))
    found = best_threshold(score.astype(float), is_true)
    most = max(np.sum((score >= threshold) == is_true) for threshold in np.arange(-4, 5) - 0.5)
    assert np.sum((score >= found) == is_true) == most
    assert found not in score  # scores that differ in the last digit are called alike


def test_a_relation_with_enough_examples_has_a_threshold_of_its_own() -> None:
    rng = np.random.default_rng(0)
    relation = np.repeat([0, 1, 2], [ENOUGH, ENOUGH, ENOUGH - 1]).astype(np.int32)
    is_true = rng.random(len(relation)) < 0.5
    score = np.where(is_true, 1.0, -1.0) + 10.0 * (relation == 1)
    found = fit_thresholds(score, is_true, relation, 4)
    assert found[:2].tolist() == [0.0, 10.0]
    assert found[2] == found[3] == best_threshold(score, is_true)


def families(folder: Path, negatives: bool) -> Path:
    """Grandparents are parents of parents; the negatives are grandparents of other families."""
    splits: dict[str, list[LabelTriple]] = {"train": [], "valid": [], "test": []}
    wrong: dict[str, list[LabelTriple]] = {"valid_negatives": [], "test_negatives": []}
    for i in range(FAMILIES):
        splits["train"] += [(f"a{i}", "parent", f"b{i}"), (f"b{i}", "parent", f"c{i}")]
        split = {0: "valid", 1: "test"}.get(i % 4, "train")
        splits[split].append((f"a{i}", "grandparent", f"c{i}"))
        if split != "train":
            wrong[f"{split}_negatives"].append((f"a{i}", "grandparent", f"c{(i + 2) % FAMILIES}"))
    for name, triples in {**splits, **(wrong if negatives else {})}.items():
        write(folder / f"{name}.tsv", "".join("\t".join(triple) + "\n" for triple in triples))
    return folder


def test_negatives_are_loaded_beside_the_splits_and_are_no_facts(tmp_path: Path) -> None:
    graph = squire.load_graph(families(tmp_path / "graph", negatives=True))
    assert has_negatives(graph)
    assert {split: len(triples) for split, triples in graph.negatives.items()} == {"valid": 10, "test": 10}
    for triples in graph.negatives.values():
        assert not graph.facts.contains_each(*triples.T).any()
    graph.save(tmp_path / "saved.graph")
    again = Graph.load(tmp_path / "saved.graph")
    for split, triples in graph.negatives.items():
        assert np.array_equal(again.negatives[split], triples)
    plain = squire.load_graph(families(tmp_path / "plain", negatives=False))
    assert not plain.negatives
    assert not has_negatives(plain)


def test_negatives_without_facts_are_not_enough(tmp_path: Path) -> None:
    folder = families(tmp_path / "graph", negatives=True)
    (folder / "test_negatives.tsv").unlink()
    assert not has_negatives(squire.load_graph(folder))


@pytest.mark.parametrize("negatives", [True, False])
def test_an_evaluation_classifies_where_there_are_negatives(tmp_path: Path, negatives: bool) -> None:
    graph = families(tmp_path / "graph", negatives)
    run = squire.train(graph, tmp_path / "run", model=False, progress=False)
    evaluation = run.evaluate(evidence=False, progress=False)
    if not negatives:
        assert evaluation.classification == ()
        return
    fused, frequency = evaluation.classification
    assert (fused.method, frequency.method) == ("fused", "frequency")
    assert (fused.facts, fused.negatives) == (10, 10)
    assert fused.accuracy >= 0.9
    assert fused.f1 >= 0.9
    assert fused.accuracy > frequency.accuracy
    assert evaluation.as_dict()["classification"][0]["accuracy"] == fused.accuracy
    assert run.evaluate(split="valid", evidence=False, progress=False).classification == ()
