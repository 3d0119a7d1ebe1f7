"""Brokers, and what they own: register, mark as lost, assign.

What holds: an owner epoch rises with each assignment of its shard. An assignment is taken only if the owner epoch before it is
still the shard's, the shard is current, and the broker is alive in that incarnation; so two leaders never undo each other's
assignments. It is a hint to the broker; the epoch of the shard's stream decides who writes.

The broker version is a level that every broker has that may own something: they write into journals what needs it. It follows
from the levels in the rows, and never falls: a broker of an earlier program could not read what it is to own, and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from rangelog_core.errors import InvalidArgument, PreconditionFailed
from rangelog_core.ids import check_name
from rangelog_core.limits import ADDRESS_LENGTH_MAX, BROKERS_MAX, COMMAND_SHARDS_MAX, NAME_LENGTH_MAX
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_proto.v1 import broker_pb2, pd_state_pb2

DOORS_MAX = 16
"""Of one broker."""


def register_broker(
    state: State, request: broker_pb2.RegisterBrokerRequest, now_ms: int
) -> broker_pb2.RegisterBrokerResponse:
    """Register a broker, or another incarnation of it; one that was lost is alive again.

    Raises InvalidArgument, PreconditionFailed (its program is older than what the brokers have written).
    """
    check_name("broker", request.name)
    if not request.incarnation:
        raise InvalidArgument("a broker registers with an incarnation above 0")
    if not request.address or max(len(request.address), len(request.control_address)) > ADDRESS_LENGTH_MAX:
        raise InvalidArgument(f"a broker registers with its address, of at most {ADDRESS_LENGTH_MAX} characters")
    if max(len(request.zone), len(request.host), len(request.version)) > NAME_LENGTH_MAX:
        raise InvalidArgument(f"zone, host and version of a broker have at most {NAME_LENGTH_MAX} characters")
    _check_endpoints(request.endpoints)
    if request.feature_level < state.owners.broker_version:
        raise PreconditionFailed(
            f"the broker {request.name!r} has feature level {request.feature_level or 'none'}, and the brokers of this cluster "
            f"have written what needs {state.owners.broker_version}: start it with the program that they run"
        )
    if request.name not in state.owners.brokers and len(state.owners.brokers) >= BROKERS_MAX:
        _forget_lost(state)
    broker = broker_pb2.Broker(
        name=request.name,
        incarnation=request.incarnation,
        address=request.address,
        control_address=request.control_address,
        zone=request.zone,
        version=request.version,
        registered_ms=now_ms,
        feature_level=request.feature_level,
        endpoints=request.endpoints,
        host=request.host,
    )
    state.owners.brokers.put(request.name, broker)
    state.owners.raise_version(state.cluster_version)
    return broker_pb2.RegisterBrokerResponse(cluster_id=state.cluster_id)


def _check_endpoints(endpoints: Sequence[broker_pb2.Endpoint]) -> None:
    """Raise InvalidArgument unless the doors have names, in order, and addresses of a bounded length."""
    names = [check_name("door", each.door) for each in endpoints]
    if len(names) > DOORS_MAX or names != sorted(set(names)):
        raise InvalidArgument(f"a broker registers at most {DOORS_MAX} doors, each once, in order of names")
    if any(not each.address or len(each.address) > ADDRESS_LENGTH_MAX for each in endpoints):
        raise InvalidArgument(f"a door has an address of at most {ADDRESS_LENGTH_MAX} characters")


def _forget_lost(state: State) -> None:
    """Remove a lost broker that owns nothing, to make room for another one. Raises InvalidArgument for no such broker."""
    owners = state.owners
    name = next((each.name for each in owners.brokers.values() if each.lost and each.name not in owners.owned), None)
    if name is None:
        raise InvalidArgument(f"{BROKERS_MAX} brokers are registered, which is the limit")
    owners.brokers.remove(name)


def mark_broker_lost(state: State, command: pd_state_pb2.MarkBrokerLost, now_ms: int) -> None:
    """Mark a broker as lost, unless it has another incarnation by now."""
    known = state.owners.brokers.find(command.name)
    if known is None or known.incarnation != command.incarnation or known.lost:
        return
    lost = copy_of(known)
    lost.lost = True
    state.owners.brokers.put(command.name, lost)
    state.owners.raise_version(state.cluster_version)


def assign_shards(state: State, command: pd_state_pb2.AssignShards, now_ms: int) -> None:
    """Assign shards and journals; an item that does not hold any more is passed over. Raises InvalidArgument."""
    if len(command.assignments) > COMMAND_SHARDS_MAX:
        raise InvalidArgument(f"{len(command.assignments)} assignments; the limit is {COMMAND_SHARDS_MAX}")
    for each in command.assignments:
        key = (each.topic_id, each.shard_id)
        known = state.owners.assignments.find(key)
        overtaken = each.owner_epoch != (known.owner_epoch if known is not None else 0)
        if overtaken or not state.owners.can_be_owned(key):
            continue
        if state.owners.is_alive(each.broker, each.incarnation):
            assigned = copy_of(each)
            assigned.owner_epoch += 1
            state.owners.assignments.put(key, assigned)
