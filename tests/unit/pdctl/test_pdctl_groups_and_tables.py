"""pdctl on groups, checkpoints and tables: what is printed of the client's values, and what is refused before any call."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rangelog import (
    Cut,
    GroupInfo,
    GroupMemberInfo,
    GroupShardInfo,
    ShardLag,
    ShardOfTopic,
    TableChange,
    TablePut,
    TableRow,
)
from rangelog_core.errors import PreconditionFailed, RequestTimeout
from tests.unit.pdctl.conftest import Pdctl
from tests.unit.pdctl.fake_client import FakeClient

SHARD = ShardOfTopic("default/t", 3)
GROUP = GroupInfo(
    "g",
    4,
    ("default/t",),
    (GroupMemberInfo("m1", 2, 10.0, 0.25, (SHARD,)),),
    (
        GroupShardInfo("default/t", 3, 12, b"\xff", "m1", 4, False, None, False),
        GroupShardInfo("default/t", 1, None, b"", "", 0, True, 5, False),
        GroupShardInfo("default/t", 0, 5, b"", "", 2, True, 5, True),
    ),
    ("c1",),
    "c2",
)


class FakeGroups:
    """Notes the calls that change something."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def describe(self, name: str) -> GroupInfo:
        """As Groups."""
        assert name == "g"
        return GROUP

    async def lag(self, name: str) -> list[ShardLag]:
        """As Groups."""
        return [ShardLag("default/t", 3, 12, 20, 8, 61.5), ShardLag("default/t", 1, 0, 5, 5, 1.0)]

    async def reset(self, name: str, to: Any, *, topics: Any, timeout_s: float) -> None:
        """As Groups."""
        self.calls.append((name, to, topics))

    async def delete(self, name: str, *, timeout_s: float) -> None:
        """As Groups, of one with members."""
        raise PreconditionFailed("the group has members")

    async def checkpoint(self, group: str, name: str, *, timeout_s: float) -> dict[ShardOfTopic, int]:
        """As Groups, with a member that is busy."""
        raise RequestTimeout(f"not met within {timeout_s:g} s.")

    async def checkpoint_positions(self, group: str, name: str) -> dict[ShardOfTopic, int]:
        """As Groups."""
        return {SHARD: 12}


class FakeTable:
    """One row, and one change that removes it."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.writes: list[tuple[Any, Any]] = []

    async def get_many(self, keys: list[bytes], **_: Any) -> list[TableRow | None]:
        """As Table."""
        return [TableRow(key, b"1\n", 7) if key == b"a" else None for key in keys]

    async def scan(self, **options: Any) -> AsyncIterator[TableRow]:
        """As Table."""
        self.options = options
        yield TableRow(b"a\x1b", b"\xff", 7)

    async def scan_all(self, **_: Any) -> AsyncIterator[TableRow]:
        """As Table."""
        yield TableRow(b"a", b"1", 7)
        yield TableRow(b"a", b"1", 8, b"f")

    async def watch(self, **options: Any) -> AsyncIterator[TableChange]:
        """As Table."""
        self.options = options

        async def changes() -> AsyncIterator[TableChange]:
            yield TableChange(b"a", None, 9, None, 0)
            yield TableChange(b"b", b"2", 10, None, 0)

        return changes()

    async def update(self, writes: list[Any], *, family: bytes | None, timeout_s: float) -> int:
        """As Table."""
        self.writes += [(each, family) for each in writes]
        return 11


class Client(FakeClient):
    """A client with groups and one table."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = FakeGroups()
        self.rows = FakeTable()
        self.tables = SimpleNamespace(describe=self._describe)

    def table(self, name: str) -> FakeTable:
        """As Client."""
        assert name == "default/t"
        return self.rows


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    """What `rangelog.connect` returns."""
    made = Client()

    async def connect(*_: Any, **__: Any) -> Client:
        return made

    monkeypatch.setattr("rangelog.connect", connect)
    return made


@pytest.fixture
def run() -> Pdctl:
    return Pdctl("--pd", "a:1")


def test_a_group_is_shown_whole(client: Client, run: Pdctl) -> None:
    """Members with their shards, shards by id with their state, positions that were never committed as none."""
    shown = run.json("group", "show", "g")
    assert [(each["shard_id"], each["state"], each["offset"]) for each in shown["shards"]] == [
        (0, "finished", 5),
        (1, "ended", None),
        (3, "current", 12),
    ]
    assert shown["shards"][2]["metadata"] == {"base64": "/w=="}
    assert shown["members"][0]["shards"] == [{"topic": "default/t", "shard_id": 3}]
    assert (shown["checkpoints"], shown["pending_checkpoint"]) == (["c1"], "c2")
    printed = run("group", "show", "g").stdout
    assert "MEMBER" in printed and "default/t  1      -         5    -       ended" in printed


def test_lag_is_summed_beside_the_table(client: Client, run: Pdctl) -> None:
    """By shard in order; the sum is on standard error, so that the table can be piped."""
    result = run("group", "lag", "g")
    assert [line.split()[1] for line in result.stdout.splitlines()[1:]] == ["1", "3"]
    assert result.stderr == "13 records in 2 shards, the oldest is 61.5 s old\n"
    assert [each["records"] for each in run.json("group", "lag", "g")] == [5, 8]


