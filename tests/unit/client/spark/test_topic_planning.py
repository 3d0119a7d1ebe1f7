"""The snapshot of a topic that Spark reads, and its plan, over a cluster in memory: what is in it, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from rangelog import AppendRecord, Client, Cut, errors
from rangelog.spark import topic_planning
from rangelog.spark.filters import Selection
from rangelog.spark.options import parse_options
from rangelog.spark.topic_planning import ShardSpan, TopicSnapshot, plan_snapshot, take_snapshot
from rangelog_core.net.data_connection import DataConnections
from rangelog_proto.v1 import topic_pb2 as pb
from tests.support.fake_topics import TopicCluster
from tests.support.shard_streams import scale, write

T0_MS = 1_700_000_000_000


@pytest.fixture
def cluster() -> TopicCluster:
    """A new one for each test; its pages have two rows."""
    return TopicCluster()


@pytest.fixture
async def client(cluster: TopicCluster) -> AsyncIterator[Client]:
    """A client of it."""
    async with cluster.client() as made:
        yield made


async def scaled_topic(client: Client) -> int:
    """A topic whose shard 0 has 5 records and ended; shards 1 and 2 have 3 and 2, one each second."""
    topic_id = (await client.topics.create("t")).topic_id
    at = [AppendRecord(b"%d" % number, None, None, T0_MS + 1000 * number) for number in range(10)]
    await write(client, topic_id, 0, at[:5])
    await scale(client, "t", [0], 2)
    await write(client, topic_id, 1, at[5:8])
    await write(client, topic_id, 2, at[8:])
    return topic_id


async def snapshot(client: Client, **options: Any) -> TopicSnapshot:
    """The snapshot of these options."""
    return await take_snapshot(client, parse_options({"pd": "in memory", "topic": "t", **options}))


async def parts(client: Client, taken: TopicSnapshot, **options: Any) -> list[tuple[int, int, int]]:
    """Shard, start and end of each span of a plan."""
    planned = await plan_snapshot(
        client, parse_options({"pd": "in memory", "topic": "t", **options}), taken, Selection()
    )
    assert all(isinstance(each, ShardSpan) and each.stream_id > 0 for each in planned)
    return [(each.shard_id, each.start, each.end) for each in planned]


async def read(client: Client, **options: Any) -> list[tuple[int, int, int]]:
    """Both."""
    return await parts(client, await snapshot(client, **options))


async def test_shards_that_ended_and_their_successors_are_in_one_plan(client: Client) -> None:
    """In the order in which a key's records were appended; in spans of the size that is asked for."""
    await scaled_topic(client)
    taken = await snapshot(client)
    assert await parts(client, taken) == [(0, 0, 5), (1, 0, 3), (2, 0, 2)]
    in_twos = [(0, 0, 2), (0, 2, 4), (0, 4, 5), (1, 0, 2), (1, 2, 3), (2, 0, 2)]
    assert await parts(client, taken, records_per_partition="2") == in_twos


async def test_a_snapshot_stays_what_it_was(client: Client) -> None:
    """Records, splits and merges after it change nothing in it; a snapshot that is taken later has them."""
    topic_id = await scaled_topic(client)
    taken = await snapshot(client)
    before = await parts(client, taken)
    await write(client, topic_id, 1, [b"later"])
    await scale(client, "t", [1, 2], 1)
    await write(client, topic_id, 3, [b"later"])
    assert await parts(client, taken) == before
    assert await read(client) == [(0, 0, 5), (1, 0, 3), (1, 3, 4), (2, 0, 2), (3, 0, 1)]  # shard 1 has two ranges now


async def test_from_a_cut_to_a_cut(client: Client) -> None:
    """A start inside a shard that ended, an end inside its successors, and nothing between equal cuts."""
    topic_id = await scaled_topic(client)
    early, late = Cut(topic_id, {0: 3}).to_json(), Cut(topic_id, {1: 2, 2: 0}).to_json()
    assert await read(client, start=early, end=late) == [(0, 3, 5), (1, 0, 2)]
    assert await read(client, end=early) == [(0, 0, 3)]
    assert await read(client, start=late) == [(1, 2, 3), (2, 0, 2)]
    assert await read(client, start=late, end=late) == []
    assert await read(client, start=Cut(topic_id, {0: 5}).to_json(), end=Cut(topic_id, {1: 0, 2: 0}).to_json()) == []
    with pytest.raises(errors.InvalidArgument, match="behind the end"):
        await snapshot(client, start=late, end=early)


async def test_consecutive_reads_join_without_loss_or_repeat(client: Client) -> None:
    """The end cut of one is the start of the next, whatever was scaled in between."""
    topic_id = await scaled_topic(client)
    first = await client.topics.cut("t", "tail")
    await scale(client, "t", [1, 2], 1)
    await write(client, topic_id, 3, [b"a", b"b"])
    second = await client.topics.cut("t", "tail")
    assert await read(client, end=first.to_json()) == [(0, 0, 5), (1, 0, 3), (2, 0, 2)]
    assert await read(client, start=first.to_json(), end=second.to_json()) == [(3, 0, 2)]


