"""Who may come in, how much they may bring and how long it may take; and what the log says of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import httpx
import pytest
from service_cases import QUESTION, TOKEN, client, error_of, family_model, raw, running
from starlette.datastructures import Headers

from squire.server.app import JsonLines, create_app
from squire.server.problems import Problem
from squire.server.security import AccessPolicy, Limits

ANSWER = "/api/models/family/answer"
SHORT = Limits(body_bytes=2000, body_seconds=0.5, header_seconds=0.5)


@pytest.fixture(scope="module")
def guarded() -> Iterator[httpx.Client]:
    with client(policy=AccessPolicy(token=TOKEN)) as found:
        yield found


@pytest.fixture(scope="module")
def short() -> Iterator[int]:
    """The port of a service with little patience."""
    with running(create_app([family_model()], limits=SHORT), SHORT) as port:
        yield port


def verdict(policy: AccessPolicy, path: str = "/api/models", **headers: str) -> int:
    """200, or the status of the refusal."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        policy.check({"type": "http", "path": path}, Headers(named))
    except Problem as problem:
        return problem.status
    return 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("LOCALHOST:8000", 200), ("127.0.0.1:1", 200), ("[::1]:8000", 200), ("::1", 403),
        ("evil.example", 403), ("localhost.evil.example", 403), ("evil.example:8000", 403), ("", 403),
        ("192.168.0.7:8000", 403), ("localhost:8000@evil.example", 403), ("localhost:x", 403), ("[::1", 403),
    ],
)  # fmt: skip
def test_only_our_own_names_are_answered_to(host: str, status: int) -> None:
    assert verdict(AccessPolicy(), host=host) == status


def test_where_others_may_come_addresses_are_names_too() -> None:
    policy = AccessPolicy({"kg.example"}, any_address=True)
    for host, status in (("kg.example", 200), ("192.168.0.7:8000", 200), ("[fe80::1]:8000", 200), ("a.b", 403)):
        assert verdict(policy, host=host) == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://localhost:8000"}, 200), ({"origin": "https://localhost:8000"}, 200),
        ({"origin": "http://localhost:9000"}, 403), ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403), ({"origin": ""}, 403), ({"origin": "file://localhost:8000"}, 403),
        ({"origin": "http://[x"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200), ({"sec_fetch_site": "none"}, 200),
        ({"sec_fetch_site": "cross-site"}, 403), ({"sec_fetch_site": "same-site"}, 403),
    ],
)  # fmt: skip
def test_other_sites_are_refused(headers: dict[str, str], status: int) -> None:
    assert verdict(AccessPolicy(), host="localhost:8000", **headers) == status


def test_a_link_from_another_site_may_open_the_page() -> None:
    assert verdict(AccessPolicy(), "/", host="localhost", sec_fetch_site="cross-site") == 200


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (None, 401), ("", 401), ("Bearer", 401), ("Bearer wrong", 401), (TOKEN, 401), (f"Basic {TOKEN}", 401),
        (f"Bearer {TOKEN}x", 401), (f"Bearer {TOKEN}", 200), (f"bearer {TOKEN}", 200), ("Bearer \xe9", 401),
    ],
)  # fmt: skip
def test_the_token(guarded: httpx.Client, given: str | None, status: int) -> None:
    headers = {} if given is None else {b"Authorization": given.encode("latin-1")}
    found = guarded.get("/api/models", headers=headers)
    assert found.status_code == status
    if status == 401:
        assert error_of(found, 401)["code"] == "unauthorised"
        assert found.headers["WWW-Authenticate"] == "Bearer"


def test_health_the_document_and_the_page_need_no_token(guarded: httpx.Client) -> None:
    for path in ("/api/health", "/openapi.json"):
        assert guarded.get(path).status_code == 200
    assert guarded.get("/").status_code in (200, 404)  # the page may not be there, but it is not forbidden
    for path in ("/api/health/", "/api/nothing", "/api/models/family"):
        assert guarded.get(path).status_code == 401


def test_host_and_origin_are_checked_on_the_wire(guarded: httpx.Client) -> None:
    assert error_of(guarded.get("/api/health", headers={"Host": "evil.example"}), 403)["code"] == "forbidden"
    assert error_of(guarded.get("/", headers={"Host": "evil.example"}), 403)["code"] == "forbidden"
    headers = {"Origin": "http://evil.example", "Authorization": f"Bearer {TOKEN}"}
    assert guarded.post(ANSWER, json=QUESTION, headers=headers).status_code == 403


