"""The blocking reader: an iterator that goes on where it was left, and may be polled instead; leaving it says nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from rangelog import sync
from rangelog.errors import InvalidArgument
from rangelog.testing import FakeCluster
from tests.support.threads import WAIT_S, within


@pytest.fixture
def client() -> Iterator[sync.Client]:
    """A blocking client with a stream "s" of ten records."""
    made = FakeCluster().sync_client()

    def fill() -> None:
        made.create_stream("s")
        with made.writer("s") as writer:
            writer.append_all(b"%d" % number for number in range(10))

    within(fill)
    yield made
    within(made.close)


def test_iterating_goes_on_where_it_was_left(client: sync.Client) -> None:
    """By `next`, by a loop that breaks, and by another loop."""

    def work() -> None:
        reader = client.reader("s")
        assert next(reader).offset == 0
        for record in reader:
            if record.offset == 4:
                break
        assert (reader.next_offset, reader.lag()) == (5, 5)
        assert [record.offset for record in reader] == [5, 6, 7, 8, 9]
        assert (reader.next_offset, reader.lag()) == (10, 0)
        assert next(reader, None) is None

    within(work)


def test_a_reader_is_polled(client: sync.Client) -> None:
    """With a limit, a position, a lag and an end; closed, it has nothing more."""

    def work() -> None:
        with client.reader("s") as reader:
            assert reader.lag() == 10
            assert [each.value for each in reader.poll(count_max=3, timeout_s=WAIT_S)] == [b"0", b"1", b"2"]
            assert (reader.next_offset, reader.lag(), reader.ended) == (3, 7, False)
            found = []
            while not reader.ended:
                found += [each.offset for each in reader.poll(timeout_s=WAIT_S)]
            assert found == [3, 4, 5, 6, 7, 8, 9]
        with client.reader("s", follow=True, start="latest") as follower:
            assert list(follower.poll(timeout_s=0.02)) == []
            with client.writer("s") as writer:
                writer.append(b"new")
            assert [each.value for each in follower.poll(timeout_s=WAIT_S)] == [b"new"]
        assert follower.ended and list(follower.poll(timeout_s=WAIT_S)) == []

    within(work)


def test_chunks(client: sync.Client) -> None:
    """All records, in pieces; the position is behind the last piece."""

    def work() -> None:
        reader = client.reader("s", start=2, timeout_s=WAIT_S)
        assert [record.offset for chunk in reader.chunks() for record in chunk] == list(range(2, 10))
        assert reader.next_offset == 10

    within(work)


def test_a_closed_reader_ends(client: sync.Client) -> None:
    """Before its first record, in the midst, and after its client."""

    def work() -> None:
        unused, used, late = client.reader("s"), client.reader("s"), client.reader("s", follow=True)
        unused.close()
        assert list(unused) == []
        next(used)
        used.close()
        used.close()
        assert list(used) == [] and used.ended
        late.poll(count_max=1)
        client.close()
        late.close()

    within(work)


def test_one_way_at_a_time(client: sync.Client) -> None:
    """Iterating and polling would each take records that the other one does not see."""

    def work() -> None:
        reader = client.reader("s")
        next(reader)
        with pytest.raises(InvalidArgument, match=r"being iterated.*polled as well"):
            reader.poll()
        with pytest.raises(InvalidArgument, match="read in chunks as well"):
            reader.chunks()

    within(work)


def test_a_reader_with_a_cursor(client: sync.Client) -> None:
    """What is committed is what was handed out, by either way."""

    def work() -> None:
        with client.reader("s", cursor="c") as polled:
            polled.poll(count_max=3, timeout_s=WAIT_S)
            assert polled.commit().offset == 3
        iterated = client.reader("s", cursor="c")
        assert [next(iterated).offset, next(iterated).offset] == [3, 4]
        assert (iterated.next_offset, iterated.commit().offset) == (5, 5)

    within(work)


_LEFT = """
import gc
from rangelog.testing import FakeCluster
client = FakeCluster().sync_client()
client.create_stream("s")
with client.writer("s") as writer:
    writer.append_all([b"a", b"b"])
left, followed, chunks = client.reader("s"), client.reader("s", follow=True), client.reader("s").chunks()
for record in left:
    break
for record in followed:
    break
next(chunks)
polled = client.reader("s", follow=True)
polled.poll(count_max=1)
client.close()
{end}
"""


@pytest.mark.parametrize("end", ["", "del left, followed, chunks, polled; gc.collect()", "list(followed)"])
def test_a_reader_that_is_left_is_quiet(end: str) -> None:
    """Its client is closed first, and the program ends: nothing is printed but an error of what is called after that."""
    run = subprocess.run(
        [sys.executable, "-c", _LEFT.format(end=end)], capture_output=True, text=True, timeout=30, check=False
    )
    if end.startswith("list"):
        assert "ClientClosed: the client is closed" in run.stderr and "ignored" not in run.stderr
    else:
        assert (run.returncode, run.stderr) == (0, "")
