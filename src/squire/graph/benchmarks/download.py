"""What comes from outside, whole or not at all: a file over HTTP, then a folder of such files.

A file is resumed after a break, measured and checked before it gets its name: its bytes go to
`NAME.part`, and `NAME.part.json` beside it remembers which version of the file they belong to. A folder
is filled beside its place and gets its name by one rename. So a half never looks whole, whatever ends
the process.

It does not know what the files hold nor which belong together (see `datasets`). Two calls of `fetch` at
once must not share a target: `staging` keeps processes apart. It prints nothing.
"""

import hashlib
import json
import os
import re
import shutil
import socket
import ssl
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from squire.errors import DownloadError

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are here and the bytes there will be (None: the server does not say)."""

_CHUNK = 1 << 16
_PASSING = {408, 425, 429, 500, 502, 503, 504}  # answers that another try a little later may turn to good
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)$")


class _Broken(Exception):
    """This attempt failed; another may succeed."""


class _Stale(_Broken):
    """The bytes kept so far do not belong to what the server has now."""


@dataclass(frozen=True)
class _Version:
    """What tells one version of a remote file from the next."""

    url: str
    etag: str | None = None
    modified: str | None = None
    total: int | None = None

    @property
    def validator(self) -> str | None:
        """What may stand in If-Range: a weak ETag (`W/…`) may not, RFC 9110 section 13.1.5."""
        return self.etag if self.etag and not self.etag.startswith("W/") else self.modified


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure of the disk below `path` (full, read-only) into a DownloadError."""
    try:
        yield
    except OSError as error:
        raise DownloadError(
            f"cannot write {path}: {error.strerror or error}. Make room or give permission there, "
            "or set SQUIRE_CACHE to another folder."
        ) from error


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """The hexadecimal digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def fetch(
    url: str,
    target: Path,
    *,
    checksum: str | None,
    size: int | None = None,
    progress: Progress | None = None,
    retries: int = 4,
    backoff: float = 1.0,
    timeout: float = 30.0,
) -> Path:
    """Download `url` to `target` and return `target`.

    `checksum` is "sha256:…" or "md5:…"; a target that is there already and has it is not fetched again.
    `retries` attempts in a row may fail without a new byte, with pauses of `backoff` seconds, doubled
    each time; `timeout` bounds each wait for the server, not the whole download.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise DownloadError(f"{url}: only http and https addresses can be downloaded.")
    if checksum is not None and not re.fullmatch(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", checksum):
        raise DownloadError(f"{url}: checksum {checksum!r} is neither sha256:… nor md5:… in lower-case hex.")
    proven = checksum is not None or size is not None
    if proven and target.is_file() and _complaint(target, checksum, size) is None:
        return target
    with writing(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
    transfer = _Transfer(url, target, checksum, size, progress, timeout)
    transfer.run(retries, backoff)
    complaint = _complaint(transfer.part, checksum, size)
    if complaint and transfer.pieced:
        # The pieces may stem from two versions of the file: one whole download settles whose fault it is.
        transfer.forget()
        transfer.run(retries, backoff)
        complaint = _complaint(transfer.part, checksum, size)
    if complaint:
        transfer.forget()
        raise DownloadError(f"{url}: {complaint}. The file was removed. Try again, or report the address.")
    with writing(target):
        with transfer.part.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(transfer.part, target)
        transfer.memory.unlink(missing_ok=True)
    return target


@contextmanager
def staging(home: Path, name: str) -> Iterator[Path]:
    """A folder to download to: one that the next call resumes from, or, while another uses that, our own."""
    with writing(home):
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / f".{name}.lock").open("w")
    with lock:
        if _sole_user(lock):
            yield home / f".{name}.partial"
        else:
            with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=home) as folder:
                yield Path(folder)


