"""The administration of tables, over the real placement driver's calls on topics."""

from __future__ import annotations

import pytest

from rangelog._table.tables import Tables
from rangelog.errors import InvalidArgument, NamespaceNotFound, TopicExists, TopicKindForbids, TopicNotFound
from rangelog_proto.v1 import topic_pb2
from tests.support.table_cluster import TableCluster


async def create_topic(cluster: TableCluster, name: str) -> None:
    request = topic_pb2.CreateTopicRequest(request_id=name, namespace="default", name=name)
    await cluster.pd.call(request, topic_pb2.CreateTopicResponse, timeout_s=5)


async def test_a_table_is_created_described_listed_and_deleted(cluster: TableCluster, tables: Tables) -> None:
    """In the namespace "default", which the first creation makes; topics of records are not listed."""
    made = await tables.create("counts", partitions=3, replicas=3, tags={"team": "a"})
    assert (made.name, made.partition_count, made.replicas, made.acks) == ("default/counts", 3, 3, 2)
    assert made.tags == {"team": "a"}
    assert await tables.describe("default/counts") == made
    await create_topic(cluster, "flights")
    await tables.create("accounts")
    assert [each.name async for each in tables.list()] == ["default/accounts", "default/counts"]
    assert [each.name async for each in tables.list(after="accounts")] == ["default/counts"]
    assert [each.name async for each in tables.list(namespace="default", prefix="c")] == ["default/counts"]
    await tables.delete("counts")
    with pytest.raises(TopicNotFound):
        await tables.describe("counts")
    again = await tables.create("counts")
    assert again.table_id > made.table_id


async def test_names_and_kinds_are_checked(cluster: TableCluster, tables: Tables) -> None:
    """A topic's name is taken, and a topic is not used as a table; only the namespace "default" comes by itself."""
    await tables.create("counts")
    await create_topic(cluster, "flights")
    with pytest.raises(TopicExists):
        await tables.create("flights")
    with pytest.raises(NamespaceNotFound):
        await tables.create("air/counts")
    for refused in (tables.describe("flights"), tables.delete("flights"), tables.table("flights").get(b"k")):
        with pytest.raises(TopicKindForbids, match="default/flights is a topic of records, not a table"):
            await refused
    with pytest.raises(TopicNotFound):
        await tables.table("none").get(b"k")
    for bad in (0, 1_001, True, "3"):
        with pytest.raises(InvalidArgument):
            await tables.create("x", partitions=bad)  # type: ignore[arg-type]
    for name in ("", "a/b/c", "_x"):
        with pytest.raises(InvalidArgument):
            tables.table(name)


async def test_a_table_that_is_deleted_in_use_is_not_found(cluster: TableCluster, tables: Tables) -> None:
    """Once no owner has answered; after that the name is looked up anew."""
    await tables.create("t", partitions=1)
    table = tables.table("t")
    assert await table.put(b"k", b"v") == 1
    await tables.delete("t")
    cluster.owned_by.clear()
    cluster.owners.forget((1, 0))
    with pytest.raises(TopicNotFound):
        await table.get(b"k", timeout_s=0.05)
    await tables.create("t", partitions=1)
    assert await table.get(b"k") is None
