"""The failover seal of a takeover creates the next range in the same command, where it can."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog._append.placement_calls import PlacementCalls
from rangelog._append.takeover import settle
from rangelog_core.errors import NoPlacement
from rangelog_proto.v1 import common_pb2, pd_pb2
from tests.unit.client.append.test_malformed_replies import SOURCE, Cluster, Server

pytestmark = pytest.mark.virtual


class Placing(Cluster):
    """Seals, and creates the next range if there is a placement for it."""

    def __init__(self, *, is_full: bool = False) -> None:
        super().__init__(rs1=Server(4), rs2=Server(4), rs3=Server(4))
        self.is_full = is_full
        self.seals: list[pd_pb2.SealRangeRequest] = []

    async def seal_range(self, request: pd_pb2.SealRangeRequest, timeout_s: float) -> pd_pb2.SealRangeResponse:
        kept = pd_pb2.SealRangeRequest()
        kept.CopyFrom(request)
        self.seals.append(kept)
        if request.create_next and self.is_full:
            raise NoPlacement("there is no server for it")
        response = pd_pb2.SealRangeResponse(range=common_pb2.Range(end_offset=request.end_offset))
        if request.create_next:
            response.next_range.index, response.next_range.start_offset = 1, request.end_offset
        return response

    async def settle(self, durability: int = 0, *, create_next: bool = True) -> Any:
        """Settle the stream with its open range."""
        cluster: Any = self
        opened = pd_pb2.OpenWriterResponse(stream=common_pb2.Stream(stream_id=1, epoch=3), last_range=SOURCE)
        opened.last_range.durability = durability  # type: ignore[assignment]
        calls = PlacementCalls(cluster)
        return await settle(cluster, calls, cluster, opened, timeout_s=5.0, create_next=create_next)


async def test_the_seal_creates_the_next_range() -> None:
    """In one command."""
    cluster = Placing()
    taken = await cluster.settle()
    assert (taken.end_offset, taken.created.start_offset, taken.left.range_index) == (4, 4, 0)
    assert [each.create_next for each in cluster.seals] == [True]


async def test_without_a_placement_the_range_is_sealed_all_the_same() -> None:
    """By another command: the first one, under its id, has no effect for good."""
    cluster = Placing(is_full=True)
    taken = await cluster.settle()
    assert taken.end_offset == 4 and taken.created is None
    first, second = cluster.seals
    assert first.create_next and not second.create_next and first.request_id != second.request_id


@pytest.mark.parametrize(
    ("durability", "create_next"),
    [(common_pb2.DURABILITY_MEMORY, True), (common_pb2.DURABILITY_FLUSHED, False)],
    ids=["memory", "who only ends the stream"],
)
async def test_a_seal_for_its_own_sake(durability: int, create_next: bool) -> None:
    """A seal that creates the next range is bound by floors, beyond which replicas in memory may have lost records."""
    cluster = Placing()
    taken = await cluster.settle(durability, create_next=create_next)
    assert taken.end_offset == 4 and taken.created is None
    assert [each.create_next for each in cluster.seals] == [False]
