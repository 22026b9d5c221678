"""The API as a program meets it: every endpoint, against what the command line says."""

from __future__ import annotations

import json
import logging
import math
import re
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from graphs import facts_of
from service_cases import QUESTION, cli_json, client, error_of, family_model, running
from small_run import HOSTILE, PARENT, copy_of_run, family, small_run
from typer.testing import CliRunner

from squire import __version__
from squire.cli import app as cli
from squire.server.app import JsonLines, create_app
from squire.server.models import Model, Options
from squire.server.schemas import MAX_BATCH, MAX_BEAM, MAX_K
from squire.server.security import Limits

HERE = "/api/models/family"


@pytest.fixture(scope="module")
def api() -> Iterator[httpx.Client]:
    with client() as found:
        yield found


def same(one: Any, other: Any) -> bool:
    """Equal but for the rounding of sums whose order depends on how many are answered at once."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-7)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_health_and_the_list_of_models(api: httpx.Client) -> None:
    assert api.get("/api/health").json() == {"status": "ok", "version": __version__, "models": ["family"]}
    graph = family()
    assert api.get("/api/models").json() == [
        {
            "name": "family", "graph": "made", "entities": graph.num_entities, "relations": 3,
            "facts": len(facts_of(graph)), "fused": False, "default": True,
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({}, []),
        ({"k": 3, "grounded": True}, ["-k", 3, "--grounded"]),
        ({"new_only": True, "beam": 4, "aggregate": "max"}, ["--new-only", "--beam", 4, "--aggregate", "max"]),
    ],
)
def test_answers_are_those_of_the_command_line(
    api: httpx.Client, options: dict[str, Any], arguments: list[object]
) -> None:
    found = api.post(f"{HERE}/answer", json={**QUESTION, "k": 5, **options})
    assert found.status_code == 200
    assert found.json() == cli_json("answer", small_run(), "cleo", "grandparent", *arguments)


def test_heads_are_asked_for_with_a_null(api: httpx.Client) -> None:
    body = {"head": None, "relation": "ex:parent", "tail": HOSTILE, "k": 2}
    expected = cli_json("answer", small_run(), "?", PARENT, HOSTILE, "-k", 2)
    assert api.post(f"{HERE}/answer", json=body).json() == expected


def test_unknown_names_come_with_the_nearest(api: httpx.Client) -> None:
    error = error_of(api.post(f"{HERE}/answer", json={"head": "adda", "relation": "likes"}), 404)
    assert error["code"] == "unknown_name"
    assert error["nearest"][0] == "ada"
    assert error["message"].startswith("unknown entity 'adda'. Nearest: 'ada'")
    error = error_of(api.post(f"{HERE}/answer", json={"head": "ada", "relation": "lices"}), 404)
    assert error["nearest"] == ["likes"]
    assert error_of(api.get("/api/models/famile"), 404)["message"] == "no model 'famile' here. There is: family."


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"head": "ada"}, "relation: field required"),
        ({"relation": "likes"}, "give either the head or the tail, and the relation"),
        ({**QUESTION, "tail": "ada"}, "give either the head or the tail, and the relation"),
        ({**QUESTION, "k": 0}, "k: "),
        ({**QUESTION, "k": MAX_K + 1}, f"k: input should be less than or equal to {MAX_K}"),
        ({**QUESTION, "k": "3"}, "k: "),
        ({**QUESTION, "beam": MAX_BEAM + 1}, f"beam: input should be less than or equal to {MAX_BEAM}"),
        ({**QUESTION, "aggregate": "mean"}, "aggregate: "),
        ({**QUESTION, "hops": 3}, "hops: extra inputs are not permitted"),
        ({**QUESTION, "head": "a" * 3000}, "head: string should have at most 2000 characters"),
        ({**QUESTION, "head": "\ud800"}, "head: "),
        ({**QUESTION, "head": "a\0b"}, "head: a name cannot contain a NUL character"),
        ({**QUESTION, "facts": [{**QUESTION, "tail": "\0"}]}, "a name cannot contain a NUL character"),
        ([], "the request: "),
    ],
)
def test_what_makes_no_sense_is_told(api: httpx.Client, body: object, words: str) -> None:
    content = json.dumps(body).encode()
    found = api.post(f"{HERE}/answer", content=content, headers={"Content-Type": "application/json"})
    error = error_of(found, 422)
    assert error["code"] == "invalid"
    assert words in error["message"]


def test_a_body_that_is_no_json_is_a_bad_request(api: httpx.Client) -> None:
    for content in (b"{", b"\xff", b'{"head": '):
        found = api.post(f"{HERE}/answer", content=content, headers={"Content-Type": "application/json"})
        assert error_of(found, 400)["code"] == "bad_request"


def test_a_body_without_the_type_of_json_is_refused(api: httpx.Client) -> None:
    """A form of another site can send text, but no JSON."""
    found = api.post(f"{HERE}/answer", content=json.dumps(QUESTION), headers={"Content-Type": "text/plain"})
    assert "Content-Type: application/json', not 'text/plain'" in error_of(found, 415)["message"]
    assert "which is missing" in error_of(api.post(f"{HERE}/answer", content=b"{}"), 415)["message"]


def test_text_that_is_not_utf8_is_called_so(api: httpx.Client) -> None:
    found = api.post(f"{HERE}/answer", content=b'{"head": "\xff"}', headers={"Content-Type": "application/json"})
    assert "not UTF-8" in error_of(found, 400)["message"]


def test_head_is_get_without_a_body_and_options_tell_what_is_possible(api: httpx.Client) -> None:
    for path in ("/", "/api/health", "/api/models", HERE):
        got, asked = api.get(path), api.head(path)
        assert (asked.status_code, asked.content) == (200, b"")
        assert asked.headers["Content-Length"] == str(len(got.content))
        assert api.options(path).headers["Allow"] == "GET, HEAD, OPTIONS"
    assert api.options(f"{HERE}/annotation").headers["Allow"] == "GET, HEAD, OPTIONS, POST"
    told = api.options(f"{HERE}/answer")
    assert (told.status_code, told.content, told.headers["Allow"]) == (204, b"", "OPTIONS, POST")
    assert api.head(f"{HERE}/answer").headers["Allow"] == "OPTIONS, POST"
    assert "Use OPTIONS, POST." in error_of(api.get(f"{HERE}/answer"), 405)["message"]
    assert api.options("/nothing").status_code == 404


def test_the_case_of_a_name_matters_only_if_two_names_differ_in_nothing_else(api: httpx.Client) -> None:
    found = api.post(f"{HERE}/answer", json={"head": "CLEO", "relation": "Grandparent"}).json()
    assert (found["head"], found["relation"]) == ("cleo", "grandparent")
    assert api.get(f"{HERE}/neighbourhood", params={"entity": "Cleo 1"}).json()["entity"] == "cleo 1"


def test_entities_are_found_with_their_degrees(api: httpx.Client) -> None:
    found = api.get(f"{HERE}/entities", params={"q": "CLEO", "limit": 2}).json()["matches"]
    graph = family()
    degree = len(graph.facts.edges(graph.labels.entity_id("cleo"))[0])
    assert found[0]["name"].startswith("cleo")
    assert {"name": "cleo", "degree": degree} in api.get(f"{HERE}/entities?q=cleo").json()["matches"]
    assert len(api.get(f"{HERE}/entities?limit=5").json()["matches"]) == 5
    assert error_of(api.get(f"{HERE}/entities?limit=0"), 422)["message"].startswith("limit: ")


def test_relations_that_fit_come_first(api: httpx.Client) -> None:
    found = api.get(f"{HERE}/relations", params={"head": "ada 2"}).json()["matches"]
    assert [(one["name"], one["fits"]) for one in found] == [
        ("likes", True),
        ("ex:parent", False),
        ("grandparent", False),
    ]
    found = api.get(f"{HERE}/relations", params={"tail": "cleo 2"}).json()["matches"]
    assert {one["name"]: one["fits"] for one in found} == {"ex:parent": True, "grandparent": True, "likes": False}
    assert api.get(f"{HERE}/relations?q=grand").json()["matches"][0]["name"] == "grandparent"
    assert error_of(api.get(f"{HERE}/relations?head=nobody"), 404)["code"] == "unknown_name"


def test_a_neighbourhood(api: httpx.Client) -> None:
    found = api.get(f"{HERE}/neighbourhood", params={"entity": HOSTILE, "limit": 2}).json()
    assert found["entity"] == HOSTILE
    assert len(found["edges"]) == 2
    assert found["left_out"] == found["degree"] - 2


def test_a_nul_character_is_refused_wherever_a_name_is_taken(api: httpx.Client) -> None:
    fact = {**QUESTION, "tail": "a\0b"}
    for path, body in (("check", fact), ("why", fact), ("review", {**fact, "decision": "accept"})):
        assert "NUL" in error_of(api.post(f"{HERE}/{path}", json=body), 422)["message"]
    for path in ("neighbourhood?entity=a%00b", "doubt?entity=%00", "relations?head=%00"):
        assert "NUL" in error_of(api.get(f"{HERE}/{path}"), 422)["message"]


def test_attention_is_that_of_the_study(api: httpx.Client) -> None:
    expected = cli_json("study", "attention", small_run(), "cleo", "grandparent", "--answer", "cleo 2")
    found = api.post(f"{HERE}/attention", json={**QUESTION, "answer": "cleo 2"}).json()
    assert found == {**expected, "layer": None}
    one = api.post(f"{HERE}/attention", json={**QUESTION, "answer": "cleo 2", "layer": 1}).json()
    assert one == {**expected, "layer": 1, "weights": expected["weights"][:1]}
    error = error_of(api.post(f"{HERE}/attention", json={**QUESTION, "layer": 2}), 422)
    assert error["message"] == "layer=2: expected a number from 1 to 1."


def test_a_batch_is_a_line_a_question_in_order(api: httpx.Client) -> None:
    questions: list[dict[str, Any]] = [
        {"head": name, "relation": "grandparent"} for name in ["cleo", "nobody", "ada", "ben"] * 5
    ]
    questions.append({"head": None, "relation": "likes", "tail": "ada"})
    with api.stream("POST", f"{HERE}/batch", json={"questions": questions, "k": 2}) as response:
        assert response.headers["Content-Type"].startswith("application/x-ndjson")
        lines = [json.loads(line) for line in response.iter_lines()]
    assert len(lines) == len(questions)
    for question, line in zip(questions, lines, strict=True):
        if question["head"] == "nobody":
            assert line["error"]["code"] == "unknown_name"
        else:
            single = api.post(f"{HERE}/answer", json={**question, "k": 2}).json()
            assert same(line, single)


def test_a_batch_has_its_limits(api: httpx.Client) -> None:
    for questions in ([], [QUESTION] * (MAX_BATCH + 1), [{"relation": "likes"}]):
        error = error_of(api.post(f"{HERE}/batch", json={"questions": questions}), 422)
        assert error["message"].startswith("questions")


def test_concurrent_requests_are_answered_together_and_as_if_alone() -> None:
    names = ["ada", "ben", "cleo", "dan", "eve", "finn", "gus", "hal"]
    model = family_model()
    alone = {name: json.loads(model.answer_all([model.query(name, "likes")], Options())[0]) for name in names}
    entered, go = threading.Event(), threading.Event()
    sizes: list[int] = []

    class Slow(Model):
        """Waits with the first until all others are there."""

        def answer_all(self, queries: Any, options: Options) -> list[bytes]:
            sizes.append(len(queries))
            entered.set()
            assert go.wait(60)
            return model.answer_all(queries, options)

    app = create_app([Slow("family", model._reasoner)], limits=Limits(threads=1))
    with running(app) as port, ThreadPoolExecutor(len(names)) as pool:

        def ask(name: str) -> Any:
            body = {"head": name, "relation": "likes"}
            return httpx.post(f"http://127.0.0.1:{port}{HERE}/answer", json=body, timeout=60).json()

        first = pool.submit(ask, names[0])
        assert entered.wait(60)
        others = [pool.submit(ask, name) for name in names[1:]]
        while app.app.state.service.batcher.waiting < len(others):  # type: ignore[attr-defined]
            time.sleep(0.01)
        go.set()
        found = [task.result() for task in (first, *others)]
    assert sizes == [1, len(others)]
    assert all(same(one, alone[name]) for name, one in zip(names, found, strict=True))


def test_a_full_queue_is_told(api: httpx.Client) -> None:
    entered, go = threading.Event(), threading.Event()

    class Slow(Model):
        def answer_all(self, queries: Any, options: Options) -> list[bytes]:
            entered.set()
            assert go.wait(60)
            return super().answer_all(queries, options)

    with (
        client(Slow("family", family_model()._reasoner), limits=Limits(queue=1)) as busy,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(busy.post, f"{HERE}/answer", json=QUESTION)
        assert entered.wait(60)
        refused = busy.post(f"{HERE}/answer", json=QUESTION)
        assert busy.get("/api/health").status_code == 200  # all else goes on
        go.set()
        assert error_of(refused, 429)["code"] == "busy"
        assert refused.headers["Retry-After"] == "1"
        assert first.result().status_code == 200


def test_a_failure_of_ours_has_its_trace_in_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Model):
        def answer_all(self, queries: Any, options: Options) -> list[bytes]:
            raise RuntimeError("secret")

    with client(Broken("family", family_model()._reasoner)) as api:
        found = api.post(f"{HERE}/answer", json=QUESTION)
        assert error_of(found, 500)["code"] == "internal"
        assert "secret" not in found.text
        assert "X-Content-Type-Options" in found.headers
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records]
    (trace,) = [line["trace"] for line in lines if "trace" in line and "request_id" in line]
    assert "RuntimeError: secret" in trace


def test_who_leaves_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    entered, go = threading.Event(), threading.Event()
    asked: list[int] = []
    model = family_model()

    class Slow(Model):
        def answer_all(self, queries: Any, options: Options) -> list[bytes]:
            asked.extend(entity for entity, _ in queries)
            entered.set()
            assert go.wait(60)
            return model.answer_all(queries, options)

    with (
        caplog.at_level(logging.INFO, "squire.server"),
        client(Slow("family", model._reasoner), limits=Limits(threads=1)) as api,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(api.post, f"{HERE}/answer", json={"head": "ada", "relation": "likes"})
        assert entered.wait(60)
        with pytest.raises(httpx.ReadTimeout):
            api.post(
                f"{HERE}/answer", json={"head": "ben", "relation": "likes"}, timeout=httpx.Timeout(60, read=0.3)
            )
        while not caplog.records:  # until the service has noticed
            time.sleep(0.01)
        go.set()
        assert first.result().status_code == 200
        assert api.post(f"{HERE}/answer", json={"head": "dan", "relation": "likes"}).status_code == 200
    assert [model.graph.labels.entity(entity) for entity in asked] == ["ada", "dan"]
    statuses = [json.loads(JsonLines().format(record))["status"] for record in caplog.records]
    assert statuses == [499, 200, 200]


def test_several_models_by_name() -> None:
    other = Model("other", family_model()._reasoner)
    with client(family_model(), other) as api:
        assert [(one["name"], one["default"]) for one in api.get("/api/models").json()] == [
            ("family", True), ("other", False),
        ]  # fmt: skip
        both = [api.post(f"/api/models/{name}/answer", json=QUESTION).json() for name in ("family", "other")]
        assert both[0] == both[1]


def test_a_loaded_run_is_served_as_it_is() -> None:
    run = SimpleNamespace(folder=small_run(), reasoner=family_model()._reasoner)
    with client(Model.load("family", run)) as api:
        assert api.get("/api/models").json()[0]["graph"] == "made"


def test_the_card_tells_what_the_model_is_and_how_good(tmp_path: Path) -> None:
    run = tmp_path / "run"
    copy_of_run(run)
    for file in run.glob("evaluation-*"):
        file.unlink()
    with client(Model.load("family", run)) as api:
        card = api.get(HERE).json()
        assert card["quality"] == []
        assert card["limits"] == {"k": MAX_K, "beam": MAX_BEAM, "batch": MAX_BATCH}
        assert card["examples"] == []  # the family has no gaps
        assert card["recipe"]["decode"]["beam"] == 16
        evaluated = cli_json("evaluate", run)
        cli_json("evaluate", run, "--sample", 1)
        cli_json("evaluate", run, "--constraint", "graph", "--split", "valid")
        (run / "evaluation-broken.json").write_text("{")
        (run / "evaluation-old.json").write_text(json.dumps({**evaluated, "fingerprints": {"model": "another"}}))
        quality = api.get(HERE).json()["quality"]
    whole = {key: value for key, value in evaluated.items() if key not in ("run", "recipe")}
    assert quality[0] == whole
    assert len(quality) == 2
    assert "sample:1 of" in quality[1]["rows"][0]["signature"]
    for one in quality:
        methods = [re.search(r"method:([^|]+)", row["signature"]) for row in one["rows"]]
        assert [method and method[1] for method in methods] == ["paths", "rules+frequency", "frequency"]


def test_judgements_are_those_of_the_command_line(tmp_path: Path) -> None:
    run = tmp_path / "run"
    copy_of_run(run)
    shutil.rmtree(run / "annotation", ignore_errors=True)
    with client(Model.load("family", run)) as api:
        missing = error_of(api.get(f"{HERE}/annotation?annotator=ann"), 404)
        assert f"`squire study annotate {run} -n 100`" in missing["message"]
        drawn = CliRunner().invoke(
            cli, ["study", "annotate", str(run), "-n", "2", "--annotator", "ann"], input="1\nq\n"
        )
        assert drawn.exit_code == 0, drawn.output
        found = api.get(f"{HERE}/annotation?annotator=ann").json()
        assert (found["total"], found["judged"]) == (2, 1)
        assert found["summary"]["with_path"]["score"] == 100
        task = found["next"]
        assert task["evidence"]["edges"]
        body = {"annotator": "ann", "number": task["number"], "score": 0.5}
        found = api.post(f"{HERE}/annotation", json=body).json()
        assert (found["judged"], found["next"], found["summary"]["with_path"]["score"]) == (2, None, 75)
        files = sorted(file.name for file in (run / "annotation").iterdir())
        fresh = api.get(f"{HERE}/annotation?annotator=ben").json()
        assert (fresh["judged"], fresh["summary"]) == (0, None)
        assert sorted(file.name for file in (run / "annotation").iterdir()) == files  # looking leaves nothing
        assert (
            "question 99" in error_of(api.post(f"{HERE}/annotation", json={**body, "number": 99}), 404)["message"]
        )
        for wrong in ({"score": False}, {"score": 0.7}, {"annotator": "../ann"}, {"annotator": "a" * 65}):
            error_of(api.post(f"{HERE}/annotation", json={**body, **wrong}), 422)
    again = cli_json("study", "annotate", run, "-n", 2, "--annotator", "ann")
    assert (again["judged"], again["with_path"]["score"]) == (2, 75)
