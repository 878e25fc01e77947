"""Fixtures of the browser tests: one Chromium for all of them."""

from __future__ import annotations

import pytest

from . import lab


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium; without one the test is skipped, and the reason says what to do."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = lab.find_chromium()
    if chromium is None:
        pytest.skip("no Chromium here: install it, or name one with CHROMIUM=/path/to/chromium")
    with playwright.sync_playwright() as driver:
        window = driver.chromium.launch(executable_path=chromium)
        yield window
        window.close()
