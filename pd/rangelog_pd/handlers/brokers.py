"""Calls of and on brokers: registrations are log entries, heartbeats stay in the leader's memory, a reported loss is probed."""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument, PreconditionFailed, ShardNotFound
from rangelog_core.ids import check_name
from rangelog_core.net.addresses import split_address
from rangelog_core.net.principals import ADMINS, USERS
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import audited, needs
from rangelog_pd.handlers.call import BROKERS, Call
from rangelog_pd.state.owner_tables import JOURNAL_KEYS
from rangelog_pd.state.versions import LEVEL_BROKERS, LEVEL_HOSTS
from rangelog_proto.v1 import broker_pb2 as pb
from rangelog_proto.v1 import pd_state_pb2

SHARDS_MAX = 1_000


async def register_broker(driver: Driver, request: pb.RegisterBrokerRequest) -> pb.RegisterBrokerResponse:
    """Register a broker.

    Raises InvalidArgument, PreconditionFailed (another one of this name is alive elsewhere, or its program is too old).
    """
    check_name("broker", request.name)
    split_address(request.address)
    if request.control_address:
        split_address(request.control_address)
    for each in request.endpoints:
        split_address(each.address)
    await driver.barrier()
    with driver.state() as state:
        known = state.owners.brokers.find(request.name)
    if known is not None and known.incarnation != request.incarnation and known.address != request.address:
        silent = known.lost or driver.brokers.is_silent(known, driver.now_ms())
        if not silent and await driver.broker_probes.accepts(known.address):
            raise PreconditionFailed(
                f"another broker named {request.name!r} is alive at {known.address}: choose another name, or stop that one"
            )
    if not driver.knows_level(LEVEL_BROKERS):
        request.ClearField("feature_level")
        request.ClearField("endpoints")
    if not driver.knows_level(LEVEL_HOSTS):
        request.host = ""
    response = await driver.propose_request(pb.RegisterBrokerResponse, request.request_id, register_broker=request)
    driver.brokers.registered(request.name, request.incarnation, driver.now_ms())
    await driver.assign_owners()
    response.heartbeat_interval_ms = driver.settings.heartbeat_interval_ms
    response.rate_minute_ms = driver.settings.scaling_minute_ms
    driver.put_versions(response)
    with driver.state() as state:
        response.broker_version = state.owners.broker_version
    return response


async def broker_heartbeat(driver: Driver, request: pb.BrokerHeartbeatRequest) -> pb.BrokerHeartbeatResponse:
    """Note that a broker lives, and what it reports of its shards."""
    await driver.barrier()
    with driver.state() as state:
        response = driver.brokers.heartbeat(state.owners, request, driver.now_ms())
        tells_level = min(state.cluster_version, request.feature_level) >= LEVEL_BROKERS  # as it registers, by now
        if tells_level and not response.register:
            response.register = state.owners.brokers[request.name].feature_level != request.feature_level
        if state.cluster_version >= LEVEL_HOSTS and not response.register:
            response.register = state.owners.brokers[request.name].host != request.host
        response.broker_version = state.owners.broker_version
        if not response.register:
            response.cover.extend(driver.topics.heartbeat(state, request, driver.now_ms()))
    driver.put_versions(response)
    return response


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
    """Return all brokers, and how much is assigned to each."""
    await driver.barrier()
    with driver.state() as state:
        owners = state.owners
        response = pb.ListBrokersResponse(brokers=owners.brokers.values())  # copies, so that levels may be put in
        for each in response.brokers:
            each.feature_level = driver.brokers.feature_level(each)
        for name, keys in owners.owned.items():
            journals = sum(key in keys for key in JOURNAL_KEYS)
            response.owned.add(broker=name, shards=len(keys) - journals, journals=journals)
    return response


async def find_owners(driver: Driver, request: pb.FindOwnersRequest) -> pb.FindOwnersResponse:
    """Return what the shards and journals are assigned to, as far as those brokers count as alive. Raises InvalidArgument."""
    if len(request.shards) > SHARDS_MAX:
        raise InvalidArgument(f"one call finds the owners of at most {SHARDS_MAX} shards")
    await driver.barrier()
    response = pb.FindOwnersResponse()
    brokers: dict[str, pb.Broker] = {}
    with driver.state() as state:
        owners = state.owners
        for each in request.shards:
            found = owners.assignments.find((each.topic_id, each.shard_id))
            if found is not None and owners.is_alive(found.broker, found.incarnation):
                response.assignments.append(found)
                brokers[found.broker] = owners.brokers[found.broker]
            else:
                shard = state.topics.shards.find((each.topic_id, each.shard_id))
                if shard is not None and shard.ended_version:
                    response.ended.append(each)
                elif each.topic_id and state.topics.topics.find(each.topic_id) is None:
                    response.missing.append(each)
        response.brokers.extend(brokers.values())
    return response


async def move_shard(driver: Driver, request: pb.MoveShardRequest) -> pb.MoveShardResponse:
    """Assign a shard to a broker; its owner hands it over. Nothing changes where the broker has it already.

    Raises ShardNotFound (there is no such current shard), PreconditionFailed (the broker is not alive; another assignment was
    made meanwhile).
    """
    key = (request.topic_id, request.shard_id)
    await driver.barrier()
    with driver.state() as state:
        broker = state.owners.brokers.find(request.broker)
        if not request.topic_id or not state.owners.can_be_owned(key):
            raise ShardNotFound(
                f"topic {request.topic_id} has no current shard {request.shard_id}: see `pdctl shard list`"
            )
        if broker is None or broker.lost:
            raise PreconditionFailed(f"broker {request.broker[:100]!r} is not alive: see `pdctl broker list`")
        known = state.owners.assignments.find(key)
    if known is not None and (known.broker, known.incarnation) == (broker.name, broker.incarnation):
        return pb.MoveShardResponse(assignment=known)
    wanted = pb.Assignment(
        topic_id=request.topic_id,
        shard_id=request.shard_id,
        broker=broker.name,
        incarnation=broker.incarnation,
        owner_epoch=known.owner_epoch if known is not None else 0,
    )
    assign = pd_state_pb2.AssignShards(assignments=[wanted])
    response = await driver.propose_request(pb.MoveShardResponse, request.request_id, assign_shards=assign)
    with driver.state() as state:
        now = state.owners.assignments.find(key)
    if now is None or now.broker != broker.name:
        raise PreconditionFailed(f"shard {request.shard_id} was assigned otherwise meanwhile: look again, and repeat")
    response.assignment.CopyFrom(now)
    return response


CALLS = (
    Call("RegisterBroker", register_broker, BROKERS, caller_field="name"),
    Call("BrokerHeartbeat", broker_heartbeat, BROKERS, caller_field="name"),
    Call("ReportBrokerLost", report_broker_lost, USERS, needs=needs.nothing),
    Call("ListBrokers", list_brokers, USERS, needs=needs.nothing),
    Call("FindOwners", find_owners, USERS, needs=needs.nothing, hidden_by_restore=True),
    Call("MoveShard", move_shard, ADMINS, audit=audited.of_shard),
)
