"""pdctl topic produce: where keys come from, and what is said of records when not all of them are acked."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from pdctl.record_input import RecordInput
from pdctl.topics.line_keys import key_before, key_in_field, same_key
from pdctl.topics.produce import InShard, Sent, _produce
from rangelog import AppendRecord, Record, TopicChunk
from rangelog_core.errors import AppendTimeout, InvalidArgument, ProducerFenced, ShardEnded
from tests.unit.pdctl.conftest import Pdctl
from tests.unit.pdctl.fake_client import FakeClient


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """What `rangelog.connect` returns."""
    made = FakeClient()

    async def connect(*_: Any, **__: Any) -> FakeClient:
        return made

    monkeypatch.setattr("rangelog.connect", connect)
    return made


@pytest.fixture
def run() -> Pdctl:
    return Pdctl("--pd", "a:1")


def test_keys_of_lines() -> None:
    """One for all, before the first separator, or a field of a JSON object as text."""
    assert same_key(b"k")(b"a:b") == (b"k", b"a:b")
    assert same_key(None)(b"") == (None, b"")
    assert key_before(b"::")(b"a::b::c") == (b"a", b"b::c")
    assert key_before(b":")(b":v") == (b"", b"v")
    field = key_in_field("k")
    for line, key in (
        (b'{"k": "\xc3\xbc"}', "ü".encode()),
        (b'{"k": 3}', b"3"),
        (b'{"k": true}', b"true"),
        (b'{"k": [1, "a"]}', b'[1,"a"]'),
        (b'{"k": "\\ud800"}', b"\xed\xa0\x80"),
    ):
        assert field(line) == (key, line)


@pytest.mark.parametrize("line", [b"", b"3", b"[]", b"{}", b'{"k": null}', b"{", b"[" * 100_000, b"\xff"])
def test_a_line_without_its_key_is_refused(line: bytes) -> None:
    """Whatever it is."""
    for keys in (key_in_field("k"), key_before(b"::")):
        with pytest.raises(InvalidArgument):
            keys(line)


def test_lines_go_out_with_keys_headers_and_shard(client: FakeClient, run: Pdctl) -> None:
    """From standard input or as arguments; `\\t` is a tab."""
    result = run(
        "topic", "produce", "t", "--key-separator", "\\t", "--header", "h=v", "--shard", "3", input=b"k\tv\nl\t\n"
    )
    assert (result.exit_code, result.stdout) == (0, "produced 2 records into 1 shard of default/t\n")
    assert client.producers[-1].sent == [(b"k", b"v", {"h": b"v"}, 3), (b"l", b"", {"h": b"v"}, 3)]
    shown = run.json("topic", "produce", "n/t", "a", "b", "--key", "k")
    assert shown == {
        "topic": "n/t",
        "count": 2,
        "shards": {"0": {"count": 2, "first_offset": 0, "last_offset": 1}},
    }
    assert client.producers[-1].sent == [(b"k", b"a", None, None), (b"k", b"b", None, None)]
    assert run("topic", "produce", "t", input=b"").stdout == "nothing to produce\n"


def test_a_carriage_return_is_kept_unless_it_is_said_to_end_lines(client: FakeClient, run: Pdctl) -> None:
    """As `stream append` does."""
    run("topic", "produce", "t", input=b"v\r\n")
    run("topic", "produce", "t", "--crlf", input=b"v\r\n")
    assert [value for each in client.producers for _, value, _, _ in each.sent] == [b"v\r", b"v"]


def test_a_bad_line_keeps_those_before_it(client: FakeClient, run: Pdctl) -> None:
    """It is named; what was sent before it is acked, nothing behind it is sent."""
    message = run.fails(2, "topic", "produce", "t", "--key-separator", ":", input=b"a:1\nb:2\nnone\nc:3\n")
    assert message.startswith("line 3: ") and "(2 records are acked)" in message
    assert [value for _, value, _, _ in client.producers[-1].sent] == [b"1", b"2"]
    assert "line 2: this value is not valid (1 record is acked)" in run.fails(
        2, "topic", "produce", "t", "a", "invalid"
    )


def test_a_bad_line_is_named_though_those_before_it_are_in_doubt(client: FakeClient, run: Pdctl) -> None:
    """The exit code is that of the doubt."""
    client.outcomes = {b"1": None}
    client.fails = AppendTimeout("not acked within 10 s")
    message = run.fails(4, "topic", "produce", "t", "--key-separator", ":", input=b"a:1\nnone\n")
    assert message.startswith("line 2: ") and "(0 records are acked, 1 may be in the topic)" in message


def test_a_time_out_counts_what_may_be_there(client: FakeClient, run: Pdctl) -> None:
    """Exit code 4: acked records, and those without an outcome, which the end of the producer leaves in doubt."""
    client.outcomes = {b"b": None, b"c": None}
    client.fails = AppendTimeout("not acked within 10 s")
    message = run.fails(4, "topic", "produce", "t", "a", "b", "c")
    assert message == "not acked within 10 s (1 record is acked, 2 may be in the topic)"


def test_refused_records_are_not_there(client: FakeClient, run: Pdctl) -> None:
    """Their own error decides on the exit code, though a flush does not raise it; nothing is in doubt."""
    client.outcomes = {b"b": ShardEnded("shard 3 has ended")}
    message = run.fails(5, "topic", "produce", "t", "a", "b", "--shard", "3")
    assert message.startswith("shard 3 has ended (1 record is acked, 1 is not in the topic)")


def test_doubt_outweighs_the_error(client: FakeClient, run: Pdctl) -> None:
    """A fenced producer whose last records may be there exits as an unknown outcome does."""
    client.outcomes = {b"b": ProducerFenced("a later instance exists", outcome_unknown=True)}
    message = run.fails(4, "topic", "produce", "t", "a", "b")
    assert message.startswith("a later instance exists (1 record is acked, 1 may be in the topic)")


async def test_an_interruption_states_what_is_in_doubt(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    """One line with what is acked, and from which offset."""
    client.outcomes = {b"b": None}
    any_client: Any = client
    for values, message in (
        ([b"a", b"b"], "1 record is acked, 1 may be in the topic (shard 0 from offset 0)"),
        ([b"a", b"c"], "2 records are acked (shard 0 from offset 0)"),
        ([], "0 records are acked"),
    ):
        waits = asyncio.Event()

        async def pieces(values: list[bytes] = values, waits: asyncio.Event = waits) -> AsyncIterator[list[bytes]]:
            yield values
            waits.set()
            await asyncio.Event().wait()

        command = asyncio.create_task(_produce(any_client, "t", RecordInput(pieces(), AppendRecord), None, 10.0))
        await waits.wait()
        command.cancel()
        with pytest.raises(asyncio.CancelledError):
            await command
        assert capsys.readouterr().err == f"pdctl: interrupted: {message}\n"


def test_an_interruption_names_a_few_shards() -> None:
    """Not thousands of them."""
    sent = Sent(acked=10, shards={shard: InShard(1, 7, 7) for shard in range(10)})
    assert sent.places().endswith("shard 7 from offset 7, and 2 more shards)")


@pytest.mark.parametrize(
    "arguments",
    [
        ("a", "--key", "k", "--key-field", "f"),
        ("a", "--key-separator", ":", "--key-field", "f"),
        ("a", "--key-separator", ""),
        ("a", "--shard", "-1"),
        ("a", "--header", "novalue"),
        ("a", "--format", "raw"),
        ("a", "--format", "prefixed"),
        ("--format", "json", "--key", "k"),
        ("--format", "json", "--key-field", "k"),
        ("--format", "json", "--header", "a=b"),
        ("a", "--file", "/dev/null"),
        ("--file", "/nowhere/at/all"),
    ],
)
def test_bad_usage_sends_nothing(client: FakeClient, run: Pdctl, arguments: tuple[str, ...]) -> None:
    """Exit code 2 before any connection."""
    assert "--help" in run.fails(2, "topic", "produce", "t", *arguments)
    assert client.producers == []


BINARY = b"\xff\x00\r\nz"


def consumed(client: FakeClient, run: Pdctl, *options: str) -> bytes:
    """What `topic consume` prints of two shards."""
    client.chunks = [
        TopicChunk(0, 0, 2, [Record(0, 5, b"k\x1b", b"two\nlines", {}), Record(1, 86_400_000, None, BINARY, {})]),
        TopicChunk(3, 7, 8, [Record(7, 1_790_000_000_000, BINARY, b"", {"h": BINARY, "i": b"text"})]),
    ]
    return run("topic", "consume", "t", *options).stdout_bytes


def test_json_goes_round(client: FakeClient, run: Pdctl) -> None:
    """Keys, values, headers and times come back as they were, whatever their bytes; shards and offsets are given anew."""
    printed = consumed(client, run, "--format", "json")
    assert printed == consumed(client, run, "-o", "json")
    assert "produced 3 records" in run("topic", "produce", "copy", "--format", "json", input=printed).stdout
    assert client.producers[-1].sent == [
        (b"k\x1b", b"two\nlines", None, None), (None, BINARY, None, None), (BINARY, b"", {"h": BINARY, "i": b"text"}, None),
    ]  # fmt: skip
    assert [int(each.timestamp() * 1000) for each in client.producers[-1].times] == [5, 86_400_000, 1_790_000_000_000]


def test_bytes_go_round(client: FakeClient, run: Pdctl) -> None:
    """Length-prefixed, each value for itself; raw, all of them as one."""
    run(
        "topic",
        "produce",
        "copy",
        "--format",
        "prefixed",
        "--key",
        "k",
        input=consumed(client, run, "--format", "prefixed"),
    )
    assert client.producers[-1].sent == [(b"k", value, None, None) for value in (b"two\nlines", BINARY, b"")]
    run("topic", "produce", "copy", "--format", "raw", input=consumed(client, run, "--format", "raw"))
    assert client.producers[-1].sent == [(None, b"two\nlines" + BINARY, None, None)]
    assert consumed(client, run, "--format", "value") == consumed(client, run, "-o", "raw")
    assert consumed(client, run, "--format", "text") == consumed(client, run)


def test_input_that_is_not_of_its_format(client: FakeClient, run: Pdctl) -> None:
    """The part is named, and what was before it is sent."""
    lines = b'{"value": "a"}\n{"value": 3}\n{"value": "c"}\n'
    message = run.fails(2, "topic", "produce", "t", "--format", "json", input=lines)
    assert message.startswith("line 2: value is neither text nor") and "(1 record is acked)" in message
    assert [value for _, value, _, _ in client.producers[-1].sent] == [b"a"]
    message = run.fails(2, "topic", "produce", "t", "--format", "prefixed", input=b"\x00\x00\x00\x01a\x00\x00")
    assert "the input ends within record 2" in message and "(1 record is acked)" in message


def test_bytes_are_not_for_a_terminal(client: FakeClient, run: Pdctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before anything is asked for; a value has its control characters escaped there."""
    from pdctl import record_output

    class Terminal:
        buffer = io.BytesIO()

        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(record_output, "sys", SimpleNamespace(stdout=Terminal()))
    for shape in ("raw", "prefixed"):
        assert "not for a terminal" in run.fails(2, "topic", "consume", "t", "--format", shape)
    consumed(client, run, "--format", "value")
    assert Terminal.buffer.getvalue() == b"two\\nlines\n\\xff\\x00\\r\\nz\n\n"
