"""Under a constraint only paths within its edges count, and what was counted is not counted again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from graphs import write
from matplotlib.figure import Figure
from study_cases import a_run, study, town
from test_plots import PNG, drawn

from squire.errors import SettingError
from squire.evaluation.paths import rank_by_paths
from squire.evaluation.queries import QuerySet
from squire.evaluation.ranks import realistic_rank
from squire.graph.adjacency import Adjacency
from squire.search.decoding import decode
from squire.search.options import Aggregate, DecodingOptions, SearchEdges
from squire.search.trained import TrainedModel
from squire.studies import ConstraintResult, constraint_study
from squire.studies.constraint_study import ConditionResult, ConstraintStudy, EdgeSet

__all__ = ["drawn"]  # a fixture
GRAPH = town()
ASKED = QuerySet.from_graph(GRAPH, "test")


def all_edges() -> Adjacency:
    triples = product(range(GRAPH.num_entities), range(GRAPH.num_relations), range(GRAPH.num_entities))
    return Adjacency.build(np.array(list(triples), np.int32), GRAPH.num_entities, GRAPH.num_relations)


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of three questions."""
    monkeypatch.setattr("squire.search.decoding.HYPOTHESES_AT_ONCE", 3 * 16)


def rows_of(
    folder: Path, aggregate: Aggregate = "sum", *more: EdgeSet, search: bool = False
) -> dict[str, ConditionResult]:
    run = TrainedModel.load(a_run())
    sets = [EdgeSet("graph", GRAPH.train), *more]
    decoding = DecodingOptions.from_recipe(run.recipe, run.known_edges, aggregate=aggregate)
    return {row.name: row for row in ConstraintStudy(run, folder, ASKED, decoding, sets).rows(search=search)}


@pytest.mark.parametrize("aggregate", ["sum", "max"])
def test_ranks_are_those_of_the_paths_that_are_left(tmp_path: Path, aggregate: Aggregate) -> None:
    """The obvious twin: look at every path, drop it if an edge is not in the graph, add up or take the best."""
    run = TrainedModel.load(a_run())
    rows = rows_of(tmp_path, aggregate)
    ranks, walked, right = [], 0, 0
    free = rank_by_paths(
        run.decoder, GRAPH, ASKED, DecodingOptions.from_recipe(run.recipe, run.known_edges, aggregate=aggregate), 0
    )
    for at, (head, relation, answer) in enumerate(ASKED.queries.tolist()):
        queries = np.array([[head, relation]], np.int32)
        (block,) = decode(
            run.decoder, queries, DecodingOptions.from_recipe(run.recipe, run.known_edges, aggregate=aggregate)
        )
        scores = np.full(GRAPH.num_entities, -np.inf)
        for number, entity in enumerate(block.entity.tolist()):
            left = []
            for path in range(block.path_offsets[number], block.path_offsets[number + 1]):
                trail = [head, *block.paths[path, : 2 * block.hops[path]].tolist()]
                stays = all(GRAPH.train.contains(*trail[i : i + 3]) for i in range(0, len(trail) - 1, 2))
                total = float(block.token_log_probability[path].sum())
                if stays:
                    left.append(np.exp(total) if aggregate == "sum" else total / (2 * block.hops[path] + 1))
                if entity == answer and path == block.path_offsets[number] and free.ranks[at] == 1:
                    right, walked = right + 1, walked + stays
            if left:
                scores[entity] = sum(left) if aggregate == "sum" else max(left)
        ranks.append(realistic_rank(scores, answer, ASKED.filter.tails_of(head, relation)))
    bound = rows["graph, filter"]
    assert bound.metrics.mrr == pytest.approx(np.mean(1 / np.array(ranks)))
    assert bound.metrics.hits1 == pytest.approx(np.mean(np.array(ranks) == 1))
    assert rows["no constraint"].metrics.mrr == pytest.approx(free.metrics().mrr)
    assert (bound.walked, bound.completed) == (walked, right - walked)
    assert right, "the run has learned nothing to count"


def test_a_constraint_that_allows_everything_changes_nothing(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "sum", EdgeSet("all", all_edges()), search=True)
    free = rows["no constraint"].metrics
    for name in ("all, filter", "all, search"):
        assert replace(rows[name].metrics, signature=free.signature) == free
    assert rows["all, filter"].completed == 0
    assert rows["all, filter"].leaked == len(ASKED.queries)  # it knows the answers, and says so
    assert rows["graph, filter"].leaked == 0


def test_searching_is_the_evaluation_with_a_constraint(tmp_path: Path) -> None:
    run = TrainedModel.load(a_run())
    row = rows_of(tmp_path, search=True)["graph, search"]
    edges = SearchEdges(GRAPH.train, name="graph by search")
    decoding = DecodingOptions.from_recipe(run.recipe, run.known_edges, aggregate="sum", constraint=edges)
    expected = rank_by_paths(run.decoder, GRAPH, ASKED, decoding, 0)
    assert row.metrics == expected.metrics()
    assert (row.walked, row.completed) == (None, None)


