"""Answers of a tiny trained run, checked edge by edge with nothing but labels, sets and the naive model."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import naive_beam
import numpy as np
import pytest
import torch
from graphs import LabelTriple, facts_of
from naive_model import logits_after
from small_run import HOSTILE, PARENT, family, known_facts, small_run

from squire import __version__
from squire.core.run_files import RECIPE, RULES
from squire.errors import CheckpointError, SettingError, UnknownName
from squire.graph.adjacency import Adjacency
from squire.graph.graph import SPLITS
from squire.reasoning.answers import FACTS, Answer, Answers, Evidence
from squire.reasoning.reasoner import Reasoner
from squire.rules.anyburl import readable
from squire.search.trained import TrainedModel

QuerySet = tuple[str | None, str, str | None]
QUESTIONS: list[QuerySet] = [
    ("cleo", "grandparent", None),
    (HOSTILE, "grandparent", None),
    (None, "grandparent", "finn 2"),
    (None, "likes", HOSTILE),
]


@cache
def reasoner() -> Reasoner:
    return Reasoner.load(small_run())


@cache
def answers(question: QuerySet, *, grounded: bool = False, beam: int = 16) -> Answers:
    return reasoner().answer(*question, k=99, grounded=grounded, beam=beam)


def evidence_of(found: Answers) -> list[tuple[Answer, Evidence]]:
    return [(answer, evidence) for answer in found for evidence in (answer.evidence, *answer.further)]


def naive_follow(query: int, path: tuple[int, ...]) -> list[float]:
    """The run's model without any cache, guided along known edges; the query is head · 1000 + edge relation."""
    n, triples = reasoner().graph.num_relations, [reasoner().graph.triples(split) for split in SPLITS]
    facts = [tuple(fact) for split in triples for fact in split.tolist()]
    edges = {*facts, *((tail, relation + n, head) for head, relation, tail in facts)}
    guided = naive_beam.guided_follow(unguided_follow, lambda query: query // 1000, edges, 0.9)
    return guided(query, path)


def unguided_follow(query: int, path: tuple[int, ...]) -> list[float]:
    model = reasoner().trained.model
    head, relation = divmod(query, 1000)
    first = model.vocab.first_relation
    prefix = [token + first * (k % 2 == 0) for k, token in enumerate(path)]
    classes = model.vocab.after_relation if len(path) % 2 else model.vocab.after_entity
    with torch.no_grad():
        values: list[float] = (
            logits_after(model, (head, relation + first), prefix)[classes].log_softmax(0).tolist()
        )
    return values


def naive_end(query: int, path: tuple[int, ...]) -> float:
    """Of ending here; sure after the queried edge itself, as the recipe `small` says."""
    return 0.0 if len(path) == 2 and path[0] == query % 1000 else naive_follow(query, path)[-1]


def shown(label: str) -> str:
    return "ex:parent" if label == PARENT else label


SHOWN_FACTS: set[LabelTriple] = {(h, shown(r), t) for h, r, t in known_facts()}


# ------------------------------------------------------------------------------------------------- evidence


@pytest.mark.parametrize("question", QUESTIONS)
def test_each_path_leads_from_the_question_to_the_answer(question: QuerySet) -> None:
    for answer, evidence in evidence_of(answers(question)):
        here = evidence.start
        assert here == (question[0] or question[2])
        visited = [here]
        for edge in evidence.edges:
            ends = (edge.tail, edge.head) if edge.backwards else (edge.head, edge.tail)
            assert ends[0] == here
            assert edge.goal == ends[1]
            here = ends[1]
            visited.append(here)
        assert here == answer.entity
        assert len(set(visited[1:])) == len(visited) - 1


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_edge_is_known_if_the_graph_has_it_and_the_grade_says_what_that_makes(question: QuerySet) -> None:
    for _, evidence in evidence_of(answers(question)):
        flags = [(edge.head, edge.relation, edge.tail) in SHOWN_FACTS for edge in evidence.edges]
        assert [edge.is_fact for edge in evidence.edges] == flags
        edge = evidence.edges[0]
        bare = len(flags) == 1 and edge.relation == question[1] and edge.backwards == (question[0] is None)
        expected = "grounded" if all(flags) else "asserted" if bare else "completed"
        assert evidence.grade == expected


def test_the_tests_above_meet_every_kind_of_evidence() -> None:
    found = [evidence for question in QUESTIONS for _, evidence in evidence_of(answers(question))]
    assert {evidence.grade for evidence in found} == {"grounded", "completed", "asserted"}
    assert {len(evidence.edges) for evidence in found} == {1, 2, 3}
    for asks_head in (False, True):
        own = [question for question in QUESTIONS if (question[0] is None) == asks_head]
        assert any(evidence.rule for question in own for _, evidence in evidence_of(answers(question)))


@pytest.mark.parametrize("question", QUESTIONS)
def test_probabilities_are_products_of_the_naive_model(question: QuerySet) -> None:
    labels, n = reasoner().labels, reasoner().graph.num_relations
    head, relation = reasoner().query(*question)
    for _, evidence in evidence_of(answers(question)):
        path: tuple[int, ...] = ()
        steps = []
        for edge in evidence.edges:
            pair = labels.relation_id(edge.relation) + n * edge.backwards, labels.entity_id(edge.goal)
            steps.append(naive_follow(head * 1000 + relation, path)[pair[0]])
            steps.append(naive_follow(head * 1000 + relation, (*path, pair[0]))[pair[1]])
            assert edge.probability == pytest.approx(math.exp(steps[-1]), rel=1e-4)
            path += pair
        steps.append(naive_end(head * 1000 + relation, path))
        assert evidence.probability == pytest.approx(math.exp(sum(steps)), rel=1e-4)
        assert evidence.score == pytest.approx(math.exp(sum(steps) / len(steps)), rel=1e-4)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_path_names_the_rule_that_it_is_an_instance_of(question: QuerySet) -> None:
    rules = reasoner().trained.rules
    said = {
        readable(rules, i, reasoner().labels): (float(rules.confidence[i]), int(rules.support[i]))
        for i in range(len(rules))
    }
    for _, evidence in evidence_of(answers(question)):
        # As a rule is written, from head to tail: if heads were asked for, the path is read from its end.
        edges = evidence.edges if question[0] is not None else evidence.edges[::-1]
        places = ["X", *"AB"[: len(edges) - 1], "Y"]
        atoms = []
        for edge, first, second in zip(edges, places, places[1:], strict=False):
            forward = edge.backwards == (question[0] is None)
            atoms.append(
                f"{edge.relation}({first}, {second})" if forward else f"{edge.relation}({second}, {first})"
            )
        text = f"{question[1]}(X, Y) ⇐ {' ∧ '.join(atoms)}"
        if text in said:
            assert evidence.rule is not None
            assert evidence.rule.text == text
            assert (evidence.rule.confidence, evidence.rule.support) == said[text]
        else:
            assert evidence.rule is None


@pytest.mark.parametrize("aggregate", ["sum", "max"])
@pytest.mark.parametrize("question", QUESTIONS[1:3])
def test_answers_are_those_of_the_definition(question: QuerySet, aggregate: str) -> None:
    found = reasoner().answer(
        *question,
        k=99,
        beam=8,
        aggregate=aggregate,  # type: ignore[arg-type]
    )
    head, relation = reasoner().query(*question)
    number = head * 1000 + relation
    ended = naive_beam.beam_search(naive_follow, number, head, 8, 3)
    scores: dict[str, float] = {}
    paths: dict[str, int] = {}
    for found_path in ended:
        path = found_path.path
        entity = reasoner().labels.entities[path[-1]]
        total = found_path.log_probability - naive_follow(number, path)[-1] + naive_end(number, path)
        mean, before = math.exp(total / (len(path) + 1)), scores.get(entity, 0.0)
        scores[entity] = max(before, mean) if aggregate == "max" else before + math.exp(total)
        paths[entity] = paths.get(entity, 0) + 1
    for known in reasoner().graph.facts.tails_of(head, relation).tolist():
        scores.pop(reasoner().labels.entities[known], None)
        paths.pop(reasoner().labels.entities[known], None)
    assert {answer.entity: answer.score for answer in found} == pytest.approx(scores, rel=1e-4)
    assert {answer.entity: answer.paths for answer in found} == paths
    assert [answer.score for answer in found] == sorted((answer.score for answer in found), reverse=True)
    assert [answer.rank for answer in found] == list(range(1, len(found) + 1))


# ------------------------------------------------------------------------------------------------- questions


@pytest.mark.parametrize("question", QUESTIONS)
def test_facts_come_first_and_are_not_predicted(question: QuerySet) -> None:
    head, relation, tail = question
    found = answers(question)
    known = {(h, r, t) for h, r, t in SHOWN_FACTS if (head or h, relation, tail or t) == (h, r, t)}
    assert {(head or one.entity, relation, tail or one.entity) for one in found.facts} == known
    assert found.num_facts == len(known) == 1
    for one in found.facts:
        (edge,) = one.evidence.edges
        assert (edge.head, edge.relation, edge.tail) in known
        assert (edge.goal, edge.is_fact, one.evidence.grade) == (one.entity, True, "fact")
        assert (one.rank, one.is_fact, one.confidence, one.sources, one.evidence.rule) == (0, True, None, (), None)
    assert not {(head or one.entity, relation, tail or one.entity) for one in found} & known
    assert not any(one.is_fact for one in found)
    assert [one.rank for one in found] == list(range(1, len(found) + 1))
    new = reasoner().answer(*question, k=99, beam=16, new_only=True)
    assert (new.facts, new.num_facts, new.answers) == ((), 1, found.answers)


@pytest.mark.parametrize("split", ["valid", "test"])
def test_held_out_facts_are_facts_unless_they_are_hidden(split: str) -> None:
    """As evidence too: where they are hidden, the same questions have the answers that train alone gives."""
    hidden = Reasoner.load(small_run(), hide_held_out=True)
    graph = hidden.graph
    assert hidden.run.facts is graph.train
    for head, relation, tail in graph.triples(split).tolist():
        question = graph.labels.entities[head], graph.labels.relations[relation]
        entity = graph.labels.entities[tail]
        known, asked = reasoner().answer(*question, k=99), hidden.answer(*question, k=99)
        assert [one.entity for one in known.facts] == [entity]
        assert entity not in [one.entity for one in known]
        assert not asked.facts
        assert entity in [one.entity for one in asked]
        for answered, is_evidence in ((known, True), (asked, False)):
            edges = [edge for _, evidence in evidence_of(answered) for edge in evidence.edges]
            through = {(edge.head, edge.relation, edge.tail) for edge in edges if edge.is_fact}
            assert ((*question, entity) in through) == is_evidence


def test_a_hub_lists_its_first_facts_and_says_how_many_there_are() -> None:
    ours = replace(reasoner().run, facts=_liked_by_all())
    found = Reasoner(ours).answer(None, "likes", "ada", k=2)
    assert (len(found.facts), found.num_facts) == (FACTS, ours.graph.num_entities)
    assert not len(found)
    assert found.known.endswith(f" … and {ours.graph.num_entities - FACTS} more")
    assert f"     The graph says: {HOSTILE} · " in repr(found)


def _liked_by_all() -> Adjacency:
    graph = family()
    likes, ada = graph.labels.relation_id("likes"), graph.labels.entity_id("ada")
    triples = np.array([(entity, likes, ada) for entity in range(graph.num_entities)], np.int32)
    return Adjacency.build(triples, graph.num_entities, graph.num_relations)


@pytest.mark.parametrize("question", QUESTIONS)
def test_grounded_evidence_walks_known_edges_only(question: QuerySet) -> None:
    found = answers(question, grounded=True)
    assert len(found)
    assert all(edge.is_fact for _, evidence in evidence_of(found) for edge in evidence.edges)
    assert all(evidence.grade == "grounded" for _, evidence in evidence_of(found))
    assert found.origin.constraint == "graph"


def test_k_is_a_bound_not_a_promise() -> None:
    question = QUESTIONS[0]
    assert len(reasoner().answer(*question, k=3)) == 3
    everything = reasoner().answer(*question, k=10_000)
    assert 3 < len(everything) <= reasoner().graph.num_entities
    assert reasoner().answer(*question, k=3).answers == everything.answers[:3]


def test_names_are_understood_in_full_or_short_and_shown_short() -> None:
    full, short = (reasoner().answer("ada", name, k=4) for name in (PARENT, "ex:parent"))
    assert full == short
    assert full.relation == "ex:parent"
    assert full.question == "(ada, ex:parent, ?)"
    assert reasoner().answer(None, "ex:parent", "ada 1").question == "(?, ex:parent, ada 1)"


def test_unknown_names_give_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"unknown entity 'cloe 1'\. Nearest: .*'cleo 1'"):
        reasoner().answer("cloe 1", "grandparent")
    with pytest.raises(UnknownName, match=r"unknown relation 'ex:parents'. Nearest: 'ex:parent'"):
        reasoner().answer("cleo", "ex:parents")
    with pytest.raises(UnknownName, match="unknown entity 'cloe 1'"):
        reasoner().answer(None, "grandparent", "cloe 1")


