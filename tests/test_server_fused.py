"""A model with a fusion behind the service: the same answers as the command's, by either ranking."""

from __future__ import annotations

import json
from typing import Any

import pytest
from service_cases import QUESTION, cli_json, client, error_of, family_model
from small_run import fused_run
from typer.testing import CliRunner

import squire
from squire.cli import app
from squire.server.models import Model


def told(*options: str) -> Any:
    result = CliRunner().invoke(
        app, ["answer", str(fused_run()), *QUESTION.values(), "--json", "-k", "10", *options]
    )
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.mark.parametrize("ranking", ["fused", "paths", None])
def test_answers_are_those_of_the_command(ranking: str | None) -> None:
    with client(Model.load("fused", fused_run())) as ask:
        found = ask.post("/api/models/fused/answer", json={**QUESTION, "ranking": ranking}).json()
    assert found == told(*(("--ranking", ranking) if ranking else ()))
    assert found["origin"]["ranking"] == (ranking or "fused")
    assert all((answer["confidence"] is None) == (ranking == "paths") for answer in found["answers"])


def test_a_check_is_that_of_the_command_and_agrees_with_the_list() -> None:
    with client(Model.load("fused", fused_run())) as ask:
        for answer in (*told()["facts"], *told()["answers"][:3]):
            fact = {**QUESTION, "tail": answer["entity"]}
            found = ask.post("/api/models/fused/check", json=fact).json()
            assert found == cli_json("check", fused_run(), *fact.values())
            assert found["is_fact"] == answer["is_fact"]
            if not found["is_fact"]:
                assert found["answer"]["rank"] == answer["rank"]
                assert found["confidence"] == pytest.approx(answer["confidence"])
        narrow = ask.post("/api/models/fused/check", json={**fact, "beam": 1}).json()
        assert narrow["origin"]["beam"] == 1
        unknown = ask.post("/api/models/fused/check", json={**QUESTION, "tail": "cleopatra"})
        assert error_of(unknown, 404)["nearest"][0] == "cleo"


def test_doubtful_facts_of_an_entity_are_those_of_the_run() -> None:
    with client(Model.load("fused", fused_run())) as ask:
        found = ask.get("/api/models/fused/doubt", params={"entity": "Cleo", "limit": 2}).json()
        unknown = ask.get("/api/models/fused/doubt?entity=cleopatra")
    expected = squire.Run(fused_run()).doubt(entity="cleo", k=2, progress=False)
    assert found["facts"] == expected.table.to_pylist()
    assert (found["judged"], found["left_out"]) == (expected.judged, expected.left_out)
    assert error_of(unknown, 404)["nearest"][0] == "cleo"


def test_a_model_without_a_fusion_says_so() -> None:
    with client(family_model(), Model.load("fused", fused_run())) as ask:
        assert [model["fused"] for model in ask.get("/api/models").json()] == [False, True]
        for path, more in (("answer", {"ranking": "fused"}), ("check", {"tail": "ada"})):
            refused = ask.post(f"/api/models/family/{path}", json={**QUESTION, **more})
            assert "no fusion here" in error_of(refused, 422)["message"]
        assert "no fusion here" in error_of(ask.get("/api/models/family/doubt?entity=ada"), 422)["message"]
