"""The outermost middleware: checks access, reads the body within the limits, logs every request."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from squire.server.problems import Problem
from squire.server.security import SECURITY_HEADERS, AccessPolicy, Limits

LOGGER = logging.getLogger("squire.server")
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
DRAIN_BYTES, DRAIN_SECONDS = 8_000_000, 2.0


class RequestMiddleware:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy, limits: Limits) -> None:
        self.app, self._policy, self._limits = app, policy, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        exchange = _Exchange(scope, send, given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex)
        try:
            self._policy.check(scope, headers)
            body = await self._body(headers, receive)
            await self.app(_answered_like_get(scope), _replay(body, receive), exchange.send)
        except Problem as problem:
            await exchange.refuse(problem, receive)
        except Exception:
            LOGGER.exception("request failed", extra={"about": {"request_id": exchange.id}})
            await exchange.refuse(Problem.internal(), receive)
        finally:
            exchange.log()

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """Reads the whole body before any work is done, so that slow or endless senders occupy nothing else."""
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy may go by the other one, and take the end of this body for a request of its own.
            twice = "send either Content-Length or Transfer-Encoding, not both."
            raise Problem(400, twice, headers={"Connection": "close"})
        limit, body = self._limits.body_bytes, bytearray()
        length = headers.get("content-length", "")
        is_too_large = length.isdecimal() and int(length[:20]) > limit  # 20 digits are enough to tell
        if is_too_large and "100-continue" in headers.get("expect", ""):
            raise self._too_large()  # the client has sent nothing yet
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while not is_too_large:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(499, "the client disconnected.")
                    body += message.get("body", b"")
                    is_too_large = len(body) > limit
                    if not is_too_large and not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            late = f"the body did not arrive within {self._limits.body_seconds:g} s."
            raise Problem(408, late, headers={"Connection": "close"}) from None
        await _drain(receive)
        raise self._too_large()

    def _too_large(self) -> Problem:
        message = f"the body has more than {self._limits.body_bytes:,} bytes. Split the request."
        return Problem(413, message, headers={"Connection": "close"})


def _answered_like_get(scope: Scope) -> Scope:
    """HEAD is GET to the application; the server leaves out the body."""
    return {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope


async def _drain(receive: Receive) -> None:
    """Reads on for a moment: if we closed while the client sends, the connection would be reset, response lost."""
    left = DRAIN_BYTES
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _replay(body: bytes, receive: Receive) -> Receive:
    """Gives the body as one message, then whatever really arrives, such as a disconnect."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


class _Exchange:
    """One request and its response."""

    def __init__(self, scope: Scope, send: Send, request_id: str) -> None:
        self._scope, self._send, self.id = scope, send, request_id
        self._start, self._status, self._bytes = time.perf_counter(), 0, 0
        self._is_complete = False
        self._about: dict[str, object] = {}  # further keys of the log line
        scope["squire"] = {"request_id": request_id, "log": self._about}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = MutableHeaders(scope=message)
            headers.update({"X-Request-ID": self.id, **SECURITY_HEADERS})
            # Browsers may keep the files of the page, but ask each time whether they have changed (ETag).
            headers.setdefault("Cache-Control", "no-store" if "/api/" in self._scope["path"] else "no-cache")
        else:
            self._bytes += len(message.get("body", b""))
            self._is_complete = not message.get("more_body", False)
        await self._send(message)

    async def refuse(self, problem: Problem, receive: Receive) -> None:
        """Sends an error, if nothing was sent yet. A response that has begun can only be broken off."""
        if self._is_complete:
            return
        if self._status:
            raise ConnectionAbortedError
        await problem.response(self.id)(self._scope, receive, self.send)

    def log(self) -> None:
        about = {
            "request_id": self.id,
            "method": self._scope["method"],
            "path": self._scope["path"],  # without the query string, which holds what people typed
            "status": self._status,
            "bytes": self._bytes,
            "ms": round(1000 * (time.perf_counter() - self._start), 1),
            **self._about,
        }
        LOGGER.info("request", extra={"about": about})
