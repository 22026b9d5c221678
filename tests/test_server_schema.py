"""The OpenAPI document says what the service does: schemathesis holds the two against each other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from service_cases import client
from small_run import small_run
from typer.testing import CliRunner

from squire.cli import app as cli
from squire.server.models import Model

# Without the phase that shrinks: an example as long as it was found is good enough to mend what is wrong.
FEW = settings(max_examples=8, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """With paths to judge, in a folder of its own."""
    run = tmp_path_factory.mktemp("schema") / "run"
    shutil.copytree(small_run(), run)
    drawn = CliRunner().invoke(cli, ["study", "annotate", str(run), "-n", "2"], input="q\n")
    assert drawn.exit_code == 0, drawn.output
    with client(Model.load("family", run)) as found:
        yield found


@pytest.fixture(scope="module")
def document(service: httpx.Client) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{service.base_url}/openapi.json")


schema = schemathesis.pytest.from_fixture("document")


@schema.parametrize()
@FEW
def test_requests_of_all_kinds_get_what_the_document_says(case: schemathesis.Case[Any]) -> None:
    case.path_parameters = {"model": "family"} if "{model}" in case.path else {}
    case.call_and_validate()
