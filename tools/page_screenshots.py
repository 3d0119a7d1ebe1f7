"""Take the pictures of docs/images from a real cluster: `RANGELOG_CHROMIUM=… python tools/page_screenshots.py`.

The cluster has three placement drivers, five range servers and two brokers, with a cordoned server, a dead one, ranges in the
tier and a group that lags.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rangelog
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.processes import Cluster
from tests.support.browser import HOW_TO_GET_ONE, chromium, open_browser
from tests.support.page_cluster import RANGE_RECORDS, fill, opened, until_tiered

ROOT = Path(__file__).resolve().parents[1]
BYTES_MAX = 150_000
"""Of one picture: they are in the repository."""
DESKTOP = {"viewport": {"width": 1100, "height": 760}}
PHONE = {"viewport": {"width": 375, "height": 760}, "is_mobile": True, "has_touch": True}
PICTURES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("page-cluster", "/", DESKTOP),
    ("page-stream", "/streams/flights", DESKTOP),
    ("page-topic", "/topics/default/orders", DESKTOP),
    ("page-tasks", "/tasks", DESKTOP),
    ("page-health", "/health", DESKTOP | {"color_scheme": "dark"}),
    ("page-cluster-phone", "/", PHONE),
    ("page-stream-phone", "/streams/flights", PHONE | {"color_scheme": "dark"}),
    ("page-group-phone", "/groups/kitchen", PHONE),
)
ENV = {
    "RANGELOG_SERVER_SEGMENT_SIZE_BYTES": str(16 * 1024 * 1024),
    "RANGELOG_PD_SERVER_DEAD_MS": "2500",
    "RANGELOG_PD_REPAIR_AFTER_MS": "600000",
}


def main() -> int:
    """Return 0 when all pictures were taken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images", help="The folder of the pictures.")
    to: Path = parser.parse_args().to
    path = chromium()
    if path is None:
        print(f"page_screenshots: {HOW_TO_GET_ONE}", file=sys.stderr)
        return 1
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rangelog-page-") as directory:
        made, urls = opened(Path(directory) / "demo", ENV)
        url = urls[0].rstrip("/")
        with made as cluster:
            wait_healthy(cluster)
            asyncio.run(fill(cluster))
            asyncio.run(until_tiered(cluster, len(RANGE_RECORDS) - 1))
            stop = threading.Event()
            load = threading.Thread(target=lambda: asyncio.run(_append(cluster, stop)))
            load.start()
            try:
                _pdctl(cluster, "server", "cordon", "rs5")
                cluster.kill("rs4")
                too_large = _take(path, url, to)
            finally:
                stop.set()
                load.join()
    for each in too_large:
        print(f"page_screenshots: {each} is above {BYTES_MAX:,} bytes", file=sys.stderr)
    return 1 if too_large else 0


async def _append(cluster: Cluster, stop: threading.Event) -> None:
    """Append to `flights` until told to stop, so that there is load to be seen."""
    async with await rangelog.connect(cluster.connect_string) as client, client.writer("flights") as writer:
        number = 0
        while not stop.is_set():
            for _ in range(20):
                writer.append_nowait(b'{"flight": "AA%d", "origin": "JFK"}' % number, key=b"AA")
                number += 1
            await writer.flush()
            await asyncio.sleep(0.05)


def _pdctl(cluster: Cluster, *arguments: str) -> None:
    command = [sys.executable, "-m", "pdctl", "--pd", cluster.connect_string, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)


def _take(path: str, url: str, to: Path) -> list[str]:
    """Take all pictures; return the names of those that are too large."""
    too_large = []
    with open_browser(path) as browser:
        for name, address, options in PICTURES:
            context = browser.new_context(**options)
            page = context.new_page()
            page.goto(url + address)
            if address == "/":
                page.wait_for_selector(".server.bad")
                page.wait_for_selector(".load:not(.dim)")
            if "flights" in address:
                page.locator(".box.object").nth(1).hover()
            page.wait_for_timeout(2_500)
            file = to / f"{name}.png"
            page.screenshot(path=file, full_page="phone" not in name or address != "/")
            print(f"{file.name}: {file.stat().st_size:,} bytes")
            if file.stat().st_size > BYTES_MAX:
                too_large.append(name)
            context.close()
    return too_large


if __name__ == "__main__":
    sys.exit(main())
