"""Take the pictures of the page in docs/images from a run on `world`.

    python scripts/take_screenshots.py runs/demo

Needs Chromium, and a run that `squire evaluate` has evaluated, as `make demo` leaves it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, expect, sync_playwright

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
TAIL = "#/ask?head=Niger&relation=official+language"
HEAD = "#/ask?relation=official+language&tail=Portuguese"
Scheme = Literal["light", "dark"]
PICTURES: tuple[tuple[str, str, int, int, Scheme], ...] = (  # name, place on the page, width, height, colours
    ("page-answer", TAIL, 1280, 1180, "light"),
    ("page-dark", HEAD, 1280, 1180, "dark"),
    ("page-quality", "#/quality", 1280, 1000, "light"),
    ("page-narrow", TAIL, 390, 1500, "light"),
)


def main() -> None:
    chromium = shutil.which("chromium") or sys.exit("Chromium is not installed.")
    command = [sys.executable, "-m", "squire", "serve", f"demo={sys.argv[1]}", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service, sync_playwright() as playwright:
        assert service.stdout is not None
        address = re.search(r"http://\S+", service.stdout.readline())
        assert address is not None
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for picture in PICTURES:
            take(browser, address.group(), *picture)
        browser.close()
        service.terminate()


def take(browser: Browser, address: str, name: str, place: str, width: int, height: int, scheme: Scheme) -> None:
    """Open the page at a place, wait until it has settled, and write docs/images/NAME.png."""
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.goto(f"{address.rstrip('/')}/{place}")
    expect(page.locator("#model-facts")).not_to_be_empty(timeout=60_000)
    expect(page.locator("#progress")).to_be_hidden(timeout=60_000)
    page.wait_for_timeout(500)
    page.screenshot(path=IMAGES / f"{name}.png")
    page.close()


if __name__ == "__main__":
    main()
