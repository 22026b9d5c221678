"""A person at the page: a real `squire serve`, a Chromium, a watch on what must never happen. Test code only."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect
from small_run import copy_of_run
from typer.testing import CliRunner

from squire.cli import app
from squire.core.run_files import evaluation_file

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MISSING = "no Chromium, so the page is NOT tested. Install one, e.g. with 'apt install chromium'."
LOOPBACK = "127.0.0.1"
PATIENCE = 30_000  # ms for something to appear: machines may be busy
expect.set_options(timeout=PATIENCE)

# What touches what in a drawing, as it is painted.
FAULTS_IN = """(svg) => {
  const box = (node) => { const {x, y, width, height} = node.getBBox(); return [x, y, x + width, y + height]; };
  const meet = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
  const faults = [], say = (what) => faults.push(what);
  const {width, height} = svg.viewBox.baseVal;
  const labels = [...svg.querySelectorAll("text")].map((text) => ({text, at: box(text)}));
  const nodes = [...svg.querySelectorAll(".node rect")].map(box);
  for (const {text, at} of labels) {
    if (parseFloat(getComputedStyle(text).fontSize) < 12) say(`small: ${text.textContent}`);
    if (Math.min(at[0], at[1], width - at[2], height - at[3]) < 0) say(`outside: ${text.textContent}`);
    if (!text.closest(".node") && nodes.some((node) => meet(node, at))) say(`on a box: ${text.textContent}`);
  }
  labels.forEach((one, i) => labels.slice(0, i).forEach((other) => {
    const lines = one.text.parentNode === other.text.parentNode; // of one label: they may touch, not overlap
    const at = lines ? [one.at[0], one.at[1] + 3, one.at[2], one.at[3] - 3] : one.at;
    if (meet(at, other.at)) say(`labels meet: ${one.text.textContent}, ${other.text.textContent}`);
  }));
  nodes.forEach((one, i) => nodes.slice(0, i).forEach((other) => meet(one, other) && say("boxes meet")));
  const lines = [...svg.querySelectorAll(".line")].map((line) => {
    const length = line.getTotalLength();
    return Array.from({length: Math.ceil(length / 2)}, (_, i) => line.getPointAtLength(2 * i));
  });
  lines.forEach((points, i) => {
    for (const {x, y} of points) {
      const on = labels.find(({at}) => x > at[0] && x < at[2] && y > at[1] && y < at[3]);
      if (on) { say(`a line crosses ${on.text.textContent}`); break; }
    }
    for (const other of lines.slice(0, i))
      if (points.slice(2, -2).some((p) => other.slice(2, -2).some((q) => Math.hypot(p.x - q.x, p.y - q.y) < 4)))
        say("two lines meet");
  });
  if (svg.outerHTML.includes("NaN") || svg.outerHTML.includes("undefined")) say("not a number");
  return faults;
}"""


def installed_browser() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def a_judged_run(folder: Path) -> Path:
    """A small run of one's own, evaluated, with paths drawn for judging."""
    run = copy_of_run(folder / "family")
    command = CliRunner()
    found = command.invoke(app, ["evaluate", str(run), "--json"])
    assert found.exit_code == 0, found.output
    file = evaluation_file(run, "paths", "test")
    if not file.exists():
        file.write_text(json.dumps(json.loads(found.stdout)), encoding="utf-8")
    drawn = command.invoke(app, ["study", "annotate", str(run), "-n", "2", "--annotator", "cli"], input="q\n")
    assert drawn.exit_code == 0, drawn.output
    return run


@contextmanager
def serving(*arguments: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address of `squire serve` with these arguments."""
    command = [sys.executable, "-m", "squire", "serve", *arguments, "--port", "0"]
    with TemporaryFile("w+", encoding="utf-8") as log:  # a pipe that nobody reads would fill up
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **(env or {})}
        )
        assert process.stdout is not None
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            if not found:
                process.wait()
                log.seek(0)
                raise AssertionError(log.read())
            yield found.group().rstrip("/")
        finally:
            process.terminate()
            process.communicate()


@dataclass
class Visit:
    """A page that is looked at, and everything that should not have happened on it."""

    page: Page
    address: str
    may_fail: set[int] = field(default_factory=set)  # statuses that a test provokes
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.troubles.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self._on_request(request.url))

    def _on_console(self, message: Any) -> None:
        status = re.search(r"status of (\d+)", message.text)
        if message.type in ("error", "warning") and not (status and int(status.group(1)) in self.may_fail):
            self.troubles.append(f"{message.type}: {message.text}")

    def _on_request(self, url: str) -> None:
        if urlsplit(url).scheme != "blob" and urlsplit(url).hostname != LOOPBACK:
            self.troubles.append(f"left this machine: {url}")

    def open(self, place: str = "") -> None:
        """`#/ask?head=cleo&relation=grandparent`, and wait until it is there."""
        self.page.goto(f"{self.address}/{place}")
        self.settle()

    def settle(self) -> None:
        expect(self.page.locator("#model-facts")).not_to_be_empty()
        expect(self.page.locator("#progress")).to_be_hidden()

    def ask(self, entity: str, relation: str) -> None:
        """By typing whole names."""
        self.page.locator("#entity").fill(entity)
        self.page.locator("#relation").fill(relation)
        self.page.locator("#ask-button").click()
        self.settle()

    @property
    def answers(self) -> Locator:
        return self.page.locator("#answers [role=option].answer")

    @property
    def chosen(self) -> Locator:
        return self.page.locator("#answers .answer[aria-selected=true] .name")

    def names(self) -> list[str]:
        """Those of unlikely answers, which are folded away, as well."""
        return self.page.locator("#answers .answer .name").all_text_contents()

    def is_wider_than_the_screen(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


@contextmanager
def visiting(browser: Browser, address: str, **decoding: Any) -> Iterator[Visit]:
    """A visit in a browser profile of its own; nothing bad may have happened at its end."""
    context: BrowserContext = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **decoding})
    context.set_default_timeout(PATIENCE)
    visit = Visit(context.new_page(), address)
    try:
        yield visit
        assert visit.troubles == []
    finally:
        context.close()


def asked(address: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """What the service says to anyone."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/api/{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)
