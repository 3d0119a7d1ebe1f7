"""The commands of operators on range servers: cordon, uncordon, drain, remove.

What holds: a mode is a server's by name, whatever its incarnation. A server is removed only if it is a member of no open
range, and each sealed range of which it is a member has another member on a registered server or is wholly in the tier; the
leader checks beforehand that these copies are whole. For a dead server an operator may give up its copies instead: its disk is
lost. The incarnation of a removed server never comes back.
"""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument, PreconditionFailed, RangeNotFound
from rangelog_core.ids import check_name
from rangelog_pd.state.indexes import Hosted
from rangelog_pd.state.losses import is_gone
from rangelog_pd.state.servers import RETIRED_MAX
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_proto.v1 import common_pb2, operations_pb2, pd_state_pb2

REMOVED_MAX = 1_000
"""Removed servers whose incarnations are kept; the oldest is forgotten first."""

MODES = (
    common_pb2.SERVER_MODE_ACTIVE,
    common_pb2.SERVER_MODE_CORDONED,
    common_pb2.SERVER_MODE_DRAINING,
)


def set_server_mode(
    state: State, request: operations_pb2.SetServerModeRequest, now_ms: int
) -> operations_pb2.SetServerModeResponse:
    """Set a server's mode. Raises InvalidArgument, RangeNotFound (no such server)."""
    known = registered(state, request.server)
    if request.mode not in MODES:
        raise InvalidArgument(f"{request.mode} is no mode that a range server can be given")
    if known.mode != request.mode:
        known = copy_of(known)
        known.mode = request.mode
        state.servers.put(request.server, known)
    shown = copy_of(known.server)
    shown.mode = known.mode
    return operations_pb2.SetServerModeResponse(server=shown)


def remove_server(
    state: State, request: operations_pb2.RemoveServerRequest, now_ms: int
) -> operations_pb2.RemoveServerResponse:
    """Remove a server for good. Raises RangeNotFound, PreconditionFailed; then nothing changed."""
    known = registered(state, request.server)
    incarnation = known.server.incarnation
    if request.incarnation and request.incarnation != incarnation:
        raise PreconditionFailed(
            f"{request.server} has another incarnation by now, {incarnation:016x}: see `pdctl server show`"
        )
    hosted = state.hosted.of(request.server, incarnation)
    if not request.dead and (known.mode != common_pb2.SERVER_MODE_DRAINING or hosted.sealed):
        raise PreconditionFailed(
            f"{request.server} is alive and not drained: run `pdctl server drain {request.server} --wait` first"
        )
    if not (request.dead and request.accept_loss):
        _check_copies(state, request.server, hosted)
    gone = copy_of(known)
    gone.mode = common_pb2.SERVER_MODE_REMOVED
    kept = [*known.retired, incarnation][-RETIRED_MAX:]
    del gone.retired[:]
    gone.retired.extend(kept)
    state.servers.remove(request.server)
    if len(state.removed) >= REMOVED_MAX:
        state.removed.remove(next(iter(state.removed)))
    state.removed.put(request.server, gone)
    return operations_pb2.RemoveServerResponse(incarnation=incarnation)


def registered(state: State, name: str) -> pd_state_pb2.RegisteredServer:
    """Return a registered server. Raises InvalidArgument, RangeNotFound."""
    check_name("range server", name)
    known = state.servers.find(name)
    if known is None:
        raise RangeNotFound(f"no range server {name!r}: see `pdctl server list`")
    return known


def _check_copies(state: State, name: str, hosted: Hosted) -> None:
    """Check that a server has nothing that may be nowhere else. Raises PreconditionFailed."""
    for stream_id, index in hosted.open:
        raise PreconditionFailed(
            f"{name} is a member of {len(hosted.open)} open ranges, such as range {index} of stream "
            f"{state.streams[stream_id].name!r}: seal it with `pdctl range seal`, or wait until its writer has left it"
        )
    for stream_id, index in hosted.sealed:
        if not _is_elsewhere(state, state.ranges[stream_id, index], name):
            raise PreconditionFailed(
                f"{name} has the last copy of range {index} of stream {state.streams[stream_id].name!r}"
            )


def _is_elsewhere(state: State, of: common_pb2.Range, server: str) -> bool:
    """Whether a sealed range is empty, wholly in the tier, or has a member on another registered server."""
    if of.tiered_end_offset >= of.end_offset:
        return True
    return any(each.server != server and not is_gone(state, each) for each in of.replicas)
