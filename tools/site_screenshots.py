"""Take the pictures of the documentation in docs/images: `make docs`, then `python tools/site_screenshots.py`.

The site is served on loopback: pages open as files, too, but then without the search. A page that asks any other address for
anything fails the run.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.browser import HOW_TO_GET_ONE, chromium, open_browser

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "site"
BYTES_MAX = 150_000
"""Of one picture: they are in the repository."""
DESKTOP = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 375, "height": 760}, "is_mobile": True, "has_touch": True}
PICTURES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("site-start", "index.html", DESKTOP),
    ("site-quickstart", "quickstart.html", DESKTOP),
    ("site-search", "index.html", DESKTOP | {"viewport": {"width": 1280, "height": 520}}),
    ("site-errors", "errors.html", DESKTOP),
    ("site-api", "api/client.html", DESKTOP),
    ("site-recipes-phone", "recipes.html", PHONE),
)


def main() -> int:
    """Return 0 when all pictures were taken, none is too large and no page asked the network for anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images", help="The folder of the pictures.")
    to: Path = parser.parse_args().to
    path = chromium()
    if path is None:
        print(f"site_screenshots: {HOW_TO_GET_ONE}", file=sys.stderr)
        return 1
    if not (SITE / "index.html").is_file():
        print("site_screenshots: no site in build/site: run `make docs` first", file=sys.stderr)
        return 1
    to.mkdir(parents=True, exist_ok=True)
    wrong: list[str] = []
    with _served() as origin, open_browser(path) as browser:
        for name, address, options in PICTURES:
            context = browser.new_context(**options)
            page = context.new_page()
            page.on("request", lambda request: _note_foreign(request.url, origin, wrong))
            page.goto(origin + address)
            page.wait_for_load_state("networkidle")
            if name == "site-search":
                page.locator("input.md-search__input").press_sequentially("quarantined")
                page.wait_for_selector(".md-search-result__item")
            file = to / f"{name}.png"
            page.screenshot(path=file)
            print(f"{file.name}: {file.stat().st_size:,} bytes")
            if file.stat().st_size > BYTES_MAX:
                wrong.append(f"{name} is above {BYTES_MAX:,} bytes")
            context.close()
    for each in wrong:
        print(f"site_screenshots: {each}", file=sys.stderr)
    return 1 if wrong else 0


@contextmanager
def _served() -> Iterator[str]:
    """Serve the site while the block runs; yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(SITE))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Say nothing of a request."""


def _note_foreign(url: str, origin: str, wrong: list[str]) -> None:
    if not url.startswith((origin, "data:", "blob:")):
        wrong.append(f"a page asked for {url}")


if __name__ == "__main__":
    sys.exit(main())
