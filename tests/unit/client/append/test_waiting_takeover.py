"""A takeover that waits for replicas looks at what became of their servers."""

from __future__ import annotations

import asyncio

import pytest

from rangelog._append import failover_seal
from rangelog_core.errors import SealBlocked
from rangelog_core.frame import Opcode
from rangelog_proto.v1 import data_pb2
from tests.unit.client.append.test_malformed_replies import Cluster, Server

pytestmark = pytest.mark.virtual


async def test_a_seal_that_waits_learns_that_an_incarnation_was_retired(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server comes back with an empty disk while the seal waits for its former incarnation: then one in doubt counts."""
    monkeypatch.setattr(failover_seal, "LOOK_S", 0.0, raising=False)
    doubtful = Server()
    reply = data_pb2.SealReply(outcome=data_pb2.SEAL_OUTCOME_DOUBTFUL).SerializeToString()
    doubtful.replies[Opcode.SEAL] = lambda message: (reply, b"")
    cluster = Cluster(rs1=Server(), rs2=doubtful)
    with pytest.raises(SealBlocked):
        await cluster.seal(timeout_s=0.2)
    asyncio.get_running_loop().call_later(0.05, cluster.retired.add, "rs3")
    assert await cluster.seal(timeout_s=5.0) == 0
    assert cluster.ends == [0]