async def test_from_a_time_to_a_time(client: Client) -> None:
    """In each shard from the first record at or after the one up to the first at or after the other; UTC by default."""
    topic_id = await scaled_topic(client)

    def time(second: float, zone: str = "+00:00") -> str:
        return datetime.fromtimestamp(T0_MS / 1000 + second, UTC).replace(tzinfo=None).isoformat() + zone

    assert await read(client, start=time(2.5), end=time(6)) == [(0, 3, 5), (1, 0, 1)]
    assert await read(client, start=time(2.5, ""), end=time(6, "Z")) == [(0, 3, 5), (1, 0, 1)]
    assert await read(client, start=time(6)) == [(1, 1, 3), (2, 0, 2)]
    assert await read(client, start=time(60), end=time(90)) == []
    cut = Cut(topic_id, {1: 1, 2: 2}).to_json()
    assert await read(client, start=time(6.5), end=cut) == [(2, 0, 2)]  # in shard 1 the time lies behind the cut
    assert await read(client, start=cut, end=time(1)) == []
    with pytest.raises(errors.InvalidArgument, match="later than end"):
        await snapshot(client, start=time(90), end=time(60))


async def test_truncated_parts_are_gone_and_said_so(client: Client) -> None:
    """A read from the start begins behind them; a cut or an earlier snapshot that names them is an error with the offset."""
    topic_id = await scaled_topic(client)
    await write(client, topic_id, 1, [b"in a range of its own"])  # truncated is what is sealed
    taken = await snapshot(client)
    await client.topics.truncate("t", Cut(topic_id, {1: 1, 2: 0}))
    assert await read(client) == [(1, 1, 3), (1, 3, 4), (2, 0, 2)]
    for offsets, shard_id, first in (({0: 3}, 0, 5), ({1: 0, 2: 0}, 1, 1)):
        with pytest.raises(errors.OffsetTrimmed, match=f"'default/t', shard {shard_id}:.*trimmed") as caught:
            await read(client, start=Cut(topic_id, offsets).to_json())
        assert caught.value.offset == first
    with pytest.raises(errors.OffsetTrimmed, match="shard 0"):
        await parts(client, taken)
    assert await read(client, end=Cut(topic_id, {0: 3}).to_json()) == []
    assert await read(client, start=Cut(topic_id, {0: 5}).to_json(), end=Cut(topic_id, {1: 0, 2: 0}).to_json()) == []


async def test_what_is_no_cut_of_the_topic_is_refused(client: Client) -> None:
    """At `load()`, for the start as for the end: unknown shards, gaps, another topic, offsets beyond what was written."""
    topic_id = await scaled_topic(client)
    wrong: list[tuple[Cut, type[errors.RangelogError], str]] = [
        (Cut(topic_id, {9: 0}), errors.ShardNotFound, "9"),
        (Cut(topic_id, {1: 0}), errors.KeyRangeGap, "keys"),
        (Cut(topic_id, {0: 0, 1: 0}), errors.KeyRangeOverlap, "keys"),
        (Cut(topic_id + 1, {0: 0}), errors.InvalidArgument, "created anew"),
        (Cut(topic_id, {0: 6}), errors.OffsetOutOfRange, "ended at 5"),
        (Cut(topic_id, {1: 4, 2: 0}), errors.OffsetOutOfRange, "shard 1: offset 4 .* which is 3"),
    ]
    for cut, error, text in wrong:
        for option in ("start", "end"):
            with pytest.raises(error, match=text):
                await snapshot(client, **{option: cut.to_json()})


async def test_an_end_that_cannot_be_decided_is_no_certain_error(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With too few replicas a cut beyond the known end may be right: the error is one to try again after."""
    topic_id = await scaled_topic(client)
    exact_end = topic_planning.confirmed_end

    async def inexact(view: Any, connections: DataConnections) -> Any:
        return replace(await exact_end(view, connections), exact=False)

    monkeypatch.setattr(topic_planning, "confirmed_end", inexact)
    with pytest.raises(errors.Unavailable, match="too few replicas"):
        await snapshot(client, end=Cut(topic_id, {1: 4, 2: 0}).to_json())
    assert await read(client, end=Cut(topic_id, {1: 3, 2: 2}).to_json()) == [(0, 0, 5), (1, 0, 3), (2, 0, 2)]


async def test_what_is_no_topic_of_records_is_refused(cluster: TopicCluster, client: Client) -> None:
    """No such topic, one that is being deleted, and a table."""
    with pytest.raises(errors.TopicNotFound, match="no topic 'default/t'"):
        await snapshot(client)
    topic_id = await scaled_topic(client)
    topic = cluster.topics.topics[topic_id]
    topic.config.kind = pb.TOPIC_KIND_TABLE
    with pytest.raises(errors.TopicKindForbids, match="default/t is a table"):
        await snapshot(client)
    topic.config.kind = pb.TOPIC_KIND_RECORDS
    topic.state = pb.TOPIC_STATE_DELETING
    with pytest.raises(errors.TopicNotFound, match="deleted"):
        await snapshot(client)


async def test_a_snapshot_of_a_topic_that_was_deleted(client: Client) -> None:
    """Is an error, also where its name is another topic's by then."""
    await scaled_topic(client)
    taken = await snapshot(client)
    await client.topics.delete("t", force=True)
    await client.topics.create("t")
    with pytest.raises(errors.TopicNotFound, match="'default/t' was deleted"):
        await parts(client, taken)
    assert await read(client) == []