@pytest.mark.parametrize("ends", [("ada", "ben"), (None, None)])
def test_one_end_is_given_and_one_asked_for(ends: tuple[str | None, str | None]) -> None:
    with pytest.raises(SettingError, match="give either head or tail"):
        reasoner().answer(ends[0], "likes", ends[1])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"k": 0}, "k=0: expected 1 or more."),
        ({"beam": 0}, "beam=0: expected 1 to 100,000."),
        ({"beam": 10**9}, "beam=1000000000: expected 1 to 100,000."),
        ({"aggregate": "mean"}, "aggregate='mean': expected 'sum', 'max' or 'pool'."),
    ],
)
def test_settings_that_make_no_sense(setting: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        reasoner().answer("ada", "likes", **setting)  # type: ignore[arg-type]


def test_a_stream_of_questions_gives_what_each_gives_alone() -> None:
    queries = np.array([reasoner().query(*question) for question in QUESTIONS], np.int32)
    together = list(reasoner().stream(queries, reasoner().decoding(beam=16), k=5))
    for question, many in zip(QUESTIONS, together, strict=True):
        alone = reasoner().answer(*question, k=5, beam=16)
        assert many.question == alone.question
        assert [a.entity for a in many] == [a.entity for a in alone]
        assert [a.score for a in many] == pytest.approx([a.score for a in alone], rel=1e-4)


# ------------------------------------------------------------------------------------------------- forms


def test_json_has_everything_and_reads_back() -> None:
    found = reasoner().answer(*QUESTIONS[3], k=3)
    content = json.loads(json.dumps(found.as_dict()))
    assert list(content) == ["head", "relation", "tail", "origin", "facts", "num_facts", "answers"]
    assert (content["head"], content["relation"], content["tail"]) == QUESTIONS[3]
    assert content["origin"] == {
        "run": str(small_run()), "step": reasoner().trained.step, "graph": "made", "beam": 16, "hops": 3,
        "aggregate": "sum", "prune": 0.0, "known_share": 0.9, "edge_ends": True, "constraint": "",
        "version": __version__, "ranking": "paths", "decisions": 0,
    }  # fmt: skip
    assert len(content["answers"]) == 3
    for answer, read in zip((*found.facts, *found), (*content["facts"], *content["answers"]), strict=True):
        assert list(read) == ["rank", "entity", "score", "is_fact", "evidence", "further", "paths", "asserted",
            "confidence", "sources", "basis", "claim", "sampled"]  # fmt: skip
        assert list(read["evidence"]) == ["edges", "grade", "probability", "score", "rule", "clauses"]
        edge_keys = ["head", "relation", "tail", "backwards", "is_fact", "probability", "is_added"]
        assert [list(edge) for edge in read["evidence"]["edges"]] == [edge_keys] * len(answer.evidence.edges)
        assert read["entity"] == answer.entity
        assert read["score"] == answer.score
    assert {"text", "confidence", "support", "sampled"} in [
        set(evidence["rule"])
        for answer in content["answers"]
        for evidence in (answer["evidence"], *answer["further"])
        if evidence["rule"]
    ]


def test_the_page_escapes_names_speaks_and_fetches_nothing() -> None:
    page = answers(QUESTIONS[1])._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page.count('role="img" aria-label="') == len(answers(QUESTIONS[1]))
    assert not re.search(r"(?:src|href|url|@import)\b|https?://|//", page)


def test_no_answer_is_said() -> None:
    assert "no new answer" in Answers("a", "r", None, answers(QUESTIONS[0]).origin, (), 0, ())._repr_html_()


# ------------------------------------------------------------------------------------------------- runs


def test_a_run_without_valid_answers_with_its_last_model() -> None:
    found = Reasoner.load(small_run("train.epochs=2", valid=False))
    assert not len(found.graph.valid)
    assert found.trained.step > 0
    assert len(found.answer("cleo", "grandparent", k=2)) == 2


def test_a_run_without_rules_answers_and_names_none() -> None:
    folder = small_run("train.epochs=1", "paths.rules=false")
    assert not (folder / RULES).exists()
    found = Reasoner.load(folder).answer("cleo", "grandparent")
    assert len(found)
    assert all(evidence.rule is None for _, evidence in evidence_of(found))


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(SettingError, match=r"no run here. Run `squire train GRAPH --out"):
            TrainedModel.load(folder)


def test_a_run_that_was_only_begun(tmp_path: Path) -> None:
    for name in ("graph.graph", RECIPE):
        shutil.copy(small_run() / name, tmp_path)
    with pytest.raises(SettingError, match=r"no model yet. Run `squire train … --out .* --resume` first"):
        TrainedModel.load(tmp_path)


def test_a_recipe_that_does_not_fit_its_weights_or_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(small_run(), folder)
    recipe = json.loads((folder / RECIPE).read_text())
    recipe["model"]["dim"] = 32
    (folder / RECIPE).write_text(json.dumps(recipe))
    with pytest.raises(
        CheckpointError, match=r"not the weights of the model that .*recipe.json describes. Restore"
    ):
        TrainedModel.load(folder)
    (folder / RECIPE).write_text("{")
    with pytest.raises(SettingError, match=r"recipe.json: not JSON \(.*\). Restore it"):
        TrainedModel.load(folder)


def test_the_run_holds_the_graph_that_it_was_trained_on() -> None:
    assert facts_of(reasoner().graph, "train") == facts_of(family(), "train")
