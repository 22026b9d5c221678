"""What an answer hangs on: removing the named facts leads to the figures that were promised."""

from __future__ import annotations

import shutil
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from service_cases import cli_json, client
from small_run import fused_run
from typer.testing import CliRunner

import squire
from squire.cli import app
from squire.errors import SettingError, UnknownName
from squire.ranking.details import fired_rules, voters
from squire.reasoning.reasoner import Reasoner
from squire.reasoning.reasons import Loss, Reasons
from squire.server.models import Model

QUESTION = "zoe", "grandparent", "zoe 2"
FACTS = [
    ("zoe", "ex:parent", "zoe 1"),
    ("zoe 1", "ex:parent", "zoe 2"),
    ("zoe 2", "likes", "zoe 1"),
    ("zoe", "likes", "ada"),
]


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(fused_run(), tmp_path_factory.mktemp("why") / "run"))
    squire.Run(folder).add(FACTS)
    return folder


@cache
def reasons(folder: Path) -> Reasons:
    return squire.Run(folder).why(*QUESTION)


def figures_after_removing(folder: Path, loss: Loss, again: Path) -> tuple[float, int | None]:
    """By the command, in a copy of the run, with nothing loaded before."""
    shutil.rmtree(again, ignore_errors=True)
    shutil.copytree(folder, again)
    lines = "".join("\t".join(fact) + "\n" for fact in loss.facts)
    (again.parent / "gone.tsv").write_text(lines, encoding="utf-8")
    done = CliRunner().invoke(app, ["remove", str(again), str(again.parent / "gone.tsv")])
    assert done.exit_code == 0, done.output
    try:
        check = squire.Run(again).check(*QUESTION)
    except UnknownName:
        return 0.0, None
    return check.confidence, check.answer.rank


def test_removing_a_fact_leads_to_the_promised_figures(changed: Path, tmp_path: Path) -> None:
    found = reasons(changed)
    assert found.losses
    assert found.confidence == squire.Run(changed).check(*QUESTION).confidence
    for loss in found.losses[:3]:
        assert loss.confidence < found.confidence
        assert figures_after_removing(changed, loss, tmp_path / "again") == (loss.confidence, loss.rank)
    behind = {fact for loss in found.losses for fact in loss.facts}
    assert ("zoe", "ex:parent", "zoe 1") in behind
    assert "http://" not in repr(found)


def test_a_rule_has_the_confidence_that_answers_give_it(changed: Path) -> None:
    answer = next(one for one in squire.Run(changed).answer("zoe", "grandparent") if one.entity == "zoe 2")
    assert answer.evidence.rule is not None
    (same,) = [rule for rule in reasons(changed).rules if rule.text == answer.evidence.rule.text]
    assert (same.confidence, same.support) == (answer.evidence.rule.confidence, answer.evidence.rule.support)


def test_facts_without_which_the_figure_stays_are_not_printed(changed: Path) -> None:
    run, left_out = squire.Run(changed), 0
    for name in ("zoe", "ada", "ben", "cleo", "dan", "eve"):
        found = run.why(name, "likes", run.answer(name, "likes", k=1)[0].entity)
        lines = [line for line in repr(found).splitlines() if line.startswith("  without ")]
        left_out += len(found.losses) - len(lines)
        for line in lines:
            before, _, after = line.rpartition(": ")[2].partition(" → ")
            assert before != after
    assert left_out


def test_the_smallest_set_drops_the_answer_from_first_place(changed: Path, tmp_path: Path) -> None:
    run, dropped = squire.Run(changed), 0
    for name in ("zoe", "ben", "dan", "eve", "gus", "hal"):
        best = run.answer(name, "likes", k=1)[0].entity
        smallest = run.why(name, "likes", best).smallest
        own = len(run.graph.facts.edges(run.graph.labels.entity_id(name))[0])
        if smallest is None or sum(name in (h, t) for h, _, t in smallest.facts) == own:
            continue  # an entity of which nothing is left cannot be asked about
        dropped += 1
        assert run.reasoner.supposing(without=smallest.facts).answer(name, "likes", k=1)[0].entity != best
        for size in range(1, len(smallest.facts)):
            for fewer in combinations(smallest.facts, size):
                assert run.reasoner.supposing(without=fewer).answer(name, "likes", k=1)[0].entity == best
    assert dropped


def test_a_fact_of_the_graph_is_judged_without_itself() -> None:
    run = squire.Run(fused_run())
    found = run.why("ada", "grandparent", "ada 2")
    assert found.is_fact
    assert found.confidence == run.check("ada", "grandparent", "ada 2").confidence
    assert ("ex:parent → ex:parent", 1) in found.patterns
    paths = [rule.path for rule in found.rules if rule.text.count("ex:parent") == 2]
    assert set(paths) <= {"ada ──ex:parent──▶ ada 1 ──ex:parent──▶ ada 2"}


def test_voters_are_those_that_the_vote_counts() -> None:
    """The similarities of all that have some answer add up to the feature of the vote, for every candidate."""
    reasoner = Reasoner.load(fused_run())
    features = reasoner.fused.features
    for query in (reasoner.query("cleo", "likes"), reasoner.query("ada", "grandparent")):
        for answer in range(reasoner.graph.num_entities):
            for voter in voters(features, *query, answer, most=100):
                shared = set(zip(*map(np.ndarray.tolist, features.adjacency.edges(query[0])), strict=True))
                assert set(voter.shared) <= shared
                assert features.adjacency.contains(voter.entity, query[1], answer)
                assert 0 < voter.similarity <= 1 + 1e-9
            fired = fired_rules(features, *query, answer)
            assert [rule.confidence for rule in fired] == sorted((r.confidence for r in fired), reverse=True)


def test_command_and_service_say_the_same() -> None:
    content = cli_json("why", fused_run(), "cleo", "likes", "ada")
    with client(Model.load("family", fused_run())) as service:
        body = {"head": "cleo", "relation": "likes", "tail": "ada"}
        assert service.post("/api/models/family/why", json=body).json() == content


def test_reasons_need_a_fusion(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(fused_run(), tmp_path / "run"))
    (folder / "fusion.safetensors").unlink()
    with pytest.raises(SettingError, match="no fusion here"):
        squire.Run(folder).why("cleo", "likes", "ada")
