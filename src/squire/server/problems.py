"""Errors as clients read them: a status, a code for programs and a message for people, never a stack trace."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match

from squire.errors import DataError, SettingError, SquireError, UnknownName

CODES = {
    400: "bad_request", 401: "unauthorised", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
    408: "too_slow", 413: "too_large", 415: "not_json", 422: "invalid", 429: "busy", 499: "client_gone",
    500: "internal", 503: "stopping",
}  # fmt: skip
JSON = "application/json"
SHOWN_ERRORS = 5  # of one invalid request


class Problem(Exception):
    """Ends a request with a status and a message."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "",
        nearest: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.nearest = status, message, list(nearest)
        self.code = code or CODES.get(status, "error")
        self.headers = dict(headers or {})

    @classmethod
    def from_error(cls, error: SquireError) -> Problem:
        if isinstance(error, UnknownName):
            return cls(404, str(error), code="unknown_name", nearest=error.nearest)
        if isinstance(error, DataError):  # names of a request that the graph does not have
            return cls(404, str(error), code="unknown_name")
        return cls(422 if isinstance(error, SettingError) else 500, str(error))

    @classmethod
    def internal(cls) -> Problem:
        return cls(500, "internal error. The service's log has the details under this request id.")

    def content(self) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        return {"error": error | ({"nearest": self.nearest} if self.nearest else {})}

    def response(self, request_id: str) -> Response:
        body = as_json({**self.content(), "request_id": request_id})
        return Response(body, self.status, self.headers, JSON)


def as_json(content: Any) -> bytes:
    """Dataclasses become objects, as with `asdict` but in half the time."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), default=_fields).encode()


def _fields(one: Any) -> dict[str, Any]:
    return {field.name: getattr(one, field.name) for field in fields(one)}


def add_exception_handlers(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Gives every exception the same form. `routes` are those of the API."""

    def response(request: Request, problem: Problem) -> Response:
        return problem.response(request.scope["squire"]["request_id"])

    @app.exception_handler(Problem)
    async def on_problem(request: Request, problem: Problem) -> Response:
        return response(request, problem)

    @app.exception_handler(SquireError)
    async def on_user_error(request: Request, error: SquireError) -> Response:
        return response(request, Problem.from_error(error))

    @app.exception_handler(Exception)  # Starlette raises it again, so that the middleware can log it
    async def on_failure(request: Request, _: Exception) -> Response:
        return response(request, Problem.internal())

    @app.exception_handler(HTTPException)
    async def on_http_exception(request: Request, error: HTTPException) -> Response:
        problem = Problem(error.status_code, str(error.detail), headers=error.headers)
        if error.status_code == 400:  # the only other reason, invalid JSON, is a RequestValidationError
            problem.message = "the body is not UTF-8 text. Send JSON, encoded as UTF-8."
        if error.status_code == 405:
            allowed = ", ".join(_methods(request, routes))
            problem.message = f"{request.method} is not possible here. Use {allowed}."
            problem.headers["Allow"] = allowed
            if request.method == "OPTIONS":
                return Response(status_code=204, headers=problem.headers)
        if error.status_code == 404:
            problem.message = "there is nothing at this address. See /openapi.json for what there is."
        return response(request, problem)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        kind = request.headers.get("content-type", "")
        if request.method == "POST" and kind.partition(";")[0].strip().lower() != JSON:
            sent = f"not {kind[:100]!r}" if kind else "which is missing"
            return response(request, Problem(415, f"send JSON with the header 'Content-Type: {JSON}', {sent}."))
        return response(request, _invalid(error.errors()))


def _methods(request: Request, routes: Sequence[BaseRoute]) -> list[str]:
    """What can be done at an address; Starlette names the methods of the first matching route only."""
    matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in matching for method in getattr(route, "methods", ())} or {"GET"}
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()) | {"OPTIONS"})


def _invalid(errors: Sequence[Any]) -> Problem:
    """`k: input should be less than or equal to 100; relation: field required`, without the input itself."""
    if any(error["type"] == "json_invalid" for error in errors):
        return Problem(400, "the body is not valid JSON. See /openapi.json for what to send.")
    parts = []
    for error in errors[:SHOWN_ERRORS]:
        field = ".".join(str(part) for part in error["loc"][1:]) or "the request"
        message = str(error["msg"]).removeprefix("Value error, ")
        parts.append(f"{field[:100]}: {message[:1].lower()}{message[1:]}")
    return Problem(422, "; ".join(parts) + ".")
