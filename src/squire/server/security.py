"""Access and limits: who may use the service, and how much of it.

The page runs in a browser that has other pages open. These cannot read responses from another origin, but could
send requests, or point their own host name at this machine (DNS rebinding). So the host and origin of each request
are checked.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from squire.errors import SettingError
from squire.server.problems import Problem

LOOPBACK = ("localhost", "127.0.0.1", "::1")
HEALTH = "/api/health"  # needs no token
SECURITY_HEADERS = {
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
class Limits:
    """Limits of the service as a whole; those of one request are in `schemas`."""

    body_bytes: int = 1_000_000
    body_seconds: float = 20.0  # until the whole body has arrived
    header_seconds: float = 20.0  # until all headers have arrived
    keep_alive_seconds: int = 60  # between two requests on one connection
    queue: int = 256  # requests that wait for the model or are being answered
    threads: int = 2  # that answer: large jobs leave one to all others
    connections: int = 1024
    shutdown_seconds: int = 30  # for running requests to finish


@dataclass(frozen=True)
class AccessPolicy:
    """Decides which requests are accepted."""

    hosts: Collection[str] = LOOPBACK  # host names of this service, without port
    any_address: bool = False  # accept every IP address as host: DNS rebinding needs a name
    token: str | None = None

    @classmethod
    def for_host(cls, host: str, allow_host: Collection[str] = (), token: str | None = None) -> AccessPolicy:
        """The policy of a service that listens on `host`. Beyond this machine, a token is required."""
        if token is not None and not re.fullmatch(r"[!-~]+", token):
            raise SettingError("token: expected one or more ASCII letters, digits or signs, without spaces.")
        if not is_loopback(host) and token is None:
            raise SettingError(
                f"host={host}: other machines could reach the service, so it needs a token. Set `token` or the "
                f"environment variable SQUIRE_TOKEN, e.g. to the output of `openssl rand -hex 32`."
            )
        hosts = {name.lower() for name in (host, *allow_host)}
        if is_loopback(host) or is_wildcard(host):
            hosts |= set(LOOPBACK)
        if is_wildcard(host):
            hosts.add(socket.gethostname().lower())
        return cls(hosts, is_wildcard(host), token)

    def check(self, scope: Scope, headers: Headers) -> None:
        """Raises a Problem if the request is not accepted."""
        host = headers.get("host", "")
        if not self._is_ours(_host_name(host)):
            raise Problem(
                403, f"host {host[:100]!r} is not a name of this service. If it should be, add it to allow_host."
            )
        is_api = scope["path"].startswith("/api/")
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "none")
        if (origin is not None and _authority(origin) != host) or (is_api and site not in ("same-origin", "none")):
            raise Problem(403, "requests from other sites are refused. Use the page of this service.")
        if self.token is not None and is_api and scope["path"] != HEALTH:
            scheme, _, token = headers.get("authorization", "").partition(" ")
            # In constant time: the duration of a comparison would reveal how much of a guess is right.
            is_right = hmac.compare_digest(token.strip().encode(), self.token.encode())
            if not is_right or scheme.lower() != "bearer":
                raise Problem(
                    401,
                    "a token is required. Send the header 'Authorization: Bearer TOKEN'.",
                    headers={"WWW-Authenticate": "Bearer"},
                )

    def _is_ours(self, name: str) -> bool:
        return name in self.hosts or (self.any_address and _address(name) is not None)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    address = _address(host)
    return address.is_loopback if address else host.lower() == "localhost"


def is_wildcard(host: str) -> bool:
    """Whether the host stands for every address of this machine."""
    address = _address(host)
    return address is not None and address.is_unspecified


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _host_name(host: str) -> str:
    """`LocalHost:8000` -> `localhost`, `[::1]:8000` -> `::1`"""
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]+))(?::\d{1,5})?", host)
    return (found[1] or found[2]).lower() if found else ""


def _authority(origin: str) -> str:
    """`http://localhost:8000` -> `localhost:8000`"""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return ""
    return parts.netloc if parts.scheme in ("http", "https") else ""
