"""The ASGI application, and uvicorn to run it: routes, page, socket, time-outs, signals and log."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from squire.errors import SettingError
from squire.server.batching import Batcher
from squire.server.facts import facts_api
from squire.server.middleware import LOGGER, RequestMiddleware
from squire.server.models import Model, __version__
from squire.server.problems import add_exception_handlers
from squire.server.routes import Service, api, model_api
from squire.server.security import AccessPolicy, Limits, is_wildcard

STATIC = Path(__file__).parent / "static"
DESCRIPTION = (
    "Link prediction that a person can read and trust: ranked answers to (head, relation, ?), each with its path "
    "of evidence. Errors are `{error: {code, message}, request_id}`. The keys of answers are in docs/answers.md."
)


def create_app(
    models: Sequence[Model],
    policy: AccessPolicy | None = None,
    limits: Limits | None = None,
    writable: bool = False,
) -> RequestMiddleware:
    """The application that serves these models; the first is the default. writable: graphs may be changed."""
    limits = limits or Limits()
    service = Service({model.name: model for model in models}, writable)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with Batcher(limits.queue, limits.threads) as service.batcher:
            yield

    app = FastAPI(
        title="SQUIRE",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
    )
    app.state.service = service
    routers = (api, model_api, facts_api)
    for router in routers:
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC))

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    add_exception_handlers(app, [route for router in routers for route in router.routes])
    return RequestMiddleware(app, policy or AccessPolicy(), limits)


# -------------------------------------------------------------------------------------------------- uvicorn


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free port."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=2048)
        # Without it an answer waits 40 ms for the client to acknowledge its header. Connections inherit it.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        raise SettingError(
            f"host={host}, port={port}: cannot listen there ({error.strerror}). Choose another port, or 0 for a "
            f"free one."
        ) from None


def address_of(host: str, listening: socket.socket) -> str:
    """The URL at which a browser on this machine finds the service."""
    name = "localhost" if is_wildcard(host) else host
    port = listening.getsockname()[1]
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"


def run(app: ASGIApp, listening: socket.socket, limits: Limits) -> None:
    """Serves until SIGTERM or Ctrl-C; then finishes running requests and accepts no new ones."""
    server = new_server(app, limits)
    with _stopped_by_signals(server):
        server.run([listening])


def new_server(app: ASGIApp, limits: Limits) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        http=_protocol(limits.header_seconds),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=limits.keep_alive_seconds,
        timeout_graceful_shutdown=limits.shutdown_seconds,
    )
    return uvicorn.Server(config)


@contextmanager
def _stopped_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Uvicorn raises the signal that stopped it once more at its end; these handlers make that a normal exit."""

    def stop(*_: Any) -> None:
        server.should_exit = True

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _protocol(header_seconds: float) -> type[H11Protocol]:
    class HeaderTimeoutProtocol(H11Protocol):
        """Closes connections whose headers are late: a few slow clients could otherwise hold all of them."""

        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._expect_headers()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._expect_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._cancel()

        def _expect_headers(self) -> None:
            if self.cycle is not None and not self.cycle.response_complete:
                self._cancel()
            elif self._deadline is None:
                self._deadline = self.loop.call_later(header_seconds, self._close)

        def _cancel(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _close(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return HeaderTimeoutProtocol


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object; `extra={"about": {…}}` adds keys to it."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "about", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_ready(address: str, models: list[str]) -> None:
    LOGGER.info("ready", extra={"about": {"address": address, "models": models}})


def log_as_json() -> None:
    """Sends our log and uvicorn's warnings to standard error; its other lines repeat what ours say."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (("squire.server", logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
