"""The OpenAPI document says what the service does: schemathesis holds the two against each other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import negative_data_rejection
from service_cases import TOKEN, client
from small_run import fused_run
from typer.testing import CliRunner

from squire.cli import app as cli
from squire.server.app import create_app
from squire.server.models import Model
from squire.server.security import AccessPolicy

# Without the phase that shrinks: an example as long as it was found is good enough to mend what is wrong.
FEW = settings(max_examples=20, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))


def document() -> dict[str, Any]:
    """It is the same whatever models there are."""
    app = create_app([]).app
    assert isinstance(app, FastAPI)
    return app.openapi()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """With paths to judge, in a folder of its own."""
    run = tmp_path_factory.mktemp("schema") / "run"
    shutil.copytree(fused_run(), run)
    drawn = CliRunner().invoke(cli, ["study", "annotate", str(run), "-n", "2"], input="q\n")
    assert drawn.exit_code == 0, drawn.output
    with client(Model.load("family", run), policy=AccessPolicy(token=TOKEN)) as found:
        found.headers["Authorization"] = f"Bearer {TOKEN}"
        yield found


schema = schemathesis.openapi.from_dict(document())


@schema.parametrize()
@FEW
def test_requests_of_all_kinds_get_what_the_document_says(
    case: schemathesis.Case[Any], service: httpx.Client
) -> None:
    if "model" in case.path_parameters:
        case.path_parameters["model"] = "family"  # any other is 404, whatever else is asked
    headers = {"Authorization": service.headers["Authorization"]}
    # A parameter without a name is ignored, like any that nobody asks for. Without it, and with the token that is
    # added here, a request that was meant to be wrong may be right.
    nameless: list[Any] = [negative_data_rejection] if "" in (case.query or {}) else []
    case.call_and_validate(base_url=str(service.base_url), headers=headers, excluded_checks=nameless)


def test_the_document_names_the_token_and_every_refusal() -> None:
    (scheme,) = document()["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for path, methods in document()["paths"].items():
        for operation in methods.values():
            assert ("security" in operation) == (path != "/api/health")
            assert {"401", "408", "413", "503"} <= set(operation["responses"])


def test_the_document_is_served_and_has_examples(service: httpx.Client) -> None:
    assert service.get("/openapi.json").json() == document()
    schemas = document()["components"]["schemas"]
    bodies = [one for name, one in schemas.items() if name.endswith("Body") and name not in ("ErrorBody",)]
    assert len(bodies) >= 6
    for body in bodies:
        assert body["examples"], body["title"]
