"""Download a file over HTTP into memory: retried, limited in size, verified by a checksum if one is known."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
import time
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from squire.errors import DownloadError

Progress = Callable[[int, int | None], None]
"""Called with the bytes received so far and the total (None if the server does not say)."""

MAX_BYTES = 1 << 30
CHUNK_BYTES = 1 << 16
TRANSIENT_STATUSES = {408, 425, 429, 500, 502, 503, 504}


class _Transient(Exception):
    """This attempt failed; another one may succeed."""


def fetch(
    url: str,
    *,
    checksum: str | None = None,
    progress: Progress | None = None,
    max_bytes: int = MAX_BYTES,
    retries: int = 4,
    backoff: float = 1.0,
    timeout: float = 30.0,
) -> bytes:
    """The content of a URL.

    `checksum` is "sha256:…" or "md5:…". A failed attempt is repeated up to `retries` times, with pauses of
    `backoff` seconds, doubled each time; `timeout` limits each wait for the server, not the whole download.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise DownloadError(f"{url}: only http and https addresses can be downloaded.")
    if checksum is not None and not re.fullmatch(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", checksum):
        raise DownloadError(f"{url}: checksum {checksum!r} is neither sha256:… nor md5:… in lower-case hex.")
    for attempt in range(retries + 1):
        try:
            with _open(url, timeout) as response:
                content = _read(url, response, checksum is not None, max_bytes, progress)
            break
        except _Transient as error:
            if attempt == retries:
                raise DownloadError(f"{url}: {error}. Check the network and try again.") from error
            time.sleep(backoff * 2**attempt)
    if checksum is not None:
        algorithm = checksum.partition(":")[0]
        found = f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"
        if found != checksum:
            raise DownloadError(
                f"{url}: expected {checksum}, found {found}. Nothing was kept. Try again, or report the address."
            )
    return content


def _open(url: str, timeout: float) -> HTTPResponse:
    """Send the request; tell transient failures from final ones."""
    try:
        response: HTTPResponse = urlopen(Request(url, headers={"User-Agent": "squire-kg"}), timeout=timeout)
        return response
    except HTTPError as error:
        error.close()
        answer = f"the server answered {error.code} {error.reason}"
        if error.code in TRANSIENT_STATUSES:
            raise _Transient(answer) from error
        advice = "The file may have moved: report the address." if error.code in (404, 410) else "Try again later."
        raise DownloadError(f"{url}: {answer}. {advice}") from error
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, socket.gaierror | ssl.SSLCertVerificationError):
            host = urlsplit(url).hostname
            raise DownloadError(f"{url}: cannot reach {host} ({reason}). Check the network connection.") from error
        raise _Transient(f"no answer from the server ({reason})") from error


def _read(
    url: str, response: HTTPResponse, has_checksum: bool, max_bytes: int, progress: Progress | None
) -> bytes:
    """The body of a response, complete."""
    length = response.headers.get("Content-Length", "")
    total = int(length) if length.isdigit() else None
    if total is None and not has_checksum and "chunked" not in response.headers.get("Transfer-Encoding", ""):
        raise DownloadError(
            f"{url}: the server does not give the length of the file and no checksum is known, so an incomplete "
            "download could not be detected. Download the file by hand."
        )
    content = bytearray()
    while True:
        if max(len(content), total or 0) > max_bytes:
            raise DownloadError(f"{url}: more than the {max_bytes:,} bytes that may be downloaded.")
        try:
            chunk = response.read1(CHUNK_BYTES)
        except (OSError, HTTPException) as error:
            raise _Transient(f"the connection broke off after {len(content):,} bytes ({error})") from error
        if not chunk:
            break
        content += chunk
        if progress is not None:
            progress(len(content), total)
    if total is not None and len(content) != total:
        raise _Transient(f"the server announced {total:,} bytes and broke off after {len(content):,}")
    return bytes(content)
