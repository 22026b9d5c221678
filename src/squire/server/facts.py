"""The endpoints that change the graph of a model, if the service was started with `--writable`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from squire.server import schemas
from squire.server.models import Model
from squire.server.problems import Problem, as_json
from squire.server.routes import ALWAYS, TOKEN, ModelDep, Service, ServiceDep, _errors

facts_api = APIRouter(
    prefix="/api/models/{model}", responses=_errors(*ALWAYS, 404, 415, 422, 429), dependencies=[TOKEN]
)
EXAMPLE = {"facts": [{"head": "Freedonia", "relation": "borders", "tail": "Austria"}]}


class FactsBody(BaseModel):
    """Facts to add or to remove: all of them, or none if one is wrong."""

    model_config = schemas._config(EXAMPLE)
    facts: list[schemas.FactBody] = Field(min_length=1, max_length=schemas.MAX_BATCH)


class ChangeSummary(BaseModel):
    action: str
    facts: int = Field(description="Facts that were added or removed.")
    known: int = Field(description="Facts of the request that the graph already had.")
    new_entities: list[str]
    time: str


@facts_api.post("/facts", tags=["facts"], response_model=ChangeSummary)
async def add_facts(request: Request, service: ServiceDep, model: ModelDep, body: FactsBody) -> Response:
    """Adds facts to the graph, for good: `squire add`. Entities may be new."""
    return await _change(request, service, model, "add", body)


@facts_api.delete("/facts", tags=["facts"], response_model=ChangeSummary)
async def remove_facts(request: Request, service: ServiceDep, model: ModelDep, body: FactsBody) -> Response:
    """Removes facts from the graph, for good: `squire remove`."""
    return await _change(request, service, model, "remove", body)


async def _change(request: Request, service: Service, model: Model, action: str, body: FactsBody) -> Response:
    if not service.writable:
        raise Problem(403, "this service does not change graphs. Start it with `squire serve --writable`.")

    def work() -> bytes:
        with service.writing:  # one change after the other; a question meanwhile sees the graph of before
            change, changed = service.models[model.name].change(action, schemas.rows_of(body.facts))
            service.models[model.name] = changed
        content: dict[str, Any] = change.as_dict()
        return as_json(content)

    return await service.decode(request, work)
