"""A comparison measures each method apart, keeps its rows, and says why one has none."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from study_cases import town
from test_plots import PNG
from typer.testing import CliRunner

from squire.cli import app
from squire.errors import SettingError, SquireError
from squire.evaluation.baselines import rank_by_frequency, rank_by_rules, rank_by_scores
from squire.evaluation.metrics import Metrics, Signature
from squire.evaluation.queries import QuerySet
from squire.graph.adjacency import Ids
from squire.rules.application import RuleEngine
from squire.rules.mining import mine_rules
from squire.studies import Comparison, compare
from squire.studies.compare_study import JOURNAL, _reason, measure_method
from squire.studies.published import PUBLISHED

HAS_PYCLAUSE = importlib.util.find_spec("c_clause") is not None


def test_rows_are_those_of_our_evaluator_and_are_measured_once(tmp_path: Path) -> None:
    graph = town()
    found = compare(graph, tmp_path, methods=["frequency", "rules"], minutes=1)
    engine = RuleEngine(mine_rules(graph.train).rules, graph.train)
    for side in ("both", "tail"):
        query_set = QuerySet.from_graph(graph, "test", side)
        ours = rank_by_frequency(graph, query_set), rank_by_rules(graph, query_set, engine)
        for row, ranks in zip(found.rows, ours, strict=True):
            assert json.loads(json.dumps(ranks.metrics().as_dict())) == row["rows"][side == "tail"]
    for row in found.rows:
        assert row["peak_mb"] > 10
        assert row["learning_s"] < 60
    journal = (tmp_path / JOURNAL).read_bytes()
    again = compare(graph, tmp_path, methods=["rules", "frequency"], minutes=1)
    assert again.rows == found.rows[::-1]
    assert (tmp_path / JOURNAL).read_bytes() == journal
    with pytest.raises(SettingError, match="holds another study"):
        compare(graph, tmp_path, methods=["rules"], minutes=2)


@pytest.mark.skipif(HAS_PYCLAUSE, reason="PyClause is installed")
def test_a_method_that_cannot_run_is_a_row_that_says_why_and_is_tried_again(tmp_path: Path) -> None:
    graph = town()
    options = ["--methods", "PyClause,frequency", "--side", "tail", "--out", str(tmp_path / "out")]
    graph.save(tmp_path / "town.graph")
    result = CliRunner().invoke(app, ["compare", str(tmp_path / "town.graph"), *options, "--json"])
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert "PyClause is not installed" in content["rows"][0]["failure"]
    assert [one["signature"].split("|")[2] for one in content["rows"][1]["rows"]] == ["side:tail"]
    assert "PyClause: not measured. PyClause is not installed" in (tmp_path / "out" / "compare.md").read_text()
    assert (tmp_path / "out" / "compare.png").read_bytes().startswith(PNG)
    compare(graph, tmp_path / "out", methods=["PyClause"], side="tail")
    tried = (tmp_path / "out" / JOURNAL).read_text().count('"method": "PyClause"')
    assert tried == 2


def test_the_last_words_of_a_process_are_the_reason(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Traceback …\nMemoryError: too much\n\n")
    assert _reason(log, 1) == "MemoryError: too much"
    assert _reason(log, -9) == "killed by signal 9, perhaps for lack of memory"
    log.write_text("")
    assert _reason(log, 3) == "ended with code 3"


def test_settings_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"methods='Trans': expected some of frequency, rules"):
        compare(town(), tmp_path, methods=["Trans"])
    with pytest.raises(SettingError, match="minutes=0: expected a positive"):
        compare(town(), tmp_path, minutes=0)
    with pytest.raises(SettingError, match="side='head': expected tail or both"):
        compare(town(), tmp_path, side="head")


def test_scores_that_are_not_numbers_are_no_ranks() -> None:
    query_set = QuerySet.from_graph(town(), "test")

    def diverged(queries: Ids) -> np.ndarray:
        return np.full((len(queries), town().num_entities), np.nan)

    with pytest.raises(SquireError, match="training has diverged"):
        rank_by_scores(query_set, diverged, "made")


def test_published_rows_stand_below_the_line_with_their_source() -> None:
    metrics = Metrics.from_ranks(np.ones(3), Signature("NELL23K", "test", "tail", "x"), intervals=True).as_dict()
    costs = {"learning_s": 1, "ranking_s": 0, "peak_mb": 1}
    row = {"method": "x", "kind": "ours", "rows": [metrics], "note": "", **costs}
    page = Comparison("NELL23K", Path(), {"minutes": 1.0, "side": "tail"}, [row]).markdown()
    measured, published = page.split("## Published, not measured here")
    assert "ConE" not in measured
    assert "| ConE | tail | 0.234 | 0.158 | 0.249 | 0.400 | Bai et al. 2022 (SQUIRE), Table 2 |" in published
    assert {row.graph for row in PUBLISHED} >= {"FB15K237", "NELL995", "FB15K237-20", "NELL23K"}
    assert all(row.source for row in PUBLISHED)


def test_a_method_is_measured_in_any_process(tmp_path: Path) -> None:
    compare(town(), tmp_path, methods=["frequency"], minutes=1)
    measure_method(tmp_path, "frequency")
    content = json.loads((tmp_path / "frequency.row.json").read_text())
    assert content["rows"][0]["queries"] == 2 * len(town().test)
