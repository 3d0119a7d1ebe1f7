"""`everything_opens` finds what only the next owner meets, and asks everything that there is."""

from __future__ import annotations

import pytest

from rangelog_core.ids import shard_stream_name
from rangelog_core.net.owner_calls import JOURNALS, journal_of
from tests.support.openings import all_answer
from tests.support.whole_broker import WholeBroker, whole_broker

WITHIN_S = 1.0
"""What is damaged does not open later either."""


async def filled(broker: WholeBroker) -> tuple[int, int]:
    """Topics with ended shards, a table of two partitions, a group; return the ids of topic and table."""
    client = broker.client
    await client.topics.create_namespace("ns")
    topic = await client.topics.create("ns/t", shards=2)
    table = await client.tables.create("ns/rows", partitions=2)
    async with client.producer("ns/t") as producer:
        await producer.send(b"v", key=b"k")
    await client.topics.scale("ns/t", [0], 2)
    await client.table("ns/rows").put(b"k", b"v")
    async with client.group("g", "ns/t") as member:
        await member.commit()
    return topic.topic_id, table.table_id


async def test_everything_is_asked() -> None:
    """Sixteen journals, four shards of which one has ended, two partitions; asking changes nothing."""
    async with whole_broker() as broker:
        topic_id, _ = await filled(broker)
        before = [await broker.cluster.read(topic_id, shard) for shard in range(4)]
        assert await all_answer(broker.client) == JOURNALS + 4 + 2
        assert await broker.everything_opens() == JOURNALS + 4 + 2
        assert [await broker.cluster.read(topic_id, shard) for shard in range(4)] == before


async def damage(broker: WholeBroker, stream: str) -> None:
    """What a defect would leave: an acked record that no owner can apply."""
    async with broker.cluster.client().internal.writer(stream) as writer:
        await writer.append(b"\x01\xff damage")


@pytest.mark.parametrize("kind", ["coordinator", "shard", "partition"])
async def test_damage_shows_at_the_next_opening(kind: str) -> None:
    """Of one journal or shard: it is named, and no other is."""
    async with whole_broker() as broker:
        topic_id, table_id = await filled(broker)
        key = {"coordinator": journal_of("g"), "shard": (topic_id, 1), "partition": (table_id, 0)}[kind]
        await damage(broker, f"_journal-{key[1]}" if kind == "coordinator" else shard_stream_name(*key))
        with pytest.raises(AssertionError, match="do not open") as caught:
            await broker.everything_opens(WITHIN_S)
        assert f"missing 0: ; extra 1: ({key}" in str(caught.value)
