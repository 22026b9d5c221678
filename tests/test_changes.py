"""Graphs that change after training: what is added or removed counts at once, and a mistake changes nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import facts_of
from hypothesis import given
from hypothesis import strategies as st
from service_cases import client, error_of
from small_run import copy_of_run, family, fused_run
from typer.testing import CliRunner

import squire
from squire.cli import app
from squire.completion.jobs import checksum
from squire.errors import DataError, SettingError
from squire.graph.changes import Changes, load_changes, record_change
from squire.graph.graph import Graph
from squire.model.edges import EdgeEmbedding
from squire.model.recipe import ModelConfig
from squire.model.transformer import Transformer
from squire.model.vocabulary import Vocabulary
from squire.ranking.fusion_file import load_refreshed
from squire.reasoning.reasoner import Reasoner
from squire.rules.mining import mine_rules
from squire.rules.rules import Rules
from squire.server.models import Model
from squire.training.changes import learn_changes

NEW = [("zoe", "ex:parent", "zoe 1"), ("zoe 1", "ex:parent", "zoe 2"), ("zoe", "likes", "ada")]
FULL = [
    (head, "http://example.org/parent" if relation == "ex:parent" else relation, tail)
    for head, relation, tail in NEW
]
names = st.sampled_from(["ada", "ada 1", "ben", "zoe", "yves"])
some_facts = st.lists(st.tuples(names, st.sampled_from(["likes", "grandparent"]), names), max_size=4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A fused run with a model, of one's own."""
    return Path(shutil.copytree(fused_run(), tmp_path / "run"))


def figures(answers: squire.Answers) -> list[tuple[str, float | None, str]]:
    return [(one.entity, one.confidence, one.evidence.text) for one in answers]


# ------------------------------------------------------------------------------------------------- the graph


