"""`pdctl stream read`, `tail` and `append` on a cluster in memory: places, keys, formats, and copies by a pipe."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdctl import appending, record_input
from pdctl.main import main
from rangelog import Client
from rangelog.testing import FakeCluster
from rangelog_core.record import AppendRecord

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
HOUR_MS = 3_600_000


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A cluster in memory with ten records in `flights`, one for each hour from noon on, on which pdctl works."""
    cluster = FakeCluster()

    async def connect(*_: Any, **__: Any) -> Client:
        return cluster.client()

    noon_ms = int(NOON.timestamp() * 1000)
    rows = [
        AppendRecord(b"%d" % hour, b"even" if hour % 2 == 0 else b"odd", None, noon_ms + hour * HOUR_MS)
        for hour in range(10)
    ]
    _fill(cluster, "flights", rows)
    monkeypatch.setattr("rangelog.connect", connect)
    yield cluster


def _fill(cluster: FakeCluster, stream: str, rows: list[AppendRecord]) -> None:
    async def fill() -> None:
        async with cluster.client() as client:
            await client.create_stream(stream)
            await client.append(stream, rows)
            await client.seal_stream(stream)

    asyncio.run(fill())


def _read(cluster: FakeCluster, stream: str) -> list[tuple[bytes | None, bytes, dict[str, bytes], int]]:
    async def read() -> list[tuple[bytes | None, bytes, dict[str, bytes], int]]:
        async with cluster.client() as client:
            return [
                (each.key, each.value, dict(each.headers), each.timestamp_ms) async for each in client.reader(stream)
            ]

    return asyncio.run(read())


def pdctl(*arguments: str, given: bytes | None = None) -> Result:
    """pdctl on that cluster."""
    return CliRunner().invoke(main, ["--pd", "fake:1", *arguments], input=given, prog_name="pdctl")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--start", "-3"), "789"),
        (("--start", "-100"), "0123456789"),
        (("--start", "-3", "--end", "-1"), "78"),
        (("--end", "2"), "01"),
        (("--start", "2026-01-31T20:00Z"), "89"),
        (("--start", "@2026-01-31T21:30+01:00"), "9"),
        (("--end", "2026-01-31T14:00Z"), "01"),
        (("--start", "2026-01-31T13:00Z", "--end", "2026-01-31T15:30Z"), "123"),
        (("--end", "2099-01-01T00:00Z"), "0123456789"),
        (("--end", "1999-01-01T00:00Z"), ""),
        (("--key", "odd"), "13579"),
        (("--key", "odd", "--limit", "2"), "13"),
        (("--key", "none such"), ""),
    ],
)
def test_what_is_read(memory: FakeCluster, options: tuple[str, ...], found: str) -> None:
    """Places at both ends, and keys; the limit counts what is printed."""
    result = pdctl("stream", "read", "flights", *options)
    assert result.exit_code == 0 and result.stdout.split() == list(found), result


def test_tail_of_a_key(memory: FakeCluster) -> None:
    """Those of the last records that have it."""
    assert pdctl("stream", "tail", "flights", "-n", "3", "--key", "odd").stdout == "7\n9\n"


def test_a_start_in_the_future_says_so(memory: FakeCluster) -> None:
    """An empty answer is not mistaken for an empty stream; nor is it an error."""
    soon = (datetime.now(UTC) + timedelta(days=400)).isoformat()
    result = pdctl("stream", "read", "flights", "--start", soon)
    assert result.exit_code == 0 and result.stdout == "" and "is in the future" in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--start", "2026-01-31T12:00"),
        ("--end", "latest"),
        ("--follow", "--end", "2026-01-31T12:00Z"),
        ("--follow", "--cursor", "x"),
        ("--key", "x", "--cursor", "x"),
    ],
)
def test_reads_that_mean_nothing(memory: FakeCluster, options: tuple[str, ...]) -> None:
    """They are refused as usage."""
    result = pdctl("stream", "read", "flights", *options)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1, result


def test_bytes_are_not_for_a_terminal(memory: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """raw and prefixed are refused there, and escaped is what else is printed."""
    _fill(memory, "wild", [AppendRecord(b"a\x1b[31mb", None, None, None)])
    assert pdctl("stream", "read", "wild").stdout == "a\x1b[31mb\n"
    assert pdctl("stream", "read", "wild", "--format", "raw").stdout == "a\x1b[31mb"
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
    assert pdctl("stream", "read", "wild").stdout == "a\\x1b[31mb\n"
    for shape in ("raw", "prefixed"):
        assert "not for a terminal" in pdctl("stream", "read", "wild", "--format", shape).stderr


_BYTES = st.one_of(st.binary(max_size=20), st.text(max_size=10).map(lambda text: text.encode("utf-8", "surrogatepass")))
_ROWS = st.lists(
    st.builds(
        AppendRecord, _BYTES, st.none() | _BYTES,
        st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1, max_size=5), _BYTES, max_size=2),
        st.integers(1, 4_000_000_000_000),
    ),
    max_size=8,
)  # fmt: skip


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=_ROWS)
def test_a_stream_is_copied_by_a_pipe(memory: FakeCluster, rows: list[AppendRecord]) -> None:
    """`read --format json | append --format json` gives the same keys, values, headers and timestamps."""
    source, copy = f"source-{next(_numbers)}", f"copy-{next(_numbers)}"
    _fill(memory, source, rows)
    _fill(memory, copy, [])
    text = pdctl("stream", "read", source, "--format", "json").stdout_bytes
    result = pdctl("stream", "append", copy, "--format", "json", given=text)
    assert result.exit_code == 0, result
    assert _read(memory, copy) == _read(memory, source)
    assert len(_read(memory, copy)) == len(rows)


