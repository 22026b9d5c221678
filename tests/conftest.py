"""How property tests run: the same examples every time, on machines of any speed. What tests of the page share.

`pytest --hypothesis-profile=default` looks for new examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:  # a browser is only for those tests that ask for one
    from page_visit import Visit
    from playwright.sync_api import Browser

settings.register_profile("house", derandomize=True, deadline=None)
settings.load_profile("house")

PAGE_MISSING = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def chromium(request: pytest.FixtureRequest) -> str:
    """Where it is. Where there is none, this is said loudly, nothing is trained, and the other tests go on."""
    from page_visit import MISSING, installed_browser

    path = installed_browser()
    if path is None:
        request.config.stash[PAGE_MISSING] = MISSING
        pytest.skip(MISSING)
    return path


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if words := terminalreporter.config.stash.get(PAGE_MISSING, None):
        terminalreporter.write_sep("!", words, red=True, bold=True)


@pytest.fixture(scope="module")  # no longer: while it is there, its event loop is in everybody's way
def browser(chromium: str) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def page_run(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from page_visit import a_judged_run

    return a_judged_run(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="session")
def address(page_run: Path) -> Iterator[str]:
    from page_visit import serving

    with serving(str(page_run)) as where:
        yield where


@pytest.fixture(scope="session")
def fused(chromium: str) -> Iterator[str]:
    """The address of a service whose model gives confidences, and has not been evaluated."""
    from page_visit import serving
    from small_run import fused_run

    with serving(f"family={fused_run()}") as where:
        yield where


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Visit]:
    from page_visit import visiting

    with visiting(browser, address) as one:
        yield one
