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


@pytest.fixture(scope="module")  # no longer: while it is there, its event loop is in everybody's way
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    from page_visit import MISSING, installed_browser
    from playwright.sync_api import sync_playwright

    path = installed_browser()
    if path is None:
        if reporter := request.config.pluginmanager.get_plugin("terminalreporter"):
            reporter.write_line(f"\n{MISSING}", red=True, bold=True)
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def page_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from page_visit import a_judged_run

    return a_judged_run(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="session")
def address(page_run: Path) -> Iterator[str]:
    from page_visit import serving

    with serving(str(page_run)) as where:
        yield where


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Visit]:
    """`browser` comes first: where there is none, nothing is trained."""
    from page_visit import visiting

    with visiting(browser, address) as one:
        yield one
