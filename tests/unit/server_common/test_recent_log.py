"""The recent log: bounded in entries and bytes, numbered without gaps, read page by page, served to who may read it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangelog_core.errors import InvalidArgument, Unauthorized
from rangelog_core.net.peer_client import PeerClient
from rangelog_proto.v1 import logs_pb2
from rangelog_server_common import recent_log
from rangelog_server_common.grpc_server import GrpcServer
from rangelog_server_common.log_ring import COUNT_MAX, LEVELS, LINE_BYTES_MAX, PAGE_BYTES_MAX, LogRing
from rangelog_server_common.logs_service import LogsService
from rangelog_server_common.recent_log import RecentLog, line_of


def _ring(count: int, **bounds: int) -> LogRing:
    """Entries with the times and lines 1 … count, all of level info."""
    ring = LogRing(**bounds)
    for number in range(1, count + 1):
        ring.add("info", number, f"{number}")
    return ring


def _numbers(page: Any) -> list[int]:
    return [each.number for each in page.entries]


def test_the_oldest_entries_leave() -> None:
    """By count, and by bytes of UTF-8."""
    assert _numbers(_ring(7, count_max=3).read(limit=100)) == [5, 6, 7]
    ring = LogRing(bytes_max=10)
    for line in ("aaaa", "äää", "bbb", "c"):
        ring.add("info", 1, line)
    assert [each.line for each in ring.read(limit=9).entries] == ["äää", "bbb", "c"]
    assert (len(ring), ring.size_bytes) == (3, 10)


def test_an_endless_line_is_refused() -> None:
    """Before anything leaves for it."""
    ring = _ring(2)
    with pytest.raises(InvalidArgument, match=f"has {LINE_BYTES_MAX + 1} bytes"):
        ring.add("info", 3, "x" * (LINE_BYTES_MAX + 1))
    assert _numbers(ring.read(limit=9)) == [1, 2]


def test_the_newest_first_then_what_follows() -> None:
    """Without `after` the newest; with it the oldest behind it, by page."""
    ring = _ring(10)
    first = ring.read(limit=3)
    assert (_numbers(first), first.last, first.more, first.missed) == ([8, 9, 10], 10, False, 0)
    page = ring.read(limit=4, after=2)
    assert (_numbers(page), page.last, page.more) == ([3, 4, 5, 6], 6, True)
    page = ring.read(limit=4, after=6)
    assert (_numbers(page), page.last, page.more) == ([7, 8, 9, 10], 10, False)
    assert _numbers(ring.read(limit=4, after=10)) == []


def test_level_and_time() -> None:
    """The lowest level counts; a level that nobody knows is info; what is left out has been looked at."""
    ring = LogRing()
    for number, level in enumerate((*LEVELS, "notice"), start=1):
        ring.add(level, number * 10, level)
    assert [each.line for each in ring.read(limit=9, level="warning").entries] == ["warning", "error", "critical"]
    assert [each.line for each in ring.read(limit=9, level="info", since_ms=40).entries] == [
        "error",
        "critical",
        "notice",
    ]
    page = ring.read(limit=9, level="critical", after=5)
    assert (page.entries, page.last, page.more) == ((), 6, False)


def test_what_was_gone_is_counted() -> None:
    """Who reads too late is told how many entries it will not see."""
    page = _ring(100, count_max=10).read(limit=5, after=20)
    assert (_numbers(page), page.missed) == ([91, 92, 93, 94, 95], 70)


def test_a_page_is_bounded_in_bytes() -> None:
    """Whatever the limit; the rest follows."""
    ring = LogRing(bytes_max=1 << 30)
    for number in range(100):
        ring.add("info", number, "x" * LINE_BYTES_MAX)
    page = ring.read(limit=100, after=1)
    assert len(page.entries) == PAGE_BYTES_MAX // LINE_BYTES_MAX and page.more
    assert ring.read(limit=100, after=page.last).entries[0].number == page.last + 1


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": COUNT_MAX + 1}, {"limit": 1, "level": "loud"}])
def test_bad_questions(wrong: dict[str, Any]) -> None:
    """Are refused, with what may be asked."""
    with pytest.raises(InvalidArgument, match=r"ask for 1 to|take one of debug, info"):
        _ring(3).read(**wrong)


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(st.one_of(st.integers(0, 30), st.sampled_from(["read"])), max_size=40),
    limit=st.integers(1, 7),
    bytes_max=st.integers(30, 120),
)
def test_each_entry_once_or_missed(steps: list[Any], limit: int, bytes_max: int) -> None:
    """A follower sees every entry once, in order, or is told the number of those that it missed."""
    ring = LogRing(count_max=5, bytes_max=bytes_max)
    ring.add("info", 0, "")
    added, after = 1, ring.read(limit=1).last
    seen, missed = [1], 0
    for step in [*steps, *["read"] * 8]:
        if step != "read":
            ring.add("info", 0, "x" * step)
            added += 1
            assert len(ring) <= 5 and ring.size_bytes <= bytes_max
            continue
        page = ring.read(limit=limit, after=after)
        assert len(page.entries) <= limit
        seen += _numbers(page)
        missed += page.missed
        after = page.last
    assert seen == sorted(set(seen)) and len(seen) + missed == added == after


def _no_secret(line: str) -> str:
    return line.replace("s3cret", "***")


def test_lines_are_whole_or_say_that_they_were_cut() -> None:
    """A long text, many fields, what JSON has no form for, half a surrogate pair: one line of JSON that fits."""
    assert json.loads(line_of({"event": "serving", "port": 7}, _no_secret)) == {"event": "serving", "port": 7}
    long = json.loads(line_of({"event": "failed", "exception": "ä" * 100_000}, _no_secret))
    assert (
        long["cut"]
        and long["event"] == "failed"
        and long["exception"].startswith("äää")
        and len(long["exception"]) < 4_000
    )
    many = {"level": "error", "event": "wide"} | {f"k{number}": "v" * 100 for number in range(1_000)}
    assert json.loads(line_of(many, _no_secret)) == {"level": "error", "event": "wide", "cut": True}
    odd = json.loads(line_of({"event": "odd", "path": "\udce4", "of": {1, 2}}, _no_secret))
    assert odd["of"] == "{1, 2}" and odd["path"] == "\udce4"


def test_a_secret_at_the_edge_of_a_cut() -> None:
    """Is gone before the text is cut: no half of it stays."""
    for before in range(recent_log.TEXT_LENGTH_MAX - 8, recent_log.TEXT_LENGTH_MAX + 2):
        line = line_of({"event": "x" * before + "s3cret" * 3_000}, _no_secret)
        assert "s3" not in line and len(line.encode()) <= LINE_BYTES_MAX


SCRIPT = """
import logging, structlog, threading
from rangelog_server_common.logging import log_to_stderr
from rangelog_server_common.recent_log import RECENT
log_to_stderr("pd", "pd1", log_format="logfmt", secrets=("s3cret-token",))
structlog.get_logger("tier").info("uploaded", url="https://x?token=s3cret-token")
thread = threading.Thread(target=lambda: logging.getLogger("rangelog.pd").warning("%s of a library", "s3cret-token"))
thread.start()
thread.join()
print("\\n".join(each.line for each in RECENT.read(limit=9).entries))
"""


def test_all_that_is_printed_is_kept() -> None:
    """As JSON whatever the format on stderr, of structlog and the standard library, without secrets."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert (first["event"], first["url"], first["role"], first["process"]) == (
        "uploaded",
        "https://x?token=***",
        "pd",
        "pd1",
    )
    assert (second["event"], second["level"], second["logger"]) == ("*** of a library", "warning", "rangelog.pd")
    assert "s3cret" not in done.stderr and done.stderr.count("\n") == 2


