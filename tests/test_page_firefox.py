"""The page in a stock Firefox, which is driven by its own protocol, Marionette: nothing else need be installed."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from page_visit import LOOPBACK, asked, serving
from small_run import fused_run

BROWSERS = ("firefox-esr", "firefox")
MISSING = "no Firefox, so the page is only tested in Chromium. Install one, e.g. with 'apt install firefox-esr'."
PREFERENCES = {
    "marionette.port": 0,  # any that is free
    "remote.prefs.recommended": True,  # no first-run pages, no updates, no telemetry
    "app.normandy.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
}
PATIENCE = 60.0  # seconds: machines may be busy


class Firefox:
    """A session with a Firefox that listens for commands of Marionette: `length:[0, number, name, parameters]`."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOOPBACK, port), timeout=PATIENCE)
        self._number = 0
        self._read()  # it says who it is
        self.call("WebDriver:NewSession", capabilities={})

    def call(self, command: str, **parameters: Any) -> Any:
        self._number += 1
        message = json.dumps([0, self._number, command, parameters]).encode()
        self._socket.sendall(b"%d:%s" % (len(message), message))
        _, number, error, result = self._read()
        assert (number, error) == (self._number, None), error
        return result

    def run(self, script: str) -> Any:
        """The value of an expression on the page."""
        return self.call("WebDriver:ExecuteScript", script=f"return ({script})", args=[])["value"]

    def wait(self, script: str) -> Any:
        """The same, as soon as it is true."""
        return until(lambda: self.run(script), script)

    def close(self) -> None:
        self._socket.close()

    def _read(self) -> Any:
        length = b""
        while not length.endswith(b":"):
            length += self._receive(1)
        return json.loads(self._receive(int(length[:-1])))

    def _receive(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            assert part, "Firefox is gone"
            found += part
        return found


def until(attempt: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := attempt()):
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.05)
    return found


@contextmanager
def firefox(command: str, profile: Path) -> Iterator[Firefox]:
    lines = (f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in PREFERENCES.items())
    (profile / "user.js").write_text("".join(lines))
    started = [command, "--headless", "--no-remote", "--marionette", "--profile", str(profile)]
    process = subprocess.Popen(started, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    port = profile / "MarionetteActivePort"
    try:
        until(lambda: process.poll() is None and port.exists() and port.read_text(), "Firefox listens")
        with closing(Firefox(int(port.read_text()))) as found:
            yield found
    finally:
        process.terminate()
        process.wait(PATIENCE)


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Firefox, str]]:
    command = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if command is None:
        pytest.skip(MISSING)
    with (
        serving(f"family={fused_run()}") as address,
        firefox(command, tmp_path_factory.mktemp("firefox")) as found,
    ):
        yield found, address


def test_a_question_is_answered_and_drawn(visit: tuple[Firefox, str]) -> None:
    browser, address = visit
    browser.call("WebDriver:Navigate", url=f"{address}/#/ask?model=family&head=cleo&relation=grandparent")
    said = browser.wait("document.querySelector('.sentence')?.textContent")
    assert said.startswith("The graph says so. Without this fact it would be")
    body = {"head": "cleo", "relation": "grandparent"}
    names = [one["entity"] for one in asked(address, "models/family/answer", body)["answers"]]
    shown = "[...document.querySelectorAll('#answers .answer .name')].map((one) => one.textContent)"
    assert browser.run(shown) == names
    edges = asked(address, "models/family/check", {**body, "tail": "cleo 2"})["answer"]["evidence"]["edges"]
    assert browser.run("document.querySelectorAll('#drawing .edge.lit').length") == len(edges)
    size = browser.run("document.querySelector('#drawing text').getBBox().width")
    assert size > 10
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    assert ground in ("rgb(246, 246, 242)", "rgb(17, 21, 20)")  # light or dark


def test_the_neighbourhood_grows_and_the_sheet_closes(visit: tuple[Firefox, str]) -> None:
    browser, address = visit
    browser.call("WebDriver:Navigate", url=f"{address}/#/ask?model=family&head=cleo&relation=likes&around=cleo")
    before = browser.wait("document.querySelectorAll('#neighbours .node').length")
    last = "[...document.querySelectorAll('#neighbours .between')].at(-1)"
    browser.run(f"{last}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'Enter', bubbles: true}}))")
    browser.wait(f"document.querySelectorAll('#neighbours .node').length > {before}")
    assert browser.wait("document.activeElement.getAttribute('aria-expanded') === 'true'")
    browser.run("document.querySelector('#around .close').click()")
    browser.wait("!document.querySelector('#around').open && !location.hash.includes('around')")


@pytest.mark.parametrize("view", ["quality", "review", "judge"])
def test_every_view_opens_without_an_error(visit: tuple[Firefox, str], view: str) -> None:
    browser, address = visit
    browser.call("WebDriver:Navigate", url=f"{address}/#/{view}?model=family")
    assert browser.wait(f"document.querySelector('#{view}-view h1')?.textContent")
    assert browser.run("document.querySelectorAll('.trouble').length") == 0
