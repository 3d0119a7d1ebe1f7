"""The blocking writer has what the asynchronous one has; its bulk call takes records on the caller's thread, bounded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rangelog import AppendRecord, sync
from rangelog._sync_submit import FEED_RECORDS_MAX
from rangelog.errors import InvalidArgument, Overloaded, RecordTooLarge, Unavailable, WriterClosed, WriterFenced
from rangelog.testing import FakeCluster
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX
from tests.support.threads import WAIT_S, within


@pytest.fixture
def client() -> Iterator[sync.Client]:
    """A blocking client with a stream "s"."""
    made = FakeCluster().sync_client()
    within(lambda: made.create_stream("s"))
    yield made
    within(made.close)


def values(client: sync.Client) -> list[bytes]:
    """What is in the stream."""
    return within(lambda: [record.value for record in client.reader("s")])


def test_positions_and_pipelining(client: sync.Client) -> None:
    """Offsets are known before the acks, and acked with the flush."""

    def work() -> None:
        with client.writer("s") as writer:
            assert (writer.next_offset, writer.confirm_offset, writer.closed) == (0, 0, False)
            assert writer.epoch > 0
            assert [writer.append_nowait(b"%d" % number, key=b"k") for number in range(5)] == [0, 1, 2, 3, 4]
            writer.ready()
            writer.flush(timeout_s=WAIT_S)
            assert (writer.next_offset, writer.confirm_offset) == (5, 5)
            assert [ack.offset for ack in writer.append_batch([b"b"], timeout_s=WAIT_S)] == [5]
            assert writer.append(b"a", timeout_s=WAIT_S).offset == 6
        assert writer.closed

    within(work)
    assert values(client) == [b"0", b"1", b"2", b"3", b"4", b"b", b"a"]


def test_too_much_at_once_is_refused(client: sync.Client) -> None:
    """append_nowait waits for nothing, so it says when there is no room."""

    def work() -> None:
        with client.writer("s", inflight_bytes_max=1_000) as writer:
            client.run(pause(writer, [b"x" * 1_000] * 2))
            writer.ready()
            assert writer.append_nowait(b"y") == 2

    async def pause(writer: sync.Writer, records: list[bytes]) -> None:
        for value in records:  # in one turn of the loop, so that nothing is acked meanwhile
            writer._of.append_nowait(value)
        with pytest.raises(Overloaded):
            writer._of.append_nowait(b"x")

    within(work)


def test_what_to_do_with_a_writer_that_is_not_open(client: sync.Client) -> None:
    """The message names the blocking form; open does what `with` does."""
    writer = client.writer("s")
    with pytest.raises(WriterClosed, match="blocking clients: `with`"):
        within(lambda: writer.append(b"x"))
    within(writer.open)
    assert within(lambda: writer.append(b"x")).offset == 0
    within(writer.close)
    with pytest.raises(WriterClosed, match="closed"):
        within(lambda: writer.append_nowait(b"x"))


def test_append_all_takes_any_iterable(client: sync.Client) -> None:
    """On the caller's thread, where it may use the client itself."""
    threads = set()

    def records() -> Iterator[bytes | AppendRecord]:
        for number in range(3 * FEED_RECORDS_MAX):
            threads.add(threading.current_thread())
            yield b"%d" % number
        yield AppendRecord(b"%d" % client.describe_stream("s").stream_id, key=b"id")

    def work() -> set[threading.Thread]:
        with client.writer("s") as writer:
            assert writer.append_all(records()) == 3 * FEED_RECORDS_MAX + 1
            assert writer.confirm_offset == writer.next_offset
            assert writer.append_all([]) == 0
        return {threading.current_thread()}

    assert within(work) == threads
    assert values(client)[:-1] == [b"%d" % number for number in range(3 * FEED_RECORDS_MAX)]


def test_a_slow_iterable_holds_no_record_back(client: sync.Client) -> None:
    """What it gave is acked while it waits for more."""

    def work() -> None:
        with client.writer("s") as writer:
            acked = threading.Event()

            def records() -> Iterator[bytes]:
                yield b"first"
                for record in client.reader("s", follow=True):
                    assert record.value == b"first"
                    acked.set()
                    break
                yield b"second"

            assert writer.append_all(records()) == 2
            assert acked.is_set()

    within(work)
    assert values(client) == [b"first", b"second"]


def test_append_all_is_bounded(client: sync.Client) -> None:
    """While acks are held back the iterable is asked for no more than there is room for."""
    cluster = FakeCluster()
    blocking = cluster.sync_client()
    taken = 0

    def records() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield bytes(100)

    def work() -> None:
        blocking.create_stream("s")
        writer = blocking.writer("s", inflight_bytes_max=10_000)
        writer.open()
        cluster.hold_acks()
        with pytest.raises(Unavailable) as told:
            writer.append_all(records(), timeout_s=0.2)
        assert told.value.outcome_unknown

    within(work)
    assert FEED_RECORDS_MAX < taken < 3 * FEED_RECORDS_MAX + 200
    within(blocking.close)


def test_append_all_ends_with_its_iterable(client: sync.Client) -> None:
    """Its exception comes as it is; what it gave before may be appended, and the writer goes on."""

    def records() -> Iterator[bytes]:
        yield b"before"
        raise LookupError("of the iterable")

    def work() -> None:
        with client.writer("s") as writer:
            with pytest.raises(LookupError, match="of the iterable"):
                writer.append_all(records())
            writer.append(b"after")

    within(work)
    assert values(client) in ([b"before", b"after"], [b"after"])


def test_append_all_tells_the_outcome(client: sync.Client) -> None:
    """A record that cannot be appended ends it, whatever the iterable still has; those before it may be there."""
    given = 0

    def records() -> Iterator[bytes]:
        nonlocal given
        yield b"good"
        yield bytes(RECORD_SIZE_BYTES_MAX + 1)
        while True:
            given += 1
            yield b"more"

    def work() -> None:
        with client.writer("s") as writer:
            with pytest.raises(RecordTooLarge) as told:
                writer.append_all(records())
            assert told.value.outcome_unknown

    within(work)
    assert given < 3 * FEED_RECORDS_MAX + 200
    assert values(client) == [b"good"]


@pytest.mark.parametrize("records", [b"bytes", "text", 5, None])
def test_what_is_no_iterable_of_records(client: sync.Client, records: Any) -> None:
    """Bytes would be appended as numbers."""

    def work() -> None:
        with client.writer("s") as writer:
            for call in (writer.append_all, writer.append_batch, lambda records: client.append("s", records)):
                with pytest.raises(InvalidArgument, match="an iterable of values"):
                    call(records)

    within(work)


def test_append_all_meets_a_later_writer_and_a_closed_client(client: sync.Client) -> None:
    """It ends with the writer, also where the iterable would go on for ever."""

    def endless() -> Iterator[bytes]:
        while True:
            yield b"x"

    def fenced() -> None:
        with client.writer("s") as first:

            def records() -> Iterator[bytes]:
                yield b"one"
                with client.writer("s"):
                    yield from endless()

            with pytest.raises(WriterFenced):
                first.append_all(records())

    within(fenced)

    def closed() -> None:
        writer = client.writer("s")
        writer.open()

        def records() -> Iterator[bytes]:
            yield b"one"
            client.close()
            yield from endless()

        with pytest.raises((Unavailable, WriterClosed)):
            writer.append_all(records())

    within(closed)
