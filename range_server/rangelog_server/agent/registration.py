"""Registration with the placement driver, and the reason of a refusal.

A refusal has one of three reasons. The driver knows a later state of this incarnation than the data directory has: the
directory was rolled back, and must never answer for its replicas again (RolledBack). Or the name has a lease under another
incarnation: the lease may expire, so the server logs the refusal and waits. An incarnation that never counts again is refused
by an error of its own (DirectoryGivenUp), which ends the server.
"""

from __future__ import annotations

import asyncio
import uuid
from importlib.metadata import version

import structlog

from rangelog_core.errors import DirectoryGivenUp, PreconditionFailed, RangelogError
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.formats import reported_formats
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.settings import RangeServerSettings

CALL_TIMEOUT_S = 5.0
PROCESS_ID_MAX = (1 << 63) - 1
RETRY_S = 1.0

_log = structlog.get_logger("agent")


class RolledBack(RangelogError):
    """The data directory is older than the state of this incarnation that the placement driver knows."""

    code = "PRECONDITION_FAILED"


def new_process_id() -> int:
    """Return a random number above 0 that identifies one start of a range server."""
    return uuid.uuid4().int % PROCESS_ID_MAX + 1


async def register(
    pd: PdClient, identity: DirectoryIdentity, request: pb.RegisterServerRequest
) -> pb.RegisterServerResponse:
    """Register; retry until a placement driver answers. Raises RolledBack, DirectoryGivenUp, or another final refusal."""
    said = ""
    while True:
        try:
            return await pd.call(request, pb.RegisterServerResponse, timeout_s=CALL_TIMEOUT_S)
        except DirectoryGivenUp:
            raise
        except PreconditionFailed as error:
            if await _rolled_back(pd, identity):
                raise RolledBack(error.message) from error
            problem = error.message
        except RangelogError as error:
            if not error.retriable:
                raise
            problem = error.message
        if problem != said:
            _log.warning("not registered yet", problem=problem)
            said = problem
        await asyncio.sleep(RETRY_S)


def registration(
    identity: DirectoryIdentity,
    process_id: int,
    data_address: str,
    control_address: str,
    log_end: int,
    settings: RangeServerSettings,
) -> pb.RegisterServerRequest:
    """Return the request of this start."""
    return pb.RegisterServerRequest(
        request_id=uuid.uuid4().hex,
        server=identity.name,
        incarnation=identity.incarnation,
        boot=identity.boot,
        process_id=process_id,
        data_address=data_address,
        control_address=control_address,
        zone=settings.zone,
        rack=settings.rack,
        host=settings.host,
        labels=settings.labels,
        capacity_bytes=settings.capacity_bytes,
        version=version("rangelog"),
        formats=reported_formats(),
        log_end=log_end,
    )


async def _rolled_back(pd: PdClient, identity: DirectoryIdentity) -> bool:
    """Whether the refusal concerns this incarnation."""
    try:
        servers = (await pd.call(pb.ListServersRequest(), pb.ListServersResponse, timeout_s=CALL_TIMEOUT_S)).servers
    except RangelogError:
        return False
    return any(one.name == identity.name and one.incarnation == identity.incarnation for one in servers)
