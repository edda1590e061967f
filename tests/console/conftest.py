"""One manager with a full console, one that wants a login, and a browser, for all tests of the console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.console.sites import BROWSER_FLAGS, CHROMIUM, PATIENCE_S, Site, alpha, fill, guarded

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")  # tests of a file change what is there
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with alpha(tmp_path_factory.mktemp("alpha")) as running:
        fill(running)
        yield running


@pytest.fixture(scope="module")  # tests of a file change what is there
def login_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with guarded(tmp_path_factory.mktemp("guarded")) as running:
        yield running


@pytest.fixture(scope="module")  # its event loop runs until it ends: other files need one of their own
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with playwright.sync_playwright() as runner:
        running = runner.chromium.launch(executable_path=CHROMIUM, args=BROWSER_FLAGS)
        yield running
        running.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in a session of its own. Whatever the browser complains about, such as a script that the policy forbids,
    fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE_S * 1000)
    complaints: list[str] = []
    opened.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    title = opened.title()
    context.close()
    assert title != "owned"
    # An answer that is an error is one that the test asked for. A console that the test itself started may be gone
    # before its page, which still asks it for news.
    expected = ("the server responded with a status of", "net::ERR_CONNECTION_REFUSED")
    assert [each for each in complaints if not any(words in each for words in expected)] == []