@given(st.lists(st.tuples(st.sampled_from(["add", "remove"]), some_facts), max_size=5))
def test_a_changed_graph_is_the_set_of_its_facts(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    base, folder = family(), tmp_path_factory.mktemp("run")
    facts = facts_of(base)
    for action, own in steps:
        wanted = [fact for fact in own if action == "add" or fact in facts]
        if wanted:
            record_change(folder, base, action, wanted)
        facts = facts | set(wanted) if action == "add" else facts - set(wanted)
    graph = load_changes(folder).apply(base)
    assert facts_of(graph) == facts
    assert graph.labels.entities[: base.num_entities] == list(base.labels.entities)
    graph.save(folder / "saved.graph")
    saved = Graph.load(folder / "saved.graph")
    assert facts_of(saved) == facts
    assert list(saved.labels.entities) == sorted(graph.labels.entities)
    assert all(saved.labels.entities.find(label) == i for i, label in enumerate(saved.labels.entities))


def test_what_is_added_and_removed_again_leaves_the_graph_as_it_was(folder: Path) -> None:
    run = squire.Run(folder)
    change = run.add(NEW)
    assert (change.facts, change.known, change.new_entities) == (tuple(FULL), 0, ("zoe", "zoe 1", "zoe 2"))
    assert run.add(NEW).known == len(NEW)
    run.remove(NEW)
    assert run.graph == family()
    assert load_changes(folder) == Changes()


@pytest.mark.parametrize("name", ["facts.tsv", "facts.csv", "facts.parquet"])
def test_facts_come_from_any_file(folder: Path, tmp_path: Path, name: str) -> None:
    graph = Graph.from_triples(FULL, valid=[])
    if name.endswith(".csv"):
        (tmp_path / name).write_text("".join(",".join(fact) + "\n" for fact in FULL))
    else:
        squire.write_graph(graph, tmp_path / name)
    done = CliRunner().invoke(app, ["add", str(folder), str(tmp_path / name)])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("3 facts added; new: zoe")
    assert facts_of(squire.Run(folder).graph) == facts_of(family()) | set(FULL)


@pytest.mark.parametrize(
    ("action", "line", "says"),
    [
        ("add", "zoe\tlikse\tada", "unknown relation 'likse'. Nearest: 'likes'"),
        ("add", "zoe\tlikes", "wrong number of columns"),
        ("add", "zoe\tlikes\t", "empty field"),
        ("add", "zoe\tlikes\t ", "a name of nothing but spaces"),
        ("remove", "aida\tlikes\tben", "unknown entity 'aida'. Nearest: 'ada'"),
        ("remove", "ada\tlikes\tada", "(ada, likes, ada) is not in the graph"),
    ],
)
def test_a_file_with_a_mistake_is_refused_whole(
    folder: Path, tmp_path: Path, action: str, line: str, says: str
) -> None:
    good = "ada\tlikes\tben"
    (tmp_path / "facts.tsv").write_text(f"{good}\n{line}\n")
    done = CliRunner().invoke(app, [action, str(folder), str(tmp_path / "facts.tsv")])
    assert done.exit_code == 1
    assert f"facts.tsv:2: {says}" in str(done.exception) or (
        "facts.tsv:2" in str(done.exception) and says in str(done.exception)
    )
    assert squire.Run(folder).graph == family()


def test_what_if_facts_with_a_mistake_promise_nothing_about_changes(folder: Path) -> None:
    wrong = [("zoe", "likse", "ada")]
    with pytest.raises(DataError, match="Nothing was changed"):
        squire.Run(folder).add(wrong)
    with pytest.raises(DataError) as refused:
        squire.Run(folder).answer("zoe", "likes", facts=wrong)
    assert "Nothing was changed" not in str(refused.value)


def test_a_folder_is_not_a_file_of_facts(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a folder\. Give a file of facts"):
        squire.Run(folder).add(tmp_path)


def test_a_header_that_is_not_read_as_a_fact_is_reported(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "facts.csv").write_text("head,relation,tail\nzoe,likes,ada\n")
    assert len(squire.Run(folder).add(tmp_path / "facts.csv").facts) == 1
    assert "header line, not read as a triple" in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        '{"action": "forget", "facts": [["ada", "likes", "ben"]]}',
        '{"action": "add", "facts": [["ada", "likes"]]}',
        '{"action": "add", "facts": [["ada", 3, "ben"]]}',
        '{"action": "add", "facts": 3}',
        '{"action": ["add"], "facts": []}',
        "[]",
        '{"action": "ad',
    ],
)
def test_a_damaged_change_is_named(folder: Path, content: str) -> None:
    (folder / "changes").mkdir()
    (folder / "changes" / "00000001.json").write_text(content)
    with pytest.raises(DataError, match=r"00000001\.json: not a change"):
        _ = squire.Run(folder).graph


