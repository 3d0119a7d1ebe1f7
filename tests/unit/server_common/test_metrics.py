"""Tallies, figures as Prometheus reads them, and the port with the probes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from email.message import Message
from http.client import HTTPConnection

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from rangelog_core.errors import Unavailable
from rangelog_server_common.address_settings import check_listen_or_none
from rangelog_server_common.metrics.call_tally import CallTally
from rangelog_server_common.metrics.endpoint import MetricsEndpoint
from rangelog_server_common.metrics.exposition import SERIES_MAX, make_registry
from rangelog_server_common.metrics.figures import FigureGroup, counter, gauge, histogram
from rangelog_server_common.metrics.listening import serve_metrics
from rangelog_server_common.metrics.tally import DURATION_BOUNDS_S, DurationTally, count_by


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(1, 5))))
def test_a_tally_has_each_observation_once(observed: list[tuple[float, int]]) -> None:
    """Up to each bound are those that do not exceed it; the last bucket has all of them."""
    tally = DurationTally()
    for seconds, count in observed:
        tally.observe(seconds, count)
    found = tally.cumulative()
    assert [float(bound) for bound, _ in found[:-1]] == list(DURATION_BOUNDS_S) and found[-1][0] == "+Inf"
    for bound, count in found:
        assert count == sum(many for seconds, many in observed if seconds <= float(bound))
    assert tally.count == sum(many for _, many in observed)
    assert tally.total_s == pytest.approx(sum(seconds * many for seconds, many in observed))


def test_kinds_are_bounded() -> None:
    """However many kinds come, few labels are exported; those that are known go on."""
    counts: dict[str, int] = {}
    for number in range(500):
        count_by(counts, f"kind{number}", 10)
    count_by(counts, "kind3", 10)
    assert len(counts) == 11 and counts["kind3"] == 2 and counts["other"] == 490


async def scraped(parts: Sequence[FigureGroup[object]]) -> dict[str, float]:
    """Every sample of a process with these parts, by name and labels, as a scrape over HTTP parses it."""
    async with serving(parts) as port:
        status, _, body = await ask(port, "/metrics")
    assert status == 200
    return {
        sample.name + "".join(f" {key}={value}" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }


async def test_figures_over_http() -> None:
    """Counters, gauges, histograms, by no label, one or two; what is None is left out; each scrape looks once."""
    tally = DurationTally()
    tally.observe(0.3, 4)
    looks = []
    figures = [
        counter("x_total", "…", lambda s: 7),
        gauge("x_bytes", "…", lambda s: {"a": 1, "b": 2}, "kind"),
        gauge("x_pairs", "…", lambda s: {("a", "b"): 3}, "left", "right"),
        gauge("x_absent", "…", lambda s: None),
        histogram("x_seconds", "…", lambda s: {"m": tally}, "method"),
    ]
    found = await scraped([FigureGroup(lambda: looks.append(1), figures)])
    assert found["x_total"] == 7 and found["x_bytes kind=b"] == 2 and found["x_pairs left=a right=b"] == 3
    assert found["x_seconds_bucket le=0.25 method=m"] == 0 and found["x_seconds_bucket le=0.5 method=m"] == 4
    assert found["x_seconds_count method=m"] == 4 and found["x_seconds_sum method=m"] == pytest.approx(1.2)
    assert not [name for name in found if name.startswith("x_absent")]
    assert found["process_open_fds"] > 0 and found["rangelog_metrics_series_left_out"] == 0
    assert "rangelog_event_loop_lag_seconds_count" in found
    assert [name for name in found if name.startswith("rangelog_build_info") and "role=pd" in name]
    assert len(looks) == 1


async def test_series_are_bounded_and_what_is_left_out_is_counted() -> None:
    """A label with too many values makes no scrape large."""
    many = {f"s{number}": 1.0 for number in range(SERIES_MAX + 5)}
    found = await scraped([FigureGroup(lambda: None, [gauge("x_many", "…", lambda s: many, "server")])])
    assert sum(name.startswith("x_many") for name in found) == SERIES_MAX
    assert found["rangelog_metrics_series_left_out"] == 5


def test_a_name_is_exported_once() -> None:
    """Two figures of one name would be two answers to one question."""
    same = [FigureGroup(lambda: None, [gauge("x_bytes", "…", lambda s: 1)]) for _ in range(2)]
    with pytest.raises(ValueError, match="x_bytes"):
        make_registry("pd", "pd1", same)


def test_calls_are_counted_by_method_and_code() -> None:
    """A method that fails has both codes."""
    calls = CallTally()
    calls.ended("/rangelog.v1.X/Y", "OK", 0.1)
    calls.ended("/rangelog.v1.X/Y", "OK", 0.2)
    calls.ended("/rangelog.v1.X/Y", "FENCED", 0.1)
    assert calls.counts() == {("rangelog.v1.X/Y", "OK"): 2, ("rangelog.v1.X/Y", "FENCED"): 1}
    assert calls.durations["rangelog.v1.X/Y"].count == 3


# ---- the port


@asynccontextmanager
async def serving(parts: Sequence[FigureGroup[object]] = (), problems: Sequence[str] = ()) -> AsyncIterator[int]:
    """An endpoint on a free port."""
    endpoint = MetricsEndpoint("pd", "pd1", parts, lambda: problems)
    try:
        yield int((await endpoint.start("127.0.0.1:0")).rpartition(":")[2])
    finally:
        await endpoint.close()
        await endpoint.close()


async def ask(port: int, path: str, method: str = "GET") -> tuple[int, Message, str]:
    """Return status, headers and body."""

    def call() -> tuple[int, Message, str]:
        connection = HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.headers, response.read().decode()
        finally:
            connection.close()

    return await asyncio.to_thread(call)


async def test_probes_without_a_problem() -> None:
    """Alive and ready; other paths and methods are refused; a HEAD has no body."""
    async with serving() as port:
        for path in ("/livez", "/readyz"):
            assert (await ask(port, path))[0::2] == (200, "ok\n")
        assert (await ask(port, "/readyz", "HEAD"))[0::2] == (200, "")
        assert (await ask(port, "/../etc/passwd"))[0] == (await ask(port, "/"))[0] == 404
        status, headers, _ = await ask(port, "/metrics", "POST")
        assert status == 405 and headers["allow"] == "GET, HEAD"


async def test_a_problem_makes_it_not_ready_and_leaves_it_alive() -> None:
    """Each reason is a line."""
    async with serving(problems=["no leader", "the log is full"]) as port:
        assert (await ask(port, "/readyz"))[0::2] == (503, "no leader\nthe log is full\n")
        assert (await ask(port, "/livez"))[0] == 200


async def test_a_port_in_use() -> None:
    """A typed error that names the setting; nothing is left open."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = MetricsEndpoint("pd", "pd1", [], list)
        with pytest.raises(Unavailable, match="metrics_listen"):
            await endpoint.start(f"127.0.0.1:{taken.getsockname()[1]}")
        await endpoint.close()


async def test_without_an_address_nothing_listens() -> None:
    """An empty setting: no port, and no address in the endpoint file."""
    async with AsyncExitStack() as stack:
        assert await serve_metrics(stack, "", "pd", "pd1", [], list) == ""


@pytest.mark.parametrize("value", ["9100", "host", "127.0.0.1:70000", ":1", "a b:1:"])
def test_bad_addresses(value: str) -> None:
    """Refused before anything starts."""
    with pytest.raises(ValueError, match="host:port"):
        check_listen_or_none(value)
    assert check_listen_or_none("") == "" and check_listen_or_none("[::1]:0") == "[::1]:0"
