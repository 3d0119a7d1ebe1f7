"""The page in a real Chromium, over a real cluster: what is seen, tapped and typed, on a phone too, and what is asked for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rangelog.sync
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.page_ports import enable_page
from rangelog_cli.local.processes import Cluster
from rangelog_core.net.principals import Principal, Role
from tests.support.browser import HOW_TO_GET_ONE, chromium, open_browser
from tests.support.page_cluster import CONSUMED, GROUP_RECORDS, RANGE_RECORDS, TRIMMED, fill, until_tiered
from tests.support.waiting import Seen, arrives, eventually

CHROMIUM = chromium()
pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason=HOW_TO_GET_ONE),
]

PATHS = (
    "/", "/streams", "/streams/flights", "/streams/clicks", "/streams/empty", "/streams/none", "/topics",
    "/topics/default/orders", "/groups", "/groups/kitchen", "/tasks", "/health", "/nowhere",
)  # fmt: skip
PHONE = {"viewport": {"width": 375, "height": 700}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
SHIFT_MAX = 0.05
"""Cumulative layout shift; 0.1 counts as good."""
ENV = {
    "RANGELOG_SERVER_SEGMENT_SIZE_BYTES": str(16 * 1024 * 1024),
    "RANGELOG_PD_SERVER_SUSPECT_MS": "500",
    "RANGELOG_PD_SERVER_DEAD_MS": "1000",
}


class Site:
    """A cluster, the addresses of its pages, and a browser."""

    def __init__(self, cluster: Cluster, urls: list[str], browser: Any) -> None:
        self.cluster = cluster
        self.urls = [each.rstrip("/") for each in urls]
        self.browser = browser
        self.requests: list[str] = []
        self.problems: list[str] = []

    @contextmanager
    def page(self, path: str, *, at: int = 0, **options: Any) -> Iterator[Any]:
        """Open an address in a window of its own; no script may fail there, and no policy be broken."""
        context = self.browser.new_context(**({"viewport": {"width": 1180, "height": 800}} | options))
        self.requests, self.problems = [], []
        context.add_init_script(
            "window.shift = 0; new PerformanceObserver((list) => { for (const each of list.getEntries())"
            " if (!each.hadRecentInput) window.shift += each.value; }).observe({type: 'layout-shift', buffered: true});"
        )
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda message: self._console(message))
        try:
            page.goto(self.urls[at] + path)
            yield page
        finally:
            context.close()

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.problems.append(message.text)

    def parts(self, name: str) -> list[str]:
        """The requests so far for a section."""
        return [each for each in self.requests if f"/parts/{name}?" in each]

    def wait_for_part(self, page: Any, name: str, count: int) -> None:
        """Wait until a section was asked for so often."""

        def asked() -> Seen:
            page.evaluate("document.readyState")  # requests are noted in calls only
            return Seen(len(self.parts(name)) >= count, self.requests)

        eventually(asked, f"{name} is not asked for")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    assert CHROMIUM is not None
    with open_browser(CHROMIUM) as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Site]:
    made = Cluster.open(tmp_path_factory.mktemp("page"), pds=1, range_servers=3, brokers=1, env=ENV)
    urls = enable_page(made)
    with made as cluster:
        wait_healthy(cluster)
        asyncio.run(fill(cluster))
        asyncio.run(until_tiered(cluster, len(RANGE_RECORDS) - 1))
        yield Site(cluster, urls, request.getfixturevalue("browser"))  # it owns the loop of this thread from then on


def becomes(page: Any, expression: str) -> None:
    """Wait until an expression is true there. Playwright's own way evaluates text in the page, which its policy forbids."""
    eventually(lambda: page.evaluate(expression), expression)


def settled(page: Any) -> None:
    """Wait until a section that is on the screen was looked at again."""
    becomes(page, "performance.getEntriesByType('resource').some((each) => each.name.includes('/parts/'))")