@pytest.mark.usefixtures("few_at_once")
def test_interrupted_anywhere_it_ends_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rows_of(tmp_path / "whole", search=True)
    query_set: list[int] = []

    def count(model: object, queries: np.ndarray, decoding: object) -> object:
        query_set.append(len(queries))
        return decode(model, queries, decoding)  # type: ignore[arg-type]

    monkeypatch.setattr(constraint_study, "decode", count)
    noted = constraint_study._Condition.record
    for stop_before in (2, 1):  # the second time one condition has noted a block, the other has not
        left = iter(range(stop_before))

        def interrupt(self: constraint_study._Condition, *what: list[float], left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            noted(self, *what)  # type: ignore[arg-type]

        monkeypatch.setattr(constraint_study._Condition, "record", interrupt)
        with pytest.raises(KeyboardInterrupt):
            rows_of(tmp_path / "parts", search=True)
    monkeypatch.setattr(constraint_study._Condition, "record", noted)
    monkeypatch.setattr("squire.search.decoding.HYPOTHESES_AT_ONCE", 2 * 16)  # blocks may be cut otherwise, too
    assert rows_of(tmp_path / "parts", search=True) == whole
    n = len(ASKED.queries)
    assert n > 6
    assert query_set[:3] == [n, n - 3, n - 3]
    query_set.clear()
    assert rows_of(tmp_path / "parts", search=True) == whole
    assert query_set == [0, 0]  # all is known
    rows_of(tmp_path / "parts", "sum", EdgeSet("all", all_edges()))
    assert query_set[2:] == [n]  # for the new edges only


def test_other_questions_models_or_edges_are_not_mixed_in(tmp_path: Path) -> None:
    run = TrainedModel.load(a_run())
    decoding = DecodingOptions.from_recipe(run.recipe, run.known_edges)
    samples = [QuerySet.from_graph(GRAPH, "test", sample=3, seed=seed) for seed in (0, 1)]
    ConstraintStudy(run, tmp_path, samples[0], decoding, [EdgeSet("x", GRAPH.train)]).rows()
    with pytest.raises(SettingError, match=r"holds another study \(queries is"):
        ConstraintStudy(run, tmp_path, samples[1], decoding, [EdgeSet("x", GRAPH.train)]).rows()
    with pytest.raises(SettingError, match=r"holds another study \(triples is"):
        ConstraintStudy(run, tmp_path, samples[0], decoding, [EdgeSet("x", all_edges())]).rows()
    with pytest.raises(SettingError, match="two graphs have the same name"):
        ConstraintStudy(
            run, tmp_path, samples[0], decoding, [EdgeSet("x", all_edges()), EdgeSet("x", GRAPH.train)]
        )


def test_the_command_writes_a_table_its_numbers_and_a_picture(tmp_path: Path, drawn: list[Figure]) -> None:
    facts = [
        (GRAPH.labels.entities[h], GRAPH.labels.relations[r], GRAPH.labels.entities[t]) for h, r, t in GRAPH.test
    ]
    more = write(tmp_path / "more.tsv", "".join("\t".join(fact) + "\n" for fact in [*facts, ("x", "y", "z")]))
    done = study("constraint", a_run(), "--edges", more, "--split", "test", "-o", tmp_path / "out", "--search")
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "out" / "constraint.json").read_text())["rows"]
    assert [row["name"] for row in rows] == [
        "no constraint", "graph, filter", "more, filter", "graph, search", "more, search",
        "tail frequency",
    ]  # fmt: skip
    sizes = [len(GRAPH.train.triples), len(facts)]
    assert [row["size"] for row in rows] == [None, *sizes, *sizes, None]
    assert rows[2]["leaked"] == len(facts)
    table = (tmp_path / "out" / "constraint.md").read_text()
    for row in rows:
        assert f"`{row['metrics']['signature']}`" in table
        assert f"| {row['name']} |" in table
    assert len({row["metrics"]["signature"] for row in rows}) == len(rows)
    assert (tmp_path / "out" / "constraint.png").read_bytes().startswith(PNG)
    (axes,) = drawn[0].axes
    heights = [bar.get_height() for bar in axes.patches]  # type: ignore[attr-defined]
    assert heights == [row["metrics"]["hits1"] for row in rows] + [row["metrics"]["mrr"] for row in rows]
    assert "95 %" in axes.get_ylabel()
    assert "contains" in axes.get_xticklabels()[2].get_text()


def test_ctrl_c_is_told_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(constraint_study._Condition, "record", interrupt)
        done = study("constraint", a_run(), "-o", tmp_path)
    assert done.exit_code == 130
    assert "run the same command to continue" in done.stderr
    assert study("constraint", a_run(), "-o", tmp_path).exit_code == 0


def test_what_cannot_constrain_is_told(tmp_path: Path) -> None:
    strange = write(tmp_path / "strange.tsv", "x\ty\tz\n")
    failed = study("constraint", a_run(), "--edges", strange, "-o", tmp_path / "out").exception
    assert isinstance(failed, SettingError)
    assert "has no edge between the entities of made" in str(failed)


def test_without_any_right_answer_nothing_is_divided(tmp_path: Path) -> None:
    rows = list(rows_of(tmp_path).values())
    none = [replace(row, metrics=replace(row.metrics, hits1=0.0)) for row in rows]
    none[1] = replace(none[1], walked=0, completed=0)
    assert "| – |" in ConstraintResult(none).markdown()
    assert none[1].note == "0% of correct answers walk"
