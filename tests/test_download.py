"""What `fetch` promises: the right file or none, and never a byte twice if the server can help it."""

import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from http_server import FileServer, Served, running

from squire.errors import DownloadError
from squire.graph.benchmarks.download import fetch, publish, read_member, staging

BODY = bytes(range(256)) * 1024  # 256 KiB
SHA = "sha256:" + hashlib.sha256(BODY).hexdigest()
MD5 = "md5:" + hashlib.md5(BODY).hexdigest()
OTHER = bytes(reversed(BODY))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "*")
    with running() as server:
        yield server


def quick(url: str, target: Path, checksum: str | None = SHA, size: int | None = None, retries: int = 2) -> Path:
    return fetch(url, target, checksum=checksum, size=size, retries=retries, backoff=0.001, timeout=5)


def only(folder: Path, *names: str) -> bool:
    return sorted(path.name for path in folder.iterdir()) == sorted(names)


def ranges(server: FileServer) -> list[str | None]:
    return [seen.range for seen in server.log]


@pytest.mark.parametrize("checksum", [SHA, MD5, None])
def test_a_good_server_gives_the_file_and_nothing_is_left_beside_it(
    server: FileServer, tmp_path: Path, checksum: str | None
) -> None:
    target = tmp_path / "deep" / "file.txt"
    assert quick(server.serve("/f", Served(BODY)), target, checksum) == target
    assert target.read_bytes() == BODY
    assert only(target.parent, "file.txt")


def test_progress_goes_up_to_the_announced_total(server: FileServer, tmp_path: Path) -> None:
    calls: list[tuple[int, int | None]] = []
    url = server.serve("/f", Served(BODY))
    fetch(url, tmp_path / "f", checksum=SHA, progress=lambda here, total: calls.append((here, total)))
    assert calls == sorted(calls)
    assert calls[-1] == (len(BODY), len(BODY))


def test_an_empty_file_is_a_file(server: FileServer, tmp_path: Path) -> None:
    assert quick(server.serve("/f", Served(b"")), tmp_path / "f", None).read_bytes() == b""


def test_a_target_that_has_the_checksum_is_not_fetched_again(server: FileServer, tmp_path: Path) -> None:
    target = tmp_path / "f"
    target.write_bytes(BODY)
    quick(server.serve("/f", Served(OTHER)), target)
    assert server.log == []


def test_a_target_with_another_checksum_is_replaced(server: FileServer, tmp_path: Path) -> None:
    target = tmp_path / "f"
    target.write_bytes(b"old")
    assert quick(server.serve("/f", Served(BODY)), target).read_bytes() == BODY


def test_breaks_are_resumed_within_a_call_as_long_as_bytes_arrive(server: FileServer, tmp_path: Path) -> None:
    # Five breaks are more than the two retries, but each attempt brought something new.
    url = server.serve("/f", Served(BODY, breaks=[50_000, 50_000, 50_000, 50_000, 20_000]))
    assert quick(url, tmp_path / "f").read_bytes() == BODY
    starts = [None, *(f"bytes={at}-" for at in (50_000, 100_000, 150_000, 200_000, 220_000))]
    assert ranges(server) == starts
    assert {seen.if_range for seen in server.log[1:]} == {'"one"'}


def test_a_later_call_resumes_what_an_earlier_one_left(server: FileServer, tmp_path: Path) -> None:
    target = tmp_path / "f"
    url = server.serve("/f", Served(BODY, breaks=[100_000]))
    with pytest.raises(
        DownloadError, match=r"announced 262,144 bytes and broke off after 100,000.*: 100,000 bytes are kept"
    ):
        quick(url, target, None, retries=0)
    assert only(tmp_path, "f.part", "f.part.json")
    assert quick(url, target, None).read_bytes() == BODY
    assert ranges(server) == [None, "bytes=100000-"]


def test_ctrl_c_leaves_the_part_for_the_next_call(server: FileServer, tmp_path: Path) -> None:
    def interrupt(here: int, total: int | None) -> None:
        if here > 100_000:
            raise KeyboardInterrupt("by the user")

    url = server.serve("/f", Served(BODY, pause=0.01))
    with pytest.raises(KeyboardInterrupt, match="by the user"):
        fetch(url, tmp_path / "f", checksum=SHA, progress=interrupt)
    kept = (tmp_path / "f.part").stat().st_size
    assert quick(url, tmp_path / "f").read_bytes() == BODY
    assert ranges(server) == [None, f"bytes={kept}-"]