def _sole_user(lock: IO[str]) -> bool:
    """Whether nobody else has the lock; the system frees it even after a kill. Windows: never resumed."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def publish(home: Path, name: str, files: Mapping[str, bytes]) -> Path:
    """Make `home/name` with these files, all at once; whoever comes second leaves the first one's."""
    place = home / name
    with writing(home):
        home.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=home))
    try:
        with writing(fresh):
            for file, content in files.items():
                (fresh / file).write_bytes(content)
            fresh.chmod(0o755)  # mkdtemp makes it private; a cache may be shared
        try:
            fresh.rename(place)
        except OSError as error:
            if not all((place / file).is_file() for file in files):
                raise DownloadError(
                    f"{place} is in the way ({error.strerror}): remove it and try again."
                ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return place


def read_member(file: Path, member: str | None) -> bytes:
    """The bytes of a download, or of one member; nothing is unpacked, so no member can name a path."""
    if member is None:
        return file.read_bytes()
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as packed:
                return packed.read(member)
        with tarfile.open(file) as tape:
            stream = tape.extractfile(member)
            if stream is not None:
                return stream.read()
    except (KeyError, OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise DownloadError(f"{file.name} is not an archive with a member {member} ({error}).") from error
    raise DownloadError(f"{member} in {file.name} is not a file.")


def _complaint(path: Path, checksum: str | None, size: int | None) -> str | None:
    """What is wrong with the file at `path`, or None."""
    found = path.stat().st_size
    if size is not None and found != size:
        return f"expected {size:,} bytes, found {found:,}"
    if checksum is not None:
        algorithm = checksum.partition(":")[0]
        digest = f"{algorithm}:{file_digest(path, algorithm)}"
        if digest != checksum:
            return f"expected {checksum}, found {digest}"
    return None


class _Transfer:
    """The attempts to bring one file here; its state lies on disk, so a later process goes on with it."""

    def __init__(
        self,
        url: str,
        target: Path,
        checksum: str | None,
        size: int | None,
        progress: Progress | None,
        timeout: float,
    ) -> None:
        self.url, self.checksum, self.size = url, checksum, size
        self.progress, self.timeout = progress, timeout
        self.part = target.with_name(target.name + ".part")
        self.memory = target.with_name(target.name + ".part.json")
        self.pieced = False  # the part holds bytes of more than one response

    def run(self, retries: int, backoff: float) -> None:
        """Attempt until the part is as long as the server says; patience is renewed by every new byte."""
        left, best = retries, self.kept()
        while True:
            try:
                self.attempt()
                return
            except _Broken as error:
                gained = self.kept() > best
                if isinstance(error, _Stale):
                    self.forget()
                left = retries if gained else left - 1
                best = max(best, self.kept())
                if left < 0 or not retries:
                    kept = f": {self.kept():,} bytes are kept" if self.kept() else ""
                    raise DownloadError(f"{self.url}: {error}. Check the network and try again{kept}.") from error
                time.sleep(backoff * 2 ** max(0, retries - left - 1))

    def attempt(self) -> None:
        """One request and its answer, from where the last one stopped."""
        kept, known = self.kept(), self.remembered()
        if kept and not self.resumable(known):
            self.forget()
            kept, known = 0, None
        if known is not None and kept and kept == known.total:
            self.pieced = True  # an earlier process got this far and never came to the check
            return
        headers = {"User-Agent": "squire-kg"}
        if kept:
            headers["Range"] = f"bytes={kept}-"
            if known is not None and known.validator:
                headers["If-Range"] = known.validator
        with self.ask(headers) as response:
            if response.status == 206 and known is not None:
                self.joins(response, kept, known)
            else:
                # A full answer: nothing was kept, the server ignores Range, or it has a newer version.
                # The old bytes go before the new version is noted: a kill in between must not mix them.
                known = self.version(response)
                self.forget()
                self.remember(known)
                kept = 0
            self.receive(response, kept, known.total)
        kept = self.kept()
        if known.total is not None and kept != known.total:
            problem = _Broken if kept < known.total else _Stale
            raise problem(f"the server announced {known.total:,} bytes and broke off after {kept:,}")

    def resumable(self, known: _Version | None) -> bool:
        """Whether a piece may be added: the server can compare versions, or the checksum will."""
        return known is not None and (known.validator is not None or self.checksum is not None)

    def ask(self, headers: dict[str, str]) -> HTTPResponse:
        """Send the request; sort what goes wrong into passing and final."""
        try:
            response: HTTPResponse = urlopen(Request(self.url, headers=headers), timeout=self.timeout)
            return response
        except HTTPError as error:
            error.close()
            answer = f"the server answered {error.code} {error.reason}"
            if error.code == 416:
                raise _Stale(f"{answer}: the file is shorter than the server announced") from error
            if error.code in _PASSING:
                raise _Broken(answer) from error
            advice = "The file may have moved: report it." if error.code in (404, 410) else "Try again later."
            raise DownloadError(f"{self.url}: {answer}. {advice}") from error
        except (OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            if isinstance(reason, socket.gaierror | ssl.SSLCertVerificationError):
                host = urlsplit(self.url).hostname
                raise DownloadError(
                    f"{self.url}: cannot reach {host} ({reason}). Is there a network connection here?"
                ) from error
            raise _Broken(f"no answer from the server ({reason})") from error

    def version(self, response: HTTPResponse) -> _Version:
        """Which version of the file an answer from its first byte brings; refuse one that has no measure."""
        headers = response.headers
        length = headers.get("Content-Length", "")
        total = int(length) if length.isdigit() else None
        if self.size is not None and total is not None and total != self.size:
            self.forget()
            raise DownloadError(
                f"{self.url}: expected {self.size:,} bytes, the server announces {total:,}. "
                "The file there is another one than it was: report the address."
            )
        delimited = total is not None or "chunked" in headers.get("Transfer-Encoding", "")
        if not (delimited or self.checksum or self.size is not None):
            raise DownloadError(
                f"{self.url}: the server does not say how long the file is and no checksum of it is known, "
                "so half of it could not be told from the whole. Download it by hand."
            )
        return _Version(self.url, headers.get("ETag"), headers.get("Last-Modified"), total)

    def joins(self, response: HTTPResponse, start: int, known: _Version) -> None:
        """Make sure that a piece goes on where the part ends, in the same version of the file."""
        headers = response.headers
        match = _CONTENT_RANGE.match(headers.get("Content-Range", ""))
        if match is None or int(match[1]) != start:
            raise _Stale(f"the server did not go on at byte {start:,} as asked")
        # A piece need not repeat every header (RFC 9110 section 15.3.7), so only what is there is compared.
        same = (
            headers.get("ETag", known.etag) == known.etag
            and headers.get("Last-Modified", known.modified) == known.modified
            and (match[3] == "*" or known.total is None or int(match[3]) == known.total)
        )
        if not same:
            raise _Stale("the file on the server has changed since the download began")

    def receive(self, response: HTTPResponse, start: int, total: int | None) -> None:
        """Append the body to the part (or begin it anew), unbuffered: what was received survives a kill."""
        self.pieced = start > 0
        with writing(self.part):
            out = self.part.open("ab" if start else "wb", buffering=0)
        with out:
            here = start
            while True:
                try:
                    chunk = response.read1(_CHUNK)
                except (OSError, HTTPException) as error:
                    raise _Broken(f"the connection broke off after {here:,} bytes ({error})") from error
                if not chunk:
                    break
                with writing(self.part):
                    out.write(chunk)
                here += len(chunk)
                if self.progress is not None:
                    self.progress(here, total)

    def kept(self) -> int:
        """The bytes that are here."""
        return self.part.stat().st_size if self.part.exists() else 0

    def remembered(self) -> _Version | None:
        """The version the part belongs to; None if that was never written, or written for another address."""
        try:
            version = _Version(**json.loads(self.memory.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return version if version.url == self.url else None

    def remember(self, version: _Version) -> None:
        """Note the version before the first byte of it arrives."""
        with writing(self.memory):
            self.memory.write_text(json.dumps(vars(version)), encoding="utf-8")

    def forget(self) -> None:
        """Remove what is here, to begin again or to leave nothing bad behind."""
        for path in (self.part, self.memory):
            with writing(path):
                path.unlink(missing_ok=True)
