"""The application: routes, and what they share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from squire.core.version import __version__
from squire.errors import SquireError
from squire.server.batcher import Batcher
from squire.server.guard import Gate, Guard
from squire.server.limits import Limits
from squire.server.models import Model
from squire.server.page import page_router
from squire.server.problems import Problem
from squire.server.routes import Service, api_router

DESCRIPTION = (
    "Link prediction that a person can read and trust: ranked answers to (head, relation, ?), each with its path "
    "of evidence. Errors are `{error: {code, message}, request_id}`. The keys of answers are in docs/answers.md."
)


def create_app(models: Sequence[Model], gate: Gate | None = None, limits: Limits | None = None) -> Guard:
    """The service of these models; the first is the default."""
    gate, limits = gate or Gate(), limits or Limits()
    service = Service({model.name: model for model in models})

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with Batcher(limits.queue) as service.batcher:
            yield

    app = FastAPI(
        title="SQUIRE",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # these pages would load their scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    app.include_router(api_router(service))
    app.include_router(page_router())
    _handle_problems(app)
    return Guard(app, gate, limits)


def _handle_problems(app: FastAPI) -> None:
    """Whatever is raised, a client reads the same form."""

    def told(request: Request, problem: Problem) -> Response:
        body = problem.body(request.scope["squire"]["request_id"])
        return Response(body, problem.status, problem.headers, "application/json")

    @app.exception_handler(Problem)
    async def on_problem(request: Request, problem: Problem) -> Response:
        return told(request, problem)

    @app.exception_handler(SquireError)
    async def on_mistake(request: Request, error: SquireError) -> Response:
        return told(request, Problem.from_error(error))

    @app.exception_handler(Exception)  # what it was is raised on, for the log
    async def on_failure(request: Request, _: Exception) -> Response:
        return told(request, Problem.internal())

    @app.exception_handler(HTTPException)
    async def on_status(request: Request, error: HTTPException) -> Response:
        problem = Problem.of_status(error.status_code, str(error.detail))
        problem.headers.update(error.headers or {})
        if error.status_code == 405:  # of all routes at this path, not of the first alone
            problem.headers["Allow"] = ", ".join(sorted(_methods(app, request)))
        return told(request, problem)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        return told(request, _invalid(error.errors()))


def _methods(app: FastAPI, request: Request) -> set[str]:
    """What may be done at a path."""
    matching = (route for route in app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return {method for route in matching for method in getattr(route, "methods", None) or ()}


def _invalid(errors: Sequence[Any]) -> Problem:
    """`k: input should be less than or equal to 100; relation: field required`, without what was sent."""
    if any(error["type"] == "json_invalid" for error in errors):
        return Problem(400, "the body is not JSON. To do: send an object as in /openapi.json.")
    told = []
    for error in errors[:5]:
        place = ".".join(str(part) for part in error["loc"][1:]) or "the request"
        words = str(error["msg"]).removeprefix("Value error, ")
        told.append(f"{place[:100]}: {words[:1].lower()}{words[1:]}")
    return Problem(422, "; ".join(told) + ".")