@pytest.mark.parametrize("path", PATHS)
def test_a_phone(site: Site, path: str) -> None:
    """Nothing is wider than 375 px, in light and in dark; what one taps is large enough; no script fails."""
    grounds = []
    for scheme in ("light", "dark"):
        with site.page(path, color_scheme=scheme, **PHONE) as page:
            assert page.evaluate("document.documentElement.scrollWidth") <= 375
            wide = page.evaluate(
                "[...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > 376)"
                ".map((e) => e.outerHTML.slice(0, 120))"
            )
            assert not wide, wide
            grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            for link in page.locator("header nav a").all():
                assert link.bounding_box()["height"] >= 36
            assert site.problems == []
    assert grounds[0] != grounds[1]


@pytest.mark.parametrize("path", PATHS)
def test_each_view(site: Site, path: str) -> None:
    """One heading, a language, landmarks, named sections and fields, no foreign request, nothing that moves, quick."""
    with site.page(path) as page:
        assert page.locator("h1").count() == 1 and page.locator("html[lang=en]").count() == 1
        assert page.locator("main").count() == 1 and page.locator("header nav[aria-label]").count() == 1
        unnamed = page.evaluate(
            "[...document.querySelectorAll('section, table, input, svg[role], rect[role], nav, button')].filter((e) =>"
            " !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.labels?.length || e.textContent.trim()))"
            ".map((e) => e.outerHTML)"
        )
        assert not unnamed, unnamed
        if path not in ("/nowhere", "/streams/none"):
            settled(page)
        assert page.evaluate("window.shift") < SHIFT_MAX
        timing = page.evaluate("performance.getEntriesByType('navigation')[0].toJSON()")
        assert timing["domContentLoadedEventEnd"] < 3_000
        assert all(each.startswith(site.urls[0]) for each in site.requests), site.requests
        assert site.problems == []


def test_the_map(site: Site) -> None:
    """Each server stands in its zone with its state and load; the load comes once two looks have been taken."""
    with site.page("/") as page:
        assert page.locator(".zone h3").all_inner_texts() == ["zone zone1", "zone zone2", "zone zone3"]
        becomes(
            page,
            "[...document.querySelectorAll('.server .state')].map(e => e.textContent.trim()).join() === 'alive,alive,alive'",
        )
        becomes(
            page, "document.querySelectorAll('.load').length === 3 && !document.body.textContent.includes('measured')"
        )
        assert all(
            re.search(r"/s in, .*/s out, .* records/s", each) for each in page.locator(".load").all_inner_texts()
        )


def test_a_drawing_tells(site: Site) -> None:
    """Pointing, tapping and walking with the keys say what a box is: servers, offsets, the object's key."""
    with site.page("/streams/flights") as page:
        ranges = page.locator(".lane").nth(0).locator(".box")
        assert ranges.count() == len(RANGE_RECORDS)
        told = page.locator(".tell")
        ranges.nth(1).hover()
        said = re.match(r"(.*?); replicas on ([^;]*)", told.inner_text())
        assert said and said[1] == f"range 1, sealed; offsets {RANGE_RECORDS[0]} to {sum(RANGE_RECORDS[:2])}"
        assert sorted(re.findall(r"rs\d", said[2])) == ["rs1", "rs2", "rs3"], "in the order of their loads then"
        page.locator(".box.object").first.hover()
        assert "object" in told.inner_text() and "key " in told.inner_text() and ".parquet" in told.inner_text()
        ranges.nth(0).focus()
        for key, kind in (("ArrowRight", "range 1"), ("ArrowRight", "range 2"), ("ArrowDown", "replica of range 2 on rs1"),
                          ("ArrowLeft", "replica of range 1 on rs1"), ("ArrowUp", "range 1, sealed")):  # fmt: skip
            page.keyboard.press(key)
            assert told.inner_text().startswith(kind), (key, told.inner_text())
        trim = page.locator("rect.trim")
        assert trim.count() == 5 and 0 < float(trim.first.get_attribute("width").rstrip("%")) < 20  # in each lane
        assert (
            page.locator(".facts")
            .inner_text()
            .replace("\n", " ")
            .startswith(f"start {TRIMMED} end {sum(RANGE_RECORDS):,}")
        )
        before = told.inner_text()
        seen = len(site.parts("stream"))
        page.locator("summary").click()
        becomes(page, "document.querySelector('#ranges-as-table').open")
        site.wait_for_part(page, "stream", seen + 2)
        assert (
            page.locator("#ranges-as-table[open]").count() == 1 and told.inner_text() == before
        )  # a new look leaves both
    with site.page("/streams/flights", **PHONE) as page:
        page.locator(".box.open").tap()
        assert page.locator(".tell").inner_text().startswith(f"range {len(RANGE_RECORDS) - 1}, open")


