"""pdctl topic consume: where it starts and ends, how records are printed, and what a group may commit."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdctl.record_output import RecordPrinter
from rangelog import Cut, Record, TopicChunk
from rangelog._consume.group_records import GroupRecord
from rangelog_core.errors import OffsetTrimmed
from tests.unit.pdctl.conftest import Pdctl
from tests.unit.pdctl.fake_client import FakeClient, FakeMember, records


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """What `rangelog.connect` returns."""
    made = FakeClient()

    async def connect(*_: Any, **__: Any) -> FakeClient:
        return made

    monkeypatch.setattr("rangelog.connect", connect)
    made.chunks = [
        TopicChunk(0, 0, 2, records(b"a", b"b")),
        TopicChunk(3, 7, 8, [Record(7, 1_000, b"k\x1b", b"\xff\n", {"h": b"v"})]),
        TopicChunk(0, 2, 3, records(b"c", first=2)),
    ]
    return made


@pytest.fixture
def run() -> Pdctl:
    return Pdctl("--pd", "a:1")


def group_records(*values: bytes) -> list[GroupRecord]:
    """Records of the topic default/t."""
    return [GroupRecord("default/t", 0, number, 1_000, None, value, {}) for number, value in enumerate(values)]


def test_shapes(client: FakeClient, run: Pdctl) -> None:
    """A line per record without control characters; JSON and YAML with all fields; raw bytes."""
    assert run("topic", "consume", "t").stdout.splitlines()[1:3] == [
        "0  1  1970-01-01T00:00:01Z  -  b",
        "3  7  1970-01-01T00:00:01Z  k\\x1b  \\xff\\n",
    ]
    assert run("topic", "consume", "t", "-o", "raw").stdout_bytes == b"a\nb\n\xff\n\nc\n"
    shown = [json.loads(line) for line in run("topic", "consume", "t", "-o", "json").stdout.splitlines()]
    assert shown[2] == {
        "shard_id": 3,
        "offset": 7,
        "timestamp_ms": 1_000,
        "key": "k\x1b",
        "value": {"base64": "/wo="},
        "headers": {"h": "v"},
    }
    assert shown[0]["key"] is None
    assert yaml.safe_load(run("topic", "consume", "t", "-o", "yaml").stdout) == shown


def test_start_and_end(client: FakeClient, run: Pdctl, tmp_path: Path) -> None:
    """Words, times, and files with cuts go to the reader as they are."""
    file = tmp_path / "cut.json"
    file.write_text(Cut(7, {0: 5}).to_json())
    run("topic", "consume", "t", "--from", str(file), "--to-cut", str(file), "--read-preference", "cold_only")
    options = client.reader_options
    assert (options["start"], options["end"], options["follow"]) == (Cut(7, {0: 5}), Cut(7, {0: 5}), False)
    assert options["read_preference"] == "cold_only"
    run("topic", "consume", "t", "--from", "2026-01-31T00:00Z")
    assert client.reader_options["start"] == datetime(2026, 1, 31, tzinfo=UTC)
    run("topic", "consume", "t", "--from", "latest")
    assert (client.reader_options["start"], client.reader_options["end"]) == ("latest", None)
    assert "nor a file with a cut" in run.fails(2, "topic", "consume", "t", "--from", "/nowhere/at/all")
    file.write_text("{}")
    assert "pdctl topic cut" in run.fails(2, "topic", "consume", "t", "--to-cut", str(file))


def test_a_count_and_a_silence_end_it(client: FakeClient, run: Pdctl) -> None:
    """Not one record more than asked for; a follower ends when none has come for so long."""
    assert run("topic", "consume", "t", "--count", "1", "-o", "raw").stdout == "a\n"
    assert run("topic", "consume", "t", "--count", "2", "--follow", "-o", "raw").stdout == "a\nb\n"
    assert run("topic", "consume", "t", "--follow", "--idle", "10ms", "-o", "raw").stdout_bytes.endswith(b"c\n")


def test_a_member_commits_what_is_printed(client: FakeClient, run: Pdctl) -> None:
    """With a count exactly so many, the last one included; otherwise all, also when a silence ends it."""
    client.member = FakeMember(group_records(b"a", b"b", b"c"), then_waits=True)
    assert run("topic", "consume", "t", "--group", "g", "--count", "2", "-o", "raw").stdout == "a\nb\n"
    assert (client.member.committed, client.member.closed) == (2, True)
    options = client.member_options
    assert (options["group"], options["topic"], options["start"]) == ("g", "default/t", "earliest")
    client.member = FakeMember(group_records(b"a", b"b", b"c"), then_waits=True)
    assert run("topic", "consume", "t", "--group", "g", "--idle", "10ms", "-o", "raw").stdout == "a\nb\nc\n"
    assert (client.member.committed, client.member.closed) == (3, True)


def test_a_member_does_not_commit_what_it_could_not_print(
    client: FakeClient, run: Pdctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader of the output goes away: the record that it did not get stays the group's next one."""
    flushed = 0

    def flush(_: Any) -> None:
        nonlocal flushed
        flushed += 1
        if flushed == 3:
            raise RuntimeError("the output is gone")

    monkeypatch.setattr(RecordPrinter, "flush", flush)
    client.member = FakeMember(group_records(b"a", b"b", b"c", b"d"), then_waits=True)
    assert run("topic", "consume", "t", "--group", "g").exit_code == 1
    assert (client.member.committed, client.member.closed) == (2, True)


def test_an_error_of_the_reader_is_one_line(client: FakeClient, run: Pdctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read before it is printed."""

    def fail(topic: str, **_: Any) -> Any:
        raise OffsetTrimmed("shard 0 starts at 9", offset=9)

    monkeypatch.setattr(client, "topic_reader", fail)
    assert "starts at 9" in run.fails(1, "topic", "consume", "t")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--count", "0"),
        ("--idle", "soon"),
        ("--group", "g", "--read-preference", "hot_only"),
        ("--from", "first"),
        ("-o", "text"),
    ],
)
def test_bad_usage_reads_nothing(client: FakeClient, run: Pdctl, arguments: tuple[str, ...]) -> None:
    """Exit code 2 before any connection."""
    assert "--help" in run.fails(2, "topic", "consume", "t", *arguments)
    assert client.reader_options == {}
