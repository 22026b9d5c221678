"""A model with a fusion behind the service: the same answers as the command's, by either ranking."""

from __future__ import annotations

import json
from typing import Any

import pytest
from service_cases import QUESTION, client, family_model
from small_run import fused_run
from typer.testing import CliRunner

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


def test_an_explanation_has_the_rank_and_the_confidence_of_the_list() -> None:
    with client(Model.load("fused", fused_run())) as ask:
        for answer in told()["answers"][:3]:
            asked = {**QUESTION, "tail": answer["entity"]}
            explained = ask.post("/api/models/fused/explain", json=asked).json()
            assert explained["rank"] == answer["rank"]
            assert explained["answer"]["confidence"] == pytest.approx(answer["confidence"])
            assert not explained["is_fact"]


def test_a_model_without_a_fusion_says_so() -> None:
    with client(family_model(), Model.load("fused", fused_run())) as ask:
        assert [model["fused"] for model in ask.get("/api/models").json()] == [False, True]
        refused = ask.post("/api/models/family/answer", json={**QUESTION, "ranking": "fused"})
    assert refused.status_code == 422
    assert "no fusion here" in refused.json()["error"]["message"]
