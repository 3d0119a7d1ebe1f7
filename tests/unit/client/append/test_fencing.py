"""Fencing a range: how many replicas are enough, which answers count, and what happens when too few come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rangelog._append.fencing import fence_deleted, fence_range
from rangelog.testing import FakeCluster
from rangelog_core.errors import RangelogError, Unavailable, WriterFenced
from rangelog_proto.v1 import common_pb2, data_pb2, pd_pb2

pytestmark = pytest.mark.virtual


class Servers:
    """In place of the connections: what each range server answers to a seal, its last answer again and again."""

    def __init__(self, **answers: list[RangelogError | data_pb2.SealReply]) -> None:
        self._answers = answers
        self.asked: list[data_pb2.Seal] = []

    async def get(self, replica: Any, address: str) -> Any:
        assert address == f"{replica.server}:7"
        return SimpleNamespace(request=lambda opcode, message, timeout_s: self._request(replica.server, message))

    async def _request(self, server: str, message: bytes) -> Any:
        self.asked.append(data_pb2.Seal.FromString(message))
        left = self._answers[server]
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, RangelogError):
            raise answer
        return SimpleNamespace(message=answer.SerializeToString())


def open_range(*names: str, acks: int = 2) -> common_pb2.Range:
    """An open range on these servers."""
    replicas = [common_pb2.Replica(server=name, incarnation=1, data_address=f"{name}:7") for name in names]
    return common_pb2.Range(stream_id=5, index=3, epoch=2, start_offset=70, replicas=replicas, acks=acks)


def fenced() -> list[RangelogError | data_pb2.SealReply]:
    return [data_pb2.SealReply(outcome=data_pb2.SEAL_OUTCOME_FENCED)]


def away() -> list[RangelogError | data_pb2.SealReply]:
    return [Unavailable("away")]


ABC = ("rs1", "rs2", "rs3")


async def test_two_of_three_are_enough() -> None:
    """With two fenced the third alone cannot ack; each is asked with the epoch and the range's start."""
    servers: Any = Servers(rs1=fenced(), rs2=fenced(), rs3=away())
    assert await fence_range(servers, open_range(*ABC), 9)
    assert {(each.stream_id, each.range_index, each.epoch, each.start_offset) for each in servers.asked} == {
        (5, 3, 9, 70)
    }


@pytest.mark.parametrize(("acks", "enough"), [(1, False), (2, False), (3, True)])
async def test_how_many_are_needed_depends_on_the_acks(acks: int, enough: bool) -> None:
    """One fenced replica of three is enough only where an ack needs all three."""
    servers: Any = Servers(rs1=fenced(), rs2=away(), rs3=away())
    assert await fence_range(servers, open_range(*ABC, acks=acks), 9, timeout_s=0.05) is enough


async def test_a_replica_that_was_dropped_counts() -> None:
    """Who has dropped the range takes nothing of it any more."""
    servers: Any = Servers(rs1=[WriterFenced("was here and was dropped")], rs2=fenced(), rs3=away())
    assert await fence_range(servers, open_range(*ABC), 9, timeout_s=0.05)


async def test_a_replica_whose_data_is_in_doubt_counts() -> None:
    """What it holds is not to be trusted; its fence is."""
    unknown = data_pb2.SealReply(outcome=data_pb2.SEAL_OUTCOME_UNKNOWN)
    servers: Any = Servers(rs1=[unknown], rs2=fenced(), rs3=away())
    assert await fence_range(servers, open_range(*ABC), 9, timeout_s=0.05)


async def test_who_does_not_answer_is_asked_again() -> None:
    """A replica that comes back in time is fenced after all."""
    servers: Any = Servers(rs1=fenced(), rs2=[Unavailable("not yet"), *fenced()], rs3=away())
    assert await fence_range(servers, open_range(*ABC), 9)


async def test_a_deletion_fences_above_the_last_writer() -> None:
    """The open range of a deleted stream is fenced with the next epoch; with none open nobody is asked."""
    servers: Any = Servers(rs1=fenced(), rs2=fenced(), rs3=fenced())
    stream = common_pb2.Stream(stream_id=5, epoch=8)
    await fence_deleted(servers, pd_pb2.DeleteStreamResponse(stream=stream))
    assert not servers.asked
    await fence_deleted(servers, pd_pb2.DeleteStreamResponse(stream=stream, open_range=open_range(*ABC)))
    assert {each.epoch for each in servers.asked} == {9}


async def test_a_fenced_writer_says_of_which_stream() -> None:
    """A program with many writers knows which one to look after."""
    async with FakeCluster().client() as client:
        await client.create_stream("orders")
        async with client.writer("orders") as first:
            await first.append(b"a")
            async with client.writer("orders"):
                with pytest.raises(
                    WriterFenced, match=r"stream 'orders': .*a later writer took the stream over"
                ) as fenced:
                    await first.append(b"b")
        assert fenced.value.epoch == 2
