"""Calls of and on brokers, over the connections of a PdClient, with its retries and deadlines.

Example: `await BrokerClient(pd).list_brokers(ListBrokersRequest(), timeout_s=5)`.
"""

from __future__ import annotations

from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import broker_pb2 as pb
from rangelog_proto.v1.broker_pb2_grpc import BrokersStub


class BrokerClient:
    """The calls of the placement driver's service for brokers. Close the PdClient, not this."""

    def __init__(self, pd: PdClient) -> None:
        self._pd = pd

    async def register_broker(
        self, request: pb.RegisterBrokerRequest, *, timeout_s: float
    ) -> pb.RegisterBrokerResponse:
        """Register a broker, in a new incarnation at each start."""
        return await self._pd.call_service(BrokersStub, lambda stub: stub.RegisterBroker, request, timeout_s)

    async def broker_heartbeat(
        self, request: pb.BrokerHeartbeatRequest, *, timeout_s: float
    ) -> pb.BrokerHeartbeatResponse:
        """Send a broker's heartbeat, with the loads that changed."""
        return await self._pd.call_service(BrokersStub, lambda stub: stub.BrokerHeartbeat, request, timeout_s)

    async def report_broker_lost(
        self, request: pb.ReportBrokerLostRequest, *, timeout_s: float
    ) -> pb.ReportBrokerLostResponse:
        """Report that a broker accepts no connection; the placement driver checks."""
        return await self._pd.call_service(BrokersStub, lambda stub: stub.ReportBrokerLost, request, timeout_s)

    async def find_owners(self, request: pb.FindOwnersRequest, *, timeout_s: float) -> pb.FindOwnersResponse:
        """Find the brokers that shards and journals are assigned to."""
        return await self._pd.call_service(BrokersStub, lambda stub: stub.FindOwners, request, timeout_s)

    async def list_brokers(self, request: pb.ListBrokersRequest, *, timeout_s: float) -> pb.ListBrokersResponse:
        """List the brokers."""
        return await self._pd.call_service(BrokersStub, lambda stub: stub.ListBrokers, request, timeout_s)
