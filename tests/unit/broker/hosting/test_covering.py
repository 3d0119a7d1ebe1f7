"""Snapshots that the placement driver asks for: of open shards by their owner, of ended ones by whoever is asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rangelog.errors import Unavailable
from rangelog_broker.hosting.covering import AT_A_TIME, Covering
from rangelog_proto.v1 import broker_pb2

pytestmark = pytest.mark.virtual


class Shard:
    """An open shard of which a snapshot is asked."""

    def __init__(self, covered_offset: int) -> None:
        self.covered_offset = covered_offset
        self.asked: list[int] = []

    def cover(self, offset: int) -> None:
        self.asked.append(offset)


class Ended:
    """Ended shards: each ends at 9; those that fail do so once."""

    def __init__(self) -> None:
        self.failing: set[tuple[int, int]] = set()
        self.running = self.most = 0
        self.made: list[tuple[int, int]] = []

    async def cover(self, key: tuple[int, int]) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if key in self.failing:
            self.failing.discard(key)
            raise Unavailable("not now")
        self.made.append(key)
        return 9


class Owned:
    def __init__(self) -> None:
        self.shards: dict[tuple[int, int], Shard] = {}

    def open_shard(self, key: tuple[int, int]) -> Any:
        return self.shards.get(key)


def wanted(*offsets: tuple[int, int]) -> list[broker_pb2.ShardCover]:
    return [broker_pb2.ShardCover(topic_id=1, shard_id=each, offset=offset) for each, offset in offsets]


@pytest.fixture
def made() -> tuple[Covering, Ended, Owned]:
    ended, owned = Ended(), Owned()
    return Covering(ended, owned), ended, owned  # type: ignore[arg-type]


async def turns() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


async def test_an_open_shard_is_asked_and_reported_as_it_is(made: tuple[Covering, Ended, Owned]) -> None:
    """With how far its snapshot reaches now, wanted or not so far."""
    covering, ended, owned = made
    shard = owned.shards[1, 0] = Shard(3)
    covering.want(wanted((0, 7)))
    assert shard.asked == [7]
    assert list(covering.reached()) == wanted((0, 3))
    shard.covered_offset = 8
    assert list(covering.reached()) == wanted((0, 8))
    covering.want([])
    assert list(covering.reached()) == []
    assert ended.made == []


async def test_an_ended_shard_gets_its_last_snapshot_once(made: tuple[Covering, Ended, Owned]) -> None:
    """However often it is asked for; after a failure it is tried again with the next heartbeat."""
    covering, ended, _ = made
    ended.failing.add((1, 5))
    for _ in range(2):
        covering.want(wanted((4, 9), (5, 9)))
    await turns()
    assert list(covering.reached()) == wanted((4, 9))
    covering.want(wanted((4, 9), (5, 9)))
    await turns()
    assert list(covering.reached()) == wanted((4, 9), (5, 9))
    assert ended.made == [(1, 4), (1, 5)]
    await covering.close()


async def test_few_ended_shards_are_read_at_a_time(made: tuple[Covering, Ended, Owned]) -> None:
    """Each reads a part of a log."""
    covering, ended, _ = made
    covering.want(wanted(*((each, 9) for each in range(40))))
    await turns()
    assert len(ended.made) == 40
    assert ended.most == AT_A_TIME


async def test_what_waits_is_given_up_at_the_end(made: tuple[Covering, Ended, Owned]) -> None:
    """A broker that stops leaves no task."""
    covering, ended, _ = made
    covering.want(wanted((4, 9)))
    await covering.close()
    await turns()
    assert ended.made == [] and list(covering.reached()) == []
