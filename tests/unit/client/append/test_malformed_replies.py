"""A range server that answers with bytes that mean nothing: one replica fails, never the whole seal, read or copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from rangelog._append.failover_seal import FailoverSeal
from rangelog._append.placement_calls import PlacementCalls
from rangelog._read.hot import HotRange
from rangelog_core.errors import SealBlocked, Unavailable
from rangelog_core.frame import Opcode
from rangelog_proto.v1 import common_pb2, data_pb2, pd_pb2
from rangelog_server.testing import batch
from tests.support.pd_calls import CallsByName

pytestmark = pytest.mark.virtual

NONSENSE = b"\xff\xff\xff\xff"
SERVERS = ("rs1", "rs2", "rs3")
SOURCE = common_pb2.Range(
    stream_id=1,
    index=0,
    epoch=2,
    acks=2,
    replicas=[common_pb2.Replica(server=name, incarnation=1, data_address=f"{name}:7") for name in SERVERS],
)


class Server:
    """In place of a connection to a range server: an answer for each kind of request."""

    closed = None

    def __init__(self, durable_offset: int = 0, batches: Sequence[bytes] = ()) -> None:
        self.durable_offset = durable_offset
        self.batches = batches
        self.replies: dict[Opcode, Callable[[bytes], tuple[bytes, bytes]]] = {
            Opcode.SEAL: self._seal,
            Opcode.FETCH: self._fetch,
            Opcode.LOOKUP_TIMESTAMP: self._lookup,
        }
        self.listener: Any = None
        self.copied: list[bytes] = []

    async def request(self, opcode: Opcode, message: bytes, payload: Any = (), *, timeout_s: float) -> Any:
        answered, data = self.replies[opcode](message)
        return SimpleNamespace(message=answered, payload=data)

    def _seal(self, message: bytes) -> tuple[bytes, bytes]:
        reply = data_pb2.SealReply(outcome=data_pb2.SEAL_OUTCOME_FENCED, durable_offset=self.durable_offset)
        return reply.SerializeToString(), b""

    def _fetch(self, message: bytes) -> tuple[bytes, bytes]:
        reply = data_pb2.FetchReply(durable_offset=self.durable_offset, confirm_offset=0)
        return reply.SerializeToString(), b"".join(self.batches)

    def _lookup(self, message: bytes) -> tuple[bytes, bytes]:
        reply = data_pb2.LookupTimestampReply(found=True, offset=7, readable_end_offset=9)
        return reply.SerializeToString(), b""

    def listen(self, stream_id: int, range_index: int, listener: Any) -> None:
        self.listener = listener

    def unlisten(self, stream_id: int, range_index: int) -> None:
        self.listener = None

    def send(self, opcode: Opcode, message: bytes, payload: Sequence[bytes] = ()) -> None:
        assert opcode is Opcode.APPEND
        self.copied += payload
        self.durable_offset += len(payload)
        self.listener.append_replied(data_pb2.AppendReply(durable_offset=self.durable_offset))


class Cluster(CallsByName):
    """Connections and placement driver of three such servers."""

    def __init__(self, **servers: Server) -> None:
        self.servers = servers
        self.ends: list[int] = []
        self.addresses: dict[Any, str] = {}
        self.retired: set[str] = set()

    async def get(self, replica: Any, address: str) -> Any:
        if replica.server not in self.servers:
            raise Unavailable("away")
        return self.servers[replica.server]

    async def seal_range(self, request: pd_pb2.SealRangeRequest, timeout_s: float) -> pd_pb2.SealRangeResponse:
        self.ends.append(request.end_offset)
        return pd_pb2.SealRangeResponse(range=common_pb2.Range(end_offset=request.end_offset))

    async def ranges(self, name: str, from_offset: int, *, stream_id: int) -> Any:
        known = common_pb2.Range()
        known.CopyFrom(SOURCE)
        for replica in known.replicas:
            if replica.server in self.retired:
                replica.data_address = ""
        return None, [known]

    async def seal(self, timeout_s: float = 5.0) -> int:
        cluster: Any = self
        calls = PlacementCalls(cluster)
        return await FailoverSeal(cluster, calls, cluster, SOURCE, 3, timeout_s).run()


def with_nonsense(*opcodes: Opcode) -> Server:
    """A server whose replies of these kinds do not decode."""
    server = Server()
    for opcode in opcodes:
        server.replies[opcode] = lambda message: (NONSENSE, b"")
    return server


async def test_a_seal_goes_on_without_a_replica_whose_answer_does_not_decode() -> None:
    """Two of three answers are enough: the third one's nonsense counts as no answer."""
    cluster = Cluster(rs1=with_nonsense(Opcode.SEAL), rs2=Server(), rs3=Server())
    assert await cluster.seal() == 0
    assert cluster.ends == [0]