def test_a_killed_process_is_resumed_by_the_next(server: FileServer, tmp_path: Path) -> None:
    served = Served(BODY, chunk=8192, pause=0.05)
    url, target, part = server.serve("/f", served), tmp_path / "f", tmp_path / "f.part"
    code = "import sys, pathlib; from squire.graph.benchmarks.download import fetch\n"
    code += f"fetch(sys.argv[1], pathlib.Path(sys.argv[2]), checksum={SHA!r})"
    with subprocess.Popen([sys.executable, "-c", code, url, str(target)]) as process:
        deadline = time.monotonic() + 30
        while not (part.exists() and part.stat().st_size > 30_000) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert not target.exists()
    kept = part.stat().st_size
    assert 30_000 < kept < len(BODY)
    served.pause = 0
    assert quick(url, target).read_bytes() == BODY
    assert server.log[-1].range == f"bytes={kept}-"
    assert server.log[-1].status == 206


def test_a_part_that_was_whole_needs_no_request(server: FileServer, tmp_path: Path) -> None:
    url = server.serve("/f", Served(BODY, breaks=[len(BODY) - 1]))
    with pytest.raises(DownloadError, match="broke off after 262,143"):
        quick(url, tmp_path / "f", retries=0)
    with (tmp_path / "f.part").open("ab") as part:
        part.write(BODY[-1:])
    assert quick(url, tmp_path / "f").read_bytes() == BODY
    assert len(server.log) == 1


def test_a_server_that_ignores_range_is_taken_from_the_start(server: FileServer, tmp_path: Path) -> None:
    url = server.serve("/f", Served(BODY, ranges=False, breaks=[100_000]))
    assert quick(url, tmp_path / "f").read_bytes() == BODY
    assert [seen.status for seen in server.log] == [200, 200]


def test_a_server_that_always_breaks_at_the_same_byte_is_given_up(server: FileServer, tmp_path: Path) -> None:
    url = server.serve("/f", Served(BODY, ranges=False, breaks=[100_000] * 99))
    with pytest.raises(DownloadError, match="broke off after 100,000"):
        quick(url, tmp_path / "f")
    assert len(server.log) == 4  # the first brought something, then the second and two retries nothing new
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("blind", [False, True])
def test_a_file_that_changed_is_taken_from_the_start(server: FileServer, tmp_path: Path, blind: bool) -> None:
    url = server.serve("/f", Served(BODY, breaks=[100_000]))
    with pytest.raises(DownloadError, match="broke off"):
        quick(url, tmp_path / "f", None, retries=0)
    # `blind`: the server sends a piece of the new version although If-Range asked for the old one.
    server.serve("/f", Served(OTHER, etag='"two"', ignore_if_range=blind))
    assert quick(url, tmp_path / "f", None).read_bytes() == OTHER
    assert [seen.status for seen in server.log] == ([200, 206, 200] if blind else [200, 200])


def test_a_piece_from_the_wrong_place_is_not_added(server: FileServer, tmp_path: Path) -> None:
    url = server.serve("/f", Served(BODY, breaks=[100_000], shift=7))
    assert quick(url, tmp_path / "f", None).read_bytes() == BODY
    assert [seen.status for seen in server.log] == [200, 206, 200]


def test_a_file_that_became_shorter_is_taken_from_the_start(server: FileServer, tmp_path: Path) -> None:
    url = server.serve("/f", Served(BODY, breaks=[100_000]))
    with pytest.raises(DownloadError, match="broke off"):
        quick(url, tmp_path / "f", None, retries=0)
    server.serve("/f", Served(b"short"))
    assert quick(url, tmp_path / "f", None).read_bytes() == b"short"
    assert [seen.status for seen in server.log] == [200, 416, 200]


def test_the_date_serves_where_the_etag_is_weak(server: FileServer, tmp_path: Path) -> None:
    date = "Mon, 01 Jan 2024 00:00:00 GMT"
    url = server.serve("/f", Served(BODY, etag='W/"one"', modified=date, breaks=[100_000]))
    assert quick(url, tmp_path / "f", None).read_bytes() == BODY
    assert server.log[1].if_range == date