def test_every_response_has_the_headers_of_safety_and_an_id(guarded: httpx.Client) -> None:
    for path in ("/api/health", "/api/models", "/nothing", "/openapi.json"):
        found = guarded.get(path).headers
        assert found["Content-Security-Policy"].startswith("default-src 'self';")
        assert found["X-Content-Type-Options"] == "nosniff"
        assert found["Referrer-Policy"] == "no-referrer"
        assert len(found["X-Request-ID"]) == 32
        assert "server" not in found
    assert guarded.get("/api/health", headers={"X-Request-ID": "mine-1"}).headers["X-Request-ID"] == "mine-1"
    long = guarded.get("/api/health", headers={"X-Request-ID": "x" * 65}).headers["X-Request-ID"]
    assert len(long) == 32


def test_no_page_loads_anything_from_elsewhere(guarded: httpx.Client) -> None:
    assert guarded.get("/docs").status_code == guarded.get("/redoc").status_code == 404


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/"])
def test_no_path_leads_to_other_files(guarded: httpx.Client, path: str) -> None:
    url = httpx.URL(str(guarded.base_url) + path)
    assert error_of(guarded.get(url), 404)["code"] == "not_found"
    port = guarded.base_url.port
    assert port is not None
    said = raw(port, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 404")


def test_one_line_of_json_a_request_without_what_was_typed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "squire.server"), client() as api:
        sent = api.get("/api/models/family/entities?q=private", headers={"X-Request-ID": "abc"})
        api.post(ANSWER, json=QUESTION)
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records if record.name == "squire.server"]
    assert sent.status_code == 200
    assert lines[0]["request_id"] == "abc"
    assert (lines[0]["method"], lines[0]["path"]) == ("GET", "/api/models/family/entities")
    assert (lines[0]["status"], lines[0]["bytes"]) == (200, len(sent.content))
    assert "private" not in json.dumps(lines)
    assert lines[1]["batch_size"] == 1


# ------------------------------------------------------------------------------------------------ size and pace


def post(length: str, *headers: str) -> bytes:
    lines = [f"POST {ANSWER} HTTP/1.1", "Host: localhost", "Content-Type: application/json", length, *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def status_of(said: bytes) -> bytes:
    return said.split(b" ")[1] if said else b"closed"


def test_a_body_too_large_is_refused_by_its_length(short: int) -> None:
    body = json.dumps({**QUESTION, "head": "x" * 2000}).encode()
    said = raw(short, post(f"Content-Length: {len(body)}"), body)
    assert status_of(said) == b"413"
    assert b"more than 2,000 bytes" in said
    # A client that asks before it sends (Expect) is refused at once.
    assert status_of(raw(short, post("Content-Length: 99999999999", "Expect: 100-continue"))) == b"413"


def test_a_body_too_large_is_refused_in_chunks_too(short: int) -> None:
    chunk = b"400\r\n" + b"x" * 0x400 + b"\r\n"
    said = raw(short, post("Transfer-Encoding: chunked"), *[chunk] * 4, b"0\r\n\r\n")
    assert status_of(said) == b"413"
    endless = raw(short, post("Transfer-Encoding: chunked"), *[chunk * 64] * 400)
    assert status_of(endless) in (b"413", b"closed")


def test_a_small_body_in_chunks_is_fine(short: int) -> None:
    body = json.dumps(QUESTION).encode()
    chunks = [b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:5], body[5:])]
    said = raw(short, post("Transfer-Encoding: chunked", "Connection: close"), *chunks, b"0\r\n\r\n")
    assert status_of(said) == b"200"


def test_a_body_with_two_lengths_is_refused_and_what_follows_is_not_read(short: int) -> None:
    """Request smuggling: by one header the second request is part of the first."""
    second = b"GET /api/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    said = raw(short, post("Content-Length: 5", "Transfer-Encoding: chunked"), b"0\r\n\r\n", second)
    assert status_of(said) == b"400"
    assert b"not both" in said
    assert said.count(b"HTTP/1.1") == 1


def test_slow_bodies_and_slow_headers_are_not_waited_for(short: int) -> None:
    said = raw(short, post("Content-Length: 50"), b"{")
    assert status_of(said) == b"408"
    assert b'"too_slow"' in said
    assert raw(short, b"GET / HT") == b""
    assert raw(short) == b""
    drop = raw(short, *[b"X"] * 40, pause=0.05)  # a byte at a time, never a whole header
    assert drop == b""


def test_what_is_no_http_is_refused_and_the_service_goes_on(short: int) -> None:
    assert status_of(raw(short, b"\x16\x03\x01\x02\x00\x01\r\n\r\n")) in (b"400", b"closed")
    assert httpx.get(f"http://127.0.0.1:{short}/api/health").status_code == 200