@pytest.fixture
async def served() -> AsyncIterator[str]:
    """The address of a server with a token, in a process whose recent log is that of the tests."""
    server = GrpcServer(token="t0ken")
    port = await server.start("127.0.0.1:0", ())
    yield f"127.0.0.1:{port}"
    await server.stop(0)


async def test_every_server_serves_its_log(served: str) -> None:
    """To who has the token; without it nothing is told."""
    recent_log.RECENT.note({"level": "error", "event": "seen over gRPC"}, str)
    async with PeerClient(served, "pd1", token="t0ken") as peer:
        page = await peer.read_log(logs_pb2.ReadLogRequest(limit=2_000, level="error"), timeout_s=5)
        assert json.loads(page.entries[-1].line) == {"level": "error", "event": "seen over gRPC"}
        with pytest.raises(InvalidArgument, match="limit is 0"):
            await peer.read_log(logs_pb2.ReadLogRequest(), timeout_s=5)
    async with PeerClient(served, "pd1") as peer:
        with pytest.raises(Unauthorized):
            await peer.read_log(logs_pb2.ReadLogRequest(limit=1), timeout_s=5)


async def test_numbers_of_an_earlier_process_do_not_count() -> None:
    """After a restart numbers begin anew: the new process's entries are told from the start."""
    recent = RecentLog(_ring(3))
    same = await LogsService(recent).ReadLog(logs_pb2.ReadLogRequest(run=recent.run, after=2, limit=9), None)
    assert [each.number for each in same.entries] == [3]
    later = await LogsService(recent).ReadLog(logs_pb2.ReadLogRequest(run=recent.run + 1, after=2, limit=9), None)
    assert [each.number for each in later.entries] == [1, 2, 3] and later.run == recent.run


def test_a_forked_process_has_a_log_of_its_own() -> None:
    """Who follows the log over a restart would otherwise take the numbers of the new process for those of the former one."""
    recent_log.RECENT.note({"level": "error", "event": "of the parent"}, str)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            count = len(recent_log.RECENT.read(limit=9, level="error").entries)
            os.write(writing, b"%d %d" % (recent_log.RECENT.run, count))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    run, count = map(int, os.read(reading, 100).split())
    assert run != recent_log.RECENT.run and count == 0
