"""A real browser for the pages, skipped in words where there is none on this machine.

Playwright's own test plugin is not used: it would run its event loop through the whole session.
Here the loop lives as long as one module's browser.
"""

import os
import shutil
from collections.abc import Iterator

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WAIT_MS = 10_000


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Chromium, with Django told that the loop in this thread is the browser's."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="no Playwright: pip install 'escalations[e2e]'"
    )
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    with playwright.sync_playwright() as running:
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
        chromium = running.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def page(browser, live_server) -> Iterator[object]:
    """A page of its own visitor; complaints of the browser (CSP, scripts) fail the test."""
    context = browser.new_context(base_url=live_server.url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if _is_bad(said) else None)
    yield page
    context.close()
    assert complaints == []


def _is_bad(said) -> bool:
    # A refused action is a 4xx page on purpose, which Chromium reports as an error.
    return said.type == "error" and "the server responded with a status of 4" not in said.text
