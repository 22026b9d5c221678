"""What every request passes before anything else sees it: host, origin, token, size and pace; and its log line.

The page is opened by a browser that other pages are open in. They cannot read answers of another origin, but could
send requests, or make their own name point to this machine (DNS rebinding): so host and origin must be ours.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from squire.server.limits import Limits
from squire.server.logs import LOGGER
from squire.server.problems import Problem

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
OPEN = "/api/health"  # needs no token
DRAINED_BYTES, DRAIN_SECONDS = 8_000_000, 2.0  # of a body too large, so that its sender gets to read why
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class Gate:
    """Who may come in."""

    hosts: Collection[str] = LOOPBACK  # names of this service, without port
    any_address: bool = False  # also by IP address: nobody can make one point elsewhere
    token: str | None = None

    def check(self, scope: Scope, headers: Headers) -> None:
        """Problem if the request is not to be answered."""
        host = headers.get("host", "")
        if not self._is_ours(_name(host)):
            raise Problem(
                403, f"host {host[:100]!r} is not this service's. To do: add it with --allow-host, if it is yours."
            )
        is_api = scope["path"].startswith("/api/")
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "none")
        if (origin is not None and _authority(origin) != host) or (is_api and site not in ("same-origin", "none")):
            raise Problem(403, "requests from other sites are refused. To do: use this service's own page.")
        if self.token is not None and is_api and scope["path"] != OPEN:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            # In constant time: how long a comparison takes would tell how much of a guess is right.
            is_right = hmac.compare_digest(given.strip().encode(), self.token.encode())
            if not is_right or scheme.lower() != "bearer":
                raise Problem(
                    401,
                    "a token is needed. To do: send the header 'Authorization: Bearer TOKEN'.",
                    headers={"WWW-Authenticate": "Bearer"},
                )

    def _is_ours(self, name: str) -> bool:
        if name in self.hosts:
            return True
        try:
            return self.any_address and bool(ipaddress.ip_address(name))
        except ValueError:
            return False


def _name(host: str) -> str:
    """`LocalHost:8000` -> `localhost`, `[::1]:8000` -> `::1`"""
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]+))(?::\d{1,5})?", host)
    return (found[1] or found[2]).lower() if found else ""


def _authority(origin: str) -> str:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return ""
    return parts.netloc if parts.scheme in ("http", "https") else ""


class Guard:
    """ASGI middleware, the outermost."""

    def __init__(self, app: ASGIApp, gate: Gate, limits: Limits) -> None:
        self.app, self._gate, self._limits = app, gate, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        visit = _Visit(scope, send, given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex)
        try:
            self._gate.check(scope, headers)
            body = await self._body(headers, receive)
            await self.app(scope, _replayed(body, receive), visit.send)
        except Problem as problem:
            await visit.refuse(problem)
        except Exception:
            LOGGER.exception("a request failed", extra={"about": {"request_id": visit.id}})
            await visit.refuse(Problem.internal())
        finally:
            visit.log()

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """All of it, before any work: so that who sends slowly or without end keeps nobody but themselves busy."""
        limit, body = self._limits.body_bytes, bytearray()
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > limit:  # of more digits even these are too many
            if "100-continue" not in headers.get("expect", ""):  # else nothing of it is sent
                await _drain(receive)
            raise self._too_large()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(499, "the client has gone.")
                    body += message.get("body", b"")
                    if len(body) > limit:
                        break
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise Problem(
                408,
                f"the body did not arrive within {self._limits.body_seconds:g} s.",
                headers={"Connection": "close"},
            ) from None
        await _drain(receive)
        raise self._too_large()

    def _too_large(self) -> Problem:
        return Problem(
            413,
            f"the body has more than {self._limits.body_bytes:,} bytes. To do: send less at once.",
            headers={"Connection": "close"},
        )


async def _drain(receive: Receive) -> None:
    """Read on for a moment: a connection that is closed while its client still writes is reset, answer and all."""
    left = DRAINED_BYTES
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body as one message; after it, what really comes, such as the client's leaving."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


class _Visit:
    """One request and its answer."""

    def __init__(self, scope: Scope, send: Send, request_id: str) -> None:
        self._scope, self._send, self.id = scope, send, request_id
        self._begun, self._status, self._bytes = time.perf_counter(), 0, 0
        self._complete = False
        self._about: dict[str, object] = {}  # what else the log shall tell
        scope["squire"] = {"request_id": request_id, "log": self._about}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-ID"] = self.id
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        else:
            self._bytes += len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
        await self._send(message)

    async def refuse(self, problem: Problem) -> None:
        """Unless an answer has been sent, or has begun: then all that is left is to break it off."""
        if self._complete:
            return
        if self._status:
            raise ConnectionAbortedError
        body = problem.body(self.id)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **problem.headers}
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": problem.status, "headers": pairs})
        await self.send({"type": "http.response.body", "body": body})

    def log(self) -> None:
        about = {
            "request_id": self.id,
            "method": self._scope["method"],
            "path": self._scope["path"],  # without the query, which holds what people typed
            "status": self._status,
            "bytes": self._bytes,
            "ms": round(1000 * (time.perf_counter() - self._begun), 1),
            **self._about,
        }
        LOGGER.info("request", extra={"about": about})
