"""What `fetch` promises: the right content or an error that says what is wrong."""

import hashlib
import re
import socket
from collections.abc import Iterator

import pytest
from http_server import FileServer, Served, running

from squire.errors import DownloadError
from squire.graph.benchmarks.download import fetch

BODY = bytes(range(256)) * 1024  # 256 KiB
SHA = "sha256:" + hashlib.sha256(BODY).hexdigest()
MD5 = "md5:" + hashlib.md5(BODY).hexdigest()
OTHER = bytes(reversed(BODY))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "*")
    with running() as server:
        yield server


def quick(url: str, checksum: str | None = SHA, retries: int = 2) -> bytes:
    return fetch(url, checksum=checksum, retries=retries, backoff=0.001, timeout=5)


@pytest.mark.parametrize("checksum", [SHA, MD5, None])
def test_a_good_server_gives_the_file(server: FileServer, checksum: str | None) -> None:
    assert quick(server.serve("/f", Served(BODY)), checksum) == BODY


def test_progress_goes_up_to_the_announced_total(server: FileServer) -> None:
    calls: list[tuple[int, int | None]] = []
    url = server.serve("/f", Served(BODY))
    fetch(url, checksum=SHA, progress=lambda here, total: calls.append((here, total)))
    assert calls == sorted(calls)
    assert calls[-1] == (len(BODY), len(BODY))


def test_an_empty_file_is_a_file(server: FileServer) -> None:
    assert quick(server.serve("/f", Served(b"")), None) == b""


def test_breaks_are_retried(server: FileServer) -> None:
    assert quick(server.serve("/f", Served(BODY, breaks=[50_000, 100_000]))) == BODY
    assert len(server.log) == 3


def test_a_server_that_always_breaks_is_given_up(server: FileServer) -> None:
    url = server.serve("/f", Served(BODY, breaks=[100_000] * 99))
    with pytest.raises(
        DownloadError, match=r"announced 262,144 bytes and broke off after 100,000\. Check the net"
    ):
        quick(url, None)
    assert len(server.log) == 3


def test_a_wrong_checksum_names_address_expected_and_found(server: FileServer) -> None:
    url = server.serve("/f", Served(OTHER))
    found = hashlib.sha256(OTHER).hexdigest()
    with pytest.raises(DownloadError, match=f"^{re.escape(url)}: expected {SHA}, found sha256:{found}"):
        quick(url)


def test_an_announced_length_that_never_comes_is_an_error(server: FileServer) -> None:
    url = server.serve("/f", Served(BODY, lie=10))
    with pytest.raises(DownloadError, match="announced 262,154 bytes and broke off after 262,144"):
        quick(url, None)


def test_an_announced_length_that_is_too_short_is_detected(server: FileServer) -> None:
    url = server.serve("/f", Served(BODY, lie=-10))
    with pytest.raises(DownloadError, match=f"expected {SHA}, found sha256:"):
        quick(url)


def test_a_chunked_answer_has_its_own_end(server: FileServer) -> None:
    url = server.serve("/f", Served(BODY, measure="chunked", breaks=[100_000]))
    assert quick(url, None) == BODY
    assert len(server.log) == 2


def test_an_answer_without_length_needs_a_checksum(server: FileServer) -> None:
    url = server.serve("/f", Served(BODY, measure="none"))
    with pytest.raises(DownloadError, match="does not give the length of the file and no checksum"):
        quick(url, None)
    assert quick(url) == BODY


def test_an_answer_without_length_that_breaks_off_is_detected(server: FileServer) -> None:
    url = server.serve("/f", Served(BODY, measure="none", breaks=[100_000]))
    with pytest.raises(DownloadError, match=f"expected {SHA}, found sha256:"):
        quick(url)


@pytest.mark.parametrize("measure", ["length", "chunked"])
def test_a_file_over_the_size_limit_is_refused(server: FileServer, measure: str) -> None:
    url = server.serve("/f", Served(BODY, measure=measure))
    with pytest.raises(DownloadError, match=r"more than the 200,000 bytes that may be downloaded"):
        fetch(url, checksum=SHA, max_bytes=200_000)
    assert len(server.log) == 1
    assert fetch(url, checksum=SHA, max_bytes=len(BODY)) == BODY


def test_a_busy_server_is_asked_again(server: FileServer) -> None:
    url = server.serve("/f", Served(BODY, statuses=[503, 429]))
    assert quick(url) == BODY
    assert [seen.status for seen in server.log] == [503, 429, 200]


def test_a_server_that_stays_broken_is_given_up(server: FileServer) -> None:
    url = server.serve("/f", Served(BODY, statuses=[500] * 9))
    with pytest.raises(DownloadError, match=r"answered 500 Internal Server Error. Check the network"):
        quick(url)
    assert len(server.log) == 3


@pytest.mark.parametrize(("status", "words"), [(404, "404 Not Found. The file may have moved"), (403, "403 Forb")])
def test_a_refusal_is_final(server: FileServer, status: int, words: str) -> None:
    url = server.serve("/f", Served(BODY, statuses=[status]))
    with pytest.raises(DownloadError, match=words):
        quick(url)
    assert len(server.log) == 1


def test_a_server_that_falls_silent_is_not_waited_for_for_ever(server: FileServer) -> None:
    url = server.serve("/f", Served(BODY, chunk=1000, pause=0.5))
    with pytest.raises(DownloadError, match=r"broke off after 1,000 bytes .*timed out"):
        fetch(url, checksum=SHA, retries=0, timeout=0.1)


def test_nobody_listening_is_said_clearly() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DownloadError, match=r"no answer from the server .*Check the network"):
        quick(f"http://127.0.0.1:{port}/f")


def test_a_host_that_does_not_exist_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(DownloadError, match=r"cannot reach nowhere.invalid .*network connection"):
        fetch("http://nowhere.invalid/f", checksum=SHA, backoff=60)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/f", "f.txt"])
def test_only_http_is_downloaded(url: str) -> None:
    with pytest.raises(DownloadError, match="only http and https"):
        quick(url)


@pytest.mark.parametrize("checksum", ["sha1:00", "sha256:", "0" * 64, SHA.upper()])
def test_a_checksum_of_another_kind_is_refused(checksum: str) -> None:
    with pytest.raises(DownloadError, match="neither sha256:… nor md5:…"):
        quick("http://127.0.0.1/f", checksum)
