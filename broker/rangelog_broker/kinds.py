"""The kinds of machines that a broker runs, and the tables that their rows make."""

from __future__ import annotations

from typing import Any

from rangelog_broker.groups.kind import GROUPS
from rangelog_broker.journal.joint_machine import JointMachine
from rangelog_broker.kind import EVERYTHING, KindCall, MachineKind, Need
from rangelog_broker.tables.kind import TABLES
from rangelog_broker.transactions.kind import TRANSACTIONS
from rangelog_broker.watermarks.kind import WATERMARKS
from rangelog_proto.v1.rights_pb2 import RESOURCE_KIND_TOPIC
from rangelog_server_common.quotas.guard import ByteCall

KINDS: tuple[MachineKind, ...] = (GROUPS, TRANSACTIONS, WATERMARKS, TABLES)


def calls_of(kinds: tuple[MachineKind, ...]) -> dict[str, KindCall]:
    """Return the calls by their full names, "/package.Service/Method"."""
    return {f"/{kind.service}/{method}": call for kind in kinds for method, call in kind.calls.items()}


def byte_calls_of(kinds: tuple[MachineKind, ...]) -> dict[str, ByteCall]:
    """Return the calls whose bytes count in quotas."""
    return {
        name: ByteCall(call.measure, lambda request: (int(RESOURCE_KIND_TOPIC), request.topic_id))
        for name, call in calls_of(kinds).items()
        if call.measure is not None
    }


_CALLS = calls_of(KINDS)
BYTE_CALLS = byte_calls_of(KINDS)


def needs_of_call(method: str, request: Any) -> list[Need]:
    """Return what a call by its full name, "/package.Service/Method", needs."""
    if method.startswith(("/grpc.health.", "/grpc.reflection.")):
        return []
    known = _CALLS.get(method)
    return known.needs(request) if known is not None else [EVERYTHING]


def coordinator_machine(number: int) -> JointMachine:
    """Return the machine of a coordinator journal in its first state."""
    return JointMachine({kind.number: kind.make(number) for kind in KINDS if kind.number})
