"""Rows of shards: those that are asked for together are listed in few calls."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from rangelog.errors import ShardNotFound, TopicNotFound
from rangelog_broker.shards.finished import GAP_MAX, PlacementRows
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import topic_pb2
from tests.support.pd_calls import CallsByName

pytestmark = pytest.mark.virtual


class Topics(CallsByName):
    """Topic 1 has the shards below 100, and 1,000; there is no topic 2."""

    def __init__(self) -> None:
        self.listed: list[tuple[int, str, int]] = []

    async def list_shards(self, request: topic_pb2.ListShardsRequest, *, timeout_s: float) -> Any:
        topic_id = request.topic.topic_id
        self.listed.append((topic_id, request.page_token, request.page_size))
        if topic_id == 2:
            raise TopicNotFound("no topic 2")
        after = int(request.page_token) if request.page_token else -1
        ids = [each for each in (*range(100), 1_000) if each > after][: request.page_size]
        shards = [topic_pb2.Shard(topic_id=topic_id, shard_id=each) for each in ids]
        return topic_pb2.ListShardsResponse(topic=topic_pb2.Topic(topic_id=topic_id), shards=shards)


async def test_neighbours_are_listed_in_one_call() -> None:
    """Others by themselves; a shard or topic that is not there fails those who asked for it."""
    topics = Topics()
    rows = PlacementRows(cast(PdClient, topics))
    wanted = [(1, 3), (1, 0), (1, 3 + GAP_MAX), (1, 1_000), (1, 500), (2, 7), (1, 3)]
    found = await asyncio.gather(*(rows.topic_and_shard(*key) for key in wanted), return_exceptions=True)
    ids = [each if isinstance(each, BaseException) else (each[0].topic_id, each[1].shard_id) for each in found]
    assert ids[:4] == wanted[:4] and ids[6] == (1, 3)
    assert isinstance(found[4], ShardNotFound) and isinstance(found[5], TopicNotFound)
    assert sorted(topics.listed) == [(1, "", 4 + GAP_MAX), (1, "499", 1), (1, "999", 1), (2, "6", 1)]