def append(client: rangelog.sync.Client, values: list[bytes]) -> None:
    with client.writer("clicks") as writer:
        writer.append_batch(values)


def test_a_live_tail(site: Site) -> None:
    """New records appear by themselves, in order, escaped; a pause holds them; no more are kept than the limit."""
    with site.page("/streams/clicks") as page, rangelog.sync.connect(site.cluster.connect_string) as client:
        page.locator(".tail").scroll_into_view_if_needed()
        values = page.locator(".tail .value")
        assert values.count() == 2 and "<script>window.hit = 1</script>" in values.nth(0).inner_text()
        assert "\\u202e" in values.nth(0).inner_text() and values.nth(1).inner_text() == "ff 00 01"
        append(client, [b"live one", b"live two"])
        arrives(values.count, 4, "records on the page")
        assert values.all_inner_texts()[2:] == ["live one", "live two"]
        page.locator(".pause").click()
        assert page.locator(".pause").get_attribute("aria-pressed") == "true"
        append(client, [b"while paused"])
        page.locator(".pause").click()
        arrives(values.count, 5, "records on the page")
        for _ in range(6):
            append(client, [b"many %d" % each for each in range(45)])
        becomes(page, "document.querySelector('.tail').lastElementChild.textContent.includes('many 44')")
        arrives(
            lambda: page.evaluate("document.querySelector('.tail').dataset.next"),
            "275",
            "the offset behind the last record",
        )
        assert page.locator(".tail li").count() <= 200
        offsets = [int(each) for each in page.locator(".tail .offset").all_inner_texts()]
        assert offsets == sorted(set(offsets)) and offsets[-1] == 274
        assert page.evaluate("window.hit") is None and site.problems == []


def test_only_what_is_on_the_screen_is_asked_for(site: Site) -> None:
    """A tail below the edge of the window is not followed before somebody scrolls there; what has not changed is not sent."""
    with site.page("/streams/flights", viewport={"width": 1000, "height": 300}) as page:
        statuses: list[int] = []
        page.on(
            "response", lambda response: statuses.append(response.status) if "/parts/stream" in response.url else None
        )
        for count in range(3, 7):  # a server that is suspect for a moment changes the part
            site.wait_for_part(page, "stream", count)
            if 304 in statuses:
                break
        assert site.parts("tail") == [] and 304 in statuses
        page.locator(".tail").scroll_into_view_if_needed()
        site.wait_for_part(page, "tail", 1)


def test_search_by_keyboard(site: Site) -> None:
    """From the top: the first stop skips to the content, then the tabs, then the field; the search keeps what was typed."""
    with site.page("/streams") as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "prefix"
        page.keyboard.type("cli")
        page.keyboard.press("Enter")
        page.wait_for_url("**/streams?prefix=cli")
        assert page.locator("tbody tr").count() == 1 and page.locator("#prefix").input_value() == "cli"
        page.locator("tbody a").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/streams/clicks")


