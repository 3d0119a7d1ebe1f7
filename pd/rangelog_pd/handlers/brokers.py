"""Calls of and on brokers: registrations are log entries, heartbeats stay in the leader's memory, a reported loss is probed."""

from __future__ import annotations

from rangelog_core.errors import PreconditionFailed
from rangelog_core.ids import check_name
from rangelog_core.net.addresses import split_address
from rangelog_pd.driver import Driver
from rangelog_proto.v1 import broker_pb2 as pb
from rangelog_proto.v1 import pd_state_pb2


async def register_broker(driver: Driver, request: pb.RegisterBrokerRequest) -> pb.RegisterBrokerResponse:
    """Register a broker. Raises InvalidArgument, PreconditionFailed (another one of this name is alive elsewhere)."""
    check_name("broker", request.name)
    split_address(request.address)
    await driver.barrier()
    with driver.state() as state:
        known = state.owners.brokers.find(request.name)
    if known is not None and known.incarnation != request.incarnation and known.address != request.address:
        silent = known.lost or driver.brokers.is_silent(known, driver.now_ms())
        if not silent and await driver.broker_probes.accepts(known.address):
            raise PreconditionFailed(
                f"another broker named {request.name!r} is alive at {known.address}: choose another name, or stop that one"
            )
    response = await driver.propose_request(pb.RegisterBrokerResponse, request.request_id, register_broker=request)
    driver.brokers.registered(request.name, request.incarnation, driver.now_ms())
    await driver.assign_owners()
    response.heartbeat_interval_ms = driver.settings.heartbeat_interval_ms
    return response


async def broker_heartbeat(driver: Driver, request: pb.BrokerHeartbeatRequest) -> pb.BrokerHeartbeatResponse:
    """Note that a broker lives, and the loads of its shards."""
    await driver.barrier()
    with driver.state() as state:
        return driver.brokers.heartbeat(state.owners, request, driver.now_ms())


async def report_broker_lost(driver: Driver, request: pb.ReportBrokerLostRequest) -> pb.ReportBrokerLostResponse:
    """Take the shards from a broker that accepts no connection; return whether it counts as lost.

    A broker that is not registered in this incarnation is lost already.
    """
    await driver.barrier()
    with driver.state() as state:
        known = state.owners.brokers.find(request.name)
        if known is None or not state.owners.is_alive(request.name, request.incarnation):
            return pb.ReportBrokerLostResponse(lost=True)
    if await driver.broker_probes.accepts(known.address):
        return pb.ReportBrokerLostResponse(lost=False)
    mark = pd_state_pb2.MarkBrokerLost(name=request.name, incarnation=request.incarnation)
    await driver.propose(pb.ReportBrokerLostResponse, "", mark_broker_lost=mark)
    await driver.assign_owners()
    return pb.ReportBrokerLostResponse(lost=True)


async def list_brokers(driver: Driver, request: pb.ListBrokersRequest) -> pb.ListBrokersResponse:
    """Return all brokers."""
    await driver.barrier()
    with driver.state() as state:
        return pb.ListBrokersResponse(brokers=state.owners.brokers.values())
