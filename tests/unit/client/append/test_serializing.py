"""Keys and values by the program's own functions, on both sides; what they raise, and what is there then."""

# Type checkers know neither what a deserializer makes of a record nor that an AppendRecord may hold more than bytes.
# mypy: disable-error-code="arg-type, comparison-overlap, list-item, attr-defined"

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from rangelog import AppendRecord, Client, SerializingWriter
from rangelog.errors import InvalidArgument, PreconditionFailed
from rangelog.testing import FakeCluster
from tests.support.threads import WAIT_S, within


def encode(value: Any) -> bytes:
    """A serializer: JSON; TypeError for what it has no form for."""
    return json.dumps(value).encode()


def decode(data: bytes) -> Any:
    """Its counterpart; ValueError for what is no JSON."""
    return json.loads(data)


async def raw(client: Client) -> list[tuple[bytes | None, bytes]]:
    """What is in the stream "s"."""
    return [(record.key, record.value) async for record in client.reader("s")]


async def test_every_way_to_append() -> None:
    """Values and keys go through the functions once; a record without a key stays without."""
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        async with client.writer("s", key_serializer=str.encode, value_serializer=encode) as writer:
            assert isinstance(writer, SerializingWriter)
            assert (await writer.append({"n": 0}, key="k", expected_end=0)).offset == 0
            assert (await writer.submit([1])).offset == 1
            assert writer.append_nowait("two", key="k", headers={"h": b"v"}) == 2
            await writer.ready()
            await writer.flush()
            assert [
                ack.offset for ack in await writer.append_batch([3, AppendRecord("4", key="k")], expected_end=3)
            ] == [3, 4]
            assert await writer.append_all(iter([5, AppendRecord(6)])) == 2
            with pytest.raises(PreconditionFailed):
                await writer.append(7, expected_end=0)
            assert (writer.next_offset, writer.confirm_offset, writer.closed, writer.epoch) == (7, 7, False, 1)
        async with client.writer("s", key_serializer=str.encode) as keys:
            await keys.append(b"bytes", key="k")
        assert await raw(client) == [
            (b"k", b'{"n": 0}'), (None, b"[1]"), (b"k", b'"two"'), (None, b"3"), (b"k", b'"4"'), (None, b"5"), (None, b"6"),
            (b"k", b"bytes"),
        ]  # fmt: skip


async def test_what_a_serializer_raises() -> None:
    """It is the program's exception, nothing of the record or the list is appended, and the writer goes on."""
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        async with client.writer("s", value_serializer=encode) as writer:
            for call in (writer.append, writer.submit, writer.append_nowait):
                with pytest.raises(TypeError, match="not JSON serializable"):
                    made: Any = call({1, 2})
                    await made
            with pytest.raises(TypeError, match="not JSON serializable"):
                await writer.append_batch([1, {2}])
            assert writer.next_offset == 0
            with pytest.raises(TypeError, match="not JSON serializable"):
                await writer.append_all([1, {2}, 3])
            await writer.append("last")
        async with client.writer("s", value_serializer=lambda value: value) as writer:
            with pytest.raises(InvalidArgument, match="value is bytes"):
                await writer.append("text")
        assert await raw(client) == [(None, b"1"), (None, b'"last"')]
        with pytest.raises(InvalidArgument, match=r"value_serializer of .* must be a function"):
            client.writer("s", value_serializer="json")  # type: ignore[call-overload]
        with pytest.raises(InvalidArgument, match=r"key_deserializer of .* must be a function"):
            client.reader("s", key_deserializer="json")  # type: ignore[call-overload]


async def filled(client: Client, values: list[bytes]) -> None:
    """A stream "s" with these values, each with a key."""
    await client.create_stream("s")
    async with client.writer("s") as writer:
        await writer.append_batch([AppendRecord(value, key=b"k") for value in values])


async def test_records_are_made_of_what_is_read() -> None:
    """Iterated and polled; chunks stay as they are."""
    async with FakeCluster().client() as client:
        await filled(client, [b"1", b"[2]"])
        options: dict[str, Any] = {"key_deserializer": bytes.decode, "value_deserializer": decode}
        assert [(each.key, each.value) async for each in client.reader("s", **options)] == [("k", 1), ("k", [2])]
        async with client.reader("s", **options) as reader:
            assert [(each.offset, each.value) for each in await reader.poll(timeout_s=WAIT_S)] == [(0, 1), (1, [2])]
        chunks = [chunk async for chunk in client.reader("s", **options).chunks()]
        assert [each.value for chunk in chunks for each in chunk] == [b"1", b"[2]"]


async def test_what_a_deserializer_raises() -> None:
    """It says of which record; those before it come first, those behind it are not lost, and a commit skips it."""
    async with FakeCluster().client() as client:
        await filled(client, [b"0", b"1", b"not json", b"3", b"4"])
        seen = []
        with pytest.raises(ValueError, match="Expecting value") as told:
            async for record in client.reader("s", value_deserializer=decode):
                seen.append(record.value)
        assert seen == [0, 1] and told.value.__notes__ == ["of the record at offset 2"]
        async with client.reader("s", cursor="c", value_deserializer=decode) as reader:
            assert [each.value for each in await reader.poll(timeout_s=WAIT_S)] == [0, 1]
            assert (await reader.commit()).offset == 2
            with pytest.raises(ValueError):
                await reader.poll(timeout_s=WAIT_S)
            assert (await reader.commit()).offset == 3
            assert [each.value for each in await reader.poll(timeout_s=WAIT_S)] == [3, 4]
        iterated = client.reader("s", cursor="d", value_deserializer=decode)
        with pytest.raises(ValueError):
            async for _ in iterated:
                pass
        assert (await iterated.commit()).offset == 3


def test_blocking_code_has_them_too() -> None:
    """On the calling thread, where they are iterated."""
    threads = set()

    def noted(value: Any) -> bytes:
        threads.add(threading.current_thread())
        return encode(value)

    def work() -> set[threading.Thread]:
        with FakeCluster().sync_client() as client:
            client.create_stream("s")
            with client.writer("s", value_serializer=noted, key_serializer=str.encode) as writer:
                writer.append(0, key="k", timestamp=5)
                writer.submit(1).result(WAIT_S)
                assert writer.append_nowait(2) == 2
                writer.append_batch([3], expected_end=3)
                with pytest.raises(TypeError):
                    writer.append_batch([4, {5}])
                assert writer.append_all(iter([4, 5])) == 2
                with pytest.raises(TypeError):
                    writer.append_all([6, {7}])
            reader = client.reader("s", value_deserializer=decode, key_deserializer=bytes.decode, end=6)
            first = next(reader)
            assert (first.key, first.value, first.timestamp_ms) == ("k", 0, 5)
            assert [record.value for record in reader] == [1, 2, 3, 4, 5]
            with client.reader("s", cursor="c", value_deserializer=decode) as cursor:
                assert next(cursor).value == 0 and cursor.commit().offset == 1
            with client.reader("s", value_deserializer=decode) as polled:
                assert [record.value for record in polled.poll(count_max=2, timeout_s=WAIT_S)] == [0, 1]
        return {threading.current_thread()}

    assert within(work) == threads
