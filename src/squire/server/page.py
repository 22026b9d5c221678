"""The page and its files, listed when the service starts: a request names one of these or none."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path

from fastapi import APIRouter, Request, Response

from squire.server.problems import Problem

FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"


def page_router(folder: Path = FOLDER) -> APIRouter:
    """`/`, and `/static/…`."""
    files = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*")) if file.is_file()}
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    def index(request: Request) -> Response:
        return send(request, INDEX)

    @router.get("/static/{name:path}")
    def static(request: Request, name: str) -> Response:
        return send(request, name)

    def send(request: Request, name: str) -> Response:
        if name not in files:
            raise Problem(404, "no such page. To do: start at /, or read /openapi.json.")
        content = files[name].read_bytes()
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"', "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response(content, media_type=kind, headers=headers)

    return router