def test_changes_of_two_processes_wait_for_each_other(folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:  # file locks hold between threads as well
        done = pool.map(lambda i: squire.Run(folder).add([(f"zoe {i}", "likes", "ada")]), range(12))
        assert all(change.facts for change in done)
    added = {(f"zoe {i}", "likes", "ada") for i in range(12)}
    assert facts_of(squire.Run(folder).graph) == facts_of(family()) | added


def test_rules_that_cannot_be_refreshed_are_refused_before_the_change(tmp_path: Path) -> None:
    run = squire.Run(copy_of_run(tmp_path / "run"))
    with pytest.raises(SettingError, match="no rules to refresh"):
        run.add(NEW, refresh_rules=True)
    assert squire.Run(tmp_path / "run").graph == family()


def test_a_kill_in_the_middle_leaves_the_run_as_it_was(folder: Path) -> None:
    squire.Run(folder).add([("zoe", "likes", "ben")])
    before = facts_of(squire.Run(folder).graph)
    script = (
        "import os, signal, squire\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"squire.Run({str(folder)!r}).add([('zoe', 'likes', 'ada')])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    assert facts_of(squire.Run(folder).graph) == before
    squire.Run(folder).add([("zoe", "likes", "ada")])  # what the kill left is in nobody's way
    assert facts_of(squire.Run(folder).graph) == before | {("zoe", "likes", "ada")}


# ------------------------------------------------------------------------------------------------- answers


def test_new_entities_are_answered_about_and_their_facts_are_marked(folder: Path) -> None:
    run = squire.Run(folder)
    run.add(NEW)
    found = squire.Run(folder).answer("zoe", "grandparent")
    (right,) = [one for one in found if one.entity == "zoe 2"]
    assert right.rank <= 2
    assert [(edge.head, edge.tail) for edge in right.evidence.added] == [("zoe", "zoe 1"), ("zoe 1", "zoe 2")]
    assert figures(run.answer("zoe", "grandparent")) == figures(found)
    old = run.answer("ada", "grandparent")
    assert not any(one.evidence.added for one in old if "zoe" not in one.evidence.text)
    for ranking in ("paths", "fused"):
        assert len(run.answer("zoe 1", "likes", ranking=ranking))
        assert len(run.answer(None, "likes", "zoe", ranking=ranking))


def test_facts_of_a_question_count_as_if_they_were_added_and_leave_nothing(folder: Path) -> None:
    run = squire.Run(folder)
    supposed = run.answer("zoe", "grandparent", facts=NEW)
    assert not (folder / "changes").exists()
    with pytest.raises(squire.errors.UnknownName):
        run.answer("zoe", "grandparent")
    run.add(NEW)
    assert figures(run.answer("zoe", "grandparent")) == figures(supposed)


def test_a_fact_that_is_removed_is_judged_as_one_that_is_left_out(folder: Path) -> None:
    run = squire.Run(folder)
    fact = ("ada", "grandparent", "ada 2")
    left_out = run.check(*fact)
    run.remove([fact])
    removed = squire.Run(folder).check(*fact)
    assert left_out.is_fact
    assert not removed.is_fact
    assert removed.confidence == left_out.confidence
    assert removed.answer == left_out.answer
    assert removed.against == left_out.against


def test_a_grown_model_says_the_same_of_the_entities_that_it_knew(folder: Path) -> None:
    before = Reasoner.load(folder).trained
    squire.Run(folder).add(NEW)
    after = Reasoner.load(folder).trained
    n = before.model.vocab.num_entities
    assert after.model.vocab.num_entities == n + 3
    assert np.array_equal(after.model.embedding.weight[:n].detach(), before.model.embedding.weight[:n].detach())
    zoe = after.graph.labels.entity_id("zoe 1")  # linked to new ones only, which the model does not know
    assert np.array_equal(
        after.model.embedding.weight[zoe].detach(), before.model.embedding.weight[before.model.vocab.mask].detach()
    )


def test_a_grown_model_has_edge_embeddings_of_new_entities() -> None:
    vocab, config = Vocabulary(4, 2), ModelConfig(layers=1, dim=8, heads=2, feedforward=8, edge_rank=3)
    model = Transformer(vocab, config)
    assert model.edges is not None
    edges = EdgeEmbedding(6, 4, 3)
    grown = model.grown(4, [torch.tensor([0, 2]), torch.tensor([], dtype=torch.int64)], edges)
    assert grown.edges is not None
    assert torch.equal(grown.edges.entity, edges.entity)
    assert torch.equal(grown.embedding.weight[4], model.embedding.weight[[0, 2]].mean(0))
    assert torch.equal(grown.embedding.weight[5], model.embedding.weight[vocab.mask])
    assert torch.equal(grown.embedding.weight[6:], model.embedding.weight[4:])


# ------------------------------------------------------------------------------------------------- learning


def test_refreshed_rules_are_those_of_the_changed_graph(folder: Path) -> None:
    run = squire.Run(folder)
    before = run.reasoner.fused.features.rules
    run.add([(f"{name} {i}", "likes", "ada") for name in ("x", "y") for i in range(4)], refresh_rules=True)
    refreshed = load_refreshed(folder, before)
    expected = mine_rules(run.graph.train).rules
    kept = np.maximum(expected.head_constant, expected.body_constant) < family().num_entities
    assert table(refreshed) == table(expected.take(kept))
    assert table(run.reasoner.fused.features.rules) == table(refreshed) != table(before)
    run.remove([("ada", "likes", "ben")])
    assert table(run.reasoner.fused.features.rules) == table(refreshed)


def test_a_job_knows_a_graph_with_other_names_or_other_counts(folder: Path) -> None:
    run, found = squire.Run(folder), set()
    for name in ("zoe", "yves"):  # with the same ids
        run.add([(name, "likes", "ada")])
        found.add(checksum(run.reasoner))
        run.remove([(name, "likes", "ada")])
    run.add([("ada", "likes", "cleo")])
    found.add(checksum(run.reasoner))
    run.add([("ada", "likes", "cleo")], refresh_rules=True)
    found.add(checksum(run.reasoner))
    assert len(found) == 4


def table(rules: Rules) -> set[tuple[int, ...]]:
    columns = (
        rules.head,
        *rules.body.T,
        rules.head_constant,
        rules.body_constant,
        rules.body_count,
        rules.support,
    )
    return set(zip(*(column.tolist() for column in columns), strict=True))


def test_training_learns_the_changes_when_it_is_resumed(tmp_path: Path) -> None:
    folder = copy_of_run(tmp_path / "run")
    run = squire.Run(folder)
    run.add(NEW)
    run.remove([("ada", "likes", "ben")])
    facts = facts_of(run.graph)
    trained = squire.train(None, folder, resume=True, fuse=False, progress=False)
    assert not (folder / "changes").exists()
    assert facts_of(trained.graph) == facts
    assert trained.reasoner.trained.model.vocab.num_entities == trained.graph.num_entities
    # A model of this size ranks them differently on different processors.
    grades = {one.entity: one.evidence.grade for one in trained.answer("zoe", "grandparent", k=30)}
    assert grades["zoe 2"] == "grounded"
    learn_changes(folder)  # nothing is left to learn
    assert trained.is_trained


def test_a_kill_while_learned_changes_are_deleted_undoes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy_of_run(tmp_path / "run")
    run, fact = squire.Run(folder), ("ada", "likes", "ben")
    run.remove([fact])
    run.add([fact])

    def killed(changes: Path) -> None:  # files of a folder are deleted in any order
        (changes / "00000002.json").unlink(missing_ok=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        learn_changes(folder)
    assert squire.Run(folder).graph == family()


# ------------------------------------------------------------------------------------------------- the service


def test_a_writable_service_changes_its_graph(folder: Path) -> None:
    body = {"facts": [dict(zip(("head", "relation", "tail"), fact, strict=True)) for fact in NEW]}
    question = {"head": "zoe", "relation": "grandparent"}
    model = Model.load("family", folder)
    where = "/api/models/family"
    with client(model) as reader:
        assert error_of(reader.post(f"{where}/facts", json=body), 403)["code"] == "forbidden"
        supposed = reader.post(f"{where}/answer", json=question | body).json()
        assert "zoe 2" in [one["entity"] for one in supposed["answers"]]
        assert error_of(reader.post(f"{where}/answer", json=question), 404)["code"] == "unknown_name"
    with client(model, writable=True) as writer:
        done = writer.post(f"{where}/facts", json=body)
        assert (done.status_code, done.json()["new_entities"]) == (200, ["zoe", "zoe 1", "zoe 2"])
        assert writer.post(f"{where}/answer", json=question).json() == supposed
        assert writer.get(f"{where}/entities", params={"q": "zoe"}).json()["matches"][0]["name"] == "zoe"
        wrong = {"facts": [*body["facts"], {"head": "zoe", "relation": "likes", "tail": "nobody"}]}
        assert "facts, row 3" in error_of(writer.request("DELETE", f"{where}/facts", json=wrong), 404)["message"]
        assert writer.request("DELETE", f"{where}/facts", json=body).json()["facts"] == 3
        assert error_of(writer.post(f"{where}/answer", json=question), 404)["code"] == "unknown_name"
    assert squire.Run(folder).graph == family()


def test_errors_name_rows_of_python_objects(folder: Path) -> None:
    with pytest.raises(DataError, match="facts, row 1: unknown relation 'hates'"):
        squire.Run(folder).add([("a", "likes", "b"), ("a", "hates", "b")])