async def test_a_seal_with_too_few_answers_says_which_reply_was_malformed() -> None:
    """With one answer and one reply that does not decode the seal is blocked, and the error names the reason."""
    cluster = Cluster(rs1=with_nonsense(Opcode.SEAL), rs2=Server())
    with pytest.raises(SealBlocked, match="rs1: malformed"):
        await cluster.seal(timeout_s=0.2)


GOOD = (batch(0, [b"a"], epoch=2), batch(1, [b"b"], epoch=2))
GAP = (batch(0, [b"a"], epoch=2), batch(2, [b"b"], epoch=2))
FOREIGN = (batch(0, [b"a"], epoch=2, range_index=1), batch(1, [b"b"], epoch=2, range_index=1))
FLIPPED = (GOOD[0], GOOD[1][:-9] + bytes([GOOD[1][-9] ^ 1]) + GOOD[1][-8:])
LATE = (batch(1, [b"b"], epoch=2),)


@pytest.mark.parametrize("batches", [GAP, FOREIGN, FLIPPED, LATE], ids=["gap", "foreign", "flipped", "late"])
async def test_a_copy_takes_nothing_that_is_not_the_range_end_to_end(batches: tuple[bytes, ...]) -> None:
    """Of a source that sends a gap, another range's batches, damage or what lies further on, nothing reaches a target."""
    target = Server()
    cluster = Cluster(rs1=Server(2, batches), rs2=target)
    with pytest.raises(SealBlocked):
        await cluster.seal(timeout_s=0.2)
    assert not target.copied
    assert not cluster.ends


async def test_a_copy_of_what_is_right_is_made_and_committed() -> None:
    """The batches of the longer answer are durable on two replicas before the end is committed."""
    target = Server()
    cluster = Cluster(rs1=Server(2, GOOD), rs2=target)
    assert await cluster.seal() == 2
    assert tuple(target.copied) == GOOD
    assert cluster.ends == [2]


async def test_a_start_by_time_asks_the_next_replica_after_a_reply_that_does_not_decode() -> None:
    """The first replica's nonsense is that replica's failure: the second one answers."""
    cluster: Any = Cluster(rs1=with_nonsense(Opcode.LOOKUP_TIMESTAMP), rs2=Server(), rs3=Server())
    assert await HotRange(cluster, SOURCE).lookup_timestamp(5, 9) == 7


async def test_where_no_replica_answers_a_start_by_time_the_last_reason_is_given() -> None:
    """With nonsense from all of them the reader gets one typed error."""
    servers = {name: with_nonsense(Opcode.LOOKUP_TIMESTAMP) for name in SERVERS}
    cluster: Any = Cluster(**servers)
    with pytest.raises(Unavailable, match="malformed"):
        await HotRange(cluster, SOURCE).lookup_timestamp(5, 9)


async def test_asking_all_leaves_out_a_replica_whose_answer_does_not_decode() -> None:
    """The offsets of the others count."""
    cluster: Any = Cluster(rs1=with_nonsense(Opcode.FETCH), rs2=Server(4), rs3=Server(5))
    told = await HotRange(cluster, SOURCE).ask_all()
    assert [(each.replica.server, each.durable_offset) for each in told] == [("rs2", 4), ("rs3", 5)]
