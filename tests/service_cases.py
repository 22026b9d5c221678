"""Services of a small run, on real sockets: in this process, or as the command itself."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx
from small_run import small_run
from starlette.types import ASGIApp
from typer.testing import CliRunner

from squire.cli import app as cli
from squire.server.app import create_app, listen, new_server
from squire.server.models import Model
from squire.server.security import AccessPolicy, Limits

TOKEN = "correct-horse"
QUESTION = {"head": "cleo", "relation": "grandparent"}


@cache
def family_model() -> Model:
    return Model.load("family", small_run())


@contextmanager
def client(
    *models: Model, policy: AccessPolicy | None = None, limits: Limits | None = None, writable: bool = False
) -> Iterator[httpx.Client]:
    """A client of a service in this process, over a real socket."""
    app = create_app(models or [family_model()], policy, limits, writable)
    with running(app, limits) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as found:
        yield found


@contextmanager
def running(app: ASGIApp, limits: Limits | None = None) -> Iterator[int]:
    """On a real socket, in a thread; gives the port."""
    listening = listen("127.0.0.1", 0)
    server = new_server(app, limits or Limits())
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@contextmanager
def command(*arguments: object, env: dict[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`squire serve … --port 0` as a process, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "squire", "serve", *map(str, arguments), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | (env or {}),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert " at http" in said, process.communicate()[1]
        yield process, said.split(" at ")[1].strip()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def raw(port: int, *parts: bytes, pause: float = 0.0) -> bytes:
    """What a server says to these very bytes, sent with pauses, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        except OSError:  # it has heard enough
            pass
        said = b""
        try:
            while more := connection.recv(65536):
                said += more
        except ConnectionResetError:
            pass
        return said


def cli_json(*arguments: object) -> Any:
    result = CliRunner().invoke(cli, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error that a response must hold."""
    assert response.status_code == status, response.text
    content = response.json()
    assert set(content) == {"error", "request_id"}
    assert content["request_id"] == response.headers["X-Request-ID"]
    error: dict[str, Any] = content["error"]
    return error