def test_topics_and_groups(site: Site) -> None:
    """A topic's shards lie beside each other and lead to their streams; a group's lag is what it has not committed."""
    with site.page("/topics/default/orders") as page:
        assert page.locator("tbody tr").count() == 4 and page.locator("[data-key^='keys-']").count() == 4
        assert "built-in" not in page.content()
        page.locator("tbody tr").first.locator("a").click()
        page.wait_for_url("**/streams/_topic-*")
        assert page.locator(".box.open").count() == 1
    with site.page("/groups/kitchen") as page:
        facts = page.locator(".facts").inner_text().replace("\n", " ")
        assert facts.startswith(f"lag, records {GROUP_RECORDS - CONSUMED} ")


def test_names_in_addresses_do_not_run(site: Site) -> None:
    """What an address says is shown as text."""
    for path in (
        "/streams/%3Cimg%20src=x%20onerror=window.hit=1%3E",
        "/streams?prefix=%22%3E%3Cscript%3Ewindow.hit=1%3C/script%3E",
    ):
        with site.page(path) as page:
            assert page.evaluate("window.hit") is None and page.locator("main img, main script").count() == 0
            assert site.problems == []


def test_a_server_that_dies_and_a_placement_driver_that_is_gone(site: Site) -> None:
    """The map shows a dead server and what to do; a page whose placement driver is away says so, and goes on by itself."""
    with site.page("/") as page:
        site.cluster.kill("rs3")
        try:
            page.wait_for_selector(".server.bad .state:text('dead')")
            page.wait_for_selector(".headline .state:text('degraded')")
            page.goto(site.urls[0] + "/streams/flights")
            page.wait_for_selector(".lane .state:text('dead')")
            page.goto(site.urls[0] + "/health")
            assert "start it again" in page.locator("#section-findings").inner_text()
        finally:
            site.cluster.start_member("rs3")
        page.goto(site.urls[0] + "/streams")
        site.cluster.kill("pd1")
        try:
            page.wait_for_selector("#freshness.late")
            assert "Trying again" in page.locator("#freshness").inner_text()
            assert page.locator("tbody tr").count() == 3  # what was known stays
        finally:
            site.cluster.start_member("pd1")
        becomes(page, "document.querySelector('#freshness').textContent === ''")
        wait_healthy(site.cluster)


def test_certificates_in_the_browser(tmp_path: Path, browser: Any) -> None:
    """With TLS a browser shows a certificate: a client sees streams and no administration, an admin all, nobody nothing."""
    made = Cluster.open(tmp_path / "tls", pds=1, range_servers=3, tls=True, env=ENV)
    (url,) = enable_page(made)
    assert made.certificates is not None
    files = {role: made.certificates.files(Principal(role, "local")) for role in (Role.CLIENT, Role.ADMIN)}
    with made as cluster:
        wait_healthy(cluster)
        shown = {}
        for role, each in files.items():
            certificate = {"origin": url.rstrip("/"), "certPath": each.cert, "keyPath": each.key}
            context = browser.new_context(client_certificates=[certificate], ignore_https_errors=True)
            page = context.new_page()
            for path in ("", "streams", "tasks", "health"):
                page.goto(url + path)
                shown[role, path] = page.locator("main").inner_text()
            context.close()
        stranger = browser.new_context(ignore_https_errors=True).new_page()
        with pytest.raises(Exception, match="ERR_"):
            stranger.goto(url)
    assert (
        "There are no tasks" in shown[Role.ADMIN, "tasks"] and "placement drivers answer" in shown[Role.ADMIN, "health"]
    )
    for role in files:
        assert "There are no streams" in shown[role, "streams"] and "rs1" in shown[role, ""]
    for path in ("tasks", "health"):
        assert "take a certificate of role admin" in shown[Role.CLIENT, path]
    assert "load of each server is shown to certificates of role admin" in shown[Role.CLIENT, ""]