_numbers = iter(range(1_000_000))


def test_keys_and_bytes_in(memory: FakeCluster) -> None:
    """A key before a separator, all input as one record, records behind their lengths."""
    for stream, options, given_bytes, found in (
        ("keyed", ("--key-separator", "\\t"), b"a\tone\nb\ttwo\tthree\n", [(b"a", b"one"), (b"b", b"two\tthree")]),
        ("whole", ("--format", "raw", "--key", "k"), b"a\n\x00b\n", [(b"k", b"a\n\x00b\n")]),
        ("many", ("--format", "prefixed"), b"\0\0\0\x03a\nb\0\0\0\0", [(None, b"a\nb"), (None, b"")]),
    ):
        _fill(memory, stream, [])
        result = pdctl("stream", "append", stream, *options, given=given_bytes)
        assert result.exit_code == 0, result
        assert [(key, value) for key, value, _, _ in _read(memory, stream)] == found
    assert pdctl("stream", "read", "many", "--format", "prefixed").stdout_bytes == b"\0\0\0\x03a\nb\0\0\0\0"
    assert "appended 1 record from" in pdctl("stream", "append", "whole", "x").stdout


def test_an_import_keeps_every_byte(memory: FakeCluster) -> None:
    """A carriage return before the end of a line is part of the value, unless it is said to be part of the line's end."""
    lines = b"one\r\ntwo\n\r\nlast\r"
    for stream, options, found in (
        ("kept", (), [b"one\r", b"two", b"\r", b"last\r"]),
        ("taken-off", ("--crlf",), [b"one", b"two", b"", b"last"]),
    ):
        _fill(memory, stream, [])
        result = pdctl("stream", "append", stream, *options, given=lines)
        assert result.exit_code == 0, result
        assert [value for _, value, _, _ in _read(memory, stream)] == found
    assert pdctl("stream", "read", "kept").stdout_bytes == lines + b"\n"
    result = pdctl("stream", "append", "kept", "--crlf", "--format", "raw", given=lines)
    assert result.exit_code == 2 and "--crlf is for lines" in result.stderr


def test_a_bad_line_is_named_and_those_before_it_are_appended(memory: FakeCluster) -> None:
    """Its number, and what is acked."""
    _fill(memory, "some", [])
    lines = json.dumps({"value": "first"}).encode() + b"\nnonsense\n"
    result = pdctl("stream", "append", "some", "--format", "json", given=lines)
    assert (
        result.exit_code == 2
        and "line 2: this is not JSON" in result.stderr
        and "acked before: 1 record" in result.stderr
    )
    assert [value for _, value, _, _ in _read(memory, "some")] == [b"first"]
    result = pdctl("stream", "append", "some", "--key-separator", ":", given=b"no separator\n")
    assert result.exit_code == 2 and "line 1: there is no separator" in result.stderr


def test_a_limit_may_be_written_as_of_tail(memory: FakeCluster) -> None:
    """-n, in both verbs."""
    assert pdctl("stream", "read", "flights", "-n", "2").stdout == "0\n1\n"
    assert pdctl("stream", "tail", "flights", "-n", "2").stdout == "8\n9\n"


def test_an_interrupted_append_says_what_is_acked(
    memory: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """How many records, from which offset, and how many are under way."""
    sent: list[asyncio.Future[Any]] = []
    real = record_input._submit

    def submit(*arguments: Any) -> asyncio.Future[Any]:
        sent.append(real(*arguments))
        return sent[-1]

    async def interrupted(under_way: list[bytes]) -> None:
        waits = asyncio.Event()

        async def pieces() -> AsyncIterator[list[bytes]]:
            yield [b"a", b"b"]
            await asyncio.gather(*sent)
            memory.hold_acks()
            yield under_way
            waits.set()
            await asyncio.Event().wait()

        async with memory.client() as client:
            given = record_input.RecordInput(pieces(), AppendRecord)
            command = asyncio.create_task(appending._append(client, "some", given, 10.0))
            await waits.wait()
            command.cancel()
            with pytest.raises(asyncio.CancelledError):
                await command
        memory.release_acks()
        sent.clear()

    async def create() -> None:
        async with memory.client() as client:
            await client.create_stream("some")

    monkeypatch.setattr(record_input, "_submit", submit)
    asyncio.run(create())
    asyncio.run(interrupted([b"c"]))
    assert capsys.readouterr().err == (
        "pdctl: interrupted: 2 records are acked from offset 0, 1 may be in the stream\n"
    )
    asyncio.run(interrupted([]))
    assert re.fullmatch(r"pdctl: interrupted: 2 records are acked from offset [23]\n", capsys.readouterr().err), (
        "the third may be there"
    )


@pytest.mark.parametrize(
    "options",
    [
        ("--format", "json", "--key", "k"),
        ("--format", "json", "--header", "a=b"),
        ("--format", "json", "--key-separator", ":"),
        ("--key", "k", "--key-separator", ":"),
        ("--key-separator", ""),
        ("value", "--format", "raw"),
        ("value", "--format", "prefixed"),
    ],
)
def test_appends_that_contradict_themselves(memory: FakeCluster, options: tuple[str, ...]) -> None:
    """They are refused before anything is opened."""
    result = pdctl("stream", "append", "flights", *options, given=b"")
    assert result.exit_code == 2 and result.stderr.count("\n") == 1, result
