"""`squire evaluate` as a user meets it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import facts_of, write
from small_run import PARENT, copy_of_run, family, small_run
from typer.testing import CliRunner

from squire import __version__
from squire.cli import app
from squire.core.tensors import load_checkpoint
from squire.errors import SettingError, SquireError, UnknownName
from squire.evaluation.baselines import rank_by_frequency, rank_by_rules
from squire.evaluation.metrics import NAMES
from squire.evaluation.queries import QuerySet
from squire.reasoning.reasoner import Reasoner
from squire.rules.application import RuleEngine


def run(*arguments: object, fails_with: type[SquireError] | None = None, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["evaluate", *map(str, arguments)], env={"COLUMNS": "200"})
    if fails_with:
        assert isinstance(result.exception, fails_with), result.output
        return str(result.exception)
    assert result.exit_code == code, result.output
    return result.stdout


def rows(*arguments: object) -> dict[str, Any]:
    return dict(json.loads(run(small_run(), *arguments, "--json")))


def test_a_table_has_the_model_the_rules_and_the_frequency_and_their_signatures() -> None:
    text = run(small_run())
    methods = [line.split("│")[1].strip() for line in text.splitlines() if "±" in line]
    assert methods == ["paths", "rules+frequency", "frequency"]
    signed = [line for line in text.splitlines() if line.startswith("made|")]
    assert signed == [
        "made|split:test|side:tail|method:paths|filter:train+valid+test|ties:realistic|beam:16"
        f"|aggregation:sum+edge-ends|seed:0|known_share:0.9|v:{__version__}",
        "made|split:test|side:tail|method:rules+frequency|filter:train+valid+test|ties:realistic|beam:none"
        f"|aggregation:noisy-or5|seed:none|v:{__version__}",
        "made|split:test|side:tail|method:frequency|filter:train+valid+test|ties:realistic|beam:none"
        f"|aggregation:none|seed:none|v:{__version__}",
    ]
    assert "made, test, tail" in text
    assert "category" in text
    assert "grandparent" in text
    assert "Evidence of the first ten new answers: " in text


def test_the_figures_are_those_of_the_answers_one_by_one() -> None:
    """Ranks of the test facts, found by asking the reasoner for everything and counting."""
    reasoner, graph = Reasoner.load(small_run(), hide_held_out=True), family()
    known = graph.known("train", "valid", "test")
    expected = []
    for head, relation, tail in graph.test.tolist():
        question = graph.labels.entities[head], graph.labels.relations[relation]
        found = reasoner.answer(*question, k=999)
        scores = {graph.labels.entity_id(answer.entity): answer.score for answer in found}
        rivals = [
            scores.get(entity, -1.0)
            for entity in range(graph.num_entities)
            if entity == tail or entity not in known.tails_of(head, relation)
        ]
        own = scores.get(tail, -1.0)
        above, equal = sum(rival > own for rival in rivals), rivals.count(own) - 1
        expected.append(1 / (1 + above + equal / 2))
    ours = rows()["rows"][0]
    assert ours["mrr"] == pytest.approx(sum(expected) / len(expected))
    assert ours["queries"] == len(expected) == 2


def test_json_has_rows_parts_evidence_and_the_run() -> None:
    content = rows("--side", "both")
    assert content["run"] == str(small_run())
    assert content["step"] == Reasoner.load(small_run()).trained.step
    assert content["recipe"]["decode"]["beam"] == 16
    graph, reasoner = family(), Reasoner.load(small_run())
    query_set = QuerySet.from_graph(graph, "test", "both")
    baselines = (
        rank_by_rules(graph, query_set, RuleEngine(reasoner.trained.rules, graph.train)),
        rank_by_frequency(graph, query_set),
    )
    assert content["rows"][1:] == json.loads(json.dumps([ranking.metrics().as_dict() for ranking in baselines]))
    for row in content["rows"]:
        assert row["queries"] == 4
        assert "|side:both|" in row["signature"]
        assert all(row["intervals"][name][0] <= row[name] <= row["intervals"][name][1] for name in NAMES)
    assert {name: row["queries"] for name, row in content["relations"].items()} == {
        "grandparent": 2,
        "grandparent (inverse)": 2,
    }
    assert {name: row["queries"] for name, row in content["categories"].items()} == {"1-1": 4}
    assert sum(content["evidence"].values()) == pytest.approx(1)


def test_options_change_what_is_done_and_what_is_signed() -> None:
    content = rows("--beam", 3, "--aggregate", "sum", "--prune", 0.5, "--sample", 1, "--seed", 5, "--side", "both")
    signature = content["rows"][0]["signature"]
    assert "made|split:test|side:both|" in signature
    assert "|beam:3|aggregation:sum+edge-ends|seed:0|known_share:0.9|prune:0.5|sample:1 of 4, seed 5|" in signature
    assert "|sample:1 of 4, seed 5|" in content["rows"][2]["signature"]
    assert content["rows"][0]["queries"] == 1


def test_the_last_weights_and_the_papers_ends_can_be_asked_for() -> None:
    last = int(load_checkpoint(small_run(), "last").state["step"])
    content = rows("--weights", "last", "--no-edge-ends")
    assert content["step"] == last
    assert "|aggregation:sum|seed:0|known_share:0.9|weights:last|" in content["rows"][0]["signature"]
    assert rows()["step"] <= last
    assert "weights" not in rows("--weights", "best")["rows"][0]["signature"]


def test_relations_beyond_the_first_are_counted() -> None:
    text = run(small_run(), "--side", "both", "--relations", 1)
    assert "1 more relations with --json" in text
    assert "more relations" not in run(small_run(), "--side", "both", "--relations", 0)


def test_a_run_without_rules_has_the_rules_row_and_says_what_it_is() -> None:
    folder = small_run("train.epochs=1", "paths.rules=false")
    result = CliRunner().invoke(app, ["evaluate", str(folder), "--json"])
    assert "this run has no rules: the row of the rules is the tail frequency" in result.stderr
    _, rules, frequency = json.loads(result.stdout)["rows"]
    assert rules["mrr"] == frequency["mrr"]


def test_a_run_without_valid_is_evaluated_on_test() -> None:
    folder = small_run("train.epochs=2", valid=False)
    assert json.loads(run(folder, "--json"))["rows"][0]["queries"] == 3
    assert "split='valid': made has no valid triples." in run(folder, "--split", "valid", fails_with=SettingError)


# ------------------------------------------------------------------------------------------------- constraint


def test_paths_bound_to_the_graph_are_grounded() -> None:
    content = rows("--constraint", "graph")
    assert "|constraint:graph|" in content["rows"][0]["signature"]
    assert content["evidence"]["grounded"] == 1
    assert "constraint" not in content["rows"][1]["signature"]


def test_paths_bound_to_a_file_walk_all_of_it_by_name(tmp_path: Path) -> None:
    """The file holds the test answers themselves, and no other edge from these heads: no rival can be reached."""
    graph = family()
    labels = graph.labels
    facts = [(labels.entities[h], labels.relations[r], labels.entities[t]) for h, r, t in graph.test.tolist()]
    file = write(
        tmp_path / "answers.tsv", "".join("\t".join(fact) + "\n" for fact in [*facts, ("new", "r", "cleo")])
    )
    content = rows("--constraint", file)
    assert content["rows"][0]["mrr"] == 1
    assert "|constraint:answers|" in content["rows"][0]["signature"]


def test_nothing_of_a_single_file_is_held_out(tmp_path: Path) -> None:
    lines = ("\t".join(fact) + "\n" for fact in sorted(facts_of(family(), "train")))
    whole = rows("--side", "both", "--constraint", write(tmp_path / "whole.tsv", "".join(lines)))
    own = rows("--side", "both", "--constraint", "graph")
    assert whole["rows"][0]["mrr"] == own["rows"][0]["mrr"]
    assert whole["evidence"] == own["evidence"]


def test_of_a_graph_in_splits_only_train_is_walked(tmp_path: Path) -> None:
    graph = family()
    graph.save(tmp_path / "same.graph")
    same, own = rows("--constraint", tmp_path / "same.graph"), rows("--constraint", "graph")
    assert same["rows"][0]["mrr"] == own["rows"][0]["mrr"]
    assert same["evidence"] == own["evidence"]


def test_a_constraint_that_shares_no_edge(tmp_path: Path) -> None:
    file = write(tmp_path / "strange.tsv", f"mars\t{PARENT}\tvenus\n")
    message = run(small_run(), "--constraint", file, fails_with=SettingError)
    assert message == f"constraint={str(file)!r}: has no edge between the entities of made."
    run(small_run(), "--constraint", "no-such-graph", fails_with=UnknownName)


# ------------------------------------------------------------------------------------------------- mistakes


def test_mistakes_are_told(tmp_path: Path) -> None:
    folder = small_run()
    assert "no run here" in run(tmp_path, fails_with=SettingError)
    assert "split='tests': expected valid or test." in run(folder, "--split", "tests", fails_with=SettingError)
    words = run(folder, "--split", "train", fails_with=SettingError)
    assert words == "split='train': train facts are known, so their ranks say nothing. Choose valid or test."
    assert "side='head': expected tail or both." in run(folder, "--side", "head", fails_with=SettingError)
    for prune in ("2", "-1", "1"):
        assert f"prune={prune}: expected" in run(folder, "--prune", prune, fails_with=SettingError)
    for wrong in (["--beam", "0"], ["--sample", "0"], ["--aggregate", "mean"], ["--relations", "-1"]):
        run(folder, *wrong, code=2)


def test_the_family_has_what_these_tests_count_on() -> None:
    assert len(family().test) == 2
    assert np.array_equal(Reasoner.load(small_run()).graph.test, family().test)


def test_the_result_is_kept_in_the_run_folder(tmp_path: Path) -> None:
    folder = copy_of_run(tmp_path / "run")
    printed = json.loads(run(folder, "--json"))
    assert json.loads((folder / "evaluation-paths-test.json").read_text()) == printed
    run(folder, "--constraint", "graph", "--split", "valid")
    run(folder, "--weights", "last", "--split", "valid")
    assert [file.name for file in folder.glob("evaluation-*")] == ["evaluation-paths-test.json"]


def test_other_settings_have_files_of_their_own(tmp_path: Path) -> None:
    folder = copy_of_run(tmp_path / "run")
    signatures = {}
    for name, *options in (
        ("",),
        ("-side-both", "--side", "both"),
        ("-beam-8", "--beam", "8"),
        ("-aggregate-max", "--aggregate", "max"),
        ("-prune-0.5", "--prune", "0.5"),
        ("-edge_ends-false", "--no-edge-ends"),
        ("-aggregate-pool-unlinked-true", "--aggregate", "pool", "--unlinked"),
        ("-sample-1", "--sample", "1"),
        ("-sample-1-seed-4", "--sample", "1", "--seed", "4"),
        ("-beam-8-sample-3-side-both", "--sample", "3", "--side", "both", "--beam", "8"),
    ):
        printed = json.loads(run(folder, "--json", *options))
        signatures[f"evaluation-paths-test{name}.json"] = printed["rows"][0]["signature"]
    for same in (
        ["--beam", "16"],
        ["--edge-ends"],
        ["--sample", "2"],
        ["--seed", "4"],
    ):  # as in the recipe, or all
        run(folder, *same)
    kept = {file.name: json.loads(file.read_text()) for file in folder.glob("evaluation-*")}
    assert {name: content["rows"][0]["signature"] for name, content in kept.items()} == signatures
    assert len(set(signatures.values())) == len(signatures)


def test_where_nothing_can_be_kept_the_figures_are_still_told(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(small_run(), folder)
    file = folder / "evaluation-paths-test.json"
    file.unlink(missing_ok=True)
    file.mkdir()
    result = CliRunner().invoke(app, ["evaluate", str(folder)], env={"COLUMNS": "500"})
    assert result.exit_code == 0
    assert "evaluation-paths-test.json: not written (Is a directory)" in result.stderr
    assert "method:paths" in result.stdout
