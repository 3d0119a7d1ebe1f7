"""A real Chromium for the tests of the page, where there is one; without one they are skipped, which says how to get it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM_ENV = "RANGELOG_CHROMIUM"
HOW_TO_GET_ONE = f"no Chromium: `playwright install chromium`, or name one in {CHROMIUM_ENV}"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")


def chromium() -> str | None:
    """Return the path of a Chromium: of the environment, of Playwright, of the system; None: there is none."""
    named = os.environ.get(CHROMIUM_ENV)
    if named:
        return named if Path(named).is_file() else None
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    if Path(own).is_file():
        return own
    return next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def open_browser(path: str) -> Iterator[Any]:
    """Start the browser; it ends with the block. It makes no request but those of its pages."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            args=[
                "--no-sandbox",
                "--disable-background-networking",
                "--disable-component-update",
                "--force-color-profile=srgb",
            ],
        )
        try:
            yield browser
        finally:
            browser.close()