def test_without_a_version_only_a_checksum_allows_to_resume(server: FileServer, tmp_path: Path) -> None:
    url = server.serve("/f", Served(BODY, etag=None, breaks=[100_000]))
    assert quick(url, tmp_path / "proven").read_bytes() == BODY
    server.serve("/f", Served(BODY, etag=None, breaks=[100_000]))
    assert quick(url, tmp_path / "unproven", None).read_bytes() == BODY
    assert ranges(server) == [None, "bytes=100000-", None, None]


def test_pieces_of_two_versions_are_found_out_and_fetched_anew(server: FileServer, tmp_path: Path) -> None:
    url = server.serve("/f", Served(OTHER, etag=None, breaks=[100_000]))
    with pytest.raises(DownloadError, match="broke off"):
        quick(url, tmp_path / "f", retries=0)
    server.serve("/f", Served(BODY, etag=None))
    assert quick(url, tmp_path / "f").read_bytes() == BODY
    assert [seen.status for seen in server.log] == [200, 206, 200]


def test_a_part_of_another_address_is_not_used(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="broke off"):
        quick(server.serve("/old", Served(OTHER, breaks=[100_000])), tmp_path / "f", retries=0)
    assert quick(server.serve("/new", Served(BODY)), tmp_path / "f").read_bytes() == BODY
    assert ranges(server) == [None, None]


def test_a_damaged_note_beside_the_part_means_a_fresh_start(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(b"who knows")
    (tmp_path / "f.part.json").write_text("{")
    assert quick(server.serve("/f", Served(BODY)), tmp_path / "f", None).read_bytes() == BODY


def test_a_wrong_checksum_names_address_expected_and_found(server: FileServer, tmp_path: Path) -> None:
    url = server.serve("/f", Served(OTHER))
    found = hashlib.sha256(OTHER).hexdigest()
    with pytest.raises(DownloadError, match=f"^{re.escape(url)}: expected {SHA}, found sha256:{found}.*removed"):
        quick(url, tmp_path / "f")
    assert only(tmp_path)


def test_an_announced_length_that_never_comes_is_an_error(server: FileServer, tmp_path: Path) -> None:
    url = server.serve("/f", Served(BODY, lie=10))
    with pytest.raises(DownloadError, match="the file is shorter than the server announced"):
        quick(url, tmp_path / "f", None)
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    ("checksum", "size", "words"),
    [
        (SHA, None, f"expected {SHA}, found sha256:"),
        (None, len(BODY), "expected 262,144 bytes, the server announces 262,134"),
    ],
)
def test_an_announced_length_that_is_too_short_is_found_out(
    server: FileServer, tmp_path: Path, checksum: str | None, size: int | None, words: str
) -> None:
    url = server.serve("/f", Served(BODY, lie=-10))
    with pytest.raises(DownloadError, match=words):
        quick(url, tmp_path / "f", checksum, size)
    assert only(tmp_path)


def test_a_chunked_answer_has_its_own_end(server: FileServer, tmp_path: Path) -> None:
    url = server.serve("/f", Served(BODY, measure="chunked", breaks=[100_000]))
    assert quick(url, tmp_path / "f", None).read_bytes() == BODY


def test_an_answer_without_length_needs_a_checksum(server: FileServer, tmp_path: Path) -> None:
    url = server.serve("/f", Served(BODY, measure="none"))
    with pytest.raises(DownloadError, match="does not say how long the file is and no checksum"):
        quick(url, tmp_path / "f", None)
    assert quick(url, tmp_path / "f").read_bytes() == BODY


def test_an_answer_without_length_that_breaks_off_is_found_out(server: FileServer, tmp_path: Path) -> None:
    url = server.serve("/f", Served(BODY, measure="none", breaks=[100_000]))
    with pytest.raises(DownloadError, match="expected 262,144 bytes, found 100,000"):
        quick(url, tmp_path / "f", None, len(BODY))
    assert only(tmp_path)


def test_a_busy_server_is_asked_again(server: FileServer, tmp_path: Path) -> None:
    url = server.serve("/f", Served(BODY, statuses=[503, 429]))
    assert quick(url, tmp_path / "f").read_bytes() == BODY
    assert [seen.status for seen in server.log] == [503, 429, 200]


def test_a_server_that_stays_broken_is_given_up(server: FileServer, tmp_path: Path) -> None:
    url = server.serve("/f", Served(BODY, statuses=[500] * 9))
    with pytest.raises(DownloadError, match=r"answered 500 Internal Server Error. Check the network"):
        quick(url, tmp_path / "f")
    assert len(server.log) == 3