def test_the_lag_of_a_deleted_topic_is_marked(client: Client, run: Pdctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the table, beside it, and in what programs read."""

    async def lag(self: object, group: str) -> list[ShardLag]:
        return [ShardLag("7", 0, 3, 3, 0, 0.0, is_deleted=True), ShardLag("default/t", 1, 0, 5, 5, 1.0)]

    monkeypatch.setattr(FakeGroups, "lag", lag)
    result = run("group", "lag", "g")
    assert "topic deleted" in result.stdout.splitlines()[1] and "deleted" not in result.stdout.splitlines()[2]
    assert result.stderr.endswith("topic 7 was deleted: the group forgets it when a member joins\n")
    assert [each["is_deleted"] for each in run.json("group", "lag", "g")] == [True, False]


def test_where_a_group_is_reset_to(client: Client, run: Pdctl, tmp_path: Path) -> None:
    """Words, times, checkpoints and cuts are the client's; topics by their full names."""
    file = tmp_path / "cut.json"
    file.write_text(Cut(7, {0: 5}).to_json())
    run.json("group", "reset", "g", "--to", "latest", "--topic", "t", "--topic", "n/u", "--yes")
    run.json("group", "reset", "g", "--to", "2026-01-31T00:00Z", "--yes")
    run.json("group", "reset", "g", "--to", "checkpoint:c1", "--yes")
    run.json("group", "reset", "g", "--to", str(file), "--yes")
    assert client.groups.calls == [
        ("g", "latest", ["default/t", "n/u"]),
        ("g", datetime(2026, 1, 31, tzinfo=UTC), None),
        ("g", "checkpoint:c1", None),
        ("g", Cut(7, {0: 5}), None),
    ]
    for place in (["--to", "somewhere"], ["--to", "checkpoint:c1", "--topic", "t"], []):
        assert "--help" in run.fails(2, "group", "reset", "g", *place, "--yes")
    assert len(client.groups.calls) == 4


def test_what_groups_refuse(client: Client, run: Pdctl) -> None:
    """With what to do next; a checkpoint that waits is exit code 4 and stays pending."""
    assert "pdctl group show g" in run.fails(5, "group", "delete", "g", "--yes")
    message = run.fails(4, "checkpoint", "create", "g", "c2", "--wait", "2s")
    assert "within 2 s" in message and "stays pending" in message and "pdctl checkpoint delete g c2" in message
    assert "pdctl checkpoint list g" in run.fails(3, "checkpoint", "delete", "g", "c9", "--yes")
    assert run.json("checkpoint", "list", "g") == [
        {"name": "c1", "state": "complete"},
        {"name": "c2", "state": "pending"},
    ]
    assert run("checkpoint", "show", "g", "c1").stdout.split() == ["TOPIC", "SHARD", "OFFSET", "default/t", "3", "12"]


def test_rows_are_printed(client: Client, run: Pdctl) -> None:
    """A missing one is exit code 3 behind the others; raw values as they are; other bytes marked in JSON."""
    result = run("table", "get", "t", "a", "b", "-o", "raw")
    assert (result.exit_code, result.stdout_bytes) == (3, b"1\n\n")
    assert result.stderr == "pdctl: table default/t has no row with key 'b'\n"
    assert run("table", "get", "t", "a").stdout == "a  7  1\n"
    row = json.loads(run("table", "scan", "t", "-o", "json").stdout)
    assert row == {"family": None, "key": "a\x1b", "version": 7, "value": {"base64": "/w=="}}
    assert run("table", "scan", "t").stdout == "a�  7  \\xff\n"
    assert run("table", "scan", "t", "--all-families").stdout == "a  7  1\nf  a  8  1\n"
    run("table", "scan", "t", "--prefix", "a", "--end", "b", "--limit", "3", "--stale")
    assert client.rows.options == {"prefix": b"a", "end": b"b", "limit": 3, "stale": True, "timeout_s": 10.0}


def test_changes_are_printed(client: Client, run: Pdctl) -> None:
    """A removed row has a dash; the present rows come first where they are wanted; a count ends it."""
    assert run("table", "watch", "t").stdout == "a  9  -\nb  10  2\n"
    assert run("table", "watch", "t", "--with-rows", "--all-families", "--count", "1").stdout == (
        "a  7  1\nf  a  8  1\na  9  -\n"
    )
    assert client.rows.options == {"all_families": True, "timeout_s": 10.0}


def test_a_put_takes_its_value_from_argument_or_input(client: Client, run: Pdctl) -> None:
    """Bytes as they are, up to the limit; with a condition and a family."""
    assert run("table", "put", "t", "k", "v").stdout == "version 11\n"
    run("table", "put", "t", "k", "--if-version", "3", "--family", "f", input=b"a\n\xff")
    run("table", "put", "t", "k", "", "--if-absent")
    assert client.rows.writes == [
        (TablePut(b"k", b"v"), None),
        (TablePut(b"k", b"a\n\xff", if_version=3), b"f"),
        (TablePut(b"k", b"", if_absent=True), None),
    ]
    assert "more than" in run.fails(2, "table", "put", "t", "k", input=b"x" * ((1 << 20) + 1))


@pytest.mark.parametrize(
    "arguments",
    [
        ("put", "t", "k", "v", "--if-absent", "--if-version", "1"),
        ("put", "t", "k", "v", "--if-version", "0"),
        ("get", "t"),
        ("scan", "t", "--all-families", "--prefix", "a"),
        ("watch", "t", "--all-families", "--family", "f"),
        ("scan", "t", "--limit", "0"),
        ("create", "t", "--partitions", "0"),
        ("create", "a/b/c"),
        ("list", "--prefix", "a"),
    ],
)
def test_bad_usage_of_tables(client: Client, run: Pdctl, arguments: tuple[str, ...]) -> None:
    """Exit code 2, with where the help is."""
    assert "--help" in run.fails(2, "table", *arguments)
