"""What goes wrong, as a client is told: a status, a code for programs, words for people. Never a stack trace."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from http import HTTPStatus
from typing import Any

from squire.errors import SettingError, SquireError, UnknownName

CODES = {
    400: "bad_request",
    401: "unauthorised",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    413: "too_large",
    422: "invalid",
    429: "busy",
    499: "client_gone",
    500: "internal",
    503: "stopping",
}


class Problem(Exception):
    """Ends a request with a status and words."""

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
        self.status, self.message, self.nearest = status, message, tuple(nearest)
        self.code = code or CODES.get(status, "error")
        self.headers = dict(headers or {})

    @classmethod
    def from_error(cls, error: SquireError) -> Problem:
        """A user's mistake; options are named without the dashes of the command line."""
        words = re.sub(r"(?<![\w-])--(?=[a-z])", "", str(error))
        if isinstance(error, UnknownName):
            return cls(404, words, code="unknown_name", nearest=error.nearest)
        return cls(422, words) if isinstance(error, SettingError) else cls(500, words)

    @classmethod
    def of_status(cls, status: int, detail: str = "") -> Problem:
        """Of a status that a library gives."""
        return cls(status, detail or HTTPStatus(status).phrase)

    @classmethod
    def internal(cls) -> Problem:
        return cls(500, "something went wrong here; the service's log has it under this request's id.")

    def content(self) -> dict[str, Any]:
        """What a client reads, but for the request's id."""
        told: dict[str, Any] = {"code": self.code, "message": self.message}
        return {"error": told | ({"nearest": list(self.nearest)} if self.nearest else {})}

    def body(self, request_id: str) -> bytes:
        return as_json({**self.content(), "request_id": request_id})


def as_json(content: Any) -> bytes:
    """Also of dataclasses, as `asdict` would give them, in half its time."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), default=_fields).encode()


def _fields(one: Any) -> dict[str, Any]:
    return {field.name: getattr(one, field.name) for field in fields(one)}