@pytest.mark.parametrize(("status", "words"), [(404, "404 Not Found. The file may have moved"), (403, "403 Forb")])
def test_a_refusal_is_final(server: FileServer, tmp_path: Path, status: int, words: str) -> None:
    url = server.serve("/f", Served(BODY, statuses=[status]))
    with pytest.raises(DownloadError, match=words):
        quick(url, tmp_path / "f")
    assert len(server.log) == 1


def test_a_server_that_falls_silent_is_not_waited_for_for_ever(server: FileServer, tmp_path: Path) -> None:
    url = server.serve("/f", Served(BODY, chunk=1000, pause=0.5))
    with pytest.raises(DownloadError, match=r"broke off after 1,000 bytes .*timed out"):
        fetch(url, tmp_path / "f", checksum=SHA, retries=0, timeout=0.1)


def test_nobody_listening_is_said_clearly(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DownloadError, match=r"no answer from the server .*Check the network"):
        quick(f"http://127.0.0.1:{port}/f", tmp_path / "f")


def test_a_host_that_does_not_exist_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(DownloadError, match=r"cannot reach nowhere.invalid .*network connection"):
        fetch("http://nowhere.invalid/f", tmp_path / "f", checksum=SHA, backoff=60)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/f", "f.txt"])
def test_only_http_is_downloaded(tmp_path: Path, url: str) -> None:
    with pytest.raises(DownloadError, match="only http and https"):
        quick(url, tmp_path / "f")


@pytest.mark.parametrize("checksum", ["sha1:00", "sha256:", "0" * 64, SHA.upper()])
def test_a_checksum_of_another_kind_is_refused(tmp_path: Path, checksum: str) -> None:
    with pytest.raises(DownloadError, match="neither sha256:… nor md5:…"):
        quick("http://127.0.0.1/f", tmp_path / "f", checksum)


def test_a_full_disk_is_said_clearly(server: FileServer, tmp_path: Path) -> None:
    # A limit on the size of a file fails like a full disk does: write() raises OSError in the middle.
    url = server.serve("/f", Served(BODY))
    code = "import resource, sys, pathlib; from squire.graph.benchmarks.download import fetch\n"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    code += "fetch(sys.argv[1], pathlib.Path(sys.argv[2]), checksum=None)"
    run = subprocess.run([sys.executable, "-c", code, url, str(tmp_path / "f")], capture_output=True, text=True)
    assert run.returncode == 1
    assert re.search(r"DownloadError: cannot write .*f\.part: File too large\. Make room", run.stderr)
    assert not (tmp_path / "f").exists()


def test_a_folder_that_cannot_be_made_is_said_clearly(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match=r"cannot write .*file: .*SQUIRE_CACHE"):
        quick("http://127.0.0.1/f", tmp_path / "file" / "f")


def test_a_folder_is_published_whole_and_the_second_leaves_the_first(tmp_path: Path) -> None:
    assert publish(tmp_path, "set", {"a": b"1", "b": b"2"}) == tmp_path / "set"
    publish(tmp_path, "set", {"a": b"other", "b": b"other"})
    assert (tmp_path / "set" / "a").read_bytes() == b"1"
    assert only(tmp_path, "set")
    assert only(tmp_path / "set", "a", "b")


def test_something_else_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "mine").write_text("")
    with pytest.raises(DownloadError, match=r"set is in the way .*remove it"):
        publish(tmp_path, "set", {"a": b"1"})
    assert only(tmp_path, "set")


def test_the_second_at_the_same_time_works_in_a_folder_of_its_own(tmp_path: Path) -> None:
    with staging(tmp_path, "set") as first, staging(tmp_path, "set") as second:
        assert first != second
        (second / "f").write_text("")
    assert not second.exists()
    with staging(tmp_path, "set") as third:
        assert third == first


def test_an_archive_without_the_member_is_named(tmp_path: Path) -> None:
    archive = tmp_path / "x.tar"
    with tarfile.open(archive, "w") as tape:
        tape.add(tmp_path, "folder", recursive=False)
    with pytest.raises(DownloadError, match=r"x.tar is not an archive with a member train.txt"):
        read_member(archive, "train.txt")
    with pytest.raises(DownloadError, match=r"folder in x.tar is not a file"):
        read_member(archive, "folder")
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(DownloadError, match="text is not an archive"):
        read_member(tmp_path / "text", "train.txt")
