"""Sockets, signals and the end: runs an application until it is told to stop."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from squire.errors import SettingError
from squire.server.limits import Limits
from squire.server.logs import log_as_json


def is_loopback(host: str) -> bool:
    """Can only this machine reach it?"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_wildcard(host: str) -> bool:
    """Is it every address of this machine?"""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise SettingError(
            f"{host} port {port}: cannot listen there ({error.strerror}). To do: choose another --port, or 0 for "
            f"a free one."
        ) from None


def address(host: str, listening: socket.socket) -> str:
    """Where a browser on this machine finds it."""
    shown = "localhost" if is_wildcard(host) else host
    port = listening.getsockname()[1]
    return f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"


def serve_until_told(app: ASGIApp, listening: socket.socket, limits: Limits) -> None:
    """Until SIGTERM or Ctrl-C: then what was begun is finished, and nothing new is taken."""
    log_as_json()
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
    """Uvicorn has handlers of its own while it runs, and raises the signal again at its end: here it is an end
    like any other."""

    def stop(*_: Any) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _protocol(header_seconds: float) -> type[H11Protocol]:
    class Impatient(H11Protocol):
        """HTTP whose headers must come in time; else a few slow clients could hold all connections."""

        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._expect_headers()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._expect_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._forget()

        def _expect_headers(self) -> None:
            if self.cycle is not None and not self.cycle.response_complete:
                self._forget()
            elif self._deadline is None:
                self._deadline = self.loop.call_later(header_seconds, self._hang_up)

        def _forget(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _hang_up(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return Impatient
