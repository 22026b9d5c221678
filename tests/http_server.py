"""A real HTTP server on this machine that serves files well, or badly in one chosen way. Test code only."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Served:
    """One file and how it is served; tests change it between requests."""

    body: bytes
    breaks: list[int] = field(default_factory=list)  # the next answers break off after so many bytes
    statuses: list[int] = field(default_factory=list)  # the next answers are these errors
    lie: int = 0  # what is added to the true Content-Length
    measure: str = "length"  # "length", "chunked", or "none": the end of the connection ends the file
    chunk: int = 1 << 16
    pause: float = 0.0  # seconds between chunks


@dataclass(frozen=True)
class Seen:
    """One request and the status it got."""

    path: str
    status: int


class FileServer(ThreadingHTTPServer):
    """`files` maps paths to what is served there; `log` has every request in order of arrival."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, Served] = {}
        self.log: list[Seen] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"

    def serve(self, path: str, served: Served) -> str:
        """Offer a file; its address."""
        self.files[path] = served
        return self.url(path)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed or gave up is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        served = self.server.files.get(self.path)
        status = 404 if served is None else served.statuses.pop(0) if served.statuses else 200
        if served is None or status != 200:
            self.note(status)
            self.send_error(status)
            return
        body = served.body
        self.note(200)
        self.send_response(200)
        if served.measure == "length":
            self.send_header("Content-Length", str(len(body) + served.lie))
        elif served.measure == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        end = served.breaks.pop(0) if served.breaks else len(body)
        for at in range(0, min(end, len(body)), served.chunk):
            piece = body[at : min(at + served.chunk, end)]
            framed = b"%x\r\n%s\r\n" % (len(piece), piece) if served.measure == "chunked" else piece
            self.wfile.write(framed)
            time.sleep(served.pause)
        if served.measure == "chunked" and end >= len(body):
            self.wfile.write(b"0\r\n\r\n")

    def note(self, status: int) -> None:
        self.server.log.append(Seen(self.path, status))

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: the tests read `log`."""


@contextmanager
def running() -> Iterator[FileServer]:
    """A server for the length of a test."""
    with FileServer() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
